//! What the host's patterns leave out is nobody's concern, on either side and in the base.

use std::fs;

use beneath::artifacts::{Artifacts, SyncOptions, Take};
use beneath::{ErrorKind, GuestPath, Patterns};

use crate::support::{self, Home};

fn filtered(artifacts: &Artifacts, lines: &[&str]) -> Artifacts {
    artifacts.clone().with_filter(Patterns::new(lines).unwrap())
}

#[tokio::test]
async fn what_matches_goes_neither_way_and_is_no_part_of_complete() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = filtered(&home.artifacts(&source), &["*.log", "cache/"]);
    support::seed(&source, &[("a", b"1"), ("there.log", b"2"), ("cache/x", b"3"), ("sub/y.log", b"4")]).await;
    for name in ["cache", "cache/deep"] {
        fs::create_dir(home.workspace(name)).unwrap();
    }
    // Nobody looks into it, so it may hold what cannot be mirrored.
    rustix::fs::mkfifoat(rustix::fs::CWD, home.workspace("cache/fifo"), rustix::fs::Mode::RUSR).unwrap();
    fs::write(home.workspace("here.log"), "5").unwrap();
    fs::write(home.workspace("b"), "6").unwrap();
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.placed, report.uploaded, report.is_complete()), (1, 1, true), "{report:?}");
    assert_eq!(home.tree().into_keys().collect::<Vec<_>>(), ["a", "b", "here.log"]);
    let objects: Vec<_> = support::objects(&source).await.into_keys().collect();
    assert_eq!(objects, ["a", "b", "cache/x", "sub/y.log", "there.log"]);
    let again = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert_eq!((again.placed, again.uploaded, again.deleted, again.removed), (0, 0, 0, 0), "{again:?}");
    for path in ["x.log", "cache/z"] {
        let refused = artifacts.put(&GuestPath::new(path).unwrap(), "x").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidPath, "{path}");
    }
}

/// rclone asks for a resync where the filter has changed, since a narrower one looks like deletions.
#[tokio::test]
async fn other_patterns_delete_nothing_on_either_side() {
    let (home, source) = (Home::new(), support::memory());
    let all = home.artifacts(&source);
    for number in 0..5 {
        fs::write(home.workspace(&format!("{number}.txt")), "text").unwrap();
        fs::write(home.workspace(&format!("{number}.log")), "log").unwrap();
    }
    assert!(all.sync(&SyncOptions::default()).await.unwrap().is_complete());
    let (files, objects) = (home.tree(), support::objects(&source).await);
    let logs = filtered(&all, &["*.txt"]);
    for artifacts in [&filtered(&all, &["*.log"]), &logs, &all, &logs] {
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert_eq!((report.deleted, report.removed, report.held_back()), (0, 0, 0), "{report:?}");
        assert!(report.is_complete(), "{report:?}");
        assert_eq!((home.tree(), support::objects(&source).await), (files.clone(), objects.clone()));
    }
    // With the same patterns as before a deletion is one.
    fs::remove_file(home.workspace("1.log")).unwrap();
    fs::remove_file(home.workspace("1.txt")).unwrap();
    let report = logs.sync(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.deleted, report.is_complete()), (1, true), "{report:?}");
    let objects = support::objects(&source).await;
    assert!(!objects.contains_key("1.log") && objects.contains_key("1.txt"), "{objects:?}");
}

/// A pattern for directories leaves out what is here, and not the file of that name in the store.
#[tokio::test]
async fn file_in_place_of_a_directory_that_is_left_out_is_not_there() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = filtered(&home.artifacts(&source), &["build/"]);
    support::seed(&source, &[("build", b"a file"), ("a", b"1")]).await;
    fs::create_dir(home.workspace("build")).unwrap();
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.placed, report.is_complete()), (1, false), "{report:?}");
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert!(!report.is_complete(), "{report:?}");
}

/// The name beside was left out, and so the version that had it was in no store.
#[tokio::test]
async fn version_of_another_host_stays_in_the_store_while_its_other_name_is_left_out() {
    for deleted in [false, true] {
        let (home, source) = (Home::new(), support::memory());
        let artifacts = filtered(&home.artifacts(&source), &[".env.*"]);
        support::seed(&source, &[(".env", b"theirs"), ("a", b"1"), ("b", b"2")]).await;
        fs::write(home.workspace(".env"), "ours").unwrap();
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert!(home.tree().values().any(|content| content == b"theirs"), "{report:?}");
        if deleted {
            fs::remove_file(home.workspace(".env")).unwrap();
        }
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert!(!report.is_complete(), "{report:?}");
        let objects = support::objects(&source).await;
        assert!(objects.values().any(|content| content == b"theirs"), "{deleted}: {objects:?} {report:?}");
        if !deleted {
            assert!(artifacts.resolve(&GuestPath::new(".env").unwrap(), Take::Ours).await.unwrap());
            assert!(artifacts.sync(&SyncOptions::default()).await.unwrap().is_complete());
            assert_eq!(support::objects(&source).await[".env"], b"ours");
        }
    }
}
