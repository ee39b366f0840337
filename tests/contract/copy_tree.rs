//! Copying a tree: everything in it, as what it is, from where it is and to where it belongs, whatever a guest does meanwhile.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use beneath::{
    Access, CopiedTree, ErrorKind, HardLinks, Links, Policy, Root, TreeOptions, WalkLimits, WriteOptions,
};
use beneath_kit::likeness::{EXECUTE, Likeness};
use beneath_kit::{Arena, Ends, child, for_each_policy, for_each_resolver, is_root, kind, resolvers, skip};
use rustix::fs::{CWD, FileType, RenameFlags, renameat_with};

fn copy(root: &Root, from: &str, to: &str) -> CopiedTree {
    root.copy_tree(from, to, TreeOptions::default()).unwrap()
}

/// What was left, by path.
fn left(copied: &CopiedTree) -> Vec<(&str, ErrorKind)> {
    let mut left: Vec<_> =
        copied.refused().map(|(path, error)| (path.to_str().unwrap(), error.kind())).collect();
    left.sort_by_key(|(path, _)| *path);
    left
}

#[track_caller]
fn assert_same(arena: &Arena, one: &str, other: &str) {
    let mask = EXECUTE;
    Likeness::of(&arena.at(one), mask).assert_same(&Likeness::of(&arena.at(other), mask), "the copy");
}

#[test]
fn a_copy_has_every_name_kind_byte_and_link_of_its_source() {
    for_each_resolver(|root, arena| {
        arena.file("t/a/f", "x").file("t/run", "#!/bin/sh").mode("t/run", 0o755).dir("t/empty/empty");
        arena.file("t/a\nb", "").file("t/...", "dots").file("t/-rf", "option").file("t/ blank ", "b");
        arena
            .link("t/in", "a/f")
            .link("t/out", arena.outside())
            .link("t/loop", "loop")
            .link("t/gone", "no\nne");
        let copied = copy(root, "t", "u");
        assert!(copied.is_complete(), "{copied:?}");
        assert_eq!((copied.files, copied.directories, copied.links), (6, 4, 4));
        assert_eq!(copied.bytes, 21);
        assert_same(arena, "t", "u");
    });
}

#[test]
fn what_is_neither_file_directory_nor_link_is_reported_and_the_rest_is_copied() {
    for_each_resolver(|root, arena| {
        arena.file("t/d/f", "x").fifo("t/d/pipe").socket("t/socket");
        let mut expected = vec![("d/pipe", ErrorKind::NotRegular), ("socket", ErrorKind::NotRegular)];
        if arena.device("t/null", FileType::CharacterDevice, 1, 3) {
            expected.insert(1, ("null", ErrorKind::NotRegular));
        }
        let copied = copy(root, "t", "u");
        assert_eq!(left(&copied), expected);
        assert_eq!((arena.names("u").len(), arena.names("u/d").len()), (1, 1));
    });
}

#[test]
fn the_top_must_be_a_real_directory_and_the_new_name_free() {
    for_each_resolver(|root, arena| {
        arena.file("t/f", "x").file("file", "").link("in", "t").link("out", arena.outside()).dir("empty");
        let refused = |from: &str, to: &str| kind(root.copy_tree(from, to, TreeOptions::default()));
        assert_eq!(refused("in", "u"), ErrorKind::Symlink);
        assert_eq!(refused("file", "u"), ErrorKind::NotDirectory);
        assert_eq!(refused("none", "u"), ErrorKind::NotFound);
        for taken in ["empty", "file", "in", "out", "."] {
            assert_eq!(refused("t", taken), ErrorKind::AlreadyExists, "{taken}");
        }
        assert_eq!(refused("t", "out/u"), ErrorKind::Symlink);
        assert_eq!(refused("t", "../u"), ErrorKind::Escape);
        assert_eq!(refused("/etc", "u"), ErrorKind::Escape);
        assert!(!arena.has("u") && arena.names("empty").is_empty());
    });
}

