//! SIGKILL before each change that a restore, a mirror and an upgrade make on disk, journals included.
//!
//! The child does its file work in one thread, so that its calls come in one order. `strace` shows once which paths it
//! uses, counts its calls on these, and then kills it at one after the other. A short run takes a sample of them;
//! `BENEATH_TEST_FULL=1` takes all.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use beneath::artifacts::Source;
use beneath::{Root, ambient_authority};

use crate::kill::{Job, Tree, again, ended, full, publish_versions, seed, settled};
use crate::servers;
use crate::support::{self, Home};

/// The calls that change what a second host would find. Those that open count only if they can create.
const CHANGES: [&str; 14] = [
    "openat",
    "openat2",
    "mkdirat",
    "mkdir",
    "write",
    "linkat",
    "renameat2",
    "renameat",
    "rename",
    "unlinkat",
    "unlink",
    "rmdir",
    "fchmod",
    "ftruncate",
];

/// Gives this thread more calls on the counted paths than any other, since `strace` counts in each thread.
pub(crate) fn get_ahead(path: &Path) {
    fs::create_dir_all(path).unwrap();
    let root = Root::open_ambient(path, ambient_authority()).unwrap();
    for _ in 0..8 {
        root.ensure_dir("d").unwrap();
        root.replace("d/f", "x").unwrap();
        root.replace("d/f", "y").unwrap();
        fs::write(path.join("d/g"), "x").unwrap();
        assert!(root.remove_tree_contained("d").unwrap().is_complete());
    }
    fs::remove_dir(path).unwrap();
}

/// Where a call is: its name, and how many of that name its thread had made on the counted paths.
type Point = (String, usize);

/// A task, how it begins, and who judges what is left of it.
struct Rig<'a> {
    job: Job<'a>,
    source: &'a Source,
    /// Sets the scene in a new home.
    prepare: &'a dyn Fn(&Home),
    /// The trees that may be seen before the next run, and whether the judged tree is that of the store.
    between: &'a dyn Fn(&Tree) -> bool,
    in_store: bool,
    wanted: &'a Tree,
}

impl Rig<'_> {
    fn home(&self) -> Home {
        let home = Home::new();
        fs::create_dir(home.path("ahead")).unwrap();
        (self.prepare)(&home);
        home
    }

    fn strace(&self, home: &Home, arguments: &[String]) -> bool {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq"]).args(arguments).arg(std::env::current_exe().unwrap());
        let status = self.job.in_child(command, &home.path(""), usize::MAX, true).status().unwrap();
        ended(self.job.task, status)
    }

    /// The lines that `strace` writes of an undisturbed run, without the home's own path.
    fn log(&self, arguments: impl Fn(&Home) -> Vec<String>) -> Vec<String> {
        let home = self.home();
        let log = home.path("outside").join("log");
        let mut all = vec!["-y".into(), "-s0".into(), "-o".into(), log.display().to_string()];
        all.extend(arguments(&home));
        assert!(self.strace(&home, &all), "{} comes to its end undisturbed", self.job.task);
        let top = format!("{}/", home.path("").display().to_string().trim_end_matches('/'));
        let lines = fs::read_to_string(log).unwrap();
        lines.lines().map(|line| line.replace(&top, "~/")).collect()
    }

    /// Every path in the home that the task holds a descriptor of.
    fn paths(&self) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        for line in self.log(|_| vec!["-e".into(), "trace=%file,%desc".into()]) {
            let held = line.split('<').filter_map(|rest| Some(rest.strip_prefix("~/")?.split_once('>')?.0));
            // A file without a name has nothing to be found by, and whatever names it is counted.
            paths.extend(held.filter(|path| !path.contains('#')).map(str::to_owned));
        }
        paths
    }

    fn restrict(paths: &BTreeSet<String>, home: &Home) -> Vec<String> {
        paths.iter().flat_map(|path| ["-P".into(), home.path(path).display().to_string()]).collect()
    }

    /// Each change that the worker makes on `paths`.
    fn points(&self, paths: &BTreeSet<String>) -> Vec<Point> {
        let mut made: HashMap<(String, String), usize> = HashMap::new();
        let mut calls = Vec::new();
        for line in self.log(|home| Self::restrict(paths, home)) {
            let Some((thread, call)) = line.split_once(' ') else { continue };
            let Some((name, arguments)) = call.trim_start().split_once('(') else { continue };
            let count = made.entry((thread.to_owned(), name.to_owned())).or_default();
            *count += 1;
            let creates =
                !name.starts_with("open") || ["O_CREAT", "O_TMPFILE"].iter().any(|f| arguments.contains(f));
            if CHANGES.contains(&name) && creates && !arguments.contains("~/ahead") {
                calls.push((thread.to_owned(), name.to_owned(), *count));
            }
        }
        let ahead = |name: &str, but: &str| {
            let others = made.iter().filter(|((thread, other), _)| thread != but && other == name);
            others.map(|(_, count)| *count).max().unwrap_or(0)
        };
        // Whoever waits for the lock makes it in a thread of its own, before there is anything to lose.
        calls.retain(|(thread, name, count)| ahead(name, thread) < *count);
        calls.into_iter().map(|(_, name, count)| (name, count)).collect()
    }

    async fn judge(&self, home: &Home) -> Result<(), String> {
        if !(self.between)(&home.tree()) {
            return Err("a tree that must never be seen".into());
        }
        again(self.job.task, home, self.source).await;
        let found = if self.in_store { support::objects(self.source).await } else { home.tree() };
        settled(home, &found, self.wanted)
    }

    /// Kills at each of the points, or in a short run at `sample` of them; returns how often, and what was wrong
    /// afterwards.
    async fn kill_everywhere(&self, sample: usize) -> (usize, Vec<String>) {
        let paths = self.paths();
        let points = self.points(&paths);
        let step = if full() { 1 } else { (points.len() / sample).max(1) };
        let (mut killed, mut wrong) = (0, Vec::new());
        for (name, count) in points.iter().step_by(step) {
            let home = self.home();
            let mut arguments = vec!["-o".into(), "/dev/null".into()];
            arguments.extend(Self::restrict(&paths, &home));
            arguments.extend(["-e".into(), format!("inject={name}:signal=KILL:when={count}")]);
            killed += usize::from(!self.strace(&home, &arguments));
            // What the child was about to do before its own work is no part of the scene.
            let _ = fs::remove_dir_all(home.path("ahead"));
            if let Err(why) = self.judge(&home).await {
                wrong.push(format!("at {name} {count}: {why}"));
            }
        }
        println!("{}: killed at {killed} of {} changes, {} wrong", self.job.task, points.len(), wrong.len());
        (killed, wrong)
    }

    async fn survives(&self) {
        let (killed, wrong) = self.kill_everywhere(8).await;
        assert!(killed > 3, "only {killed} kills");
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    async fn is_caught(&self) {
        let (_, wrong) = self.kill_everywhere(8).await;
        assert!(!wrong.is_empty(), "the control must be caught");
    }
}

