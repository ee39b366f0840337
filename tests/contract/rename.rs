//! Moves that replace or exchange: in one step, at both ends beneath a root, and never through a link.

use std::fs;

use beneath::{Durability, ErrorKind, Policy, Rename};

use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{for_each_policy, for_each_resolver, kind};
use rustix::io::Errno;

const HOW: [Rename; 3] = [Rename::NoReplace, Rename::Replace, Rename::Exchange];

#[test]
fn a_move_replaces_what_is_at_the_new_name_if_asked() {
    for_each_policy(&Policy::default().with_durability(Durability::Full), |root, arena| {
        for old in ["file", "link", "fifo", "out"] {
            arena.file("d/new", "new").file("file", "old").link("link", "file").fifo("fifo");
            arena.link("out", arena.outside().join("secret"));
            root.rename_with("d/new", root, old, Rename::Replace).unwrap();
            assert_eq!(arena.content(old), b"new", "{old}");
            assert!(!arena.has("d/new") && fs::symlink_metadata(arena.at(old)).unwrap().is_file());
            for name in arena.names(".").iter().filter(|name| *name != "d") {
                fs::remove_file(arena.at(name)).unwrap();
            }
        }
        arena.file("full/x", "x").dir("empty");
        root.rename_with("full", root, "empty", Rename::Replace).unwrap();
        assert_eq!(arena.content("empty/x"), b"x");
    });
}

#[test]
fn a_link_that_is_moved_takes_the_place_itself() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").link("l", arena.outside().join("secret"));
        root.rename_with("l", root, "f", Rename::Replace).unwrap();
        assert_eq!(root.read_link("f").unwrap(), arena.outside().join("secret"));
        arena.file("g", "y");
        root.rename_with("g", root, "f", Rename::Exchange).unwrap();
        assert_eq!(root.read_link("g").unwrap(), arena.outside().join("secret"));
        assert_eq!(arena.content("f"), b"y");
    });
}

#[test]
fn a_replacement_of_the_wrong_kind_is_refused_and_the_new_name_is_blamed() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").file("full/x", "x").dir("empty").file("g", "y");
        let before = arena.snapshot();
        for (from, to, expected) in [
            ("f", "empty", ErrorKind::NotRegular),
            ("f", "full", ErrorKind::NotRegular),
            ("empty", "f", ErrorKind::NotDirectory),
            ("empty", "full", ErrorKind::AlreadyExists),
            ("full/x", "full", ErrorKind::AlreadyExists),
        ] {
            let error = root.rename_with(from, root, to, Rename::Replace).unwrap_err();
            // A file over the directory that holds it is refused as that or as a directory that is not empty.
            assert!(
                error.kind() == expected || from == "full/x" && error.kind() == ErrorKind::NotRegular,
                "{from} {to}: {error}"
            );
            assert_eq!(error.subject().unwrap().to_str(), Some(to));
        }
        let error = root.rename_with("none", root, "f", Rename::Replace).unwrap_err();
        assert_eq!((error.kind(), error.subject().unwrap().to_str()), (ErrorKind::NotFound, Some("none")));
        before.assert_same(&arena.snapshot(), "a refused move");
    });
}

#[test]
fn two_entries_of_any_kind_change_places() {
    for_each_policy(&Policy::default().with_durability(Durability::Full), |root, arena| {
        arena.file("f", "x").file("d/x", "in d").fifo("p").link("l", "f").dir("sub");
        root.rename_with("f", root, "d", Rename::Exchange).unwrap();
        assert_eq!((arena.content("d"), arena.content("f/x")), (b"x".to_vec(), b"in d".to_vec()));
        root.rename_with("f", root, "d", Rename::Exchange).unwrap();
        root.rename_with("p", root, "l", Rename::Exchange).unwrap();
        assert_eq!(root.read_link("p").unwrap().to_str(), Some("f"));
        assert_eq!(arena.names(".").len(), 5);
    });
}

