//! Restore and snapshot against the plain way, each measured in turn in the same run.
//!
//! `cargo bench --features aws --bench artifacts`, on the file system of `TMPDIR`. With `weed`, `s5cmd` and `rclone`,
//! which `.ci/run stores` installs, it also restores from SeaweedFS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code)]
mod servers;
#[allow(dead_code)]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use beneath::artifacts::{Deletions, Hashing, Snapshot, SyncOptions, SyncReport};
use beneath::{Root, ambient_authority};
use support::Home;

const ROUNDS: usize = 5;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        memory().await;
        snapshot();
        seaweed().await;
        deletions().await;
    });
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
            let report = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(artifacts.restore())
            });
            assert!(report.unwrap().is_complete());
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

async fn seaweed() {
    let Some(server) = servers::weed() else { return };
    println!("restore 2,000 x 16 KiB from SeaweedFS on loopback");
    let (bucket, source) = server.bucket().await;
    let content = vec![b'x'; 16 << 10];
    for n in 0..2000 {
        support::put_object(&source, &format!("f{n:04}"), &content).await;
    }
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let from = format!("{bucket}/{}", support::prefix());
    let mut names = vec!["restore"];
    for (program, name) in [("s5cmd", "s5cmd"), ("rclone", "rclone, 16 transfers")] {
        match servers::installed(program) {
            Some(_) => names.push(name),
            None => println!("  skipped: there is no {program}; .ci/run stores installs it"),
        }
    }
    race(&names, |contender| {
        let home = Home::new();
        let start = Instant::now();
        let workspace = home.path("workspace");
        let done = match names[contender] {
            "s5cmd" => s5cmd(&endpoint, &from, &workspace),
            "rclone, 16 transfers" => rclone(&endpoint, &from, &workspace),
            _ => {
                let artifacts = home.artifacts(&source);
                let report = tokio::task::block_in_place(|| {
                    tokio::runtime::Handle::current().block_on(artifacts.restore())
                });
                report.unwrap().is_complete()
            }
        };
        let time = start.elapsed();
        assert!(done, "{} failed", names[contender]);
        assert_eq!(std::fs::read_dir(workspace).unwrap().count(), 2000, "{}", names[contender]);
        time
    });
}

async fn deletions() {
    let (Some(server), Some(_)) = (servers::weed(), servers::installed("s5cmd")) else { return };
    println!("delete 5,000 objects on SeaweedFS on loopback");
    let (bucket, source) = server.bucket().await;
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let wait = |work: std::pin::Pin<Box<dyn Future<Output = SyncReport>>>| {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
    };
    race(&["s5cmd", "mirror"], |contender| {
        let home = Home::new();
        for n in 0..5000 {
            std::fs::write(home.workspace(&format!("f{n:04}")), "x").unwrap();
        }
        let mirror = |options: SyncOptions| {
            let artifacts = home.artifacts(&source);
            wait(Box::pin(async move { artifacts.mirror(&options).await.unwrap() }))
        };
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

fn rclone(endpoint: &str, from: &str, to: &Path) -> bool {
    ran(program("rclone")
        .args(["copy", "--transfers", "16", "--checkers", "16", "--s3-provider", "Other", "--s3-env-auth"])
        .args(["--s3-endpoint", endpoint, "--s3-region", "us-east-1", &format!(":s3:{from}")])
        .arg(to))
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
