//! Directories made, listed, described; entries renamed and unlinked.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use beneath::{Ensured, ErrorKind, FileType, Policy, Root, ambient_authority};

use beneath_kit::{Arena, child, for_each_resolver, kind, resolvers, skip, tree};

#[test]
fn ensure_dir_makes_every_level_and_says_so() {
    for_each_resolver(|root, arena| {
        assert_eq!(root.ensure_dir("a/b/c").unwrap(), Ensured::Created);
        assert_eq!(root.ensure_dir("a/b/c").unwrap(), Ensured::Existed);
        assert_eq!(root.ensure_dir("a/b").unwrap(), Ensured::Existed);
        assert_eq!(root.ensure_dir("a/b/d").unwrap(), Ensured::Created);
        assert_eq!(arena.names("a/b").len(), 2);
        for level in ["a", "a/b", "a/b/c"] {
            assert_eq!(arena.mode_of(level), 0o700, "{level}");
        }
    });
}

#[test]
fn ensure_dir_leaves_what_exists_alone() {
    for_each_resolver(|root, arena| {
        arena.dir("a").mode("a", 0o755);
        root.ensure_dir("a/b").unwrap();
        assert_eq!(arena.mode_of("a"), 0o755);
        arena.file("f", "x").link("in", "a").link("out", arena.outside()).link("none", "nowhere").fifo("p");
        let before = arena.snapshot();
        for (path, kinds) in [
            ("f", &[ErrorKind::NotDirectory, ErrorKind::AlreadyExists][..]),
            ("p", &[ErrorKind::NotDirectory, ErrorKind::AlreadyExists]),
            ("f/x", &[ErrorKind::NotDirectory]),
            ("p/x", &[ErrorKind::NotDirectory]),
            ("in", &[ErrorKind::Symlink]),
            ("out", &[ErrorKind::Symlink]),
            ("none", &[ErrorKind::Symlink]),
            ("in/x", &[ErrorKind::Symlink]),
            ("out/x/y", &[ErrorKind::Symlink]),
            ("none/x", &[ErrorKind::Symlink]),
        ] {
            let kind = kind(root.ensure_dir(path));
            assert!(kinds.contains(&kind), "{path}: {kind:?}");
        }
        before.assert_same(&arena.snapshot(), "a refused ensure_dir");
    });
}

#[test]
fn many_threads_ensure_one_tree() {
    for_each_resolver(|root, _| {
        for round in 0..20 {
            let path = format!("r{round}/a/b/c");
            let created = std::thread::scope(|scope| {
                let workers: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| root.ensure_dir(&path).unwrap())).collect();
                workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(created.contains(&Ensured::Created), "somebody made it");
        }
    });
}

#[test]
fn list_shows_every_entry_as_it_is() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "12345").dir("d/sub").link("d/l", arena.outside()).fifo("d/p").socket("d/s");
        let odd = OsStr::from_bytes(b"\xff\xfe\n");
        arena.file(Path::new("d").join(odd), "");
        let mut seen: Vec<_> = root.list("d").unwrap().map(|entry| entry.unwrap()).collect();
        seen.sort_by(|a, b| a.file_name().cmp(b.file_name()));
        let shown: Vec<_> =
            seen.iter().map(|entry| (entry.file_name(), entry.metadata().file_type())).collect();
        assert_eq!(
            shown,
            [
                (OsStr::new("f"), FileType::File),
                (OsStr::new("l"), FileType::Symlink),
                (OsStr::new("p"), FileType::Fifo),
                (OsStr::new("s"), FileType::Socket),
                (OsStr::new("sub"), FileType::Directory),
                (odd, FileType::File),
            ]
        );
        assert_eq!(seen[0].metadata().len(), 5);
        assert!(seen[1].metadata().is_symlink());
        for entry in &seen {
            let meta = fs::symlink_metadata(arena.at("d").join(entry.file_name())).unwrap();
            assert_eq!(entry.metadata().ino(), meta.ino());
            assert_eq!(entry.path(), Path::new(entry.file_name()));
        }
    });
}

