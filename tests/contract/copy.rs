//! Copying: of a file that is the guest's alone, to a name that is free, whole or not at all, and never more than the limit.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use beneath::{Access, Durability, ErrorKind, HardLinks, Policy};

use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{Arena, Ends, for_each_policy, for_each_resolver, kind, resolvers, skip};
use rustix::fs::{FileType, SeekFrom, seek};
use rustix::io::Errno;

const MOST: u64 = 64 << 20;

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n * 31 % 251) as u8).collect()
}

#[test]
fn a_copy_has_the_bytes_of_its_source_and_is_another_file() {
    for_each_resolver(|root, arena| {
        arena.dir("a/b");
        for size in [0, 1, 4095, 4096, 65_536, 65_537, 3_000_001] {
            let (from, to) = (format!("a/f{size}"), format!("a/b/f{size}"));
            arena.file(&from, pattern(size));
            assert_eq!(root.copy(&from, &to, size as u64).unwrap().bytes, size as u64);
            assert_eq!(arena.content(&to), pattern(size));
            let (one, two) = (fs::metadata(arena.at(&from)).unwrap(), fs::metadata(arena.at(&to)).unwrap());
            assert!(one.ino() != two.ino() && two.nlink() == 1);
        }
        assert_eq!(arena.names("a/b").len(), 7, "something was left beside the copies");
    });
}

#[test]
fn a_copy_goes_from_one_file_system_to_another() {
    let Some(memory) = Arena::on_tmpfs() else { return skip("there is no tmpfs") };
    let disk = Arena::within(&std::env::temp_dir());
    let device = |arena: &Arena| fs::metadata(arena.at(".")).unwrap().dev();
    if device(&disk) == device(&memory) {
        return skip("temporary files are in memory too");
    }
    for choice in resolvers() {
        let policy = Policy::default().with_durability(Durability::Full).with_resolver(choice);
        let (root, arena) = (&disk.open(policy), &disk);
        let other = memory.open(root.policy().clone().with_access(Access::shared()));
        arena.file("f", pattern(300_000));
        root.copy_to("f", &other, "g", MOST).unwrap();
        assert_eq!((memory.content("g"), memory.mode_of("g")), (pattern(300_000), 0o660));
        other.copy_to("g", root, "back", MOST).unwrap();
        assert_eq!((arena.content("back"), arena.mode_of("back")), (pattern(300_000), 0o600));
        fs::remove_file(memory.at("g")).unwrap();
        fs::remove_file(arena.at("back")).unwrap();
    }
}

#[test]
fn a_source_that_is_not_a_file_of_the_guest_alone_is_refused() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").fifo("p").socket("s").link("in", "d").link("loop", "loop");
        arena.link("out", arena.outside()).link("leaf", arena.outside().join("secret"));
        arena.hard_link("stolen", arena.throwaway().join("canary"));
        let devices = arena.device("zero", FileType::CharacterDevice, 1, 5);
        let before = arena.snapshot();
        for (from, expected) in [
            ("leaf", ErrorKind::Symlink),
            ("loop", ErrorKind::Symlink),
            ("in/f", ErrorKind::Symlink),
            ("out/secret", ErrorKind::Symlink),
            ("p", ErrorKind::NotRegular),
            ("s", ErrorKind::NotRegular),
            ("d", ErrorKind::NotRegular),
            ("zero", if devices { ErrorKind::NotRegular } else { ErrorKind::NotFound }),
            ("stolen", ErrorKind::HardLinked),
            ("none", ErrorKind::NotFound),
            ("d/f/x", ErrorKind::NotDirectory),
            ("../outside/secret", ErrorKind::Escape),
        ] {
            let error = root.copy(from, "new", MOST).unwrap_err();
            assert_eq!(error.kind(), expected, "{from}");
            assert_eq!((error.operation(), error.subject().unwrap().to_str().unwrap()), ("copy", from));
        }
        before.assert_same(&arena.snapshot(), "a refused copy");
    });
}

#[test]
fn hard_links_are_copied_where_the_policy_reads_them() {
    for_each_policy(&Policy::default().with_hard_links(HardLinks::Allow), |root, arena| {
        arena.file("f", "x").hard_link("g", arena.at("f"));
        root.copy("g", "h", MOST).unwrap();
        assert_eq!(fs::metadata(arena.at("h")).unwrap().nlink(), 1);
    });
}

#[test]
fn a_destination_is_never_replaced_or_followed() {
    for_each_resolver(|root, arena| {
        arena.file("f", "new").file("file", "old").dir("dir").fifo("fifo").link("link", "file");
        arena.link("dangling", "none").link("out-new", arena.outside().join("new"));
        arena.link("in", "dir").link("out", arena.outside());
        let before = arena.snapshot();
        for name in ["file", "dir", "fifo", "link", "dangling", "out-new", "f"] {
            let error = root.copy("f", name, MOST).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{name}");
            assert_eq!(error.subject().unwrap().to_str(), Some(name));
        }
        for path in ["in/x", "out/x"] {
            assert_eq!(kind(root.copy("f", path, MOST)), ErrorKind::Symlink, "{path}");
        }
        assert_eq!(kind(root.copy("f", "missing/x", MOST)), ErrorKind::NotFound);
        assert_eq!(kind(root.copy("f", "file/x", MOST)), ErrorKind::NotDirectory);
        before.assert_same(&arena.snapshot(), "a refused copy");
    });
}