#[test]
fn a_copy_that_was_cut_off_is_continued_and_replaces_nothing() {
    for_each_resolver(|root, arena| {
        arena.file("t/d/a", "one").file("t/d/b", "two").file("t/e/c", "three").link("t/l", "d/a");
        arena.file("t/d/same", "same").file("t/z", "z").link("t/y", "y");
        arena
            .file("u/d/a", "ONE")
            .file("u/d/same", "same")
            .file("u/d/b", "longer")
            .link("u/l", "d/a")
            .link("u/y", "other")
            .fifo("u/z");
        let options = TreeOptions::default().into_existing();
        let copied = root.copy_tree("t", "u", options).unwrap();
        let taken = ErrorKind::AlreadyExists;
        // Of the same size, and something else: not the copy.
        assert_eq!(left(&copied), [("d/a", taken), ("d/b", taken), ("y", taken), ("z", taken)]);
        assert_eq!((copied.files, copied.directories, copied.present), (1, 1, 2));
        assert_eq!((arena.content("u/d/a"), arena.content("u/e/c")), (b"ONE".into(), b"three".into()));
        let again = root.copy_tree("t/e", "u/e", options).unwrap();
        assert_eq!((again.is_complete(), again.files, again.present), (true, 0, 1));
        // Onto the root itself, and through no link.
        arena.link("u/e2", arena.outside()).dir("t/e2");
        assert_eq!(left(&root.copy_tree("t/e2", ".", options).unwrap()), []);
        assert_eq!(kind(root.copy_tree("t", "u/e2", options)), ErrorKind::Symlink);
    });
}

#[test]
fn what_is_compared_counts_as_copied() {
    for_each_resolver(|root, arena| {
        // Two pieces of the buffer, which differ in the last byte.
        let long = "x".repeat(100_000);
        arena.file("t/a", &long).file("t/b", format!("{long}y"));
        arena.file("u/a", &long).file("u/b", format!("{long}z"));
        let options = TreeOptions::default().into_existing();
        let copied = root.copy_tree("t", "u", options).unwrap();
        assert_eq!((left(&copied), copied.present), (vec![("b", ErrorKind::AlreadyExists)], 1));
        // A guest could have the host read without end.
        arena.file("v/a", &long).file("v/b", &long).file("w/a", &long).file("w/b", &long);
        let copied = root.copy_tree("v", "w", options.with_bytes(150_000)).unwrap();
        assert_eq!((copied.present, copied.left.total), (1, 1));
        assert!(left(&copied).iter().all(|(_, kind)| *kind == ErrorKind::TooLarge), "{copied:?}");
    });
}

#[test]
fn modes_are_the_policys_or_those_of_the_source_and_never_set_ids() {
    let modes = [(0o755, 0o700), (0o644, 0o600), (0o444, 0o600), (0o7755, 0o700), (0o400, 0o600)];
    for_each_policy(&Policy::default().with_access(Access::private()), |root, arena| {
        for (mode, _) in modes {
            arena.file(format!("t/closed/{mode:o}"), "x").mode(format!("t/closed/{mode:o}"), mode);
        }
        arena.dir("t/open").mode("t/open", 0o1777).mode("t/closed", 0o2500);
        let _ = copy(root, "t", "policy");
        let kept = root.copy_tree("t", "kept", TreeOptions::default().keep_modes()).unwrap();
        assert!(kept.is_complete(), "{kept:?}");
        for (mode, by_policy) in modes {
            assert_eq!(arena.mode_of(format!("policy/closed/{mode:o}")), by_policy, "{mode:o}");
            assert_eq!(arena.mode_of(format!("kept/closed/{mode:o}")), mode & 0o777, "{mode:o}");
        }
        let of = |path| arena.mode_of(path);
        assert_eq!((of("policy/closed"), of("kept/closed"), of("kept/open")), (0o700, 0o500, 0o777));
    });
}

