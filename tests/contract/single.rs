//! Files that have one name, and files of which that is hard to say: linked, busy, just made, reached through a link.

use std::fs::{self, OpenOptions};
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use beneath::{Access, ErrorKind, Execute, HardLinks, Links, Policy, Resolver, ResolverChoice};
use rustix::fs::inotify;
use rustix::io::Errno;

use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{Arena, child, for_each_policy, for_each_resolver, has_openat2, kind, resolvers, skip};

/// Long enough for a change to be a thing of the past.
const SETTLED: Duration = Duration::from_millis(2100);

#[test]
fn reads_what_was_written_a_moment_ago_under_every_policy() {
    for hard_links in [HardLinks::Refuse, HardLinks::RefuseStrict, HardLinks::Allow] {
        for_each_policy(&Policy::default().with_hard_links(hard_links), |root, arena| {
            for turn in 0..20 {
                let content = format!("turn {turn}");
                arena.file("d/f", &content);
                assert_eq!(root.read_contained("d/f", 64).unwrap(), content.as_bytes());
                let mut file = root.open_contained("d/f").unwrap();
                assert_eq!(file.read_to_limit(64).unwrap(), content.as_bytes());
            }
        });
    }
}

#[test]
fn a_second_name_is_refused_however_old_it_is() {
    let mut places = Vec::new();
    for hard_links in [HardLinks::Refuse, HardLinks::RefuseStrict] {
        for resolver in resolvers() {
            let arena = Arena::new();
            arena.file("a", "x").hard_link("b", arena.at("a"));
            let policy = Policy::default().with_hard_links(hard_links).with_resolver(resolver);
            places.push((arena.open(policy.clone()), arena, policy));
        }
    }
    for age in [Duration::ZERO, SETTLED] {
        std::thread::sleep(age);
        for (root, _, policy) in &places {
            for name in ["a", "b"] {
                assert_eq!(kind(root.read_contained(name, 9)), ErrorKind::HardLinked, "{policy:?}");
                assert_eq!(kind(root.open_contained(name)), ErrorKind::HardLinked, "{policy:?}");
            }
        }
    }
    for (root, arena, _) in &places {
        fs::remove_file(arena.at("b")).unwrap();
        assert_eq!(root.read_contained("a", 9).unwrap(), b"x", "one name is left, and it is this one");
        arena.verify();
    }
}

/// A log that is written to without pause changes all the time, but gains no names.
#[test]
fn a_file_that_is_written_without_pause_is_read() {
    for_each_resolver(|root, arena| {
        arena.file("log", "begin\n");
        let mut log = OpenOptions::new().append(true).open(arena.at("log")).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    log.write_all(b"one more line\n").unwrap();
                    if log.metadata().unwrap().len() > 1 << 20 {
                        log.set_len(6).unwrap();
                    }
                }
            });
            let mut refused = 0;
            for _ in 0..500 {
                match root.open_contained("log") {
                    Ok(mut file) => {
                        let mut begin = [0; 6];
                        file.read_exact(&mut begin).unwrap();
                        assert_eq!(&begin, b"begin\n");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Busy);
                        refused += 1;
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
            assert!(refused < 50, "{refused} of 500 were refused");
        });
    });
}

#[test]
fn a_file_behind_a_link_is_proven_where_it_is() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    for hard_links in [HardLinks::Refuse, HardLinks::RefuseStrict] {
        let policy = Policy::default().with_links(Links::FollowBeneath).with_hard_links(hard_links);
        let arena = Arena::new();
        let root = arena.open(policy);
        arena.file("deep/down/f", "x").link("l", "deep/down/f").link("deep/up", "../l");
        arena.file("deep/twice", "x").hard_link("deep/again", arena.at("deep/twice")).link("t", "deep/again");
        for path in ["l", "deep/up", "deep/down/f"] {
            assert_eq!(root.read_contained(path, 9).unwrap(), b"x", "{path}");
        }
        assert_eq!(kind(root.read_contained("t", 9)), ErrorKind::HardLinked);
        root.set_access("l", Access::custom(0o640, 0o700), Execute::Clear).unwrap();
        assert_eq!(arena.mode_of("deep/down/f"), 0o640);
        assert_eq!(kind(root.set_access("t", Access::shared(), Execute::Clear)), ErrorKind::HardLinked);
    }
}

