//! A tree that went to a store and came back on another host is the same tree: kinds, modes, times, links, empty directories.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use beneath::artifacts::{Retry, Source, SyncOptions};

use crate::bucket::{Act, Answer, Ask, Bucket};
use crate::servers;
use crate::support::{self, Home, facts};

/// Every store that keeps more than bytes, and every server whatever it keeps.
async fn stores() -> Vec<(&'static str, Source, bool)> {
    let mut stores = vec![("memory", support::memory(), true), ("directory", support::local().1, true)];
    for (name, server) in servers::S3 {
        if let Some(server) = server() {
            let faithful = matches!(name, "moto" | "SeaweedFS");
            stores.push((name, server.bucket().await.1, faithful));
        }
    }
    stores
}

fn write(path: &Path, content: &str, mode: u32, seconds: u64, nanos: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    let time = UNIX_EPOCH + Duration::new(seconds, nanos);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Mirrors `one`, restores on a new host, and compares. Returns that host.
async fn comes_back(name: &str, source: &Source, one: &Home, faithful: bool) -> Option<Home> {
    let mirrored = one.artifacts(source).mirror(&SyncOptions::default()).await;
    let mirrored = mirrored.unwrap_or_else(|error| panic!("{name}: {error}"));
    let two = Home::new();
    let restored = two.artifacts(source).restore().await.unwrap();
    if !mirrored.is_complete() || !restored.is_complete() {
        assert!(!faithful, "{name}: {mirrored:#?} {restored:#?}");
        // What it says that it keeps is there.
        assert!(
            mirrored.left.total + mirrored.failed.total + restored.left.total > 0,
            "{name}: {mirrored:?}"
        );
        return None;
    }
    let (here, there) = (facts(&one.workspace("")), facts(&two.workspace("")));
    for (path, fact) in &here {
        assert_eq!(Some(fact), there.get(path), "{name}: {path:?}");
    }
    assert_eq!(here.len(), there.len(), "{name}: {there:#?}");
    two.assert_clean();
    Some(two)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modes_times_links_and_directories_come_back_from_every_store() {
    let one = Home::new();
    let at = |name: &str| one.workspace(name);
    write(&at("run.sh"), "#!/bin/sh", 0o755, 1_700_000_000, 123_456_789);
    write(&at("secret"), "key", 0o600, 1, 0);
    write(&at("shared"), "", 0o664, 4_000_000_000, 1);
    write(&at("pack/objects"), "read only", 0o444, 1_600_000_000, 0);
    write(&at("Q3: plan?.md"), "odd", 0o640, 1_500_000_000, 5);
    write(&at("large"), &"x".repeat(9 << 20), 0o750, 1_400_000_000, 7);
    symlink("../nowhere", at("dangling")).unwrap();
    symlink("/etc/passwd", at("absolute")).unwrap();
    symlink("run.sh", at("pack/latest")).unwrap();
    symlink(std::ffi::OsStr::from_bytes(b"\xff\n"), at("odd text")).unwrap();
    fs::create_dir_all(at("empty/inner")).unwrap();
    fs::create_dir(at("d: odd")).unwrap();
    fs::create_dir(at("other")).unwrap();
    fs::hard_link(at("run.sh"), at("other/second name")).unwrap();
    for (name, source, faithful) in stores().await {
        let Some(two) = comes_back(name, &source, &one, faithful).await else { continue };
        // Nothing is left to do on either side.
        for home in [&one, &two] {
            let again = home.artifacts(&source).sync(&SyncOptions::default()).await.unwrap();
            let done = (again.placed, again.removed, again.uploaded, again.deleted);
            assert_eq!((done, again.is_complete()), ((0, 0, 0, 0), true), "{name}: {again:?}");
        }
    }
}

/// Each change of one host arrives at the other, whatever kind of thing it makes of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_of_kind_arrives_at_another_host() {
    type Edit = fn(&Path);
    let edits: [(&str, Edit); 12] = [
        ("a link gets another text", |top| {
            fs::remove_file(top.join("link")).unwrap();
            symlink("elsewhere", top.join("link")).unwrap();
        }),
        ("a file gets another mode", |top| {
            fs::set_permissions(top.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
        }),
        ("a file can be executed", |top| {
            fs::set_permissions(top.join("file"), fs::Permissions::from_mode(0o755)).unwrap();
        }),
        ("a file becomes a link with its content as text", |top| {
            fs::write(top.join("same"), "text").unwrap();
        }),
        ("and back", |top| {
            fs::remove_file(top.join("same")).unwrap();
            symlink("text", top.join("same")).unwrap();
        }),
        ("a link becomes a directory", |top| {
            fs::remove_file(top.join("link")).unwrap();
            fs::create_dir(top.join("link")).unwrap();
        }),
        ("an empty directory gets a file", |top| fs::write(top.join("link/x"), "x").unwrap()),
        ("a directory becomes empty", |top| fs::remove_file(top.join("link/x")).unwrap()),
        ("an empty directory goes", |top| fs::remove_dir(top.join("link")).unwrap()),
        ("a directory that was empty goes with a file", |top| fs::remove_dir_all(top.join("dir")).unwrap()),
        ("nested empty directories", |top| fs::create_dir_all(top.join("p/q/r")).unwrap()),
        ("an empty directory becomes a file", |top| {
            fs::remove_dir_all(top.join("p")).unwrap();
            fs::write(top.join("p"), "p").unwrap();
        }),
    ];
    for (name, source, faithful) in stores().await {
        let (one, two) = (Home::new(), Home::new());
        let (first, second) = (one.artifacts(&source), two.artifacts(&source));
        let options = SyncOptions::default();
        for other in 0..30 {
            fs::write(one.workspace(&format!("other{other}")), format!("{other}")).unwrap();
        }
        write(&one.workspace("file"), "content", 0o600, 1, 0);
        symlink("somewhere", one.workspace("link")).unwrap();
        fs::create_dir(one.workspace("dir")).unwrap();
        if !first.mirror(&options).await.unwrap().is_complete() {
            assert!(!faithful, "{name}");
            continue;
        }
        fs::write(one.workspace("dir/now with a file"), "x").unwrap();
        for (edit, make) in edits {
            make(&one.workspace(""));
            for _ in 0..2 {
                let mirrored = first.mirror(&options).await.unwrap();
                if mirrored.is_complete() {
                    break;
                }
            }
            let mirrored = first.mirror(&options).await.unwrap();
            if !faithful && !mirrored.is_complete() {
                println!("{name}, {edit}: {:?}", mirrored.failed);
                break;
            }
            let pulled = second.pull(&options).await.unwrap();
            assert!(mirrored.is_complete() && mirrored.uploaded == 0, "{name}, {edit}: {mirrored:?}");
            assert!(pulled.is_complete(), "{name}, {edit}: {pulled:?}");
            let (mut here, mut there) = (facts(&one.workspace("")), facts(&two.workspace("")));
            // Another mode alone comes with the next content.
            for side in [&mut here, &mut there].into_iter().filter(|_| edit == "a file gets another mode") {
                side.remove(Path::new("file"));
            }
            assert_eq!(here, there, "{name}, {edit}");
        }
        if !faithful {
            continue;
        }
        let three = Home::new();
        assert!(three.artifacts(&source).restore().await.unwrap().is_complete(), "{name}");
        assert_eq!(facts(&three.workspace("")), facts(&one.workspace("")), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_mode_alone_is_in_the_store() {
    for (name, source, faithful) in stores().await.into_iter().filter(|(.., faithful)| *faithful) {
        let one = Home::new();
        write(&one.workspace("a"), "content", 0o600, 1, 0);
        let artifacts = one.artifacts(&source);
        assert_eq!(artifacts.mirror(&SyncOptions::default()).await.unwrap().uploaded, 1, "{name}");
        fs::set_permissions(one.workspace("a"), fs::Permissions::from_mode(0o640)).unwrap();
        // A pull in between does not make it known.
        let _ = artifacts.pull(&SyncOptions::default()).await.unwrap();
        for uploaded in [1, 0] {
            let mirrored = artifacts.mirror(&SyncOptions::default()).await.unwrap();
            assert_eq!((mirrored.uploaded, mirrored.is_complete()), (uploaded, true), "{name}");
        }
        comes_back(name, &source, &one, faithful).await;
    }
}

/// A tool that says nothing of files has put the bytes of a program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_object_does_not_say_so_is_put_again() {
    for with_pull in [false, true] {
        // In a directory every object says it.
        for (name, source, _) in
            stores().await.into_iter().filter(|(name, _, faithful)| *faithful && *name != "directory")
        {
            let one = Home::new();
            write(&one.workspace("run.sh"), "#!/bin/sh", 0o755, 1, 0);
            write(&one.workspace("text"), "text", 0o640, 1, 0);
            support::seed(&source, &[("run.sh", b"#!/bin/sh"), ("text", b"text")]).await;
            let artifacts = one.artifacts(&source);
            if with_pull {
                let pulled = artifacts.pull(&SyncOptions::default()).await.unwrap();
                assert_eq!((pulled.placed, pulled.conflicts.len()), (0, 0), "{name}: {pulled:?}");
            }
            for uploaded in [1, 0] {
                let mirrored = artifacts.mirror(&SyncOptions::default()).await.unwrap();
                assert_eq!(
                    (mirrored.uploaded, mirrored.is_complete()),
                    (uploaded, true),
                    "{name}: {mirrored:?}"
                );
            }
            let two = Home::new();
            assert!(two.artifacts(&source).restore().await.unwrap().is_complete(), "{name}");
            let mode = |path| fs::metadata(two.workspace(path)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode("run.sh"), 0o755, "{name}");
            assert_eq!(mode("text") & 0o111, 0, "{name}");
        }
    }
}

/// Where nobody can find out what a server keeps, no link goes there: it may become a file with the text of the link.
#[tokio::test]
async fn link_stays_here_where_the_trial_is_refused() {
    let bucket = Bucket::refusing_probes(Answer::new(403, ""));
    let home = Home::new();
    symlink("target", home.workspace("link")).unwrap();
    fs::create_dir(home.workspace("empty")).unwrap();
    fs::write(home.workspace("a"), "a").unwrap();
    let report = home.artifacts(&bucket.source()).mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.uploaded, report.left.total, report.is_complete()), (1, 1, false), "{report:?}");
    assert_eq!(bucket.keys(), ["sessions/s1/a"]);
}

/// The answer is lost, and so is what was said of the file.
#[tokio::test]
async fn a_program_is_not_in_the_store_until_its_object_says_so() {
    let bucket = Bucket::new(|request, count| match (request.ask, count) {
        (Ask::Put, ..6) => Act::ServeBareAndSay(Answer::new(500, "")),
        _ => Act::Serve,
    });
    let one = Home::new();
    write(&one.workspace("run.sh"), "#!/bin/sh", 0o755, 1, 0);
    let retry =
        Retry::default().with_attempts(2).with_pause(Duration::from_millis(1), Duration::from_millis(1));
    let source = bucket.source();
    let artifacts = one.artifacts(&source).with_retry(retry);
    let mut reports = Vec::new();
    while bucket.asked(Ask::Put) < 6 {
        let mirrored = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        assert!(!mirrored.is_complete(), "{mirrored:?}");
        reports.push(mirrored);
    }
    assert!(reports.len() > 1, "{reports:?}");
    assert_eq!(bucket.object("run.sh").unwrap(), b"#!/bin/sh");
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    comes_back("bucket", &source, &one, true).await;
}
