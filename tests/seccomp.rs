//! Kernels, profiles and file systems that lack a call: the same contract by another way.
//!
//! The contract and the corpus run as a whole without `openat2` from their own binaries. Here each fallback is
//! reached on purpose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use beneath::{
    Budget, Durability, ErrorKind, Leftovers, Links, Mounts, Policy, Resolver, ResolverChoice, Root,
    WalkLimits,
};
use beneath_kit::operations::{OPERATIONS, writers};
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{Arena, for_each_policy, for_each_resolver, has_openat2, kind, skip};
use rustix::io::Errno;

#[test]
fn without_openat2_the_walk_is_chosen() {
    for errno in [Errno::NOSYS, Errno::PERM] {
        denied(&[Denial::Openat2(errno)], || {
            assert!(!has_openat2(), "the filter is not in force");
            let arena = Arena::new();
            arena.file("a/f", "x").link("l", arena.outside());
            let root = arena.open(Policy::default());
            assert_eq!(root.resolver(), Resolver::Walk);
            assert_eq!(root.read_contained("a/f", 9).unwrap(), b"x");
            assert_eq!(kind(root.read_contained("l/secret", 9)), ErrorKind::Symlink);
            assert_eq!(root.descend("a").unwrap().resolver(), Resolver::Walk);
            let follow = arena.open(Policy::default().with_links(Links::FollowBeneath));
            assert_eq!(kind(follow.read_contained("a/f", 9)), ErrorKind::Unsupported);
            let forced = arena.open(Policy::default().with_resolver(ResolverChoice::Openat2));
            for op in OPERATIONS {
                assert_eq!(kind(op.run_on(&forced, "a/f")), ErrorKind::Unsupported, "{op:?}");
            }
        });
    }
}

#[test]
fn losing_openat2_later_never_weakens_a_root() {
    if !has_openat2() {
        return skip("openat2 is missing from the start");
    }
    let arena = Arena::new();
    arena.file("a/f", "x");
    let root = arena.open(Policy::default());
    assert_eq!(root.resolver(), Resolver::Openat2);
    for (errno, expected) in [
        (Errno::PERM, ErrorKind::Denied),
        (Errno::AGAIN, ErrorKind::Busy),
        (Errno::XDEV, ErrorKind::CrossDevice),
        (Errno::NOSYS, ErrorKind::Unsupported),
    ] {
        denied(&[Denial::Openat2(errno)], || {
            assert_eq!(kind(root.read_contained("a/f", 9)), expected);
            assert_eq!(root.resolver(), Resolver::Openat2);
            let crossing =
                root.try_clone().unwrap().with_policy(Policy::default().with_mounts(Mounts::Cross));
            assert_eq!(crossing.try_clone().unwrap().resolver(), Resolver::Openat2);
        });
    }
    assert_eq!(root.read_contained("a/f", 9).unwrap(), b"x");
}

/// Ways in which publishing a file goes another way than by `O_TMPFILE` and `AT_EMPTY_PATH`.
fn write_fallbacks() -> Vec<Vec<Denial>> {
    use Denial::{LinkEmptyPath, LinkFollow, RenameNoReplace, Tmpfile};
    let no_tmpfile = Tmpfile(Errno::OPNOTSUPP);
    let old_kernel = LinkEmptyPath(Errno::NOENT);
    let no_links = [LinkEmptyPath(Errno::PERM), LinkFollow(Errno::PERM)];
    vec![
        vec![no_tmpfile],
        vec![Tmpfile(Errno::ISDIR)],
        vec![Tmpfile(Errno::INVAL)],
        vec![Tmpfile(Errno::NOENT)],
        vec![Tmpfile(Errno::NOSYS)],
        vec![old_kernel],
        vec![no_tmpfile, old_kernel],
        vec![RenameNoReplace(Errno::INVAL)],
        vec![no_tmpfile, RenameNoReplace(Errno::INVAL)],
        vec![no_tmpfile, old_kernel, RenameNoReplace(Errno::INVAL)],
        vec![no_tmpfile, no_links[0], no_links[1]],
        vec![no_tmpfile, no_links[0], no_links[1], RenameNoReplace(Errno::INVAL)],
        vec![no_tmpfile, LinkEmptyPath(Errno::OPNOTSUPP), LinkFollow(Errno::OPNOTSUPP)],
    ]
}