fn strace_works() -> bool {
    let works = Command::new("strace")
        .args(["-qq", "-P", "/dev/null", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        crate::skip("needs strace");
    }
    works
}

/// Whether all that is there is whole.
fn is_part_of(tree: &Tree, wanted: &Tree) -> bool {
    tree.iter().all(|(path, content)| wanted.get(path) == Some(content))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_survives_kill_at_each_change() {
    let Some(server) = servers::weed().filter(|_| strace_works()) else { return };
    let (bucket, source) = server.bucket().await;
    let wanted = seed(&source, 10).await;
    let prepare = |_: &Home| {};
    let is_whole = |tree: &Tree| is_part_of(tree, &wanted);
    let rig = |task| Rig {
        job: Job { task, server, bucket: &bucket },
        source: &source,
        prepare: &prepare,
        between: &is_whole,
        in_store: false,
        wanted: &wanted,
    };
    rig("restore").survives().await;
    rig("naive restore").is_caught().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_survives_kill_at_each_change() {
    let Some(server) = servers::weed().filter(|_| strace_works()) else { return };
    let before: Tree = (0..12).map(|n| (format!("d/f{n}"), format!("old {n}").into_bytes())).collect();
    let mut wanted: Tree = before.clone();
    for n in 0..4 {
        wanted.remove(&format!("d/f{n}"));
        wanted.insert(format!("d/f{}", n + 4), b"new".to_vec());
        wanted.insert(format!("d/g{n}"), b"new".to_vec());
    }
    wanted.insert("d/f9".into(), vec![9; 100_000]);
    for task in ["mirror", "naive mirror"] {
        let (bucket, source) = server.bucket().await;
        let handle = tokio::runtime::Handle::current();
        let lay = |home: &Home, tree: &Tree| {
            let _ = fs::remove_dir_all(home.workspace("d"));
            fs::create_dir(home.workspace("d")).unwrap();
            for (path, content) in tree {
                fs::write(home.workspace(path), content).unwrap();
            }
        };
        // Another home has left the store in the wanted state; this one begins where all is as before.
        let prepare = |home: &Home| {
            let all = async {
                for path in support::objects(&source).await.into_keys() {
                    support::delete_key(&source, &format!("{}{path}", support::prefix())).await;
                }
                lay(home, &before);
                again(task, home, &source).await;
                lay(home, &wanted);
            };
            tokio::task::block_in_place(|| handle.block_on(all));
        };
        let rig = Rig {
            job: Job { task, server, bucket: &bucket },
            source: &source,
            prepare: &prepare,
            between: &|tree| *tree == wanted,
            in_store: true,
            wanted: &wanted,
        };
        if task == "mirror" { rig.survives().await } else { rig.is_caught().await }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundle_upgrade_survives_kill_at_each_change() {
    let Some(server) = servers::weed().filter(|_| strace_works()) else { return };
    let (bucket, source) = server.bucket().await;
    let versions = publish_versions(&source, 6).await;
    let handle = tokio::runtime::Handle::current();
    let prepare = |home: &Home| {
        tokio::task::block_in_place(|| handle.block_on(again("1", home, &source)));
    };
    let is_one = |tree: &Tree| versions.contains(tree);
    let rig = |task| Rig {
        job: Job { task, server, bucket: &bucket },
        source: &source,
        prepare: &prepare,
        between: &is_one,
        in_store: false,
        wanted: &versions[1],
    };
    rig("2").survives().await;
    rig("naive install").is_caught().await;
}
