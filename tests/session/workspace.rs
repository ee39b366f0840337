use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use beneath::session::{ListOptions, Part, SessionsConfig};
use beneath::{Ensured, ErrorKind, FileType, GuestPath, MountPoint, SessionId, Spelling};

use crate::support::{fifo, with_each_resolver};

#[test]
fn every_spelling_that_an_agent_uses_reaches_one_file() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write_exclusive("a/b.bin", b"\0\xff\n'\"$(id)").unwrap();
        let spellings =
            ["a/b.bin", "./a//b.bin", " a/b.bin\n", "x/../a/b.bin", "/session/workspace/a/b.bin", "a/b.bin/"];
        for spelling in spellings {
            assert_eq!(workspace.read_contained(spelling, 100).unwrap(), b"\0\xff\n'\"$(id)", "{spelling}");
        }
        let outside = [
            "..",
            "../x",
            "a/../../a",
            "/session/../x",
            "/a/b.bin",
            "/session/a/b.bin",
            "/session/inbox/x",
            "/etc/x",
        ];
        for bad in outside {
            assert_eq!(workspace.read_contained(bad, 100).unwrap_err().kind(), ErrorKind::Escape, "{bad:?}");
            assert_eq!(workspace.write_exclusive(bad, "").unwrap_err().kind(), ErrorKind::Escape, "{bad:?}");
        }
        for bad in ["", ".", "/", "a/..", "a\0b", "/session/workspace"] {
            assert_eq!(
                workspace.read_contained(bad, 100).unwrap_err().kind(),
                ErrorKind::InvalidPath,
                "{bad:?}"
            );
            assert!(workspace.remove_tree_contained(bad).is_err(), "{bad:?}");
        }
        assert_eq!(fs::read_dir(stage.guest("workspace")).unwrap().count(), 1, "nothing was redirected");
    });
}

#[test]
fn a_path_has_one_part_whatever_its_spelling() {
    with_each_resolver(|stage| {
        let resolve = |raw: &str| {
            let (part, path) = stage.session.resolve(raw).unwrap();
            (part, path.as_str().unwrap().to_owned())
        };
        let cases = [
            ("a", Part::Workspace, "a"),
            ("inbox/a", Part::Workspace, "inbox/a"),
            ("", Part::Workspace, "."),
            ("/a", Part::Workspace, "a"),
            ("/session/workspace", Part::Workspace, "."),
            ("/session/workspace/workspace", Part::Workspace, "workspace"),
            ("/session/workspace/../inbox/m/a.txt", Part::Inbox, "m/a.txt"),
            ("//session/inbox/m/a.txt", Part::Inbox, "m/a.txt"),
            ("/session/outbox/", Part::Outbox, "."),
            ("/session/inbox2/a", Part::Guest, "inbox2/a"),
            ("/session", Part::Guest, "."),
        ];
        for (raw, part, path) in cases {
            assert_eq!(resolve(raw), (part, path.to_owned()), "{raw}");
        }
        let strict = SessionsConfig::default().with_spelling(Spelling::Strict);
        let strict = stage.session.clone().with_config(strict);
        assert_eq!(strict.resolve("./a").unwrap_err().kind(), ErrorKind::InvalidPath);
        assert_eq!(strict.resolve("/a").unwrap_err().kind(), ErrorKind::Escape);
        assert_eq!(strict.resolve("/session/inbox/m").unwrap(), (Part::Inbox, GuestPath::new("m").unwrap()));
        let elsewhere = SessionsConfig::default().with_mount_point(MountPoint::new("/home//agent/").unwrap());
        let elsewhere = stage.session.clone().with_config(elsewhere);
        assert_eq!(elsewhere.resolve("/home/agent/workspace/a").unwrap().0, Part::Workspace);
        assert_eq!(elsewhere.resolve("/session/workspace/a").unwrap_err().kind(), ErrorKind::Escape);
    });
}

#[test]
fn what_the_guest_sees_at_workspace_is_what_the_host_reads_by_that_path() {
    with_each_resolver(|stage| {
        fs::write(stage.guest("workspace/foo.txt"), "the guest's").unwrap();
        let at_root = SessionsConfig::default().with_mount_point(MountPoint::new("/").unwrap());
        let workspace = stage.session.clone().with_config(at_root).workspace();
        assert_eq!(workspace.read_contained("/workspace/foo.txt", 99).unwrap(), b"the guest's");
        assert_eq!(workspace.read_contained("foo.txt", 99).unwrap(), b"the guest's");
        // Where the guest sees its directory elsewhere, that path is another file of its machine.
        let elsewhere = stage.session.workspace().read_contained("/workspace/foo.txt", 99).unwrap_err();
        assert_eq!(elsewhere.kind(), ErrorKind::Escape);
    });
}

