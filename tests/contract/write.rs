//! Writing: a name appears complete or not at all, never over anything, never through anything.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use beneath::{Durability, ErrorKind, Policy};

use crate::support::{Op, Snapshot, child, for_each_policy, for_each_resolver, kind, skip};

const WRITERS: [Op; 3] = [Op::Write, Op::NewFile, Op::Replace];

#[test]
fn writes_whole_files() {
    for_each_resolver(|root, arena| {
        arena.dir("a/b");
        for size in [0, 1, 4096, 100_000, 3_000_000] {
            let content: Vec<u8> = (0..size).map(|n| (n * 17 % 251) as u8).collect();
            let path = format!("a/b/f{size}");
            root.write_exclusive(&path, &content).unwrap();
            assert_eq!(arena.content(&path), content);
            assert_eq!(fs::metadata(arena.at(&path)).unwrap().nlink(), 1);
        }
        assert_eq!(arena.names("a/b").len(), 5, "something was left beside the files");
    });
}

#[test]
fn never_takes_a_name_that_is_taken() {
    for_each_resolver(|root, arena| {
        arena.file("file", "old").dir("dir").fifo("fifo").socket("socket");
        arena.link("link", "file").link("dangling", "none").link("loop", "loop");
        arena.link("out", arena.outside().join("secret")).link("out-new", arena.outside().join("new"));
        let before = arena.snapshot();
        for name in ["file", "dir", "fifo", "socket", "link", "dangling", "loop", "out", "out-new"] {
            for op in [Op::Write, Op::NewFile] {
                assert_eq!(kind(op.run(root, name)), ErrorKind::AlreadyExists, "{op:?} {name}");
            }
        }
        // Directories that were written to and cleaned show a new time, so compare what is there.
        let after = arena.snapshot();
        assert!(before.paths().eq(after.paths()));
        assert_eq!(arena.content("file"), b"old");
    });
}

#[test]
fn parent_must_be_a_real_directory() {
    for_each_resolver(|root, arena| {
        arena.dir("d").file("f", "x").link("in", "d").link("out", arena.outside()).link("none", "nowhere");
        let before = arena.snapshot();
        for op in WRITERS {
            assert_eq!(kind(op.run(root, "missing/new")), ErrorKind::NotFound, "{op:?}");
            assert_eq!(kind(op.run(root, "f/new")), ErrorKind::NotDirectory, "{op:?}");
            for link in ["in", "out", "none"] {
                assert_eq!(kind(op.run(root, format!("{link}/new"))), ErrorKind::Symlink, "{op:?} {link}");
            }
        }
        before.assert_same(&arena.snapshot(), "a refused write");
    });
}

#[test]
fn a_new_file_is_invisible_until_it_is_committed() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        let mut file = root.new_file("d/f").unwrap();
        file.write_all(b"one ").unwrap();
        assert!(!arena.has("d/f"));
        file.write_all(b"two").unwrap();
        file.commit().unwrap();
        assert_eq!(arena.content("d/f"), b"one two");
        assert_eq!(arena.names("d").len(), 1);
    });
}

#[test]
fn a_new_file_that_is_dropped_leaves_nothing() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        let mut file = root.new_file("d/f").unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        drop(file);
        assert!(arena.names("d").is_empty());
    });
}

#[test]
fn a_directory_that_is_gone_before_the_commit_is_not_found() {
    for_each_resolver(|root, arena| {
        for replace in [false, true] {
            arena.dir("d");
            let file = root.new_file("d/f").unwrap();
            if !arena.names("d").is_empty() {
                return skip("a file has a name here before it is complete");
            }
            fs::remove_dir(arena.at("d")).unwrap();
            let outcome = if replace { file.commit_replace() } else { file.commit() };
            assert_eq!(kind(outcome), ErrorKind::NotFound);
            assert!(arena.names(".").is_empty());
        }
    });
}

#[test]
fn a_new_file_outlives_its_root() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        let narrow = root.descend("d").unwrap();
        let mut file = narrow.new_file("f").unwrap();
        drop(narrow);
        file.write_all(b"x").unwrap();
        file.commit().unwrap();
        assert_eq!(arena.content("d/f"), b"x");
    });
}