/// What writing promises, in short.
fn writes_keep_their_promises(root: &Root, arena: &Arena) {
    arena
        .dir("d")
        .file("taken", "old")
        .link("dangling", "nowhere")
        .link("out", arena.outside().join("secret"));
    arena.link("up", arena.outside()).dir("dir").fifo("p");
    root.write_exclusive("d/f", vec![5; 200_000]).unwrap();
    assert_eq!(arena.content("d/f"), vec![5; 200_000]);
    assert_eq!(arena.mode_of("d/f"), 0o600);
    assert_eq!(fs::metadata(arena.at("d/f")).unwrap().nlink(), 1, "a second name was left");
    assert_eq!(root.read_contained("d/f", 1 << 20).unwrap().len(), 200_000);
    for name in ["taken", "dangling", "out", "dir", "p", "d/f"] {
        assert_eq!(kind(root.write_exclusive(name, "x")), ErrorKind::AlreadyExists, "{name}");
    }
    assert_eq!(kind(root.write_exclusive("up/new", "x")), ErrorKind::Symlink);
    assert_eq!(kind(root.write_exclusive("none/new", "x")), ErrorKind::NotFound);

    let mut file = root.new_file("d/g").unwrap();
    file.write_all(b"content").unwrap();
    assert!(!arena.has("d/g"));
    file.commit().unwrap();
    assert_eq!(arena.content("d/g"), b"content");
    root.new_file("d/dropped").unwrap().write_all(b"x").unwrap();
    let mut over = root.new_file("d/over").unwrap().with_limit(1);
    over.write_all(b"xx").unwrap_err();
    assert_eq!(kind(over.commit()), ErrorKind::TooLarge);
    let late = root.new_file("d/late").unwrap();
    arena.file("d/late", "guest");
    assert_eq!(kind(late.commit()), ErrorKind::AlreadyExists);
    fs::remove_file(arena.at("d/late")).unwrap();
    assert_eq!(arena.names("d").len(), 2, "{:?}", arena.names("d"));

    for name in ["taken", "dangling", "out", "p", "fresh"] {
        root.replace(name, "new").unwrap();
        assert_eq!(arena.content(name), b"new", "{name}");
        assert_eq!(fs::symlink_metadata(arena.at(name)).unwrap().nlink(), 1, "{name}");
    }
    let mut file = root.new_file("taken").unwrap();
    file.write_all(b"newer").unwrap();
    file.commit_replace().unwrap();
    assert_eq!(arena.content("taken"), b"newer");
    assert!(root.replace("dir", "x").is_err());
    assert!(!arena.has("nowhere"));
    assert_eq!(arena.names(".").len(), 8, "{:?}", arena.names("."));
}

#[test]
fn every_way_to_publish_keeps_the_promises() {
    for denials in write_fallbacks() {
        println!("{denials:?}");
        denied(&denials, || for_each_resolver(writes_keep_their_promises));
    }
}

#[test]
fn every_way_to_publish_can_be_durable() {
    let full = Policy::default().with_durability(Durability::Full);
    for denials in [vec![Denial::Tmpfile(Errno::OPNOTSUPP)], vec![Denial::LinkEmptyPath(Errno::NOENT)]] {
        denied(&denials, || for_each_policy(&full, writes_keep_their_promises));
    }
}

#[test]
fn without_unnamed_files_a_temporary_name_is_used_and_cleared() {
    denied(&[Denial::Tmpfile(Errno::OPNOTSUPP)], || {
        for_each_resolver(|root, arena| {
            let file = root.new_file("f").unwrap();
            let names = arena.names(".");
            assert_eq!(names.len(), 1, "the fallback was not reached: this showed nothing");
            let name = names.first().unwrap().to_str().unwrap();
            assert!(name.len() > 16, "{name} can be guessed");
            drop(file);
            assert!(arena.names(".").is_empty());
        });
    });
}

#[test]
fn a_temporary_name_that_a_guest_swaps_publishes_nothing_of_the_guest() {
    denied(&[Denial::Tmpfile(Errno::OPNOTSUPP)], || {
        for replace in [false, true] {
            for_each_resolver(|root, arena| {
                let mut file = root.new_file("f").unwrap();
                file.write_all(b"host").unwrap();
                let temporary = arena.names(".").first().unwrap().clone();
                fs::remove_file(arena.at(&temporary)).unwrap();
                arena.link(&temporary, arena.outside().join("secret"));
                let outcome = if replace { file.commit_replace() } else { file.commit() };
                // Whatever is said to be written is what was written.
                if outcome.is_ok() {
                    assert_eq!(arena.content("f"), b"host");
                    assert!(fs::symlink_metadata(arena.at("f")).unwrap().is_file());
                } else {
                    assert!(matches!(kind(outcome), ErrorKind::Busy | ErrorKind::NotFound));
                }
            });
        }
    });
}