#[test]
fn execute_bits_are_kept_for_those_who_may_read_and_set_id_bits_for_nobody() {
    for (policy, before, after) in [
        (0o600, 0o755, 0o700),
        (0o660, 0o755, 0o770),
        (0o644, 0o711, 0o755),
        (0o600, 0o644, 0o600),
        (0o644, 0o7755, 0o755),
        (0o600, 0o6644, 0o600),
    ] {
        for_each_policy(&Policy::default().with_access(Access::custom(policy, 0o700)), |root, arena| {
            arena.file("f", "x").mode("f", before);
            root.copy("f", "g", MOST).unwrap();
            assert_eq!(arena.mode_of("g"), after, "{before:o} under {policy:o}");
        });
    }
}

#[test]
fn more_than_the_limit_is_refused_and_nothing_is_left() {
    for_each_resolver(|root, arena| {
        arena.file("f", pattern(100_000));
        for limit in [0, 1, 65_536, 99_999] {
            let error = root.copy("f", "g", limit).unwrap_err();
            assert_eq!((error.kind(), error.subject().unwrap().to_str()), (ErrorKind::TooLarge, Some("f")));
        }
        File::create(arena.at("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(kind(root.copy("huge", "g", MOST)), ErrorKind::TooLarge);
        assert_eq!(arena.names(".").len(), 2);
    });
}

#[test]
fn holes_stay_holes() {
    for_each_resolver(|root, arena| {
        let huge = File::create(arena.at("huge")).unwrap();
        for (at, text) in [(0, "start"), (1 << 30, "middle"), (3 << 30, "end")] {
            huge.write_all_at(text.as_bytes(), at).unwrap();
        }
        huge.set_len(1 << 40).unwrap();
        assert_eq!(root.copy("huge", "copy", 1 << 40).unwrap().bytes, 1 << 40);
        let copy = fs::metadata(arena.at("copy")).unwrap();
        assert_eq!(copy.len(), 1 << 40);
        assert!(copy.blocks() * 512 < 1 << 20, "{} blocks", copy.blocks());
        let copy = File::open(arena.at("copy")).unwrap();
        for (at, text) in [(0, "start\0"), (1 << 30, "middle\0"), (3 << 30, "end\0")] {
            let mut found = vec![0; text.len()];
            copy.read_exact_at(&mut found, at).unwrap();
            assert_eq!(found, text.as_bytes());
        }
    });
}

#[test]
fn a_source_that_grows_without_end_ends_at_the_limit() {
    for_each_resolver(|root, arena| {
        arena.file("log", "x");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut log = OpenOptions::new().append(true).open(arena.at("log")).unwrap();
                let mut left = 64;
                while !over.load(Ordering::Relaxed) && left > 0 {
                    log.write_all(&[b'x'; 1 << 16]).unwrap();
                    left -= 1;
                }
            });
            for round in 0..20 {
                let name = format!("copy{round}");
                match root.copy("log", &name, 1 << 20) {
                    Ok(copied) => {
                        assert!(copied.bytes <= 1 << 20);
                        let copy = arena.content(&name);
                        assert_eq!(copy.len() as u64, copied.bytes);
                        assert!(copy.iter().all(|byte| *byte == b'x'), "a hole where nobody made one");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TooLarge);
                        assert!(!arena.has(&name));
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_copy_needs_no_help_of_the_kernel() {
    for errno in [Errno::NOSYS, Errno::PERM, Errno::XDEV, Errno::INVAL, Errno::OPNOTSUPP] {
        denied(&[Denial::CopyRange(errno)], || {
            for_each_resolver(|root, arena| {
                arena.file("f", pattern(300_001));
                assert_eq!(root.copy("f", "g", MOST).unwrap().bytes, 300_001);
                assert_eq!(arena.content("g"), pattern(300_001));
            });
        });
    }
}

#[test]
fn a_copy_that_finds_no_space_leaves_nothing() {
    denied(&[Denial::CopyRange(Errno::NOSPC)], || {
        for_each_resolver(|root, arena| {
            arena.file("f", "x");
            let error = root.copy("f", "g", MOST).unwrap_err();
            assert_eq!((error.kind(), error.subject().unwrap().to_str()), (ErrorKind::NoSpace, Some("g")));
            assert_eq!(arena.names(".").len(), 1);
        });
    });
}

/// The usual way to save: truncate, then write as many bytes again. At no moment does the file have a hole.
///
/// What the kernel reads is not judged: on tmpfs a plain `pread` beside a save may return a page of zeros that the file never
/// had, since the page and the size are looked up one after the other.
#[test]
fn a_file_that_is_saved_anew_meanwhile_is_never_taken_for_a_hole() {
    const SIZE: usize = 8 << 10;
    let arena = Arena::quick();
    arena.file("f", vec![b'x'; SIZE]);
    let root = arena.open(Policy::default().with_hard_links(HardLinks::Allow));
    let (over, saves) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::write(arena.at("f"), vec![b'x'; SIZE]).unwrap();
                saves.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _ends = Ends(&over);
        let (mut rounds, mut whole) = (0, 0);
        while rounds < 1_000 || saves.load(Ordering::Relaxed) < 1_000 || whole < 100 {
            assert!(rounds < 1_000_000, "nothing was saved, or nothing copied");
            if let Ok(copied) = root.copy("f", "g", MOST) {
                let copy = File::open(arena.at("g")).unwrap();
                // An empty file has no offset at which there could be a hole.
                if copied.bytes > 0 {
                    assert_eq!(seek(&copy, SeekFrom::Hole(0)).unwrap(), copied.bytes, "the copy has a hole");
                }
                whole += u64::from(copied.bytes == SIZE as u64);
                fs::remove_file(arena.at("g")).unwrap();
            }
            rounds += 1;
        }
    });
}
