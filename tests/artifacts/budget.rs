//! Many sessions at once, within the descriptors that a process has.
//!
//! It runs in a child, so that other tests do not count.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use beneath::artifacts::{Artifacts, Prefix, SyncOptions};
use beneath::{Root, SessionId, Sessions, SessionsConfig, ambient_authority};
use nix::sys::resource::{Resource, setrlimit};

use crate::support;

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
