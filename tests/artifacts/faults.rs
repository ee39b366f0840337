//! A store that lies, stops, stalls and disappears.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beneath::ErrorKind;
use beneath::artifacts::{Event, ObjectLimits, Retry, SyncOptions};

use crate::bucket::{Act, Answer, Ask, Bucket, page};
use crate::support::{Home, SCRATCH};

fn quick() -> Retry {
    Retry::default()
        .with_attempts(3)
        .with_pause(Duration::from_millis(5), Duration::from_millis(20))
        .with_silence(Duration::from_secs(2))
}

fn whole(body: &str) -> Answer {
    Answer::new(200, body)
}

#[tokio::test]
async fn unreadable_listing_fails_the_restore_and_touches_nothing() {
    let cases: [(&str, Answer, ErrorKind); 8] = [
        ("not XML", whole("oops"), ErrorKind::Io),
        ("cut short", whole("<ListBucketResult><Contents><Key>sess"), ErrorKind::Io),
        (
            "no token",
            whole("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"),
            ErrorKind::Io,
        ),
        ("server error", Answer::new(500, ""), ErrorKind::Io),
        ("clock skew", Answer::new(403, "<Code>RequestTimeTooSkewed</Code>"), ErrorKind::Denied),
        ("no bucket", Answer::new(404, ""), ErrorKind::NotFound),
        ("closed", Answer::closed(), ErrorKind::Io),
        ("half", Answer::cut(5000, "<ListBucketResult>"), ErrorKind::Io),
    ];
    for (name, answer, kind) in cases {
        let bucket = Bucket::scripted(move |_| answer.clone(), |_, _| Answer::closed());
        let home = Home::new();
        let error = home.artifacts(&bucket.source()).restore().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(home.tree().is_empty());
        home.assert_clean();
    }
}

#[tokio::test]
async fn listing_that_does_not_end_is_given_up() {
    let count = Arc::new(AtomicUsize::new(0));
    let fresh = Arc::clone(&count);
    let buckets = [
        ("same token", Bucket::scripted(|_| page(&[("a", 1)], Some("t")), |_, _| Answer::closed())),
        (
            "empty pages",
            Bucket::scripted(
                move |_| page(&[], Some(&format!("t{}", fresh.fetch_add(1, Ordering::SeqCst)))),
                |_, _| Answer::closed(),
            ),
        ),
        (
            "new keys for ever",
            Bucket::scripted(
                move |_| {
                    let n = count.fetch_add(1, Ordering::SeqCst);
                    page(&[(&format!("k{n}"), 1)], Some(&format!("t{n}")))
                },
                |_, _| Answer::closed(),
            ),
        ),
    ];
    // The same object, which is none of a file, behind tokens that are always new.
    let other = |name: &'static str, key: String, size: usize| {
        let count = AtomicUsize::new(0);
        let list = move |_: Option<&str>| {
            let token = format!("t{}", count.fetch_add(1, Ordering::SeqCst));
            page(&[(key.as_str(), size); 10], Some(&token))
        };
        (name, Bucket::scripted(list, |_, _| Answer::closed()))
    };
    let others = [
        other("the session itself for ever", String::new(), 0),
        other("a directory for ever", "d/".to_owned(), 0),
        other("a directory with content for ever", "d/".to_owned(), 1),
        other("no directory for ever", "../".to_owned(), 0),
        other("scratch objects for ever", format!("{SCRATCH}{}", "0a".repeat(16)), 1),
    ];
    for (name, bucket) in buckets.into_iter().chain(others) {
        let home = Home::new();
        let limits = ObjectLimits::default().with_objects(100);
        let artifacts = home.artifacts(&bucket.source()).with_limits(limits).with_retry(quick());
        let restored = tokio::time::timeout(Duration::from_secs(20), artifacts.restore()).await;
        let error = match restored.unwrap_or_else(|_| panic!("{name}: it is read without end")) {
            Err(error) => error,
            // What was listed up to there is tried, and nothing is taken for absent.
            Ok(report) => {
                let mut errors = report.refused().map(|(_, error)| error.clone());
                errors
                    .find(|error| error.kind() == ErrorKind::TooMany)
                    .unwrap_or_else(|| panic!("{name}: {report:?}"))
            }
        };
        assert_eq!(error.kind(), ErrorKind::TooMany, "{name}: {error}");
    }
}

#[tokio::test]
async fn passing_faults_are_retried_and_reported() {
    let faults: [(&str, Answer); 5] = [
        ("server error", Answer::new(500, "")),
        ("too many requests", Answer::new(429, "")),
        ("cut short", Answer::cut(5, "he")),
        ("closed", Answer::closed()),
        ("stalled", Answer::cut(5, "he").then_silence()),
    ];
    for (name, fault) in faults {
        let bucket = Bucket::scripted(
            |_| page(&[("a", 5)], None),
            move |_, count| if count < 2 { fault.clone() } else { whole("hello") },
        );
        let home = Home::new();
        let retried = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&retried);
        let artifacts = home.artifacts(&bucket.source()).with_retry(quick()).with_progress(move |event| {
            if let Event::Retried { attempt, .. } = event {
                seen.lock().unwrap().push(*attempt);
            }
        });
        let report = artifacts.restore().await.unwrap();
        assert!(report.is_complete(), "{name}: {report:?}");
        assert_eq!(*retried.lock().unwrap(), [1, 2], "{name}");
        assert_eq!(home.tree()["a"], b"hello", "{name}");
        home.assert_clean();
    }
}

