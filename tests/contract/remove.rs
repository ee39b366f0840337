//! Removing trees: all of it, nothing else, in bounded time, and a true report.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use beneath::{Budget, ErrorKind, Policy};
use rustix::fs::{CWD, Mode, RenameFlags, mkdirat, renameat_with};

use crate::support::{Arena, child, for_each_resolver, kind, resolvers, skip, tree, within};

#[test]
fn removes_everything_a_guest_can_make() {
    for_each_resolver(|root, arena| {
        arena.file("t/a/b/f", "x").fifo("t/p").socket("t/a/s").dir("t/empty").link("t/slash", "/");
        arena
            .link("t/out", arena.outside())
            .link("t/up", "..")
            .link("t/a/self", ".")
            .link("t/none", "nowhere");
        arena
            .file(Path::new("t").join(OsStr::from_bytes(b"\xff\n\xfe")), "")
            .file("t/...", "")
            .file("t/-rf", "");
        arena.file(format!("t/{}", "n".repeat(255)), "").hard_link("t/second", arena.at("t/a/b/f"));
        arena.file("sibling/f", "stays");
        let removed = root.remove_tree_contained("t").unwrap();
        assert!(removed.complete, "{removed:?}");
        assert_eq!((removed.files, removed.directories), (13, 4));
        assert!(removed.left.is_empty() && removed.left_total == 0);
        assert!(!arena.has("t"));
        assert_eq!(arena.content("sibling/f"), b"stays");
    });
}

#[test]
fn top_must_be_a_real_directory() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").fifo("p").link("in", "d").link("out", arena.outside()).link("none", "nowhere");
        arena.file("d/f", "x");
        let before = arena.snapshot();
        for (name, expected) in [
            ("f", ErrorKind::NotDirectory),
            ("p", ErrorKind::NotDirectory),
            ("in", ErrorKind::Symlink),
            ("out", ErrorKind::Symlink),
            ("none", ErrorKind::Symlink),
            ("missing", ErrorKind::NotFound),
            ("out/sub", ErrorKind::Symlink),
            ("in/f", ErrorKind::Symlink),
            ("f/x", ErrorKind::NotDirectory),
        ] {
            assert_eq!(kind(root.remove_tree_contained(name)), expected, "{name}");
        }
        before.assert_same(&arena.snapshot(), "a refused removal");
    });
}

#[test]
fn modes_without_permission_do_not_stop_the_owner() {
    child::run_unprivileged("remove::modes_without_permission_do_not_stop_the_owner", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/b/c/f", "x").file("t/z", "x").link("t/a/out", arena.outside());
            for path in ["t/a/b/c", "t/a/b", "t/a"] {
                arena.mode(path, 0);
            }
            arena.mode("t/z", 0);
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.complete, "{removed:?}");
            assert!(!arena.has("t"));
        });
    });
}

#[test]
fn a_top_without_permission_goes_too() {
    child::run_unprivileged("remove::a_top_without_permission_goes_too", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/f", "x").mode("t", 0);
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.complete, "{removed:?}");
            assert!(!arena.has("t"));
        });
    });
}

#[test]
fn what_it_may_not_remove_is_reported_and_the_rest_goes() {
    child::run_unprivileged("remove::what_it_may_not_remove_is_reported_and_the_rest_goes", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/f", "x").file("t/z/f", "x").file("t/f", "x");
            // The top's own directory takes no change: everything inside may go, the top itself may not.
            arena.mode(".", 0o500);
            let removed = root.remove_tree_contained("t").unwrap();
            arena.mode(".", 0o700);
            assert!(!removed.complete, "{removed:?}");
            assert_eq!(removed.left_total, 1, "{removed:?}");
            assert_eq!(removed.left[0].kind, ErrorKind::Denied);
            assert!(arena.names("t").is_empty());
        });
    });
}

#[test]
fn a_budget_of_entries_is_kept() {
    for_each_resolver(|root, arena| {
        arena.dir("t");
        tree::wide(fs::File::open(arena.at("t")).unwrap(), 1_000);
        let budget = Budget::unlimited().with_entries(100);
        let removed = root.remove_tree_contained_within("t", budget).unwrap();
        assert!(!removed.complete);
        assert!(!removed.left.is_empty() && removed.left_total > 0);
        let left = arena.names("t").len();
        assert!((800..1_000).contains(&left), "{left} left");
        assert_eq!(removed.files, 1_000 - left as u64);
        assert!(root.remove_tree_contained_within("t", Budget::unlimited()).unwrap().complete);
    });
}

#[test]
fn a_budget_of_nothing_removes_nothing() {
    for_each_resolver(|root, arena| {
        arena.file("t/f", "x");
        let budget = Budget::unlimited().with_time(Duration::ZERO).with_entries(0);
        let removed = root.remove_tree_contained_within("t", budget).unwrap();
        assert!(!removed.complete);
        assert!(arena.has("t/f"));
    });
}

