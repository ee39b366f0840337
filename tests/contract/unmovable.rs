//! Trees whose directories cannot be moved up while they are removed: every level must be reached by its name.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use beneath::{Budget, ErrorKind, Policy, Removed, ResolverChoice, Root, ambient_authority};
use rustix::fs::{CWD, Mode, RenameFlags, mkdirat, renameat_with};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::filesystems::{mount_kind, mounted, on_loop, run};
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{Arena, Ends, child, env, resolvers, skip, tree};

/// Removes `t` on a thread where no directory can be moved, and whatever else `denials` say.
fn removed_unmoved(arena: &Arena, choice: ResolverChoice, budget: Budget, denials: &[Denial]) -> Removed {
    let root = arena.open(Policy::default().with_resolver(choice));
    let denials = [&[Denial::Rename(Errno::XDEV)], denials].concat();
    denied(&denials, || root.remove_tree_contained_within("t", budget).unwrap())
}

/// Where nobody interferes, nothing is gone through twice.
fn one_pass() -> Budget {
    Budget::unlimited().with_passes(0)
}

/// At each of `levels` levels two files, two empty directories and one with a file in it.
fn bushy(top: File, levels: u32) {
    let mut at: OwnedFd = top.into();
    for _ in 0..levels {
        for name in ["a", "z"] {
            mkdirat(&at, name, Mode::RWXU).unwrap();
        }
        tree::wide(&at, 2);
        tree::wide(tree::deep(&at, "full", 1), 1);
        at = tree::deep(&at, "next", 1);
    }
}

#[test]
fn two_thousand_levels_go_at_64_descriptors() {
    child::run("unmovable::two_thousand_levels_go_at_64_descriptors", || {
        child::limit_descriptors(64);
        for choice in resolvers() {
            let arena = Arena::quick();
            arena.dir("t").link("t/out", arena.outside());
            tree::wide(tree::deep(File::open(arena.at("t")).unwrap(), "d", 2_000), 3);
            // The first root also opens what all share.
            drop(arena.open(Policy::default()));
            let before = child::open_descriptors();
            let removed = removed_unmoved(&arena, choice, one_pass(), &[]);
            assert!(removed.is_complete(), "{removed:?}");
            assert_eq!((removed.files, removed.directories), (4, 2_001));
            assert!(arena.names(".").is_empty());
            assert_eq!(child::open_descriptors(), before);
        }
    });
}

#[test]
fn branches_at_every_level_are_found_on_the_way_back() {
    for choice in resolvers() {
        let arena = Arena::quick();
        arena.dir("t");
        bushy(File::open(arena.at("t")).unwrap(), 600);
        let removed = removed_unmoved(&arena, choice, one_pass(), &[]);
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!((removed.files, removed.directories), (1_800, 2_401));
    }
}

/// Nothing that stays is entered a second time, and each is counted once.
#[test]
fn what_stays_is_counted_once_and_the_rest_goes() {
    for choice in resolvers() {
        let arena = Arena::quick();
        arena.dir("t");
        bushy(File::open(arena.at("t")).unwrap(), 100);
        let removed = removed_unmoved(&arena, choice, one_pass(), &[Denial::Unlink(Errno::PERM)]);
        assert!(!removed.is_complete(), "{removed:?}");
        assert_eq!((removed.files, removed.directories, removed.left.total), (0, 201, 300));
        assert_eq!(removed.left.first.len(), 300);
        for left in &removed.left.first {
            assert_eq!(left.error.kind(), ErrorKind::Denied);
            assert!(arena.at("t").join(&left.subject).is_file(), "{left:?}");
        }
        let removed = removed_unmoved(&arena, choice, one_pass(), &[]);
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!((removed.files, removed.directories), (300, 200));
    }
}

/// Two directories stay at each level, and no more than 4,096 are remembered. What it gives up then is reported.
#[test]
fn more_that_stays_than_is_remembered_ends_too() {
    let arena = Arena::quick();
    arena.dir("t");
    bushy(File::open(arena.at("t")).unwrap(), 2_200);
    let removed = removed_unmoved(&arena, resolvers()[0], one_pass(), &[Denial::Unlink(Errno::PERM)]);
    assert!(!removed.is_complete() && removed.left.total > 6_000, "{}", removed.left.total);
    let removed = removed_unmoved(&arena, resolvers()[0], one_pass(), &[]);
    assert!(removed.is_complete(), "{removed:?}");
    assert_eq!(removed.files, 6_600);
}

