//! SIGKILL at every journal transition and at random moments, then once more to the end.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use beneath::artifacts::{Deletions, Ended, Event, OnLocal, Overwrites, Source};
use rustix::process::{Signal, getpid, kill_process};

use crate::bundle;
use crate::support::{self, Home, Server};

const VARIABLE: &str = "BENEATH_KILL_CHILD";

/// How the child dies.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// At the nth event.
    Event(usize),
    /// After this long.
    After(Duration),
    Never,
}

/// Runs a task in a child; tells whether it came to its end.
fn run(task: &str, home: &Path, server: &Server, bucket: &str, death: Death) -> bool {
    let at = if let Death::Event(n) = death { n } else { usize::MAX };
    let config = format!("{task}\n{}\n{}\n{bucket}\n{at}", home.display(), server.port);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, config)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    if let Death::After(time) = death {
        std::thread::sleep(time);
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{task} failed by itself: {status}");
    status.success()
}

/// Not a test by itself: what the children run.
#[tokio::test]
async fn child() {
    let Ok(config) = std::env::var(VARIABLE) else { return };
    let mut fields = config.lines();
    let (task, home) = (fields.next().unwrap(), fields.next().unwrap());
    let server = Server::at(fields.next().unwrap().parse().unwrap());
    let source = Source::s3(server.builder(fields.next().unwrap())).unwrap();
    let at: usize = fields.next().unwrap().parse().unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let listener = move |_: &Event<'_>| {
        if count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == at {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    };
    let home = Path::new(home);
    match task {
        "restore" => {
            let artifacts = support::artifacts_at(home, &source).with_progress(listener);
            let report = artifacts.restore(OnLocal::ColdStart).await.unwrap();
            assert!(matches!(report.ended, Ended::Complete | Ended::AlreadyRestored), "{report:?}");
        }
        "mirror" => {
            let artifacts = support::artifacts_at(home, &source).with_progress(listener);
            let report = artifacts.mirror(Deletions::Propagate, Overwrites::Refuse).await.unwrap();
            assert!(report.is_complete(), "{report:?}");
        }
        version => {
            let bundles = bundle::bundles_at(home, &source).with_progress(listener);
            let wanted = bundle::version(&bundles, version).await;
            bundles.install_if_changed(&wanted).await.unwrap();
        }
    }
}

/// Numbers that differ from run to run, and are told so that a run can be looked into.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let seed =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        println!("seed {seed}");
        Self(seed | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// How long an undisturbed run takes, and how many deaths are asked for.
fn kills() -> usize {
    std::env::var("BENEATH_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

fn skipped() -> Option<&'static Server> {
    let server = support::weed();
    if server.is_none() {
        println!("skipped: weed is neither on PATH nor in BENEATH_WEED");
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_survives_kill_at_every_transition_and_at_random_moments() {
    let Some(server) = skipped() else { return };
    let (bucket, source) = server.bucket().await;
    for n in 0..60 {
        support::put_object(&source, &format!("d{}/f{n}", n % 5), format!("content {n}").as_bytes()).await;
    }
    support::put_object(&source, "large", &vec![4; 400_000]).await;
    let wanted = support::objects(&source).await;
    let check = |home: &Home, how: &str| {
        assert!(run("restore", &home.path(""), server, &bucket, Death::Never), "{how}");
        // The last run may have been the one that only found all done.
        assert!(run("restore", &home.path(""), server, &bucket, Death::Never), "{how}");
        assert_eq!(home.tree(), wanted, "{how}");
        home.assert_clean();
    };
    // Every journal transition is an event, and so is every object.
    let mut at = 0;
    loop {
        let home = Home::new();
        let ended = run("restore", &home.path(""), server, &bucket, Death::Event(at));
        check(&home, &format!("event {at}"));
        if ended {
            break;
        }
        // Close together around the transitions, wider among the objects.
        at += if (6..180).contains(&at) { 29 } else { 1 };
    }
    let home = Home::new();
    let start = Instant::now();
    check(&home, "undisturbed");
    let time = start.elapsed() / 2;
    let mut moments = Moments::new();
    let (mut killed, mut home) = (0, Home::new());
    while killed < kills() {
        let after = Duration::from_micros(moments.below(time.as_micros() as u64));
        let ended = run("restore", &home.path(""), server, &bucket, Death::After(after));
        killed += usize::from(!ended);
        if ended || killed % 3 == 2 {
            check(&home, &format!("after {after:?}"));
            home = Home::new();
        }
    }
    println!("restore: {at} events, {killed} random kills");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_survives_kill_at_random_moments() {
    let Some(server) = skipped() else { return };
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
    let start = Instant::now();
    assert!(run("mirror", &home.path(""), server, &bucket, Death::Never));
    let time = (start.elapsed().as_micros() as u64).max(2000);
    let (mut round, mut killed) = (0, 0);
    while killed < kills() || round % 10 != 0 {
        round += 1;
        let random = edit(round);
        let death = match round % 4 {
            0 => Death::Event((random % 40) as usize),
            _ => Death::After(Duration::from_micros(random % time)),
        };
        killed += usize::from(!run("mirror", &home.path(""), server, &bucket, death));
        if round % 10 == 0 {
            assert!(run("mirror", &home.path(""), server, &bucket, Death::Never), "round {round}");
            assert_eq!(support::objects(&source).await, home.tree(), "round {round}");
            home.assert_clean();
        }
    }
    println!("mirror: {killed} kills in {round} rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundle_upgrade_survives_kill_and_never_mixes_versions() {
    let Some(server) = skipped() else { return };
    let (bucket, source) = server.bucket().await;
    let mut versions = Vec::new();
    for version in ["1", "2"] {
        let files: Vec<(String, Vec<u8>)> = (0..20)
            .map(|n| (format!("d{}/f{n}", n % 3), format!("version {version} file {n}").into_bytes()))
            .chain([(format!("only-{version}"), vec![b'x'; 100_000])])
            .collect();
        let borrowed: Vec<_> =
            files.iter().map(|(path, content)| (path.as_str(), content.as_slice())).collect();
        bundle::publish(&source, version, &borrowed).await;
        let tree: std::collections::BTreeMap<_, _> =
            files.into_iter().map(|(path, content)| (format!("pdf tools/{path}"), content)).collect();
        versions.push(tree);
    }
    let home = Home::new();
    assert!(run("1", &home.path(""), server, &bucket, Death::Never));
    let start = Instant::now();
    assert!(run("2", &home.path(""), server, &bucket, Death::Never));
    let time = (start.elapsed().as_micros() as u64).max(2000);
    let mut moments = Moments::new();
    let (mut round, mut killed) = (0, 0);
    while killed < kills() {
        round += 1;
        let version = if round % 2 == 0 { "1" } else { "2" };
        let death = match round % 4 {
            0 | 1 => Death::Event(moments.below(80) as usize),
            _ => Death::After(Duration::from_micros(moments.below(time))),
        };
        killed += usize::from(!run(version, &home.path(""), server, &bucket, death));
        assert!(versions.contains(&home.tree()), "mixed versions after {death:?}");
        if round % 10 == 9 {
            assert!(run(version, &home.path(""), server, &bucket, Death::Never));
            assert_eq!(home.tree(), versions[round % 2]);
            home.assert_clean();
        }
    }
    println!("bundle: {killed} kills in {round} rounds");
}
