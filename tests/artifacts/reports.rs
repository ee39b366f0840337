//! A report is complete only if nothing was refused and nothing failed.

use std::fs;
use std::os::unix::fs::symlink;

use beneath::artifacts::{Event, Step, SyncOptions};
use beneath::{ErrorKind, GuestPath};

use crate::support::{self, Home};

#[tokio::test]
async fn restore_that_refuses_a_key_is_not_complete() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"1"), ("skills/evil.md", b"2")]).await;
    let report = home.artifacts(&source).restore().await.unwrap();
    assert_eq!((report.placed, report.left.total, report.listed), (1, 1, 2));
    assert!(!report.is_complete());
    let (subject, error) = report.refused().next().unwrap();
    assert_eq!(
        (subject.to_str().unwrap(), error.kind()),
        ("sessions/s1/skills/evil.md", ErrorKind::InvalidPath)
    );
    assert_eq!(report.clone(), report);
}

#[tokio::test]
async fn restore_that_was_interrupted_still_reports_what_it_refused() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"1"), ("skills/evil.md", b"2")]).await;
    let artifacts = home.artifacts(&source);
    let listener = home.artifacts(&source).with_progress(|event| {
        if let Event::Entered(Step::Publishing) = event {
            panic!("dies here");
        }
    });
    assert!(listener.restore().await.is_err());
    for placed in [1, 0] {
        let report = artifacts.restore().await.unwrap();
        assert_eq!((report.placed, report.left.total, report.refused().count()), (placed, 1, 1));
        assert!(!report.is_complete(), "{report:?}");
    }
}

#[tokio::test]
async fn mirror_is_complete_only_without_what_the_store_cannot_keep() {
    use std::os::unix::fs::PermissionsExt as _;
    // It keeps bytes, and says so when it is given more.
    let (home, source) = (Home::new(), support::directory());
    let artifacts = home.artifacts(&source);
    fs::write(home.workspace("a"), "1").unwrap();
    assert_eq!(artifacts.mirror(&SyncOptions::default()).await.unwrap().uploaded, 1);
    symlink("nowhere", home.workspace("link")).unwrap();
    fs::create_dir(home.workspace("empty")).unwrap();
    fs::write(home.workspace("run"), "#!").unwrap();
    fs::set_permissions(home.workspace("run"), fs::Permissions::from_mode(0o755)).unwrap();
    for uploaded in [2, 0] {
        let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        assert_eq!((report.uploaded, report.left.total), (uploaded, 2), "{report:?}");
        assert!(!report.is_complete());
    }
    fs::remove_file(home.workspace("link")).unwrap();
    fs::remove_dir(home.workspace("empty")).unwrap();
    fs::set_permissions(home.workspace("run"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
}

#[tokio::test]
async fn put_that_was_not_uploaded_names_its_key() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    let path = GuestPath::new("a").unwrap();
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
    let restored = artifacts.restore().await.unwrap();
    let json = serde_json::to_value(&restored).unwrap();
    assert_eq!(json["placed"], 1);
    assert_eq!(json["left"]["first"][0]["subject"], "sessions/s1/skills/evil.md");
    fs::write(home.workspace("b"), "2").unwrap();
    let mirrored = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!(serde_json::to_value(&mirrored).unwrap()["uploaded"], 1);
    let put = artifacts.put(&GuestPath::new("c").unwrap(), "3").await.unwrap();
    assert_eq!(serde_json::to_value(&put).unwrap()["key"], "sessions/s1/c");
}
