//! Restore: policies, refusals, resumption.

use std::os::unix::fs::symlink;

use beneath::artifacts::{
    Artifacts, Deletions, Ended, Event, ObjectLimits, OnLocal, Overwrites, Restored, Source, Step,
};
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
        let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
        assert_eq!((report.ended, report.placed()), (Ended::Complete, 6), "{name}: {report:?}");
        let mut wanted = expected();
        wanted.insert("large.bin".into(), large);
        assert_eq!(home.tree(), wanted, "{name}");
        home.assert_clean();
        let again = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
        assert_eq!(again.ended, Ended::AlreadyRestored, "{name}");
    }
}

#[tokio::test]
async fn cold_start_leaves_a_workspace_in_use_alone() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::write(home.workspace("mine"), "x").unwrap();
    let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
    assert_eq!(report.ended, Ended::NotCold);
    assert_eq!(home.tree().len(), 1);
}

#[tokio::test]
async fn cold_start_takes_a_workspace_with_reserved_names_for_cold() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::create_dir(home.workspace("skills")).unwrap();
    let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
    assert_eq!((report.ended, report.placed()), (Ended::Complete, 5));
}

#[tokio::test]
async fn local_wins_brings_only_what_is_missing() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::create_dir(home.workspace("dir")).unwrap();
    std::fs::write(home.workspace("dir/b.txt"), "mine").unwrap();
    let report = home.artifacts(&source).restore(OnLocal::LocalWins).await.unwrap();
    assert_eq!((report.ended, report.placed()), (Ended::Complete, 4));
    assert!(matches!(&report.outcomes[0], Restored::Kept { path } if path.as_str() == "dir/b.txt"));
    let mut wanted = expected();
    wanted.insert("dir/b.txt".into(), b"mine".to_vec());
    assert_eq!(home.tree(), wanted);
    home.assert_clean();
}

#[tokio::test]
async fn remote_wins_replaces_files_links_and_directories() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::create_dir(home.workspace("dir")).unwrap();
    std::fs::write(home.workspace("dir/b.txt"), "mine").unwrap();
    std::fs::write(home.workspace("dir/stays"), "mine").unwrap();
    std::fs::create_dir_all(home.workspace("a.txt/was/a/directory")).unwrap();
    symlink(home.path("outside/canary"), home.workspace("empty")).unwrap();
    symlink(home.path("outside"), home.workspace("caf\u{e9}")).unwrap();
    let report = home.artifacts(&source).restore(OnLocal::RemoteWins).await.unwrap();
    assert_eq!((report.ended, report.placed()), (Ended::Complete, 5), "{report:?}");
    let mut wanted = expected();
    wanted.insert("dir/stays".into(), b"mine".to_vec());
    assert_eq!(home.tree(), wanted);
    home.assert_clean();
}

#[tokio::test]
async fn fail_writes_nothing_when_anything_is_in_the_way() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::write(home.workspace("empty"), "mine").unwrap();
    let report = home.artifacts(&source).restore(OnLocal::Fail).await.unwrap();
    assert_eq!((report.ended, report.failed().count()), (Ended::Conflict, 5));
    assert_eq!(home.tree().len(), 1);
    std::fs::remove_file(home.workspace("empty")).unwrap();
    let report = home.artifacts(&source).restore(OnLocal::Fail).await.unwrap();
    assert_eq!(report.ended, Ended::Complete);
    assert_eq!(home.tree(), expected());
}

#[tokio::test]
async fn links_planted_in_the_way_are_refused_and_the_rest_comes() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    symlink(home.path("outside"), home.workspace("dir")).unwrap();
    symlink(home.path("outside/new"), home.workspace("a.txt")).unwrap();
    let report = home.artifacts(&source).restore(OnLocal::LocalWins).await.unwrap();
    assert_eq!((report.ended, report.placed()), (Ended::Complete, 2), "{report:?}");
    home.assert_clean();
}

#[tokio::test]
async fn limits_refuse_one_object_or_the_whole() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    let limited = |limits| home.artifacts(&source).with_limits(limits);
    let limits = ObjectLimits::default();
    let error = limited(limits.with_objects(4)).restore(OnLocal::ColdStart).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooMany);
    let error = limited(limits.with_bytes(10)).restore(OnLocal::ColdStart).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(home.tree().is_empty());
    let limits = limits.with_depth(2).with_file_bytes(4);
    let report = limited(limits).restore(OnLocal::ColdStart).await.unwrap();
    let kinds: Vec<_> = report.refused().map(|(_, error)| error.kind()).collect();
    assert_eq!((report.ended, report.placed()), (Ended::Complete, 2), "{report:?}");
    assert_eq!(kinds, [ErrorKind::TooLarge, ErrorKind::TooLarge, ErrorKind::TooMany]);
}