#[test]
fn limits_end_the_copy_and_are_reported() {
    for_each_resolver(|root, arena| {
        for name in ["a", "b", "c"] {
            arena.file(format!("t/{name}"), "12345");
        }
        arena.file("deep/1/2/3/f", "x");
        let default = TreeOptions::default();
        let walk = WalkLimits::default();
        let few = root.copy_tree("t", "few", default.with_walk(walk.with_entries(2))).unwrap();
        assert_eq!((few.files, left(&few)), (2, vec![("", ErrorKind::TooMany)]));
        let small = root.copy_tree("t", "small", default.with_file_bytes(4)).unwrap();
        assert_eq!((small.files, small.left.total), (0, 3));
        let all = root.copy_tree("t", "all", default.with_bytes(12)).unwrap();
        assert_eq!((all.files, all.bytes, all.left.total), (2, 10, 1));
        assert!(all.refused().all(|(_, error)| error.kind() == ErrorKind::TooLarge));
        let flat = root.copy_tree("deep", "flat", default.with_walk(walk.with_depth(2))).unwrap();
        assert_eq!(left(&flat), [("1/2", ErrorKind::TooMany)]);
        assert!(arena.has("flat/1/2") && !arena.has("flat/1/2/3"));
    });
}

#[test]
fn a_tree_is_copied_into_itself_once() {
    for_each_resolver(|root, arena| {
        arena.file("t/a/f", "x").file("t/b", "y");
        let copied = copy(root, "t", "t/a/copy");
        assert_eq!(left(&copied), [("a/copy", ErrorKind::InvalidPath)]);
        assert_eq!(arena.content("t/a/copy/a/f"), b"x");
        assert!(!arena.has("t/a/copy/a/copy"));
    });
}

#[test]
fn links_are_copied_as_links_also_where_paths_may_go_through_them() {
    let policy = Policy::default().with_links(Links::FollowBeneath);
    let arena = Arena::new();
    if !beneath_kit::has_openat2() {
        return skip("no openat2");
    }
    let root = arena.open(policy);
    arena.file("t/d/f", "x").link("t/l", "d").link("way", "t");
    assert!(copy(&root, "way", "u").is_complete());
    assert_eq!(fs::read_link(arena.at("u/l")).unwrap(), Path::new("d"));
}

#[test]
fn a_file_whose_names_are_all_in_the_tree_is_copied_under_each() {
    for policy in [HardLinks::Refuse, HardLinks::RefuseStrict, HardLinks::Allow] {
        for_each_policy(&Policy::default().with_hard_links(policy), |root, arena| {
            arena.file("t/target/debug/app", "ELF").mode("t/target/debug/app", 0o755);
            arena.hard_link("t/target/debug/deps/app-1f", arena.at("t/target/debug/app"));
            arena.hard_link("t/bin/app", arena.at("t/target/debug/app"));
            let copied = copy(root, "t", "u");
            assert!(copied.is_complete(), "{copied:?}");
            assert_same(arena, "t", "u");
            let copy = fs::metadata(arena.at("u/bin/app")).unwrap();
            assert_eq!(copy.nlink(), 1, "each name has a file of its own, which every policy reads");
        });
    }
}

#[test]
fn a_file_that_may_have_a_name_elsewhere_is_refused() {
    for policy in [HardLinks::Refuse, HardLinks::RefuseStrict] {
        for_each_policy(&Policy::default().with_hard_links(policy), |root, arena| {
            arena.hard_link("t/stolen", arena.throwaway().join("canary"));
            arena.hard_link("t/d/stolen", arena.at("t/stolen"));
            // Two names in one directory may be two spellings of one.
            arena.file("t/e/one", "1").hard_link("t/e/two", arena.at("t/e/one"));
            // One name beside the tree, which is still beneath the root.
            arena.file("t/f", "2").hard_link("beside", arena.at("t/f"));
            let copied = copy(root, "t", "u");
            let linked = ErrorKind::HardLinked;
            let all = ["d/stolen", "e/one", "e/two", "f", "stolen"].map(|path| (path, linked));
            assert_eq!(left(&copied), all);
            assert_eq!(copied.files, 0);
        });
    }
}

