//! What attack and real use have found, each as a test that failed before.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use beneath::artifacts::{Artifacts, Deletions, Prefix, Side, SyncOptions, Why};
use beneath::{ErrorKind, GuestPath, SessionId};

use crate::bucket::{Answer, Bucket, page};
use crate::support::{self, Home, mirrored};

/// Copies a directory of files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test]
async fn a2_file_renamed_to_any_name_is_moved_and_not_lost() {
    let (home, source, artifacts) = mirrored(3).await;
    fs::rename(home.workspace("f0"), home.workspace("thesis: final?.docx")).unwrap();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.uploaded, report.deleted), (1, 1));
    let other = Home::new();
    assert!(other.artifacts(&source).restore().await.unwrap().is_complete());
    assert_eq!(other.tree(), home.tree());
}

#[tokio::test]
async fn any_name_comes_back_on_another_host_byte_for_byte() {
    use std::os::unix::ffi::OsStrExt as _;
    let (home, source) = (Home::new(), support::memory());
    let names: [&[u8]; 6] = [b"\xff", b"d\xff/a\nb", b"...", b"%=x", b"aux.rs", "e\u{301} ".as_bytes()];
    for (name, size) in names.into_iter().zip([0, 1, 10, 100, 100_000, 1_000_000]) {
        let path = home.path("workspace").join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![7; size]).unwrap();
    }
    assert!(home.artifacts(&source).mirror(&SyncOptions::default()).await.unwrap().is_complete());
    let other = Home::new();
    let report = other.artifacts(&source).restore().await.unwrap();
    assert!(report.is_complete() && report.placed == 6, "{report:?}");
    for name in names {
        let at =
            |home: &Home| fs::read(home.path("workspace").join(std::ffi::OsStr::from_bytes(name))).unwrap();
        assert!(at(&home) == at(&other), "{}", name.escape_ascii());
    }
}

#[tokio::test]
async fn a2_file_renamed_to_where_it_cannot_be_mirrored_is_not_deleted() {
    let deep = ["x".repeat(250).as_str(); 5].join("/");
    for to in [deep.as_str(), "skills/own", "twice"] {
        let (home, source, artifacts) = mirrored(5).await;
        fs::create_dir_all(home.workspace(to).parent().unwrap()).unwrap();
        fs::rename(home.workspace("f0"), home.workspace(to)).unwrap();
        if to == "twice" {
            fs::hard_link(home.workspace(to), home.workspace("thrice")).unwrap();
        }
        let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        assert_eq!((report.deleted, report.held_back()), (0, 1), "{to}: {report:?}");
        assert!(!report.is_complete() && support::objects(&source).await.contains_key("f0"), "{to}");
        // What was deleted for good goes all the same.
        fs::remove_file(home.workspace("f1")).unwrap();
        let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        assert_eq!((report.deleted, report.held_back()), (1, 1), "{to}: {report:?}");
        let approved = SyncOptions::default().with_deletions(Deletions::Approved(report.held[0].approval));
        let report = artifacts.mirror(&approved).await.unwrap();
        assert_eq!((report.deleted, report.held_back()), (1, 0), "{to}: {report:?}");
    }
}

#[tokio::test]
async fn a2_directory_that_cannot_be_read_holds_all_deletions() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, source, artifacts) = mirrored(5).await;
    fs::create_dir(home.workspace("closed")).unwrap();
    fs::rename(home.workspace("f0"), home.workspace("closed/f0")).unwrap();
    fs::set_permissions(home.workspace("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let can_read = fs::read_dir(home.workspace("closed")).is_ok();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    fs::set_permissions(home.workspace("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    if can_read {
        return crate::skip("this user reads every directory");
    }
    assert_eq!((report.deleted, report.held_back()), (0, 1), "{report:?}");
    assert!(support::objects(&source).await.contains_key("f0"));
}

#[tokio::test]
async fn a2_file_that_was_restored_is_known_when_it_is_deleted() {
    let source = support::memory();
    support::seed(&source, &[("a", b"1"), ("b", b"2"), ("c", b"3")]).await;
    let home = Home::new();
    let artifacts = home.artifacts(&source);
    assert!(artifacts.restore().await.unwrap().is_complete());
    // Before anybody has looked at the workspace again.
    fs::remove_file(home.workspace("a")).unwrap();
    fs::hard_link(home.workspace("b"), home.workspace("b2")).unwrap();
    symlink("nowhere", home.workspace("link")).unwrap();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.deleted, report.held_back(), report.left.total), (1, 0, 2), "{report:?}");
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.deleted, report.held_back()), (0, 0), "{report:?}");
    assert!(support::objects(&source).await.contains_key("b"));
}

