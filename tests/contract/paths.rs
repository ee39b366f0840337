//! The form of a path is judged the same way by every operation, before anything is looked up.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use beneath::ErrorKind;

use beneath_kit::operations::{
    ACCESS, Effect, Leaf, OPERATIONS, On, Operation, RENAME_SOURCE, operation, operations_but, operations_on,
};
use beneath_kit::{for_each_resolver, kind};

/// Forms that no operation takes. `a` is a directory, `a/f` and `f` are files.
fn never_valid() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 40] = [
        b"",
        b"/",
        b"//",
        b"/a",
        b"/a/f",
        b"//a",
        b"..",
        b"../",
        b"../a",
        b"../outside/secret",
        b"/..",
        b"a/..",
        b"a/../",
        b"a/../f",
        b"a/../../outside/secret",
        b"none/../f",
        b"./a",
        b"./",
        b"././",
        b"a/.",
        b"a/./",
        b"a/./f",
        b"f/.",
        b"a//f",
        b"a//",
        b"a///",
        b"f//",
        b"\0",
        b"a\0",
        b"\0a",
        b"a\0/f",
        b"a/\0f",
        b"./..",
        b"../.",
        b"..//a",
        b"a/f/..",
        b"f/../a",
        b".//a",
        b"a/..\0",
        b"/\0",
    ];
    let mut paths: Vec<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
    paths.push(vec![b'n'; 256]);
    paths.push([b"a/".as_slice(), &[b'n'; 256]].concat());
    paths.push([&[b'n'; 256], b"/f".as_slice()].concat());
    paths.push(b"d/".repeat(2048)[..4096].to_vec());
    paths.push(vec![b'x'; 100_000]);
    paths
}

/// An attempt to leave is called so, whatever else is wrong with the path.
fn refusal(raw: &[u8]) -> ErrorKind {
    let up = raw.split(|byte| *byte == b'/').any(|component| component == b"..");
    if up || raw.starts_with(b"/") { ErrorKind::Escape } else { ErrorKind::InvalidPath }
}

fn path(raw: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(raw))
}

#[test]
fn every_operation_refuses_the_same_forms() {
    for_each_resolver(|root, arena| {
        arena.file("a/f", "x").file("f", "x").file(RENAME_SOURCE, "x");
        let before = arena.snapshot();
        for op in OPERATIONS {
            for raw in never_valid() {
                let shown = raw.escape_ascii().take(60).collect::<Vec<_>>();
                let shown = String::from_utf8_lossy(&shown);
                match op.run_on(root, path(&raw)) {
                    Ok(_) => panic!("{op:?} took {shown}"),
                    Err(error) => assert_eq!(error.kind(), refusal(&raw), "{op:?} {shown}: {error}"),
                }
                before.assert_same(&arena.snapshot(), &format!("{op:?} {shown}"));
            }
        }
    });
}

#[test]
fn only_a_directory_that_stays_takes_the_dot() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").file(RENAME_SOURCE, "x");
        operation("copy_tree_to").run_on(root, ".").unwrap();
        let before = arena.snapshot();
        // A copy that comes and goes in the root changes its times.
        let leave_it = |op: &&Operation| op.effect != Effect::SetsAccess && !op.calls("copy_tree_to");
        for op in OPERATIONS.iter().filter(leave_it) {
            let outcome = op.run_on(root, ".");
            if op.takes_dot {
                outcome.unwrap();
            } else {
                assert_eq!(kind(outcome), ErrorKind::InvalidPath, "{op:?}");
            }
        }
        before.assert_same(&arena.snapshot(), "a dot changed something");
        operation("set_access").run_on(root, ".").unwrap();
        assert_eq!(arena.mode_of("."), ACCESS.dir_mode());
    });
}

