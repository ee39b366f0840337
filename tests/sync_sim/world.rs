//! The hosts, their guests, and who counts what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use beneath::artifacts::{Artifacts, Deletions, Prefer, Prefix, Retry, SyncOptions, SyncReport};
use beneath::{Root, Session, SessionId, ambient_authority};
use futures_util::{FutureExt as _, TryStreamExt as _};

use crate::naive;
use crate::store::{Scripted, Tape};

/// By which rules the hosts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    Beneath,
    CopyOver,
}

/// What has happened, so that a run which shows nothing is noticed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) complete: u64,
    pub(crate) conflicts: u64,
    pub(crate) deleted: u64,
    pub(crate) held: u64,
    pub(crate) faults: u64,
    pub(crate) crashes: u64,
    pub(crate) accidents: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.complete += other.complete;
        self.conflicts += other.conflicts;
        self.deleted += other.deleted;
        self.held += other.held;
        self.faults += other.faults;
        self.crashes += other.crashes;
        self.accidents += other.accidents;
    }
}

/// Paths on both sides of `t/`, two cases of one letter, two forms of one letter, and names that no key has as they are.
const PATHS: [&[u8]; 13] = [
    b"a",
    b"A",
    "\u{e9}".as_bytes(),
    "e\u{301}".as_bytes(),
    b"t",
    b"t-1",
    b"t.x",
    b"t/a",
    b"t/b/c",
    b"d/b",
    b"q: ?.md",
    b"\xff",
    b"d/...",
];

pub(crate) type Files = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) struct World {
    dir: tempfile::TempDir,
    pub(crate) store: Scripted,
    rules: Rules,
    workload: Tape,
    schedule: Tape,
    /// Every content that a guest has written and that must be somewhere.
    living: BTreeSet<Vec<u8>>,
    written: u64,
    told: Vec<String>,
    tally: Tally,
}

impl World {
    pub(crate) fn new(seed: u64, rules: Rules) -> Self {
        let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
        for host in 0..2 {
            for name in ["guest/workspace", "host"] {
                fs::create_dir_all(dir.path().join(host.to_string()).join(name)).unwrap();
            }
        }
        let (workload, schedule) = (Tape::new(seed), Tape::new(seed ^ 0x5eed));
        let store = Scripted::new(seed ^ 0xfa17);
        let (living, told, tally) = (BTreeSet::new(), Vec::new(), Tally::default());
        Self { dir, store, rules, workload, schedule, living, written: 0, told, tally }
    }

    pub(crate) fn told(&self) -> String {
        self.told.join("\n")
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally { faults: self.store.faults(), ..self.tally.clone() }
    }

    fn home(&self, host: u64) -> PathBuf {
        self.dir.path().join(host.to_string())
    }

    fn workspace(&self, host: u64) -> PathBuf {
        self.home(host).join("guest/workspace")
    }

    fn artifacts(&self, host: u64) -> Artifacts {
        let open = |name| Root::open_ambient(self.home(host).join(name), ambient_authority()).unwrap();
        let session = Session::from_roots(open("guest"), open("host")).unwrap();
        let retry = Retry::default().with_attempts(2).with_pause(Duration::ZERO, Duration::ZERO);
        Artifacts::new(self.store.source(), prefix(), &session).with_retry(retry).with_concurrency(1)
    }

    /// One tree that both have: trees that were never one do not meet.
    pub(crate) async fn begin(&mut self) {
        for _ in 0..12 {
            self.edit(0);
        }
        for host in 0..2 {
            match self.rules {
                Rules::CopyOver => naive::sync(&self.workspace(host), self.store.honest(), 2).await,
                Rules::Beneath => drop(self.artifacts(host).sync(&SyncOptions::default()).await.unwrap()),
            }
        }
    }

    /// One thing that happens, and a look at what is left.
    pub(crate) async fn step(&mut self, step: u32) -> Result<(), String> {
        let host = self.workload.below(2);
        match self.workload.below(20) {
            0..=9 => {
                for _ in 0..=self.workload.below(3) {
                    self.edit(host);
                }
            }
            10 => self.accident(host).await,
            _ => self.call(host).await?,
        }
        self.survives().await.map_err(|what| format!("step {step}: {what}"))
    }

