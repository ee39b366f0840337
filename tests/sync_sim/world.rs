//! The hosts, their guests and the store, and what is asked of them after each step.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use beneath::artifacts::{Artifacts, Hashing, Prefer, Retry, SyncOptions, SyncReport};
use beneath::{Root, Session, ambient_authority};
use futures_util::future::{BoxFuture, FutureExt as _};
use rustix::fs::{FlockOperation, flock};

use crate::base;
use crate::books::Books;
use crate::disk::{Entry, Folder, Name, is_beneath};
use crate::history::{Accident, Act, Call, Calls, Edit, End, History, Step, Which};
use crate::machine::{Ended, Live, Machine, is_dying};
use crate::naive::Naive;
use crate::report::Report;
use crate::rest::{equal, show};
use crate::stage::{Stage, prefix};
use crate::store::Scripted;
use crate::tally::Tally;
use crate::tape::Tape;
use crate::without::Without;

/// By which rules the hosts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    Product,
    /// A small engine of the test's own, with at most one rule left out.
    Naive(Option<Without>),
}

impl Rules {
    /// Whether what a guest does is kept at all. The engine of the test's own knows files only.
    fn keep(self, edit: &Edit) -> bool {
        let is_odd = matches!(edit, Edit::Execute(_) | Edit::Link(..) | Edit::Directory(_));
        self == Self::Product || !is_odd
    }
}

/// None if it only looks, or failed.
type Returned = Option<Report>;

/// What became of a history.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) wrong: Vec<String>,
    pub(crate) told: Vec<String>,
}

pub(crate) struct World<'m> {
    dir: tempfile::TempDir,
    pub(crate) stage: Arc<Mutex<Stage>>,
    pub(crate) machine: &'m mut Machine,
    pub(crate) rules: Rules,
    artifacts: [Option<Artifacts>; 2],
    naive: [Naive; 2],
    /// What both sides had when a call of the host was complete, if nothing but edits has come since.
    agreed: [Option<Folder>; 2],
    pub(crate) tally: Tally,
}

/// Plays a history until it ends or something is wrong.
pub(crate) fn play(machine: &mut Machine, history: &History, rules: Rules, telling: bool) -> Outcome {
    let mut world = World::new(machine, history, rules, telling);
    for step in &history.steps {
        world.books().tell(|| format!("step {}", step.number));
        world.step(history.seed, step);
        if !world.books().wrong.is_empty() {
            break;
        }
    }
    if history.settles && world.books().wrong.is_empty() && matches!(rules, Rules::Product) {
        world.settle();
    }
    world.look_outside();
    world.finish()
}

impl<'m> World<'m> {
    fn new(machine: &'m mut Machine, history: &History, rules: Rules, telling: bool) -> Self {
        let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
        let mut books = Books::default();
        (books.telling, books.maps) = (telling, rules != Rules::Product);
        for (number, host) in books.hosts.iter_mut().enumerate() {
            host.home = dir.path().join(number.to_string());
            for name in ["guest/workspace", "host"] {
                fs::create_dir_all(host.home.join(name)).unwrap();
            }
        }
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "secret").unwrap();
        let stage = Arc::new(Mutex::new(Stage::new(books, history.versions, history.compares)));
        let naive = [0, 1].map(|_| Naive::default());
        Self {
            dir,
            stage,
            machine,
            rules,
            artifacts: [None, None],
            naive,
            agreed: [None, None],
            tally: Tally::default(),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap()
    }