#[test]
fn list_refuses_everything_but_a_real_directory() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").fifo("p").link("in", "d").dir("d").link("out", arena.outside());
        assert_eq!(kind(root.list("f")), ErrorKind::NotDirectory);
        assert_eq!(kind(root.list("p")), ErrorKind::NotDirectory);
        assert_eq!(kind(root.list("in")), ErrorKind::Symlink);
        assert_eq!(kind(root.list("out")), ErrorKind::Symlink);
        assert_eq!(kind(root.list("out/sub")), ErrorKind::Symlink);
        assert_eq!(kind(root.list("none")), ErrorKind::NotFound);
        assert_eq!(root.list("d").unwrap().count(), 0);
    });
}

#[test]
fn list_streams_a_wide_directory() {
    for choice in resolvers() {
        let arena = Arena::quick();
        arena.dir("d");
        tree::wide(fs::File::open(arena.at("d")).unwrap(), 5_000);
        let root = arena.open(Policy::default().with_resolver(choice));
        let names: BTreeSet<_> =
            root.list("d").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
        assert_eq!(names.len(), 5_000);
    }
}

#[test]
fn two_lists_do_not_share_a_position() {
    for_each_resolver(|root, arena| {
        arena.file("a", "").file("b", "").file("c", "");
        let mut first = root.list(".").unwrap();
        let _ = first.next();
        assert_eq!(root.list(".").unwrap().count(), 3);
        assert_eq!(first.count(), 2);
    });
}

#[test]
fn an_entry_that_vanishes_while_listed_is_no_error() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        tree::wide(fs::File::open(arena.at("d")).unwrap(), 100);
        let mut list = root.list("d").unwrap();
        list.next().unwrap().unwrap();
        fs::remove_dir_all(arena.at("d")).unwrap();
        for entry in list {
            entry.unwrap();
        }
    });
}

#[test]
fn metadata_describes_without_opening() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "12345").mode("d/f", 0o640).fifo("p").socket("s").link("l", "d/f");
        let meta = root.metadata("d/f").unwrap();
        let truth = fs::metadata(arena.at("d/f")).unwrap();
        assert_eq!(meta.file_type(), FileType::File);
        assert!(meta.is_file() && !meta.is_dir() && !meta.is_symlink());
        assert_eq!((meta.len(), meta.mode(), meta.nlink()), (5, 0o640, 1));
        assert_eq!((meta.ino(), meta.dev()), (truth.ino(), truth.dev()));
        assert_eq!((meta.uid(), meta.gid()), (truth.uid(), truth.gid()));
        assert_eq!(meta.modified(), truth.modified().unwrap());
        assert_eq!(meta.accessed(), truth.accessed().unwrap());
        assert_eq!(meta.created(), truth.created().ok());
        let changed = SystemTime::UNIX_EPOCH
            + Duration::from_secs(truth.ctime().unsigned_abs())
            + Duration::from_nanos(truth.ctime_nsec().unsigned_abs());
        assert_eq!(meta.changed(), changed);
        for dir in ["d", "."] {
            let meta = root.metadata(dir).unwrap();
            assert!(meta.is_dir() && !meta.is_file() && !meta.is_symlink());
        }
        assert_eq!(root.metadata("p").unwrap().file_type(), FileType::Fifo);
        assert_eq!(root.metadata("s").unwrap().file_type(), FileType::Socket);
        assert_eq!(kind(root.metadata("l")), ErrorKind::Symlink);
        assert_eq!(kind(root.metadata("none")), ErrorKind::NotFound);
        assert_eq!(kind(root.metadata("d/f/x")), ErrorKind::NotDirectory);
    });
}

#[test]
fn metadata_has_size_and_space() {
    for_each_resolver(|root, arena| {
        arena.file("empty", "").file("f", [7; 10_000]);
        let (empty, full) = (root.metadata("empty").unwrap(), root.metadata("f").unwrap());
        assert!(empty.is_empty() && !full.is_empty());
        assert_eq!((empty.len(), full.len()), (0, 10_000));
        let truth = fs::metadata(arena.at("f")).unwrap();
        assert_eq!(full.allocated(), truth.blocks() * 512);
    });
}

