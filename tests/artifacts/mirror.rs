//! Snapshot, diff, mirror, put, materialise.

use std::fs;
use std::os::unix::fs::symlink;

use beneath::artifacts::{
    Artifacts, Diff, Event, Hashing, ObjectLimits, Prefer, Snapshot, SyncOptions, SyncReport, Why,
};
use beneath::{ErrorKind, GuestPath, Root, SafePath, ambient_authority};

use crate::servers;
use crate::support::{self, Home};

fn root(home: &Home) -> Root {
    Root::open_ambient(home.path("workspace"), ambient_authority()).unwrap()
}

fn paths(paths: &[SafePath]) -> Vec<&str> {
    paths.iter().map(SafePath::as_str).collect()
}

fn change(home: &Home, hashing: Hashing, act: impl FnOnce(&Home)) -> Diff {
    let root = root(home);
    let before = Snapshot::take(&root, &[], hashing).unwrap();
    act(home);
    before.diff(&Snapshot::take(&root, &[], hashing).unwrap())
}

/// Files old enough that their stamps show every change.
fn settled(files: &[(&str, &str)]) -> Home {
    let home = Home::new();
    for (path, content) in files {
        fs::write(home.workspace(path), content).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(120));
    home
}

#[test]
fn diff_is_empty_when_nothing_happened() {
    let home = settled(&[("a", "1"), ("b", "2")]);
    assert!(change(&home, Hashing::Never, |_| {}).is_empty());
}

#[test]
fn diff_catches_touch_to_the_past() {
    let home = settled(&[("a", "1")]);
    let diff = change(&home, Hashing::Never, |home| {
        let file = fs::File::options().write(true).open(home.workspace("a")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    });
    assert_eq!(paths(&diff.modified), ["a"]);
}

#[test]
fn diff_catches_same_size_rewrite_within_one_tick() {
    for hashing in [Hashing::Never, Hashing::Always] {
        let home = Home::new();
        for round in 0..200 {
            fs::write(home.workspace("a"), format!("{round:04}-x")).unwrap();
            let diff = change(&home, hashing, |home| {
                fs::write(home.workspace("a"), format!("{round:04}-y")).unwrap();
            });
            assert_eq!(paths(&diff.modified), ["a"], "{hashing:?} {round}");
        }
    }
}

#[test]
fn diff_catches_rename_over() {
    let home = settled(&[("a", "1"), ("b", "2")]);
    let diff = change(&home, Hashing::Never, |home| {
        fs::rename(home.workspace("b"), home.workspace("a")).unwrap();
    });
    assert_eq!((paths(&diff.modified), paths(&diff.deleted)), (vec!["a"], vec!["b"]));
}

#[test]
fn diff_catches_exchange_of_equal_files() {
    let home = settled(&[("a", "1"), ("b", "2")]);
    let diff = change(&home, Hashing::Never, |home| {
        fs::rename(home.workspace("a"), home.workspace("t")).unwrap();
        fs::rename(home.workspace("b"), home.workspace("a")).unwrap();
        fs::rename(home.workspace("t"), home.workspace("b")).unwrap();
    });
    assert_eq!(paths(&diff.modified), ["a", "b"]);
}

#[test]
fn diff_catches_delete_and_new() {
    let home = settled(&[("a", "1")]);
    let diff = change(&home, Hashing::Never, |home| {
        fs::remove_file(home.workspace("a")).unwrap();
        fs::write(home.workspace("n"), "new").unwrap();
    });
    assert_eq!((paths(&diff.new), paths(&diff.deleted)), (vec!["n"], vec!["a"]));
}

#[test]
fn diff_catches_file_that_becomes_a_directory() {
    let home = settled(&[("a", "1")]);
    let diff = change(&home, Hashing::Never, |home| {
        fs::remove_file(home.workspace("a")).unwrap();
        fs::create_dir(home.workspace("a")).unwrap();
        fs::write(home.workspace("a/b"), "1").unwrap();
    });
    assert_eq!((paths(&diff.new), paths(&diff.deleted)), (vec!["a/b"], vec!["a"]));
}

#[test]
fn diff_with_hashes_ignores_a_mere_touch() {
    let home = settled(&[("a", "1")]);
    let diff = change(&home, Hashing::Always, |home| {
        fs::File::options()
            .write(true)
            .open(home.workspace("a"))
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
    });
    assert!(diff.is_empty());
}

#[test]
fn what_cannot_be_mirrored_is_refused_and_not_taken_for_deleted() {
    let home = settled(&[("a", "1"), ("b", "2"), ("c", "3")]);
    fs::create_dir(home.workspace("d")).unwrap();
    fs::write(home.workspace("d/e"), "4").unwrap();
    let root = root(&home);
    let before = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    fs::remove_file(home.workspace("a")).unwrap();
    symlink(home.path("outside/canary"), home.workspace("a")).unwrap();
    fs::hard_link(home.workspace("b"), home.workspace("b2")).unwrap();
    fs::remove_dir_all(home.workspace("d")).unwrap();
    symlink(home.path("outside"), home.workspace("d")).unwrap();
    let after = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    let mut kinds: Vec<_> =
        after.refused().map(|(path, error)| (path.to_str().unwrap().to_owned(), error.kind())).collect();
    kinds.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        kinds,
        [
            ("a".into(), ErrorKind::Symlink),
            ("b".into(), ErrorKind::HardLinked),
            ("b2".into(), ErrorKind::HardLinked),
            ("d".into(), ErrorKind::Symlink),
        ]
    );
    assert!(before.diff(&after).is_empty());
}

