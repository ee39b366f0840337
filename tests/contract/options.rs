//! What a single write may want: a mode, parents, the place of a read-only file; and what a new file knows of itself.

use std::fs;
use std::io::{self, Read, Write as _};

use beneath::{Access, ErrorKind, NewFile, Policy, Result, Root, WriteOptions};
use sha2::{Digest as _, Sha256};

use beneath_kit::{for_each_policy, for_each_resolver, kind};

type Write = fn(&Root, &str, WriteOptions) -> Result<()>;

fn filled(root: &Root, path: &str, options: WriteOptions) -> Result<NewFile> {
    let mut file = root.new_file_with(path, options)?;
    file.copy_from(&b"new"[..], 3)?;
    Ok(file)
}

const WRITERS: [(&str, Write); 4] = [
    ("write_exclusive_with", |root, path, options| root.write_exclusive_with(path, "new", options)),
    ("commit", |root, path, options| filled(root, path, options)?.commit()),
    REPLACERS[0],
    REPLACERS[1],
];

const REPLACERS: [(&str, Write); 2] = [
    ("replace_with", |root, path, options| root.replace_with(path, "new", options)),
    ("commit_replace", |root, path, options| filled(root, path, options)?.commit_replace()),
];

#[test]
fn a_write_gets_exactly_the_mode_it_asks_for() {
    for_each_resolver(|root, arena| {
        for (name, write) in WRITERS {
            for mode in [0o755, 0o000, 0o444, 0o777, 0o640] {
                let path = format!("{name}-{mode:o}");
                write(root, &path, WriteOptions::default().with_mode(mode)).unwrap();
                assert_eq!(arena.mode_of(&path), mode, "{path}");
            }
            write(root, name, WriteOptions::default()).unwrap();
            assert_eq!(arena.mode_of(name), 0o600, "{name}");
        }
    });
}

#[test]
fn set_id_and_sticky_bits_are_given_to_no_file() {
    for_each_resolver(|root, arena| {
        for (name, write) in WRITERS {
            for mode in [0o4755, 0o2755, 0o1777, 0o7777, 0o100_644, u32::MAX] {
                let options = WriteOptions::default().with_mode(mode).with_parents();
                assert_eq!(kind(write(root, "d/f", options)), ErrorKind::Denied, "{name} {mode:o}");
            }
        }
        assert!(arena.names(".").is_empty());
    });
}

#[test]
fn missing_parents_are_made_only_on_request_and_with_the_mode_of_the_policy() {
    for_each_policy(&Policy::default().with_access(Access::shared()), |root, arena| {
        for (name, write) in WRITERS {
            let path = format!("{name}/a/b/f");
            assert_eq!(kind(write(root, &path, WriteOptions::default())), ErrorKind::NotFound, "{name}");
            assert!(!arena.has(name));
            for _ in 0..2 {
                write(root, &path, WriteOptions::default().with_parents()).unwrap();
                assert_eq!(arena.content(&path), b"new");
                assert_eq!(arena.mode_of(format!("{name}/a/b")), 0o770);
                fs::remove_file(arena.at(&path)).unwrap();
            }
            write(root, &format!("{name}-top"), WriteOptions::default().with_parents()).unwrap();
        }
    });
}

#[test]
fn parents_are_never_made_through_a_link_or_another_entry() {
    for_each_resolver(|root, arena| {
        arena.dir("d").file("f", "x").fifo("p");
        arena.link("in", "d").link("out", arena.outside()).link("none", "nowhere").link("loop", "loop");
        let before = arena.snapshot();
        for (name, write) in WRITERS {
            let write = |path: &str| kind(write(root, path, WriteOptions::default().with_parents()));
            for link in ["in", "out", "none", "loop"] {
                assert_eq!(write(&format!("{link}/new/x")), ErrorKind::Symlink, "{name} {link}");
                assert_eq!(write(&format!("{link}/x")), ErrorKind::Symlink, "{name} {link}");
            }
            for other in ["f", "p"] {
                assert_eq!(write(&format!("{other}/new/x")), ErrorKind::NotDirectory, "{name} {other}");
            }
            assert_eq!(write("d/../x"), ErrorKind::Escape, "{name}");
        }
        before.assert_same(&arena.snapshot(), "a refused write");
    });
}

#[test]
fn a_replacement_keeps_the_permission_bits_and_no_others() {
    for_each_resolver(|root, arena| {
        for (name, replace) in REPLACERS {
            for (before, after) in
                [(0o755, 0o755), (0o611, 0o611), (0o666, 0o666), (0o4755, 0o755), (0o3775, 0o775)]
            {
                arena.file("f", "old").mode("f", before);
                replace(root, "f", WriteOptions::default()).unwrap();
                assert_eq!((arena.content("f"), arena.mode_of("f")), (b"new".to_vec(), after), "{name}");
                replace(root, "f", WriteOptions::default().with_mode(0o640)).unwrap();
                assert_eq!(arena.mode_of("f"), 0o640, "{name}: what is asked for wins");
                fs::remove_file(arena.at("f")).unwrap();
            }
        }
    });
}

