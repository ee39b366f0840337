//! What a service does with a session, and what must hold afterwards.

use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use beneath::session::{Attachment, Disposition, ListOptions, SessionsConfig, Sibling, Ticket};
use beneath::{
    Error, Execute, MessageId, ResolverChoice, Result, Root, Session, SessionId, Sessions, WalkLimits,
    ambient_authority,
};
use serde_json::{Value, json};

use crate::naive::{NaiveSession, secure_tree};
use crate::strikes::spare;
use crate::trace::marked;
use crate::trace::scenario::descriptors;
use crate::trace::scene::Snapshot;

/// What the guest has written.
const GUESTS: &str = "written by the guest\n";
/// What the host writes; long enough to be seen half-written.
const HOSTS: &str = "written by the host\n";
const MOST: u64 = 1 << 20;

pub(crate) const SWEEP_IDLE: &str = "sweep idle sessions";
pub(crate) const IDLE: Duration = Duration::from_secs(2);

pub(crate) fn hosts() -> String {
    HOSTS.repeat(400)
}

/// One job of a service.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Where the guest strikes, in its side of the session.
    pub(crate) targets: &'static [&'static str],
    pub(crate) control: bool,
    /// Messages cannot be moved to the host's side.
    pub(crate) immovable: bool,
    prepare: fn(&Session),
    run: fn(&Work, &mut Told) -> Result<()>,
    pub(crate) judge: fn(&After) -> Vec<String>,
}

/// What a job works with.
struct Work {
    sessions: Sessions,
    session: Session,
    other: Session,
    naive: NaiveSession,
}

/// A round that is over.
pub(crate) struct After<'a> {
    pub(crate) base: &'a Path,
    pub(crate) told: &'a Told,
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
    fn give_back(&self) -> bool {
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
const INBOX: &[&str] = &["inbox", "inbox/42", "inbox/42/one.bin"];
const WORKSPACE: &[&str] = &["workspace", "workspace/sub", "workspace/sub/one.bin"];
const DATABASE: &[&str] = &["workspace", "workspace/db", "workspace/db-journal"];

const fn scenario(
    name: &'static str,
    targets: &'static [&'static str],
    run: fn(&Work, &mut Told) -> Result<()>,
) -> Scenario {
    Scenario { name, targets, control: false, immovable: false, prepare: |_| {}, run, judge: |_| Vec::new() }
}