/// Without the call that waits for the directory's lock there is another one.
#[test]
fn a_profile_that_forbids_renameat2_forbids_no_reading() {
    for errno in [Errno::NOSYS, Errno::PERM, Errno::INVAL] {
        denied(&[Denial::RenameNoReplace(errno)], || {
            for_each_resolver(|root, arena| {
                arena.file("f", "x").file("a", "x").hard_link("b", arena.at("a"));
                assert_eq!(root.read_contained("f", 9).unwrap(), b"x", "{errno}");
                assert_eq!(kind(root.read_contained("b", 9)), ErrorKind::HardLinked, "{errno}");
                root.set_access("f", Access::shared(), Execute::Clear).unwrap();
                assert_eq!((arena.content("f"), arena.mode_of("f")), (b"x".to_vec(), 0o660));
                assert_eq!(arena.names("."), ["a", "b", "f"].map(Into::into).into());
            });
        });
    }
}

#[test]
fn a_read_only_mount_is_read() {
    with_private_mounts(|| {
        for_each_resolver(|outer, arena| {
            arena.file("d/f", "x").file("d/a", "x").hard_link("d/b", arena.at("d/a"));
            let mount = |arguments: &[&str]| {
                let status = Command::new("mount").args(arguments).status().unwrap();
                assert!(status.success());
            };
            let path = arena.at("d");
            let path = path.to_str().unwrap();
            mount(&["--bind", path, path]);
            mount(&["-o", "remount,bind,ro", path]);
            let mounted = Mounted([arena.at("d")]);
            let root = beneath::Root::open_ambient(arena.at("d"), beneath::ambient_authority())
                .unwrap()
                .with_policy(outer.policy().clone());
            assert_eq!(root.read_contained("f", 9).unwrap(), b"x");
            assert_eq!(kind(root.read_contained("b", 9)), ErrorKind::HardLinked);
            drop(mounted);
        });
    });
}

/// A profile may answer a call it does not know with anything.
#[test]
fn whatever_forbids_openat2_the_walk_takes_over() {
    for errno in [Errno::NOSYS, Errno::PERM, Errno::ACCESS, Errno::INVAL, Errno::TOOBIG, Errno::NOTSUP] {
        denied(&[Denial::Openat2(errno)], || {
            let arena = Arena::new();
            let root = arena.open(Policy::default());
            assert_eq!(root.resolver(), Resolver::Walk, "{errno}");
            arena.file("d/f", "x").link("l", arena.outside().join("secret"));
            assert_eq!(root.read_contained("d/f", 9).unwrap(), b"x");
            assert_eq!(kind(root.read_contained("l", 9)), ErrorKind::Symlink);
            let forced = arena.open(Policy::default().with_resolver(ResolverChoice::Openat2));
            assert_eq!(kind(forced.read_contained("d/f", 9)), ErrorKind::Unsupported);
        });
    }
}

/// Whoever waits keeps its end open: what it closed would be the number it opens next.
fn wait_for_byte(from: &mut PipeReader) {
    from.read_exact(&mut [0]).unwrap();
}

/// A file whose opening is noticed.
struct Watched(std::os::fd::OwnedFd);

impl Watched {
    fn new(path: &std::path::Path) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN).unwrap();
        Self(watch)
    }

    /// Forgets what has happened so far.
    fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 4096]);
    }

    fn was_opened(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 4096]).is_ok()
    }
}

