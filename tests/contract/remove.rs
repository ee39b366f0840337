//! Removing trees: all of it, nothing else, in bounded time, and a true report.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use beneath::{Budget, ErrorKind, Policy};
use rustix::fs::{CWD, Mode, RenameFlags, mkdirat, renameat_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use beneath_kit::{Arena, child, for_each_resolver, kind, resolvers, skip, tree, within};

#[test]
fn removes_everything_a_guest_can_make() {
    for_each_resolver(|root, arena| {
        // A link to what holds the arena is used in place of one to `/`: were the crate wrong, that would cost the machine.
        arena.file("t/a/b/f", "x").fifo("t/p").socket("t/a/s").dir("t/empty").link("t/top", arena.base());
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
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!((removed.files, removed.directories), (13, 4));
        assert!(removed.left.is_empty() && removed.left.total == 0);
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
            assert!(removed.is_complete(), "{removed:?}");
            assert!(!arena.has("t"));
        });
    });
}

/// These can be opened, but nothing in them can be unlinked, and they cannot be moved.
#[test]
fn directories_that_take_no_change_do_not_stop_the_owner() {
    child::run_unprivileged("remove::directories_that_take_no_change_do_not_stop_the_owner", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/b/f", "x").file("t/a/g", "x").dir("t/a/empty").dir("t/deep");
            drop(tree::deep(fs::File::open(arena.at("t/deep")).unwrap(), "d", 40));
            for path in ["t/a/b", "t/a", "t"] {
                arena.mode(path, 0o500);
            }
            let mut deep = arena.at("t/deep");
            for _ in 0..40 {
                deep.push("d");
            }
            while deep.ends_with("d") {
                fs::set_permissions(&deep, fs::Permissions::from_mode(0o500)).unwrap();
                deep.pop();
            }
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            assert_eq!((removed.files, removed.directories), (2, 45));
        });
    });
}

/// Without privileges, so that the host is spared even by a crate that follows the link.
#[test]
fn a_link_to_the_root_of_the_host_is_only_unlinked() {
    child::run_unprivileged("remove::a_link_to_the_root_of_the_host_is_only_unlinked", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/f", "x").link("t/host", "/").link("t/a/host", "/").link("t/tmp", "/tmp");
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            assert_eq!((removed.files, removed.directories), (4, 2));
        });
    });
}

#[test]
fn a_top_without_permission_goes_too() {
    child::run_unprivileged("remove::a_top_without_permission_goes_too", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/f", "x").mode("t", 0);
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.is_complete(), "{removed:?}");
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
            assert!(!removed.is_complete(), "{removed:?}");
            assert_eq!(removed.left.total, 1, "{removed:?}");
            assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Denied);
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
        assert!(!removed.is_complete());
        assert!(!removed.left.is_empty() && removed.left.total > 0);
        let left = arena.names("t").len();
        assert!((800..1_000).contains(&left), "{left} left");
        assert_eq!(removed.files, 1_000 - left as u64);
        assert!(root.remove_tree_contained_within("t", Budget::unlimited()).unwrap().is_complete());
    });
}

/// A directory counts twice: it is entered, and it is removed.
#[test]
fn a_budget_of_entries_counts_directories() {
    for_each_resolver(|root, arena| {
        for number in 0..200 {
            arena.dir(format!("t/{number}"));
        }
        let budget = Budget::unlimited().with_entries(100);
        let removed = root.remove_tree_contained_within("t", budget).unwrap();
        assert!(!removed.is_complete());
        assert!((45..=55).contains(&removed.directories), "{removed:?}");
        assert_eq!(arena.names("t").len() as u64, 200 - removed.directories);
    });
}