#[test]
fn metadata_distinguishes_devices() {
    use std::os::unix::fs::FileTypeExt as _;
    for choice in resolvers() {
        let dev = Root::open_ambient("/dev", ambient_authority()).unwrap();
        let dev = dev.with_policy(Policy::default().with_resolver(choice));
        assert_eq!(dev.metadata("null").unwrap().file_type(), FileType::CharDevice);
        for entry in dev.list(".").unwrap().flatten() {
            let Ok(truth) = fs::symlink_metadata(Path::new("/dev").join(entry.path())) else { continue };
            let found = entry.metadata().file_type();
            assert_eq!(found == FileType::CharDevice, truth.file_type().is_char_device(), "{entry:?}");
            assert_eq!(found == FileType::BlockDevice, truth.file_type().is_block_device(), "{entry:?}");
        }
    }
}

#[test]
fn metadata_has_no_creation_time_where_none_is_recorded() {
    let proc = Root::open_ambient("/proc/self", ambient_authority()).unwrap();
    if fs::metadata("/proc/self/status").unwrap().created().is_ok() {
        return skip("this kernel records when a file of /proc was made");
    }
    assert_eq!(proc.metadata("status").unwrap().created(), None);
}

#[test]
fn metadata_of_times_before_1970_and_far_ahead() {
    for_each_resolver(|root, arena| {
        for offset in [-1_000_000_000_i64, -1, 4_000_000_000] {
            arena.file("f", "");
            let when = if offset < 0 {
                SystemTime::UNIX_EPOCH - Duration::from_secs(offset.unsigned_abs())
            } else {
                SystemTime::UNIX_EPOCH + Duration::from_secs(offset.unsigned_abs())
            };
            let file = fs::File::options().write(true).open(arena.at("f")).unwrap();
            file.set_modified(when).unwrap();
            let truth = file.metadata().unwrap().modified().unwrap();
            assert_eq!(root.metadata("f").unwrap().modified(), truth, "{offset}");
        }
    });
}

#[test]
fn rename_moves_any_entry_and_never_replaces() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").dir("d/e").link("l", arena.outside()).fifo("p").link("none", "nowhere");
        for name in ["f", "l", "p", "none"] {
            let inode = fs::symlink_metadata(arena.at(name)).unwrap().ino();
            root.rename(name, format!("d/{name}")).unwrap();
            assert_eq!(fs::symlink_metadata(arena.at("d").join(name)).unwrap().ino(), inode, "{name}");
            assert!(!arena.has(name));
        }
        root.rename("d", "moved").unwrap();
        assert!(arena.has("moved/e"));
        arena.file("g", "y");
        for taken in ["moved", "moved/e", "moved/f", "moved/l", "moved/none", "moved/p"] {
            assert_eq!(kind(root.rename("g", taken)), ErrorKind::AlreadyExists, "{taken}");
        }
        assert_eq!(arena.content("g"), b"y");
        assert_eq!(kind(root.rename("none", "h")), ErrorKind::NotFound);
        assert_eq!(kind(root.rename("g", "missing/h")), ErrorKind::NotFound);
        assert_eq!(kind(root.rename("g", "moved/f/h")), ErrorKind::NotDirectory);
    });
}

#[test]
fn rename_confines_both_ends() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").link("out", arena.outside()).link("in", "d").file("d/f", "y");
        let before = arena.snapshot();
        for (from, to) in [
            ("out/secret", "g"),
            ("f", "out/g"),
            ("in/f", "g"),
            ("f", "in/g"),
            ("out/secret", "out/g"),
            ("out/sub/x", "in/g"),
        ] {
            assert_eq!(kind(root.rename(from, to)), ErrorKind::Symlink, "{from} -> {to}");
        }
        before.assert_same(&arena.snapshot(), "a refused rename");
    });
}

#[test]
fn a_directory_does_not_go_into_itself() {
    for_each_resolver(|root, arena| {
        arena.dir("a/b");
        assert_eq!(kind(root.rename("a", "a/b/c")), ErrorKind::InvalidPath);
        assert_eq!(kind(root.rename("a", "a/c")), ErrorKind::InvalidPath);
        assert_eq!(kind(root.rename("a/b", "a")), ErrorKind::AlreadyExists);
        assert_eq!(kind(root.rename("a", "a")), ErrorKind::AlreadyExists);
        assert!(arena.has("a/b"));
    });
}

