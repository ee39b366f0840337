//! SIGKILL at random moments and at events, then once more to the end. [`crate::transitions`] kills at each change.
//!
//! `BENEATH_TEST_FULL=1` kills a hundred times where a short run kills fifteen times; `BENEATH_KILLS` says how often.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use beneath::artifacts::{Deletions, Event, Source, SyncOptions};
use rustix::process::{Signal, getpid, kill_process};

use crate::servers::{self, Server};
use crate::support::{self, Home};
use crate::{bundle, naive};

const VARIABLE: &str = "BENEATH_KILL_CHILD";

pub(crate) type Tree = BTreeMap<String, Vec<u8>>;

/// How the child dies.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// At the nth event.
    Event(usize),
    /// After this long.
    After(Duration),
    Never,
}

/// One task on one bucket.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) task: &'a str,
    pub(crate) server: &'a Server,
    pub(crate) bucket: &'a str,
}

impl Job<'_> {
    /// Makes `command` run the task in a child, with its file work in one thread if it is `calm`.
    pub(crate) fn in_child(self, mut command: Command, home: &Path, event: usize, calm: bool) -> Command {
        let Self { task, server, bucket } = self;
        command
            .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, format!("{task}\n{}\n{}\n{bucket}\n{event}\n{calm}", home.display(), server.port))
            // Cargo's search path makes the loader ask for each library in each directory.
            .env_remove("LD_LIBRARY_PATH")
            .stdout(Stdio::null());
        command
    }

    /// Runs the task in a child; returns whether it came to its end.
    fn run(self, home: &Home, death: Death) -> bool {
        let at = if let Death::Event(n) = death { n } else { usize::MAX };
        let command = Command::new(std::env::current_exe().unwrap());
        let mut child = self.in_child(command, &home.path(""), at, false).spawn().unwrap();
        if let Death::After(time) = death {
            std::thread::sleep(time);
            child.kill().unwrap();
        }
        ended(self.task, child.wait().unwrap())
    }
}

/// Whether the child came to its end; it must not fail by itself.
pub(crate) fn ended(task: &str, status: std::process::ExitStatus) -> bool {
    assert!(status.success() || status.signal() == Some(9), "{task} failed by itself: {status}");
    status.success()
}