#[test]
fn deep_trees_go_at_few_descriptors() {
    child::run("remove::deep_trees_go_at_few_descriptors", || {
        child::limit_descriptors(64);
        for choice in resolvers() {
            for (name, levels) in [("d", 1_500), (&*"n".repeat(255), 600)] {
                let arena = Arena::new();
                arena.dir("t").link("t/out", arena.outside());
                let bottom = tree::deep(fs::File::open(arena.at("t")).unwrap(), name, levels);
                tree::wide(&bottom, 3);
                drop(bottom);
                let root = arena.open(Policy::default().with_resolver(choice));
                let before = child::open_descriptors();
                let worker = std::thread::Builder::new().stack_size(256 << 10);
                let root = worker
                    .spawn(move || {
                        let removed = root.remove_tree_contained("t").unwrap();
                        assert!(removed.complete, "{removed:?}");
                        assert_eq!((removed.files, removed.directories), (4, u64::from(levels) + 1));
                        root
                    })
                    .unwrap()
                    .join()
                    .unwrap();
                assert!(!arena.has("t"));
                assert_eq!(child::open_descriptors(), before);
                drop(root);
            }
        }
    });
}

#[test]
fn branches_at_every_level_go_too() {
    child::run("remove::branches_at_every_level_go_too", || {
        child::limit_descriptors(64);
        for choice in resolvers() {
            let arena = Arena::new();
            arena.dir("t");
            // Same names at each level, so that what is moved up meets its namesakes.
            let mut at: std::os::fd::OwnedFd = fs::File::open(arena.at("t")).unwrap().into();
            for _ in 0..300 {
                for name in ["a", "b", "d"] {
                    mkdirat(&at, name, Mode::RWXU).unwrap();
                }
                tree::wide(&at, 2);
                at = tree::deep(&at, "next", 1);
            }
            drop(at);
            let root = arena.open(Policy::default().with_resolver(choice));
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.complete, "{removed:?}");
            assert_eq!((removed.files, removed.directories), (600, 1_201));
            assert!(arena.names(".").is_empty());
        }
    });
}

#[test]
fn a_guest_that_keeps_creating_does_not_hold_it_beyond_its_budget() {
    for choice in resolvers() {
        let arena = Arena::on_tmpfs().unwrap_or_else(Arena::new);
        let root = arena.open(Policy::default().with_resolver(choice));
        let mut incomplete = 0;
        for round in 0..5 {
            let top = format!("t{round}");
            arena.dir(&top);
            tree::wide(fs::File::open(arena.at(&top)).unwrap(), 20_000);
            let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
            let path = arena.at(&top);
            let (removed, took) = std::thread::scope(|scope| {
                for guest in 0..3 {
                    let (stop, made, path) = (&stop, &made, &path);
                    scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            let number = made.fetch_add(1, Ordering::Relaxed);
                            let _ = mkdirat(CWD, path.join(format!("g{guest}-{number}")), Mode::RWXU);
                        }
                    });
                }
                while made.load(Ordering::Relaxed) < 100 {
                    std::thread::yield_now();
                }
                let start = Instant::now();
                let budget = Budget::unlimited().with_time(Duration::from_millis(300));
                let removed = root.remove_tree_contained_within(&top, budget).unwrap();
                let took = start.elapsed();
                stop.store(true, Ordering::Relaxed);
                (removed, took)
            });
            assert!(took < Duration::from_millis(1_300), "took {took:?}");
            assert_eq!(removed.complete, !arena.has(&top) || removed.left.is_empty(), "{removed:?}");
            if !removed.complete {
                assert!(!removed.left.is_empty() && removed.left_total > 0);
                incomplete += 1;
            }
            assert!(root.remove_tree_contained_within(&top, Budget::unlimited()).is_ok() || !arena.has(&top));
            if incomplete > 0 {
                break;
            }
        }
        assert!(incomplete > 0, "the guest never kept up: this showed nothing");
    }
}

#[test]
fn the_default_budget_ends_too() {
    // A thousand passes that each find something new: the default must not be "for ever".
    let arena = Arena::on_tmpfs().unwrap_or_else(Arena::new);
    arena.dir("t");
    let root = arena.open(Policy::default());
    let (stop, path) = (std::sync::Arc::new(AtomicBool::new(false)), arena.at("t"));
    let guests: Vec<_> = (0..3)
        .map(|guest| {
            let (stop, path) = (stop.clone(), path.clone());
            std::thread::spawn(move || {
                for number in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let _ = fs::create_dir(path.join(format!("g{guest}-{}", number % 50)));
                }
            })
        })
        .collect();
    let finished = crate::support::watchdog::finishes(Duration::from_secs(120), move || {
        root.remove_tree_contained("t").map(|removed| removed.complete)
    });
    stop.store(true, Ordering::Relaxed);
    guests.into_iter().for_each(|guest| guest.join().unwrap());
    assert!(finished.is_some(), "still removing after two minutes");
}

