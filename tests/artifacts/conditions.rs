//! Whether a store compares and writes in one step is found out by trying, and reported where it does not.

use std::fs;

use beneath::artifacts::{SyncOptions, SyncReport};
use futures_util::TryStreamExt as _;

use crate::bucket::{Act, Ask, Bucket};
use crate::http::Answer;
use crate::support::{self, Home, SCRATCH};
use crate::{servers, skip};

async fn mirror(home: &Home, source: &beneath::artifacts::Source) -> SyncReport {
    home.artifacts(source).mirror(&SyncOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a7_server_that_ignores_conditions_is_looked_at_before_each_put() {
    let bucket = Bucket::new(|_, _| Act::Serve).careless();
    let (home, source) = (Home::new(), bucket.source());
    for name in ["a", "b"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    let artifacts = home.artifacts(&source).with_concurrency(1);
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.uploaded, report.unconditional), (2, 2));
    assert_eq!(bucket.order(), [Ask::List, Ask::Head, Ask::Put, Ask::Head, Ask::Put]);
    assert!(!bucket.keys().iter().any(|key| key.contains(SCRATCH)), "{:?}", bucket.keys());

    // The control: one that keeps conditions is not looked at, and nothing is reported.
    let bucket = Bucket::new(|_, _| Act::Serve);
    let other = Home::new();
    fs::write(other.workspace("a"), "a").unwrap();
    let report = mirror(&other, &bucket.source()).await;
    assert_eq!((report.uploaded, report.unconditional), (1, 0));
    assert_eq!(bucket.order(), [Ask::List, Ask::Put]);
}

#[tokio::test]
async fn a7_object_of_another_host_is_not_overwritten_where_conditions_are_ignored() {
    // It comes after the listing, and before the put.
    let judge = |request: &crate::bucket::Request, _| match request.ask {
        Ask::List => Act::ServeAndPlant("a"),
        _ => Act::Serve,
    };
    let bucket = Bucket::new(judge).careless();
    let home = Home::new();
    fs::write(home.workspace("a"), "mine").unwrap();
    let report = mirror(&home, &bucket.source()).await;
    assert_eq!((report.uploaded, report.conflicts.len()), (0, 1), "{report:?}");
    assert_eq!(bucket.object("a").unwrap(), b"planted");
}

#[tokio::test]
async fn store_is_tried_once_for_all_copies_of_its_source() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let source = bucket.source();
    let mut probes = Vec::new();
    for round in 0..3 {
        let home = Home::new();
        fs::write(home.workspace(&format!("f{round}")), "x").unwrap();
        assert_eq!(mirror(&home, &source.clone()).await.uploaded, 1);
        probes.push(bucket.asked(Ask::Probe));
    }
    assert!(probes[0] > 0 && probes.iter().all(|count| *count == probes[0]), "{probes:?}");
    // A call that puts nothing tries nothing.
    let other = bucket.source();
    let home = Home::new();
    let _ = home.artifacts(&other).restore().await.unwrap();
    assert_eq!(bucket.asked(Ask::Probe), probes[0]);
}

#[tokio::test]
async fn a_scratch_object_that_was_left_is_neither_restored_nor_refused() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    bucket.plant(&format!("sessions/s1/{SCRATCH}{}", "0a".repeat(16)));
    bucket.plant("sessions/s1/a");
    let home = Home::new();
    let report = home.artifacts(&bucket.source()).restore().await.unwrap();
    assert!(report.is_complete() && report.listed == 1, "{report:?}");
    assert_eq!(home.tree().len(), 1);
}

#[tokio::test]
async fn store_that_refuses_the_trial_is_looked_at_before_each_put() {
    // Nobody may put a scratch object; all else is served.
    let bucket = Bucket::refusing_probes(Answer::new(403, ""));
    let home = Home::new();
    fs::write(home.workspace("a"), "x").unwrap();
    let report = mirror(&home, &bucket.source()).await;
    assert!(report.is_complete() && report.unconditional == 1, "{report:?}");
    assert_eq!(bucket.order(), [Ask::List, Ask::Head, Ask::Put]);
}

#[tokio::test]
async fn completion_whose_answer_was_lost_is_no_proof_that_conditions_are_kept() {
    let large = vec![7; (8 << 20) + 1];
    for careless in [true, false] {
        let bucket = Bucket::new(|_, _| Act::Serve).losing_a_trial();
        let bucket = if careless { bucket.careless() } else { bucket };
        let (home, source) = (Home::new(), bucket.source());
        for (name, known) in [("first", false), ("second", true)] {
            fs::write(home.workspace(name), &large).unwrap();
            let report = mirror(&home, &source).await;
            assert_eq!(report.uploaded, 1, "{report:?}");
            // What was not found out is tried again by the next call.
            let expected = u64::from(careless || !known);
            assert_eq!(report.unconditional, expected, "{careless} {name}");
        }
    }
}