#[test]
fn a_new_file_stops_at_its_limit() {
    for_each_resolver(|root, arena| {
        let mut file = root.new_file("exact").unwrap().with_limit(10);
        file.write_all(&[1; 10]).unwrap();
        file.commit().unwrap();
        assert_eq!(arena.content("exact").len(), 10);
        let mut file = root.new_file("over").unwrap().with_limit(10);
        let error = file.write_all(&[1; 11]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge, "{error}");
        assert_eq!(kind(file.commit()), ErrorKind::TooLarge, "half a file must not be published");
        assert_eq!(arena.names(".").len(), 1);
    });
}

#[test]
fn a_limit_is_on_all_that_is_written() {
    for_each_resolver(|root, arena| {
        let mut file = root.new_file("f").unwrap().with_limit(10);
        assert_eq!(file.written(), 0);
        file.write_all(&[1; 6]).unwrap();
        assert_eq!(file.written(), 6);
        file.write_all(&[1; 3]).unwrap();
        assert_eq!(file.written(), 9);
        file.write_all(&[1; 2]).unwrap_err();
        assert_eq!(kind(file.commit()), ErrorKind::TooLarge);
        assert!(arena.names(".").is_empty());
    });
}

#[test]
fn a_limit_set_late_still_holds() {
    for_each_resolver(|root, arena| {
        let mut file = root.new_file("f").unwrap();
        file.write_all(&[1; 20]).unwrap();
        let mut file = file.with_limit(10);
        let error = file.write_all(&[1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge, "{error}");
        assert_eq!(kind(file.commit()), ErrorKind::TooLarge);
        assert!(arena.names(".").is_empty());
    });
}

#[test]
fn the_name_is_decided_at_commit() {
    for_each_resolver(|root, arena| {
        let mut file = root.new_file("f").unwrap();
        file.write_all(b"late").unwrap();
        arena.file("f", "guest");
        assert_eq!(kind(file.commit()), ErrorKind::AlreadyExists);
        assert_eq!(arena.content("f"), b"guest");
        assert_eq!(arena.names(".").len(), 1);
    });
}

#[test]
fn a_name_that_is_taken_can_be_followed_by_another() {
    for_each_resolver(|root, arena| {
        arena.file("d/photo.png", "guest").link("d/photo-2.png", arena.outside().join("secret"));
        let mut file = root.new_file("d/photo.png").unwrap();
        file.write_all(b"host").unwrap();
        for taken in ["photo.png", "photo-2.png"] {
            assert_eq!(kind(file.commit_as(taken)), ErrorKind::AlreadyExists);
        }
        for bad in ["", ".", "a/b", "x/"] {
            assert_eq!(kind(file.commit_as(bad)), ErrorKind::InvalidPath, "{bad}");
        }
        for bad in ["..", "../x", "/x"] {
            assert_eq!(kind(file.commit_as(bad)), ErrorKind::Escape, "{bad}");
        }
        file.commit_as("photo-3.png").unwrap();
        assert_eq!(kind(file.commit_as("photo-4.png")), ErrorKind::AlreadyExists, "it has a name already");
        file.write_all(b"more").unwrap_err();
        drop(file);
        assert_eq!(arena.content("d/photo-3.png"), b"host");
        assert_eq!(arena.content("d/photo.png"), b"guest");
        assert_eq!(arena.names("d").len(), 3);
    });
}

#[test]
fn the_parent_is_held_and_not_looked_up_again() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        let mut file = root.new_file("d/f").unwrap();
        file.write_all(b"x").unwrap();
        fs::rename(arena.at("d"), arena.at("moved")).unwrap();
        arena.link("d", arena.outside());
        file.commit().unwrap();
        assert_eq!(arena.content("moved/f"), b"x");
    });
}

#[test]
fn replaces_files_and_links_but_never_what_they_point_to() {
    for_each_resolver(|root, arena| {
        arena.file("f", "old").file("t", "target").link("in", "t").link("none", "nowhere");
        arena.link("out", arena.outside().join("secret")).fifo("p").socket("s");
        for name in ["f", "in", "none", "out", "p", "s", "new"] {
            root.replace(name, "fresh").unwrap();
            assert!(fs::symlink_metadata(arena.at(name)).unwrap().is_file(), "{name}");
            assert_eq!(arena.content(name), b"fresh", "{name}");
        }
        assert_eq!(arena.content("t"), b"target");
        assert!(!arena.has("nowhere"));
        assert_eq!(arena.names(".").len(), 8);
    });
}