#[tokio::test]
async fn lasting_fault_of_one_object_costs_one_object_until_it_passes() {
    for size in [5, 100_000] {
        let broken = Arc::new(AtomicBool::new(true));
        let state = Arc::clone(&broken);
        let body = "x".repeat(size);
        let bucket = Bucket::scripted(
            move |_| page(&[("bad", size), ("good", 5)], None),
            move |key, _| match key {
                "bad" if state.load(Ordering::SeqCst) => Answer::cut(size, &body[..size / 2]),
                "bad" => whole(&body),
                _ => whole("hello"),
            },
        );
        let home = Home::new();
        let artifacts = home.artifacts(&bucket.source()).with_retry(quick());
        let report = artifacts.restore().await.unwrap();
        assert_eq!((report.placed, report.failed.total), (1, 1), "{report:?}");
        assert!(!report.is_complete() && home.tree()["good"] == b"hello" && home.tree().len() == 1);

        broken.store(false, Ordering::SeqCst);
        let before = bucket.asked(Ask::Get);
        let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
        assert!(report.is_complete() && report.placed == 1, "{report:?}");
        assert_eq!(bucket.asked(Ask::Get) - before, 1, "what had arrived is not fetched again");
        home.assert_clean();
    }
}

#[tokio::test]
async fn lies_about_sizes_never_pass_the_limits() {
    let cases: [(&str, Answer); 3] = [
        ("long body", Answer::new(200, vec![b'x'; 100_000])),
        ("endless body", Answer::new(200, "").then_bytes_for_ever()),
        ("announces a lot", Answer::cut(1 << 40, "x")),
    ];
    for (name, lie) in cases {
        let bucket = Bucket::scripted(
            |_| page(&[("honest", 5), ("liar", 5)], None),
            move |key, _| if key == "liar" { lie.clone() } else { whole("hello") },
        );
        let home = Home::new();
        let limits = ObjectLimits::default().with_file_bytes(90_000);
        let artifacts = home.artifacts(&bucket.source()).with_retry(quick()).with_limits(limits);
        let report = artifacts.restore().await.unwrap();
        let kinds: Vec<_> = report.refused().map(|(_, error)| error.kind()).collect();
        assert_eq!((report.placed, kinds), (1, vec![ErrorKind::TooLarge]), "{name}: {report:?}");
        assert_eq!(home.tree().len(), 1, "{name}");
        home.assert_clean();
    }
}

#[tokio::test]
async fn object_that_is_gone_is_refused_and_the_rest_comes() {
    let bucket = Bucket::scripted(
        |_| page(&[("gone", 5), ("here", 5)], None),
        |key, _| if key == "gone" { Answer::new(404, "") } else { whole("hello") },
    );
    let home = Home::new();
    let report = home.artifacts(&bucket.source()).restore().await.unwrap();
    assert_eq!((report.placed, report.left.total), (1, 1), "{report:?}");
    assert!(!report.is_complete(), "A14: it was complete");
    home.assert_clean();
}

#[tokio::test]
async fn store_that_disappears_half_way_is_noticed_in_bounded_time() {
    let names: Vec<String> = (0..2000).map(|n| format!("f{n:04}")).collect();
    let alive = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&alive);
    let bucket = Bucket::scripted(
        move |_| page(&names.iter().map(|name| (name.as_str(), 5)).collect::<Vec<_>>(), None),
        move |_, count| {
            if count < 100 || !state.load(Ordering::SeqCst) { whole("hello") } else { Answer::closed() }
        },
    );
    let home = Home::new();
    let artifacts = home.artifacts(&bucket.source()).with_retry(quick());
    let start = Instant::now();
    let report = artifacts.restore().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(report.placed + report.failed.total, 2000, "{}", report.placed);
    assert!(!report.is_complete() && report.placed >= 60);
    alive.store(false, Ordering::SeqCst);
    // With time enough for a busy machine.
    let report = home.artifacts(&bucket.source()).pull(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete() && home.tree().len() == 2000, "{}", report.placed);
    home.assert_clean();
}

/// Each file had all its attempts.
#[tokio::test]
async fn store_that_disappears_during_a_mirror_is_noticed_in_bounded_time() {
    let gone = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&gone);
    let bucket = Bucket::new(move |request, count| match request.ask {
        Ask::List => Act::Serve,
        Ask::Put if count < 20 => Act::Serve,
        _ if state.load(Ordering::SeqCst) => Act::Refuse(Answer::closed().then_silence()),
        _ => Act::Serve,
    });
    let home = Home::new();
    for n in 0..600 {
        std::fs::write(home.workspace(&format!("f{n:03}")), "hello").unwrap();
    }
    gone.store(true, Ordering::SeqCst);
    let retry = quick().with_attempts(2).with_silence(Duration::from_millis(300));
    let start = Instant::now();
    let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!((report.uploaded, report.uploaded + report.failed.total), (20, 600));
    gone.store(false, Ordering::SeqCst);
    let report = home.artifacts(&bucket.source()).mirror(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete() && report.uploaded == 580, "{report:?}");
}

#[tokio::test]
async fn workspace_removed_during_restore_is_a_typed_outcome() {
    let home = Home::new();
    let workspace = home.path("workspace");
    let bucket = Bucket::scripted(
        |_| page(&[("a", 5), ("d/b", 5)], None),
        move |_, _| {
            let _ = std::fs::remove_dir(&workspace);
            whole("hello")
        },
    );
    let report = home.artifacts(&bucket.source()).restore().await.unwrap();
    // Each object, and the workspace itself.
    assert_eq!((report.placed, report.failed.total, report.is_complete()), (0, 3, false), "{report:?}");
    home.assert_contained();
}