const fn control(
    name: &'static str,
    targets: &'static [&'static str],
    run: fn(&Work, &mut Told) -> Result<()>,
) -> Scenario {
    Scenario { control: true, ..scenario(name, targets, run) }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("deliver", INBOX, deliver),
    Scenario { prepare: |session| drop(delivered(session)), ..scenario("deliver again", INBOX, deliver) },
    Scenario {
        prepare: |session| drop(delivered(session)),
        ..scenario("resolve_guest_path", INBOX, |work, told| {
            let path = format!("{}/inbox/42/one.bin", work.session.config().mount_point());
            told.read(work.session.inbox().resolve_guest_path(&path)?.read_to_limit(MOST)?);
            Ok(())
        })
    },
    Scenario {
        prepare: |session| drop(delivered(session)),
        ..scenario("roll a delivery back", INBOX, |work, told| {
            let delivery = delivered(&work.session);
            told.refuse(delivery.refusals());
            let _ = delivery.rollback();
            Ok(())
        })
    },
    Scenario {
        prepare: |session| drop(delivered(session)),
        ..scenario("clear the inbox", INBOX, |work, told| {
            told.incomplete |= !work.session.inbox().clear(&MessageId::new("42"))?.is_complete();
            Ok(())
        })
    },
    Scenario {
        prepare: |session| drop(delivered(session)),
        ..scenario("clear the inbox by age", INBOX, |work, told| {
            told.incomplete |= work.session.inbox().clear_older_than(Duration::ZERO)?.left.total > 0;
            Ok(())
        })
    },
    Scenario { judge: sent_once, ..scenario("claim, read, clear", OUTBOX, collect) },
    Scenario {
        immovable: true,
        judge: sent_once,
        ..scenario("claim, read, clear in place", OUTBOX, collect)
    },
    scenario("claim and release", OUTBOX, |work, told| {
        match work.session.outbox().claim(&MessageId::new("42"))? {
            Some(claim) => claim.release(),
            None => {
                told.incomplete = true;
                Ok(())
            }
        }
    }),
    scenario("forward", OUTBOX, |work, told| {
        let Some(claim) = work.session.outbox().claim(&MessageId::new("42"))? else { return Ok(()) };
        let delivery = claim.forward(["one.bin", "two.bin"], &work.other.inbox(), &MessageId::new("7"))?;
        told.refuse(delivery.refusals());
        claim.clear();
        Ok(())
    }),
    scenario("messages, undeclared, sweep", OUTBOX, |work, told| {
        let outbox = work.session.outbox();
        told.incomplete |= outbox.messages()?.refused.total > 0;
        if let Some(claim) = outbox.claim(&MessageId::new("42"))? {
            told.incomplete |= claim.undeclared(["one.bin"])?.entries.len() != 1;
        }
        told.incomplete |= outbox.sweep(Duration::ZERO)?.left.total > 0;
        Ok(())
    }),
    scenario("verify and repair", PARTS, |work, told| {
        told.incomplete |= !work.session.verify().is_sound();
        told.incomplete |= !work.session.repair()?.is_sound();
        Ok(())
    }),
    scenario("harden", WORKSPACE, |work, told| {
        told.incomplete |= !work.session.harden(Execute::Keep)?.complete();
        Ok(())
    }),
    scenario("usage and heartbeat", WORKSPACE, |work, _| {
        let _ = work.session.usage(WalkLimits::default())?;
        work.session.heartbeat_age("workspace/sub/one.bin").map(drop)
    }),
    scenario("write in the workspace", WORKSPACE, |work, _| {
        work.session.workspace().mkdir("sub/new")?;
        work.session.workspace().write("sub/new/file", hosts())?;
        work.session.workspace().replace("sub/one.bin", hosts())
    }),
    scenario("read in the workspace", WORKSPACE, |work, told| {
        let workspace = work.session.workspace();
        told.read(workspace.read("sub/one.bin", MOST)?);
        told.read(workspace.read_range("sub/one.bin", 4, 8)?);
        told.read(workspace.tail("sub/one.bin")?.next_chunk(MOST)?.bytes);
        told.incomplete |= workspace.list(".", ListOptions::default().recursive())?.entries.is_empty();
        workspace.stat("sub").map(drop)
    }),
    scenario("move and delete in the workspace", WORKSPACE, |work, told| {
        let workspace = work.session.workspace();
        workspace.rename("sub/two.bin", "sub/2")?;
        workspace.move_to("sub/one.bin", &work.other.workspace(), "came", MOST)?;
        told.incomplete |= !workspace.delete_tree("sub")?.is_complete();
        Ok(())
    }),
    scenario("a database", DATABASE, |work, told| {
        let owner = Some(rustix::process::getuid().as_raw());
        // The journal that the guest has left is a fault.
        told.incomplete |= work.session.verify_db("workspace/db", owner)?.is_sound();
        let copy = work.session.copy_db("workspace/db", MOST)?;
        told.read(work.session.host().read_contained(copy, MOST)?);
        work.session.quarantine_sibling("workspace/db", Sibling::Journal).map(drop)
    }),
    Scenario {
        judge: |after| {
            let left = fs::symlink_metadata(after.base.join("all/s")).is_ok();
            if after.told.verdict() == "ok" && left {
                vec!["success without the effect".into()]
            } else {
                vec![]
            }
        },
        ..scenario("remove a session", OUTBOX, |work, told| {
            told.incomplete |= !work.sessions.remove(&SessionId::new("s"))?.is_complete();
            Ok(())
        })
    },
    // The guest does not strike here; see `spared_under_the_lock`.
    scenario(SWEEP_IDLE, &[], |work, _| work.sessions.sweep(IDLE).map(drop)),
    scenario("sweep all sessions", WORKSPACE, |work, told| {
        told.incomplete |= work.sessions.sweep(Duration::ZERO)?.left.total > 0;
        Ok(())
    }),
    control("control: deliver", INBOX, |work, _| {
        let result = work.naive.deliver("42", "new.bin", hosts().as_bytes(), || {});
        result.map(drop).map_err(|error| naive_error(&error))
    }),
    control("control: collect", OUTBOX, |work, told| {
        for (_, bytes) in work.naive.collect("42", &["one.bin", "two.bin"], || {}) {
            told.read(bytes);
        }
        Ok(())
    }),
    control("control: harden", WORKSPACE, |work, _| {
        secure_tree(&work.naive.dir.join("workspace"), &|_| {});
        Ok(())
    }),
];

