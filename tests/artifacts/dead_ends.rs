//! States that two hosts, or a call that was cut off, can leave, and that the calls after it must end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::artifacts::{Artifacts, Retry, SyncOptions, SyncReport};

use crate::bucket::{Act, Answer, Ask, Bucket};
use crate::support::{self, Home};

async fn mirror(artifacts: &Artifacts) -> SyncReport {
    artifacts.mirror(&SyncOptions::default()).await.unwrap()
}

async fn sync(artifacts: &Artifacts) -> SyncReport {
    artifacts.sync(&SyncOptions::default()).await.unwrap()
}

/// Each mirror compared the object with the version that the base knew, and there was another one with the same content.
#[tokio::test]
async fn object_that_was_put_again_goes_with_its_file() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    for name in ["a", "b", "c"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    assert!(mirror(&artifacts).await.is_complete());
    support::put_object(&source, "a", b"a").await;
    fs::remove_file(home.workspace("a")).unwrap();
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.deleted == 1, "{report:?}");
    assert_eq!(support::objects(&source).await, home.tree());
}

/// Two hosts put their own modes over each other's for ever.
#[tokio::test]
async fn mode_that_another_host_has_set_is_not_put_back() {
    let (one, two, source) = (Home::new(), Home::new(), support::memory());
    let (first, second) = (one.artifacts(&source), two.artifacts(&source));
    fs::write(one.workspace("a"), "content").unwrap();
    fs::set_permissions(one.workspace("a"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(mirror(&first).await.is_complete());
    assert!(second.restore().await.unwrap().is_complete());
    fs::set_permissions(one.workspace("a"), fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(mirror(&first).await.uploaded, 1);
    for artifacts in [&second, &first, &second] {
        let report = sync(artifacts).await;
        assert!(report.uploaded == 0 && report.is_complete(), "{report:?}");
    }
    let three = Home::new();
    assert!(three.artifacts(&source).restore().await.unwrap().is_complete());
    let mode = fs::metadata(three.workspace("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7, 0o4);
    // What is changed here later goes there.
    fs::set_permissions(two.workspace("a"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(mirror(&second).await.uploaded, 1);
}

/// What was put beneath the key of a file made that file unreadable for all, and no mirror of anybody changed that.
#[tokio::test]
async fn what_is_put_beside_a_file_never_makes_a_directory_of_it() {
    for empty in [false, true] {
        let (one, two, source) = (Home::new(), Home::new(), support::memory());
        let (first, second) = (one.artifacts(&source), two.artifacts(&source));
        for name in ["a", "other"] {
            fs::write(one.workspace(name), "base").unwrap();
        }
        assert!(mirror(&first).await.is_complete());
        assert!(second.restore().await.unwrap().is_complete());
        fs::write(two.workspace("a"), "theirs").unwrap();
        assert!(mirror(&second).await.is_complete());
        fs::remove_file(one.workspace("a")).unwrap();
        fs::create_dir_all(one.workspace("a/b")).unwrap();
        if !empty {
            fs::write(one.workspace("a/b/c"), "ours").unwrap();
        }
        let report = mirror(&first).await;
        assert!(!report.is_complete(), "{report:?}");
        let objects = support::objects(&source).await;
        assert!(!objects.keys().any(|key| key.starts_with("a/")), "{objects:?} {report:?}");
        assert!(empty || objects.values().any(|content| content == b"ours"), "{objects:?} {report:?}");
        fs::write(two.workspace("a"), "theirs again").unwrap();
        let report = mirror(&second).await;
        assert!(report.failed.is_empty() && report.left.is_empty(), "{report:?}");
        assert_eq!(support::objects(&source).await["a"], b"theirs again", "{report:?}");
        for artifacts in [&first, &second, &first, &second] {
            let report = sync(artifacts).await;
            assert!(report.failed.is_empty() && report.left.is_empty(), "{report:?}");
        }
        let (tree, mut objects) = (one.tree(), support::objects(&source).await);
        // The marker of an empty directory.
        objects.remove("a/b/%=");
        assert_eq!((&tree, &objects), (&two.tree(), &tree));
        assert!(tree.values().any(|content| content == b"theirs again"), "{tree:?}");
        assert!(empty || tree.values().any(|content| content == b"ours"), "{tree:?}");
    }
}

/// The new objects are put first. The old one could then not be distinguished from what somebody else has put there, and stayed for ever.
#[tokio::test]
async fn file_that_became_a_directory_goes_from_the_store_also_after_a_failure() {
    for call in ["mirror", "sync"] {
        let fails = Arc::new(AtomicBool::new(false));
        let failing = Arc::clone(&fails);
        let bucket = Bucket::new(move |request, _| match request.ask {
            Ask::Delete if failing.load(Ordering::SeqCst) => Act::Refuse(Answer::new(403, "")),
            _ => Act::Serve,
        });
        let (home, source) = (Home::new(), bucket.source());
        let artifacts = home.artifacts(&source).with_retry(Retry::default().with_attempts(1));
        for name in ["a", "other", "third"] {
            fs::write(home.workspace(name), name).unwrap();
        }
        assert!(mirror(&artifacts).await.is_complete());
        fs::remove_file(home.workspace("a")).unwrap();
        fs::create_dir(home.workspace("a")).unwrap();
        fs::write(home.workspace("a/b"), "new").unwrap();
        fails.store(true, Ordering::SeqCst);
        assert!(!mirror(&artifacts).await.is_complete());
        fails.store(false, Ordering::SeqCst);
        let mut report = SyncReport::default();
        for _ in 0..3 {
            report = if call == "sync" { sync(&artifacts).await } else { mirror(&artifacts).await };
        }
        assert!(report.is_complete(), "{call}: {report:?} {:?}", bucket.keys());
        assert_eq!(support::objects(&source).await, home.tree(), "{call}");
    }
}