#[test]
fn a_path_elsewhere_on_the_machine_is_refused_and_not_redirected() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        for path in ["/etc/x.conf", "/tmp/out/report.md", "/home/agent/.bashrc"] {
            assert_eq!(workspace.write_exclusive(path, "").unwrap_err().kind(), ErrorKind::Escape, "{path}");
            assert_eq!(workspace.replace(path, "").unwrap_err().kind(), ErrorKind::Escape, "{path}");
            assert_eq!(workspace.ensure_dir(path).unwrap_err().kind(), ErrorKind::Escape, "{path}");
        }
        assert_eq!(fs::read_dir(stage.guest("workspace")).unwrap().count(), 0);
    });
}

#[test]
fn whatever_is_listed_can_be_read_followed_renamed_and_removed() {
    let odd: [&[u8]; 12] = [
        b"Q3: plan?.md",
        b"aux.rs",
        b"...",
        b"2026-11-16T08:00:00.log",
        b"a\nb",
        b" a ",
        b"\n",
        b"a\\b",
        b"~",
        b"caf\xe9",
        b"\xff",
        "\u{202e}gnp".as_bytes(),
    ];
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        for name in odd {
            let place = stage.guest("workspace").join(OsStr::from_bytes(name));
            fs::create_dir(&place).unwrap();
            fs::write(place.join(OsStr::from_bytes(name)), name).unwrap();
        }
        let listing = workspace.list(".", ListOptions::default().with_hidden().recursive()).unwrap();
        assert_eq!((listing.entries.len(), listing.refused.total), (2 * odd.len(), 0));
        let files = listing.entries.iter().filter(|entry| entry.metadata().is_file());
        for path in files.map(|entry| entry.path()) {
            let name = path.file_name().unwrap().as_bytes();
            assert_eq!(workspace.read_contained(path, 100).unwrap(), name);
            assert_eq!(workspace.metadata(path).unwrap().len(), name.len() as u64);
            assert_eq!(workspace.tail(path).unwrap().next_chunk(100).unwrap().bytes, name);
            let path = GuestPath::new(path).unwrap();
            assert_eq!(workspace.copy(&path, "copied", 100).unwrap().bytes, name.len() as u64);
            workspace.remove_file("copied").unwrap();
            let beside = path.parent().unwrap().join(OsStr::from_bytes(b" \xfe\n ")).unwrap();
            workspace.rename(&path, &beside).unwrap();
            assert!(!workspace.exists(&path).unwrap() && workspace.exists(&beside).unwrap());
            workspace.remove_file(&beside).unwrap();
            assert!(workspace.remove_tree_contained(path.parent().unwrap()).unwrap().is_complete());
        }
        assert_eq!(fs::read_dir(stage.guest("workspace")).unwrap().count(), 0);
    });
}

#[test]
fn writes_exclusively_or_in_place_and_never_through_a_link() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write_exclusive("a", "one").unwrap();
        assert_eq!(workspace.write_exclusive("a", "two").unwrap_err().kind(), ErrorKind::AlreadyExists);
        workspace.replace("a", "two").unwrap();
        assert_eq!(workspace.read_contained("a", 10).unwrap(), b"two");

        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/link")).unwrap();
        assert_eq!(workspace.write_exclusive("link", "x").unwrap_err().kind(), ErrorKind::AlreadyExists);
        workspace.replace("link", "x").unwrap();
        assert_eq!(workspace.read_contained("link", 10).unwrap(), b"x");

        let mut file = workspace.new_file("big").unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.commit().unwrap();
        assert_eq!(workspace.metadata("big").unwrap().len(), 100_000);
    });
}

#[test]
fn reads_whole_in_range_and_as_a_stream() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write_exclusive("a", "0123456789").unwrap();
        assert_eq!(workspace.read_contained("a", 9).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(workspace.read_range("a", 3, 4).unwrap(), b"3456");
        assert_eq!(workspace.read_range("a", 8, 100).unwrap(), b"89");
        assert_eq!(workspace.read_range("a", 100, 100).unwrap(), b"");
        assert_eq!(workspace.read_range("a", u64::MAX, 100).unwrap(), b"");
        let mut text = String::new();
        workspace.open_contained("a").unwrap().take(5).read_to_string(&mut text).unwrap();
        assert_eq!(text, "01234");
        assert_eq!(workspace.read_contained("missing", 9).unwrap_err().kind(), ErrorKind::NotFound);
        fifo(&stage.guest("workspace/fifo"));
        assert_eq!(workspace.read_contained("fifo", 9).unwrap_err().kind(), ErrorKind::NotRegular);
        assert_eq!(workspace.read_range("fifo", 0, 9).unwrap_err().kind(), ErrorKind::NotRegular);
    });
}

