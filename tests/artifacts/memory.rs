//! Memory stays flat, however large the object and however many there are.
//!
//! Each measurement runs in a child, so that other tests do not count. The sizes are smaller than what is claimed unless
//! `BENEATH_FULL_SIZE` is set, since they cost disk and time.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use beneath::artifacts::{Retry, Source, SyncOptions};
use object_store::local::LocalFileSystem;

use crate::bucket::{Act, Answer, Ask, Bucket, page};
use crate::support::{self, Home};

const VARIABLE: &str = "BENEATH_MEMORY_CHILD";
/// What a restore may use on top of what was there.
const ALLOWED: u64 = 64 << 20;

fn full_size() -> bool {
    std::env::var_os("BENEATH_FULL_SIZE").is_some()
}

/// The most memory resident at any time since the last [`reset`].
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

fn reset() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak()
}

fn run(task: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::child", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, task)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.lines().find(|line| line.contains(" KiB more")).unwrap_or_default());
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn one_large_object_is_never_in_memory() {
    run("large");
}

#[test]
fn many_small_objects_are_never_in_memory_together() {
    run("many");
}

#[test]
fn one_large_file_is_never_in_memory_on_its_way_up() {
    run("mirror");
}

#[test]
fn a30_two_hundred_thousand_hostile_keys_are_counted_and_not_remembered() {
    run("hostile");
}

#[test]
fn answer_without_an_end_is_never_in_memory() {
    run("endless");
}

/// Not a test by itself: what the children run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(task) = std::env::var(VARIABLE) else { return };
    match task.as_str() {
        "hostile" => return hostile().await,
        "endless" => return endless().await,
        _ => {}
    }
    let home = Home::new();
    let remote = home.path("remote");
    let objects = remote.join("sessions/s1");
    std::fs::create_dir_all(&objects).unwrap();
    let count = match task.as_str() {
        "mirror" => 0,
        "large" => {
            let size = if full_size() { 2 << 30 } else { 256 << 20 };
            std::fs::File::create(objects.join("large")).unwrap().set_len(size).unwrap();
            1
        }
        _ => {
            let count = if full_size() { 100_000 } else { 20_000 };
            for n in 0..count {
                let directory = objects.join(format!("d{}", n / 500));
                if n % 500 == 0 {
                    std::fs::create_dir(&directory).unwrap();
                }
                std::fs::write(directory.join(format!("file-{n:06}.txt")), "small").unwrap();
            }
            count
        }
    };
    if task == "mirror" {
        return mirror(&remote).await;
    }
    let source = Source::new(Arc::new(LocalFileSystem::new_with_prefix(&remote).unwrap()));
    let artifacts = support::artifacts_at(&home.path(""), &source);
    let before = reset();
    let report = artifacts.restore().await.unwrap();
    let used = peak() - before;
    assert!(report.is_complete() && report.placed == count, "{report:?}");
    println!("{task}: {count} objects, {} KiB more at the peak", used >> 10);
    assert!(used < ALLOWED, "{} MiB more", used >> 20);
}

async fn mirror(remote: &std::path::Path) {
    let size = if full_size() { 2 << 30 } else { 256 << 20 };
    let other = remote.join("other");
    std::fs::create_dir(&other).unwrap();
    let sources = [
        ("directory", Source::local(remote, beneath::ambient_authority()).unwrap()),
        ("store", Source::new(Arc::new(LocalFileSystem::new_with_prefix(other).unwrap()))),
    ];
    for (name, source) in sources {
        let home = Home::new();
        std::fs::File::create(home.workspace("large")).unwrap().set_len(size).unwrap();
        let artifacts = home.artifacts(&source);
        let before = reset();
        let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        let used = peak() - before;
        assert_eq!(report.uploaded, 1, "{report:?}");
        println!("{name}: {size} bytes mirrored, {} KiB more at the peak", used >> 10);
        assert!(used < ALLOWED, "{} MiB more", used >> 20);
    }
}

/// Keys of nearly a thousand bytes: some that are no path, some under a reserved name, some too deep, some too large.
async fn hostile() {
    const PAGES: usize = 200;
    let long = "x".repeat(200);
    let list = move |token: Option<&str>| {
        let page_number: usize = token.map_or(0, |token| token.parse().unwrap());
        let keys: Vec<(String, usize)> = (0..1000)
            .map(|n| {
                let (id, tail) = (page_number * 1000 + n, format!("{long}/{long}/{long}/{long}"));
                match n % 5 {
                    0 => (format!("..%2F{id}/{tail}"), 1),
                    1 => (format!("a%2F%2F{id}/{tail}"), 1),
                    2 => (format!("skills/{id}/{tail}"), 1),
                    3 => (format!("{id}{}", "/d".repeat(400)), 1),
                    _ => (format!("large-{id}/{tail}"), usize::MAX >> 1),
                }
            })
            .collect();
        let next = (page_number + 1 < PAGES).then(|| (page_number + 1).to_string());
        page(&keys.iter().map(|(key, size)| (key.as_str(), *size)).collect::<Vec<_>>(), next.as_deref())
    };
    let bucket = Bucket::scripted(list, |_, _| Answer::new(404, ""));
    let home = Home::new();
    std::fs::write(home.workspace("mine"), "mine").unwrap();
    let artifacts = home.artifacts(&bucket.source());
    let before = reset();
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    let used = peak() - before;
    assert_eq!((report.listed, report.left.total, report.left.first.len()), (200_000, 200_000, 1000));
    assert!(report.removed == 0 && home.tree().len() == 1 && !report.is_complete());
    println!("hostile: 200,000 keys, {} KiB more at the peak", used >> 10);
    assert!(used < ALLOWED, "{} MiB more", used >> 20);
}

/// A refusal, and an answer that is no object, to each kind of request that the store's own client makes.
async fn endless() {
    let retry = Retry::default().with_attempts(1).with_silence(Duration::from_secs(2));
    let kinds = [Ask::Put, Ask::Create, Ask::Part, Ask::Head, Ask::Delete];
    for (ask, status) in kinds.into_iter().flat_map(|ask| [(ask, 400), (ask, 500), (ask, 200)]) {
        let answer = Answer::new(status, "").with("ETag", "\"e\"").then_bytes_for_ever();
        let bucket = Bucket::new(move |request, _| match request.ask == ask {
            true if status == 200 => Act::ServeAndSay(answer.clone()),
            true => Act::Refuse(answer.clone()),
            false => Act::Serve,
        });
        let (home, source) = (Home::new(), bucket.source());
        std::fs::write(home.workspace("small"), "small").unwrap();
        std::fs::write(home.workspace("large"), vec![1; 9 << 20]).unwrap();
        let artifacts = home.artifacts(&source).with_retry(retry);
        let before = reset();
        let _report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        std::fs::remove_file(home.workspace("small")).unwrap();
        let _report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        let used = peak() - before;
        println!("endless {status} to {ask:?}: {} KiB more at the peak", used >> 10);
        assert!(used < ALLOWED, "{status} to {ask:?}: {} MiB more", used >> 20);
    }
}