#[test]
fn where_nothing_can_be_published_nothing_is_left() {
    // Unnamed files work, but neither way to name them does: no procfs on an old kernel.
    let denials = [Denial::LinkEmptyPath(Errno::NOENT), Denial::LinkFollow(Errno::NOENT)];
    denied(&denials, || {
        for_each_resolver(|root, arena| {
            arena.file("taken", "old");
            for op in writers() {
                for name in ["new", "taken"] {
                    match op.run_on(root, name) {
                        Ok(_) => assert_eq!(arena.content(name), b"new"),
                        Err(error) => assert!(
                            matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::AlreadyExists),
                            "{op:?} {name}: {error}"
                        ),
                    }
                    let _ = fs::remove_file(arena.at("new"));
                    arena.file("taken", "old");
                    assert_eq!(arena.names(".").len(), 1, "{:?}", arena.names("."));
                }
            }
        });
    });
}

#[test]
fn renaming_without_noreplace_still_never_replaces() {
    for errno in [Errno::INVAL, Errno::NOSYS] {
        denied(&[Denial::RenameNoReplace(errno)], || {
            for_each_resolver(|root, arena| {
                arena
                    .file("f", "x")
                    .file("d/e/g", "y")
                    .fifo("p")
                    .link("l", arena.outside())
                    .link("none", "nowhere");
                arena.dir("to").file("taken", "old").dir("empty").link("dangling", "nowhere");
                for name in ["f", "p", "l", "none"] {
                    for taken in ["taken", "empty", "dangling", "d"] {
                        assert_eq!(
                            kind(root.rename(name, taken)),
                            ErrorKind::AlreadyExists,
                            "{name} {taken}"
                        );
                    }
                    let inode = fs::symlink_metadata(arena.at(name)).unwrap().ino();
                    root.rename(name, format!("to/{name}")).unwrap();
                    let moved = fs::symlink_metadata(arena.at("to").join(name)).unwrap();
                    assert_eq!((moved.ino(), moved.nlink()), (inode, 1), "{name}");
                    assert!(!arena.has(name));
                }
                for taken in ["taken", "empty", "dangling", "to"] {
                    assert_eq!(kind(root.rename("d", taken)), ErrorKind::AlreadyExists, "d {taken}");
                }
                root.rename("d", "to/d").unwrap();
                assert_eq!(arena.content("to/d/e/g"), b"y");
                assert_eq!(kind(root.rename("to", "to/d/x")), ErrorKind::InvalidPath);
                assert_eq!(arena.names("to/d").len(), 1, "a reserved name was left");
                assert_eq!(kind(root.rename("none", "x")), ErrorKind::NotFound);
                assert_eq!(arena.content("taken"), b"old");
                assert_eq!(arena.names(".").len(), 4);
            });
        });
    }
}

#[test]
fn removal_needs_neither_openat2_nor_noreplace() {
    let denials = [Denial::Openat2(Errno::PERM), Denial::RenameNoReplace(Errno::INVAL)];
    denied(&denials, || {
        let arena = Arena::new();
        arena.dir("t").link("t/out", arena.outside()).fifo("t/p");
        drop(beneath_kit::tree::deep(fs::File::open(arena.at("t")).unwrap(), "d", 300));
        let root = arena.open(Policy::default());
        let removed = root.remove_tree_contained("t").unwrap();
        assert!(removed.is_complete(), "{removed:?}");
        assert!(arena.names(".").is_empty());
    });
}

/// Once it has lost its name there is no error any more, only something that is left.
#[test]
fn a_failure_in_the_quarantine_is_reported_as_something_left() {
    if !has_openat2() {
        return skip("the walk cannot be made to fail just there");
    }
    let arena = Arena::new();
    arena.file("guest/t/f", "x").dir("host");
    let root = arena.open(Policy::default());
    let (guest, host) = (root.descend("guest").unwrap(), root.descend("host").unwrap());
    let removed = denied(&[Denial::Openat2(Errno::IO)], || {
        guest.remove_tree_quarantined("t", &host, Budget::default()).unwrap()
    });
    assert!(!removed.is_complete() && !arena.has("guest/t"), "{removed:?}");
    assert_eq!(removed.left.total, 1);
    assert_eq!(
        (removed.left.first[0].error.kind(), removed.left.first[0].subject.as_path()),
        (ErrorKind::Io, Path::new(""))
    );
    assert_eq!(arena.names("host").len(), 1);
}