#[test]
fn makes_deletes_and_renames_without_overwriting() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        assert_eq!(workspace.ensure_dir("x/y").unwrap(), Ensured::Created);
        assert_eq!(workspace.ensure_dir("/session/workspace/x/y/").unwrap(), Ensured::Existed);
        workspace.write_exclusive("-rf", "dash").unwrap();
        workspace.write_exclusive("b", "b").unwrap();
        assert_eq!(workspace.rename("-rf", "b").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(workspace.rename("-rf", "x").unwrap_err().kind(), ErrorKind::AlreadyExists);
        workspace.rename("-rf", "new/place/c").unwrap();
        assert_eq!(workspace.read_contained("new/place/c", 10).unwrap(), b"dash");
        assert_eq!(workspace.rename("gone", "z/d").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!workspace.exists("z").unwrap());

        assert_eq!(workspace.remove_file("x").unwrap_err().kind(), ErrorKind::NotRegular);
        workspace.remove_file("b").unwrap();
        assert!(!workspace.exists("b").unwrap());
        assert!(workspace.remove_tree_contained("x").unwrap().is_complete());
        symlink(stage.home.path(), stage.guest("workspace/home")).unwrap();
        assert_eq!(workspace.remove_tree_contained("home").unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.exists("home").unwrap_err().kind(), ErrorKind::Symlink);
        workspace.remove_file("home").unwrap();
    });
}

#[test]
fn moves_a_file_across_sessions_as_a_new_inode() {
    with_each_resolver(|stage| {
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        let workspace = stage.session.workspace();
        workspace.write_exclusive("a", "hello").unwrap();
        let before = workspace.metadata("a").unwrap().ino();
        let too_large = workspace.move_to("a", &other.workspace(), "b/a", 4).unwrap_err();
        assert_eq!(too_large.kind(), ErrorKind::TooLarge);
        workspace.move_to("a", &other.workspace(), "b/a", 100).unwrap();
        assert!(!workspace.exists("a").unwrap());
        assert_eq!(other.workspace().read_contained("b/a", 100).unwrap(), b"hello");
        assert_ne!(other.workspace().metadata("b/a").unwrap().ino(), before);

        workspace.write_exclusive("a", "again").unwrap();
        let taken = workspace.move_to("a", &other.workspace(), "b/a", 100).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        assert_eq!(workspace.read_contained("a", 100).unwrap(), b"again");
    });
}

#[test]
fn lists_with_filter_recursion_and_limits() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write_exclusive("b/inner", "12345").unwrap();
        workspace.write_exclusive(".hidden/x", "").unwrap();
        workspace.write_exclusive("a\u{301} b", "").unwrap();
        fs::write(stage.guest("workspace/new\nline"), "").unwrap();
        symlink("/etc/passwd", stage.guest("workspace/link")).unwrap();
        let paths = |raw: &str, options| {
            let listing = workspace.list(raw, options).unwrap();
            let paths: Vec<String> =
                listing.entries.iter().map(|entry| entry.path().to_str().unwrap().to_owned()).collect();
            (paths, listing.truncated)
        };
        let plain = ListOptions::default();
        let top = vec!["a\u{301} b".to_owned(), "b".into(), "link".into(), "new\nline".into()];
        for raw in ["", ".", "/", "/session/workspace", "/session/workspace/"] {
            assert_eq!(paths(raw, plain.clone()), (top.clone(), false), "{raw:?}");
        }
        assert_eq!(paths("b", plain.clone()), (vec!["inner".to_owned()], false));
        assert_eq!(paths("", plain.clone().with_hidden()).0.len(), 5);
        assert_eq!(paths("", plain.clone().recursive()).0.len(), 5);
        assert_eq!(paths("", plain.clone().recursive().with_hidden()).0.len(), 7);
        assert!(paths("", plain.clone().with_entries(3)).1);
        assert!(!paths("", plain.clone().with_entries(4)).1);
        assert!(paths("", plain.clone().recursive().with_entries(4)).1);

        let listing = workspace.list("", plain.clone()).unwrap();
        assert_eq!(listing.entries[2].metadata().file_type(), FileType::Symlink);
        assert_eq!(workspace.list("link", plain).unwrap_err().kind(), ErrorKind::Symlink);
    });
}

#[test]
fn a_replaced_workspace_is_refused_until_it_is_repaired() {
    with_each_resolver(|stage| {
        stage.replace_by_link("workspace", stage.home.path());
        let workspace = stage.session.workspace();
        assert_eq!(workspace.read_contained("diary.txt", 100).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.write_exclusive("x", "x").unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.remove_file("diary.txt").unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.list("", ListOptions::default()).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.rename("diary.txt", "x").unwrap_err().kind(), ErrorKind::Symlink);
        let _ = stage.session.repair().unwrap();
        workspace.write_exclusive("x", "x").unwrap();
    });
}

#[test]
fn what_is_too_large_is_refused_in_the_name_of_the_call() {
    with_each_resolver(|stage| {
        let session = &stage.session;
        session.workspace().write_exclusive("a.db", [0; 100]).unwrap();
        stage.send("7", &[("a.db", &[0; 100])]);
        let large = |error: beneath::Error| {
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            error.operation()
        };
        let moved = session.workspace().move_to("a.db", &session.workspace(), "b.db", 99);
        assert_eq!(large(moved.unwrap_err()), "move");
        assert_eq!(large(session.copy_db("a.db", 99).unwrap_err()), "copy database");
        assert!(session.workspace().exists("a.db").unwrap(), "and it is still there");
    });
}
