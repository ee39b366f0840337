//! Bundles: install, upgrade, interruption, removal.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use beneath::artifacts::{Bundle, Bundles, Change, Event, Manifest, ObjectLimits, Prefix, Retry, Source};
use beneath::{ErrorKind, Root, SafeName, SafePath, ambient_authority};

use crate::bucket::{Act, Answer, Ask, Bucket, Request};
use crate::support::{self, Home};

pub(crate) fn bundles_at(home: &std::path::Path, source: &Source) -> Bundles {
    let places = support::places_at(home);
    Bundles::new(source.clone(), Prefix::at(&SafePath::new("skills").unwrap()), places)
        .unwrap()
        .with_grace(Duration::ZERO)
}

fn bundles(home: &Home, source: &Source) -> Bundles {
    bundles_at(&home.path(""), source)
}

pub(crate) fn name() -> SafeName {
    SafeName::new("pdf tools").unwrap()
}

/// Uploads a version with its manifest.
pub(crate) async fn publish(source: &Source, version: &str, files: &[(&str, &[u8])]) {
    let scratch = tempfile::tempdir().unwrap();
    let root = Root::open_ambient(scratch.path(), ambient_authority()).unwrap();
    for (path, content) in files {
        if let Some((parent, _)) = path.rsplit_once('/') {
            root.ensure_dir(parent).unwrap();
        }
        root.write_exclusive(path, content).unwrap();
        put(source, &format!("skills/pdf tools/{version}/{path}"), content).await;
    }
    let manifest = Manifest::of(&root).unwrap().to_text();
    put(source, &format!("skills/pdf tools/{version}.sha256"), manifest.as_bytes()).await;
}

async fn put(source: &Source, key: &str, content: &[u8]) {
    support::put_key(source, key, content).await;
}

pub(crate) async fn version(bundles: &Bundles, version: &str) -> Bundle {
    bundles.bundle(&name(), &SafeName::new(version).unwrap()).await.unwrap()
}

#[tokio::test]
async fn install_upgrade_and_remove_on_every_store() {
    for (store, source) in support::every_store().await {
        publish(&source, "1", &[("SKILL.md", b"one"), ("old/only.txt", b"x")]).await;
        publish(&source, "2", &[("SKILL.md", b"two"), ("lib/big.bin", &vec![5; 200_000])]).await;
        let home = Home::new();
        let bundles = bundles(&home, &source);
        let (one, two) = (version(&bundles, "1").await, version(&bundles, "2").await);

        assert_eq!(bundles.install_if_changed(&one).await.unwrap().change, Change::New, "{store}");
        assert_eq!(bundles.install_if_changed(&one).await.unwrap().change, Change::Unchanged, "{store}");
        assert_eq!(bundles.installed(&name()).await.unwrap().as_deref(), Some("1"), "{store}");
        let replaced = Change::Replaced { version: Some("1".into()) };
        assert_eq!(bundles.install_if_changed(&two).await.unwrap().change, replaced, "{store}");
        let tree = home.tree();
        assert_eq!(
            tree.keys().collect::<Vec<_>>(),
            ["pdf tools/SKILL.md", "pdf tools/lib/big.bin"],
            "{store}"
        );
        assert_eq!(tree["pdf tools/SKILL.md"], b"two", "{store}");
        home.assert_clean();

        assert!(bundles.remove(&name()).await.unwrap());
        assert!(!bundles.remove(&name()).await.unwrap());
        assert!(home.tree().is_empty());
        assert_eq!(bundles.installed(&name()).await.unwrap(), None);
        home.assert_clean();
    }
}

#[tokio::test]
async fn what_a_guest_has_changed_is_installed_again() {
    let (home, source) = (Home::new(), support::memory());
    publish(&source, "1", &[("SKILL.md", b"one"), ("a/b", b"x")]).await;
    let bundles = bundles(&home, &source);
    let one = version(&bundles, "1").await;
    assert!(bundles.install(&one).await.unwrap().is_complete());
    let tamperings: [&dyn Fn(); 6] = [
        &|| fs::write(home.workspace("pdf tools/SKILL.md"), "bad").unwrap(),
        &|| fs::write(home.workspace("pdf tools/extra.sh"), "bad").unwrap(),
        &|| fs::remove_file(home.workspace("pdf tools/a/b")).unwrap(),
        &|| symlink(home.path("outside/canary"), home.workspace("pdf tools/link")).unwrap(),
        &|| {
            fs::remove_dir_all(home.workspace("pdf tools")).unwrap();
            symlink(home.path("outside"), home.workspace("pdf tools")).unwrap();
        },
        &|| {
            fs::remove_dir_all(home.workspace("pdf tools")).unwrap();
            fs::write(home.workspace("pdf tools"), "a file").unwrap();
        },
    ];
    for (index, tamper) in tamperings.iter().enumerate() {
        tamper();
        let done = bundles.install_if_changed(&one).await.unwrap();
        assert!(matches!(done.change, Change::Replaced { .. }), "{index}: {done:?}");
        assert_eq!(home.tree().len(), 2, "{index}");
        home.assert_clean();
    }
    fs::remove_dir_all(home.workspace("pdf tools")).unwrap();
    symlink(home.path("outside"), home.workspace("pdf tools")).unwrap();
    assert!(bundles.remove(&name()).await.unwrap());
    home.assert_clean();
}