/// The handle of the old directory saw nothing in it, and all objects were deleted.
#[tokio::test]
async fn a3_workspace_replaced_by_a_copy_of_itself_deletes_nothing() {
    let (home, source, artifacts) = mirrored(10).await;
    let (old, aside) = (home.path("workspace"), home.path("guest/aside"));
    fs::rename(&old, &aside).unwrap();
    copy(&aside, &old);
    fs::remove_file(old.join("f0")).unwrap();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    // It is another directory: nobody has seen that a file was deleted in it.
    assert_eq!((report.deleted, report.uploaded), (0, 0), "{report:?}");
    assert_eq!(support::objects(&source).await.len(), 10);
}

#[tokio::test]
async fn a4_workspace_that_was_lost_is_restored_and_the_store_keeps_all() {
    let (home, source, artifacts) = mirrored(100).await;
    fs::remove_dir_all(home.path("workspace")).unwrap();
    fs::create_dir(home.path("workspace")).unwrap();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.deleted, report.held_back(), report.is_complete()), (0, 0, false), "{report:?}");
    assert_eq!(support::objects(&source).await.len(), 100);
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete() && report.placed == 100, "{report:?}");
    assert_eq!(support::objects(&source).await, home.tree());
}

/// Found by the simulation: what a host had put right before it died counted as seen, also in another directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a4_object_that_was_put_before_a_crash_and_the_loss_of_the_workspace_stays() {
    use crate::bucket::{Act, Ask};
    let (sender, waiting) = tokio::sync::oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let bucket = Bucket::new(move |request, count| {
        if request.ask == Ask::Put && count == 1 {
            sender.lock().unwrap().take().unwrap().send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(5));
        }
        Act::Serve
    });
    let home = Home::new();
    for name in ["a", "b"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    let dying = home.artifacts(&bucket.source()).with_concurrency(1);
    let mirroring = tokio::spawn(async move { dying.mirror(&SyncOptions::default()).await });
    waiting.await.unwrap();
    mirroring.abort();
    assert!(mirroring.await.is_err());
    fs::remove_dir_all(home.path("workspace")).unwrap();
    fs::create_dir(home.path("workspace")).unwrap();
    let report = home.artifacts(&bucket.source()).mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.deleted, report.held_back()), (0, 0), "{report:?}");
    assert!(bucket.object("a").is_some() || bucket.object("b").is_some());
}

/// Versions of two stores that count are the same.
#[tokio::test]
async fn what_was_fetched_from_one_store_is_never_taken_for_an_object_of_another() {
    use beneath::artifacts::{Event, Step};
    let (home, one, two) = (Home::new(), support::memory(), support::memory());
    support::seed(&one, &[("a", b"one")]).await;
    support::seed(&two, &[("a", b"two")]).await;
    let dying = home.artifacts(&one).with_progress(|event| {
        assert!(!matches!(event, Event::Entered(Step::Publishing)), "dies here, as it should");
    });
    dying.restore().await.unwrap_err();
    assert!(home.artifacts(&two).restore().await.unwrap().is_complete());
    assert_eq!(home.tree()["a"], b"two");
}

