//! Attempts to lose a version, or to get a false success.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::GuestPath;
use beneath::artifacts::{Deletions, Event, Prefer, Step, SyncOptions, Take};

use crate::bucket::{Act, Answer, Ask, Bucket, page};
use crate::support::{self, Home};

fn path(raw: &str) -> GuestPath {
    GuestPath::new(raw).unwrap()
}

#[tokio::test]
async fn materialise_where_it_cannot_be_is_not_complete() {
    for way in ["directory", "link", "below a link", "below a file"] {
        let (home, source) = (Home::new(), support::memory());
        support::seed(&source, &[("d/a", b"theirs")]).await;
        fs::create_dir(home.workspace("real")).unwrap();
        match way {
            "directory" => fs::create_dir_all(home.workspace("d/a/b")).unwrap(),
            "link" => {
                fs::create_dir(home.workspace("d")).unwrap();
                symlink(home.path("outside/canary"), home.workspace("d/a")).unwrap();
            }
            "below a link" => symlink(home.path("outside"), home.workspace("d")).unwrap(),
            _ => fs::write(home.workspace("d"), "ours").unwrap(),
        }
        let report = home.artifacts(&source).materialise(&path("d/a"), &SyncOptions::default()).await;
        let report = report.unwrap().unwrap();
        assert!(!report.is_complete(), "{way}: {report:?}");
        home.assert_contained();
    }
}

#[tokio::test]
async fn version_that_is_chosen_by_whose_it_is_stays() {
    for (remote, take) in [("a", Take::Ours), ("a", Take::Theirs), ("a/b", Take::Ours), ("a/b", Take::Theirs)]
    {
        let (home, source) = (Home::new(), support::memory());
        support::seed(&source, &[(remote, b"theirs")]).await;
        fs::write(home.workspace("a"), "ours").unwrap();
        let artifacts = home.artifacts(&source);
        let options = SyncOptions::default().with_prefer(Prefer::Remote);
        let report = artifacts.sync(&options).await.unwrap();
        assert!(artifacts.resolve(&path("a"), take).await.unwrap(), "{report:?}");
        let expected = match take {
            Take::Ours => b"ours".as_slice(),
            _ => b"theirs",
        };
        let tree = home.tree();
        assert!(tree.values().any(|content| content == expected), "{remote} {take:?}: {tree:?} {report:?}");
        assert_eq!(tree.len(), 1, "{remote} {take:?}: {tree:?}");
    }
}

#[tokio::test]
async fn choice_that_was_cut_off_is_the_same_when_it_is_made_again() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"theirs")]).await;
    fs::write(home.workspace("a"), "ours").unwrap();
    let artifacts = home.artifacts(&source);
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    let beside = home.workspace(report.conflicts[0].beside.as_ref().unwrap().as_str().unwrap());
    // The host dies after its first rename.
    fs::rename(home.workspace("a"), home.workspace("x")).unwrap();
    fs::rename(&beside, home.workspace("a")).unwrap();
    fs::rename(home.workspace("x"), &beside).unwrap();
    assert!(artifacts.resolve(&path("a"), Take::Theirs).await.unwrap());
    assert_eq!(home.tree()["a"], b"theirs");
    // The sweep takes directories alone, whose times no guest can set.
    let trash = fs::read_dir(home.path("host/trash")).unwrap().map(|entry| entry.unwrap());
    assert!(trash.into_iter().all(|entry| entry.file_type().unwrap().is_dir()));
}