#[test]
fn a_replacement_takes_no_mode_from_what_is_no_file() {
    for_each_resolver(|root, arena| {
        for (name, replace) in REPLACERS {
            arena
                .file("target", "x")
                .mode("target", 0o777)
                .link("l", "target")
                .fifo("p")
                .link("none", "nowhere");
            arena.link("out", arena.outside().join("secret"));
            for path in ["l", "p", "none", "out", "new"] {
                replace(root, path, WriteOptions::default()).unwrap();
                assert_eq!(arena.mode_of(path), 0o600, "{name} {path}");
                assert!(fs::symlink_metadata(arena.at(path)).unwrap().is_file());
                fs::remove_file(arena.at(path)).unwrap();
            }
            assert_eq!(arena.content("target"), b"x");
        }
    });
}

#[test]
fn a_read_only_file_is_replaced_only_on_request() {
    for_each_resolver(|root, arena| {
        for (name, replace) in REPLACERS {
            for mode in [0o444, 0o400, 0o555, 0o000] {
                arena.file("f", "old").mode("f", mode);
                let before = arena.snapshot();
                for options in [WriteOptions::default(), WriteOptions::default().with_mode(0o600)] {
                    assert_eq!(kind(replace(root, "f", options)), ErrorKind::Denied, "{name} {mode:o}");
                }
                assert!(before.paths().eq(arena.snapshot().paths()), "something was left");
                replace(root, "f", WriteOptions::default().over_read_only()).unwrap();
                assert_eq!(arena.mode_of("f"), mode, "{name}");
                fs::remove_file(arena.at("f")).unwrap();
            }
        }
    });
}

#[test]
fn a_new_file_takes_what_a_reader_gives_and_no_more_than_the_limit() {
    for_each_resolver(|root, arena| {
        let content: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        for limit in [300_000, u64::MAX] {
            let mut file = root.new_file("f").unwrap();
            assert_eq!(file.copy_from(&content[..], limit).unwrap(), 300_000);
            assert_eq!(file.copy_from(io::empty(), 0).unwrap(), 0);
            assert_eq!(file.written(), 300_000);
            file.commit().unwrap();
            assert_eq!(arena.content("f"), content);
            fs::remove_file(arena.at("f")).unwrap();
        }
        for limit in [0, 1, 65_535, 65_536, 299_999] {
            let mut file = root.new_file("f").unwrap();
            assert_eq!(kind(file.copy_from(&content[..], limit)), ErrorKind::TooLarge, "{limit}");
            assert!(file.written() <= limit);
            assert_eq!(kind(file.commit()), ErrorKind::TooLarge, "{limit}");
        }
        let mut limited = root.new_file("f").unwrap().with_limit(1000);
        assert_eq!(kind(limited.copy_from(io::repeat(1), u64::MAX)), ErrorKind::TooLarge);
        assert!(arena.names(".").is_empty());
    });
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn a_reader_that_fails_leaves_no_file() {
    for_each_resolver(|root, arena| {
        arena.link("out", arena.outside().join("secret"));
        let mut file = root.new_file("f").unwrap();
        assert_eq!(kind(file.copy_from(b"half".chain(Failing), 100)), ErrorKind::Io);
        assert_eq!(kind(file.commit()), ErrorKind::Io);
        assert_eq!(arena.names(".").len(), 1);
    });
}

#[test]
fn the_hash_is_that_of_what_was_written_and_only_for_who_asks_first() {
    for_each_resolver(|root, arena| {
        let mut file = root.new_file("f").unwrap().with_sha256();
        file.write_all(b"one ").unwrap();
        file.copy_from(&b"two"[..], 3).unwrap();
        let expected: [u8; 32] = Sha256::digest(b"one two").into();
        let mut file = file.with_sha256();
        assert_eq!(file.sha256(), Some(expected));
        file.commit_as("g").unwrap();
        assert_eq!(file.sha256(), Some(expected));
        assert_eq!(<[u8; 32]>::from(Sha256::digest(arena.content("g"))), expected);

        let mut late = root.new_file("f").unwrap();
        late.write_all(b"one").unwrap();
        let late = late.with_sha256();
        assert_eq!(late.sha256(), None, "a hash of a part would be mistaken for that of the whole");
    });
}

#[test]
fn options_print_their_mode_in_octal() {
    let options = WriteOptions::default().with_mode(0o755).with_parents();
    assert!(format!("{options:?}").contains("mode: Some(0o755)"), "{options:?}");
}

#[test]
fn what_the_policy_makes_read_only_can_be_replaced() {
    for_each_policy(&Policy::default().with_access(Access::custom(0o440, 0o750)), |root, arena| {
        root.replace("status", "one").unwrap();
        root.replace("status", "two").unwrap();
        assert_eq!((arena.content("status"), arena.mode_of("status")), (b"two".to_vec(), 0o440));
    });
}