#[tokio::test]
async fn a5_local_file_in_place_of_a_remote_directory_deletes_nothing() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a/b", b"theirs")]).await;
    fs::write(home.workspace("a"), "ours").unwrap();
    let artifacts = home.artifacts(&source);
    for _ in 0..3 {
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert_eq!(report.deleted, 0, "{report:?}");
        for side in [home.tree(), support::objects(&source).await] {
            assert_eq!(side["a/b"], b"theirs", "the directory has the name: {side:?}");
            assert!(side.values().any(|content| content == b"ours"), "{side:?}");
        }
    }
}

#[tokio::test]
async fn a6_restore_that_was_not_complete_does_not_overwrite_later() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"theirs"), ("b", b"theirs")]).await;
    rustix::fs::mkfifoat(rustix::fs::CWD, home.workspace("a"), rustix::fs::Mode::RUSR).unwrap();
    let artifacts = home.artifacts(&source);
    assert!(!artifacts.restore().await.unwrap().is_complete());
    fs::remove_file(home.workspace("a")).unwrap();
    fs::write(home.workspace("a"), "ours").unwrap();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    assert_eq!(support::objects(&source).await["a"], b"theirs");
}

#[tokio::test]
async fn a8_state_of_another_prefix_or_store_is_no_base() {
    let (home, source, artifacts) = mirrored(3).await;
    let other = Artifacts::new(
        source.clone(),
        Prefix::session(&SessionId::new("other")),
        &support::session_at(&home.path("")),
    );
    assert_eq!(other.mirror(&SyncOptions::default()).await.unwrap().uploaded, 3);
    let elsewhere = support::memory();
    assert_eq!(home.artifacts(&elsewhere).mirror(&SyncOptions::default()).await.unwrap().uploaded, 3);
    assert_eq!(support::objects(&elsewhere).await, home.tree());
    // Each has a base of its own.
    let again = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(again.is_complete() && again.uploaded == 0, "{again:?}");
}

#[tokio::test]
async fn a8_store_in_memory_is_no_other_that_was_at_its_address() {
    let (home, mut known) = (Home::new(), std::collections::BTreeSet::new());
    fs::write(home.workspace("a"), "only copy").unwrap();
    for round in 0..20 {
        let source = support::memory();
        assert!(known.insert(source.backend().identity()), "{round}: it had that name before");
        let report = home.artifacts(&source).sync(&SyncOptions::default()).await.unwrap();
        assert!(report.is_complete() && report.uploaded == 1, "{round}: {report:?}");
    }
    let store = std::sync::Arc::new(object_store::memory::InMemory::new());
    let [one, two] = [(); 2].map(|()| beneath::artifacts::Source::memory(store.clone()).backend().identity());
    assert_eq!(one, two);
}

#[tokio::test]
async fn a9_what_one_host_deletes_and_the_other_edits_is_reported_and_stays() {
    let (one, source, first) = mirrored(3).await;
    let two = Home::new();
    let second = two.artifacts(&source);
    assert!(second.restore().await.unwrap().is_complete());
    fs::remove_file(two.workspace("f0")).unwrap();
    assert_eq!(second.mirror(&SyncOptions::default()).await.unwrap().deleted, 1);
    fs::write(one.workspace("f0"), "edited").unwrap();
    let report = first.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!(report.conflicts[0].why, Why::DeletedThere, "{report:?}");
    assert_eq!(support::objects(&source).await["f0"], b"edited");
    assert!(first.sync(&SyncOptions::default()).await.unwrap().is_complete());
}