#[tokio::test]
async fn call_on_a_workspace_that_was_replaced_meanwhile_is_not_complete() {
    for when in [Step::Listing, Step::Fetching, Step::Publishing] {
        for call in ["pull", "sync", "mirror"] {
            let (home, source) = (Home::new(), support::memory());
            support::seed(&source, &[("a", b"theirs")]).await;
            let (old, aside) = (home.path("workspace"), home.path("guest/aside"));
            let once = std::sync::Once::new();
            let artifacts = home.artifacts(&source).with_progress(move |event| {
                if matches!(event, Event::Entered(step) if *step == when) {
                    once.call_once(|| {
                        fs::rename(&old, &aside).unwrap();
                        fs::create_dir(&old).unwrap();
                    });
                }
            });
            let options = SyncOptions::default();
            let report = match call {
                "pull" => artifacts.pull(&options).await,
                "sync" => artifacts.sync(&options).await,
                _ => artifacts.mirror(&options).await,
            };
            let complete = report.as_ref().is_ok_and(|report| report.is_complete());
            assert!(
                !complete || home.tree() == support::objects(&source).await,
                "{call} {when:?}: {report:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_cannot_be_mirrored_and_comes_during_a_sync_is_reported() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"theirs")]).await;
    let socket = home.workspace("socket");
    let artifacts = home.artifacts(&source).with_progress(move |event| {
        if matches!(event, Event::Entered(Step::Publishing)) {
            let _ = std::os::unix::net::UnixListener::bind(&socket);
        }
    });
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert!(!report.is_complete(), "{report:?}");
}

/// What a host leaves in its state that dies after an exchange, before it has looked at what came out.
fn die_after_an_exchange(home: &Home) {
    use sha2::Digest as _;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let leaf = |text: &str| format!("f {} {}", text.len(), hex(&sha2::Sha256::digest(text)));
    let slots = home.path("host/state/merge");
    fs::create_dir(&slots).unwrap();
    let text = format!("beneath merge 1\n0 trash {} {} {}\n", hex(b"a"), leaf("base"), leaf("theirs"));
    fs::write(slots.join("journal"), format!("{text}{}\n", hex(&sha2::Sha256::digest(&text)))).unwrap();
    fs::write(slots.join("0"), "unseen").unwrap();
}

#[tokio::test]
async fn version_that_a_recovery_put_beside_is_reported_until_somebody_chooses() {
    for first in ["plan", "materialise", "put", "resolve", "sync"] {
        let (home, source) = (Home::new(), support::memory());
        support::seed(&source, &[("a", b"theirs")]).await;
        let artifacts = home.artifacts(&source);
        assert!(artifacts.sync(&SyncOptions::default()).await.unwrap().is_complete());
        die_after_an_exchange(&home);
        match first {
            "plan" => drop(artifacts.plan(&SyncOptions::default()).await.unwrap()),
            "materialise" => drop(artifacts.materialise(&path("a"), &SyncOptions::default()).await.unwrap()),
            "put" => assert!(artifacts.put(&path("b"), "b").await.unwrap().is_complete()),
            "resolve" => drop(artifacts.resolve(&path("b"), Take::Both).await.unwrap()),
            _ => drop(artifacts.sync(&SyncOptions::default()).await.unwrap()),
        }
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        let tree = home.tree();
        assert!(tree.values().any(|content| content == b"unseen"), "{first}: {tree:?}");
        assert!(!report.is_complete(), "{first}: {tree:?}");
        assert!(artifacts.resolve(&path("a"), Take::Both).await.unwrap(), "{first}: {report:?}");
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert!(report.is_complete(), "{first}: {report:?}");
    }
}

#[tokio::test]
async fn conflict_stays_while_its_second_version_cannot_be_read() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"theirs")]).await;
    fs::write(home.workspace("a"), "ours").unwrap();
    let limits = beneath::artifacts::ObjectLimits::default().with_file_bytes(10);
    let artifacts = home.artifacts(&source).with_limits(limits);
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    let beside = home.workspace(report.conflicts[0].beside.as_ref().unwrap().as_str().unwrap());
    fs::write(&beside, [7; 20]).unwrap();
    assert_eq!(artifacts.sync(&SyncOptions::default()).await.unwrap().left.total, 1);
    fs::write(&beside, "theirs").unwrap();
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
}

