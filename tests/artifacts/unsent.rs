//! What is nowhere but in a session, and so keeps it.

use std::fs;
use std::time::Duration;

use beneath::artifacts::{Artifacts, Conflict, ObjectLimits, SyncOptions, Take, Unsent};
use beneath::{ErrorKind, GuestPath, Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority};

use crate::bucket::{Answer, Bucket};
use crate::support::{self, Home};

fn paths(names: &[&str]) -> Vec<GuestPath> {
    names.iter().map(|name| GuestPath::new(*name).unwrap()).collect()
}

async fn mirror(artifacts: &Artifacts) {
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
}

#[tokio::test]
async fn what_the_store_has_not_is_unsent() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    assert!(artifacts.unsent().unwrap().is_empty());
    for name in ["same", "edited", "mode", "moved", "deleted"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    assert_eq!(artifacts.unsent().unwrap().paths.len(), 5);
    mirror(&artifacts).await;
    assert_eq!(artifacts.unsent().unwrap(), Unsent::default());

    fs::write(home.workspace("edited"), "EDITED").unwrap();
    fs::set_permissions(home.workspace("mode"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::rename(home.workspace("moved"), home.workspace("to")).unwrap();
    fs::remove_file(home.workspace("deleted")).unwrap();
    fs::create_dir(home.workspace("empty")).unwrap();
    std::os::unix::fs::symlink("same", home.workspace("link")).unwrap();
    let unsent = artifacts.unsent().unwrap();
    assert_eq!(unsent.paths, paths(&["edited", "empty", "link", "mode", "to"]));
    assert!(unsent.left.is_empty() && !unsent.is_empty());
    mirror(&artifacts).await;
    assert!(artifacts.unsent().unwrap().is_empty());
}

#[tokio::test]
async fn what_cannot_be_sent_is_unsent_with_its_reason() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source).with_limits(ObjectLimits::default().with_file_bytes(10));
    fs::write(home.workspace("fits"), "1").unwrap();
    fs::write(home.workspace("large"), "more than ten bytes").unwrap();
    let deep = ["x".repeat(250).as_str(); 5].join("/");
    fs::create_dir_all(home.workspace(&deep).parent().unwrap()).unwrap();
    fs::write(home.workspace(&deep), "1").unwrap();
    drop(std::os::unix::net::UnixListener::bind(home.workspace("socket")).unwrap());
    assert!(!artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());

    let unsent = artifacts.unsent().unwrap();
    let left = unsent.refused().map(|(path, _)| path.to_str().unwrap());
    let mut all: Vec<&str> = left.chain(unsent.paths.iter().map(|path| path.as_str().unwrap())).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, ["large", "socket", &deep], "{unsent:?}");
}

#[tokio::test]
async fn mirror_that_failed_leaves_all_unsent() {
    let bucket = Bucket::scripted(|_| Answer::closed(), |_, _| Answer::closed());
    let home = Home::new();
    let retry = beneath::artifacts::Retry::default().with_attempts(1);
    let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
    fs::write(home.workspace("a"), "1").unwrap();
    let _failed = artifacts.mirror(&SyncOptions::default()).await;
    assert_eq!(artifacts.unsent().unwrap().paths, paths(&["a"]));
}

#[tokio::test]
async fn conflict_that_nobody_has_settled_is_unsent() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    fs::write(home.workspace("a"), "base").unwrap();
    mirror(&artifacts).await;
    fs::write(home.workspace("a"), "ours").unwrap();
    support::put_object(&source, "a", b"theirs").await;
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert!(matches!(&report.conflicts[..], [Conflict { .. }]), "{report:?}");
    let unsent = artifacts.unsent().unwrap();
    assert_eq!(unsent.conflicts, paths(&["a"]), "{unsent:?}");
    assert!(artifacts.resolve(&GuestPath::new("a").unwrap(), Take::Ours).await.unwrap());
    assert!(artifacts.unsent().unwrap().conflicts.is_empty());
}

#[tokio::test]
async fn workspace_that_cannot_be_looked_at_is_an_error() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    fs::remove_dir(home.path("workspace")).unwrap();
    assert_eq!(artifacts.unsent().unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn session_with_something_unsent_is_neither_removed_nor_swept() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let sessions = Sessions::new(root, SessionsConfig::default());
    let source = support::memory();
    let of = |id: &SessionId, session: &Session| {
        Artifacts::new(source.clone(), beneath::artifacts::Prefix::session(id), session)
    };
    let ids = ["sent", "unsent"].map(SessionId::new);
    for id in &ids {
        let (session, _) = sessions.create(id).unwrap();
        session.workspace().write_exclusive("report", "done").unwrap();
        mirror(&of(id, &session)).await;
    }
    let late = sessions.open(&ids[1]).unwrap();
    late.workspace().write_exclusive("late", "and more").unwrap();

    let all_sent = |id: &SessionId| Ok(of(id, &sessions.open(id)?).unsent()?.is_empty());
    let swept = sessions.sweep_if(Duration::ZERO, all_sent).unwrap();
    assert_eq!((swept.removed, swept.kept, swept.left.total), (1, 1, 0), "{swept:?}");
    assert!(sessions.remove_if(&ids[1], || all_sent(&ids[1])).unwrap().is_none());
    assert!(late.workspace().exists("late").unwrap());

    mirror(&of(&ids[1], &late)).await;
    assert!(sessions.remove_if(&ids[1], || all_sent(&ids[1])).unwrap().unwrap().is_complete());
    assert_eq!(sessions.list().unwrap(), []);
}