/// Copies a file with several names if that many were found, one directory after the other.
fn counts_names(dirs: &[PathBuf], pause: impl Fn()) -> Option<Vec<u8>> {
    let mut found = 0;
    for dir in dirs {
        found += u64::from(fs::symlink_metadata(dir.join("name")).is_ok());
        pause();
    }
    let path = dirs.iter().map(|dir| dir.join("name")).find(|path| path.exists())?;
    (fs::metadata(&path).ok()?.nlink() == found).then(|| fs::read(&path).unwrap())
}

#[test]
fn a_name_that_is_found_twice_since_its_directory_was_moved_counts_once() {
    let arena = Arena::quick();
    let canary = arena.throwaway().join("canary");
    arena.hard_link("t/1/name", &canary).dir("t/x");
    let (one, two) = (arena.at("t/1"), arena.at("t/2"));
    let naive = counts_names(&[one.clone(), two.clone()], || {
        let _ = fs::rename(&one, &two);
    });
    assert_eq!(naive.as_deref(), Some(&b"CANARY"[..]), "the control was not caught");
    for choice in resolvers() {
        let root = arena.open(Policy::default().with_resolver(choice));
        let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (from, to) in [(&two, &one), (&one, &two)] {
                        moves.fetch_add(u64::from(fs::rename(from, to).is_ok()), Ordering::Relaxed);
                    }
                }
            });
            let _ends = Ends(&stop);
            let mut rounds = 0;
            while rounds < 100 || moves.load(Ordering::Relaxed) < 100 {
                assert!(rounds < 100_000, "nothing was moved");
                let _ = copy(&root, "t", "u");
                assert!(!arena.has("u/1/name") && !arena.has("u/2/name"), "a host's file was copied");
                let _ = root.remove_tree_contained("u").unwrap();
                rounds += 1;
            }
        });
    }
}

/// The usual recursive copy: look at the entry, then use its path.
fn naive_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let (path, to) = (
            entry.as_ref().map(fs::DirEntry::path),
            to.join(entry.as_ref().map_or_else(|_| "".into(), fs::DirEntry::file_name)),
        );
        let Ok(path) = path else { continue };
        // What goes wrong is passed over, so that all of it is tried.
        let _ = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => naive_copy(&path, &to),
            Ok(found) if found.is_symlink() => fs::read_link(&path).and_then(|text| symlink(text, &to)),
            Ok(found) if found.is_file() => fs::copy(&path, &to).map(drop),
            _ => Ok(()),
        };
    }
    Ok(())
}

fn exchange(one: &Path, other: &Path) -> bool {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok()
}

/// Lets a guest strike without pause while `host` works, who learns how often it has succeeded.
fn beside(strike: impl Fn() -> bool + Sync, host: impl FnOnce(&AtomicU64)) {
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                swaps.fetch_add(u64::from(strike()), Ordering::Relaxed);
            }
        });
        let _ends = Ends(&stop);
        host(&swaps);
    });
}

/// A tree whose directories, all of them, hold a file of the name that outside a secret has.
fn tree_with_a_door(arena: &Arena) -> (PathBuf, PathBuf) {
    for number in 0..8 {
        arena.file(format!("t/{number}/secret"), "mine");
    }
    arena.file("t/door/secret", "mine").file("t/door/sub/x", "mine");
    arena.link("t/way", arena.outside());
    (arena.at("t/door"), arena.at("t/way"))
}

fn holds_a_secret(likeness: &Likeness) -> bool {
    let secret = format!("{:x}", beneath_kit::likeness::hash_of(b"SECRET"));
    likeness.0.values().any(|entry| entry.ends_with(&secret))
}