/// The guest puts a file in place of the directory, and what arrives in a place beside it.
#[tokio::test]
async fn object_that_has_its_content_at_another_name_only_is_not_there() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("d/a", b"theirs")]).await;
    let top = home.path("workspace");
    let artifacts = home.artifacts(&source).with_progress(move |event| {
        if matches!(event, Event::Entered(Step::Publishing)) {
            use sha2::Digest as _;
            let tag: String =
                sha2::Sha256::digest("theirs")[..4].iter().map(|byte| format!("{byte:02x}")).collect();
            let beside = top.join(format!("d.theirs-{tag}"));
            fs::create_dir(&beside).unwrap();
            fs::write(beside.join("a"), "theirs").unwrap();
            fs::write(top.join("d"), "ours").unwrap();
        }
    });
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert!(!report.is_complete(), "{report:?} {:?}", home.tree());
}

/// A look at a directory takes its time. A file that is moved meanwhile, from where nobody has looked yet to where somebody
/// has, is seen nowhere.
#[tokio::test]
async fn object_of_a_file_that_moves_is_never_deleted_before_it_has_its_other_name() {
    use std::time::Instant;
    let (home, source) = (Home::new(), support::memory());
    for dir in ["a", "b"] {
        fs::create_dir(home.workspace(dir)).unwrap();
        for n in 0..200 {
            fs::write(home.workspace(&format!("{dir}/{n}")), format!("{dir}{n}")).unwrap();
        }
    }
    let (mut here, mut there) = (home.workspace("a/file"), home.workspace("b/file"));
    fs::write(&here, "moves").unwrap();
    let artifacts = home.artifacts(&source);
    let _first = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    let start = Instant::now();
    let _quiet = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    let whole = start.elapsed();
    let mut lost = 0;
    for round in 0..200 {
        // At all moments of a call in turn.
        let delay = whole.mul_f64(f64::from(round) / 200.0);
        let (from, to, start) = (here.clone(), there.clone(), Instant::now());
        let guest = std::thread::spawn(move || {
            while start.elapsed() < delay {
                std::hint::spin_loop();
            }
            fs::rename(from, to).unwrap();
        });
        let _report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        guest.join().unwrap();
        lost += usize::from(!support::objects(&source).await.values().any(|content| content == b"moves"));
        let _report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        std::mem::swap(&mut here, &mut there);
    }
    assert_eq!(lost, 0, "how often the store had no version of the file");
}

#[tokio::test]
async fn version_of_another_host_stays_in_the_store_until_it_has_its_other_name_there() {
    let bucket = Bucket::new(|request, _| match request.ask {
        Ask::Put if request.key.contains("theirs-") => Act::Refuse(Answer::new(403, "")),
        _ => Act::Serve,
    });
    let (home, source) = (Home::new(), bucket.source());
    support::seed(&source, &[("a", b"theirs")]).await;
    fs::write(home.workspace("a"), "ours").unwrap();
    let report = home.artifacts(&source).sync(&SyncOptions::default()).await.unwrap();
    assert!(!report.is_complete(), "{report:?}");
    let objects = support::objects(&source).await;
    assert!(objects.values().any(|content| content == b"theirs"), "{objects:?} {report:?}");
}

#[tokio::test]
async fn listing_that_lacks_an_object_takes_no_name_away() {
    for prefer in [Prefer::Local, Prefer::Remote] {
        let lacks = Arc::new(AtomicBool::new(false));
        let lying = Arc::clone(&lacks);
        let bucket = Bucket::new(move |request, _| match request.ask {
            Ask::List if lying.load(Ordering::SeqCst) => Act::Refuse(page(&[], None)),
            _ => Act::Serve,
        });
        let (home, source) = (Home::new(), bucket.source());
        fs::write(home.workspace("a"), "base").unwrap();
        let artifacts = home.artifacts(&source);
        assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
        fs::write(home.workspace("a"), "edited").unwrap();
        lacks.store(true, Ordering::SeqCst);
        let options = SyncOptions::default().with_prefer(prefer);
        let report = artifacts.sync(&options).await.unwrap();
        assert_eq!(home.tree().keys().collect::<Vec<_>>(), ["a"], "{report:?}");
        assert!(!report.is_complete() && report.conflicts.is_empty(), "{report:?}");
        lacks.store(false, Ordering::SeqCst);
        assert!(artifacts.sync(&options).await.unwrap().is_complete());
        assert_eq!(support::objects(&source).await["a"], b"edited");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_that_this_host_has_put_before_it_died_is_no_conflict() {
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
        fs::write(home.workspace(name), "first").unwrap();
    }
    let dying = home.artifacts(&bucket.source()).with_concurrency(1);
    let mirroring = tokio::spawn(async move { dying.mirror(&SyncOptions::default()).await });
    waiting.await.unwrap();
    mirroring.abort();
    assert!(mirroring.await.is_err());
    for name in ["a", "b"] {
        fs::write(home.workspace(name), "second").unwrap();
    }
    let artifacts = home.artifacts(&bucket.source());
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete(), "{report:?} {:?}", home.tree());
    assert_eq!(support::objects(&bucket.source()).await, home.tree());
}