#[test]
fn replacing_does_not_write_into_the_old_inode() {
    for_each_resolver(|root, arena| {
        let canary = arena.throwaway().join("canary");
        arena.hard_link("stolen", &canary);
        root.replace("stolen", "fresh").unwrap();
        assert_eq!(fs::read(&canary).unwrap(), b"CANARY");
        assert_eq!(arena.content("stolen"), b"fresh");
    });
}

#[test]
fn replacing_a_directory_is_refused() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").dir("empty");
        for name in ["d", "empty"] {
            let kind = kind(root.replace(name, "y"));
            assert!(matches!(kind, ErrorKind::NotRegular | ErrorKind::AlreadyExists), "{name}: {kind:?}");
        }
        assert_eq!(arena.content("d/f"), b"x");
        assert_eq!(arena.names(".").len(), 2);
    });
}

#[test]
fn commit_replace_publishes_over_a_file() {
    for_each_resolver(|root, arena| {
        arena.file("f", "old");
        let mut file = root.new_file("f").unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(arena.content("f"), b"old");
        file.commit_replace().unwrap();
        assert_eq!(arena.content("f"), b"new");
        assert_eq!(arena.names(".").len(), 1);
    });
}

#[test]
fn of_many_writers_one_wins() {
    for_each_resolver(|root, arena| {
        const WRITERS: usize = 4;
        for round in 0..40 {
            let path = format!("f{round}");
            let (won, start) = (AtomicUsize::new(0), Barrier::new(WRITERS));
            std::thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (path, won, start) = (&path, &won, &start);
                    scope.spawn(move || {
                        start.wait();
                        match root.write_exclusive(path, vec![writer as u8; 1000]) {
                            Ok(()) => _ = won.fetch_add(1, Ordering::Relaxed),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
                        }
                    });
                }
            });
            assert_eq!(won.into_inner(), 1);
            let content = arena.content(&path);
            assert_eq!(content, vec![content[0]; 1000]);
        }
        assert_eq!(arena.names(".").len(), 40);
    });
}

#[test]
fn a_reader_sees_a_whole_file_or_none() {
    for_each_resolver(|root, arena| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200_u8 {
                    root.replace("f", vec![round; 100_000]).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                match root.read_contained("f", 1 << 20) {
                    Ok(content) => {
                        assert!(content.len() == 100_000 && content.iter().all(|b| *b == content[0]))
                    }
                    // Replaced between the two looks at it, its link count is 0; or not there yet.
                    Err(error) => assert!(
                        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::HardLinked | ErrorKind::Busy),
                        "{error}"
                    ),
                }
            }
        });
        assert_eq!(arena.names(".").len(), 1);
    });
}

#[test]
fn every_durability_gives_the_same_result() {
    for durability in [Durability::None, Durability::File, Durability::Full] {
        for_each_policy(&Policy::default().with_durability(durability), |root, arena| {
            root.ensure_dir("a/b").unwrap();
            root.write_exclusive("a/b/f", "x").unwrap();
            root.replace("a/b/f", "y").unwrap();
            root.rename("a/b/f", "a/g").unwrap();
            assert_eq!(arena.content("a/g"), b"y");
            root.remove_file("a/g").unwrap();
            assert!(root.remove_tree_contained("a").unwrap().is_complete());
        });
    }
}

#[test]
fn a_directory_that_cannot_be_synced_gets_no_file() {
    child::run_unprivileged("write::a_directory_that_cannot_be_synced_gets_no_file", || {
        for_each_policy(&Policy::default().with_durability(Durability::Full), |root, arena| {
            // Entries can be made in it, but it cannot be opened.
            arena.file("f", "x").file("d/old", "x").mode("d", 0o330);
            assert_eq!(kind(root.write_exclusive("d/new", "x")), ErrorKind::Denied);
            assert_eq!(kind(root.replace("d/old", "y")), ErrorKind::Denied);
            assert_eq!(kind(root.rename("f", "d/f")), ErrorKind::Denied);
            arena.mode("d", 0o700);
            assert_eq!(arena.names("d").len(), 1);
            assert_eq!((arena.content("d/old"), arena.content("f")), (b"x".to_vec(), b"x".to_vec()));
        });
        // Whoever does not ask for it does not need the right to it.
        for durability in [Durability::None, Durability::File] {
            for_each_policy(&Policy::default().with_durability(durability), |root, arena| {
                arena.file("f", "x").file("d/old", "x").mode("d", 0o330);
                root.write_exclusive("d/new", "x").unwrap();
                root.replace("d/old", "y").unwrap();
                root.rename("f", "d/f").unwrap();
                root.ensure_dir("d/e").unwrap();
                arena.mode("d", 0o700);
                assert_eq!(arena.names("d").len(), 4);
            });
        }
    });
}