#[test]
fn renames_between_two_roots() {
    for_each_resolver(|root, arena| {
        arena.file("a/f", "x").dir("b/d").link("b/l", arena.outside()).link("a/out", arena.outside());
        let (a, b) = (root.descend("a").unwrap(), root.descend("b").unwrap());
        a.rename_to("f", &b, "d/f").unwrap();
        assert_eq!(arena.content("b/d/f"), b"x");
        assert_eq!(kind(b.rename_to("d/f", &a, "out/f")), ErrorKind::Symlink);
        assert_eq!(kind(a.rename_to("out/secret", &b, "f")), ErrorKind::Symlink);
        assert_eq!(kind(b.rename_to("d", &a, "out")), ErrorKind::AlreadyExists);
        assert_eq!(arena.content("b/d/f"), b"x");
    });
}

#[test]
fn remove_file_unlinks_anything_but_a_directory() {
    for_each_resolver(|root, arena| {
        let canary = arena.throwaway().join("canary");
        arena.file("f", "x").fifo("p").socket("s").link("out", arena.outside()).link("none", "nowhere");
        arena.link("secret", arena.outside().join("secret")).hard_link("stolen", &canary).file("d/f", "x");
        for name in ["f", "p", "s", "out", "none", "secret", "stolen", "d/f"] {
            root.remove_file(name).unwrap();
            assert!(!arena.has(name), "{name}");
        }
        assert_eq!(fs::read(canary).unwrap(), b"CANARY");
        assert_eq!(kind(root.remove_file("d")), ErrorKind::NotRegular);
        assert_eq!(kind(root.remove_file("f")), ErrorKind::NotFound);
        assert!(arena.has("d"));
    });
}

#[test]
fn remove_dir_removes_an_empty_directory_and_nothing_else() {
    for_each_resolver(|root, arena| {
        arena.dir("d/e").file("f", "x").link("l", "d").link("out", arena.outside()).fifo("p");
        let error = root.remove_dir("d").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotEmpty);
        assert_eq!(error.to_string(), r#"remove "d": is not empty"#);
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::DirectoryNotEmpty);
        for name in ["f", "l", "out", "p"] {
            let error = root.remove_dir(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotDirectory, "{name}");
            assert_eq!(error.to_string(), format!(r#"remove "{name}": is not a directory"#));
        }
        assert_eq!(kind(root.remove_dir("out/sub")), ErrorKind::Symlink);
        assert_eq!(kind(root.remove_dir("none")), ErrorKind::NotFound);
        root.remove_dir("d/e").unwrap();
        root.remove_dir("d/").unwrap();
        assert_eq!(arena.names(".").len(), 4);
    });
}

/// A refused rename is reported of the end that is in the way.
#[test]
fn rename_blames_the_end_that_failed() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").file("taken", "y");
        assert_eq!(root.rename("f", "taken").unwrap_err().subject(), Some(Path::new("taken")));
        assert_eq!(root.rename("none", "free").unwrap_err().subject(), Some(Path::new("none")));
    });
}

#[test]
fn remove_file_does_not_pass_through_links() {
    for_each_resolver(|root, arena| {
        arena.link("out", arena.outside()).link("in", "d").file("d/f", "x").file("f", "x");
        assert_eq!(kind(root.remove_file("out/secret")), ErrorKind::Symlink);
        assert_eq!(kind(root.remove_file("in/f")), ErrorKind::Symlink);
        assert_eq!(kind(root.remove_file("f/x")), ErrorKind::NotDirectory);
        assert_eq!(arena.content("d/f"), b"x");
    });
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    use beneath::Access;
    child::run_unprivileged("entries::modes_do_not_depend_on_the_umask", || {
        for mask in [0, 0o022, 0o077, 0o777] {
            for access in [Access::private(), Access::shared(), Access::custom(0o644, 0o755)] {
                for choice in resolvers() {
                    let arena = Arena::new();
                    let policy = Policy::default().with_access(access).with_resolver(choice);
                    let root = arena.open(policy);
                    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
                    root.ensure_dir("a/b").unwrap();
                    root.write_exclusive("a/f", "x").unwrap();
                    root.replace("a/r", "x").unwrap();
                    root.new_file("a/n").unwrap().commit().unwrap();
                    rustix::process::umask(old);
                    for dir in ["a", "a/b"] {
                        assert_eq!(arena.mode_of(dir), access.dir_mode(), "{dir} {mask:o}");
                    }
                    for file in ["a/f", "a/r", "a/n"] {
                        assert_eq!(arena.mode_of(file), access.file_mode(), "{file} {mask:o}");
                    }
                }
            }
        }
    });
}