#[test]
fn a_source_exchanged_for_a_link_is_copied_as_what_it_is_and_never_followed() {
    let rounds = 150;
    let arena = Arena::quick();
    let (door, way) = tree_with_a_door(&arena);
    let mut caught = 0;
    beside(
        || exchange(&door, &way),
        |_| {
            for _ in 0..100 * rounds {
                let _ = naive_copy(&arena.at("t"), &arena.at("u"));
                caught += u64::from(holds_a_secret(&Likeness::of(&arena.at("u"), EXECUTE)));
                fs::remove_dir_all(arena.at("u")).unwrap();
                if caught > 0 {
                    break;
                }
            }
        },
    );
    assert!(caught > 0, "the control was not caught");
    for choice in resolvers() {
        let root = arena.open(Policy::default().with_resolver(choice));
        beside(
            || exchange(&door, &way),
            |swaps| {
                let before = swaps.load(Ordering::Relaxed);
                for _ in 0..rounds {
                    let copied = copy(&root, "t", "u");
                    let likeness = Likeness::of(&arena.at("u"), EXECUTE);
                    assert!(!holds_a_secret(&likeness), "{likeness:?}, {copied:?}");
                    assert!(root.remove_tree_contained("u").unwrap().is_complete());
                }
                assert!(swaps.load(Ordering::Relaxed) > before, "nothing was exchanged");
            },
        );
    }
}

#[test]
fn a_copy_exchanged_for_a_link_is_not_written_through() {
    let rounds = 150;
    let arena = Arena::quick();
    for number in 0..8 {
        arena.file(format!("t/door/{number}"), "mine");
    }
    // The guest waits for the directory to appear, and has a link to the host's files ready.
    let (door, way) = (arena.at("u/door"), arena.at("guest/way"));
    let attack = |prize: &Path, host: &dyn Fn(&AtomicU64)| {
        arena.dir("guest");
        let strike = || {
            let _ = symlink(prize, &way);
            exchange(&door, &way) && fs::remove_dir_all(&way).is_ok()
        };
        beside(strike, host);
        fs::remove_dir_all(arena.at("guest")).unwrap();
    };
    let prize = arena.throwaway();
    let written = || fs::read_dir(&prize).unwrap().count() - 1;
    attack(&prize, &|_| {
        for _ in 0..100 * rounds {
            let _ = naive_copy(&arena.at("t"), &arena.at("u"));
            let _ = fs::remove_dir_all(arena.at("u"));
            if written() > 0 {
                return;
            }
        }
    });
    assert!(written() > 0, "the control was not caught");
    for choice in resolvers() {
        let root = arena.open(Policy::default().with_resolver(choice));
        assert_eq!(arena.throwaway(), prize);
        let copies = AtomicU64::new(0);
        attack(&prize, &|swaps| {
            let mut round = 0;
            while round < rounds || swaps.load(Ordering::Relaxed) == 0 {
                assert!(round < 1000 * rounds, "nothing was exchanged");
                round += 1;
                let copied = root.copy_tree("t", "u", TreeOptions::default().keep_modes());
                copies.fetch_add(u64::from(copied.is_ok()), Ordering::Relaxed);
                let _ = root.remove_tree_contained("u");
            }
        });
        assert_eq!(written(), 0, "something was written outside");
        assert!(copies.into_inner() > 0, "nothing was copied");
    }
}

#[test]
fn what_a_user_may_not_read_is_reported_and_the_rest_is_copied() {
    child::run_unprivileged("copy_tree::what_a_user_may_not_read_is_reported_and_the_rest_is_copied", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/f", "x").file("t/closed/f", "").file("t/secret", "").file("t/z/f", "y");
            arena.mode("t/closed", 0).mode("t/secret", 0);
            let copied = copy(root, "t", "u");
            arena.mode("t/closed", 0o700);
            assert_eq!(left(&copied), [("closed", ErrorKind::Denied), ("secret", ErrorKind::Denied)]);
            assert_eq!((copied.files, copied.directories), (2, 4));
        });
    });
}