#[test]
fn a_directory_without_permission_is_denied() {
    child::run_unprivileged("write::a_directory_without_permission_is_denied", || {
        for_each_resolver(|root, arena| {
            arena.dir("d").mode("d", 0o500);
            for op in WRITERS {
                assert_eq!(kind(op.run(root, "d/f")), ErrorKind::Denied, "{op:?}");
            }
            assert_eq!(kind(root.ensure_dir("d/e")), ErrorKind::Denied);
            assert!(arena.names("d").is_empty());
        });
    });
}

/// Not a test of its own: writes for ever, to be killed.
#[test]
fn writes_until_killed() {
    if child::is("write::writes_until_killed") {
        let place = std::env::var_os("BENEATH_TEST_PLACE").unwrap();
        let root = beneath::Root::open_ambient(place, beneath::ambient_authority()).unwrap();
        let mut file = root.new_file("torn").unwrap();
        for round in 0_u64.. {
            file.write_all(&[1; 65_536]).unwrap();
            root.write_exclusive(format!("w{round}"), [2; 65_536]).unwrap();
            root.remove_file(format!("w{round}")).unwrap();
            if round == 20 {
                println!("writing");
            }
            if round % 100 == 99 {
                file = root.new_file("torn").unwrap();
            }
        }
    }
}

#[test]
fn a_killed_writer_leaves_nothing_torn() {
    use std::io::{BufRead as _, BufReader};
    let arena = crate::support::Arena::new();
    let mut writer: Command = child::command("write::writes_until_killed");
    writer.env("BENEATH_TEST_PLACE", arena.root()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut writer = writer.spawn().unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("writing")));
    writer.kill().unwrap();
    writer.wait().unwrap();
    for name in arena.names(".") {
        // The last one may have been published, and is then whole.
        assert!(name.to_string_lossy().starts_with('w'), "left behind: {name:?}");
        assert_eq!(arena.content(&name), [2; 65_536]);
    }
    assert!(arena.names(".").len() <= 1);
}

#[test]
fn a_full_file_system_leaves_nothing() {
    use rustix::mount::{MountFlags, mount};
    let arena = crate::support::Arena::new();
    crate::support::namespace::with_private_mounts(|| {
        for choice in crate::support::resolvers() {
            let small = arena.beside(&format!("small-{choice:?}"));
            fs::create_dir(&small).unwrap();
            mount("tmpfs", &small, "tmpfs", MountFlags::empty(), c"size=1m,nr_inodes=64").unwrap();
            let _mounted = crate::support::namespace::Mounted([small.clone()]);
            let root = beneath::Root::open_ambient(&small, beneath::ambient_authority()).unwrap();
            let root = root.with_policy(Policy::default().with_resolver(choice));
            let before = Snapshot::take(&small);
            assert_eq!(kind(root.write_exclusive("f", vec![1; 2 << 20])), ErrorKind::NoSpace);
            assert_eq!(kind(root.replace("f", vec![1; 2 << 20])), ErrorKind::NoSpace);
            assert!(before.paths().eq(Snapshot::take(&small).paths()));
            let refused = (0..100).find_map(|n| root.write_exclusive(format!("f{n}"), "").err()).unwrap();
            assert_eq!(refused.kind(), ErrorKind::NoSpace);
            let read_only = MountFlags::RDONLY;
            // A child that another test forks holds this one's files until it has exec'd.
            child::wait_until("remount", std::time::Duration::from_secs(10), || {
                rustix::mount::mount_remount(&small, read_only, c"").is_ok()
            });
            assert_eq!(kind(root.write_exclusive("late", "x")), ErrorKind::ReadOnly);
            assert_eq!(kind(root.ensure_dir("late")), ErrorKind::ReadOnly);
        }
    });
}
