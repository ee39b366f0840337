//! What somebody may still miss is kept, and what is not in the store is not called so.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use beneath::artifacts::{Side, SyncOptions};
use beneath::{ErrorKind, GuestPath};

use crate::support::{self, Home, mirrored};

fn plain() -> SyncOptions {
    SyncOptions::default()
}

/// The contents of the files in the trash.
fn trash(home: &Home) -> BTreeSet<String> {
    let dirs = fs::read_dir(home.path("host/trash")).unwrap().map(|entry| entry.unwrap().path());
    let files = dirs.flat_map(|dir| fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap().path());
    let files = files.filter(|path: &PathBuf| path.is_file() && !path.ends_with("journal"));
    files.map(|path| fs::read_to_string(path).unwrap()).collect()
}

fn set_mode(home: &Home, path: &str, mode: u32) {
    fs::set_permissions(home.workspace(path), fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn sweep_of_the_outbox_leaves_what_was_displaced() {
    let (home, source, artifacts) = mirrored(3).await;
    support::delete_key(&source, &format!("{}f0", support::prefix())).await;
    assert_eq!(artifacts.pull(&plain()).await.unwrap().removed, 1);
    assert_eq!(trash(&home), BTreeSet::from(["0".to_owned()]));
    let session = support::session_at(&home.path(""));
    fs::create_dir_all(home.path("host/trash/.beneath-remains/x")).unwrap();
    assert!(session.outbox().sweep(Duration::ZERO).unwrap().is_complete());
    assert_eq!(trash(&home), BTreeSet::from(["0".to_owned()]));
    assert!(!home.path("host/trash/.beneath-remains").exists());
}

/// The guest has moved its only copy to where nothing is sent from, by copying it.
#[tokio::test]
async fn copy_where_nothing_is_sent_from_holds_the_deletion() {
    let (home, source, artifacts) = mirrored(5).await;
    fs::write(home.workspace("f1"), "the only copy").unwrap();
    assert!(artifacts.mirror(&plain()).await.unwrap().is_complete());
    fs::create_dir(home.workspace("skills")).unwrap();
    for (kept, gone) in [("skills/own", "f1"), ("skills/other", "f2")] {
        fs::copy(home.workspace(gone), home.workspace(kept)).unwrap();
    }
    fs::write(home.workspace("skills/other"), "z").unwrap();
    fs::remove_file(home.workspace("f1")).unwrap();
    fs::remove_file(home.workspace("f2")).unwrap();
    let report = artifacts.mirror(&plain()).await.unwrap();
    // The other one has the size of what is gone, and not the content.
    assert_eq!((report.deleted, report.held_back(), report.held[0].side), (1, 1, Side::There), "{report:?}");
    assert_eq!(report.held[0].paths, [GuestPath::new("f1").unwrap()]);
    assert_eq!(support::objects(&source).await["f1"], b"the only copy");
}

#[tokio::test]
async fn put_keeps_what_the_store_has_not() {
    let (home, _source, artifacts) = mirrored(1).await;
    let put =
        async |path: &str, text: &'static str| artifacts.put(&GuestPath::new(path).unwrap(), text).await;
    // What both had is missed by nobody.
    assert!(put("f0", "one").await.unwrap().is_complete());
    assert!(put("f0", "two").await.unwrap().is_complete());
    assert!(put("new", "new").await.unwrap().is_complete());
    assert_eq!((trash(&home), fs::read_dir(home.path("host/trash")).unwrap().count()), (BTreeSet::new(), 0));
    fs::write(home.workspace("f0"), "unsent").unwrap();
    set_mode(&home, "f0", 0o751);
    assert!(put("f0", "three").await.unwrap().is_complete());
    assert_eq!(trash(&home), BTreeSet::from(["unsent".to_owned()]));
    assert_eq!(home.tree()["f0"], b"three");
    assert_eq!(fs::metadata(home.workspace("f0")).unwrap().permissions().mode() & 0o777, 0o751);
    // A link is replaced and not followed.
    std::os::unix::fs::symlink("f0", home.workspace("link")).unwrap();
    assert!(put("link", "file").await.unwrap().is_complete());
    assert_eq!((&home.tree()["link"][..], &home.tree()["f0"][..]), (&b"file"[..], &b"three"[..]));
    fs::create_dir(home.workspace("dir")).unwrap();
    assert_eq!(put("dir", "x").await.unwrap_err().kind(), ErrorKind::NotRegular);
    set_mode(&home, "f0", 0o444);
    assert_eq!(put("f0", "x").await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(home.tree()["f0"], b"three");
}

/// Whoever restores elsewhere gets a file that cannot be executed.
#[tokio::test]
async fn pull_is_not_complete_while_a_program_is_none_in_the_store() {
    let (home, source) = (Home::new(), support::directory());
    let artifacts = home.artifacts(&source);
    fs::write(home.workspace("run"), "x").unwrap();
    set_mode(&home, "run", 0o755);
    let _incomplete = artifacts.mirror(&plain()).await.unwrap();
    for report in [artifacts.pull(&plain()).await.unwrap(), artifacts.restore().await.unwrap()] {
        assert!(!report.is_complete() && report.left.total == 1, "{report:?}");
    }

    let (home, source) = (Home::new(), support::memory());
    support::put_object(&source, "run", b"x").await;
    fs::write(home.workspace("run"), "x").unwrap();
    set_mode(&home, "run", 0o755);
    let artifacts = home.artifacts(&source);
    let report = artifacts.pull(&plain()).await.unwrap();
    assert!(!report.is_complete() && report.pending == 1, "{report:?}");
    assert!(artifacts.mirror(&plain()).await.unwrap().is_complete());
    assert!(artifacts.pull(&plain()).await.unwrap().is_complete());
}
