use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;

use beneath::session::ListOptions;
use beneath::{Ensured, ErrorKind, FileType, SessionId};

use crate::support::{fifo, with_each_resolver};

#[test]
fn three_spellings_reach_one_file() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write("a/b.bin", b"\0\xff\n'\"$(id)").unwrap();
        for spelling in ["a/b.bin", "/a/b.bin", "/workspace/a/b.bin", "/workspace/workspace/a/b.bin"] {
            assert_eq!(workspace.read(spelling, 100).unwrap(), b"\0\xff\n'\"$(id)", "{spelling}");
        }
        for bad in ["..", "a/../b", "../x", "/workspace/../x"] {
            assert_eq!(workspace.read(bad, 100).unwrap_err().kind(), ErrorKind::Escape, "{bad:?}");
        }
        for bad in ["", "a//b", "a\0b", "/workspace"] {
            assert_eq!(workspace.read(bad, 100).unwrap_err().kind(), ErrorKind::InvalidPath, "{bad:?}");
        }
    });
}

#[test]
fn writes_exclusively_or_in_place_and_never_through_a_link() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write("a", "one").unwrap();
        assert_eq!(workspace.write("a", "two").unwrap_err().kind(), ErrorKind::AlreadyExists);
        workspace.replace("a", "two").unwrap();
        assert_eq!(workspace.read("a", 10).unwrap(), b"two");

        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/link")).unwrap();
        assert_eq!(workspace.write("link", "x").unwrap_err().kind(), ErrorKind::AlreadyExists);
        workspace.replace("link", "x").unwrap();
        assert_eq!(workspace.read("link", 10).unwrap(), b"x");

        let mut file = workspace.new_file("big").unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.commit().unwrap();
        assert_eq!(workspace.stat("big").unwrap().len(), 100_000);
    });
}

#[test]
fn reads_whole_in_range_and_as_a_stream() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write("a", "0123456789").unwrap();
        assert_eq!(workspace.read("a", 9).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(workspace.read_range("a", 3, 4).unwrap(), b"3456");
        assert_eq!(workspace.read_range("a", 8, 100).unwrap(), b"89");
        assert_eq!(workspace.read_range("a", 100, 100).unwrap(), b"");
        assert_eq!(workspace.read_range("a", u64::MAX, 100).unwrap(), b"");
        let mut text = String::new();
        workspace.open("a").unwrap().take(5).read_to_string(&mut text).unwrap();
        assert_eq!(text, "01234");
        assert_eq!(workspace.read("missing", 9).unwrap_err().kind(), ErrorKind::NotFound);
        fifo(&stage.guest("workspace/fifo"));
        assert_eq!(workspace.read("fifo", 9).unwrap_err().kind(), ErrorKind::NotRegular);
        assert_eq!(workspace.read_range("fifo", 0, 9).unwrap_err().kind(), ErrorKind::NotRegular);
    });
}

#[test]
fn makes_deletes_and_renames_without_overwriting() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        assert_eq!(workspace.mkdir("x/y").unwrap(), Ensured::Created);
        assert_eq!(workspace.mkdir("/workspace/x/y/").unwrap(), Ensured::Existed);
        workspace.write("-rf", "dash").unwrap();
        workspace.write("b", "b").unwrap();
        assert_eq!(workspace.rename("-rf", "b").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(workspace.rename("-rf", "x").unwrap_err().kind(), ErrorKind::AlreadyExists);
        workspace.rename("-rf", "new/place/c").unwrap();
        assert_eq!(workspace.read("new/place/c", 10).unwrap(), b"dash");
        assert_eq!(workspace.rename("gone", "z/d").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!workspace.exists("z").unwrap());

        assert_eq!(workspace.delete("x").unwrap_err().kind(), ErrorKind::NotRegular);
        workspace.delete("b").unwrap();
        assert!(!workspace.exists("b").unwrap());
        assert!(workspace.delete_tree("x").unwrap().is_complete());
        symlink(stage.home.path(), stage.guest("workspace/home")).unwrap();
        assert_eq!(workspace.delete_tree("home").unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.exists("home").unwrap_err().kind(), ErrorKind::Symlink);
        workspace.delete("home").unwrap();
    });
}

#[test]
fn moves_a_file_across_sessions_as_a_new_inode() {
    with_each_resolver(|stage| {
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        let workspace = stage.session.workspace();
        workspace.write("a", "hello").unwrap();
        let before = workspace.stat("a").unwrap().ino();
        let too_large = workspace.move_to("a", &other.workspace(), "b/a", 4).unwrap_err();
        assert_eq!(too_large.kind(), ErrorKind::TooLarge);
        workspace.move_to("a", &other.workspace(), "b/a", 100).unwrap();
        assert!(!workspace.exists("a").unwrap());
        assert_eq!(other.workspace().read("b/a", 100).unwrap(), b"hello");
        assert_ne!(other.workspace().stat("b/a").unwrap().ino(), before);

        workspace.write("a", "again").unwrap();
        let taken = workspace.move_to("a", &other.workspace(), "b/a", 100).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        assert_eq!(workspace.read("a", 100).unwrap(), b"again");
    });
}

#[test]
fn lists_with_filter_recursion_and_limits() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write("b/inner", "12345").unwrap();
        workspace.write(".hidden/x", "").unwrap();
        workspace.write("a\u{301} b", "").unwrap();
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
        for raw in ["", ".", "/", "/workspace", "/workspace/workspace/"] {
            assert_eq!(paths(raw, plain), (top.clone(), false), "{raw:?}");
        }
        assert_eq!(paths("b", plain), (vec!["inner".to_owned()], false));
        assert_eq!(paths("", plain.with_hidden()).0.len(), 5);
        assert_eq!(paths("", plain.recursive()).0.len(), 5);
        assert_eq!(paths("", plain.recursive().with_hidden()).0.len(), 7);
        assert!(paths("", plain.with_entries(3)).1);
        assert!(!paths("", plain.with_entries(4)).1);
        assert!(paths("", plain.recursive().with_entries(4)).1);

        let listing = workspace.list("", plain).unwrap();
        assert_eq!(listing.entries[2].metadata().file_type(), FileType::Symlink);
        assert_eq!(workspace.list("link", plain).unwrap_err().kind(), ErrorKind::Symlink);
    });
}

#[test]
fn a_replaced_workspace_is_refused_until_it_is_repaired() {
    with_each_resolver(|stage| {
        stage.replace_by_link("workspace", stage.home.path());
        let workspace = stage.session.workspace();
        assert_eq!(workspace.read("diary.txt", 100).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.write("x", "x").unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.delete("diary.txt").unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.list("", ListOptions::default()).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.rename("diary.txt", "x").unwrap_err().kind(), ErrorKind::Symlink);
        stage.session.repair().unwrap();
        workspace.write("x", "x").unwrap();
    });
}
