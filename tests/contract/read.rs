//! Reading: regular files with one name, beneath the root, up to a limit, at once.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use beneath::{ErrorKind, HardLinks, Mounts, Policy, ResolverChoice, Root};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, StatVfsMountFlags, renameat_with, statvfs};
use rustix::mount::{MountFlags, mount};

use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::watchdog::{best_of_three, finishes};
use beneath_kit::{Arena, for_each_policy, for_each_resolver, kind, resolvers, skip, within};

#[test]
fn reads_what_was_written() {
    for_each_resolver(|root, arena| {
        for size in [0, 1, 4095, 4096, 4097, 65_536, 3_000_000] {
            let content: Vec<u8> = (0..size).map(|n| (n * 31 % 251) as u8).collect();
            arena.file("a/b/f", &content);
            assert_eq!(root.read_contained("a/b/f", u64::MAX).unwrap(), content, "{size} bytes");
        }
    });
}

#[test]
fn limit_is_exact() {
    for_each_resolver(|root, arena| {
        arena.file("f", [7; 1000]).file("empty", "");
        assert_eq!(root.read_contained("f", 1000).unwrap().len(), 1000);
        assert_eq!(root.read_contained("f", 1001).unwrap().len(), 1000);
        assert_eq!(kind(root.read_contained("f", 999)), ErrorKind::TooLarge);
        assert_eq!(kind(root.read_contained("f", 0)), ErrorKind::TooLarge);
        assert_eq!(root.read_contained("empty", 0).unwrap(), b"");
    });
}

#[test]
fn contained_file_reads_seeks_and_describes() {
    for_each_resolver(|root, arena| {
        arena.file("f", "0123456789");
        let mut file = root.open_contained("f").unwrap();
        assert_eq!(file.len_hint(), 10);
        assert_eq!(file.metadata().ino(), fs::metadata(arena.at("f")).unwrap().ino());
        assert!(file.metadata().is_file());
        let mut three = [0; 3];
        file.read_exact(&mut three).unwrap();
        assert_eq!(&three, b"012");
        file.seek(SeekFrom::Start(8)).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "89");
        file.seek(SeekFrom::Start(0)).unwrap();
        assert_eq!(file.read_to_limit(10).unwrap(), b"0123456789");
        let mut file = root.open_contained("f").unwrap();
        assert_eq!(kind(file.read_to_limit(9)), ErrorKind::TooLarge);
    });
}

#[test]
fn an_opened_file_cannot_be_written_through() {
    use std::os::fd::AsFd as _;
    for_each_resolver(|root, arena| {
        arena.file("f", "x");
        let file = root.open_contained("f").unwrap();
        assert!(rustix::io::write(file.as_fd(), b"y").is_err());
        assert_eq!(arena.content("f"), b"x");
    });
}

#[test]
fn reads_the_file_it_opened_whatever_the_name_becomes() {
    for_each_resolver(|root, arena| {
        arena.file("f", "first").file("g", "second").link("l", arena.outside().join("secret"));
        let mut file = root.open_contained("f").unwrap();
        fs::rename(arena.at("l"), arena.at("f")).unwrap();
        assert_eq!(file.read_to_limit(99).unwrap(), b"first");
        assert_eq!(kind(root.open_contained("f")), ErrorKind::Symlink);
    });
}

#[test]
fn size_is_only_a_hint() {
    for_each_resolver(|root, arena| {
        arena.file("f", [1; 100]);
        let mut grown = root.open_contained("f").unwrap();
        let mut shrunk = root.open_contained("f").unwrap();
        OpenOptions::new().append(true).open(arena.at("f")).unwrap().write_all(&[2; 100]).unwrap();
        assert_eq!(kind(grown.read_to_limit(150)), ErrorKind::TooLarge);
        OpenOptions::new().write(true).open(arena.at("f")).unwrap().set_len(10).unwrap();
        assert_eq!(shrunk.read_to_limit(150).unwrap().len(), 10);
    });
}

#[test]
fn size_hint_does_not_buy_memory() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x");
        let mut file = root.open_contained("f").unwrap();
        File::options().write(true).open(arena.at("f")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(kind(file.read_to_limit(1 << 20)), ErrorKind::TooLarge);
        File::options().write(true).open(arena.at("f")).unwrap().set_len(1).unwrap();
        // A limit that no memory could satisfy is not asked for in advance.
        assert_eq!(root.read_contained("f", u64::MAX).unwrap(), b"x");
    });
}

