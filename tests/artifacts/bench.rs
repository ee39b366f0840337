//! Restore, mirror and snapshot against the plain way and against other tools, each measured in turn in the same run.
//!
//! `cargo bench --features aws --bench artifacts`, on the file system of `TMPDIR`; words after `--` choose among
//! `memory`, `snapshot`, `after`, `restore-small`, `restore`, `unchanged` and `delete`. With `weed`, `s5cmd` and `rclone`, which `.ci/run stores` installs, also those with SeaweedFS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code)]
mod servers;
#[allow(dead_code)]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use beneath::artifacts::{Deletions, Hashing, Remote, Snapshot, Source, SyncOptions};
use beneath::{Root, ambient_authority};
use support::Home;

const ROUNDS: usize = 5;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if is_wanted("memory") {
            memory().await;
        }
        if is_wanted("snapshot") {
            snapshot();
        }
        if is_wanted("after") {
            after_a_restore().await;
        }
        for (name, count, size) in [("restore-small", 20_000, 1 << 10), ("restore", 2000, 16 << 10)] {
            if is_wanted(name) {
                restores(count, size).await;
            }
        }
        if is_wanted("unchanged") {
            unchanged().await;
        }
        if is_wanted("delete") {
            deletions().await;
        }
    });
}

/// Whether the command line names this comparison, or none.
fn is_wanted(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| word == name)
}