    pub(crate) fn books(&self) -> Held<'_> {
        Held(self.stage())
    }

    fn home(&self, host: usize) -> PathBuf {
        self.dir.path().join(host.to_string())
    }

    fn workspace(&self, host: usize) -> PathBuf {
        self.home(host).join("guest/workspace")
    }

    fn step(&mut self, seed: u64, step: &Step) {
        match &step.act {
            Act::Edit { host, edits } => {
                let mut books = self.books();
                edits.iter().filter(|edit| self.rules.keep(edit)).for_each(|edit| books.edit(*host, edit));
            }
            Act::Accident { host, what } => self.accident(*host, *what),
            Act::Age { host } => self.age(*host),
            Act::Calls(calls) => self.calls(calls, Tape::new(seed, 1000 + step.number)),
        }
    }

    /// The files get the stamps that they would have had much later.
    fn age(&mut self, host: usize) {
        let mut books = self.books();
        books.look(host);
        let folder = &books.hosts[host].folder;
        let is_same = |path: &[u8], line: &str, _| match folder.leaves.get(path) {
            Some(Entry::File { content, execute }) => base::line(content, *execute) == line,
            _ => false,
        };
        base::stamp(&self.home(host).join("host"), &self.workspace(host), is_same);
    }

    fn accident(&mut self, host: usize, what: Accident) {
        self.tally.accidents += 1;
        let (top, home) = (self.workspace(host), self.home(host));
        let mut stage = self.stage.lock().unwrap();
        stage.books.look(host);
        stage.books.tell(|| format!("accident of host {host}: {what:?}"));
        match what {
            Accident::Workspace => {
                fs::remove_dir_all(&top).unwrap();
                fs::create_dir(&top).unwrap();
                stage.books.lose_workspace(host);
            }
            Accident::State => {
                for name in ["state", "staging"] {
                    let _ = fs::remove_dir_all(home.join("host").join(name));
                }
                self.naive[host] = Naive::default();
                stage.books.hosts[host].blind.clear();
            }
            Accident::Copied => {
                let aside = home.join("guest/aside");
                fs::rename(&top, &aside).unwrap();
                copy(&aside, &top);
                fs::remove_dir_all(&aside).unwrap();
            }
            Accident::Bucket => stage.replace_bucket(),
        }
        self.agreed = [None, None];
    }

    pub(crate) fn artifacts(&mut self, host: usize) -> Artifacts {
        let (home, store) = (self.home(host), Scripted::new(&self.stage, host));
        let made = self.artifacts[host].get_or_insert_with(|| {
            let open = |name| Root::open_ambient(home.join(name), ambient_authority()).unwrap();
            let session = Session::from_roots(open("guest"), open("host")).unwrap();
            let retry = Retry::default().with_attempts(2).with_pause(Duration::ZERO, Duration::ZERO);
            Artifacts::new(store.source(), prefix(), &session).with_retry(retry)
        });
        made.clone()
    }

    /// The future of one call.
    fn begin<'c>(&mut self, call: &'c Call, naive: &'c mut Naive) -> BoxFuture<'c, Returned> {
        self.tally.calls += 1;
        self.books().begin(call.host);
        self.stage().lied[call.host] = false;
        let stage = Arc::clone(&self.stage);
        if let Rules::Naive(without) = self.rules {
            let store = Scripted::new(&stage, call.host);
            return naive.call(self.home(call.host), store, call.which, without).boxed();
        }
        let artifacts = self.artifacts(call.host).with_concurrency(call.concurrency);
        let prefer = if call.prefer_remote { Prefer::Remote } else { Prefer::Local };
        let hashing = if call.hash { Hashing::Always } else { Hashing::Never };
        let options = SyncOptions::default().with_prefer(prefer).with_hashing(hashing);
        async move { note(&stage, call.host, ask(&artifacts, call.which, options).await) }.boxed()
    }

    fn calls(&mut self, calls: &Calls, schedule: Tape) {
        let stepped = calls.is_stepped();
        {
            let mut stage = self.stage();
            (stage.schedule, stage.rough, stage.stepped) = (schedule, calls.rough, stepped);
            stage.stale = calls.stale;
            stage.shortens = !stepped;
        }
        let mut naive = std::mem::take(&mut self.naive);
        let [first, second] = &mut naive;
        let mut own = [Some(first), Some(second)];
        let mut live = Vec::new();
        let expected: Vec<BTreeSet<Name>> = calls.calls.iter().map(|call| self.must_report(call)).collect();
        for call in &calls.calls {
            let future = self.begin(call, own[call.host].take().unwrap());
            live.push(Live { host: call.host, call: future, ends: call.ends });
        }
        let ended = match stepped {
            false => {
                let Live { host, call, .. } = live.into_iter().next().unwrap();
                vec![(host, self.machine.play(call).map_or(Ended::Hangs, Ended::Returned))]
            }
            true => {
                let (stage, rules) = (&self.stage, self.rules);
                let meanwhile = |point| {
                    let due = calls.meanwhile.iter().filter(|(at, _, edit)| *at == point && rules.keep(edit));
                    due.for_each(|(_, host, edit)| stage.lock().unwrap().books.edit(*host, edit));
                };
                self.machine.step(stage, live, meanwhile)
            }
        };
        self.naive = naive;
        {
            let mut stage = self.stage();
            (stage.rough, stage.stale, stage.stepped) = (false, false, false);
        }
        let alone = calls.calls.len() == 1 && calls.meanwhile.is_empty();
        for (host, ended) in ended {
            let position = calls.calls.iter().position(|call| call.host == host).unwrap();
            self.judge(&calls.calls[position], ended, alone, &expected[position]);
        }
    }

    /// What is asked of a call that has come to its end.
    fn judge(&mut self, call: &Call, ended: Ended<Returned>, alone: bool, expected: &BTreeSet<Name>) {
        let host = call.host;
        let report = match ended {
            Ended::Returned(report) => report,
            Ended::Hangs => {
                self.books().accuse(format!("a call of host {host} waits for ever"));
                None
            }
            Ended::Cut(end) => {
                self.tally.cut(end);
                self.books().tell(|| format!("  host {host}: {end:?}"));
                if end == End::Died {
                    self.artifacts[host] = None;
                    wait_for_locks(&self.home(host).join("host/state"));
                }
                None
            }
        };
        let lied = self.stage().lied[host];
        let mut books = self.books();
        books.end(host);
        if self.rules == Rules::Product {
            books.judge_base(host);
        }
        drop(books);
        self.agreed[host] = None;
        let Some(report) = report else { return };
        self.tally.add_report(&report);
        if !alone || lied {
            return;
        }
        let mut books = self.books();
        let missing: Vec<_> = expected.difference(&report.conflicts).cloned().collect();
        if report.clean && !missing.is_empty() {
            let missing = missing.iter().map(|name| name.escape_ascii().to_string());
            let missing: Vec<_> = missing.collect();
            books.accuse(format!("host {host} does not report conflicts at {missing:?}"));
        }
        // A restore takes no options, and trusts stamps.
        let sees = (call.hash && call.which != Which::Restore) || books.hosts[host].blind.is_empty();
        if report.complete && sees && call.which != Which::Plan {
            let (here, there) = (books.hosts[host].folder.clone(), books.stored());
            if !equal(&here, &there, self.rules) {
                books.accuse(format!("complete, but not equal:\n  {}\n  {}", show(&here), show(&there)));
            }
            drop(books);
            self.tally.complete += 1;
            self.agreed[host] = Some(there);
        }
    }

    /// The paths that both sides have changed since the last complete call of this host: the next one must say so.
    fn must_report(&self, call: &Call) -> BTreeSet<Name> {
        let mut books = self.books();
        books.look(call.host);
        let Some(agreed) = &self.agreed[call.host] else { return BTreeSet::new() };
        let host = &books.hosts[call.host];
        let is_clear = |name: &Name| {
            let crossed = |other: &Name| is_beneath(other, name) || is_beneath(name, other);
            !host.folder.directories.contains(name)
                && !host.folder.leaves.keys().chain(books.objects.keys()).any(crossed)
                && !host.blind.contains(name)
        };
        let both = |(name, was): &(&Name, &Entry)| {
            let here = host.folder.leaves.get(*name);
            let there = books.objects.get(*name).map(|object| object.entry.clone());
            let was = Some((*was).clone());
            let here = here.cloned();
            let differ = here != was && there != was && here != there;
            let either = call.which != Which::Restore || (here.is_some() && there.is_some());
            differ && either && !matches!(here, Some(Entry::Link(_))) && is_clear(name)
        };
        if call.which == Which::Plan {
            return BTreeSet::new();
        }
        agreed.leaves.iter().filter(both).map(|(name, _)| name.clone()).collect()
    }

    /// Nothing is anywhere but where it belongs.
    fn look_outside(&self) {
        let names = |path: &str| -> Vec<String> {
            let entries = fs::read_dir(self.dir.path().join(path)).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        let mut expected = vec![("", vec!["0", "1", "outside"]), ("outside", vec!["secret"])];
        expected.extend(["0/guest", "1/guest"].map(|guest| (guest, vec!["workspace"])));
        let is_whole = fs::read(self.dir.path().join("outside/secret")).is_ok_and(|text| text == b"secret");
        if !is_whole || expected.iter().any(|(path, wanted)| names(path) != *wanted) {
            self.books().accuse("something outside has changed".to_owned());
        }
    }

    fn finish(mut self) -> Outcome {
        let mut stage = self.stage.lock().unwrap();
        (self.tally.faults, self.tally.requests) = (stage.faults, stage.requests);
        self.tally.documented = stage.books.documented;
        let (wrong, told) = (std::mem::take(&mut stage.books.wrong), std::mem::take(&mut stage.books.told));
        drop(stage);
        Outcome { tally: self.tally, wrong, told }
    }
}

