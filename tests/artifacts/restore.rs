//! Restore: policies, refusals, resumption.

use std::os::unix::fs::symlink;

use beneath::artifacts::{Artifacts, Event, ObjectLimits, Prefer, Source, Step, SyncOptions, Why};
use beneath::{Access, ErrorKind, Policy, Root, Session, ambient_authority};

use crate::servers;
use crate::support::{self, Home};
use beneath_kit::namespace::{Mounted, with_private_mounts};

const FILES: [(&str, &[u8]); 5] = [
    ("a.txt", b"alpha"),
    ("dir/b.txt", b"beta"),
    ("dir/deep/er/c.txt", b"gamma"),
    ("empty", b""),
    ("caf\u{e9}/100% + more.txt", b"delta"),
];

fn expected() -> std::collections::BTreeMap<String, Vec<u8>> {
    FILES.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect()
}

#[tokio::test]
async fn tree_equals_the_objects_on_every_store() {
    for (name, source) in support::every_store().await {
        let home = Home::new();
        support::seed(&source, &FILES).await;
        let large = vec![7_u8; 3 << 20];
        support::put_object(&source, "large.bin", &large).await;
        let report = home.artifacts(&source).restore().await.unwrap();
        assert!(report.is_complete() && report.placed == 6, "{name}: {report:?}");
        let mut wanted = expected();
        wanted.insert("large.bin".into(), large);
        assert_eq!(home.tree(), wanted, "{name}");
        home.assert_clean();
        let again = home.artifacts(&source).restore().await.unwrap();
        assert!(again.is_complete() && again.placed == 0, "{name}: {again:?}");
        let pulled = home.artifacts(&source).pull(&SyncOptions::default()).await.unwrap();
        assert!(pulled.is_complete() && pulled.placed == 0, "{name}: {pulled:?}");
    }
}

#[tokio::test]
async fn restore_into_a_workspace_in_use_keeps_what_is_there() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::write(home.workspace("mine"), "x").unwrap();
    std::fs::create_dir(home.workspace("skills")).unwrap();
    let report = home.artifacts(&source).restore().await.unwrap();
    assert_eq!((report.placed, report.pending, report.left.total), (5, 1, 1), "{report:?}");
    assert!(!report.is_complete(), "the store does not have what is mine");
    let mut wanted = expected();
    wanted.insert("mine".into(), b"x".to_vec());
    assert_eq!(home.tree(), wanted);
    home.assert_clean();
}

#[tokio::test]
async fn what_both_have_is_kept_in_both_versions() {
    for prefer in [Prefer::Local, Prefer::Remote] {
        let (home, source) = (Home::new(), support::memory());
        support::seed(&source, &FILES).await;
        std::fs::create_dir(home.workspace("dir")).unwrap();
        std::fs::write(home.workspace("dir/b.txt"), "mine").unwrap();
        std::fs::write(home.workspace("empty"), "").unwrap();
        let artifacts = home.artifacts(&source);
        let options = SyncOptions::default().with_prefer(prefer);
        let report = artifacts.pull(&options).await.unwrap();
        assert_eq!(report.conflicts.len(), 1, "{report:?}");
        let beside = report.conflicts[0].beside.as_ref().unwrap().as_str().unwrap().to_owned();
        let (whose, here, there) = match prefer {
            Prefer::Local => ("dir/b.theirs-", "mine", "beta"),
            Prefer::Remote => ("dir/b.ours-", "beta", "mine"),
        };
        assert!(beside.starts_with(whose) && beside.ends_with(".txt"), "{beside}");
        let mut wanted = expected();
        wanted.insert("dir/b.txt".into(), here.into());
        wanted.insert(beside, there.into());
        assert_eq!(home.tree(), wanted);
        // A second run makes no second copy, and the conflict waits for somebody to choose.
        let again = artifacts.pull(&options).await.unwrap();
        assert_eq!((again.placed, again.conflicts.len()), (0, 1), "{again:?}");
        assert_eq!(home.tree(), wanted);
        home.assert_clean();
    }
}