/// After a fork the same number is another file in the parent: opening that would break a lease, or wake a device.
#[test]
fn a_forked_child_opens_nothing_of_its_parents() {
    const TEST: &str = "single::a_forked_child_opens_nothing_of_its_parents";
    child::run(TEST, || {
        let arena = Arena::new();
        let root = arena.open(Policy::default());
        arena.file("mine", "mine").file("theirs", "theirs");
        assert_eq!(root.read_contained("mine", 9).unwrap(), b"mine");
        let watched = Watched::new(&arena.at("theirs"));
        let (mut go, mut went) = std::io::pipe().unwrap();
        let (child_done, mut done) = std::io::pipe().unwrap();
        match fork::fork().unwrap() {
            fork::Fork::Child => {
                wait_for_byte(&mut go);
                let read = root.read_contained("mine", 9);
                done.write_all(if read.is_ok_and(|bytes| bytes == b"mine") { b"y" } else { b"n" }).unwrap();
                // Neither the arena nor the harness is this process's to end.
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                    .unwrap();
            }
            fork::Fork::Parent(pid) => {
                // The lowest free numbers, which are those that the child gets next as well.
                let held: Vec<_> = (0..4).map(|_| fs::File::open(arena.at("theirs")).unwrap()).collect();
                watched.clear();
                went.write_all(b"x").unwrap();
                let mut answer = [0];
                { child_done }.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"y", "the child could not read");
                assert!(!watched.was_opened(), "the child opened descriptor {:?}", held[0].as_raw_fd());
                let _ = fork::waitpid(pid);
            }
        }
    });
}

/// So it is in a thread that has left the process's table.
#[test]
fn a_thread_with_its_own_descriptors_opens_nothing_of_the_others() {
    const TEST: &str = "single::a_thread_with_its_own_descriptors_opens_nothing_of_the_others";
    child::run(TEST, || {
        let arena = Arena::new();
        let root = arena.open(Policy::default());
        arena.file("mine", "mine").file("theirs", "theirs");
        let watched = Watched::new(&arena.at("theirs"));
        let (mut unshared, mut done) = std::io::pipe().unwrap();
        let (mut go, mut went) = std::io::pipe().unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                assert_eq!(root.read_contained("mine", 9).unwrap(), b"mine", "still in the common table");
                // Deprecated since descriptors that another thread closes stay open here, which is meant.
                #[allow(deprecated)]
                rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).unwrap();
                done.write_all(b"x").unwrap();
                wait_for_byte(&mut go);
                root.read_contained("mine", 9)
            });
            wait_for_byte(&mut unshared);
            let held: Vec<_> = (0..4).map(|_| fs::File::open(arena.at("theirs")).unwrap()).collect();
            watched.clear();
            went.write_all(b"x").unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), b"mine");
            assert!(!watched.was_opened(), "the thread opened descriptor {:?}", held[0].as_raw_fd());
        });
    });
}

/// Where the clock of changes is coarse, a link and an unlink within one tick look like nothing.
#[test]
fn coarse_change_times_prove_nothing_by_themselves() {
    with_private_mounts(|| {
        let point = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "ramfs", "none"]).arg(point.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            return skip("no ramfs can be mounted");
        }
        let mounted = Mounted([point.path().to_path_buf()]);
        for choice in resolvers() {
            let arena = Arena::within(point.path());
            let secret = arena.throwaway().join("canary");
            let root = arena.open(Policy::default().with_resolver(choice));
            arena.file("own", "own");
            // A host's file that nobody writes to just now.
            std::thread::sleep(Duration::from_millis(50));
            let over = AtomicBool::new(false);
            let caught = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for _ in 0..64 {
                            let _ = fs::hard_link(&secret, arena.at("f"));
                            let _ = fs::remove_file(arena.at("f"));
                        }
                    }
                });
                let mut caught = 0;
                for _ in 0..20_000 {
                    caught += u32::from(root.read_contained("f", 64).is_ok());
                    caught += u32::from(root.open_contained("f").is_ok());
                }
                for _ in 0..200 {
                    let _ = root.set_access("f", Access::custom(0o604, 0o700), Execute::Clear);
                }
                over.store(true, Ordering::Relaxed);
                caught
            });
            assert_eq!(caught, 0, "{choice:?}");
            assert_ne!(fs::metadata(&secret).unwrap().permissions().mode() & 0o7777, 0o604);
            assert_eq!(root.read_contained("own", 64).unwrap(), b"own");
        }
        drop(mounted);
    });
}
