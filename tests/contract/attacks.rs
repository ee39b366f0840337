//! One test per class of attack, each with a control: the plain way, in the same arena, is caught.
//!
//! A. link at a parent · B. link at the leaf · C. the directory one trusts · D. removal · E. depth · F. modes ·
//! G. not a file · H. hard links · I. moving content · J. bombs · K. names · L. order · N. mounts · P. crashes ·
//! Q. descriptors.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use beneath::{Budget, ErrorKind, Policy};
use rustix::mount::mount_bind;
use rustix::process::{Resource, Rlimit, setrlimit};

use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::operations::{
    Effect, OPERATIONS, Operation, RENAME_SOURCE, RENAME_TARGET, operations, operations_but,
};
use beneath_kit::watchdog::finishes;
use beneath_kit::{Arena, child, for_each_resolver, kind, resolvers, skip, tree, within};

#[test]
fn class_a_link_at_parent_component() {
    for_each_resolver(|root, arena| {
        arena.dir("a/b/c").file(RENAME_SOURCE, "x");
        // Absolute, relative, chained, to itself, to `.`, to the directory above the root: at each depth. Not to `/`:
        // were the crate wrong, this test would cost the machine.
        for (depth, parent) in ["", "a/", "a/b/"].into_iter().enumerate() {
            let up = "../".repeat(depth + 1);
            arena.link(format!("{parent}abs"), arena.outside());
            arena.link(format!("{parent}rel"), format!("{up}outside"));
            arena.link(format!("{parent}chain"), "abs");
            arena.link(format!("{parent}self"), "self");
            arena.link(format!("{parent}here"), ".");
            arena.link(format!("{parent}top"), arena.base());
        }
        let before = arena.snapshot();
        for parent in ["", "a/", "a/b/"] {
            for link in ["abs", "rel", "chain", "self", "here", "top"] {
                for leaf in ["secret", "sub/x", "new"] {
                    for op in OPERATIONS {
                        let path = format!("{parent}{link}/{leaf}");
                        assert_eq!(kind(op.run_on(root, &path)), ErrorKind::Symlink, "{op:?} {path}");
                    }
                }
            }
        }
        before.assert_same(&arena.snapshot(), "through a link");
        let canary = arena.throwaway();
        arena.link("control", &canary);
        fs::write(arena.at("control/planted"), "x").unwrap();
        assert!(canary.join("planted").exists(), "the plain way follows");
    });
}

#[test]
fn class_b_link_at_final_component() {
    for_each_resolver(|root, arena| {
        arena.link("secret", arena.outside().join("secret")).link("dir", arena.outside());
        arena.link("new", arena.outside().join("planted"));
        for link in ["secret", "dir", "new"] {
            assert_eq!(kind(root.read_contained(link, 99)), ErrorKind::Symlink);
            assert_eq!(kind(root.write_exclusive(link, "x")), ErrorKind::AlreadyExists);
            assert_eq!(kind(root.remove_tree_contained(link)), ErrorKind::Symlink);
            root.replace(link, "mine").unwrap();
            assert_eq!(arena.content(link), b"mine");
        }
        let canary = arena.throwaway().join("canary");
        arena.link("control", &canary);
        assert_eq!(fs::read(arena.at("control")).unwrap(), b"CANARY");
        fs::write(arena.at("control"), "x").unwrap();
        assert_eq!(fs::read(canary).unwrap(), b"x", "the plain way overwrites");
    });
}

#[test]
fn class_c_the_trusted_directory_is_replaced() {
    for_each_resolver(|root, arena| {
        type Plant = fn(&Arena);
        let plants: [(Plant, ErrorKind); 4] = [
            (|arena| _ = arena.link("inbox", arena.outside()), ErrorKind::Symlink),
            (|arena| _ = arena.file("inbox", "x"), ErrorKind::NotDirectory),
            (|arena| _ = arena.fifo("inbox"), ErrorKind::NotDirectory),
            (|_| {}, ErrorKind::NotFound),
        ];
        arena.file(RENAME_SOURCE, "x");
        for (plant, expected) in plants {
            plant(arena);
            for op in operations_but(&["ensure_dir"]) {
                assert_eq!(kind(op.run_on(root, "inbox/secret")), expected, "{op:?}");
            }
            for op in operations(&["list", "walk", "descend"]) {
                assert_eq!(kind(op.run_on(root, "inbox")), expected, "{op:?}");
            }
            let _ = fs::remove_file(arena.at("inbox"));
        }
        // The control compares with what the guest chose the directory to be.
        arena.link("inbox", arena.outside());
        let trusted = fs::canonicalize(arena.at("inbox")).unwrap();
        let wanted = fs::canonicalize(arena.at("inbox/secret")).unwrap();
        assert!(wanted.starts_with(&trusted), "the plain check approves");
        assert_eq!(fs::read(wanted).unwrap(), b"SECRET");
    });
}

