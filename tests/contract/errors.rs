//! Both resolvers report the same, in text that is safe to print and shows nothing of the host.

use std::error::Error as _;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use beneath::{Error, ErrorKind, Policy, ResolverChoice};

use beneath_kit::operations::{OPERATIONS, RENAME_SOURCE};
use beneath_kit::{Arena, for_each_resolver, has_openat2, skip};

/// A zoo with one of everything, and paths to each animal, past each animal and through each animal.
fn zoo() -> (Arena, Vec<String>) {
    let arena = Arena::quick();
    arena.file("file", "x").dir("dir/sub").fifo("fifo").socket("socket").file(RENAME_SOURCE, "x");
    arena.link("to-file", "file").link("to-dir", "dir").link("dangling", "nowhere").link("loop", "loop");
    arena
        .link("out", arena.outside())
        .link("out-rel", "../outside")
        .link("dot", ".")
        .link("slash", arena.base());
    arena
        .link("fifo-link", "fifo")
        .link("chain", "to-dir")
        .link("dir/up", "..")
        .link("dir/out", "../../outside");
    arena.link("secret", "../outside/secret").file("one", "x").hard_link("two", arena.at("one"));
    let animals = [
        "file",
        "dir",
        "fifo",
        "socket",
        "to-file",
        "to-dir",
        "dangling",
        "loop",
        "out",
        "out-rel",
        "dot",
        "slash",
        "fifo-link",
        "chain",
        "dir/up",
        "dir/out",
        "secret",
        "two",
        "missing",
        "dir/sub",
    ];
    let mut paths = Vec::new();
    for animal in animals {
        for form in ["", "/", "/x", "/x/y", "/secret", "/sub"] {
            paths.push(format!("{animal}{form}"));
        }
    }
    (arena, paths)
}

#[test]
fn both_resolvers_give_the_same_kind_for_the_same_situation() {
    if !has_openat2() {
        return skip("there is only one resolver here");
    }
    let (_, paths) = zoo();
    for op in OPERATIONS {
        let outcomes = [ResolverChoice::Openat2, ResolverChoice::Walk].map(|choice| {
            let (mut arena, _) = zoo();
            let mut kinds = Vec::new();
            for path in &paths {
                let root = arena.open(Policy::default().with_resolver(choice));
                let outcome = op.run_on(&root, path).map(drop).map_err(|error| error.kind());
                let changed = outcome.is_ok();
                kinds.push(outcome);
                if changed {
                    (arena, _) = zoo();
                }
            }
            kinds
        });
        for ((path, by_openat2), by_walk) in paths.iter().zip(&outcomes[0]).zip(&outcomes[1]) {
            assert_eq!(by_openat2, by_walk, "{op:?} {path}");
        }
    }
}

#[test]
fn a_link_anywhere_is_reported_as_a_link() {
    for_each_resolver(|root, arena| {
        arena
            .dir("a/b")
            .link("a/b/l", arena.outside())
            .link("a/l", "b")
            .link("l", "a")
            .file(RENAME_SOURCE, "x");
        for op in OPERATIONS {
            for path in ["l/b/x", "a/l/x", "a/b/l/x", "l/l/x", "a/b/l/sub/x"] {
                let error = op.run_on(root, path).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Symlink, "{op:?} {path}: {error}");
            }
        }
    });
}

#[test]
fn display_is_one_safe_line_without_host_paths() {
    let hostile: [&[u8]; 6] = [
        b"a\nb: ok",
        b"\x1b[2Jx",
        b"\xff\xfe",
        "photo\u{202e}gnp".as_bytes(),
        "\u{200b}".as_bytes(),
        b"say \"hi\"",
    ];
    for_each_resolver(|root, arena| {
        arena.file(RENAME_SOURCE, "x").link("out", arena.outside());
        for raw in hostile {
            let name = Path::new(OsStr::from_bytes(raw));
            arena.link(name, arena.outside());
            for op in OPERATIONS {
                for path in [name.to_path_buf(), name.join("x"), Path::new("missing").join(name)] {
                    let Err(error) = op.run_on(root, &path) else { continue };
                    shown_safely(&error, arena);
                    assert!(error.subject().is_some(), "{op:?}");
                }
            }
            let _ = std::fs::remove_file(arena.at(name));
        }
    });
}

fn shown_safely(error: &Error, arena: &Arena) {
    let mut shown = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        shown.push_str(&inner.to_string());
        source = inner.source();
    }
    assert!(
        shown
            .chars()
            .all(|c| !c.is_control() && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')),
        "{shown:?}"
    );
    for secret in [arena.base().to_str().unwrap(), "/proc/"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn display_names_operation_subject_and_reason() {
    for_each_resolver(|root, arena| {
        arena.file("a.txt", "x").link("l", "a.txt");
        let shown = |error: Error| error.to_string();
        let error = root.write_exclusive("a.txt", "y").unwrap_err();
        assert_eq!(shown(error), r#"write "a.txt": name is already taken"#);
        let error = root.read_contained("l", 9).unwrap_err();
        assert_eq!(shown(error), r#"read "l": is a symbolic link"#);
        let error = root.read_contained("d/none", 9).unwrap_err();
        assert_eq!(shown(error), r#"read "d/none": not found"#);
    });
}

#[test]
fn subject_is_the_whole_path_even_if_a_parent_failed() {
    for_each_resolver(|root, arena| {
        arena.link("l", arena.outside()).file("f", "x").file(RENAME_SOURCE, "x");
        for op in OPERATIONS {
            for path in ["l/x/y", "f/x/y"] {
                let error = op.run_on(root, path).unwrap_err();
                assert_eq!(error.subject(), Some(Path::new(path)), "{op:?}: {error}");
            }
        }
    });
}

#[test]
fn io_errors_keep_the_meaning() {
    use std::io;
    for_each_resolver(|root, arena| {
        arena.link("l", "x").file("f", "x");
        let of = |error: Error| io::Error::from(error).kind();
        assert_eq!(of(root.read_contained("none", 9).unwrap_err()), io::ErrorKind::NotFound);
        assert_eq!(of(root.read_contained("l", 9).unwrap_err()), io::ErrorKind::PermissionDenied);
        assert_eq!(of(root.write_exclusive("f", "x").unwrap_err()), io::ErrorKind::AlreadyExists);
        assert_eq!(of(root.read_contained("..", 9).unwrap_err()), io::ErrorKind::PermissionDenied);
        assert_eq!(of(root.read_contained("f", 0).unwrap_err()), io::ErrorKind::FileTooLarge);
    });
}