#[test]
fn a_directory_exchanged_for_a_link_is_not_followed() {
    for_each_resolver(|root, arena| {
        let outside = arena.outside();
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // One real directory and one link outside, exchanged as fast as the kernel can.
                let (a, b) = (arena.at("t/swap"), arena.at("t/link"));
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::create_dir_all(a.join("sub"));
                    let _ = fs::write(a.join("sub/x"), "");
                    let _ = std::os::unix::fs::symlink(&outside, &b);
                    for _ in 0..10 {
                        let _ = renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            for _ in 0..100 {
                let seen = done.load(Ordering::Relaxed);
                while done.load(Ordering::Relaxed) == seen {
                    std::thread::yield_now();
                }
                let budget = Budget::unlimited().with_time(Duration::from_millis(20));
                match root.remove_tree_contained_within("t", budget) {
                    Ok(_) => {}
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Busy), "{error}")
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn quarantine_takes_the_tree_out_of_reach_first() {
    for_each_resolver(|root, arena| {
        arena.file("guest/t/a/f", "x").link("guest/t/out", arena.outside()).dir("host").dir("guest/keep");
        let (guest, host) = (root.descend("guest").unwrap(), root.descend("host").unwrap());
        let removed = guest.remove_tree_quarantined("t", &host, Budget::default()).unwrap();
        assert!(removed.complete, "{removed:?}");
        assert!(!arena.has("guest/t"));
        assert!(arena.names("host").is_empty());
        assert!(arena.has("guest/keep"));
    });
}

#[test]
fn quarantine_keeps_what_the_budget_left() {
    for_each_resolver(|root, arena| {
        arena.dir("guest/t").dir("host");
        tree::wide(fs::File::open(arena.at("guest/t")).unwrap(), 500);
        let (guest, host) = (root.descend("guest").unwrap(), root.descend("host").unwrap());
        let budget = Budget::unlimited().with_entries(10);
        let removed = guest.remove_tree_quarantined("t", &host, budget).unwrap();
        assert!(!removed.complete);
        assert!(!arena.has("guest/t"), "the guest lost its path to it all the same");
        assert_eq!(arena.names("host").len(), 1);
    });
}

#[test]
fn quarantine_refuses_what_removal_refuses() {
    for_each_resolver(|root, arena| {
        arena.link("l", arena.outside()).file("f", "x").dir("host");
        let host = root.descend("host").unwrap();
        assert_eq!(kind(root.remove_tree_quarantined("l", &host, Budget::default())), ErrorKind::Symlink);
        assert_eq!(
            kind(root.remove_tree_quarantined("f", &host, Budget::default())),
            ErrorKind::NotDirectory
        );
        assert_eq!(kind(root.remove_tree_quarantined("none", &host, Budget::default())), ErrorKind::NotFound);
        assert!(arena.has("l") && arena.has("f"));
        assert!(arena.names("host").is_empty());
    });
}

#[test]
fn a_fifo_in_the_way_does_not_block() {
    for choice in resolvers() {
        let arena = Arena::new();
        arena.fifo("t/p").fifo("t/d/p").socket("t/s");
        let root = arena.open(Policy::default().with_resolver(choice));
        let removed = within("remove with FIFO", move || root.remove_tree_contained("t").unwrap());
        assert!(removed.complete);
    }
}

#[test]
fn immutable_files_are_left_and_named() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    for_each_resolver(|root, arena| {
        arena.file("t/a", "").file("t/stuck", "").file("t/z", "");
        let file = fs::File::open(arena.at("t/stuck")).unwrap();
        let set = ioctl_getflags(&file).and_then(|flags| ioctl_setflags(&file, flags | IFlags::IMMUTABLE));
        if set.is_err() {
            return skip("immutable files need privileges and a file system that has them");
        }
        let removed = root.remove_tree_contained("t").unwrap();
        let flags = ioctl_getflags(&file).unwrap();
        ioctl_setflags(&file, flags - IFlags::IMMUTABLE).unwrap();
        assert!(!removed.complete);
        assert_eq!((removed.files, removed.left_total), (2, 1), "{removed:?}");
        assert_eq!(removed.left[0].path, Path::new("stuck"));
        assert_eq!(removed.left[0].kind, ErrorKind::Denied);
        assert_eq!(arena.names("t").len(), 1);
    });
}
