//! The verbs of a root, on a workspace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use beneath::{ErrorKind, GuestPath, Rename, SessionId, WriteOptions};

use crate::support::{fifo, mode, names, with_each_resolver};

#[test]
fn a_copy_is_a_file_of_its_own_with_its_bytes_and_execute_bits() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        let script = WriteOptions::default().with_mode(0o750);
        workspace.write_exclusive_with("run", "#!/bin/sh\n", script).unwrap();
        assert_eq!(workspace.copy("run", "/session/workspace/a/b/run", 100).unwrap().bytes, 10);
        assert_eq!(workspace.read_contained("a/b/run", 100).unwrap(), b"#!/bin/sh\n");
        assert_ne!(workspace.metadata("run").unwrap().ino(), workspace.metadata("a/b/run").unwrap().ino());
        assert_eq!(mode(&stage.guest("workspace/a/b/run")) & 0o110, 0o110);

        assert_eq!(workspace.copy("run", "a/b/run", 100).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(workspace.copy("run", "c", 9).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(workspace.copy("missing", "new/c", 9).unwrap_err().kind(), ErrorKind::NotFound);
        fifo(&stage.guest("workspace/fifo"));
        symlink(stage.home.path().join(".ssh/id_rsa"), stage.guest("workspace/key")).unwrap();
        assert_eq!(workspace.copy("fifo", "c", 9).unwrap_err().kind(), ErrorKind::NotRegular);
        assert_eq!(workspace.copy("key", "c", 99).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(names(&stage.guest("workspace")), ["a", "fifo", "key", "run"], "and nothing was made");
    });
}

#[test]
fn a_copy_to_another_session_makes_the_directories_there() {
    with_each_resolver(|stage| {
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        let (here, there) = (stage.session.workspace(), other.workspace());
        let odd = GuestPath::new(OsStr::from_bytes(b"Q3: plan?\n\xff.md")).unwrap();
        here.write_exclusive(&odd, "plan").unwrap();
        let to = GuestPath::new("from/s").unwrap().join(&odd).unwrap();
        here.copy_to(&odd, &there, &to, 100).unwrap();
        assert_eq!(there.read_contained(&to, 100).unwrap(), b"plan");
        assert_eq!(here.read_contained(&odd, 100).unwrap(), b"plan", "and it is still here");
        let outside = here.copy_to(&odd, &there, "/etc/x.conf", 100).unwrap_err();
        assert_eq!(outside.kind(), ErrorKind::Escape);
    });
}

#[test]
fn links_are_made_read_renamed_and_removed_as_they_are() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        for (number, text) in ["../lib/cli.js", "/usr/bin/python3", "nowhere", "/", "a\nb"].iter().enumerate()
        {
            let path = format!("node_modules/.bin/{number}");
            workspace.symlink(text, &path).unwrap();
            assert_eq!(workspace.read_link(&path).unwrap().to_str(), Some(*text));
            assert!(workspace.try_exists(&path).unwrap());
            let kept = format!("kept/{number}");
            workspace.rename(&path, &kept).unwrap();
            assert_eq!(fs::read_link(stage.guest("workspace").join(&kept)).unwrap().to_str(), Some(*text));
            assert_eq!(workspace.symlink(text, &kept).unwrap_err().kind(), ErrorKind::AlreadyExists);
            workspace.remove_file(&kept).unwrap();
        }
        workspace.write_exclusive("plain", "").unwrap();
        assert_eq!(workspace.read_link("plain").unwrap_err().kind(), ErrorKind::NotSymlink);
        assert_eq!(workspace.read_link("missing").unwrap_err().kind(), ErrorKind::NotFound);
        for bad in [String::new(), "a\0b".into(), "x".repeat(4096)] {
            assert_eq!(workspace.symlink(&bad, "bad").unwrap_err().kind(), ErrorKind::InvalidData);
        }
        assert!(!workspace.try_exists("bad").unwrap());
    });
}

