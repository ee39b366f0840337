//! Many sessions at once, within the descriptors that a process has.
//!
//! It runs in a child, so that other tests do not count.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use beneath::artifacts::{Artifacts, Bundles, Prefix, SyncOptions};
use beneath::{GuestPath, Root, SafeName, SafePath, SessionId, Sessions, SessionsConfig, ambient_authority};
use nix::sys::resource::{Resource, setrlimit};

use crate::bucket::{Act, Bucket};
use crate::support::{self, Home};

const VARIABLE: &str = "BENEATH_BUDGET_CHILD";
const SESSIONS: usize = 200;
const FILES: usize = 40;

#[test]
fn a32_two_hundred_sessions_at_once_have_descriptors_enough() {
    let Some(server) = crate::servers::weed() else { return };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "budget::child", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, server.port.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.lines().find(|line| line.contains(" descriptors")).unwrap_or_default());
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn open_now() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A call that held one turn and waited for another would wait without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_for_one_object_and_one_call_is_enough_for_every_call() {
    let plain = || Bucket::new(|_, _| Act::Serve);
    for bucket in [plain(), plain().careless(), plain().without_bulk(), plain().weak()] {
        let source = bucket.source().with_budget(1, 1);
        ["skills/pdf/1/a", "skills/pdf/1/b"].iter().for_each(|key| bucket.plant(key));
        let calls = (0..3).map(|n| {
            let source = source.clone();
            tokio::spawn(async move {
                let home = Home::new();
                let (session, options) = (support::session_at(&home.path("")), SyncOptions::default());
                let prefix = Prefix::session(&SessionId::new(format!("n{n}")));
                let artifacts = Artifacts::new(source.clone(), prefix, &session);
                for file in 0..30 {
                    std::fs::write(home.workspace(&format!("f{file}")), format!("{file}")).unwrap();
                }
                std::fs::write(home.workspace("large"), vec![1; 9 << 20]).unwrap();
                std::fs::create_dir(home.workspace("empty")).unwrap();
                assert!(artifacts.sync(&options).await.unwrap().is_complete());
                (0..5).for_each(|file| std::fs::remove_file(home.workspace(&format!("f{file}"))).unwrap());
                assert_eq!(artifacts.mirror(&options).await.unwrap().deleted, 5);
                let path = GuestPath::new("put").unwrap();
                assert!(artifacts.put(&path, "x").await.unwrap().is_complete());
                assert!(artifacts.materialise(&path, &options).await.unwrap().is_some());
                let _plan = artifacts.plan(&options).await.unwrap();
                assert!(artifacts.restore().await.unwrap().is_complete());

                let (other, skills) = (Home::new(), SafePath::new("skills").unwrap());
                let places = support::places_at(&other.path(""));
                let bundles = Bundles::new(source, Prefix::at(&skills), places).unwrap();
                let [name, one] = ["pdf", "1"].map(|name| SafeName::new(name).unwrap());
                let bundle = bundles.bundle(&name, &one).await.unwrap();
                assert!(bundles.install_if_changed(&bundle).await.unwrap().is_complete());
            })
        });
        let calls = futures_util::future::join_all(calls.collect::<Vec<_>>());
        let done = tokio::time::timeout(std::time::Duration::from_secs(120), calls).await;
        done.expect("the calls wait for each other").into_iter().for_each(Result::unwrap);
    }
}

/// Not a test by itself: what the child runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(port) = std::env::var(VARIABLE) else { return };
    setrlimit(Resource::RLIMIT_NOFILE, 1024, 1024).unwrap();
    let source = crate::servers::at(port.parse().unwrap()).bucket().await.1;
    // Half of them are too large to be held in memory.
    for n in 0..FILES {
        let content = vec![b'x'; if n % 2 == 0 { 100 } else { 100_000 }];
        support::put_object(&source, &format!("f{n}"), &content).await;
    }
    let home = tempfile::tempdir().unwrap();
    let sessions = Sessions::new(
        Root::open_ambient(home.path(), ambient_authority()).unwrap(),
        SessionsConfig::default(),
    );
    let all: Vec<_> = (0..SESSIONS)
        .map(|n| {
            let (session, _) = sessions.create(&SessionId::new(format!("n{n}"))).unwrap();
            let prefix = Prefix::session(&SessionId::new("s1"));
            Artifacts::new(source.clone(), prefix, &session)
        })
        .collect();
    let (most, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let watch = std::thread::spawn({
        let (most, over) = (Arc::clone(&most), Arc::clone(&over));
        move || {
            while !over.load(Ordering::SeqCst) {
                most.fetch_max(open_now(), Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    });
    let before = open_now();
    let calls: Vec<_> = all
        .into_iter()
        .map(|artifacts| tokio::spawn(async move { artifacts.sync(&SyncOptions::default()).await }))
        .collect();
    for call in calls {
        let report = call.await.unwrap().unwrap();
        assert!(report.is_complete() && report.placed == FILES as u64, "{report:?}");
    }
    over.store(true, Ordering::SeqCst);
    watch.join().unwrap();
    let most = most.load(Ordering::SeqCst);
    println!("{SESSIONS} sessions: {most} descriptors at the most, {before} of them before the calls");
    assert!(most <= 1024);
}