/// What each server does, and the sum of what was put without a comparison in one step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_every_server_is_found_out() {
    let mut tried = 0;
    for (name, server) in servers::S3 {
        let Some(server) = server() else { continue };
        let (_, source) = server.bucket().await;
        let home = Home::new();
        for file in 0..3 {
            fs::write(home.workspace(&format!("f{file}")), "one").unwrap();
        }
        let first = mirror(&home, &source).await;
        fs::write(home.workspace("f1"), "two").unwrap();
        let second = mirror(&home, &source).await;
        assert_eq!((first.uploaded, second.uploaded), (3, 1), "{name}: {first:?} {second:?}");
        let careless = ["s3rver", "rclone serve s3"].contains(&name);
        let expected = if careless { (3, 1) } else { (0, 0) };
        assert_eq!((first.unconditional, second.unconditional), expected, "{name}");
        let listed: Vec<_> = source.list(&support::prefix()).try_collect().await.unwrap();
        assert_eq!(listed.len(), 3, "{name}: no scratch object is left");
        tried += 1;
    }
    if tried == 0 {
        skip("there is no server");
    }
}

#[tokio::test]
async fn a22_weak_versions_are_no_conflict_with_oneself() {
    for careless in [false, true] {
        let bucket = Bucket::new(|_, _| Act::Serve).weak();
        let bucket = if careless { bucket.careless() } else { bucket };
        let (home, source) = (Home::new(), bucket.source());
        fs::write(home.workspace("a"), "one").unwrap();
        fs::write(home.workspace("b"), "one").unwrap();
        for round in 0..3 {
            let report = mirror(&home, &source).await;
            assert!(report.is_complete() && report.uploaded == [2, 1, 0][round], "{round}: {report:?}");
            if round == 0 {
                fs::write(home.workspace("a"), "two, and longer").unwrap();
            }
        }
        let other = Home::new();
        assert!(other.artifacts(&source).restore().await.unwrap().is_complete());
        // On this host the versions are those of the listing.
        fs::write(other.workspace("a"), "three").unwrap();
        fs::remove_file(other.workspace("b")).unwrap();
        let report = mirror(&other, &source).await;
        assert!(report.is_complete() && report.deleted == 1, "{careless}: {report:?}");
        assert_eq!(bucket.object("a").unwrap(), b"three");
    }
}

/// rclone does it after an upload in parts: the version of the listing is another than that of the answer.
#[tokio::test]
async fn a22_equal_bytes_under_another_version_are_no_conflict_with_oneself() {
    for (cloud, _) in Bucket::new(|_, _| Act::Serve).clouds() {
        let bucket = Bucket::new(|_, _| Act::Serve);
        let source = bucket.clouds().into_iter().find(|(name, _)| *name == cloud).unwrap().1;
        let home = Home::new();
        let names = ["stays", "edited", "gone"];
        names.iter().for_each(|name| fs::write(home.workspace(name), "one").unwrap());
        assert!(mirror(&home, &source).await.is_complete(), "{cloud}");
        names.iter().for_each(|name| bucket.put_again(name));
        fs::write(home.workspace("edited"), "two, and longer").unwrap();
        fs::remove_file(home.workspace("gone")).unwrap();
        let report = mirror(&home, &source).await;
        assert!(report.is_complete(), "{cloud}: {report:?}");
        assert_eq!((report.uploaded, report.deleted, report.conflicts.len()), (1, 1, 0), "{cloud}");
        assert_eq!(bucket.keys(), ["sessions/s1/edited", "sessions/s1/stays"], "{cloud}");
        assert_eq!(bucket.object("edited").unwrap(), b"two, and longer", "{cloud}");
    }
}

#[tokio::test]
async fn a23_server_that_knows_no_conditions_is_not_asked_again_and_again() {
    let judge = |request: &crate::bucket::Request, _| {
        let on_condition =
            ["if-match", "if-none-match"].iter().any(|name| request.headers.contains_key(*name));
        match request.ask {
            Ask::Put if on_condition => {
                Act::Refuse(Answer::new(501, "<Error><Code>NotImplemented</Code></Error>"))
            }
            _ => Act::Serve,
        }
    };
    let bucket = Bucket::new(judge);
    let (home, source) = (Home::new(), bucket.source());
    for content in ["one", "two"] {
        fs::write(home.workspace("a"), content).unwrap();
        let report = mirror(&home, &source).await;
        assert!(report.is_complete(), "{report:?}");
        assert_eq!((report.uploaded, report.unconditional), (1, 1));
    }
    let order = [Ask::List, Ask::Put, Ask::Head, Ask::Put];
    assert_eq!(bucket.order(), [order, order].concat());

    // Where the trial shows it, each put is one request.
    let bucket = Bucket::refusing_probes(Answer::new(501, ""));
    let home = Home::new();
    fs::write(home.workspace("a"), "x").unwrap();
    assert_eq!(mirror(&home, &bucket.source()).await.unconditional, 1);
    assert_eq!(bucket.order(), [Ask::List, Ask::Head, Ask::Put]);
}