#[test]
fn a_rename_replaces_or_exchanges_only_if_it_is_asked_to() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write_exclusive("one", "1").unwrap();
        workspace.write_exclusive("two", "2").unwrap();
        let taken = workspace.rename_with("one", "two", Rename::NoReplace).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        workspace.rename_with("one", "two", Rename::Exchange).unwrap();
        assert_eq!(workspace.read_contained("one", 9).unwrap(), b"2");
        workspace.rename_with("one", "two", Rename::Replace).unwrap();
        assert_eq!(workspace.read_contained("two", 9).unwrap(), b"2");
        workspace.rename_with("two", "new/place/two", Rename::Replace).unwrap();

        for how in [Rename::NoReplace, Rename::Replace, Rename::Exchange] {
            let missing = workspace.rename_with("gone", "z/d", how).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound, "{how:?}");
            assert!(!workspace.exists("z").unwrap(), "{how:?} made a directory for nothing");
        }
        let missing = workspace.rename_with("new", "z/d", Rename::Exchange).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(!workspace.exists("z").unwrap());
    });
}

#[test]
fn times_are_set_on_what_is_beneath_and_on_nothing_else() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        let then = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        workspace.write_exclusive("d/a", "").unwrap();
        for path in ["d/a", "d"] {
            workspace.set_times(path, None, Some(then)).unwrap();
            assert_eq!(workspace.metadata(path).unwrap().modified(), then, "{path}");
        }
        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/diary")).unwrap();
        let refused = workspace.set_times("diary", Some(then), Some(then)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Symlink);
    });
}

#[test]
fn a_write_takes_a_mode_and_a_replacement_keeps_one() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        let script = WriteOptions::default().with_mode(0o755);
        let missing = workspace.write_exclusive_with("bin/run", "1", script).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "parents are made on request");
        workspace.write_exclusive_with("bin/run", "1", script.with_parents()).unwrap();
        workspace.replace("bin/run", "2").unwrap();
        let mut file = workspace.new_file("bin/run").unwrap();
        std::io::Write::write_all(&mut file, b"3").unwrap();
        file.commit_replace().unwrap();
        assert_eq!(mode(&stage.guest("workspace/bin/run")), 0o755, "execute bits are kept");

        workspace.write_exclusive_with("kept", "old", WriteOptions::default().with_mode(0o400)).unwrap();
        assert_eq!(workspace.replace("kept", "new").unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(fs::metadata(stage.guest("workspace/kept")).unwrap().size(), 3);
        workspace.replace_with("kept", "new", WriteOptions::default().over_read_only()).unwrap();
        assert_eq!(
            (workspace.read_contained("kept", 9).unwrap(), mode(&stage.guest("workspace/kept"))),
            (b"new".to_vec(), 0o400)
        );

        let set_id = WriteOptions::default().with_mode(0o4755);
        assert_eq!(workspace.write_exclusive_with("su", "", set_id).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(workspace.new_file_with("su", set_id).unwrap_err().kind(), ErrorKind::Denied);
    });
}

#[test]
fn no_verb_works_outside_the_workspace() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write_exclusive("a", "a").unwrap();
        for outside in ["/etc/x.conf", "../x", "/session/inbox/x", "a/../../x"] {
            let kinds = [
                workspace.copy("a", outside, 9).unwrap_err().kind(),
                workspace.copy(outside, "b", 9).unwrap_err().kind(),
                workspace.symlink("a", outside).unwrap_err().kind(),
                workspace.read_link(outside).unwrap_err().kind(),
                workspace.rename_with("a", outside, Rename::Replace).unwrap_err().kind(),
                workspace.rename_with(outside, "a", Rename::Replace).unwrap_err().kind(),
                workspace.set_times(outside, None, None).unwrap_err().kind(),
                workspace.try_exists(outside).unwrap_err().kind(),
                workspace.replace_with(outside, "", WriteOptions::default()).unwrap_err().kind(),
                workspace.detect(outside).unwrap_err().kind(),
            ];
            assert!(kinds.iter().all(|kind| *kind == ErrorKind::Escape), "{outside}: {kinds:?}");
        }
        assert_eq!(names(&stage.guest("workspace")), ["a"]);
    });
}
