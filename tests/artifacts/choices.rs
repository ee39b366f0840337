//! What is planned is what is done, and whatever is reported as a conflict can be settled.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use beneath::GuestPath;
use beneath::artifacts::{SyncOptions, Take};

use crate::support::{self, mirrored};

fn plain() -> SyncOptions {
    SyncOptions::default()
}

fn paths(names: &[&str]) -> Vec<GuestPath> {
    names.iter().map(|name| GuestPath::new(name).unwrap()).collect()
}

/// A mirror has seen it, so the other version is in the store alone.
#[tokio::test]
async fn conflict_that_a_mirror_has_found_is_settled() {
    for (take, kept) in [(Take::Ours, "ours"), (Take::Theirs, "theirs"), (Take::Both, "ours")] {
        for (name, mirrors, syncs) in [("once", 1, 0), ("twice", 2, 0), ("synced", 1, 1)] {
            let (home, source, artifacts) = mirrored(2).await;
            support::put_object(&source, "f0", b"theirs").await;
            fs::write(home.workspace("f0"), "ours").unwrap();
            for _ in 0..mirrors {
                assert_eq!(artifacts.mirror(&plain()).await.unwrap().conflicts.len(), 1, "{name}");
            }
            for _ in 0..syncs {
                assert_eq!(artifacts.sync(&plain()).await.unwrap().conflicts.len(), 1, "{name}");
            }
            let [path, other] = [&paths(&["f0"])[0], &paths(&["f1"])[0]];
            assert!(!artifacts.resolve(other, take).await.unwrap());
            assert!(artifacts.resolve(path, take).await.unwrap(), "{name} {take:?}");
            assert!(!artifacts.resolve(path, take).await.unwrap(), "{name} {take:?}");
            let report = artifacts.sync(&plain()).await.unwrap();
            assert!(report.is_complete(), "{name} {take:?}: {report:?}");
            assert_eq!(home.tree()["f0"], kept.as_bytes(), "{name} {take:?}");
            let expected = if take == Take::Both { 3 } else { 2 };
            assert_eq!(home.tree().len(), expected, "{name} {take:?}: {:?}", home.tree().keys());
            assert_eq!(support::objects(&source).await, home.tree(), "{name} {take:?}");
        }
    }
}

#[tokio::test]
async fn plan_is_what_a_sync_does() {
    let (home, source, artifacts) = mirrored(40).await;
    // Deleted there and changed here, the other way round, changed on both sides and on one each, a mode, and new ones.
    for name in ["f0", "f3"] {
        support::delete_key(&source, &format!("{}{name}", support::prefix())).await;
    }
    for (name, text) in [("f1", "theirs"), ("f2", "theirs"), ("f4", "theirs"), ("their-new", "new")] {
        support::put_object(&source, name, text.as_bytes()).await;
    }
    for name in ["f0", "f2", "f5", "our-new"] {
        fs::write(home.workspace(name), "ours").unwrap();
    }
    for name in ["f1", "f6"] {
        fs::remove_file(home.workspace(name)).unwrap();
    }
    fs::set_permissions(home.workspace("f7"), fs::Permissions::from_mode(0o600)).unwrap();
    let plan = artifacts.plan(&plain()).await.unwrap();
    assert_eq!(plan.take, paths(&["f1", "f2", "f4", "their-new"]));
    assert_eq!(plan.remove, paths(&["f3"]));
    assert_eq!(plan.put, paths(&["f0", "f2", "f5", "f7", "our-new"]));
    assert_eq!(plan.delete, paths(&["f6"]));
    assert_eq!(plan.conflicts, paths(&["f0", "f1", "f2"]));
    assert_eq!((plan.held, plan.left.total), (Vec::new(), 0));
    let report = artifacts.sync(&plain()).await.unwrap();
    // The version beside is sent, too, and is not counted as placed.
    assert_eq!((report.placed, report.removed, report.uploaded, report.deleted), (3, 1, 6, 1), "{report:?}");
    let mut conflicts: Vec<GuestPath> = report.conflicts.iter().map(|one| one.path.clone()).collect();
    conflicts.sort();
    assert_eq!(conflicts, plan.conflicts);
}
