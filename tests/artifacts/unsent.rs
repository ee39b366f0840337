//! What is nowhere but in a session, and so keeps it.

use std::fs;
use std::time::Duration;

use beneath::artifacts::{Artifacts, Hashing, ObjectLimits, Prefix, Retry, SyncOptions, Unsent};
use beneath::{ErrorKind, GuestPath, Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority};

use crate::bucket::{Act, Answer, Ask, Bucket};
use crate::support::{self, Home, mirrored};

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
    assert!(artifacts.unsent(Hashing::Never).unwrap().is_complete());
    for name in ["same", "edited", "mode", "moved", "deleted"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    assert_eq!(artifacts.unsent(Hashing::Never).unwrap().paths.len(), 5);
    mirror(&artifacts).await;
    assert_eq!(artifacts.unsent(Hashing::Never).unwrap(), Unsent::default());

    fs::write(home.workspace("edited"), "EDITED").unwrap();
    fs::set_permissions(home.workspace("mode"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::rename(home.workspace("moved"), home.workspace("to")).unwrap();
    fs::remove_file(home.workspace("deleted")).unwrap();
    fs::create_dir(home.workspace("empty")).unwrap();
    std::os::unix::fs::symlink("same", home.workspace("link")).unwrap();
    let unsent = artifacts.unsent(Hashing::Never).unwrap();
    assert_eq!(unsent.paths, paths(&["edited", "empty", "link", "mode", "to"]));
    assert!(unsent.left.is_empty() && !unsent.is_complete());
    mirror(&artifacts).await;
    assert!(artifacts.unsent(Hashing::Never).unwrap().is_complete());
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

    let unsent = artifacts.unsent(Hashing::Never).unwrap();
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
    let retry = Retry::default().with_attempts(1);
    let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
    fs::write(home.workspace("a"), "1").unwrap();
    let _failed = artifacts.mirror(&SyncOptions::default()).await;
    assert_eq!(artifacts.unsent(Hashing::Never).unwrap().paths, paths(&["a"]));
}

#[tokio::test]
async fn conflict_of_which_both_versions_are_in_the_store_is_sent() {
    let (home, source, artifacts) = mirrored(2).await;
    fs::write(home.workspace("f0"), "ours").unwrap();
    support::put_object(&source, "f0", b"theirs").await;
    for _ in 0..2 {
        let _conflict = artifacts.sync(&SyncOptions::default()).await.unwrap();
    }
    assert_eq!(support::objects(&source).await, home.tree());
    assert!(artifacts.unsent(Hashing::Never).unwrap().is_complete());
}

/// The guard has kept the only copies, and the end of the session took them.
#[tokio::test]
async fn what_the_store_was_seen_to_have_lost_is_unsent() {
    let all: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
    for loss in ["overwritten", "emptied", "one"] {
        let (_home, source, artifacts) = mirrored(20).await;
        for name in &all {
            match loss {
                "overwritten" => support::put_object(&source, name, b"encrypted").await,
                "one" if name != "f3" => {}
                _ => support::delete_key(&source, &format!("{}{name}", support::prefix())).await,
            }
        }
        let options = SyncOptions::default();
        let report = match loss {
            "overwritten" => artifacts.pull(&options).await.unwrap(),
            "emptied" => artifacts.sync(&options).await.unwrap(),
            _ => artifacts.mirror(&options).await.unwrap(),
        };
        assert!(!report.is_complete(), "{loss}: {report:?}");
        let lost = if loss == "one" { 1 } else { 20 };
        assert_eq!(artifacts.unsent(Hashing::Never).unwrap().paths.len(), lost, "{loss}");
        // Another call that sees the same says the same, and one that puts it right ends it.
        let _report = artifacts.mirror(&options).await.unwrap();
        assert_eq!(artifacts.unsent(Hashing::Never).unwrap().paths.len(), lost, "{loss}");
        for name in &all {
            support::put_object(&source, name, &name.as_bytes()[1..]).await;
        }
        assert!(artifacts.sync(&options).await.unwrap().is_complete(), "{loss}");
        assert!(artifacts.unsent(Hashing::Never).unwrap().is_complete(), "{loss}");
    }
}

/// The answer to the last change was lost, and the guest has made it undone.
#[tokio::test]
async fn what_may_have_come_through_is_in_doubt() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    for last in [Ask::Put, Ask::Delete] {
        let fails = Arc::new(AtomicBool::new(false));
        let failing = Arc::clone(&fails);
        let bucket = Bucket::new(move |request, _| match (failing.load(Ordering::SeqCst), request.ask) {
            (true, ask) if ask == last => Act::ServeAndSay(Answer::closed()),
            (true, Ask::Head | Ask::Get) => Act::Refuse(Answer::closed()),
            _ => Act::Serve,
        });
        let retry = Retry::default().with_attempts(1).with_silence(Duration::from_millis(500));
        let home = Home::new();
        let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
        for name in ["a", "b", "c"] {
            fs::write(home.workspace(name), name).unwrap();
        }
        mirror(&artifacts).await;
        fails.store(true, Ordering::SeqCst);
        match last {
            Ask::Put => fs::write(home.workspace("a"), "broken").unwrap(),
            _ => fs::remove_file(home.workspace("a")).unwrap(),
        }
        let _report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        assert_ne!(bucket.object("a").as_deref(), Some(&b"a"[..]), "{last:?}");
        fs::write(home.workspace("a"), "a").unwrap();
        assert_eq!(artifacts.unsent(Hashing::Never).unwrap().paths, paths(&["a"]), "{last:?}");
        // Another store knows nothing of that.
        mirror(&home.artifacts(&support::memory())).await;
        assert_eq!(artifacts.unsent(Hashing::Never).unwrap().paths, paths(&["a"]), "{last:?}");
        fails.store(false, Ordering::SeqCst);
        mirror(&artifacts).await;
        assert!(artifacts.unsent(Hashing::Never).unwrap().is_complete(), "{last:?}");
    }
}

#[tokio::test]
async fn bits_that_the_store_has_not_are_unsent() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, source) = (Home::new(), support::directory());
    let artifacts = home.artifacts(&source);
    fs::write(home.workspace("tool"), "x").unwrap();
    fs::set_permissions(home.workspace("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    assert_eq!(artifacts.unsent(Hashing::Never).unwrap().left.total, 1);

    let (home, _source, artifacts) = mirrored(2).await;
    fs::set_permissions(home.workspace("f0"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(artifacts.unsent(Hashing::Never).unwrap().paths, paths(&["f0"]));
    mirror(&artifacts).await;
    assert!(artifacts.unsent(Hashing::Never).unwrap().is_complete());
}

#[tokio::test]
async fn another_workspace_is_not_taken_for_one_that_was_sent() {
    let (home, _source, artifacts) = mirrored(2).await;
    fs::write(home.workspace("late"), "unsent").unwrap();
    fs::rename(home.path("workspace"), home.path("guest/old")).unwrap();
    fs::create_dir(home.path("workspace")).unwrap();
    let error = artifacts.unsent(Hashing::Never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let _report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(artifacts.unsent(Hashing::Never).unwrap().is_complete());
}

#[tokio::test]
async fn workspace_that_cannot_be_looked_at_is_an_error() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    fs::remove_dir(home.path("workspace")).unwrap();
    assert_eq!(artifacts.unsent(Hashing::Never).unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn session_with_something_unsent_is_neither_removed_nor_swept() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let sessions = Sessions::new(root, SessionsConfig::default());
    let source = support::memory();
    let of = |id: &SessionId, session: &Session| Artifacts::new(source.clone(), Prefix::session(id), session);
    let ids = ["sent", "unsent"].map(SessionId::new);
    for id in &ids {
        let (session, _) = sessions.create(id).unwrap();
        session.workspace().write_exclusive("report", "done").unwrap();
        mirror(&of(id, &session)).await;
    }
    let late = sessions.open(&ids[1]).unwrap();
    late.workspace().write_exclusive("late", "and more").unwrap();

    let all_sent = |id: &SessionId| Ok(of(id, &sessions.open(id)?).unsent(Hashing::Never)?.is_complete());
    let swept = sessions.sweep_if(Duration::ZERO, all_sent).unwrap();
    assert_eq!((swept.removed, swept.kept, swept.left.total), (1, 1, 0), "{swept:?}");
    assert!(sessions.remove_if(&ids[1], || all_sent(&ids[1])).unwrap().is_none());
    assert!(late.workspace().exists("late").unwrap());

    mirror(&of(&ids[1], &late)).await;
    assert!(sessions.remove_if(&ids[1], || all_sent(&ids[1])).unwrap().unwrap().is_complete());
    assert_eq!(sessions.list().unwrap(), []);
}