#[test]
fn each_bound_of_a_budget_holds_alone() {
    for_each_resolver(|root, arena| {
        arena.file("t/d/f", "x");
        for budget in [Budget::unlimited().with_time(Duration::ZERO), Budget::default().with_entries(0)] {
            let removed = root.remove_tree_contained_within("t", budget).unwrap();
            assert!(!removed.is_complete() && arena.has("t/d/f"), "{removed:?}");
            assert_eq!((removed.left.total, removed.left.first[0].error.kind()), (1, ErrorKind::Busy));
        }
        // Where nobody interferes, no second pass is needed, not even for more than one bufferful of names.
        tree::wide(fs::File::open(arena.at("t/d")).unwrap(), 3_000);
        let removed = root.remove_tree_contained_within("t", Budget::unlimited().with_passes(0)).unwrap();
        assert!(removed.is_complete(), "{removed:?}");
    });
}

/// More directories lie too deep than the top can remember once they are moved up into it.
#[test]
fn what_is_moved_up_costs_no_pass() {
    for choice in resolvers() {
        let arena = Arena::quick();
        arena.dir("t");
        // As deep as directories are held open, so that each of what it holds is moved by itself.
        let bottom = tree::deep(fs::File::open(arena.at("t")).unwrap(), "d", 23);
        for number in 0..1_100 {
            tree::wide(tree::deep(&bottom, &format!("n{number}"), 1), 1);
        }
        drop(bottom);
        let root = arena.open(Policy::default().with_resolver(choice));
        let removed = root.remove_tree_contained_within("t", Budget::unlimited().with_passes(0)).unwrap();
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!((removed.files, removed.directories), (1_100, 1_124));
    }
}

#[test]
fn a_budget_of_nothing_removes_nothing() {
    for_each_resolver(|root, arena| {
        arena.file("t/f", "x");
        let budget = Budget::unlimited().with_time(Duration::ZERO).with_entries(0);
        let removed = root.remove_tree_contained_within("t", budget).unwrap();
        assert!(!removed.is_complete());
        assert!(arena.has("t/f"));
    });
}

#[test]
fn deep_trees_go_at_few_descriptors() {
    child::run("remove::deep_trees_go_at_few_descriptors", || {
        child::limit_descriptors(64);
        for choice in resolvers() {
            for (name, levels) in [("d", 1_500), (&*"n".repeat(255), 600)] {
                let arena = Arena::quick();
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
                        assert!(removed.is_complete(), "{removed:?}");
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

/// Where fewer are left than a removal would like to hold, it moves directories up earlier.
#[test]
fn a_tree_goes_with_the_descriptors_that_are_left() {
    child::run("remove::a_tree_goes_with_the_descriptors_that_are_left", || {
        let limit = getrlimit(Resource::Nofile);
        for choice in resolvers() {
            for spare in [4, 8, 12] {
                let arena = Arena::new();
                arena.dir("t");
                tree::wide(tree::deep(fs::File::open(arena.at("t")).unwrap(), "d", 20), 3);
                let root = arena.open(Policy::default().with_resolver(choice));
                let free = u64::try_from(fs::File::open("/").unwrap().as_raw_fd()).unwrap();
                setrlimit(Resource::Nofile, Rlimit { current: Some(free + spare), ..limit }).unwrap();
                let removed = root.remove_tree_contained_within("t", Budget::unlimited().with_passes(0));
                setrlimit(Resource::Nofile, limit).unwrap();
                let removed = removed.unwrap();
                assert!(removed.is_complete(), "{spare} spare: {removed:?}");
                assert_eq!((removed.files, removed.directories), (3, 21));
            }
        }
    });
}

/// The top and 23 levels are open when the first directory is moved up.
#[test]
fn no_more_than_24_directories_are_held() {
    for_each_resolver(|root, arena| {
        arena.dir("t");
        drop(tree::deep(fs::File::open(arena.at("t")).unwrap(), "d", 40));
        let removed = root.remove_tree_contained_within("t", Budget::unlimited().with_entries(24)).unwrap();
        assert_eq!((removed.directories, removed.is_complete()), (0, false), "{removed:?}");
        assert_eq!(tree::depth(fs::File::open(arena.at("t")).unwrap(), "d"), 23);
        assert_eq!(arena.names("t").len(), 2, "the rest was moved up");
        let removed = root.remove_tree_contained("t").unwrap();
        assert_eq!((removed.directories, removed.is_complete()), (41, true), "{removed:?}");
    });
}

#[test]
fn branches_at_every_level_go_too() {
    child::run("remove::branches_at_every_level_go_too", || {
        child::limit_descriptors(64);
        for choice in resolvers() {
            let arena = Arena::quick();
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
            assert!(removed.is_complete(), "{removed:?}");
            assert_eq!((removed.files, removed.directories), (600, 1_201));
            assert!(arena.names(".").is_empty());
        }
    });
}

/// Three guests that make directories in `path` as fast as they can while `host` works. Returns what `host` did,
/// how long it took, and the longest any guest had to wait for one of its own calls.
fn besieged<T>(path: &Path, host: impl FnOnce() -> T) -> (T, Duration, Duration) {
    let (stop, made, longest) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for guest in 0..3 {
            let (stop, made, longest) = (&stop, &made, &longest);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    let _ = mkdirat(CWD, path.join(format!("g{guest}-{number}")), Mode::RWXU);
                    let waited = u64::try_from(start.elapsed().as_micros()).unwrap();
                    longest.fetch_max(waited, Ordering::Relaxed);
                }
            });
        }
        while made.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        let done = host();
        let took = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        (done, took, Duration::from_micros(longest.load(Ordering::Relaxed)))
    })
}