/// The median of each contender, contenders taking turns.
fn race(names: &[&str], mut run: impl FnMut(usize) -> Duration) {
    let mut times = vec![Vec::new(); names.len()];
    for round in 0..=ROUNDS {
        for (index, times) in times.iter_mut().enumerate() {
            let time = run(index);
            // The first round warms the caches.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let medians: Vec<f64> = times
        .iter_mut()
        .map(|times| {
            times.sort();
            times[times.len() / 2].as_secs_f64()
        })
        .collect();
    for (name, median) in names.iter().zip(&medians) {
        println!("  {name:<34} {:>9.1} ms   {:>5.2}", median * 1e3, median / medians[0]);
    }
}

async fn memory() {
    println!("restore 20,000 x 1 KiB from memory");
    let source = support::memory();
    let content = vec![b'x'; 1024];
    let paths: Vec<String> = (0..20_000).map(|n| format!("d{:03}/f{n:05}.txt", n / 100)).collect();
    for path in &paths {
        support::put_object(&source, path, &content).await;
    }
    race(&["plain std::fs", "restore"], |contender| {
        let home = Home::new();
        let start = Instant::now();
        if contender == 0 {
            let top = home.path("workspace");
            for path in &paths {
                let path = top.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, &content).unwrap();
            }
        } else {
            let artifacts = home.artifacts(&source);
            assert!(wait(artifacts.restore()).unwrap().is_complete());
        }
        start.elapsed()
    });
}

fn snapshot() {
    println!("snapshot of 20,000 files");
    let home = Home::new();
    for n in 0..20_000 {
        let path = home.workspace(&format!("d{:03}/f{n:05}.txt", n / 100));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    let root = Root::open_ambient(home.path("workspace"), ambient_authority()).unwrap();
    race(&["walkdir + metadata", "Snapshot::take"], |contender| {
        let start = Instant::now();
        let seen = if contender == 0 {
            let mut seen = std::collections::HashMap::new();
            for entry in walkdir::WalkDir::new(home.path("workspace")) {
                let entry = entry.unwrap();
                let metadata = entry.metadata().unwrap();
                if metadata.is_file() {
                    seen.insert(entry.into_path(), metadata.modified().unwrap());
                }
            }
            seen.len()
        } else {
            Snapshot::take(&root, &[], Hashing::Never).unwrap().len()
        };
        assert_eq!(seen, 20_000);
        start.elapsed()
    });
}

/// A bucket of SeaweedFS with `count` objects of `size` bytes, put there from a workspace.
async fn filled(server: &servers::Server, count: usize, size: usize) -> (String, Source, Home) {
    let (bucket, source) = server.bucket().await;
    let home = Home::new();
    let content = vec![b'x'; size];
    for n in 0..count {
        let path = home.workspace(&format!("d{:03}/f{n:05}", n / 100));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &content).unwrap();
    }
    let report = home.artifacts(&source).mirror(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete() && report.uploaded == count as u64, "{report:?}");
    (bucket, source, home)
}

/// Those contenders whose program is here.
fn available(contenders: &[&'static str]) -> Vec<&'static str> {
    let is_here = |name: &&str| {
        let program = name.split([' ', ',']).next().unwrap();
        let here = !["s5cmd", "rclone"].contains(&program) || servers::installed(program).is_some();
        if !here {
            println!("  skipped: there is no {program}; .ci/run stores installs it");
        }
        here
    };
    contenders.iter().copied().filter(is_here).collect()
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

async fn restores(count: usize, size: usize) {
    let Some(server) = servers::weed() else { return };
    println!("restore {count} x {size} bytes from SeaweedFS on loopback");
    let (bucket, source, _) = filled(server, count, size).await;
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let from = format!("{bucket}/{}", support::prefix());
    let names = available(&["restore", "s5cmd", "rclone, 16 transfers", "rclone, 64 transfers"]);
    race(&names, |contender| {
        let home = Home::new();
        let workspace = home.path("workspace");
        let start = Instant::now();
        let done = match names[contender] {
            "s5cmd" => s5cmd(&endpoint, &from, &workspace),
            "rclone, 16 transfers" => {
                rclone(&endpoint, &["copy"], "16", &[&format!(":s3:{from}"), text(&workspace)])
            }
            "rclone, 64 transfers" => {
                rclone(&endpoint, &["copy"], "64", &[&format!(":s3:{from}"), text(&workspace)])
            }
            _ => wait(home.artifacts(&source).restore()).unwrap().is_complete(),
        };
        let time = start.elapsed();
        assert!(done, "{} failed", names[contender]);
        assert_eq!(home.tree().len(), count, "{}", names[contender]);
        time
    });
}

/// What costs nothing should cost nothing: a mirror where nothing has changed.
async fn unchanged() {
    let Some(server) = servers::weed() else { return };
    println!("mirror of 20,000 files that have not changed, to SeaweedFS on loopback");
    let (bucket, source, home) = filled(server, 20_000, 1024).await;
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let to = format!(":s3:{bucket}/{}", support::prefix());
    let workspace = home.path("workspace");
    // Older than the freshness of a stamp.
    std::thread::sleep(Duration::from_millis(200));
    let names = available(&["rclone sync", "rclone sync by size alone", "mirror", "mirror that trusts"]);
    race(&names, |contender| {
        let start = Instant::now();
        let ends = [text(&workspace), &to];
        let done = match names[contender] {
            "rclone sync" => rclone(&endpoint, &["sync", "--fast-list"], "16", &ends),
            "rclone sync by size alone" => {
                rclone(&endpoint, &["sync", "--fast-list", "--size-only"], "16", &ends)
            }
            name => {
                let trust = if name == "mirror" { Remote::List } else { Remote::Trust };
                let report = wait(home.artifacts(&source).mirror(&SyncOptions::default().with_remote(trust)));
                report.is_ok_and(|report| report.is_complete() && report.uploaded == 0)
            }
        };
        assert!(done, "{} failed", names[contender]);
        start.elapsed()
    });
}

/// What is new on a machine is looked at once more: the first mirror after a restore.
async fn after_a_restore() {
    println!("mirror of 20,000 files right after their restore, from memory");
    let source = support::memory();
    let seeded = Home::new();
    for n in 0..20_000 {
        let path = seeded.workspace(&format!("d{:03}/f{n:05}", n / 100));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, [b'x'; 1024]).unwrap();
    }
    assert!(seeded.artifacts(&source).mirror(&SyncOptions::default()).await.unwrap().is_complete());
    std::thread::sleep(Duration::from_millis(200));
    race(&["mirror without changes", "first mirror after a restore"], |contender| {
        let fresh = Home::new();
        let home = if contender == 0 { &seeded } else { &fresh };
        if contender == 1 {
            assert!(wait(fresh.artifacts(&source).restore()).unwrap().is_complete());
        }
        let start = Instant::now();
        let report = wait(home.artifacts(&source).mirror(&SyncOptions::default())).unwrap();
        assert!(report.is_complete() && report.uploaded == 0, "{report:?}");
        start.elapsed()
    });
}

async fn deletions() {
    let (Some(server), Some(_)) = (servers::weed(), servers::installed("s5cmd")) else { return };
    println!("delete 5,000 objects on SeaweedFS on loopback");
    let (bucket, source) = server.bucket().await;
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    race(&["s5cmd", "mirror"], |contender| {
        let home = Home::new();
        for n in 0..5000 {
            std::fs::write(home.workspace(&format!("f{n:04}")), "x").unwrap();
        }
        let mirror = |options: SyncOptions| wait(home.artifacts(&source).mirror(&options)).unwrap();
        assert_eq!(mirror(SyncOptions::default()).uploaded, 5000);
        (0..5000).for_each(|n| std::fs::remove_file(home.workspace(&format!("f{n:04}"))).unwrap());
        // As many as that wait for an approval.
        let approval = mirror(SyncOptions::default()).held[0].approval;
        let start = Instant::now();
        if contender == 0 {
            let all = format!("s3://{bucket}/{}*", support::prefix());
            let rm = ["--endpoint-url", &endpoint, "rm", &all];
            assert!(ran(program("s5cmd").args(rm).env("AWS_REGION", "us-east-1")));
        } else {
            let report = mirror(SyncOptions::default().with_deletions(Deletions::Approved(approval)));
            assert_eq!(report.deleted, 5000, "{report:?}");
        }
        start.elapsed()
    });
}

fn s5cmd(endpoint: &str, from: &str, to: &Path) -> bool {
    ran(program("s5cmd")
        .args(["--endpoint-url", endpoint, "cp", &format!("s3://{from}*")])
        .arg(format!("{}/", to.display()))
        .env("AWS_REGION", "us-east-1"))
}

fn rclone(endpoint: &str, command: &[&str], transfers: &str, ends: &[&str]) -> bool {
    ran(program("rclone")
        .args(command)
        .args(["--transfers", transfers, "--checkers", transfers, "--s3-provider", "Other", "--s3-env-auth"])
        .args(["--s3-endpoint", endpoint, "--s3-region", "us-east-1"])
        .args(ends))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn program(name: &str) -> Command {
    Command::new(servers::installed(name).unwrap())
}

fn ran(command: &mut Command) -> bool {
    command
        .env("AWS_ACCESS_KEY_ID", servers::KEY_ID)
        .env("AWS_SECRET_ACCESS_KEY", servers::SECRET)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