/// Removes the way a program does that asks what a path is and then uses the path.
fn naive_remove(path: &Path) {
    if fs::metadata(path).is_ok_and(|meta| meta.is_dir()) {
        for entry in fs::read_dir(path).unwrap() {
            naive_remove(&entry.unwrap().path());
        }
    }
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
}

#[test]
fn class_d_removal_stays_inside() {
    for_each_resolver(|root, arena| {
        let plant = |target: &Path| {
            arena.link("msg-a/out", target).link("msg-a/d/out", target).link("msg-a/up", "..");
            arena.link("msg-a/file", target.join("secret"));
        };
        plant(&arena.outside());
        arena.file("msg-b/f", "b").file("database", "db").file("msg-a/f", "a");
        assert!(root.remove_tree_contained("msg-a").unwrap().is_complete());
        assert_eq!(arena.content("msg-b/f"), b"b");
        assert_eq!(arena.content("database"), b"db");
        assert_eq!(arena.names(".").len(), 2);
        let canary = arena.throwaway();
        arena.link("msg-a/out", &canary);
        naive_remove(&arena.at("msg-a"));
        assert!(!canary.join("canary").exists(), "the plain way removes through the link");
    });
}

#[test]
fn class_e_depth_beyond_descriptors() {
    child::run("attacks::class_e_depth_beyond_descriptors", || {
        child::limit_descriptors(128);
        for choice in resolvers() {
            let arena = Arena::new();
            arena.dir("t").dir("control");
            let root = arena.open(Policy::default().with_resolver(choice));
            drop(tree::deep(File::open(arena.at("t")).unwrap(), "d", 500));
            drop(tree::deep(File::open(arena.at("control")).unwrap(), "d", 500));
            assert!(
                fs::remove_dir_all(arena.at("control")).is_err(),
                "the plain way runs out of descriptors"
            );
            assert!(root.remove_tree_contained("t").unwrap().is_complete());
            assert!(root.remove_tree_contained("control").unwrap().is_complete());
        }
    });
}

#[test]
fn class_f_modes_change_only_by_handle() {
    child::run_unprivileged("attacks::class_f_modes_change_only_by_handle", || {
        for_each_resolver(|root, arena| {
            arena.dir("t/closed").link("t/closed/out", arena.outside()).link("t/out", arena.outside());
            arena.link("t/secret", arena.outside().join("secret")).mode("t/closed", 0);
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            // The canary's modes and change times are verified with the arena.
            let canary = arena.throwaway();
            arena.link("control", &canary);
            fs::set_permissions(arena.at("control"), fs::Permissions::from_mode(0o711)).unwrap();
            let mode = fs::metadata(&canary).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o711, "the plain way changes the target");
        });
    });
}

#[test]
fn class_g_special_files_do_not_hang() {
    for choice in resolvers() {
        let arena = Arena::new();
        arena.fifo("p").socket("s").fifo("t/p");
        let root = Arc::new(arena.open(Policy::default().with_resolver(choice)));
        // The others are about the name.
        let about_what_is_there = |op: &&Operation| op.effect != Effect::Replaces && !op.effect.moves();
        let of_any_kind = ["remove_file", "metadata", "try_exists"];
        for op in operations_but(&of_any_kind).filter(about_what_is_there) {
            let root = Arc::clone(&root);
            let outcome = within(&format!("{op:?}"), move || op.run_on(&root, "p"));
            assert!(outcome.is_err(), "{op:?}");
        }
        // The control hangs until somebody opens the other end.
        let path = arena.at("p");
        let control = finishes(Duration::from_millis(300), move || fs::read(path).map(drop).unwrap());
        assert!(control.is_none(), "the plain way was expected to hang");
        drop(File::options().write(true).open(arena.at("p")).unwrap());
        assert!(fs::metadata(arena.at("p")).unwrap().file_type().is_fifo());
    }
}