/// What ext4 says of a directory that was removed, and others of one that takes no files.
#[test]
fn a_directory_that_forbids_unnamed_files_is_denied_and_one_that_is_gone_not_found() {
    denied(&[Denial::Tmpfile(Errno::PERM)], || {
        for_each_resolver(|root, arena| {
            arena.dir("d");
            let gone = root.descend("d").unwrap();
            for op in writers() {
                assert_eq!(kind(op.run_on(root, "d/f")), ErrorKind::Denied, "{op:?}");
            }
            fs::remove_dir(arena.at("d")).unwrap();
            for op in writers() {
                assert_eq!(kind(op.run_on(&gone, "f")), ErrorKind::NotFound, "{op:?}");
            }
        });
    });
}

#[test]
fn a_guest_that_meddles_with_the_temporary_name_gets_nothing_and_is_reported() {
    denied(&[Denial::Tmpfile(Errno::OPNOTSUPP)], || {
        for replace in [false, true] {
            for_each_resolver(|root, arena| {
                let commit =
                    |file: beneath::NewFile| if replace { file.commit_replace() } else { file.commit() };
                let file = root.new_file("f").unwrap();
                let temporary = arena.names(".").first().unwrap().clone();
                fs::remove_file(arena.at(&temporary)).unwrap();
                let error = commit(file).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                assert!(arena.names(".").is_empty());

                // The name it shall get is a second name of it already: renaming one to the other does nothing.
                let file = root.new_file("f").unwrap();
                let temporary = arena.names(".").first().unwrap().clone();
                arena.hard_link("f", arena.at(&temporary));
                let outcome = commit(file);
                assert_eq!(outcome.is_ok(), replace, "{outcome:?}");
                assert_eq!(arena.names(".").len(), 1, "the temporary name was left: {:?}", arena.names("."));
            });
        }
    });
}

/// As under a guest that fills each directory again before it can go.
#[test]
fn a_directory_that_is_never_empty_ends_the_removal_with_its_passes() {
    for_each_resolver(|root, arena| {
        arena.dir("empty").file("t/a/f", "x");
        for (name, files) in [("empty", 0), ("t", 1)] {
            let removed = denied(&[Denial::RemoveDir(Errno::NOTEMPTY)], || {
                root.remove_tree_contained_within(name, Budget::unlimited().with_passes(10)).unwrap()
            });
            assert!(!removed.is_complete() && arena.has(name), "{removed:?}");
            assert_eq!((removed.files, removed.directories, removed.left.total), (files, 0, 1));
            assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Busy, "{removed:?}");
        }
    });
}

#[test]
fn what_cannot_be_unlinked_is_counted_and_not_tried_for_ever() {
    for_each_resolver(|root, arena| {
        arena.dir("t/d/e");
        beneath_kit::tree::wide(fs::File::open(arena.at("t/d")).unwrap(), 1040);
        // Unlimited, so that only what it knows to be stuck ends it.
        let removed = denied(&[Denial::Unlink(Errno::PERM)], || {
            root.remove_tree_contained_within("t", Budget::unlimited()).unwrap()
        });
        assert!(!removed.is_complete(), "{removed:?}");
        assert_eq!((removed.files, removed.directories, removed.left.total), (0, 1, 1040));
        assert_eq!(removed.left.first.len(), Leftovers::FIRST, "a report does not grow with what is left");
        for left in &removed.left.first {
            assert_eq!((left.error.kind(), left.subject.parent()), (ErrorKind::Denied, Some(Path::new("d"))));
            assert!(arena.at("t").join(&left.subject).exists(), "{left:?}");
        }
        assert_eq!(arena.names("t/d").len(), 1040);
    });
}

#[test]
fn counts_each_leftover_once_even_if_more_was_moved_up_than_is_remembered() {
    for_each_resolver(|root, arena| {
        let deep = ["t"].into_iter().chain(["d"; 23]).collect::<Vec<_>>().join("/");
        for number in 0..1200 {
            arena.dir(format!("{deep}/{number}"));
            arena.file(format!("{deep}/{number}/f"), "");
        }
        let removed = denied(&[Denial::Unlink(Errno::PERM)], || {
            root.remove_tree_contained_within("t", Budget::unlimited()).unwrap()
        });
        assert!(!removed.is_complete());
        assert_eq!((removed.files, removed.left.total), (0, 1200));
    });
}