/// No more than a thousand files are removed by one call, and the others did not count.
#[tokio::test]
async fn most_of_what_the_store_has_lost_is_held_however_much_that_is() {
    let (home, source) = (Home::new(), support::memory());
    let name = |n: usize| format!("f{n:04}");
    for n in 0..2100 {
        fs::write(home.workspace(&name(n)), name(n)).unwrap();
    }
    let artifacts = home.artifacts(&source);
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    for n in 0..1500 {
        support::delete_key(&source, &format!("{}{}", support::prefix(), name(n))).await;
    }
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.removed, report.is_complete(), home.tree().len()), (0, false, 2100));
    // Somebody looks at what is held, and lets it through.
    for _ in 0..4 {
        let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
        let approval = report.held.first().map(|held| Deletions::Approved(held.approval));
        let options = SyncOptions::default().with_deletions(approval.unwrap_or_default());
        let _report = artifacts.pull(&options).await.unwrap();
    }
    assert_eq!(home.tree(), support::objects(&source).await);
}

/// An object that could not be asked for did not count either.
#[tokio::test]
async fn most_of_what_the_store_has_lost_is_held_also_if_some_cannot_be_asked_for() {
    let lost = Arc::new(AtomicBool::new(false));
    let losing = Arc::clone(&lost);
    let bucket = Bucket::new(move |request, _| match request.ask {
        Ask::Head if losing.load(Ordering::SeqCst) && request.key.ends_with('0') => {
            Act::Refuse(Answer::new(403, ""))
        }
        _ => Act::Serve,
    });
    let (home, source) = (Home::new(), bucket.source());
    for n in 0..100 {
        fs::write(home.workspace(&format!("f{n:02}")), format!("{n}")).unwrap();
    }
    let artifacts = home.artifacts(&source);
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    for n in 0..55 {
        support::delete_key(&source, &format!("{}f{n:02}", support::prefix())).await;
    }
    lost.store(true, Ordering::SeqCst);
    let report = artifacts.pull(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.removed, report.is_complete(), home.tree().len()), (0, false, 100), "{report:?}");
}

/// Markers of directories, and what looks like a trial, were in no count: a listing of these was read to its end.
#[tokio::test]
async fn no_kind_of_key_is_listed_beyond_the_limit() {
    for kind in ["content", "no path", "reserved", "twice", "trial"] {
        let list = move |token: Option<&str>| {
            let number: usize = token.map_or(0, |token| token.parse().unwrap());
            let keys: Vec<(String, usize)> = (number * 1000..(number + 1) * 1000)
                .map(|n| match kind {
                    "content" => (format!("{n}/"), 1),
                    "no path" => (format!("..%2F{n}/"), 0),
                    "reserved" => (format!("skills/{n}/"), 0),
                    "twice" => (format!("{}/", n % 7), 0),
                    _ => (format!("%25=~probe-{n:032x}"), 0),
                })
                .collect();
            let next = (number < 30).then(|| (number + 1).to_string());
            page(&keys.iter().map(|(key, size)| (key.as_str(), *size)).collect::<Vec<_>>(), next.as_deref())
        };
        let bucket = Bucket::scripted(list, |_, _| Answer::new(404, ""));
        let home = Home::new();
        let limits = beneath::artifacts::ObjectLimits::default().with_objects(3000);
        let artifacts = home.artifacts(&bucket.source()).with_limits(limits);
        match artifacts.pull(&SyncOptions::default()).await {
            Ok(report) => assert!(!report.is_complete(), "{kind}: {report:?}"),
            Err(error) => assert_eq!(error.kind(), beneath::ErrorKind::TooMany, "{kind}: {error}"),
        }
        assert!(bucket.asked(Ask::List) < 8, "{kind}: {}", bucket.asked(Ask::List));
    }
}