async fn mirror(artifacts: &Artifacts) -> SyncReport {
    artifacts.mirror(&SyncOptions::default()).await.unwrap()
}

fn guest(path: &str) -> GuestPath {
    GuestPath::new(path).unwrap()
}

#[tokio::test]
async fn mirror_makes_the_store_equal_to_the_workspace_on_every_store() {
    for (name, source) in support::every_store().await {
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        fs::create_dir_all(home.workspace("x/y")).unwrap();
        fs::create_dir_all(home.workspace("skills")).unwrap();
        fs::write(home.workspace("skills/own"), "stays here").unwrap();
        fs::write(home.workspace("x/y/a + b%.txt"), "one").unwrap();
        fs::write(home.workspace("large"), vec![3_u8; (9 << 20) + 5]).unwrap();
        fs::write(home.workspace("gone"), "soon").unwrap();
        // What is reserved is not mirrored, so the two are not equal.
        let report = mirror(&artifacts).await;
        assert_eq!((report.uploaded, report.left.total), (3, 1), "{name}: {report:?}");
        assert!(!report.is_complete(), "{name}");
        fs::remove_dir_all(home.workspace("skills")).unwrap();
        let report = mirror(&artifacts).await;
        assert!(report.is_complete() && report.uploaded == 0, "{name}: {report:?}");

        fs::write(home.workspace("x/y/a + b%.txt"), "two").unwrap();
        fs::remove_file(home.workspace("gone")).unwrap();
        let report = mirror(&artifacts).await;
        assert!(report.is_complete(), "{name}: {report:?}");
        assert_eq!((report.uploaded, report.deleted), (1, 1), "{name}: {report:?}");
        assert_eq!(support::objects(&source).await, home.tree(), "{name}");
    }
}

#[tokio::test]
async fn restored_files_are_known_and_not_uploaded_again() {
    for (name, source) in support::every_store().await {
        support::seed(&source, &[("a", b"1"), ("d/b", b"2")]).await;
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        assert!(artifacts.restore().await.unwrap().is_complete());
        let report = mirror(&artifacts).await;
        assert!(report.is_complete() && report.uploaded == 0, "{name}: {report:?}");
        fs::write(home.workspace("a"), "3").unwrap();
        let report = mirror(&artifacts).await;
        assert!(report.is_complete() && report.uploaded == 1, "{name}: {report:?}");
        assert_eq!(support::objects(&source).await["a"], b"3", "{name}");
    }
}