#[test]
fn an_exchange_needs_both_and_blames_the_one_that_is_missing() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").file("d/x", "y");
        let before = arena.snapshot();
        for (from, to, missing) in [("f", "none", "none"), ("none", "f", "none"), ("gone", "none", "gone")] {
            let error = root.rename_with(from, root, to, Rename::Exchange).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{from} {to}");
            assert_eq!(error.subject().unwrap().to_str(), Some(missing), "{from} {to}");
        }
        for (from, to) in [("d", "d/x"), ("d/x", "d")] {
            let error = root.rename_with(from, root, to, Rename::Exchange).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPath, "{from} {to}: {error}");
        }
        before.assert_same(&arena.snapshot(), "a refused exchange");
    });
}

#[test]
fn an_entry_that_is_moved_onto_itself_stays() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").file("d/x", "y").link("l", "l");
        for name in ["f", "d", "l"] {
            let before = arena.snapshot();
            for how in [Rename::Replace, Rename::Exchange] {
                root.rename_with(name, root, name, how).unwrap();
            }
            assert_eq!(kind(root.rename(name, name)), ErrorKind::AlreadyExists, "{name}");
            before.assert_same(&arena.snapshot(), name);
        }
    });
}

#[test]
fn a_file_system_that_cannot_exchange_says_so() {
    for errno in [Errno::INVAL, Errno::NOSYS] {
        denied(&[Denial::Rename(errno)], || {
            for_each_resolver(|root, arena| {
                arena.file("d/x", "x").file("e/x", "y");
                let before = arena.snapshot();
                let (one, two) = (root.descend("d").unwrap(), root.descend("e").unwrap());
                for refused in [
                    root.rename_with("d", root, "e", Rename::Exchange),
                    one.rename_with("x", &two, "x", Rename::Exchange),
                ] {
                    assert_eq!(kind(refused), ErrorKind::Unsupported, "{errno}");
                }
                before.assert_same(&arena.snapshot(), "a refused exchange");
            });
        });
    }
}

#[test]
fn both_ends_of_every_move_stay_beneath_their_roots() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").dir("d").link("in", "d").link("out", arena.outside()).link("loop", "loop");
        let before = arena.snapshot();
        for how in HOW {
            for link in ["in/x", "out/secret", "loop/x"] {
                assert_eq!(kind(root.rename_with("f", root, link, how)), ErrorKind::Symlink, "{how:?}");
                assert_eq!(kind(root.rename_with(link, root, "f", how)), ErrorKind::Symlink, "{how:?}");
            }
            for path in ["../outside/secret", "/etc/passwd"] {
                assert_eq!(kind(root.rename_with("f", root, path, how)), ErrorKind::Escape, "{how:?}");
                assert_eq!(kind(root.rename_with(path, root, "f", how)), ErrorKind::Escape, "{how:?}");
            }
        }
        before.assert_same(&arena.snapshot(), "a refused move");
    });
}

#[test]
fn entries_change_places_between_two_roots() {
    for_each_resolver(|root, arena| {
        arena.file("one/f", "1").file("two/f", "2");
        let (one, two) = (root.descend("one").unwrap(), root.descend("two").unwrap());
        one.rename_with("f", &two, "f", Rename::Exchange).unwrap();
        assert_eq!((arena.content("one/f"), arena.content("two/f")), (b"2".to_vec(), b"1".to_vec()));
        one.rename_with("f", &two, "f", Rename::Replace).unwrap();
        assert!(arena.names("one").is_empty());
        assert_eq!(arena.content("two/f"), b"2");
    });
}

#[test]
fn two_names_of_one_file_stay_two_names() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").hard_link("g", arena.at("f"));
        root.rename_with("f", root, "g", Rename::Replace).unwrap();
        assert!(arena.has("f") && arena.has("g"));
        assert_eq!(kind(root.rename_with("f", root, "g", Rename::NoReplace)), ErrorKind::AlreadyExists);
    });
}