#[tokio::test]
async fn sparse_file_in_place_of_a_bundles_is_replaced_unread() {
    let (home, source) = (Home::new(), support::memory());
    publish(&source, "1", &[("SKILL.md", b"one")]).await;
    let limits = ObjectLimits::default().with_file_bytes(1 << 20);
    let bundles = bundles(&home, &source).with_limits(limits);
    let one = version(&bundles, "1").await;
    assert!(bundles.install(&one).await.unwrap().is_complete());
    let sparse = fs::File::options().write(true).open(home.workspace("pdf tools/SKILL.md")).unwrap();
    // Reading it takes hours.
    sparse.set_len(1 << 42).unwrap();
    let done = bundles.install_if_changed(&one).await.unwrap();
    assert!(matches!(done.change, Change::Replaced { .. }), "{done:?}");
    assert_eq!(home.tree()["pdf tools/SKILL.md"], b"one");
    home.assert_clean();
}

#[tokio::test]
async fn bundle_with_more_bytes_than_the_limit_in_all_is_not_taken_for_unchanged() {
    let (home, source) = (Home::new(), support::memory());
    publish(&source, "1", &[("a", b"one"), ("b", b"two")]).await;
    let one = version(&bundles(&home, &source), "1").await;
    assert!(bundles(&home, &source).install(&one).await.unwrap().is_complete());
    let limited = bundles(&home, &source).with_limits(ObjectLimits::default().with_bytes(5));
    assert_eq!(limited.install_if_changed(&one).await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(home.tree().len(), 2);
}

#[tokio::test]
async fn bundle_that_a_guest_has_made_too_deep_to_walk_is_installed_again() {
    let (home, source) = (Home::new(), support::memory());
    publish(&source, "1", &[("SKILL.md", b"one")]).await;
    let bundles = bundles(&home, &source);
    let one = version(&bundles, "1").await;
    assert!(bundles.install(&one).await.unwrap().is_complete());
    fs::create_dir_all(home.workspace("pdf tools").join("d/".repeat(70))).unwrap();
    let done = bundles.install_if_changed(&one).await.unwrap();
    assert!(matches!(done.change, Change::Replaced { .. }), "{done:?}");
    assert!(!home.workspace("pdf tools/d").exists());
    home.assert_clean();
}

#[tokio::test]
async fn wrong_hash_or_missing_file_leaves_the_old_version() {
    let (home, source) = (Home::new(), support::memory());
    publish(&source, "1", &[("SKILL.md", b"one")]).await;
    publish(&source, "2", &[("SKILL.md", b"two"), ("lib", b"lib")]).await;
    let bundles = bundles(&home, &source);
    assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
    let two = version(&bundles, "2").await;
    put(&source, "skills/pdf tools/2/lib", b"tampered").await;
    let error = bundles.install(&two).await.unwrap_err();
    assert_eq!(error.to_string(), r#"install "lib": content is not what the manifest says"#);
    support::delete_key(&source, "skills/pdf tools/2/lib").await;
    assert_eq!(bundles.install(&two).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(home.tree()["pdf tools/SKILL.md"], b"one");
    assert_eq!(bundles.installed(&name()).await.unwrap().as_deref(), Some("1"));
    put(&source, "skills/pdf tools/2/lib", b"lib").await;
    assert!(bundles.install_if_changed(&two).await.unwrap().is_complete());
    assert_eq!(home.tree()["pdf tools/SKILL.md"], b"two");
    home.assert_clean();
}

#[test]
fn manifest_refuses_what_it_does_not_understand() {
    let hash = "0".repeat(64);
    for text in [
        format!("{hash} a"),
        format!("{hash}  ../a"),
        format!("{hash}  /a"),
        format!("{hash}  a\n{hash}  a"),
        format!("{}  a", "0".repeat(63)),
        format!("{}  a", "G".repeat(64)),
        "\n".into(),
    ] {
        assert!(Manifest::parse(&text).is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn planned_bytes_of_a_bundle_are_those_of_its_files() {
    for (store, source) in [("memory", support::memory()), ("directory", support::directory())] {
        let home = Home::new();
        publish(&source, "1", &[("SKILL.md", b"one"), ("a/b", b"12345")]).await;
        put(&source, "skills/pdf tools/1/no part of it", b"x").await;
        let planned = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = std::sync::Arc::clone(&planned);
        let bundles = bundles(&home, &source).with_progress(move |event| {
            if let Event::Planned { objects, bytes } = event {
                seen.lock().unwrap().push((*objects, *bytes));
            }
        });
        assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
        assert_eq!(*planned.lock().unwrap(), [(2, 8)], "{store}");
    }
}

#[tokio::test]
async fn manifest_is_read_again_after_a_passing_fault() {
    let bucket = Bucket::new(|request, count| match request.ask == Ask::Get && count == 0 {
        true => Act::Refuse(Answer::cut(100, "cut")),
        false => Act::Serve,
    });
    let source = bucket.source();
    publish(&source, "1", &[("SKILL.md", b"one")]).await;
    let home = Home::new();
    let bundles = bundles(&home, &source);
    assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
    assert_eq!(home.tree()["pdf tools/SKILL.md"], b"one");
}

/// A bucket with one bundle and no manifest of it.
fn without_manifest(judge: impl Fn(&Request, usize) -> Act + Send + Sync + 'static) -> Bucket {
    let bucket = Bucket::new(judge);
    bucket.plant("skills/pdf tools/1/SKILL.md");
    bucket
}

fn retrying(attempts: u32) -> Retry {
    Retry::default()
        .with_attempts(attempts)
        .with_pause(Duration::from_millis(5), Duration::from_millis(5))
        .with_silence(Duration::from_millis(500))
}

#[tokio::test]
async fn listing_of_a_bundle_is_asked_for_as_often_as_the_caller_says() {
    for (fault, faults) in [(Answer::new(503, ""), 5), (Answer::closed().then_silence(), 2)] {
        let bucket = without_manifest(move |request, count| match request.ask {
            Ask::List if count < faults => Act::Refuse(fault.clone()),
            _ => Act::Serve,
        });
        let (home, source) = (Home::new(), bucket.source());
        let one = SafeName::new("1").unwrap();
        let bundles = bundles(&home, &source);
        let once = bundles.clone().with_retry(retrying(1));
        assert_eq!(once.bundle(&name(), &one).await.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(bucket.asked(Ask::List), 1);
        let bundle = bundles.with_retry(retrying(8)).bundle(&name(), &one).await.unwrap();
        assert_eq!(bundle.manifest.paths().count(), 1);
    }
}

#[tokio::test]
async fn listing_of_a_bundle_that_does_not_end_is_given_up() {
    for (key, size) in [("SKILL.md", 7), ("d/", 0)] {
        let count = AtomicUsize::new(0);
        let bucket = Bucket::new(move |request, _| match request.ask {
            Ask::List => {
                let token = format!("t{}", count.fetch_add(1, Ordering::SeqCst));
                let object = format!("<Key>skills/pdf tools/1/{key}</Key><Size>{size}</Size>");
                let object = format!("<Contents>{object}</Contents>").repeat(10);
                let next = format!("<NextContinuationToken>{token}</NextContinuationToken>");
                let page = format!("{object}<IsTruncated>true</IsTruncated>{next}");
                Act::Refuse(Answer::new(200, format!("<ListBucketResult>{page}</ListBucketResult>")))
            }
            _ => Act::Serve,
        });
        let (home, source) = (Home::new(), bucket.source());
        let bundles = bundles(&home, &source).with_limits(ObjectLimits::default().with_objects(100));
        let (name, one) = (name(), SafeName::new("1").unwrap());
        let made = tokio::time::timeout(Duration::from_secs(20), bundles.bundle(&name, &one)).await;
        let error = made.expect("the listing is read without end").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooMany, "{key}: {error}");
    }
}

#[tokio::test]
async fn short_body_without_a_length_makes_no_smaller_bundle() {
    for has_manifest in [true, false] {
        // Of the first body that is read only the beginning comes.
        let bucket = Bucket::new(move |request, count| match (request.ask, count) {
            (Ask::Get, 0) if has_manifest => {
                let line = format!("{}  SKILL.md\n", "0".repeat(64));
                Act::Refuse(Answer::new(200, line).without("Content-Length"))
            }
            // After the manifest, which is not there.
            (Ask::Get, 1) if !has_manifest => Act::Refuse(Answer::new(200, "o").without("Content-Length")),
            _ => Act::Serve,
        });
        let (home, source) = (Home::new(), bucket.source());
        publish(&source, "1", &[("SKILL.md", b"one"), ("lib/a", b"two")]).await;
        if !has_manifest {
            support::delete_key(&source, "skills/pdf tools/1.sha256").await;
        }
        let bundles = bundles(&home, &source).with_retry(retrying(3));
        let found = bundles.bundle(&name(), &SafeName::new("1").unwrap()).await.unwrap();
        let wanted = support::memory();
        publish(&wanted, "1", &[("SKILL.md", b"one"), ("lib/a", b"two")]).await;
        let wanted = version(&bundles_at(&Home::new().path(""), &wanted), "1").await;
        assert_eq!(found, wanted, "{has_manifest}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_share_the_budget_of_their_source() {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let bucket = Bucket::new(move |request, _| {
        if request.ask == Ask::Get {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            now.fetch_sub(1, Ordering::SeqCst);
        }
        Act::Serve
    });
    (0..40).for_each(|file| bucket.plant(&format!("skills/pdf tools/1/f{file}")));
    let source = bucket.source().with_budget(2, 2);
    let calls = (0..4).map(|_| {
        let source = source.clone();
        tokio::spawn(async move {
            let home = Home::new();
            let bundles = bundles(&home, &source);
            bundles.bundle(&name(), &SafeName::new("1").unwrap()).await.unwrap().manifest.paths().count()
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), 40);
    }
    assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} objects on their way");
}