#[test]
fn class_h_hard_links_show_nothing() {
    for_each_resolver(|root, arena| {
        let canary = arena.throwaway().join("canary");
        arena.hard_link("stolen", &canary).file("own", "x").hard_link("second", arena.at("own"));
        for name in ["stolen", "own", "second"] {
            assert_eq!(kind(root.read_contained(name, 99)), ErrorKind::HardLinked, "{name}");
            assert_eq!(kind(root.open_contained(name)), ErrorKind::HardLinked, "{name}");
            assert_eq!(kind(root.write_exclusive(name, "x")), ErrorKind::AlreadyExists, "{name}");
        }
        root.replace("stolen", "mine").unwrap();
        assert_eq!(fs::read(&canary).unwrap(), b"CANARY");
        arena.hard_link("control", &canary);
        assert_eq!(fs::read(arena.at("control")).unwrap(), b"CANARY", "the plain way reads it");
    });
}

#[test]
fn class_i_content_moves_under_the_reader() {
    for_each_resolver(|root, arena| {
        arena.file("f", [1; 4096]);
        let mut ours = root.open_contained("f").unwrap();
        let mut grown = root.open_contained("f").unwrap();
        let mut control = File::open(arena.at("f")).unwrap();
        let promised = control.metadata().unwrap().len() as usize;
        let writer = File::options().append(true).open(arena.at("f")).unwrap();
        (&writer).write_all(&[2; 8192]).unwrap();
        assert_eq!(kind(grown.read_to_limit(4096)), ErrorKind::TooLarge);
        writer.set_len(100).unwrap();
        assert_eq!(ours.read_to_limit(4096).unwrap().len(), 100);
        assert!(control.read_exact(&mut vec![0; promised]).is_err(), "trusting the size fails");
    });
}

#[test]
fn class_j_a_bomb_does_not_go_off() {
    child::run("attacks::class_j_a_bomb_does_not_go_off", || {
        let limit = Some(1 << 30);
        setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
        for_each_resolver(|root, arena| {
            arena.file("bomb", "");
            if File::options().write(true).open(arena.at("bomb")).unwrap().set_len(1 << 40).is_err() {
                return skip("no sparse terabyte here");
            }
            assert_eq!(kind(root.read_contained("bomb", 1 << 20)), ErrorKind::TooLarge);
            let control = fs::read(arena.at("bomb")).unwrap_err();
            assert_eq!(control.kind(), std::io::ErrorKind::OutOfMemory, "the plain way asks for all of it");
        });
    });
}

#[test]
fn class_k_names_that_travel() {
    for_each_resolver(|root, arena| {
        let outside = arena.outside();
        let absolute = outside.join("secret");
        let names =
            ["../outside/secret", "..", "./../outside/secret", "a/../../outside/secret", "/etc/passwd"];
        arena.dir("a").file(RENAME_SOURCE, "x");
        for op in OPERATIONS {
            for name in names.into_iter().map(Path::new).chain([absolute.as_path()]) {
                assert_eq!(kind(op.run_on(root, name)), ErrorKind::Escape, "{op:?} {}", name.display());
            }
        }
        let control = arena.root().join("../outside/secret");
        assert!(control.starts_with(arena.root()), "the plain check approves");
        assert_eq!(fs::read(control).unwrap(), b"SECRET");
    });
}

#[test]
fn class_l_the_first_writer_keeps_the_name() {
    for_each_resolver(|root, arena| {
        root.write_exclusive("a", "first").unwrap();
        assert_eq!(kind(root.write_exclusive("a", "second")), ErrorKind::AlreadyExists);
        assert_eq!(kind(root.write_exclusive("a/b", "second")), ErrorKind::NotDirectory);
        assert!(matches!(kind(root.ensure_dir("a")), ErrorKind::NotDirectory | ErrorKind::AlreadyExists));
        // Two spellings of one text, and two cases, are four names here: none may land on another.
        for name in ["A", "e\u{301}", "\u{e9}"] {
            let _ = root.write_exclusive(name, name);
        }
        assert_eq!(arena.content("a"), b"first");
        fs::write(arena.at("a"), "last").unwrap();
        assert_eq!(arena.content("a"), b"last", "the plain way lets the last one win");
    });
}