#[tokio::test]
async fn materialise_into_a_workspace_that_was_replaced_meanwhile_is_not_complete() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"theirs")]).await;
    let (old, aside) = (home.path("workspace"), home.path("guest/aside"));
    let once = std::sync::Once::new();
    let artifacts = home.artifacts(&source).with_progress(move |event| {
        if matches!(event, Event::Entered(Step::Fetching)) {
            once.call_once(|| {
                fs::rename(&old, &aside).unwrap();
                fs::create_dir(&old).unwrap();
            });
        }
    });
    let report = artifacts.materialise(&path("a"), &SyncOptions::default()).await.unwrap().unwrap();
    assert!(!report.is_complete() && home.tree().is_empty(), "{report:?}");
}

#[tokio::test]
async fn object_whose_file_was_deleted_and_that_is_not_listed_is_asked_for() {
    let lacks = Arc::new(AtomicBool::new(false));
    let lying = Arc::clone(&lacks);
    let bucket = Bucket::new(move |request, _| match request.ask {
        Ask::List if lying.load(Ordering::SeqCst) => Act::Refuse(page(&[], None)),
        _ => Act::Serve,
    });
    for call in ["pull", "mirror", "sync"] {
        let (home, source) = (Home::new(), bucket.source());
        fs::write(home.workspace("a"), "a").unwrap();
        let artifacts = home.artifacts(&source);
        assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
        fs::remove_file(home.workspace("a")).unwrap();
        lacks.store(true, Ordering::SeqCst);
        let options = SyncOptions::default();
        let report = match call {
            "pull" => artifacts.pull(&options).await,
            "sync" => artifacts.sync(&options).await,
            _ => artifacts.mirror(&options).await,
        };
        let report = report.unwrap();
        assert!(!report.is_complete(), "{call}: {report:?}");
        lacks.store(false, Ordering::SeqCst);
        let report = artifacts.mirror(&options).await.unwrap();
        assert!(report.is_complete() && bucket.keys().is_empty(), "{call}: {report:?} {:?}", bucket.keys());
    }
}

/// A host had put something, did not get the answer, and found it there later. When another host put the same once more, over
/// what had come in between, it was still taken for this host's own.
#[tokio::test]
async fn what_a_pull_has_found_to_be_its_own_is_so_once() {
    let cut = Arc::new(AtomicBool::new(false));
    let cutting = Arc::clone(&cut);
    let bucket = Bucket::new(move |request, _| match request.ask {
        Ask::Put if cutting.load(Ordering::SeqCst) => Act::ServeAndSay(Answer::new(500, "")),
        Ask::Get | Ask::Head if cutting.load(Ordering::SeqCst) => Act::Refuse(Answer::new(500, "")),
        _ => Act::Serve,
    });
    let (home, source) = (Home::new(), bucket.source());
    let artifacts = home.artifacts(&source).with_retry(beneath::artifacts::Retry::default().with_attempts(1));
    fs::write(home.workspace("a"), "first").unwrap();
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    fs::write(home.workspace("a"), "second").unwrap();
    cut.store(true, Ordering::SeqCst);
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(!report.is_complete(), "{report:?}");
    cut.store(false, Ordering::SeqCst);
    assert!(artifacts.pull(&SyncOptions::default()).await.unwrap().is_complete());
    support::put_object(&source, "a", b"third").await;
    assert!(artifacts.pull(&SyncOptions::default()).await.unwrap().is_complete());
    assert_eq!(home.tree()["a"], b"third");
    fs::write(home.workspace("a"), "fourth").unwrap();
    support::put_object(&source, "a", b"second").await;
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!(support::objects(&source).await["a"], b"second", "{report:?}");
    assert!(!report.is_complete(), "{report:?}");
}