#[tokio::test]
async fn two_hosts_do_not_overwrite_each_other_unnoticed() {
    for (name, source) in support::every_store().await {
        support::seed(&source, &[("a", b"1"), ("b", b"1"), ("c", b"1")]).await;
        let (one, two) = (Home::new(), Home::new());
        let (first, second) = (one.artifacts(&source), two.artifacts(&source));
        assert!(first.restore().await.unwrap().is_complete());
        assert!(second.restore().await.unwrap().is_complete());
        fs::write(one.workspace("a"), "from one").unwrap();
        fs::write(one.workspace("n"), "from one").unwrap();
        fs::write(one.workspace("c"), "from one").unwrap();
        assert!(mirror(&first).await.is_complete(), "{name}");

        fs::write(two.workspace("a"), "from two").unwrap();
        fs::write(two.workspace("b"), "from two").unwrap();
        fs::write(two.workspace("n"), "from two").unwrap();
        fs::remove_file(two.workspace("c")).unwrap();
        let report = mirror(&second).await;
        let mut conflicts: Vec<_> =
            report.conflicts.iter().map(|one| (one.path.as_str().unwrap(), one.why)).collect();
        conflicts.sort_unstable_by_key(|(path, _)| *path);
        let expected = [("a", Why::BothChanged), ("c", Why::DeletedHere), ("n", Why::BothChanged)];
        assert_eq!(conflicts, expected, "{name}: {report:?}");
        assert!(!report.is_complete(), "{name}");
        let objects = support::objects(&source).await;
        for (path, content) in [("a", "from one"), ("b", "from two"), ("c", "from one"), ("n", "from one")] {
            assert_eq!(objects[path], content.as_bytes(), "{name} {path}");
        }
        // What the second has is in the store, too, under names beside.
        let beside = objects.iter().filter(|(path, _)| path.contains(".ours-"));
        assert_eq!(beside.filter(|(_, content)| *content == b"from two").count(), 2, "{name}: {objects:?}");

        // A pull keeps both versions here, and then both are everywhere.
        let report = second.sync(&SyncOptions::default()).await.unwrap();
        assert_eq!(support::objects(&source).await, two.tree(), "{name}: {report:?}");
        for content in ["from one", "from two"] {
            let has = |path: &str| {
                two.tree().iter().any(|(name, found)| name.starts_with(path) && found == content.as_bytes())
            };
            assert!(has("a") && has("n"), "{name}: {:?}", two.tree());
        }
        assert_eq!(two.tree()["c"], b"from one", "{name}: it comes back");
        let objects = support::objects(&source).await;
        let again = second.sync(&SyncOptions::default()).await.unwrap();
        assert_eq!((again.placed, again.uploaded, again.deleted), (0, 0, 0), "{name}: {again:?}");
        assert_eq!(support::objects(&source).await, objects, "{name}");
    }
}

#[tokio::test]
async fn mirror_uploads_nothing_from_outside() {
    let (home, source) = (Home::new(), support::memory());
    symlink(home.path("outside/canary"), home.workspace("link")).unwrap();
    symlink(home.path("outside"), home.workspace("dir")).unwrap();
    fs::hard_link(home.path("outside/canary"), home.workspace("hard")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, home.workspace("fifo"), rustix::fs::Mode::RUSR).unwrap();
    let artifacts = home.artifacts(&source);
    let report = mirror(&artifacts).await;
    assert_eq!((report.left.total, report.uploaded), (2, 2), "{report:?}");
    assert!(!report.is_complete());
    // Of a link the text goes, and nothing of what it leads to.
    let text = |name: &str| home.path(name).into_os_string().into_encoded_bytes();
    let wanted = [("dir".to_owned(), text("outside")), ("link".to_owned(), text("outside/canary"))];
    assert_eq!(support::objects(&source).await, wanted.into());
}

#[tokio::test]
async fn materialise_places_keeps_or_replaces() {
    for (name, source) in support::every_store().await {
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        let large = vec![9_u8; 200_000];
        support::seed(&source, &[("in/new.txt", b"hello"), ("big", &large)]).await;
        let options = SyncOptions::default();
        let placed = artifacts.materialise(&guest("in/new.txt"), &options).await.unwrap().unwrap();
        assert_eq!((placed.placed, placed.failed.total), (1, 0), "{name}: {placed:?}");
        let placed = artifacts.materialise(&guest("big"), &options).await.unwrap().unwrap();
        assert_eq!(placed.placed, 1, "{name}: {placed:?}");
        assert_eq!(fs::read(home.workspace("big")).unwrap(), large);
        assert!(artifacts.materialise(&guest("none"), &options).await.unwrap().is_none(), "{name}");

        // A21: the base knows what came, so a later change here is no conflict and a deletion is one.
        fs::write(home.workspace("in/new.txt"), "edited").unwrap();
        fs::remove_file(home.workspace("big")).unwrap();
        let report = mirror(&artifacts).await;
        assert_eq!(
            (report.uploaded, report.deleted, report.conflicts.len()),
            (1, 1, 0),
            "{name}: {report:?}"
        );

        symlink(home.path("outside/canary"), home.workspace("link")).unwrap();
        support::put_object(&source, "link", b"object").await;
        let kept = artifacts.materialise(&guest("link"), &options).await.unwrap().unwrap();
        assert_eq!(kept.placed, 0, "{name}: {kept:?}");
        fs::write(home.workspace("both"), "mine").unwrap();
        support::put_object(&source, "both", b"object").await;
        let both = artifacts.materialise(&guest("both"), &options).await.unwrap().unwrap();
        let beside = both.conflicts[0].beside.as_ref().unwrap().as_str().unwrap();
        assert_eq!(fs::read(home.workspace(beside)).unwrap(), b"object", "{name}");
        assert_eq!(fs::read(home.workspace("both")).unwrap(), b"mine", "{name}");
        let error = artifacts.materialise(&guest("skills/x"), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath);
        home.assert_clean();
    }
}

