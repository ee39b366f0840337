//! What a service does with a session, and what must hold afterwards.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use beneath::session::{Attachment, Delivery, Disposition, ListOptions, SessionsConfig, Sibling, Ticket};
use beneath::tree::{Guard, MergeOptions, TreeLimits};
use beneath::{
    Error, Execute, Links, MessageId, Rename, ResolverChoice, Result, Root, Session, SessionId, Sessions,
    WalkLimits, ambient_authority,
};
use beneath_kit::child::open_descriptors;
use beneath_kit::naive::session::{NaiveSession, secure_tree};
use beneath_kit::scene::report::Report;
use beneath_kit::scene::victim::Request;
use beneath_kit::trace::{Act, Stop, marked};
use beneath_kit::{Contender, Snapshot};
use nix::errno::Errno;
use nix::libc;

use crate::spare;

/// What the guest has written.
const GUESTS: &str = "written by the guest\n";
/// What the host writes; long enough to be seen half-written.
const HOSTS: &str = "written by the host\n";
const MOST: u64 = 1 << 20;
/// How long a session must rest to be swept.
const IDLE: Duration = Duration::from_secs(2);

fn hosts() -> String {
    HOSTS.repeat(400)
}

/// One job of a service.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) contenders: &'static [Contender],
    /// Where the guest strikes, in its side of the session.
    pub(crate) targets: &'static [&'static str],
    /// Whether the guest has every strike at its disposal, also in the short form.
    pub(crate) all_strikes: bool,
    /// What happens before each call, apart from strikes.
    pub(crate) meanwhile: Option<fn(&Stop, &Path) -> Act>,
    pub(crate) prepare: fn(&Session),
    pub(crate) run: Job,
    pub(crate) judge: fn(&After) -> Vec<String>,
}

/// All rows, those of other features included.
pub(crate) fn all_scenarios() -> impl Iterator<Item = &'static Scenario> {
    #[cfg(feature = "queue")]
    let more = crate::queue::SCENARIOS;
    #[cfg(not(feature = "queue"))]
    let more: &[Scenario] = &[];
    SCENARIOS.iter().chain(more)
}

/// Whether it is complete.
pub(crate) type Job = fn(&Work, &mut Report) -> Result<bool>;

/// What a job works with.
pub(crate) struct Work {
    sessions: Sessions,
    pub(crate) session: Session,
    other: Session,
    pub(crate) naive: NaiveSession,
}

/// A round that is over.
pub(crate) struct After<'a> {
    pub(crate) base: &'a Path,
    pub(crate) report: &'a Report,
    pub(crate) target: Option<&'a str>,
}

impl After<'_> {
    /// Every file that begins as the host's ends as it.
    pub(crate) fn torn(&self, now: &Snapshot) -> Vec<String> {
        let whole = hosts().into_bytes();
        now.iter()
            .filter(|(_, entry)| {
                let content = entry.content.as_deref().unwrap_or_default();
                let begun = entry.is_file() && !content.is_empty() && whole.starts_with(content);
                begun && content.len() != whole.len()
            })
            .map(|(path, entry)| format!("torn: {} has {} bytes", path.display(), entry.size))
            .collect()
    }

    /// Gives back the directory that the guest has taken away, if it has, in place of whatever is there.
    pub(crate) fn give_back(&self) -> bool {
        let Some(target) = self.target else { return false };
        let entry = self.base.join("all/s/guest").join(target);
        let taken = fs::symlink_metadata(spare(self.base)).is_ok_and(|spare| spare.is_dir());
        if taken {
            if fs::symlink_metadata(&entry).is_ok_and(|entry| entry.is_dir()) {
                fs::remove_dir_all(&entry).unwrap();
            } else if fs::symlink_metadata(&entry).is_ok() {
                fs::remove_file(&entry).unwrap();
            }
            fs::rename(spare(self.base), entry).unwrap();
        }
        taken
    }
}