#[tokio::test]
async fn a11_write_that_leaves_no_stamp_is_found_by_hashing() {
    use std::os::unix::fs::MetadataExt as _;
    let (home, source, artifacts) = mirrored(2).await;
    std::thread::sleep(std::time::Duration::from_millis(120));
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    // As a mapping does it on some file systems: the base says that the file was so all the time.
    let state = home.path("state");
    let base = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let base = base.into_iter().find(|path| path.to_str().unwrap().contains("base-")).unwrap();
    let text = fs::read_to_string(&base).unwrap();
    let before = fs::metadata(home.workspace("f0")).unwrap();
    fs::write(home.workspace("f0"), "X").unwrap();
    let after = fs::metadata(home.workspace("f0")).unwrap();
    let stamp = |file: &fs::Metadata| {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let (modified, changed) =
            (nanos(file.mtime(), file.mtime_nsec()), nanos(file.ctime(), file.ctime_nsec()));
        format!("{}:{}:{}:{modified}:{changed}", file.dev(), file.ino(), file.len())
    };
    assert!(text.contains(&stamp(&before)), "{text}");
    let body = text.replace(&stamp(&before), &stamp(&after));
    let body = &body[..body.trim_end().rfind('\n').unwrap() + 1];
    let sum: String = sha256(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(&base, format!("{body}{sum}\n")).unwrap();
    assert_eq!(artifacts.mirror(&SyncOptions::default()).await.unwrap().uploaded, 0, "stamps do not show it");
    let options = SyncOptions::default().with_hashing(beneath::artifacts::Hashing::Always);
    assert_eq!(artifacts.mirror(&options).await.unwrap().uploaded, 1);
    assert_eq!(support::objects(&source).await["f0"], b"X");
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

#[tokio::test]
async fn a12_short_body_without_a_length_is_not_taken_for_the_whole() {
    let bucket = Bucket::scripted(
        |_| page(&[("a", 5), ("b", 5)], None),
        |key, _| match key {
            "a" => Answer::new(200, "he").without("Content-Length"),
            _ => Answer::new(200, "hello").without("Content-Length"),
        },
    );
    let home = Home::new();
    let retry = beneath::artifacts::Retry::default().with_attempts(1);
    let report = home.artifacts(&bucket.source()).with_retry(retry).restore().await.unwrap();
    assert_eq!((report.placed, report.failed.total), (1, 1), "{report:?}");
    assert_eq!(home.tree().len(), 1);
}

#[tokio::test]
async fn a13_one_object_that_cannot_be_read_is_one_refusal() {
    for status in [400, 403, 404, 416, 301, 500] {
        let bucket = Bucket::scripted(
            |_| page(&[("bad", 5), ("good", 5)], None),
            move |key, _| match key {
                "bad" => Answer::new(status, ""),
                _ => Answer::new(200, "hello"),
            },
        );
        let home = Home::new();
        let retry = beneath::artifacts::Retry::default().with_attempts(1);
        let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
        let report = artifacts.restore().await.unwrap();
        assert_eq!((report.placed, report.left.total + report.failed.total), (1, 1), "{status}: {report:?}");
        assert!(!report.is_complete(), "{status}");
        assert_eq!(home.tree()["good"], b"hello", "{status}");
    }
}

/// It was the path in the workspace, which is no key.
#[tokio::test]
async fn a25_what_is_refused_after_the_listing_has_its_whole_key() {
    use std::sync::{Arc, Mutex};

    let bucket = Bucket::scripted(
        |_| page(&[("d/denied", 5), ("d/good", 5), ("d/link", 5000)], None),
        |key, _| match key {
            "d/denied" => Answer::new(403, ""),
            "d/link" => Answer::new(200, vec![b'x'; 5000]).with("x-amz-meta-mode", "120777"),
            _ => Answer::new(200, "hello"),
        },
    );
    let (home, told) = (Home::new(), Arc::new(Mutex::new(Vec::new())));
    let refused = Arc::clone(&told);
    let artifacts = home.artifacts(&bucket.source()).with_progress(move |event| {
        if let beneath::artifacts::Event::Refused { raw, .. } = event {
            refused.lock().unwrap().push(String::from_utf8(raw.to_vec()).unwrap());
        }
    });
    let report = artifacts.restore().await.unwrap();
    let wanted = ["sessions/s1/d/denied", "sessions/s1/d/link"];
    // The objects are on their way at the same time.
    let mut refused: Vec<&str> = report.refused().map(|(key, _)| key.to_str().unwrap()).collect();
    refused.sort_unstable();
    assert_eq!(refused, wanted);
    told.lock().unwrap().sort_unstable();
    assert_eq!(*told.lock().unwrap(), wanted);
    assert_eq!((report.placed, report.failed.total), (1, 0), "{report:?}");
}

/// A bucket of 400 objects of which those that are `bad`, by number, are answered with `status`.
fn spoiled(status: u16, bad: impl Fn(usize) -> bool + Send + Sync + 'static) -> Bucket {
    let names: Vec<String> = (0..400).map(|n| format!("f{n:03}")).collect();
    Bucket::scripted(
        move |_| page(&names.iter().map(|name| (name.as_str(), 5)).collect::<Vec<_>>(), None),
        move |key, _| match bad(key.trim_start_matches('f').parse().unwrap()) {
            true => Answer::new(status, ""),
            false => Answer::new(200, "hello"),
        },
    )
}

#[tokio::test]
async fn a13_bad_objects_in_a_row_cost_no_other_wherever_they_are() {
    let few = std::time::Duration::from_millis(1);
    let retry = beneath::artifacts::Retry::default().with_attempts(3).with_pause(few, few);
    for status in [400, 403, 500] {
        for (name, bad) in [
            ("every second", (|n| n % 2 == 0) as fn(usize) -> bool),
            ("the first 80", |n| n < 80),
            ("all but the last", |n| n < 399),
        ] {
            let bucket = spoiled(status, bad);
            let count = (0..400).filter(|n| bad(*n)).count() as u64;
            let home = Home::new();
            let report = home.artifacts(&bucket.source()).with_retry(retry).restore().await.unwrap();
            let wrong = report.left.total + report.failed.total;
            assert_eq!((report.placed, wrong), (400 - count, count), "{status}, {name}");
            let asked = bucket.asked(crate::bucket::Ask::Get);
            assert!(asked < 400 + 3 * 200, "{status}, {name}: {asked} requests");
        }
    }
}

#[tokio::test]
async fn a13_nothing_is_published_if_all_or_nothing_is_asked_for() {
    use beneath::artifacts::Arrivals;
    let options = SyncOptions::default().with_arrivals(Arrivals::AllOrNothing);
    let retry = beneath::artifacts::Retry::default().with_attempts(1);
    let bucket = spoiled(500, |n| n == 7);
    let home = Home::new();
    fs::write(home.workspace("own"), "mine").unwrap();
    let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
    let reports = [
        artifacts.restore_with(&options).await.unwrap(),
        artifacts.pull(&options).await.unwrap(),
        artifacts.sync(&options).await.unwrap(),
    ];
    for report in reports {
        assert_eq!((report.placed, report.withheld, report.failed.total), (0, 399, 1), "{report:?}");
        assert!(!report.is_complete() && report.uploaded == 0);
        assert_eq!(home.tree().len(), 1);
    }
    // What has arrived is not fetched again.
    assert_eq!(bucket.asked(crate::bucket::Ask::Get), 402);
    // What is refused for good does not come next time either, and keeps nothing back.
    let home = Home::new();
    let report = home.artifacts(&spoiled(400, |n| n == 7).source()).restore_with(&options).await.unwrap();
    assert_eq!((report.placed, report.withheld, report.left.total), (399, 0, 1), "{report:?}");
}

#[tokio::test]
async fn a15_key_on_two_pages_is_one_object_if_both_are_equal() {
    let bucket = Bucket::scripted(
        |token| match token {
            None => page(&[("a", 5), ("b", 5)], Some("t")),
            Some(_) => page(&[("b", 5), ("c", 5)], None),
        },
        |_, _| Answer::new(200, "hello"),
    );
    let home = Home::new();
    let report = home.artifacts(&bucket.source()).restore().await.unwrap();
    assert!(report.is_complete() && report.placed == 3, "{report:?}");
}

#[tokio::test]
async fn a17_what_is_mirrored_can_be_restored_whatever_its_depth() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    for depth in [32, 33, 50] {
        let path = vec!["d"; depth].join("/");
        fs::create_dir_all(home.workspace(&path).parent().unwrap()).unwrap();
        fs::write(home.workspace(&path).with_extension("f"), "x").unwrap();
    }
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(!report.is_complete(), "{report:?}");
    let other = Home::new();
    let restored = other.artifacts(&source).restore().await.unwrap();
    assert!(restored.is_complete() && restored.placed == report.uploaded, "{restored:?}");
}

#[tokio::test]
async fn a18_put_respects_the_limits() {
    let (home, source) = (Home::new(), support::memory());
    let limits = beneath::artifacts::ObjectLimits::default().with_file_bytes(4).with_depth(2).with_objects(1);
    let artifacts = home.artifacts(&source).with_limits(limits);
    let path = |raw: &str| GuestPath::new(raw).unwrap();
    assert_eq!(artifacts.put(&path("a"), "12345").await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(artifacts.put(&path("a/b/c"), "1").await.unwrap_err().kind(), ErrorKind::TooMany);
    assert!(artifacts.put(&path("a"), "1").await.unwrap().is_complete());
    let put = artifacts.put(&path("b"), "1").await.unwrap();
    assert_eq!(put.uploaded.unwrap_err().kind(), ErrorKind::TooMany);
    assert_eq!(support::objects(&source).await.len(), 1);
}

/// Empty directories stayed in the store, and a file could never take the place of one.
#[tokio::test]
async fn a24_directory_that_becomes_a_file_does_so_in_the_store() {
    // A `LocalFileSystem` and SeaweedFS keep directories of their own, and remove the empty ones when they like.
    let keeps = |name: &str| ["directory", "seaweedfs"].contains(&name);
    let stores = support::every_store().await.into_iter().filter(|(name, _)| !keeps(name));
    for (name, source) in stores {
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        fs::create_dir_all(home.workspace("a/b")).unwrap();
        fs::write(home.workspace("a/b/c"), "1").unwrap();
        fs::write(home.workspace("other"), "2").unwrap();
        assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete(), "{name}");
        fs::remove_dir_all(home.workspace("a")).unwrap();
        fs::write(home.workspace("a"), "3").unwrap();
        // Deletions come last, so that a directory gives way in the second call.
        let _first = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        assert!(report.is_complete(), "{name}: {report:?}");
        assert_eq!(support::objects(&source).await, home.tree(), "{name}");
    }
}

/// A page of a listing was waited for five times a minute, whatever the caller said.
#[tokio::test]
async fn a27_listing_is_given_up_as_the_caller_says() {
    use std::time::{Duration, Instant};
    let bucket = Bucket::scripted(|_| Answer::closed().then_silence(), |_, _| Answer::closed());
    let retry = beneath::artifacts::Retry::default()
        .with_attempts(2)
        .with_pause(Duration::from_millis(5), Duration::from_millis(5))
        .with_silence(Duration::from_millis(300));
    let (home, start) = (Home::new(), Instant::now());
    let error = home.artifacts(&bucket.source()).with_retry(retry).restore().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// A listing of A, B, A, B … was read 200,001 times.
#[tokio::test]
async fn a31_listing_that_goes_in_circles_is_given_up() {
    use crate::bucket::Ask;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let count = AtomicUsize::new(0);
    let circles = [
        Bucket::scripted(
            |token| match token {
                Some("a") => page(&[("x", 1)], Some("b")),
                _ => page(&[("y", 1)], Some("a")),
            },
            |_, _| Answer::closed(),
        ),
        // The same objects for ever, behind tokens that are always new.
        Bucket::scripted(
            move |_| {
                let objects: Vec<String> = (0..1000).map(|n| format!("f{n}")).collect();
                let objects: Vec<_> = objects.iter().map(|name| (name.as_str(), 1)).collect();
                page(&objects, Some(&format!("t{}", count.fetch_add(1, Ordering::SeqCst))))
            },
            |_, _| Answer::closed(),
        ),
    ];
    for bucket in circles {
        let home = Home::new();
        let error = home.artifacts(&bucket.source()).restore().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooMany, "{error}");
        assert!(bucket.asked(Ask::List) <= 5, "{}", bucket.asked(Ask::List));
    }
}

#[tokio::test]
async fn many_deletions_are_held_until_somebody_approves_exactly_these() {
    let (home, source, artifacts) = mirrored(50).await;
    for n in 0..30 {
        fs::remove_file(home.workspace(&format!("f{n}"))).unwrap();
    }
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.deleted, report.held_back()), (0, 30), "{report:?}");
    let held = &report.held[0];
    assert_eq!(held.side, Side::There);
    let approval: beneath::artifacts::Approval = held.approval.to_string().parse().unwrap();
    let approved = SyncOptions::default().with_deletions(Deletions::Approved(approval));

    // One more, and it is another set.
    fs::remove_file(home.workspace("f30")).unwrap();
    let report = artifacts.mirror(&approved).await.unwrap();
    assert_eq!((report.deleted, report.held_back()), (0, 31), "{report:?}");
    fs::write(home.workspace("f30"), "30").unwrap();
    let report = artifacts.mirror(&approved).await.unwrap();
    assert_eq!((report.deleted, report.held_back()), (30, 0), "{report:?}");
    assert_eq!(support::objects(&source).await, home.tree());
}

