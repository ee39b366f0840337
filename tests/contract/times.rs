//! Setting times: by handle, and only of what has one name.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use beneath::{ErrorKind, HardLinks, Policy, Root, ambient_authority};

use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{Arena, Ends, child, for_each_policy, for_each_resolver, kind, skip};
use rustix::io::Errno;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn times(arena: &Arena, path: &str) -> ((i64, i64), (i64, i64)) {
    let meta = fs::symlink_metadata(arena.at(path)).unwrap();
    ((meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec()))
}

#[test]
fn files_and_directories_get_the_times_that_are_given_and_keep_the_other() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").mode("d/f", 0o400);
        for path in ["d/f", "d", "."] {
            root.set_times(path, Some(at(5)), Some(at(1_700_000_000))).unwrap();
            assert_eq!(times(arena, path), ((5, 0), (1_700_000_000, 0)), "{path}");
            root.set_times(path, None, Some(at(7) + Duration::from_millis(250))).unwrap();
            assert_eq!(times(arena, path), ((5, 0), (7, 250_000_000)), "{path}");
            root.set_times(path, Some(at(9)), None).unwrap();
            root.set_times(path, None, None).unwrap();
            assert_eq!(times(arena, path), ((9, 0), (7, 250_000_000)), "{path}");
        }
        assert_eq!(root.metadata("d/f").unwrap().modified(), at(7) + Duration::from_millis(250));
    });
}

#[test]
fn times_before_the_epoch_are_kept_and_those_out_of_reach_are_no_panic() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x");
        for (before, expected) in [
            (Duration::from_secs(3), (-3, 0)),
            (Duration::from_millis(2_500), (-3, 500_000_000)),
            (Duration::from_nanos(1), (-1, 999_999_999)),
        ] {
            root.set_times("f", None, Some(UNIX_EPOCH - before)).unwrap();
            assert_eq!(times(arena, "f").1, expected);
        }
        for far in [Duration::from_secs(1 << 40), Duration::from_secs(i64::MAX as u64)] {
            for time in [UNIX_EPOCH.checked_add(far), UNIX_EPOCH.checked_sub(far)].into_iter().flatten() {
                // The file system bounds it, or refuses.
                let _ = root.set_times("f", Some(time), Some(time));
            }
        }
    });
}

#[test]
fn set_times_refuses_what_is_not_the_guests_alone() {
    for_each_policy(&Policy::default().with_hard_links(HardLinks::Allow), |root, arena| {
        let canary = arena.throwaway().join("canary");
        arena.file("d/f", "x").link("l", "d/f").link("in", "d").fifo("p").socket("s");
        arena.link("out", arena.outside()).link("leaf", arena.outside().join("secret"));
        arena.hard_link("stolen", &canary);
        let modified = fs::metadata(&canary).unwrap().modified().unwrap();
        for (path, expected) in [
            ("l", ErrorKind::Symlink),
            ("leaf", ErrorKind::Symlink),
            ("in/f", ErrorKind::Symlink),
            ("out/secret", ErrorKind::Symlink),
            ("p", ErrorKind::NotRegular),
            ("s", ErrorKind::NotRegular),
            ("stolen", ErrorKind::HardLinked),
            ("none", ErrorKind::NotFound),
            ("d/f/", ErrorKind::NotDirectory),
            ("..", ErrorKind::Escape),
        ] {
            assert_eq!(kind(root.set_times(path, Some(at(1)), Some(at(1)))), expected, "{path}");
        }
        assert_eq!(fs::metadata(&canary).unwrap().modified().unwrap(), modified);
        for path in ["l", "leaf", "p", "s", "d/f"] {
            assert!(times(arena, path).1.0 > 1, "{path} was changed");
        }
    });
}

#[test]
fn a_host_file_that_is_linked_in_and_out_keeps_its_times() {
    for_each_resolver(|root, arena| {
        let canary = arena.throwaway().join("canary");
        let modified = fs::metadata(&canary).unwrap().modified().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = fs::hard_link(&canary, arena.at("f"));
                    let _ = fs::remove_file(arena.at("f"));
                }
            });
            let _ends = Ends(&over);
            let (mut rounds, mut met) = (0, 0);
            while rounds < 300 || met < 30 {
                assert!(rounds < 300_000, "the name was there {met} times only");
                let refused = kind(root.set_times("f", Some(at(1)), Some(at(1))));
                met += u32::from(refused != ErrorKind::NotFound);
                rounds += 1;
            }
        });
        assert_eq!(fs::metadata(&canary).unwrap().modified().unwrap(), modified);
    });
}

#[test]
fn an_older_kernel_sets_times_too() {
    denied(&[Denial::TimesEmptyPath(Errno::INVAL)], || {
        for_each_resolver(|root, arena| {
            arena.file("d/f", "x");
            for path in ["d/f", "d"] {
                root.set_times(path, Some(at(5)), Some(at(6))).unwrap();
                assert_eq!(times(arena, path), ((5, 0), (6, 0)));
            }
        });
    });
}

#[test]
fn an_entry_of_another_owner_is_denied() {
    child::run_unprivileged("times::an_entry_of_another_owner_is_denied", || {
        let own = rustix::process::geteuid().as_raw();
        if fs::metadata("/").unwrap().uid() == own {
            return skip("the root of the file system is this user's own");
        }
        let root = Root::open_ambient("/", ambient_authority()).unwrap();
        let before = fs::metadata("/").unwrap().modified().unwrap();
        assert_eq!(kind(root.set_times(".", Some(at(1)), Some(at(1)))), ErrorKind::Denied);
        assert_eq!(fs::metadata("/").unwrap().modified().unwrap(), before);
    });
}