    /// A guest writes, deletes or renames.
    fn edit(&mut self, host: u64) {
        let top = self.workspace(host);
        let raw: &[u8] = self.workload.pick(&PATHS);
        let path = top.join(OsStr::from_bytes(raw));
        match self.workload.below(6) {
            0 => {
                if let Ok(content) = fs::read(&path) {
                    fs::remove_file(&path).unwrap();
                    self.forget(&content);
                    self.tell(format!("guest {host} deletes {}", raw.escape_ascii()));
                }
            }
            1 => {
                let other: &[u8] = self.workload.pick(&PATHS);
                let to = top.join(OsStr::from_bytes(other));
                if to.parent().is_some_and(Path::is_dir) && path.is_file() && !to.exists() {
                    fs::rename(&path, &to).unwrap();
                    self.tell(format!(
                        "guest {host} renames {} to {}",
                        raw.escape_ascii(),
                        other.escape_ascii()
                    ));
                }
            }
            kind => {
                if fs::create_dir_all(path.parent().unwrap()).is_err() || path.is_dir() {
                    return;
                }
                if let Ok(content) = fs::read(&path) {
                    self.forget(&content);
                }
                self.written += 1;
                // Of contents that are in several places nobody can say which of them somebody decided against.
                let content = match kind {
                    2 => format!("same {}", self.workload.below(3)),
                    _ => format!("version {}", self.written),
                };
                fs::write(&path, &content).unwrap();
                self.tell(format!("guest {host} writes {content:?} to {}", raw.escape_ascii()));
                if kind != 2 {
                    self.living.insert(content.into_bytes());
                }
            }
        }
    }

    /// Somebody who has seen it has decided against it.
    fn forget(&mut self, content: &[u8]) {
        self.living.remove(content);
    }

    /// The workspace, or what the host knows, is lost or replaced.
    async fn accident(&mut self, host: u64) {
        self.tally.accidents += 1;
        let top = self.workspace(host);
        match self.workload.below(3) {
            0 => {
                fs::remove_dir_all(&top).unwrap();
                fs::create_dir(&top).unwrap();
                self.tell(format!("host {host} loses its workspace"));
            }
            1 => {
                // The trash stays where people look for what they miss.
                for name in ["state", "staging"] {
                    let _ = fs::remove_dir_all(self.home(host).join("host").join(name));
                }
                self.tell(format!("host {host} loses its state"));
            }
            _ => {
                let aside = self.home(host).join("guest/aside");
                fs::rename(&top, &aside).unwrap();
                copy(&aside, &top);
                fs::remove_dir_all(&aside).unwrap();
                self.tell(format!("guest {host} replaces its workspace by a copy"));
            }
        }
        // What had its only copy there is lost, and nobody could help it.
        let left = self.everything().await;
        self.living.retain(|content| left.contains(content));
    }

    /// A host brings the two together, and may die meanwhile.
    async fn call(&mut self, host: u64) -> Result<(), String> {
        let which = self.workload.below(5);
        let rough = self.schedule.below(2) == 0;
        let polls = if self.schedule.below(4) == 0 { Some(self.schedule.below(16)) } else { None };
        self.store.set_rough(rough);
        self.tell(format!("host {host} calls {which}, rough {rough}, dies after {polls:?}"));
        self.tally.calls += 1;
        let report = match self.rules {
            Rules::CopyOver => {
                naive::sync(&self.workspace(host), self.store.honest(), which).await;
                None
            }
            Rules::Beneath => self.bring_together(host, which, polls).await,
        };
        self.store.set_rough(false);
        let lied = self.store.has_lied();
        let Some(report) = report else { return Ok(()) };
        self.tell(format!("  {report:?}"));
        self.tally.conflicts += report.conflicts.len() as u64;
        self.tally.deleted += report.deleted + report.removed;
        self.tally.held += report.held_back() as u64;
        if report.is_complete() && !lied {
            self.tally.complete += 1;
            let (here, there) = (files(&self.workspace(host)), self.objects().await);
            if here != there {
                return Err(format!("complete, but not equal: {here:?} and {there:?}"));
            }
        }
        Ok(())
    }