#[test]
fn a_guest_that_keeps_creating_does_not_hold_it_beyond_its_budget() {
    const TIME: Duration = Duration::from_millis(300);
    for choice in resolvers() {
        let arena = Arena::quick();
        let root = arena.open(Policy::default().with_resolver(choice));
        let mut kept_up = false;
        for round in 0..8 {
            let top = format!("t{round}");
            arena.dir(&top);
            tree::wide(fs::File::open(arena.at(&top)).unwrap(), 20_000);
            let budget = Budget::unlimited().with_time(TIME);
            let (removed, took, waited) =
                besieged(&arena.at(&top), || root.remove_tree_contained_within(&top, budget).unwrap());
            assert_eq!(removed.is_complete(), !arena.has(&top), "{removed:?}");
            if !removed.is_complete() {
                assert!(!removed.left.is_empty() && removed.left.total > 0);
                assert!(root.remove_tree_contained_within(&top, Budget::unlimited()).unwrap().is_complete());
            }
            // Where a single call of a guest takes this long, the machine is stuck and not the removal.
            if waited > Duration::from_millis(500) {
                println!("void: a guest waited {waited:?} for one call");
                continue;
            }
            assert!(
                took < TIME + Duration::from_secs(1),
                "took {took:?} while no guest waited above {waited:?}"
            );
            if !removed.is_complete() {
                kept_up = true;
                break;
            }
        }
        if !kept_up {
            skip("in eight rounds no guest kept up on a machine that did not stall");
        }
    }
}

#[test]
fn the_default_budget_ends_too() {
    // A thousand passes that each find something new: the default must not be "for ever".
    let arena = Arena::quick();
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
    let finished = beneath_kit::watchdog::finishes(Duration::from_secs(120), move || {
        root.remove_tree_contained("t").map(|removed| removed.is_complete())
    });
    stop.store(true, Ordering::Relaxed);
    guests.into_iter().for_each(|guest| guest.join().unwrap());
    assert!(finished.is_some(), "still removing after two minutes");
}