#[tokio::test]
async fn nothing_that_the_guest_has_is_destroyed_whoever_is_preferred() {
    for prefer in [Prefer::Local, Prefer::Remote] {
        let (home, source) = (Home::new(), support::memory());
        support::seed(&source, &FILES).await;
        std::fs::create_dir_all(home.workspace("a.txt/was/a")).unwrap();
        std::fs::write(home.workspace("a.txt/was/a/directory"), "unsaved").unwrap();
        symlink(home.path("outside/canary"), home.workspace("empty")).unwrap();
        symlink(home.path("outside"), home.workspace("caf\u{e9}")).unwrap();
        std::fs::write(home.workspace("dir"), "a file").unwrap();
        let options = SyncOptions::default().with_prefer(prefer);
        let report = home.artifacts(&source).pull(&options).await.unwrap();
        assert!(!report.is_complete(), "{report:?}");
        let tree = home.tree();
        // A10: the file `a.txt` of the store destroyed the directory.
        assert_eq!(tree["a.txt/was/a/directory"], b"unsaved", "{tree:?}");
        for (_, content) in FILES.iter().filter(|(path, _)| !path.starts_with("caf") && *path != "empty") {
            assert!(tree.values().any(|found| found == content), "{tree:?}");
        }
        assert!(tree.values().any(|found| found == b"a file"), "{tree:?}");
        assert!(report.conflicts.iter().any(|one| one.why == Why::Kinds), "{report:?}");
        let links = walkdir::WalkDir::new(home.workspace("")).into_iter().flatten();
        let links = links.filter(|entry| entry.file_type().is_symlink());
        let texts: std::collections::BTreeSet<_> =
            links.map(|link| std::fs::read_link(link.path()).unwrap()).collect();
        assert_eq!(texts, [home.path("outside"), home.path("outside/canary")].into(), "{report:?}");
        home.assert_clean();
    }
}

#[tokio::test]
async fn links_planted_in_the_way_are_kept_and_all_comes_beside_them() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    symlink(home.path("outside"), home.workspace("dir")).unwrap();
    symlink(home.path("outside/new"), home.workspace("a.txt")).unwrap();
    let report = home.artifacts(&source).restore().await.unwrap();
    assert_eq!((report.placed, report.left.total, report.conflicts.len()), (4, 0, 2), "{report:?}");
    assert!(!report.is_complete());
    let tree = home.tree();
    assert!(FILES.iter().all(|(_, content)| tree.values().any(|found| found == content)), "{tree:?}");
    let links = walkdir::WalkDir::new(home.workspace("")).into_iter().flatten();
    assert_eq!(links.filter(|entry| entry.file_type().is_symlink()).count(), 2);
    home.assert_clean();
}

#[tokio::test]
async fn conflict_is_resolved_by_whoever_chooses() {
    use beneath::GuestPath;
    use beneath::artifacts::Take;
    for take in [Take::Ours, Take::Theirs, Take::Both] {
        let (home, source) = (Home::new(), support::memory());
        support::seed(&source, &[("a.txt", b"theirs")]).await;
        std::fs::write(home.workspace("a.txt"), "ours").unwrap();
        let artifacts = home.artifacts(&source);
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        let beside = report.conflicts[0].beside.clone().unwrap();
        assert!(artifacts.resolve(&GuestPath::new("a.txt").unwrap(), take).await.unwrap());
        assert!(!artifacts.resolve(&GuestPath::new("a.txt").unwrap(), take).await.unwrap(), "only once");
        let expected: Vec<(&str, &[u8])> = match take {
            Take::Ours => vec![("a.txt", b"ours")],
            Take::Theirs => vec![("a.txt", b"theirs")],
            Take::Both => vec![("a.txt", b"ours"), (beside.as_str().unwrap(), b"theirs")],
        };
        let expected =
            expected.into_iter().map(|(path, content)| (path.to_owned(), content.to_vec())).collect();
        assert_eq!(home.tree(), expected, "{take:?}");
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert!(report.is_complete(), "{take:?}: {report:?}");
        assert_eq!(support::objects(&source).await, expected, "{take:?}");
    }
}

#[tokio::test]
async fn limits_refuse_one_object_or_the_whole() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    let limited = async |limits| {
        let home = Home::new();
        let report = home.artifacts(&source).with_limits(limits).restore().await.unwrap();
        assert!(!report.is_complete());
        let kinds: Vec<_> = report.refused().map(|(_, error)| error.kind()).collect();
        (report.placed, kinds)
    };
    let limits = ObjectLimits::default();
    // A18: a store over the limits restored nothing.
    assert_eq!(limited(limits.with_objects(4)).await, (4, vec![ErrorKind::TooMany]));
    assert_eq!(limited(limits.with_bytes(14)).await, (4, vec![ErrorKind::TooLarge]));
    let (placed, mut kinds) = limited(limits.with_depth(2).with_file_bytes(4)).await;
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    assert_eq!((placed, kinds), (2, vec![ErrorKind::TooLarge, ErrorKind::TooLarge, ErrorKind::TooMany]));
    assert!(home.tree().is_empty());
}