const PARTS: &[&str] = &["inbox", "outbox", "workspace"];
const OUTBOX: &[&str] = &["outbox", "outbox/42", "outbox/42/one.bin"];
const OWN_NAME: &[&str] = &["outbox", "outbox/msg:42", "outbox/msg:42/one.bin"];
const BY_LINK: &[&str] = &["workspace", "workspace/by", "workspace/sub", "workspace/sub/one.bin"];
const INBOX: &[&str] = &["inbox", "inbox/42", "inbox/42/one.bin"];
const WORKSPACE: &[&str] = &["workspace", "workspace/sub", "workspace/sub/one.bin"];
const DATABASE: &[&str] = &["workspace", "workspace/db", "workspace/db-journal"];

pub(crate) const fn scenario(name: &'static str, targets: &'static [&'static str], run: Job) -> Scenario {
    let contenders = Contender::RESOLVERS;
    let judge: fn(&After) -> Vec<String> = |_| Vec::new();
    Scenario { name, contenders, targets, all_strikes: false, meanwhile: None, prepare: |_| {}, run, judge }
}

/// In an inbox that has a message.
const fn delivered(name: &'static str, run: Job) -> Scenario {
    Scenario { prepare: |session| drop(send(session)), ..scenario(name, INBOX, run) }
}

pub(crate) const fn control(name: &'static str, targets: &'static [&'static str], run: Job) -> Scenario {
    Scenario { contenders: &[Contender::Control], ..scenario(name, targets, run) }
}

const SCENARIOS: &[Scenario] = &[
    scenario("deliver", INBOX, deliver),
    delivered("deliver again", deliver),
    delivered("resolve_guest_path", |work, report| {
        let path = format!("{}/inbox/42/one.bin", work.session.config().mount_point());
        report.read(&work.session.inbox().resolve_guest_path(&path)?.read_to_limit(MOST)?);
        Ok(true)
    }),
    delivered("roll a delivery back", |work, report| {
        let delivery = send(&work.session);
        report.refuse(delivery.refused().map(|(_, error)| error));
        let _ = delivery.rollback();
        Ok(true)
    }),
    delivered("clear the inbox", |work, _| {
        Ok(work.session.inbox().clear(&MessageId::new("42"))?.is_complete())
    }),
    delivered("clear the inbox by age", |work, _| {
        Ok(work.session.inbox().sweep(Duration::ZERO)?.left.total == 0)
    }),
    Scenario { judge: sent_once, ..scenario("claim, read, clear", OUTBOX, collect) },
    Scenario {
        meanwhile: Some(refuse_moves),
        judge: sent_once,
        ..scenario("claim, read, clear in place", OUTBOX, collect)
    },
    scenario("claim and release", OUTBOX, |work, _| {
        match work.session.outbox().claim(&MessageId::new("42"))? {
            Some(claim) => claim.release().map(|()| true),
            None => Ok(false),
        }
    }),
    Scenario {
        prepare: |session| session.guest().rename("outbox/42", "outbox/msg:42").unwrap(),
        ..scenario("claim by the guest's own name", OWN_NAME, |work, report| {
            let (outbox, id) = (work.session.outbox(), MessageId::new("msg:42"));
            drop(outbox.claim(&id)?);
            let lock = work.session.try_lock()?;
            let Some(claim) = outbox.claim_pending(&lock, &id)? else { return Ok(false) };
            claim.read(["one.bin"])?.found().for_each(|(_, bytes)| report.read(bytes));
            Ok(claim.clear().is_complete())
        })
    },
    scenario("forward", OUTBOX, |work, report| {
        let Some(claim) = work.session.outbox().claim(&MessageId::new("42"))? else { return Ok(true) };
        let delivery = claim.forward(["one.bin", "two.bin"], &work.other.inbox(), &MessageId::new("7"))?;
        report.refuse(delivery.refused().map(|(_, error)| error));
        let _ = claim.clear();
        Ok(true)
    }),
    scenario("messages, undeclared, sweep", OUTBOX, |work, _| {
        let outbox = work.session.outbox();
        let mut complete = outbox.messages()?.refused.total == 0;
        if let Some(claim) = outbox.claim(&MessageId::new("42"))? {
            complete &= claim.undeclared(["one.bin"])?.entries.len() == 1;
        }
        Ok(outbox.sweep(Duration::ZERO)?.left.total == 0 && complete)
    }),
    scenario("verify and repair", PARTS, |work, _| {
        let sound = work.session.verify().is_sound();
        Ok(work.session.repair()?.is_sound() && sound)
    }),
    scenario("harden", WORKSPACE, |work, _| Ok(work.session.harden(Execute::Keep)?.is_complete())),
    scenario("usage and heartbeat", WORKSPACE, |work, _| {
        let _ = work.session.usage(WalkLimits::default())?;
        work.session.heartbeat_age("sub/one.bin").map(|_| true)
    }),
    scenario("write in the workspace", WORKSPACE, |work, _| {
        work.session.workspace().ensure_dir("sub/new")?;
        work.session.workspace().write_exclusive("sub/new/file", hosts())?;
        work.session.workspace().replace("sub/one.bin", hosts()).map(|()| true)
    }),
    scenario("read in the workspace", WORKSPACE, |work, report| {
        let workspace = work.session.workspace();
        report.read(&workspace.read_contained("sub/one.bin", MOST)?);
        report.read(&workspace.read_range("sub/one.bin", 4, 8)?);
        report.read(&workspace.tail("sub/one.bin")?.next_chunk(MOST)?.bytes);
        report.incomplete |= workspace.list(".", ListOptions::default().recursive())?.entries.is_empty();
        workspace.metadata("sub").map(|_| true)
    }),
    Scenario {
        contenders: &[Contender::Openat2],
        prepare: |session| session.guest().symlink("sub", "workspace/by").unwrap(),
        ..scenario("read in the workspace by links", BY_LINK, |work, report| {
            let config = work.session.config().clone().with_links(Links::FollowBeneath);
            let workspace = work.session.clone().with_config(config).workspace();
            report.read(&workspace.read_contained("by/one.bin", MOST)?);
            report.read(&workspace.tail("by/one.bin")?.next_chunk(MOST)?.bytes);
            report.incomplete |= workspace.list("by", ListOptions::default())?.entries.is_empty();
            workspace.metadata("by/one.bin").map(|_| true)
        })
    },
    scenario("move and delete in the workspace", WORKSPACE, |work, _| {
        let workspace = work.session.workspace();
        workspace.rename("sub/two.bin", "sub/2")?;
        workspace.move_to("sub/one.bin", &work.other.workspace(), "came", MOST)?;
        Ok(workspace.remove_tree_contained("sub")?.is_complete())
    }),
    scenario("copy, link and exchange in the workspace", WORKSPACE, |work, report| {
        let workspace = work.session.workspace();
        workspace.copy("sub/one.bin", "sub/new/copy", MOST)?;
        workspace.copy_to("sub/one.bin", &work.other.workspace(), "copied", MOST)?;
        workspace.symlink("one.bin", "sub/link")?;
        workspace.set_times("sub/one.bin", None, Some(UNIX_EPOCH))?;
        workspace.rename_with("sub/one.bin", "sub/two.bin", Rename::Exchange)?;
        report.read(&workspace.read_contained("sub/new/copy", MOST)?);
        workspace.read_link("sub/link").map(|_| true)
    }),
    // Theirs has changed one file, removed the other, and made a third.
    scenario("merge into the workspace", WORKSPACE, |work, report| {
        let (workspace, other) = (work.session.workspace(), work.other.workspace());
        let base = workspace.tree(TreeLimits::default())?;
        other.write_exclusive("sub/one.bin", hosts())?;
        other.write_exclusive("sub/new/three.bin", hosts())?;
        let options = MergeOptions::default().with_guard(Guard::Off);
        let merged = workspace.merge_from(&other.open()?, &base, &options)?;
        report.refuse(merged.refused().map(|(_, error)| error));
        Ok(merged.is_complete())
    }),
    scenario("a database", DATABASE, |work, report| {
        let owner = Some(rustix::process::getuid().as_raw());
        // The journal that the guest has left is a fault.
        report.incomplete |= work.session.verify_db("db", owner)?.is_sound();
        let copy = work.session.copy_db("db", MOST)?;
        report.read(&work.session.host().read_contained(copy, MOST)?);
        work.session.quarantine_sibling("db", Sibling::Journal).map(|_| true)
    }),
    Scenario {
        judge: |after| {
            let left =
                after.report.verdict() == "ok" && fs::symlink_metadata(after.base.join("all/s")).is_ok();
            left.then(|| "success without the effect".into()).into_iter().collect()
        },
        ..scenario("remove a session", OUTBOX, |work, _| {
            Ok(work.sessions.remove(&SessionId::new("s"))?.is_complete())
        })
    },
    // The guest does not strike here: both sessions are idle, and before the sweep has the lock of one another host works.
    Scenario {
        prepare: |_| std::thread::sleep(IDLE + Duration::from_millis(50)),
        meanwhile: Some(deliver_before_the_lock),
        judge: spared,
        ..scenario("sweep idle sessions", &[], |work, _| work.sessions.sweep(IDLE).map(|_| true))
    },
    scenario("sweep all sessions", WORKSPACE, |work, _| {
        Ok(work.sessions.sweep(Duration::ZERO)?.left.total == 0)
    }),
    control("control: deliver", INBOX, |work, report| {
        if let Err(error) = work.naive.deliver("42", "new.bin", hosts().as_bytes(), || {}) {
            report.errors.push(("Naive".into(), error.to_string()));
        }
        Ok(true)
    }),
    control("control: collect", OUTBOX, |work, report| {
        for (_, bytes) in work.naive.collect("42", &["one.bin", "two.bin"], || {}) {
            report.read(&bytes);
        }
        Ok(true)
    }),
    control("control: harden", WORKSPACE, |work, _| {
        secure_tree(&work.naive.dir.join("workspace"), &|_| {});
        Ok(true)
    }),
];

/// A host that may not move what the guest owns is made so by refusing the move of a message to another directory. It may
/// still rename it.
fn refuse_moves(stop: &Stop, _: &Path) -> Act {
    let [from, _, to, ..] = stop.call.arguments;
    let moves = stop.call.is(libc::SYS_renameat2) && stop.text(1) == "42" && from != to;
    if moves { Act::Fail(Errno::EACCES) } else { Act::Go }
}

/// Another host takes the session's lock and delivers a message, once. The first lock is that of the session `s`, which may
/// have been swept away wrongly by the second.
fn deliver_before_the_lock(stop: &Stop, base: &Path) -> Act {
    let inbox = base.join("all/s/guest/inbox");
    if stop.call.is(libc::SYS_flock) && inbox.exists() && !inbox.join("42").exists() {
        let work = open(base, ResolverChoice::Auto).unwrap();
        let _lock = work.session.try_lock().unwrap();
        assert!(send(&work.session).refused().next().is_none());
    }
    Act::Go
}

/// The session with the new message is not swept away, the other is.
fn spared(after: &After) -> Vec<String> {
    let kept = fs::read(after.base.join("all/s/guest/inbox/42/one.bin"));
    let lost = kept.map_or_else(
        |error| Some(error.to_string()),
        |kept| (kept != hosts().as_bytes()).then(|| "it has changed".into()),
    );
    let swept = fs::symlink_metadata(after.base.join("all/t")).is_err();
    let lost = lost.map(|why| format!("a message under the lock was swept away: {why}"));
    lost.into_iter().chain((!swept).then(|| "an idle session was not swept".into())).collect()
}

fn send(session: &Session) -> Delivery {
    let content = hosts();
    let attachments = [
        Attachment::from_bytes(content.as_bytes()).with_name("one.bin"),
        Attachment::from_reader(content.as_bytes()).with_name("two.bin"),
    ];
    session.inbox().deliver(&MessageId::new("42"), attachments)
}

fn deliver(work: &Work, report: &mut Report) -> Result<bool> {
    report.refuse(send(&work.session).refused().map(|(_, error)| error));
    Ok(true)
}

/// The loop with a ledger that no other host has: what is sent is reported.
fn collect(work: &Work, report: &mut Report) -> Result<bool> {
    let session = &work.session;
    let lock = session.try_lock()?;
    let mut ledger: HashSet<Ticket> = HashSet::new();
    let collection = session.outbox().collect(&lock, &mut ledger, |claim| {
        let collected = claim.read(["one.bin", "two.bin"])?;
        collected.found().for_each(|(_, bytes)| report.read(bytes));
        report.refuse(collected.refused().map(|(_, error)| error));
        Ok::<_, Error>(Disposition::Done)
    })?;
    report.refuse(collection.failed.iter().map(|failed| &failed.error));
    Ok(collection.is_complete())
}

/// Whatever the guest puts back, the next host sends no file a second time; and if all of it is back, none is lost.
fn sent_once(after: &After) -> Vec<String> {
    let whole = after.give_back();
    let mut second = Report::default();
    // An error is no fault here: what counts is what was sent.
    let _ = open(after.base, ResolverChoice::Auto).and_then(|work| collect(&work, &mut second));
    let sent = || after.report.data.iter().chain(&second.data);
    let times = |name: &str| sent().filter(|sent| **sent == guests(name)).count();
    ["one.bin", "two.bin"]
        .into_iter()
        .filter(|name| times(name) > 1 || whole && times(name) == 0)
        .map(|name| format!("{name} was sent {} times", times(name)))
        .collect()
}

fn guests(name: &str) -> String {
    format!("{name}: {GUESTS}")
}

/// Fills a directory with every name that a session and its parts have.
pub(crate) fn fill(dir: &Path, content: &str) {
    for sub in [".", "42", "sub", "outbox/42", "inbox/42", "requests", "responses"] {
        let dir = dir.join(sub);
        fs::create_dir_all(&dir).unwrap();
        for name in ["one.bin", "two.bin", "db", "db-journal", "one.json"] {
            fs::write(dir.join(name), content).unwrap();
        }
    }
}

/// Makes the session `s` that the guest has used, and the session `t`.
pub(crate) fn build(all: &Path, scenario: &Scenario) {
    let sessions = sessions(all, ResolverChoice::Auto).unwrap();
    for id in ["s", "t"] {
        sessions.create(&SessionId::new(id)).unwrap();
    }
    let guest = all.join("s/guest");
    for dir in ["outbox/42", "workspace/sub", "workspace"].map(|dir| guest.join(dir)) {
        fs::create_dir_all(&dir).unwrap();
        for name in ["one.bin", "two.bin"] {
            fs::write(dir.join(name), guests(name)).unwrap();
        }
    }
    fs::write(guest.join("workspace/db"), GUESTS).unwrap();
    fs::write(guest.join("workspace/db-journal"), GUESTS).unwrap();
    (scenario.prepare)(&sessions.open(&SessionId::new("s")).unwrap());
}

fn sessions(all: &Path, resolver: ResolverChoice) -> Result<Sessions> {
    let root = Root::open_ambient(all, ambient_authority())?;
    Ok(Sessions::new(root, SessionsConfig::default().with_resolver(resolver)))
}

pub(crate) fn open(base: &Path, resolver: ResolverChoice) -> Result<Work> {
    let all = base.join("all");
    let sessions = sessions(&all, resolver)?;
    let session = sessions.open(&SessionId::new("s"))?;
    let other = sessions.open(&SessionId::new("t"))?;
    Ok(Work { sessions, session, other, naive: NaiveSession { dir: all.join("s/guest") } })
}

/// Serves one request as the victim.
pub(crate) fn answer(request: &Request) -> Report {
    let scenario = all_scenarios().find(|scenario| scenario.name == request.scenario);
    let scenario = scenario.expect("a request names a scenario");
    let open = || open(&request.base, request.contender.choice());
    // The first open of a process keeps a descriptor for all later ones.
    drop(open());
    let before = open_descriptors();
    let mut report = match open() {
        Ok(work) => Report::of(&|part| marked(part), |report| match (scenario.run)(&work, report) {
            Ok(complete) => report.incomplete |= !complete,
            Err(error) => report.refuse([&error]),
        }),
        Err(error) => {
            let mut report = Report::default();
            report.refuse([&error]);
            report
        }
    };
    report.descriptors = (before, open_descriptors());
    report
}