/// Asserts that reading and opening `path` is refused as `expected`, and at once.
#[track_caller]
fn refused_at_once(root: &Arc<Root>, path: &'static str, expected: ErrorKind) {
    for open_only in [false, true] {
        let root = Arc::clone(root);
        let (kind, took) = within(path, move || {
            best_of_three(|| {
                if open_only { kind(root.open_contained(path)) } else { kind(root.read_contained(path, 99)) }
            })
        });
        assert_eq!(kind, expected, "{path}");
        assert!(took < Duration::from_millis(100), "{path} took {took:?}");
    }
}

/// Runs `body` for each resolver, here and on a `nodev` mount, where reading takes a shorter way.
fn shared_roots(body: impl Fn(&Arc<Root>, &Arena) + Sync) {
    let run = |place: &Path| {
        for choice in resolvers() {
            let arena = Arena::within(place);
            println!("{choice:?} in {}", place.display());
            body(&Arc::new(arena.open(Policy::default().with_resolver(choice))), &arena);
        }
    };
    run(&std::env::temp_dir());
    let place = tempfile::tempdir().unwrap();
    with_private_mounts(|| {
        mount("tmpfs", place.path(), "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, None).unwrap();
        let _mounted = Mounted([place.path().to_path_buf()]);
        run(place.path());
    });
}

#[test]
fn refuses_fifo_with_and_without_peers() {
    shared_roots(|root, arena| {
        arena.fifo("p").fifo("d/written");
        refused_at_once(root, "p", ErrorKind::NotRegular);
        // Read and write at once does not block, and leaves both a reader and a writer.
        let peer = File::options().read(true).write(true).open(arena.at("d/written")).unwrap();
        (&peer).write_all(b"bait").unwrap();
        refused_at_once(root, "d/written", ErrorKind::NotRegular);
    });
}

/// Reads `path` until a guest has waited a while for somebody to open `fifo` for reading. Whether somebody did.
fn opens_while_reading(root: &Root, path: &str, fifo: &Path) -> bool {
    let stop = AtomicBool::new(false);
    let writer = fifo.to_path_buf();
    let opened = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = root.read_contained(path, 99);
            }
        });
        let opened = finishes(Duration::from_millis(300), move || {
            drop(File::options().write(true).open(writer).unwrap());
        });
        stop.store(true, Ordering::Relaxed);
        opened.is_some()
    });
    // Lets the guest go that still waits.
    drop(rustix::fs::open(fifo, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()));
    opened
}

/// What has no content is judged without being opened: the open of a device can do anything, that of a FIFO can be
/// seen. Where the mount makes devices dead, only a lookup that stays on that mount may open first.
#[test]
fn does_not_open_what_is_no_file() {
    let judged = |place: &Path, policy: Policy| {
        let arena = Arena::within(place);
        arena.fifo("p");
        assert!(!opens_while_reading(&arena.open(policy.clone()), "p", &arena.at("p")), "{policy:?}");
    };
    let nodev = statvfs(std::env::temp_dir()).unwrap().f_flag.contains(StatVfsMountFlags::NODEV);
    for choice in resolvers() {
        for mounts in [Mounts::Refuse, Mounts::Cross] {
            let policy = Policy::default().with_resolver(choice).with_mounts(mounts);
            if !nodev {
                judged(&std::env::temp_dir(), policy.clone());
            }
            if choice == ResolverChoice::Walk || mounts == Mounts::Cross {
                let place = tempfile::tempdir().unwrap();
                with_private_mounts(|| {
                    mount("tmpfs", place.path(), "tmpfs", MountFlags::NODEV, None).unwrap();
                    let _mounted = Mounted([place.path().to_path_buf()]);
                    judged(place.path(), policy);
                });
            }
        }
    }
}

/// A guest exchanges a file for a FIFO between the look at it and the open.
#[test]
fn does_not_open_what_was_swapped_in() {
    if statvfs(std::env::temp_dir()).unwrap().f_flag.contains(StatVfsMountFlags::NODEV) {
        return skip("on this mount reading opens at once");
    }
    for choice in resolvers() {
        let arena = Arena::new();
        arena.file("x", "content").fifo("y").hard_link("same", arena.at("y"));
        let root = arena.open(Policy::default().with_resolver(choice));
        let exchange = || renameat_with(CWD, arena.at("x"), CWD, arena.at("y"), RenameFlags::EXCHANGE);
        if exchange().is_err() {
            return skip("nothing can be exchanged here");
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    exchange().unwrap();
                }
            });
            let opened = opens_while_reading(&root, "x", &arena.at("same"));
            stop.store(true, Ordering::Relaxed);
            assert!(!opened, "a FIFO was opened");
        });
    }
}