    /// The report of a call; none if it failed, or was given up after so many polls.
    async fn bring_together(&mut self, host: u64, which: u64, polls: Option<u64>) -> Option<SyncReport> {
        let artifacts = self.artifacts(host);
        let prefer = if self.workload.below(4) == 0 { Prefer::Remote } else { Prefer::Local };
        let options = SyncOptions::default().with_prefer(prefer);
        let mut call = match which {
            0 => artifacts.pull(&options).boxed(),
            1 => artifacts.mirror(&options).boxed(),
            2 => artifacts.restore().boxed(),
            _ => artifacts.sync(&options).boxed(),
        };
        let mut count = 0;
        let done = futures_util::future::poll_fn(|context| {
            count += 1;
            if polls.is_some_and(|polls| count > polls) {
                return std::task::Poll::Ready(None);
            }
            call.as_mut().poll(context).map(Some)
        })
        .await;
        drop(call);
        if done.is_none() {
            self.tally.crashes += 1;
            // What is under way in other threads comes to its end there: a call of the next host waits for its locks.
            let _ = artifacts.plan(&options).await;
        }
        let done = done?;
        if let Err(error) = &done {
            self.told.push(format!("  {error}"));
        }
        done.ok()
    }

    /// After all faults have healed both hosts come to one state, and stay there.
    pub(crate) async fn settle(&mut self) -> Result<(), String> {
        if self.rules == Rules::CopyOver {
            return Ok(());
        }
        self.store.set_rough(false);
        let options = SyncOptions::default();
        for round in 0..4 * PATHS.len() {
            let (mut quiet, mut refused) = (true, 0);
            for host in 0..2 {
                let report = self.artifacts(host).sync(&options).await.map_err(|error| error.to_string())?;
                self.tell(format!("round {round}, host {host}: {report:?}"));
                refused += report.left.total;
                let mut done = report.placed + report.removed + report.uploaded + report.deleted;
                // Somebody looks at what is held, and lets it through.
                for held in &report.held {
                    let approved = options.with_deletions(Deletions::Approved(held.approval));
                    let report =
                        self.artifacts(host).sync(&approved).await.map_err(|error| error.to_string())?;
                    self.tell(format!("  approved: {report:?}"));
                    done += report.removed + report.deleted + report.placed + report.uploaded;
                }
                quiet &= done == 0;
            }
            self.survives().await?;
            if quiet {
                let (one, two) = (files(&self.workspace(0)), files(&self.workspace(1)));
                let there = self.objects().await;
                // What was put while a listing lacked something may be a file and a directory of one name. It is reported.
                return match (one == two && one == there) || refused > 0 {
                    true => Ok(()),
                    false => Err(format!("quiet, but not equal:\n{one:?}\n{two:?}\n{there:?}")),
                };
            }
        }
        Err("it does not come to rest".to_owned())
    }

    /// Whether every version that must be somewhere is somewhere.
    async fn survives(&mut self) -> Result<(), String> {
        let left = self.everything().await;
        let lost: Vec<String> = self
            .living
            .iter()
            .filter(|content| !left.contains(*content))
            .map(|content| content.escape_ascii().to_string())
            .collect();
        if lost.is_empty() { Ok(()) } else { Err(format!("lost: {lost:?}")) }
    }

    /// Every content that is anywhere.
    async fn everything(&self) -> BTreeSet<Vec<u8>> {
        let mut all: BTreeSet<Vec<u8>> = self.objects().await.into_values().collect();
        for host in 0..2 {
            all.extend(files(&self.home(host)).into_values());
        }
        all
    }

    async fn objects(&self) -> Files {
        objects(self.store.honest()).await
    }

    fn tell(&mut self, what: String) {
        self.told.push(what);
    }
}

pub(crate) fn prefix() -> Prefix {
    Prefix::session(&SessionId::new("s"))
}

/// Every object by its path.
pub(crate) async fn objects(source: &beneath::artifacts::Source) -> Files {
    let listed: Vec<_> = source.list(&prefix()).try_collect().await.unwrap();
    let mut objects = Files::new();
    for object in listed {
        let key = String::from_utf8(object.key).unwrap();
        let body = source.backend().get(&key, None).await.unwrap();
        let content = body.chunks.try_collect::<Vec<_>>().await.unwrap().concat();
        objects.insert(prefix().path(key.as_bytes()).unwrap().as_bytes().to_vec(), content);
    }
    objects
}

/// Every file beneath `top` by its path.
pub(crate) fn files(top: &Path) -> Files {
    let entries = walkdir::WalkDir::new(top).into_iter().flatten();
    let files = entries.filter(|entry| entry.file_type().is_file()).map(|entry| {
        let name = entry.path().strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
        (name, fs::read(entry.path()).unwrap_or_default())
    });
    files.collect()
}

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from).into_iter().flatten() {
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        match entry.file_type().is_dir() {
            true => fs::create_dir(target).unwrap(),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