#[tokio::test]
async fn store_that_lost_its_objects_removes_nothing_here_unapproved() {
    let (home, source, artifacts) = mirrored(30).await;
    for n in 0..30 {
        support::delete_key(&source, &format!("{}f{n}", support::prefix())).await;
    }
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.removed, report.held_back(), home.tree().len()), (0, 30, 30), "{report:?}");
    assert_eq!(report.held[0].side, Side::Here);
    // A single one goes, and is in the trash.
    for n in 1..30 {
        support::put_object(&source, &format!("f{n}"), format!("{n}").as_bytes()).await;
    }
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete() && report.removed == 1, "{report:?}");
    let kept = walkdir::WalkDir::new(home.path("host/trash")).into_iter().flatten();
    let kept = kept.filter(|entry| entry.file_type().is_file() && fs::read(entry.path()).unwrap() == b"0");
    assert_eq!(kept.count(), 1);
}

#[tokio::test]
async fn listing_that_lacks_an_object_removes_nothing() {
    use crate::bucket::{Act, Ask};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let lacks = Arc::new(AtomicBool::new(false));
    let lying = Arc::clone(&lacks);
    let bucket = Bucket::new(move |request, _| match request.ask {
        Ask::List if lying.load(Ordering::SeqCst) => Act::Refuse(page(&[], None)),
        _ => Act::Serve,
    });
    let home = Home::new();
    fs::write(home.workspace("a"), "1").unwrap();
    let artifacts = home.artifacts(&bucket.source());
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    lacks.store(true, Ordering::SeqCst);
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.removed, report.failed.total, report.is_complete()), (0, 1, false), "{report:?}");
    assert_eq!(home.tree().len(), 1);
}