/// The books, for as long as nobody else needs them.
pub(crate) struct Held<'s>(MutexGuard<'s, Stage>);

impl std::ops::Deref for Held<'_> {
    type Target = Books;

    fn deref(&self) -> &Books {
        &self.0.books
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Books {
        &mut self.0.books
    }
}

pub(crate) async fn ask(
    artifacts: &Artifacts,
    which: Which,
    options: SyncOptions,
) -> beneath::Result<Option<SyncReport>> {
    match which {
        Which::Pull => artifacts.pull(&options).await.map(Some),
        Which::Mirror => artifacts.mirror(&options).await.map(Some),
        Which::Restore => artifacts.restore().await.map(Some),
        Which::Sync => artifacts.sync(&options).await.map(Some),
        Which::Plan => artifacts.plan(&options).await.map(|_| None),
    }
}

/// Writes down what a call has returned.
pub(crate) fn note(
    stage: &Mutex<Stage>,
    host: usize,
    returned: beneath::Result<Option<SyncReport>>,
) -> Returned {
    if is_dying() {
        return None;
    }
    let report = returned.map(|report| report.map(Report::from));
    stage.lock().unwrap().books.tell(|| match &report {
        Ok(Some(report)) => format!("  host {host}: {}", report.text),
        Ok(None) => format!("  host {host}: ready"),
        Err(error) => format!("  host {host}: {error}"),
    });
    report.ok().flatten()
}

/// A process that has died leaves its locks a moment later.
fn wait_for_locks(state: &Path) {
    for name in ["artifacts/artifacts.lock", "merge.lock"] {
        if let Ok(lock) = File::open(state.join(name)) {
            flock(lock, FlockOperation::LockExclusive).unwrap();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from).into_iter().flatten() {
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        match entry.file_type() {
            kind if kind.is_dir() => fs::create_dir(target).unwrap(),
            kind if kind.is_symlink() => {
                std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), target).unwrap();
            }
            _ => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
