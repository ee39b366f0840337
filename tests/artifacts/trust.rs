//! Mirrors that take the store for what this host left there.

use std::fs;

use beneath::artifacts::{Artifacts, Remote, SyncOptions, SyncReport};
use beneath::{ErrorKind, GuestPath};

use crate::bucket::{Act, Ask, Bucket};
use crate::http::Answer;
use crate::support::Home;

fn trusting() -> SyncOptions {
    SyncOptions::default().with_remote(Remote::Trust)
}

async fn mirror(artifacts: &Artifacts) -> SyncReport {
    artifacts.mirror(&trusting()).await.unwrap()
}

/// A workspace that is mirrored, its files old enough that their stamps show every change.
async fn mirrored(bucket: &Bucket, files: &[&str]) -> (Home, Artifacts) {
    let home = Home::new();
    for file in files {
        fs::create_dir_all(home.workspace(file).parent().unwrap()).unwrap();
        fs::write(home.workspace(file), file).unwrap();
    }
    let artifacts = home.artifacts(&bucket.source());
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    (home, artifacts)
}

#[tokio::test]
async fn mirror_that_trusts_sends_what_has_changed_and_nothing_else() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let (home, artifacts) = mirrored(&bucket, &["a", "d/b", "c"]).await;
    let before = bucket.order().len();
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.listed == 0, "{report:?}");
    assert_eq!(bucket.order()[before..], [], "nothing has changed");

    fs::write(home.workspace("a"), "changed").unwrap();
    fs::create_dir(home.workspace("empty")).unwrap();
    fs::remove_file(home.workspace("c")).unwrap();
    let report = mirror(&artifacts).await;
    assert_eq!((report.uploaded, report.deleted), (2, 1), "{report:?}");
    assert!(report.is_complete() && report.unconditional == 0, "{report:?}");
    assert_eq!(bucket.object("a").unwrap(), b"changed");
    assert_eq!(bucket.keys(), ["sessions/s1/a", "sessions/s1/d/b", "sessions/s1/empty/"]);

    // The next one trusts what this one has left.
    fs::remove_dir(home.workspace("empty")).unwrap();
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.listed == 0, "{report:?}");
    assert_eq!(bucket.keys(), ["sessions/s1/a", "sessions/s1/d/b"]);

    let other = Home::new();
    assert!(other.artifacts(&bucket.source()).restore().await.unwrap().is_complete());
    assert_eq!(other.tree(), home.tree());
}

/// Trust is about what is listed, and not about what is overwritten or deleted.
#[tokio::test]
async fn object_of_another_host_is_neither_overwritten_nor_deleted() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let (home, artifacts) = mirrored(&bucket, &["a", "b", "c", "d"]).await;
    for key in ["sessions/s1/a", "sessions/s1/b", "sessions/s1/new"] {
        bucket.plant(key);
    }
    fs::write(home.workspace("a"), "changed").unwrap();
    fs::write(home.workspace("new"), "ours").unwrap();
    fs::remove_file(home.workspace("b")).unwrap();
    let report = mirror(&artifacts).await;
    assert!(!report.is_complete(), "{report:?}");
    assert_eq!((report.uploaded, report.deleted), (0, 0), "{report:?}");
    for path in ["a", "b", "new"] {
        assert_eq!(bucket.object(path).unwrap(), b"planted", "{path}");
    }
    // Since that one was not complete, the next one looks.
    assert_eq!(mirror(&artifacts).await.listed, 5);
}

#[tokio::test]
async fn call_that_failed_is_followed_by_one_that_lists() {
    let bucket = Bucket::new(|request, _| match (request.ask, request.key.ends_with("bad")) {
        (Ask::Put, true) => Act::Refuse(Answer::new(403, "")),
        _ => Act::Serve,
    });
    let (home, artifacts) = mirrored(&bucket, &["a"]).await;
    fs::write(home.workspace("bad"), "x").unwrap();
    assert!(!mirror(&artifacts).await.is_complete());
    assert_eq!(bucket.asked(Ask::List), 1, "the first call was complete");
    assert!(!mirror(&artifacts).await.is_complete());
    assert_eq!(bucket.asked(Ask::List), 2);
    fs::remove_file(home.workspace("bad")).unwrap();
    assert!(mirror(&artifacts).await.is_complete());
    let lists = bucket.asked(Ask::List);
    assert!(mirror(&artifacts).await.is_complete());
    assert_eq!(bucket.asked(Ask::List), lists);
}

/// What was on its way when the host died is not in the base.
#[tokio::test]
async fn call_that_was_cut_off_is_followed_by_one_that_lists() {
    for name in ["file", "directory"] {
        let (sender, waiting) = tokio::sync::oneshot::channel();
        let sender = std::sync::Mutex::new(Some(sender));
        let bucket = Bucket::new(move |request, _| {
            if request.ask == Ask::Put && request.key.contains("ghost") {
                if let Some(sender) = sender.lock().unwrap().take() {
                    sender.send(()).unwrap();
                }
                return Act::ServeAndSay(Answer::new(200, "").then_silence());
            }
            Act::Serve
        });
        let (home, dying) = mirrored(&bucket, &["a"]).await;
        match name {
            "file" => fs::write(home.workspace("ghost"), "x").unwrap(),
            _ => fs::create_dir(home.workspace("ghost")).unwrap(),
        }
        let mirroring = tokio::spawn(async move { mirror(&dying).await });
        waiting.await.unwrap();
        while bucket.keys().len() < 2 {
            tokio::task::yield_now().await;
        }
        mirroring.abort();
        assert!(mirroring.await.is_err(), "{name}");
        match name {
            "file" => fs::remove_file(home.workspace("ghost")).unwrap(),
            _ => fs::remove_dir(home.workspace("ghost")).unwrap(),
        }
        let report = mirror(&home.artifacts(&bucket.source())).await;
        assert!(report.listed > 0, "{name}: {report:?}");
        assert_eq!(report.is_complete(), bucket.keys().len() == 1, "{name}: {report:?} {:?}", bucket.keys());
    }
}

#[tokio::test]
async fn store_is_listed_where_there_is_no_base_and_by_what_takes() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let (home, artifacts) = mirrored(&bucket, &["a"]).await;
    assert!(artifacts.sync(&trusting()).await.unwrap().is_complete());
    assert!(artifacts.pull(&trusting()).await.unwrap().is_complete());
    assert_eq!(bucket.asked(Ask::List), 3);
    fs::rename(home.path("workspace"), home.path("old")).unwrap();
    fs::create_dir(home.path("workspace")).unwrap();
    let report = mirror(&artifacts).await;
    assert_eq!((report.listed, report.deleted, report.pending), (1, 0, 1), "{report:?}");
}

#[tokio::test]
async fn put_of_one_file_keeps_the_trust() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let (home, artifacts) = mirrored(&bucket, &["a"]).await;
    let path = GuestPath::new("b").unwrap();
    assert!(artifacts.put(&path, "b").await.unwrap().is_complete());
    assert!(mirror(&artifacts).await.is_complete());
    assert_eq!(bucket.asked(Ask::List), 1);
    bucket.plant("sessions/s1/b");
    let put = artifacts.put(&path, "other").await.unwrap();
    assert_eq!(put.uploaded.unwrap_err().kind(), ErrorKind::Busy);
    assert!(!mirror(&home.artifacts(&bucket.source())).await.is_complete());
    assert_eq!(bucket.asked(Ask::List), 2, "the put is in doubt");
}
