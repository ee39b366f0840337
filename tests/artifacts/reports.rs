//! A report is complete only if nothing was refused and nothing failed.

use std::fs;
use std::os::unix::fs::symlink;

use beneath::artifacts::{Deletions, Ended, Hashing, OnLocal, Overwrites, Snapshot};
use beneath::{ErrorKind, Root, SafePath, ambient_authority};

use crate::support::{self, Home};

#[tokio::test]
async fn restore_that_refuses_a_key_is_not_complete() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"1"), ("skills/evil.md", b"2")]).await;
    let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
    assert_eq!((report.ended, report.placed(), report.left.total), (Ended::Complete, 1, 1));
    assert!(!report.is_complete());
    let (subject, error) = report.refused().next().unwrap();
    assert_eq!(
        (subject.to_str().unwrap(), error.kind()),
        ("sessions/s1/skills/evil.md", ErrorKind::InvalidPath)
    );
    assert_eq!(report.clone(), report);
}

#[tokio::test]
async fn restore_that_was_interrupted_still_counts_what_it_refused() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"1"), ("skills/evil.md", b"2")]).await;
    let artifacts = home.artifacts(&source);
    // The journal is written before the first file is published.
    let listener = home.artifacts(&source).with_progress(|event| {
        if let beneath::artifacts::Event::Entered(beneath::artifacts::Step::Publishing) = event {
            panic!("dies here");
        }
    });
    assert!(listener.restore(OnLocal::ColdStart).await.is_err());
    let report = artifacts.restore(OnLocal::ColdStart).await.unwrap();
    assert!(report.resumed && !report.is_complete(), "{report:?}");
    assert_eq!((report.placed(), report.left.total, report.refused().count()), (1, 1, 0));
    let again = artifacts.restore(OnLocal::ColdStart).await.unwrap();
    assert!(again.ended == Ended::AlreadyRestored && !again.is_complete(), "this call brought in nothing");
}

#[tokio::test]
async fn mirror_of_a_diff_is_as_complete_as_the_snapshot_was() {
    let (home, source) = (Home::new(), support::memory());
    let root = Root::open_ambient(home.path("workspace"), ambient_authority()).unwrap();
    let before = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    assert!(before.is_complete());
    fs::write(home.workspace("a"), "1").unwrap();
    symlink("nowhere", home.workspace("link")).unwrap();
    let after = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    let diff = before.diff(&after);
    assert!(!after.is_complete() && !diff.is_complete() && !diff.is_empty());
    let artifacts = home.artifacts(&source);
    let report = artifacts.mirror_diff(&diff, Deletions::Keep, Overwrites::Refuse).await.unwrap();
    assert_eq!((report.uploaded(), report.left.total), (1, 1));
    assert!(!report.is_complete());
    fs::remove_file(home.workspace("link")).unwrap();
    assert!(artifacts.mirror(Deletions::Keep, Overwrites::Refuse).await.unwrap().is_complete());
}

#[tokio::test]
async fn put_that_was_not_uploaded_names_its_key() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    let path = SafePath::new("a").unwrap();
    let put = artifacts.put(&path, "x").await.unwrap();
    assert!(put.is_complete() && put.refused().next().is_none());
    let held = fs::File::create(home.path("state/artifacts.lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let put = artifacts.put(&path, "y").await.unwrap();
    let (subject, error) = put.refused().next().unwrap();
    assert_eq!((subject.to_str(), error.kind()), (Some("sessions/s1/a"), ErrorKind::Busy));
    assert!(!put.is_complete());
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn reports_are_written_as_json() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"1"), ("skills/evil.md", b"2")]).await;
    let artifacts = home.artifacts(&source);
    let restored = artifacts.restore(OnLocal::ColdStart).await.unwrap();
    let json = serde_json::to_value(&restored).unwrap();
    assert_eq!(json["ended"], "Complete");
    assert_eq!(json["outcomes"][0]["Placed"]["path"], "a");
    assert_eq!(json["left"]["first"][0]["subject"], "sessions/s1/skills/evil.md");
    fs::write(home.workspace("b"), "2").unwrap();
    let mirrored = artifacts.mirror(Deletions::Keep, Overwrites::Refuse).await.unwrap();
    assert_eq!(serde_json::to_value(&mirrored).unwrap()["left"]["total"], 0);
    let put = artifacts.put(&SafePath::new("c").unwrap(), "3").await.unwrap();
    assert_eq!(serde_json::to_value(&put).unwrap()["key"], "sessions/s1/c");
}