#[test]
fn class_n_mounts_and_magic_links() {
    with_private_mounts(|| {
        for choice in resolvers() {
            let arena = Arena::new();
            let root = arena.open(Policy::default().with_resolver(choice));
            arena.dir("bind").link("magic", "/proc/self/root").link("fd", "/proc/self/fd/0");
            let canary = arena.throwaway();
            mount_bind(&canary, arena.at("bind")).unwrap();
            let _mounted = Mounted([arena.at("bind")]);
            assert_eq!(kind(root.read_contained("bind/canary", 99)), ErrorKind::CrossDevice);
            assert_eq!(kind(root.write_exclusive("bind/new", "x")), ErrorKind::CrossDevice);
            assert_eq!(kind(root.remove_tree_contained("bind")), ErrorKind::CrossDevice);
            assert_eq!(kind(root.read_contained("magic/etc/passwd", 99)), ErrorKind::Symlink);
            assert_eq!(kind(root.read_contained("fd", 99)), ErrorKind::Symlink);
            assert_eq!(fs::read(arena.at("bind/canary")).unwrap(), b"CANARY", "the plain way crosses");
        }
    });
}

/// Not a test of its own: dies in the middle of both ways to write.
#[test]
fn dies_while_writing() {
    if child::is("attacks::dies_while_writing") {
        let place = std::env::var_os("BENEATH_TEST_PLACE").unwrap();
        let root = beneath::Root::open_ambient(&place, beneath::ambient_authority()).unwrap();
        let mut ours = root.new_file("ours").unwrap();
        ours.write_all(b"half").unwrap();
        let mut control = File::create(Path::new(&place).join("control")).unwrap();
        control.write_all(b"half").unwrap();
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

#[test]
fn class_p_a_crash_leaves_nothing_torn() {
    let arena = Arena::new();
    let mut writer = child::command("attacks::dies_while_writing");
    let output = writer.env("BENEATH_TEST_PLACE", arena.root()).output().unwrap();
    assert!(!output.status.success());
    assert!(!arena.has("ours"));
    assert_eq!(arena.content("control"), b"half", "the plain way leaves half a file");
    assert_eq!(arena.names(".").len(), 1);
}

#[test]
fn class_q_every_descriptor_limit_is_survived() {
    child::run("attacks::class_q_every_descriptor_limit_is_survived", || {
        for choice in resolvers() {
            let arena = Arena::quick();
            arena.file("a/b/c/f", "x").link("a/l", "b").fifo("p").file(RENAME_SOURCE, "x").file("f", "x");
            let root = arena.open(Policy::default().with_resolver(choice));
            let before = child::open_descriptors();
            let mut succeeded = 0;
            for limit in (0..24).chain([32, 48, 64]) {
                let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
                let set = |current| {
                    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap()
                };
                for op in OPERATIONS {
                    for path in ["a/b/c/f", "a/b/c", "a/b/c/new", "a/l/x", "p", "none/x"] {
                        set(limit);
                        let outcome = op.run_on(&root, path);
                        set(1024);
                        match outcome {
                            Ok(_) => {
                                succeeded += 1;
                                for made in ["a", "none", "p", RENAME_SOURCE, RENAME_TARGET] {
                                    let made = arena.at(made);
                                    let _ = fs::remove_file(&made).or_else(|_| fs::remove_dir_all(&made));
                                }
                                arena
                                    .file("a/b/c/f", "x")
                                    .link("a/l", "b")
                                    .fifo("p")
                                    .file(RENAME_SOURCE, "x");
                            }
                            Err(error) => {
                                assert!(error.kind() != ErrorKind::Io, "{op:?} {path} at {limit}: {error}")
                            }
                        }
                        let after = child::open_descriptors();
                        assert_eq!(after, before, "{op:?} {path} at {limit} leaked");
                    }
                }
            }
            assert!(succeeded > 100);
            let budget = Budget::unlimited();
            assert!(root.remove_tree_contained_within("a", budget).unwrap().is_complete());
            let leak = File::open(arena.at("f")).unwrap();
            assert_eq!(child::open_descriptors(), before + 1, "the count sees a leak");
            drop(leak);
        }
    });
}