#[tokio::test]
async fn put_writes_here_and_there_and_the_mirror_knows() {
    for (name, source) in support::every_store().await {
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        let path = guest("out/report.txt");
        for content in ["first", "second"] {
            artifacts.put(&path, content).await.unwrap().uploaded.unwrap();
            assert_eq!(fs::read(home.workspace("out/report.txt")).unwrap(), content.as_bytes());
            assert_eq!(support::objects(&source).await["out/report.txt"], content.as_bytes());
        }
        let report = mirror(&artifacts).await;
        assert!(report.is_complete() && report.uploaded == 0, "{name}: {report:?}");
    }
}

#[tokio::test]
async fn put_stays_here_when_the_store_is_gone() {
    let home = Home::new();
    let builder = object_store::aws::AmazonS3Builder::new()
        .with_endpoint(format!("http://127.0.0.1:{}", servers::free_port()))
        .with_allow_http(true)
        .with_bucket_name("b")
        .with_access_key_id("k")
        .with_secret_access_key("s")
        .with_retry(object_store::RetryConfig { max_retries: 0, ..Default::default() });
    let source = beneath::artifacts::Source::s3(builder).unwrap();
    let retry = beneath::artifacts::Retry::default().with_attempts(1);
    let artifacts = home.artifacts(&source).with_retry(retry);
    let put = artifacts.put(&guest("a"), "x").await.unwrap();
    assert_eq!(put.uploaded.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(fs::read(home.workspace("a")).unwrap(), b"x");
}

#[tokio::test]
async fn signed_url_reads_the_object_and_nothing_else() {
    let Some(server) = servers::weed() else { return };
    let (_, source) = server.bucket().await;
    let home = Home::new();
    let artifacts = home.artifacts(&source);
    let path = guest("caf\u{e9} + 1%.txt");
    artifacts.put(&path, "signed content").await.unwrap().uploaded.unwrap();
    let url = artifacts.signed_url(&path, std::time::Duration::from_secs(60)).await.unwrap();
    let target = url.split_once("127.0.0.1").unwrap().1.split_once('/').unwrap().1;
    let answer = server.http("GET", &format!("/{target}"), "", b"").unwrap();
    assert!(answer.contains(" 200 ") && answer.ends_with("signed content"), "{answer}");
    let answer =
        server.http("GET", &format!("/{}", target.replace("Expires=60", "Expires=90")), "", b"").unwrap();
    assert!(answer.contains(" 403 "), "{answer}");

    let url = artifacts.signed_download(&path, std::time::Duration::from_secs(60)).await.unwrap();
    let target = url.split_once("127.0.0.1").unwrap().1.split_once('/').unwrap().1;
    let answer = server.http("GET", &format!("/{target}"), "", b"").unwrap();
    let named = "attachment; filename=\"caf_ + 1_.txt\"; filename*=UTF-8''caf%C3%A9%20+%201%25.txt";
    assert!(answer.contains(" 200 ") && answer.to_lowercase().contains("content-disposition: "), "{answer}");
    assert!(answer.contains(named) && answer.ends_with("signed content"), "{answer}");
    let bare = target.split_once("response-content-disposition").unwrap().0.trim_end_matches(['&', '?']);
    assert!(!server.http("GET", &format!("/{bare}"), "", b"").unwrap().contains(" 200 "), "it is signed");

    for (valid, kind) in [(7, None), (8, Some(ErrorKind::TooLarge)), (30, Some(ErrorKind::TooLarge))] {
        let valid = std::time::Duration::from_secs(valid * 24 * 60 * 60);
        assert_eq!(artifacts.signed_url(&path, valid).await.err().map(|error| error.kind()), kind);
        assert_eq!(artifacts.signed_download(&path, valid).await.err().map(|error| error.kind()), kind);
    }

    let unsigned = support::memory();
    let error =
        home.artifacts(&unsigned).signed_url(&path, std::time::Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn hashing_stops_at_the_bytes_that_the_limits_allow() {
    let home = settled(&[("a", "12345"), ("b", "12345"), ("c", "1")]);
    let limits = ObjectLimits::default().with_bytes(8);
    let snapshot = Snapshot::take_within(&root(&home), &[], Hashing::Always, &limits).unwrap();
    let seen: Vec<_> = snapshot.paths().map(SafePath::as_str).collect();
    assert_eq!(seen, ["a", "c"]);
    assert_eq!(snapshot.left().first[0].error.kind(), ErrorKind::TooLarge);
}

#[test]
fn refusals_beyond_a_thousand_are_counted_and_not_taken_for_deleted() {
    let home = settled(&[("zz", "1"), ("gone", "2")]);
    let root = root(&home);
    let before = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    fs::remove_file(home.workspace("zz")).unwrap();
    fs::remove_file(home.workspace("gone")).unwrap();
    for n in 0..1500 {
        symlink("nowhere", home.workspace(&format!("link-{n}"))).unwrap();
    }
    symlink("nowhere", home.workspace("zz")).unwrap();
    let after = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    assert_eq!((after.refused().count(), after.left().total), (1000, 1501));
    assert_eq!(paths(&before.diff(&after).deleted), ["gone"]);
}

#[test]
fn directory_too_long_for_any_path_is_refused_once() {
    let home = Home::new();
    let root = root(&home);
    let name = "n".repeat(250);
    let mut deep = root.try_clone().unwrap();
    for _ in 0..18 {
        deep.ensure_dir(&name).unwrap();
        deep = deep.descend(&name).unwrap();
    }
    for n in 0..20 {
        deep.write_exclusive(format!("file-{n}"), "x").unwrap();
    }
    let snapshot = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    assert_eq!((snapshot.len(), snapshot.left().total), (0, 1), "{:?}", snapshot.left());
    assert_eq!(snapshot.left().first[0].error.kind(), ErrorKind::InvalidPath);
}

#[test]
fn snapshot_looks_at_no_more_entries_than_the_limits_allow() {
    let home = Home::new();
    for n in 0..40 {
        fs::write(home.workspace(&format!("{n}")), "x").unwrap();
    }
    let limits = ObjectLimits::default().with_objects(10);
    let snapshot = Snapshot::take_within(&root(&home), &[], Hashing::Never, &limits).unwrap();
    assert_eq!((snapshot.len(), snapshot.left().total), (20, 1));
    assert_eq!(snapshot.left().first[0].error.kind(), ErrorKind::TooMany);
}

#[test]
fn diff_of_many_deletions_and_many_refusals_is_not_quadratic() {
    const COUNT: usize = 20_000;
    let home = Home::new();
    let root = root(&home);
    for n in 0..COUNT {
        fs::write(home.workspace(&format!("f{n}")), "").unwrap();
    }
    let before = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    for n in 0..COUNT {
        fs::remove_file(home.workspace(&format!("f{n}"))).unwrap();
        symlink("nowhere", home.workspace(&format!("l{n}"))).unwrap();
    }
    let after = Snapshot::take(&root, &[], Hashing::Never).unwrap();
    let start = std::time::Instant::now();
    assert_eq!(before.diff(&after).deleted.len(), COUNT);
    // A comparison of each with each takes four hundred million steps.
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn puts_leave_no_growing_log_behind() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    let path = guest("out/report.txt");
    for n in 0..50 {
        artifacts.put(&path, format!("{n}")).await.unwrap().uploaded.unwrap();
    }
    let left = std::fs::read_dir(home.path("state")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("push")));

    // Another host that knows nothing of the object does not overwrite it.
    let other = Home::new();
    let put = other.artifacts(&source).put(&path, "theirs").await.unwrap();
    assert_eq!(put.uploaded.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(support::objects(&source).await["out/report.txt"], b"49");
    let synced =
        other.artifacts(&source).sync(&SyncOptions::default().with_prefer(Prefer::Remote)).await.unwrap();
    assert_eq!(synced.conflicts.len(), 1, "{synced:?}");
    other.artifacts(&source).put(&path, "theirs").await.unwrap().uploaded.unwrap();

    fs::write(home.workspace("out/report.txt"), "mine").unwrap();
    let report = mirror(&artifacts).await;
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    assert_eq!(support::objects(&source).await["out/report.txt"], b"theirs");
}

#[tokio::test]
async fn what_was_put_last_is_what_the_mirror_knows() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    let path = guest("a");
    for content in ["one", "two", "three"] {
        artifacts.put(&path, content).await.unwrap().uploaded.unwrap();
    }
    fs::write(home.workspace("a"), "four").unwrap();
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.uploaded == 1, "{report:?}");
    assert_eq!(support::objects(&source).await["a"], b"four");
}

#[tokio::test]
async fn base_that_is_damaged_is_no_base_and_loses_nothing() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    for name in ["a", "b", "gone"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    assert!(mirror(&artifacts).await.is_complete());
    let is_base =
        |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("base-");
    let mut files = fs::read_dir(home.path("state")).unwrap().map(|entry| entry.unwrap().path());
    let base = files.find(is_base).unwrap();
    let mut text = fs::read(&base).unwrap();
    let middle = text.len() / 2;
    text[middle] ^= 1;
    fs::write(&base, text).unwrap();
    fs::write(home.workspace("a"), "edited").unwrap();
    fs::remove_file(home.workspace("gone")).unwrap();
    let report = mirror(&artifacts).await;
    assert_eq!((report.deleted, report.conflicts.len()), (0, 1), "{report:?}");
    let objects = support::objects(&source).await;
    assert_eq!((objects["a"].as_slice(), objects["gone"].as_slice()), (&b"a"[..], &b"gone"[..]));
    assert!(objects.values().any(|content| content == b"edited"), "{objects:?}");
}

#[tokio::test]
async fn put_waits_for_its_turn_and_stays_when_it_does_not_come() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    let held = fs::File::create(home.path("state/artifacts.lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let put = artifacts.put(&guest("a"), "x").await.unwrap();
    assert_eq!(put.uploaded.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(fs::read(home.workspace("a")).unwrap(), b"x");
    drop(held);
    assert_eq!(mirror(&artifacts).await.uploaded, 1);
}

#[tokio::test]
async fn mirror_refuses_what_could_not_be_restored() {
    let (home, source) = (Home::new(), support::memory());
    let limited = |limits| home.artifacts(&source).with_limits(limits).with_concurrency(1);
    for name in ["a", "b", "c"] {
        fs::write(home.workspace(name), "12345").unwrap();
    }
    let kinds = |report: &SyncReport| -> Vec<_> { report.refused().map(|(_, error)| error.kind()).collect() };
    let report = mirror(&limited(ObjectLimits::default().with_objects(2))).await;
    assert_eq!((report.uploaded, kinds(&report)), (2, vec![ErrorKind::TooMany]), "{report:?}");
    assert_eq!(report.left.total, 1);
    // What is there already counts, in the next call too.
    let report = mirror(&limited(ObjectLimits::default().with_bytes(14))).await;
    assert!(
        report.uploaded == 0 && kinds(&report).iter().all(|kind| *kind == ErrorKind::TooLarge),
        "{report:?}"
    );
    assert!(!report.is_complete(), "{report:?}");
    let restored = Home::new();
    let artifacts = restored.artifacts(&source).with_limits(ObjectLimits::default().with_objects(2));
    assert_eq!(artifacts.restore().await.unwrap().placed, 2);
    let report = mirror(&limited(ObjectLimits::default().with_bytes(15))).await;
    assert_eq!((report.uploaded, report.left.total), (1, 0), "{report:?}");
}

#[tokio::test]
async fn planned_bytes_of_a_mirror_are_those_of_the_files() {
    let (home, source) = (Home::new(), support::memory());
    fs::write(home.workspace("a"), "12345").unwrap();
    fs::write(home.workspace("b"), "678").unwrap();
    let planned = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&planned);
    let artifacts = home.artifacts(&source).with_progress(move |event| {
        if let Event::Planned { objects, bytes } = event {
            seen.lock().unwrap().push((*objects, *bytes));
        }
    });
    assert!(mirror(&artifacts).await.is_complete());
    fs::write(home.workspace("b"), "1234").unwrap();
    assert!(mirror(&artifacts).await.is_complete());
    assert_eq!(*planned.lock().unwrap(), [(2, 8), (1, 4)]);
}