#[tokio::test]
async fn a16_missing_bucket_is_an_error_in_every_call() {
    for (name, server) in crate::servers::S3 {
        let Some(server) = server() else { continue };
        let source = beneath::artifacts::Source::s3(server.builder("no-such-bucket")).unwrap();
        let home = Home::new();
        fs::write(home.workspace("a"), "x").unwrap();
        let artifacts = home.artifacts(&source);
        let errors = [
            artifacts.restore().await.unwrap_err(),
            artifacts.pull(&SyncOptions::default()).await.unwrap_err(),
            artifacts.mirror(&SyncOptions::default()).await.unwrap_err(),
            artifacts.plan(&SyncOptions::default()).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{name}: {error}");
            let text = error.to_string();
            assert!(
                text.contains("bucket does not exist") && text.contains("NoSuchBucket"),
                "{name}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn a19_empty_listing_removes_not_even_one_file_unapproved() {
    let (home, source, artifacts) = mirrored(1).await;
    support::delete_key(&source, &format!("{}f0", support::prefix())).await;
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.listed, report.removed, report.held_back()), (0, 0, 1), "{report:?}");
    assert!(!report.is_complete() && home.tree().len() == 1);
    let plan = artifacts.plan(&SyncOptions::default()).await.unwrap();
    assert_eq!((plan.remove.len(), plan.held.len()), (0, 1), "{plan:?}");
    assert!(!artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    // What is new here still goes there.
    fs::write(home.workspace("new"), "x").unwrap();
    assert_eq!(artifacts.mirror(&SyncOptions::default()).await.unwrap().uploaded, 1);
    support::delete_key(&source, &format!("{}new", support::prefix())).await;
    fs::remove_file(home.workspace("new")).unwrap();
    let held = artifacts.pull(&SyncOptions::default()).await.unwrap().held.remove(0);
    let approved = SyncOptions::default().with_deletions(Deletions::Approved(held.approval));
    let report = artifacts.pull(&approved).await.unwrap();
    assert!(report.is_complete() && report.removed == 1 && home.tree().is_empty(), "{report:?}");
}

#[tokio::test]
async fn a19_restore_from_an_empty_prefix_says_that_nothing_is_listed() {
    let (home, source) = (Home::new(), support::memory());
    let report = home.artifacts(&source).restore().await.unwrap();
    assert!(report.listed == 0 && report.is_complete(), "both are empty: {report:?}");
    fs::write(home.workspace("a"), "x").unwrap();
    let report = home.artifacts(&source).restore().await.unwrap();
    assert!(report.listed == 0 && !report.is_complete(), "{report:?}");
}

/// Some servers have real directories, and answer for the key of one as for an object.
#[tokio::test]
async fn answer_about_a_directory_is_not_about_the_file_that_was_there() {
    use crate::bucket::{Act, Answer, Ask};
    let answers = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = answers.clone();
    let bucket = Bucket::new(move |request, _| {
        let about = request.ask == Ask::Head && request.key == "sessions/s1/f0";
        match about && asked.load(std::sync::atomic::Ordering::SeqCst) {
            true => Act::Refuse(Answer::new(200, "").with("ETag", "\"of a directory\"")),
            false => Act::Serve,
        }
    });
    let (one, two) = (Home::new(), Home::new());
    let (first, second) = (one.artifacts(&bucket.source()), two.artifacts(&bucket.source()));
    for name in ["f0", "f1", "f2"] {
        fs::write(one.workspace(name), name).unwrap();
    }
    assert!(first.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    assert!(second.restore().await.unwrap().is_complete());
    fs::remove_file(one.workspace("f0")).unwrap();
    fs::create_dir(one.workspace("f0")).unwrap();
    fs::write(one.workspace("f0/in"), "in").unwrap();
    while !first.mirror(&SyncOptions::default()).await.unwrap().is_complete() {}
    answers.store(true, std::sync::atomic::Ordering::SeqCst);
    let pulled = second.pull(&SyncOptions::default()).await.unwrap();
    assert!(pulled.is_complete(), "{pulled:?}");
    assert_eq!(two.tree(), one.tree());
}

/// One by this crate, where a server keeps no keys that end in a slash, and one by another host or tool.
#[tokio::test]
async fn directory_that_two_objects_say_is_there_goes_with_both() {
    let bucket = Bucket::new(|_, _| crate::bucket::Act::Serve);
    let home = Home::new();
    fs::write(home.workspace("f"), "f").unwrap();
    fs::create_dir_all(home.workspace("t/b")).unwrap();
    let artifacts = home.artifacts(&bucket.source());
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    for key in ["sessions/s1/t/b/", "sessions/s1/t/b/%="] {
        bucket.plant_empty(key);
    }
    fs::remove_dir_all(home.workspace("t")).unwrap();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(bucket.keys(), ["sessions/s1/f"]);
}