#[tokio::test]
async fn staging_that_cannot_be_walked_is_cleared_and_filled_again() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::create_dir(home.path("staging/fetched")).unwrap();
    std::fs::write(home.path("staging/fetched/tree"), "no directory").unwrap();
    let report = home.artifacts(&source).restore().await.unwrap();
    assert!(report.is_complete() && report.placed == 5, "{report:?}");
    assert_eq!(home.tree(), expected());
    home.assert_clean();
}

fn with_access(home: &Home, source: &Source, access: Access) -> Artifacts {
    let open = |name| Root::open_ambient(home.path(name), ambient_authority()).unwrap();
    let guest = open("guest").with_policy(Policy::default().with_access(access));
    let session = Session::from_roots(guest, open("host")).unwrap();
    Artifacts::new(source.clone(), support::prefix(), &session)
}

#[tokio::test]
async fn files_have_the_owner_and_the_group_of_the_workspace() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let probe = tempfile::NamedTempFile::new().unwrap();
    if chown(probe.path(), Some(1000), Some(1001)).is_err() {
        return crate::skip("may not give files away");
    }
    let source = support::memory();
    support::seed(&source, &FILES).await;
    support::put_object(&source, "dir/large", &vec![1; 1 << 20]).await;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let access = Access::custom(0o640, 0o750);
    let cases = [
        (access.with_owner(1000), (1000, own.1)),
        (access.with_group(1001), (own.0, 1001)),
        (access.with_owner(1000).with_group(1001), (1000, 1001)),
    ];
    for (access, expected) in cases {
        let home = Home::new();
        assert!(with_access(&home, &source, access).restore().await.unwrap().is_complete());
        for path in ["a.txt", "dir/b.txt", "dir/large", "dir"] {
            let entry = std::fs::metadata(home.workspace(path)).unwrap();
            assert_eq!((entry.uid(), entry.gid()), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn files_have_the_mode_of_the_workspace_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let source = support::memory();
    support::seed(&source, &FILES).await;
    support::put_object(&source, "dir/large", &vec![1; 1 << 20]).await;
    for (file, dir) in [(0o666, 0o777), (0o640, 0o750)] {
        let home = Home::new();
        let artifacts = with_access(&home, &source, Access::custom(file, dir));
        assert!(artifacts.restore().await.unwrap().is_complete());
        let mode = |path| std::fs::metadata(home.workspace(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("a.txt"), mode("dir/b.txt"), mode("dir/large")], [file; 3]);
        assert_eq!(mode("dir"), dir);
    }
}

#[tokio::test]
async fn dropped_restore_is_completed_by_the_next_call() {
    let source = support::memory();
    for n in 0..300 {
        support::put_object(&source, &format!("d{}/f{n}", n % 7), format!("{n}").as_bytes()).await;
    }
    support::put_object(&source, "large", &vec![1; 1 << 20]).await;
    let wanted = support::objects(&source).await;
    for polls in (0..400).step_by(7) {
        let home = Home::new();
        {
            let artifacts = home.artifacts(&source);
            let mut restore = Box::pin(artifacts.restore());
            let mut count = 0;
            futures_util::future::poll_fn(|context| {
                count += 1;
                if count > polls {
                    return std::task::Poll::Ready(());
                }
                let polled = restore.as_mut().poll(context);
                context.waker().wake_by_ref();
                polled.map(drop)
            })
            .await;
        }
        let report = home.artifacts(&source).restore().await.unwrap();
        assert!(report.is_complete(), "{polls}: {report:?}");
        assert_eq!(home.tree(), wanted, "{polls}");
        home.assert_clean();
    }
}

#[tokio::test]
async fn thirty_eight_hostile_keys_among_1200_are_refused_one_by_one() {
    let Some(server) = servers::moto() else { return };
    let (bucket, source) = server.bucket().await;
    let long = "x".repeat(300);
    let hostile: [&[u8]; 38] = [
        b"..",
        b"../x",
        b"../../etc/passwd",
        b"a/../b",
        b"a/..",
        b".",
        b"./x",
        b"a/./b",
        b"a//b",
        b"//x",
        b"/abs",
        b"/etc/passwd",
        b"dir/",
        b"good-0001/",
        b"tab\there/too",
        b"skills/evil.md",
        b"Skills/evil.md",
        b"\x01",
        b"tab\there",
        b"del\x7f",
        b"back\\slash",
        b"a\\..\\b",
        b"C:\\x",
        b"C:/x",
        b"nul",
        b"con.txt",
        b"trailing ",
        b" leading",
        b"dot.",
        b"star*",
        b"quest?ion",
        b"pipe|",
        b"quo\"te",
        "rtl\u{202e}gnp".as_bytes(),
        "zero\u{200b}width".as_bytes(),
        "line\u{2028}sep".as_bytes(),
        long.as_bytes(),
        "bom\u{feff}".as_bytes(),
    ];
    let prefix = support::prefix();
    for rest in hostile {
        let key = [prefix.as_str().as_bytes(), rest].concat();
        assert!(server.put_raw(&bucket, &key, b"hostile"), "{rest:?}");
    }
    // Keys that only look like this session's.
    for key in ["sessions/s10/x", "sessions/s1", "x/sessions/s1/x"] {
        assert!(server.put_raw(&bucket, key.as_bytes(), b"other"), "{key}");
    }
    for n in 0..1200 {
        let key = format!("{prefix}good-{n:04}");
        assert!(server.put_raw(&bucket, key.as_bytes(), format!("good {n}").as_bytes()));
    }
    let home = Home::new();
    let report = home.artifacts(&source).restore().await.unwrap();
    let refused: Vec<_> = report.refused().map(|(key, error)| format!("{} {error}", key.display())).collect();
    println!("{}", refused.join("\n"));
    assert_eq!((report.placed, refused.len(), report.is_complete()), (1200, 38, false));
    let wanted = (0..1200).map(|n| (format!("good-{n:04}"), format!("good {n}").into_bytes())).collect();
    assert_eq!(home.tree(), wanted);
    home.assert_clean();
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn staging_on_another_mount_of_the_same_device_is_refused_at_once() {
    with_private_mounts(|| {
        let home = Home::new();
        rustix::mount::mount_bind(home.path("host"), home.path("host")).unwrap();
        let _mounted = Mounted([home.path("host")]);
        let error = block_on(home.artifacts(&support::memory()).restore()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CrossDevice);
        assert!(home.tree().is_empty());
    });
}

#[test]
fn mount_in_the_way_fails_and_the_restore_is_not_complete() {
    with_private_mounts(|| {
        let (home, source) = (Home::new(), support::memory());
        std::fs::create_dir(home.workspace("dir")).unwrap();
        let mounted = {
            rustix::mount::mount_bind(home.workspace("dir"), home.workspace("dir")).unwrap();
            Mounted([home.workspace("dir")])
        };
        block_on(support::seed(&source, &FILES));
        let report = block_on(home.artifacts(&source).restore()).unwrap();
        let kinds: Vec<_> = report.refused().map(|(_, error)| error.kind()).collect();
        assert_eq!((report.placed, kinds), (3, vec![ErrorKind::CrossDevice]), "{report:?}");
        assert!(!report.is_complete());
        drop(mounted);
        let report = block_on(home.artifacts(&source).restore()).unwrap();
        assert!(report.is_complete() && report.placed == 2, "{report:?}");
        assert_eq!(home.tree(), expected());
        home.assert_clean();
    });
}

#[tokio::test]
async fn restore_that_dies_before_it_publishes_is_completed() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::write(home.workspace("a.txt"), "mine").unwrap();
    let dying = home.artifacts(&source).with_progress(|event| {
        assert!(!matches!(event, Event::Entered(Step::Publishing)), "dies here, as it should");
    });
    dying.restore().await.unwrap_err();
    let artifacts = home.artifacts(&source);
    let report = artifacts.restore().await.unwrap();
    assert_eq!((report.placed, report.conflicts.len()), (4, 1), "{report:?}");
    let synced = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert_eq!(support::objects(&source).await, home.tree(), "{synced:?}");
    assert_eq!(support::objects(&source).await["a.txt"], b"mine");
}

#[tokio::test]
async fn bad_names_in_a_local_directory_are_refused_one_by_one() {
    use std::os::unix::ffi::OsStrExt as _;
    let (home, (store, source)) = (Home::new(), support::local());
    let top = store.join(support::prefix().as_str());
    std::fs::create_dir_all(top.join("dir")).unwrap();
    for name in ["a.txt", "evil#1", "dir/b"] {
        std::fs::write(top.join(name), name).unwrap();
    }
    for raw in [&b"tab\there"[..], b"\xff\xfe", b"dir/new\nline"] {
        std::fs::write(top.join(std::ffi::OsStr::from_bytes(raw)), "bad").unwrap();
    }
    symlink(home.path("outside/canary"), top.join("link")).unwrap();
    let report = home.artifacts(&source).restore().await.unwrap();
    assert_eq!(report.placed, 4, "{report:?}");
    assert_eq!(report.refused().count(), 3, "{report:?}");
    assert_eq!(std::fs::read_link(home.workspace("link")).unwrap(), home.path("outside/canary"));
    let names = ["a.txt", "dir/b", "evil#1"];
    let wanted = names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect();
    assert_eq!(home.tree(), wanted);
    home.assert_clean();
}