#[tokio::test]
async fn staging_that_cannot_be_walked_is_cleared_and_filled_again() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::create_dir(home.path("staging/restore")).unwrap();
    std::fs::write(home.path("staging/restore/tree"), "no directory").unwrap();
    let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
    assert_eq!((report.ended, report.placed()), (Ended::Complete, 5), "{report:?}");
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
        assert!(with_access(&home, &source, access).restore(OnLocal::ColdStart).await.unwrap().is_complete());
        for path in ["a.txt", "dir/b.txt", "dir/large", "dir"] {
            let entry = std::fs::metadata(home.workspace(path)).unwrap();
            assert_eq!((entry.uid(), entry.gid()), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn files_have_the_mode_of_the_workspace_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    support::put_object(&source, "dir/large", &vec![1; 1 << 20]).await;
    for (file, dir) in [(0o666, 0o777), (0o640, 0o750)] {
        let artifacts = with_access(&home, &source, Access::custom(file, dir));
        assert!(artifacts.restore(OnLocal::RemoteWins).await.unwrap().is_complete());
        let mode = |path| std::fs::metadata(home.workspace(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("a.txt"), mode("dir/b.txt"), mode("dir/large")], [file; 3]);
        assert_eq!(mode("dir"), dir);
        std::fs::remove_dir_all(home.workspace("dir")).unwrap();
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
            let mut restore = Box::pin(artifacts.restore(OnLocal::ColdStart));
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
        let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
        assert!(matches!(report.ended, Ended::Complete | Ended::AlreadyRestored), "{polls}: {report:?}");
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
    let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
    let refused: Vec<_> = report.refused().map(|(key, error)| format!("{} {error}", key.display())).collect();
    println!("{}", refused.join("\n"));
    assert_eq!(report.ended, Ended::Complete);
    assert_eq!((report.placed(), refused.len()), (1200, 38));
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
        let error = block_on(home.artifacts(&support::memory()).restore(OnLocal::ColdStart)).unwrap_err();
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
        // As if an earlier call had been interrupted: the workspace need not be empty.
        std::fs::write(home.path("state/restore.journal"), "beneath-restore 1 fetching\n").unwrap();
        block_on(support::seed(&source, &FILES));
        let report = block_on(home.artifacts(&source).restore(OnLocal::ColdStart)).unwrap();
        let kinds: Vec<_> = report.failed().map(|(_, error)| error.kind()).collect();
        assert_eq!((report.ended, report.placed()), (Ended::Incomplete, 3), "{report:?}");
        assert_eq!(kinds, [ErrorKind::CrossDevice; 2]);
        drop(mounted);
        let report = block_on(home.artifacts(&source).restore(OnLocal::ColdStart)).unwrap();
        assert_eq!((report.ended, report.resumed), (Ended::Complete, true), "{report:?}");
        assert_eq!(home.tree(), expected());
        home.assert_clean();
    });
}

#[tokio::test]
async fn resumed_restore_knows_what_was_kept() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &FILES).await;
    std::fs::write(home.workspace("a.txt"), "mine").unwrap();
    let dying = home.artifacts(&source).with_progress(|event| {
        assert!(!matches!(event, Event::Entered(Step::Publishing)), "dies here, as it should");
    });
    dying.restore(OnLocal::LocalWins).await.unwrap_err();
    let artifacts = home.artifacts(&source);
    let report = artifacts.restore(OnLocal::LocalWins).await.unwrap();
    assert_eq!((report.ended, report.resumed, report.placed()), (Ended::Complete, true, 4), "{report:?}");
    let is_kept = |outcome: &Restored| matches!(outcome, Restored::Kept { path } if path.as_str() == "a.txt");
    assert!(report.outcomes.iter().any(is_kept), "{report:?}");
    let mirrored = artifacts.mirror(Deletions::Keep, Overwrites::Refuse).await.unwrap();
    assert!(mirrored.is_complete() && mirrored.uploaded() == 1, "{mirrored:?}");
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
    let report = home.artifacts(&source).restore(OnLocal::ColdStart).await.unwrap();
    assert_eq!((report.ended, report.placed()), (Ended::Complete, 3), "{report:?}");
    assert_eq!(report.refused().count(), 4, "{report:?}");
    let names = ["a.txt", "dir/b", "evil#1"];
    let wanted = names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect();
    assert_eq!(home.tree(), wanted);
    home.assert_clean();
}