/// The kernel answers EXDEV at a mount, and also when the directory is moved away during the lookup.
#[test]
fn a_directory_that_moves_away_while_it_is_entered_is_busy_and_no_mount() {
    if !has_openat2() {
        return skip("only openat2 answers so");
    }
    let arena = Arena::new();
    arena.file("t/f", "x");
    let root = arena.open(Policy::default());
    denied(&[Denial::Openat2(Errno::XDEV)], || {
        assert_eq!(kind(root.remove_tree_contained("t")), ErrorKind::Busy);
    });
    assert!(arena.has("t/f"));
}

/// Runs a removal of `t` during which no directory in it can be opened.
fn removed_unopened(arena: &Arena, errno: Errno, budget: Budget) -> beneath::Removed {
    let root = arena.open(Policy::default());
    let top = u32::try_from(root.as_fd().as_raw_fd()).unwrap();
    denied(&[Denial::Openat2Below(top, errno)], || root.remove_tree_contained_within("t", budget).unwrap())
}

#[test]
fn a_directory_that_keeps_moving_away_ends_the_removal_with_its_passes() {
    if !has_openat2() {
        return skip("only openat2 answers so");
    }
    let arena = Arena::new();
    arena.file("t/d/f", "x");
    let removed = removed_unopened(&arena, Errno::XDEV, Budget::unlimited().with_passes(10));
    assert!(!removed.is_complete() && arena.has("t/d/f"), "{removed:?}");
    assert_eq!((removed.directories, removed.left.total), (0, 1));
    assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Busy);
}

#[test]
fn a_directory_that_cannot_be_opened_goes_if_it_is_empty() {
    if !has_openat2() {
        return skip("the walk cannot be made to fail just there");
    }
    let arena = Arena::new();
    arena.dir("t/empty").file("t/full/f", "x");
    let removed = removed_unopened(&arena, Errno::IO, Budget::unlimited());
    assert!(!removed.is_complete() && arena.has("t/full/f") && !arena.has("t/empty"), "{removed:?}");
    assert_eq!((removed.directories, removed.left.total), (1, 1));
    assert_eq!(
        (removed.left.first[0].error.kind(), removed.left.first[0].subject.as_path()),
        (ErrorKind::Io, Path::new("full"))
    );
}

#[test]
fn links_that_lead_through_endless_renames_end_as_busy() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    let arena = Arena::new();
    arena.file("f", "x").link("l", "f");
    let root = arena.open(Policy::default().with_links(Links::FollowBeneath));
    denied(&[Denial::Openat2(Errno::AGAIN)], || {
        let start = Instant::now();
        assert_eq!(kind(root.read_contained("l", 9)), ErrorKind::Busy);
        assert!(start.elapsed() >= Duration::from_millis(100), "renames of a moment are waited out");
    });
    assert_eq!(root.read_contained("l", 9).unwrap(), b"x");
}

/// As under a guest that creates and removes without pause.
#[test]
fn entries_that_vanish_without_end_end_the_listing() {
    const VANISHED: u32 = 100_000;
    let arena = Arena::quick();
    arena.dir("d");
    beneath_kit::tree::wide(fs::File::open(arena.at("d")).unwrap(), VANISHED + 1);
    let root = arena.open(Policy::default());
    let listed = || {
        let list = root.list("d").unwrap();
        denied(&[Denial::Statx(Errno::NOENT)], || list.map(kind).collect::<Vec<_>>())
    };
    assert_eq!(listed(), [ErrorKind::Busy]);
    fs::remove_file(arena.at("d/f0")).unwrap();
    assert!(listed().is_empty(), "so many may vanish");
}

#[test]
fn an_entry_that_cannot_be_described_counts_and_the_rest_follows() {
    let arena = Arena::new();
    arena.file("d/a", "").file("d/b", "").file("d/c", "");
    let root = arena.open(Policy::default());
    for (limit, expected) in
        [(3, vec![ErrorKind::Io; 3]), (2, vec![ErrorKind::Io, ErrorKind::Io, ErrorKind::TooMany])]
    {
        let mut walk = root.walk("d", WalkLimits::default().with_entries(limit)).unwrap();
        denied(&[Denial::Statx(Errno::IO)], || {
            assert_eq!(walk.by_ref().map(kind).collect::<Vec<_>>(), expected);
        });
        assert_eq!(walk.truncated(), limit < 3);
    }
}