/// Any typed error will do: nobody judges the errors of a control.
fn naive_error(error: &std::io::Error) -> Error {
    let nowhere = Root::open_ambient(format!("/nowhere/{error}"), ambient_authority());
    nowhere.expect_err("there is no such directory")
}

fn delivered(session: &Session) -> beneath::session::Delivery<'_> {
    let content = hosts();
    let attachments = [
        Attachment::from_bytes(content.as_bytes()).with_name("one.bin"),
        Attachment::from_reader(content.as_bytes()).with_name("two.bin"),
    ];
    session.inbox().deliver(&MessageId::new("42"), attachments)
}

/// Another host takes the session's lock and delivers a message.
pub(crate) fn deliver_under_the_lock(base: &Path) -> Result<()> {
    let work = open(base, ResolverChoice::Auto)?;
    let _lock = work.session.try_lock()?;
    match delivered(&work.session).refusals().next() {
        None => Ok(()),
        Some(refusal) => panic!("{refusal}"),
    }
}

fn deliver(work: &Work, told: &mut Told) -> Result<()> {
    told.refuse(delivered(&work.session).refusals());
    Ok(())
}

/// The loop with a ledger that no other host has: what is sent is told.
fn collect(work: &Work, told: &mut Told) -> Result<()> {
    collect_from(&work.session, told)
}

fn collect_from(session: &Session, told: &mut Told) -> Result<()> {
    let lock = session.try_lock()?;
    let mut ledger: HashSet<Ticket> = HashSet::new();
    let collection = session.outbox().collect(&lock, &mut ledger, |claim| {
        let collected = claim.read(["one.bin", "two.bin"])?;
        for (_, bytes) in collected.found() {
            told.read(bytes.clone());
        }
        told.refuse(collected.refusals().map(|(_, error)| error));
        Ok::<_, Error>(Disposition::Done)
    })?;
    told.refuse(collection.failed.iter().map(|failed| &failed.error));
    told.incomplete |= !collection.is_complete();
    Ok(())
}

/// Whatever the guest puts back, the next host sends no file a second time; and if all of it is back, none is lost.
fn sent_once(after: &After) -> Vec<String> {
    let whole = after.give_back();
    let mut sent = after.told.data.clone();
    let mut second = Told::default();
    let opened = open(after.base, ResolverChoice::Auto);
    if let Err(error) = opened.and_then(|work| collect_from(&work.session, &mut second)) {
        second.refuse([&error]);
    }
    sent.append(&mut second.data);
    let times = |name: &str| sent.iter().filter(|sent| **sent == guests(name)).count();
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
    for sub in [".", "42", "sub", "outbox/42", "inbox/42"] {
        let dir = dir.join(sub);
        fs::create_dir_all(&dir).unwrap();
        for name in ["one.bin", "two.bin", "db", "db-journal"] {
            fs::write(dir.join(name), content).unwrap();
        }
    }
}