#[test]
fn a_leftover_too_deep_for_a_path_is_reported_by_what_a_path_reaches() {
    for choice in resolvers() {
        let arena = Arena::quick();
        arena.dir("t");
        let name = "n".repeat(255);
        tree::wide(tree::deep(File::open(arena.at("t")).unwrap(), &name, 300), 5);
        let removed = removed_unmoved(&arena, choice, one_pass(), &[Denial::Unlink(Errno::PERM)]);
        assert_eq!(
            (removed.is_complete(), removed.left.total, removed.left.first.len()),
            (false, 5, 1),
            "{removed:?}"
        );
        let path = &removed.left.first[0].subject;
        assert_eq!(path.components().count(), 15);
        assert!(path.components().all(|part| part.as_os_str() == &*name));
    }
}

#[test]
fn a_handful_of_descriptors_is_enough() {
    child::run("unmovable::a_handful_of_descriptors_is_enough", || {
        let limit = getrlimit(Resource::Nofile);
        for choice in resolvers() {
            for spare in [4, 5, 8, 12] {
                let arena = Arena::quick();
                arena.dir("t");
                bushy(File::open(arena.at("t")).unwrap(), 150);
                let root = arena.open(Policy::default().with_resolver(choice));
                let free = u64::try_from(File::open("/").unwrap().as_raw_fd()).unwrap();
                setrlimit(Resource::Nofile, Rlimit { current: Some(free + spare), ..limit }).unwrap();
                let removed = denied(&[Denial::Rename(Errno::XDEV)], || {
                    root.remove_tree_contained_within("t", one_pass())
                });
                setrlimit(Resource::Nofile, limit).unwrap();
                let removed = removed.unwrap();
                assert!(removed.is_complete(), "{spare} spare: {removed:?}");
                assert_eq!((removed.files, removed.directories), (450, 601));
            }
        }
    });
}

/// More levels than are remembered by name.
#[test]
fn a_hundred_and_fifty_thousand_levels_take_little_memory() {
    if !env::FULL.is_set() {
        return skip(&format!("takes long; {} plays it", env::FULL.name));
    }
    child::run("unmovable::a_hundred_and_fifty_thousand_levels_take_little_memory", || {
        const LEVELS: u32 = 150_000;
        let Some(arena) = Arena::on_tmpfs() else { return skip("/dev/shm is no tmpfs") };
        arena.dir("t");
        drop(tree::deep(File::open(arena.at("t")).unwrap(), "d", LEVELS));
        let before = child::peak_memory();
        let removed = removed_unmoved(&arena, resolvers()[0], Budget::unlimited().with_passes(1), &[]);
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!(removed.directories, u64::from(LEVELS) + 1);
        let grown = child::peak_memory() - before;
        assert!(grown < 48 << 20, "{grown} bytes more");
    });
}

/// The middle of the tree and a link to the outside change places as fast as a guest can make them.
#[test]
fn a_guest_that_exchanges_the_way_back_gains_nothing() {
    const MIDDLE: u32 = 40;
    for choice in resolvers() {
        let arena = Arena::quick();
        let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (other, mut middle) = (arena.at("other"), arena.at("t"));
                (0..MIDDLE).for_each(|_| middle.push("next"));
                while !stop.load(Ordering::Relaxed) {
                    if renameat_with(CWD, &middle, CWD, &other, RenameFlags::EXCHANGE).is_ok() {
                        swaps.fetch_add(1, Ordering::Relaxed);
                    } else if !arena.has("other") {
                        let _ = std::os::unix::fs::symlink(arena.outside(), &other);
                    }
                }
            });
            let _ends = Ends(&stop);
            let mut round = 0;
            while round < 20 || swaps.load(Ordering::Relaxed) < 20 {
                round += 1;
                assert!(round < 10_000, "nothing was exchanged");
                arena.dir("new");
                bushy(File::open(arena.at("new")).unwrap(), MIDDLE * 2);
                fs::rename(arena.at("new"), arena.at("t")).unwrap();
                let root = arena.open(Policy::default().with_resolver(choice));
                let removed =
                    denied(&[Denial::Rename(Errno::XDEV)], || root.remove_tree_contained("t").unwrap());
                assert_eq!(removed.is_complete(), !arena.has("t"), "round {round}: {removed:?}");
                // What the guest has moved out of the tree, and what it kept the removal from.
                for left in ["other", "t"] {
                    let _ = root.remove_file(left);
                    let _ = root.remove_tree_contained(left);
                }
                if arena.has("t") {
                    fs::rename(arena.at("t"), arena.at(format!("kept-{round}"))).unwrap();
                }
            }
        });
        arena.verify();
    }
}