/// Not a test by itself: what the children run.
#[test]
fn child() {
    let Ok(config) = std::env::var(VARIABLE) else { return };
    let mut fields = config.lines();
    let mut field = || fields.next().unwrap();
    let (task, home) = (field(), Path::new(field()));
    let source = Source::s3(servers::client(field().parse().unwrap(), field())).unwrap();
    let at: usize = field().parse().unwrap();
    let calm = field() == "true";
    let count = std::sync::atomic::AtomicUsize::new(0);
    let listener = move |_: &Event<'_>| {
        if count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == at {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    if calm {
        runtime.max_blocking_threads(1);
    }
    runtime.enable_all().build().unwrap().block_on(async {
        if calm {
            let ahead = home.join("ahead");
            tokio::task::spawn_blocking(move || crate::transitions::get_ahead(&ahead)).await.unwrap();
        }
        work(task, home, &source, if calm { 1 } else { 16 }, listener).await;
    });
}

/// The task itself, for the child and for whoever comes after it.
pub(crate) async fn work(
    task: &str,
    home: &Path,
    source: &Source,
    concurrency: usize,
    listener: impl Fn(&Event<'_>) + Send + Sync + 'static,
) {
    let artifacts = || support::artifacts_at(home, source).with_concurrency(concurrency);
    match task {
        "restore" => {
            let report = artifacts().with_progress(listener).restore().await.unwrap();
            assert!(report.is_complete(), "{report:?}");
        }
        "mirror" => {
            let artifacts = artifacts().with_progress(listener);
            let options = SyncOptions::default();
            let mut report = artifacts.mirror(&options).await.unwrap();
            // After many calls that were killed nothing may be as it was, as after an accident.
            if let Some(approval) = report.held.first().map(|held| held.approval) {
                let approved = options.with_deletions(Deletions::Approved(approval));
                report = artifacts.mirror(&approved).await.unwrap();
            }
            assert!(report.is_complete(), "{report:?}");
        }
        "naive restore" => naive::restore(home, source).await,
        "naive mirror" => naive::mirror(home, source).await,
        "naive install" => naive::install(home, source, "2").await,
        version => {
            let bundles = bundle::bundles_at(home, source).with_progress(listener);
            let wanted = bundle::version(&bundles, version).await;
            assert!(bundles.install_if_changed(&wanted).await.unwrap().is_complete());
        }
    }
}

/// Runs the task to its end, and once more: the last run may have been the one that only found all done.
pub(crate) async fn again(task: &str, home: &Home, source: &Source) {
    for _ in 0..2 {
        work(task, &home.path(""), source, 16, |_| {}).await;
    }
}

/// Whether a tree is what it should be, nothing lost and nothing doubled, with nothing left in staging.
pub(crate) fn settled(home: &Home, found: &Tree, wanted: &Tree) -> Result<(), String> {
    let differ: Vec<&String> =
        found.keys().chain(wanted.keys()).filter(|path| found.get(*path) != wanted.get(*path)).collect();
    if !differ.is_empty() {
        return Err(format!("lost, doubled or changed: {differ:?}"));
    }
    home.assert_contained();
    match fs::read_dir(home.path("staging")).unwrap().count() {
        0 => Ok(()),
        left => Err(format!("{left} entries in staging")),
    }
}

/// Objects small and large, in several directories.
pub(crate) async fn seed(source: &Source, count: usize) -> Tree {
    for n in 0..count {
        support::put_object(source, &format!("d{}/f{n}", n % 5), format!("content {n}").as_bytes()).await;
    }
    support::put_object(source, "large", &vec![4; 400_000]).await;
    support::objects(source).await
}

/// Two versions of a bundle, and the trees that they make.
pub(crate) async fn publish_versions(source: &Source, count: usize) -> [Tree; 2] {
    let mut trees = [Tree::new(), Tree::new()];
    for (version, tree) in ["1", "2"].into_iter().zip(&mut trees) {
        let files: Vec<(String, Vec<u8>)> = (0..count)
            .map(|n| (format!("d{}/f{n}", n % 3), format!("version {version} file {n}").into_bytes()))
            .chain([(format!("only-{version}"), vec![b'x'; 100_000])])
            .collect();
        let borrowed: Vec<_> =
            files.iter().map(|(path, content)| (path.as_str(), content.as_slice())).collect();
        bundle::publish(source, version, &borrowed).await;
        *tree = files.into_iter().map(|(path, content)| (format!("pdf tools/{path}"), content)).collect();
    }
    trees
}

/// Numbers that differ from run to run, and are printed so that a run can be repeated.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let given = std::env::var("BENEATH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| clock().as_nanos() as u64);
        println!("seed {seed}");
        Self(seed | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    fn before(&mut self, time: Duration) -> Death {
        Death::After(Duration::from_micros(self.below((time.as_micros() as u64).max(2000))))
    }
}

pub(crate) fn full() -> bool {
    std::env::var_os("BENEATH_TEST_FULL").is_some()
}

/// How many deaths are asked for.
fn kills() -> usize {
    let asked = std::env::var("BENEATH_KILLS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if full() { 100 } else { 15 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_survives_kill_at_events_and_at_random_moments() {
    let Some(server) = servers::weed() else { return };
    let (bucket, source) = server.bucket().await;
    let wanted = seed(&source, 60).await;
    let job = Job { task: "restore", server, bucket: &bucket };
    // Close together around the steps, wider among the objects.
    let step = |at: usize| if (6..180).contains(&at) && !full() { 47 } else { 1 };
    let mut at = 0;
    loop {
        let home = Home::new();
        let ended = job.run(&home, Death::Event(at));
        again(job.task, &home, &source).await;
        settled(&home, &home.tree(), &wanted).unwrap_or_else(|why| panic!("event {at}: {why}"));
        if ended {
            break;
        }
        at += step(at);
    }
    let start = Instant::now();
    assert!(job.run(&Home::new(), Death::Never));
    let time = start.elapsed();
    let mut moments = Moments::new();
    let (mut killed, mut home) = (0, Home::new());
    while killed < kills() {
        let death = moments.before(time);
        let ended = job.run(&home, death);
        killed += usize::from(!ended);
        if ended || killed % 3 == 2 {
            again(job.task, &home, &source).await;
            settled(&home, &home.tree(), &wanted).unwrap_or_else(|why| panic!("{death:?}: {why}"));
            home = Home::new();
        }
    }
    println!("restore: {at} events, {killed} random kills");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_survives_kill_at_random_moments() {
    let Some(server) = servers::weed() else { return };
    let (bucket, source) = server.bucket().await;
    let home = Home::new();
    fs::create_dir(home.workspace("d")).unwrap();
    let mut moments = Moments::new();
    let mut edit = |round: usize| {
        for n in 0..30 {
            match moments.below(4) {
                0 => fs::write(home.workspace(&format!("d/f{n}")), format!("{round} {n}")).unwrap(),
                1 => drop(fs::remove_file(home.workspace(&format!("d/f{n}")))),
                _ => {}
            }
        }
        moments.below(u64::MAX)
    };
    edit(0);
    let job = Job { task: "mirror", server, bucket: &bucket };
    let start = Instant::now();
    assert!(job.run(&home, Death::Never));
    let time = (start.elapsed().as_micros() as u64).max(2000);
    let (mut round, mut killed) = (0, 0);
    while killed < kills() || round % 10 != 0 {
        round += 1;
        let random = edit(round);
        let death = match round % 4 {
            0 => Death::Event((random % 40) as usize),
            _ => Death::After(Duration::from_micros(random % time)),
        };
        killed += usize::from(!job.run(&home, death));
        if round % 10 == 0 {
            again(job.task, &home, &source).await;
            let (found, wanted) = (support::objects(&source).await, home.tree());
            settled(&home, &found, &wanted).unwrap_or_else(|why| panic!("round {round}: {why}"));
        }
    }
    println!("mirror: {killed} kills in {round} rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundle_upgrade_survives_kill_and_never_mixes_versions() {
    let Some(server) = servers::weed() else { return };
    let (bucket, source) = server.bucket().await;
    let versions = publish_versions(&source, 20).await;
    let home = Home::new();
    let job = |task| Job { task, server, bucket: &bucket };
    assert!(job("1").run(&home, Death::Never));
    let start = Instant::now();
    assert!(job("2").run(&home, Death::Never));
    let time = start.elapsed();
    let mut moments = Moments::new();
    let (mut round, mut killed) = (0, 0);
    while killed < kills() {
        round += 1;
        let task = if round % 2 == 0 { "1" } else { "2" };
        let death = match round % 4 {
            0 | 1 => Death::Event(moments.below(80) as usize),
            _ => moments.before(time),
        };
        killed += usize::from(!job(task).run(&home, death));
        assert!(versions.contains(&home.tree()), "mixed versions after {death:?}");
        if round % 10 == 9 {
            again(task, &home, &source).await;
            settled(&home, &home.tree(), &versions[round % 2]).unwrap_or_else(|why| panic!("{why}"));
        }
    }
    println!("bundle: {killed} kills in {round} rounds");
}