/// Makes the session `s` that the guest has used, and the session `t`.
pub(crate) fn build(all: &Path, scenario: &Scenario) {
    let sessions =
        Sessions::new(Root::open_ambient(all, ambient_authority()).unwrap(), config(ResolverChoice::Auto));
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

fn config(resolver: ResolverChoice) -> SessionsConfig {
    SessionsConfig::default().with_resolver(resolver)
}

fn open(base: &Path, resolver: ResolverChoice) -> Result<Work> {
    let all = base.join("all");
    let sessions = Sessions::new(Root::open_ambient(&all, ambient_authority())?, config(resolver));
    let session = sessions.open(&SessionId::new("s"))?;
    let other = sessions.open(&SessionId::new("t"))?;
    Ok(Work { sessions, session, other, naive: NaiveSession { dir: all.join("s/guest") } })
}

pub(crate) fn request(scenario: &Scenario, resolver: ResolverChoice, base: &Path) -> String {
    let resolver = if resolver == ResolverChoice::Walk { "walk" } else { "openat2" };
    format!("{}\t{resolver}\t{}", scenario.name, base.display())
}

/// Serves one request as the victim.
pub(crate) fn answer(request: &str) -> String {
    let fields: Vec<&str> = request.split('\t').collect();
    let [name, resolver, base] = fields[..] else { return "{}".into() };
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else { return "{}".into() };
    let resolver = if resolver == "walk" { ResolverChoice::Walk } else { ResolverChoice::Openat2 };
    // The first open of a process keeps a descriptor for all later ones.
    drop(open(Path::new(base), resolver));
    let before = descriptors();
    let mut told = Told::default();
    match open(Path::new(base), resolver) {
        Ok(work) => {
            let run = AssertUnwindSafe(|| (scenario.run)(&work, &mut told));
            match marked(|| catch_unwind(run)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => told.refuse([&error]),
                Err(_) => told.panicked = true,
            }
        }
        Err(error) => told.refuse([&error]),
    }
    told.descriptors = (before as u64, descriptors() as u64);
    told.line()
}

/// What a job told its caller.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Contents that were read.
    data: Vec<String>,
    /// Kinds and texts of errors.
    errors: Vec<(String, String)>,
    incomplete: bool,
    panicked: bool,
    descriptors: (u64, u64),
}

impl Told {
    fn read(&mut self, bytes: Vec<u8>) {
        self.data.push(String::from_utf8_lossy(&bytes).into_owned());
    }

    fn refuse<'e>(&mut self, errors: impl IntoIterator<Item = &'e Error>) {
        let errors = errors.into_iter();
        self.errors.extend(errors.map(|error| (format!("{:?}", error.kind()), error.to_string())));
    }

    fn line(&self) -> String {
        let Self { data, errors, incomplete, panicked, descriptors } = self;
        json!([data, errors, incomplete, panicked, descriptors]).to_string()
    }

    pub(crate) fn parse(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let take = |index: usize| value[index].clone();
        Self {
            data: serde_json::from_value(take(0)).unwrap(),
            errors: serde_json::from_value(take(1)).unwrap(),
            incomplete: take(2) == true,
            panicked: take(3) == true,
            descriptors: serde_json::from_value(take(4)).unwrap(),
        }
    }

    /// What no job may do, whatever the guest does.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.panicked {
            faults.push("panic".into());
        }
        if self.descriptors.0 != self.descriptors.1 {
            faults.push(format!("descriptors: {:?}", self.descriptors));
        }
        let untyped = self.errors.iter().filter(|(kind, _)| kind == "Io");
        faults.extend(untyped.map(|(_, text)| format!("untyped error: {text}")));
        faults
    }

    /// `ok` or what kept it from being so.
    pub(crate) fn verdict(&self) -> String {
        match self.errors.first() {
            _ if self.panicked => "panic".into(),
            Some((kind, _)) => kind.clone(),
            None if self.incomplete => "incomplete".into(),
            None => "ok".into(),
        }
    }
}