/// A lower directory of an overlay is on another file system until it is copied up, which a directory never is by a rename.
#[test]
fn lower_directories_of_an_overlay_go() {
    mounted(
        "unmovable::lower_directories_of_an_overlay_go",
        |at| mount_kind(at, "tmpfs", "rw"),
        |base| {
            for (levels, descriptors) in [(300, 1024), (200, 64)] {
                child::limit_descriptors(descriptors);
                let dirs =
                    ["lower", "upper", "work", "merged"].map(|name| base.join(format!("{name}-{levels}")));
                dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
                let [lower, upper, work, merged] = &dirs;
                fs::create_dir(lower.join("t")).unwrap();
                bushy(File::open(lower.join("t")).unwrap(), levels);
                let [lower, upper, work] = [lower, upper, work].map(|dir| dir.to_str().unwrap());
                let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
                if !run("mount", &["-t", "overlay", "-o", &options, "none", merged.to_str().unwrap()]) {
                    return skip("no overlay can be mounted here");
                }
                let root = Root::open_ambient(merged, ambient_authority()).unwrap();
                let removed = root.remove_tree_contained("t").unwrap();
                assert!(removed.is_complete(), "{removed:?}");
                assert_eq!(
                    (removed.files, removed.directories),
                    (3 * u64::from(levels), 4 * u64::from(levels) + 1)
                );
                assert!(!merged.join("t").exists());
            }
        },
    );
}

/// A directory that passes its project on takes in no directory of another project. An unprivileged guest that owns its
/// directories sets projects as it likes.
#[test]
fn a_project_for_each_level_stops_nothing() {
    let make = |at: &Path| on_loop(at, 320, &["mkfs.xfs", "-q", "-f"]);
    mounted("unmovable::a_project_for_each_level_stops_nothing", make, |point| {
        let arena = Arena::within(point);
        arena.dir("t");
        let mut at = arena.at("t");
        for level in 0..400 {
            if !run(
                "xfs_io",
                &["-c", &format!("chproj {}", level + 1), "-c", "chattr +P", at.to_str().unwrap()],
            ) {
                return skip("no project can be set here");
            }
            at.push("d");
            fs::create_dir(&at).unwrap();
        }
        let above = arena.at("t/d/d");
        let moved = fs::rename(above.join("d"), arena.at("t/moved"));
        assert_eq!(moved.unwrap_err().raw_os_error(), Some(Errno::XDEV.raw_os_error()), "this shows nothing");
        let root = arena.open(Policy::default());
        let removed = root.remove_tree_contained("t").unwrap();
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!(removed.directories, 401);
    });
}

/// Makes `t` encrypted, with 300 directories one in the other, and takes the key away. By ioctls that Rust has no safe call for.
const ENCRYPT: &str = r#"
import fcntl, os, struct, sys
def ioctl(fd, direction, number, size, argument):
    argument = bytearray(argument)
    fcntl.ioctl(fd, (direction << 30) | (size << 16) | (ord("f") << 8) | number, argument)
    return argument
os.chdir(sys.argv[1])
mount = os.open(".", os.O_RDONLY)
os.mkdir("t")
top = os.open("t", os.O_RDONLY)
key = ioctl(mount, 3, 23, 80, struct.pack("<II32xII32x", 2, 0, 64, 0) + b"k" * 64)[8:24]
ioctl(top, 2, 19, 12, struct.pack("<BBBBB3x16s", 2, 1, 4, 0, 0, bytes(key)))
os.close(top)
path = "t"
for level in range(300):
    open(path + "/file", "w").close()
    path += "/directory"
    os.mkdir(path)
os.sync()
ioctl(mount, 3, 24, 64, struct.pack("<II32s24x", 2, 0, bytes(key)))
"#;

/// Without the key nothing can be moved, but everything can be removed.
#[test]
fn an_encrypted_tree_goes_without_its_key() {
    let make = |at: &Path| on_loop(at, 64, &["mkfs.ext4", "-q", "-O", "encrypt"]);
    mounted("unmovable::an_encrypted_tree_goes_without_its_key", make, |point| {
        if !run("python3", &["-c", ENCRYPT, point.to_str().unwrap()]) {
            return skip("no directory can be encrypted here");
        }
        assert!(!point.join("t/directory").exists(), "the key is still there: this shows nothing");
        let root = Root::open_ambient(point, ambient_authority()).unwrap();
        let removed = root.remove_tree_contained("t").unwrap();
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!((removed.files, removed.directories), (300, 301));
        assert!(!point.join("t").exists());
    });
}