#[test]
fn deep_trees_are_copied_by_handles_where_no_path_reaches() {
    for_each_resolver(|root, arena| {
        let name = "n".repeat(250);
        drop(beneath_kit::tree::deep(fs::File::open(arena.root()).unwrap(), &name, 20));
        let copied = root.copy_tree(&name, "u", TreeOptions::default()).unwrap();
        assert_eq!((copied.is_complete(), copied.directories), (true, 20));
        assert_eq!(beneath_kit::tree::depth(fs::File::open(arena.at("u")).unwrap(), &name), 19);
    });
}

#[test]
fn a_copy_belongs_to_whom_the_policy_of_its_place_says() {
    if !is_root() {
        return skip("only root gives files away");
    }
    for_each_resolver(|root, arena| {
        let access = Access::shared().with_owner(4242).with_group(4343);
        let other = arena.open(root.policy().clone().with_access(access));
        root.write_exclusive_with("t/d/f", "x", WriteOptions::default().with_parents()).unwrap();
        root.symlink("f", "t/d/l").unwrap();
        let copied = root.copy_tree_to("t", &other, "u", TreeOptions::default().keep_modes()).unwrap();
        assert!(copied.is_complete(), "{:?}", copied.left);
        for path in ["u", "u/d", "u/d/f", "u/d/l"] {
            let found = fs::symlink_metadata(arena.at(path)).unwrap();
            assert_eq!((found.uid(), found.gid()), (4242, 4343), "{path}");
        }
        assert_eq!((arena.mode_of("u/d"), arena.mode_of("u/d/f")), (0o2700, 0o600));
    });
}

#[test]
fn a_directory_that_was_there_keeps_its_mode_and_one_that_was_cut_off_gets_its_own() {
    for_each_resolver(|root, arena| {
        arena.dir("t/theirs").dir("t/cut").dir("u/theirs").dir("u/cut");
        for (path, mode) in
            [("t", 0o777), ("t/theirs", 0o777), ("t/cut", 0o755), ("u", 0o750), ("u/theirs", 0o710)]
        {
            arena.mode(path, mode);
        }
        arena.mode("u/cut", root.policy().access().dir_mode());
        let options = TreeOptions::default().into_existing().keep_modes();
        assert!(root.copy_tree("t", "u", options).unwrap().is_complete());
        let modes = ["u", "u/theirs", "u/cut"].map(|path| arena.mode_of(path));
        assert_eq!(modes.map(|mode| format!("{mode:o}")), ["750", "710", "755"]);
    });
}

/// As on XFS, which does not touch the times of two files that it exchanges: the proof must look at the directories too.
#[test]
fn a_name_that_is_exchanged_between_two_directories_counts_once() {
    let arena = Arena::new();
    let canary = arena.throwaway().join("canary");
    arena.hard_link("t/a/x", &canary).file("t/b/x", "mine");
    let (one, two) = (arena.at("t/a/x"), arena.at("t/b/x"));
    if !exchange(&one, &two) {
        return skip("the file system exchanges nothing");
    }
    for choice in resolvers() {
        let root = arena.open(Policy::default().with_resolver(choice));
        beside(
            || exchange(&one, &two),
            |swaps| {
                let mut rounds = 0;
                while rounds < 100 || swaps.load(Ordering::Relaxed) < 100 {
                    assert!(rounds < 100_000, "nothing was exchanged");
                    let _ = copy(&root, "t", "u");
                    for name in ["u/a/x", "u/b/x"] {
                        assert!(
                            !arena.has(name) || arena.content(name) == b"mine",
                            "a host's file was copied"
                        );
                    }
                    let _ = root.remove_tree_contained("u").unwrap();
                    rounds += 1;
                }
            },
        );
    }
}