#[test]
fn a_directory_exchanged_for_a_link_is_not_followed() {
    for choice in resolvers() {
        let arena = Arena::quick();
        let root = arena.open(Policy::default().with_resolver(choice));
        let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The same names as outside, so that following shows. Filled where no link ever is: a path through
                // the exchanged name would make the attacker itself write outside.
                let (ready, real, link) = (arena.at("ready"), arena.at("t/swap"), arena.at("t/link"));
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::create_dir_all(ready.join("sub"));
                    let _ = fs::write(ready.join("sub/x"), "");
                    let _ = fs::write(ready.join("secret"), "");
                    let _ = fs::create_dir(arena.at("t"));
                    let _ = fs::rename(&ready, &real);
                    let _ = std::os::unix::fs::symlink(arena.outside(), &link);
                    for _ in 0..10 {
                        if renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).is_ok() {
                            swaps.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
            for _ in 0..100 {
                let seen = swaps.load(Ordering::Relaxed);
                while swaps.load(Ordering::Relaxed) == seen {
                    std::thread::yield_now();
                }
                let budget = Budget::unlimited().with_time(Duration::from_millis(20));
                if let Err(error) = root.remove_tree_contained_within("t", budget) {
                    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Busy), "{error}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(swaps.into_inner() >= 100, "nothing was exchanged");
        arena.verify();
    }
}

#[test]
fn quarantine_takes_the_tree_out_of_reach_first() {
    for_each_resolver(|root, arena| {
        arena.file("guest/t/a/f", "x").link("guest/t/out", arena.outside()).dir("host").dir("guest/keep");
        let (guest, host) = (root.descend("guest").unwrap(), root.descend("host").unwrap());
        let removed = guest.remove_tree_quarantined("t", &host, Budget::default()).unwrap();
        assert!(removed.is_complete(), "{removed:?}");
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
        assert!(!removed.is_complete());
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
        assert!(removed.is_complete());
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
        assert!(!removed.is_complete());
        assert_eq!((removed.files, removed.left.total), (2, 1), "{removed:?}");
        assert_eq!(removed.left.first[0].subject, Path::new("stuck"));
        assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Denied);
        assert_eq!(arena.names("t").len(), 1);
    });
}

/// The top's only block is full of long names and the disk has none left, so nothing can be moved up into it.
#[test]
fn a_full_disk_does_not_cost_every_descriptor() {
    const TEST: &str = "remove::a_full_disk_does_not_cost_every_descriptor";
    child::run(TEST, || {
        beneath_kit::namespace::with_private_mounts(|| {
            let scratch = tempfile::tempdir().unwrap();
            let (image, point) = (scratch.path().join("image"), scratch.path().join("mount"));
            fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
            fs::create_dir(&point).unwrap();
            let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
                let output = std::process::Command::new(program).args(arguments).output();
                output.is_ok_and(|output| output.status.success())
            };
            let make = ["-q", "-b", "1024", "-m", "0", "-N", "4096"].map(std::ffi::OsStr::new);
            if !run("mkfs.ext4", &[&make[..], &[image.as_os_str()]].concat())
                || !run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), point.as_os_str()])
            {
                return beneath_kit::skip("no ext4 can be made or mounted here");
            }
            let arena = Arena::within(&point);
            arena.dir("top");
            // Together with `.` and `..` they leave no room for a name of forty bytes in a block of 1,024.
            for (first, length) in [("a", 255), ("b", 255), ("c", 255), ("d", 184)] {
                let name = first.repeat(length);
                let top = fs::File::open(arena.at("top")).unwrap();
                drop(tree::deep(top, &name, 400));
            }
            let mut filler = fs::File::create(point.join("filler")).unwrap();
            while std::io::Write::write_all(&mut filler, &[1; 1024]).is_ok() {}
            child::limit_descriptors(64);
            let root = arena.open(Policy::default());
            let removed = root.remove_tree_contained("top").unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            assert_eq!(removed.directories, 1601);
            drop(filler);
            fs::remove_file(point.join("filler")).unwrap();
            drop((root, arena));
            let _ = run("umount", &[point.as_os_str()]);
        });
    });
}