#[test]
fn a_file_takes_no_trailing_slash() {
    for_each_resolver(|root, arena| {
        arena.dir("a").file("f", "x").file(RENAME_SOURCE, "x");
        let before = arena.snapshot();
        for op in operations_on(On::File) {
            for form in ["a/", "f/", "new/", "a/new/"] {
                assert_eq!(kind(op.run_on(root, form)), ErrorKind::InvalidPath, "{op:?} {form}");
            }
        }
        // These may mean a directory, but never a file.
        for op in operations_but(&["ensure_dir"]).filter(|op| op.on != On::File) {
            let kind = kind(op.run_on(root, "f/"));
            assert!(matches!(kind, ErrorKind::InvalidPath | ErrorKind::NotDirectory), "{op:?}: {kind:?}");
        }
        before.assert_same(&arena.snapshot(), "a slash changed something");
    });
}

#[test]
fn a_directory_takes_one_trailing_slash() {
    for_each_resolver(|root, arena| {
        for op in operations_on(On::Directory) {
            match op.leaf {
                Leaf::EmptyDirectory => drop(fs::remove_file(arena.at("a/b/f"))),
                _ => _ = arena.file("a/b/f", "x"),
            }
            op.run_on(root, "a/b/").unwrap();
            arena.dir("a/b");
            assert_eq!(kind(op.run_on(root, "a/b//")), ErrorKind::InvalidPath, "{op:?}");
        }
    });
}

#[test]
fn a_slash_does_not_make_a_link_a_directory() {
    for_each_resolver(|root, arena| {
        arena.link("out", arena.outside()).link("rel", "../outside").link("in", "d").file("d/f", "x");
        let before = arena.snapshot();
        for op in operations_on(On::Directory) {
            for form in ["out/", "rel/", "in/"] {
                let kind = kind(op.run_on(root, form));
                let expected = matches!(kind, ErrorKind::Symlink)
                    || (op.name == "ensure_dir" && kind == ErrorKind::AlreadyExists)
                    || (op.name == "remove_dir" && kind == ErrorKind::NotDirectory);
                assert!(expected, "{op:?} {form}: {kind:?}");
            }
        }
        before.assert_same(&arena.snapshot(), "a slash after a link");
    });
}

#[test]
fn the_longest_forms_are_taken() {
    for_each_resolver(|root, arena| {
        let name = "n".repeat(255);
        root.write_exclusive(&name, "x").unwrap();
        assert_eq!(root.read_contained(&name, 9).unwrap(), b"x");
        root.remove_file(&name).unwrap();
        // 4,095 bytes: 2,047 levels and a name.
        let path = format!("{}f", "d/".repeat(2047));
        assert_eq!(path.len(), 4095);
        assert_eq!(kind(root.read_contained(&path, 9)), ErrorKind::NotFound);
        root.ensure_dir(path.trim_end_matches("/f")).unwrap();
        root.write_exclusive(&path, "deep").unwrap();
        assert_eq!(root.read_contained(&path, 9).unwrap(), b"deep");
        assert_eq!(root.metadata(&path).unwrap().len(), 4);
        assert!(root.remove_tree_contained("d").unwrap().is_complete());
        assert!(arena.names(".").is_empty());
    });
}

#[test]
fn any_other_byte_is_a_name() {
    for_each_resolver(|root, arena| {
        let names: [&[u8]; 16] = [
            b"...",
            b"..a",
            b"a..",
            b".a",
            b" ",
            b"-rf",
            b"*",
            b"$HOME",
            b"%2e%2e",
            b"a\\b",
            b"\n",
            b"\x1b[2J",
            b"\xff\xfe",
            b"\xc0\xae\xc0\xae",
            "\u{202e}gnp".as_bytes(),
            "\u{2024}\u{2024}".as_bytes(),
        ];
        for raw in names {
            let name = path(raw);
            root.write_exclusive(name, raw).unwrap();
            assert_eq!(root.read_contained(name, 99).unwrap(), raw);
            assert_eq!(root.metadata(name).unwrap().len(), raw.len() as u64);
            assert_eq!(kind(root.write_exclusive(name, "y")), ErrorKind::AlreadyExists);
        }
        assert_eq!(root.list(".").unwrap().count(), names.len());
        for raw in names {
            root.remove_file(path(raw)).unwrap();
        }
        assert!(arena.names(".").is_empty());
    });
}