#[test]
fn refuses_socket_directory_and_link() {
    shared_roots(|root, arena| {
        arena.socket("s").dir("d").file("f", "x").link("l", "f").link("loop", "loop").link("none", "nowhere");
        arena.link("out", arena.outside().join("secret")).link("zero", "/dev/zero").link("dir", "d");
        refused_at_once(root, "s", ErrorKind::NotRegular);
        refused_at_once(root, "d", ErrorKind::NotRegular);
        for link in ["l", "loop", "none", "out", "zero", "dir"] {
            refused_at_once(root, link, ErrorKind::Symlink);
        }
    });
}

#[test]
fn refuses_device_nodes() {
    shared_roots(|root, arena| {
        // zero would never end; 0:0 has no driver; ram or loop would touch a disk.
        let nodes = [
            ("zero", FileType::CharacterDevice, 1, 5),
            ("nodriver", FileType::CharacterDevice, 0, 0),
            ("tty", FileType::CharacterDevice, 5, 0),
            ("block", FileType::BlockDevice, 7, 0),
        ];
        for (name, kind, major, minor) in nodes {
            if !arena.device(name, kind, major, minor) {
                return skip("device nodes need privileges");
            }
            refused_at_once(root, name, ErrorKind::NotRegular);
        }
    });
}

#[test]
fn refuses_a_file_with_a_second_name() {
    shared_roots(|root, arena| {
        arena.file("a", "x").hard_link("b", arena.at("a"));
        let canary = arena.throwaway().join("canary");
        arena.hard_link("stolen", &canary);
        for name in ["a", "b", "stolen"] {
            refused_at_once(root, name, ErrorKind::HardLinked);
        }
        fs::remove_file(arena.at("a")).unwrap();
        assert_eq!(root.read_contained("b", 9).unwrap(), b"x");
    });
    for_each_policy(&Policy::default().with_hard_links(HardLinks::Allow), |root, arena| {
        arena.file("a", "x").hard_link("b", arena.at("a"));
        assert_eq!(root.read_contained("b", 9).unwrap(), b"x");
    });
}

/// Holds a write lease until its stdin closes. A lease break sends SIGIO, which would end the holder.
const LEASE: &str = "
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = open(sys.argv[1], 'r+')
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";

#[test]
fn refuses_a_leased_file_at_once() {
    shared_roots(|root, arena| {
        arena.file("leased", "x");
        let holder = Command::new("python3")
            .args(["-c", LEASE])
            .arg(arena.at("leased"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut holder) = holder else { return skip("python3 is needed to hold a lease") };
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line == "held\n" {
            refused_at_once(root, "leased", ErrorKind::Busy);
        } else {
            skip("this file system gives no leases");
        }
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert_eq!(root.read_contained("leased", 9).unwrap(), b"x");
    });
}

#[test]
fn missing_and_refused_are_different_kinds() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").dir("d");
        assert_eq!(kind(root.read_contained("none", 9)), ErrorKind::NotFound);
        assert_eq!(kind(root.read_contained("d/none", 9)), ErrorKind::NotFound);
        assert_eq!(kind(root.read_contained("none/f", 9)), ErrorKind::NotFound);
        assert_eq!(kind(root.read_contained("f/x", 9)), ErrorKind::NotDirectory);
    });
}

/// On a `nodev` mount, as `/dev/shm` mostly is, it is opened before it is judged.
#[test]
fn what_may_not_be_opened_is_reported_as_what_it_is() {
    beneath_kit::child::run_unprivileged("read::what_may_not_be_opened_is_reported_as_what_it_is", || {
        for choice in resolvers() {
            for arena in [Some(Arena::within(&std::env::temp_dir())), Arena::on_tmpfs()].into_iter().flatten()
            {
                let root = arena.open(Policy::default().with_resolver(choice));
                arena.file("f", "x").fifo("p").file("a", "x").hard_link("b", arena.at("a"));
                for (name, expected) in
                    [("f", ErrorKind::Denied), ("p", ErrorKind::NotRegular), ("b", ErrorKind::HardLinked)]
                {
                    arena.mode(name, 0);
                    assert_eq!(kind(root.read_contained(name, 9)), expected, "{name}");
                }
            }
        }
    });
}

#[test]
fn an_unreadable_file_is_denied() {
    beneath_kit::child::run_unprivileged("read::an_unreadable_file_is_denied", || {
        for_each_resolver(|root, arena| {
            arena.file("f", "x").mode("f", 0).file("d/f", "x").mode("d", 0);
            assert_eq!(kind(root.read_contained("f", 9)), ErrorKind::Denied);
            assert_eq!(kind(root.read_contained("d/f", 9)), ErrorKind::Denied);
        });
    });
}
