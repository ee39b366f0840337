//! Walking a tree by handles: every entry once, parents first, links never entered, limits kept.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use beneath::{ErrorKind, FileType, Policy, Result, Root, WalkLimits};

use crate::support::{Arena, child, for_each_resolver, kind, resolvers, tree};

fn walked(root: &Root, path: &str, limits: WalkLimits) -> Result<Vec<PathBuf>> {
    root.walk(path, limits)?.map(|entry| entry.map(|entry| entry.path().to_path_buf())).collect()
}

#[test]
fn shows_every_entry_once_and_parents_first() {
    for_each_resolver(|root, arena| {
        arena
            .file("t/a/b/f", "1")
            .file("t/a/g", "22")
            .dir("t/empty")
            .fifo("t/p")
            .link("t/l", arena.outside());
        arena.link("t/a/up", "..").file(Path::new("t").join(OsStr::from_bytes(b"\xff")), "");
        let paths = walked(root, "t", WalkLimits::default()).unwrap();
        let set: BTreeSet<_> = paths.iter().map(PathBuf::as_path).collect();
        let mut expected: BTreeSet<_> =
            ["a", "a/b", "a/b/f", "a/g", "a/up", "empty", "p", "l"].map(Path::new).into();
        expected.insert(Path::new(OsStr::from_bytes(b"\xff")));
        assert_eq!(set, expected);
        assert_eq!(paths.len(), set.len(), "an entry came twice");
        for (index, path) in paths.iter().enumerate() {
            let parent = path.parent().unwrap();
            assert!(
                parent.as_os_str().is_empty() || paths[..index].iter().any(|seen| seen == parent),
                "{} came before its parent",
                path.display()
            );
        }
    });
}

#[test]
fn entries_carry_names_and_metadata() {
    for_each_resolver(|root, arena| {
        arena.file("t/a/f", "22").link("t/a/l", "/");
        for entry in root.walk("t", WalkLimits::default()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.path().file_name(), Some(entry.file_name()));
            match entry.file_name().to_str().unwrap() {
                "f" => assert_eq!(entry.metadata().len(), 2),
                "l" => assert_eq!(entry.metadata().file_type(), FileType::Symlink),
                _ => assert!(entry.metadata().is_dir()),
            }
        }
    });
}

#[test]
fn limits_end_the_walk_with_too_many() {
    for_each_resolver(|root, arena| {
        for n in 0..10 {
            arena.file(format!("t/f{n}"), "");
        }
        arena.dir("deep/1/2/3/4");
        assert_eq!(walked(root, "t", WalkLimits::default().with_entries(10)).unwrap().len(), 10);
        assert_eq!(kind(walked(root, "t", WalkLimits::default().with_entries(9))), ErrorKind::TooMany);
        assert_eq!(walked(root, "deep", WalkLimits::default().with_depth(5)).unwrap().len(), 4);
        // Whether the fourth level holds anything is not looked at, so it must be said.
        assert_eq!(kind(walked(root, "deep", WalkLimits::default().with_depth(4))), ErrorKind::TooMany);
        assert_eq!(root.walk("deep", WalkLimits::default().with_depth(4)).unwrap().flatten().count(), 4);
        // After the refusal it ends; it does not go on for ever.
        let items = root.walk("t", WalkLimits::default().with_entries(5)).unwrap().count();
        assert!(items <= 11, "{items}");
    });
}

#[test]
fn a_walk_says_whether_something_was_cut_off() {
    for_each_resolver(|root, arena| {
        arena.file("t/a/b/f", "");
        for (limits, cut) in [
            (WalkLimits::default(), false),
            (WalkLimits::default().with_entries(3).with_depth(3), false),
            (WalkLimits::default().with_entries(2), true),
            (WalkLimits::default().with_depth(2), true),
        ] {
            let mut walk = root.walk("t", limits).unwrap();
            assert!(!walk.truncated(), "before anything was looked at");
            let seen: Vec<_> = walk.by_ref().flatten().map(beneath::Entry::into_path).collect();
            assert_eq!(walk.truncated(), cut, "{limits:?}");
            assert!(
                seen.iter()
                    .map(PathBuf::as_path)
                    .eq(["a", "a/b", "a/b/f"].iter().take(seen.len()).map(Path::new))
            );
        }
    });
}

#[test]
fn limits_of_zero_and_of_everything_are_limits() {
    for_each_resolver(|root, arena| {
        arena.file("t/a/f", "");
        assert_eq!(kind(walked(root, "t", WalkLimits::default().with_entries(0))), ErrorKind::TooMany);
        let _ = walked(root, "t", WalkLimits::default().with_depth(0));
        let all = WalkLimits::default().with_entries(u64::MAX).with_depth(u32::MAX);
        assert_eq!(walked(root, "t", all).unwrap().len(), 2);
        arena.dir("empty");
        assert_eq!(walked(root, "empty", WalkLimits::default().with_entries(0)).unwrap().len(), 0);
    });
}

#[test]
fn refuses_a_top_that_is_no_directory() {
    for_each_resolver(|root, arena| {
        arena.file("f", "").link("l", arena.outside()).fifo("p");
        assert_eq!(kind(walked(root, "f", WalkLimits::default())), ErrorKind::NotDirectory);
        assert_eq!(kind(walked(root, "p", WalkLimits::default())), ErrorKind::NotDirectory);
        assert_eq!(kind(walked(root, "l", WalkLimits::default())), ErrorKind::Symlink);
        assert_eq!(kind(walked(root, "none", WalkLimits::default())), ErrorKind::NotFound);
    });
}

#[test]
fn a_directory_it_may_not_enter_is_one_error() {
    child::run_unprivileged("walk::a_directory_it_may_not_enter_is_one_error", || {
        for_each_resolver(|root, arena| {
            arena.file("t/a/f", "").file("t/closed/f", "").file("t/z/f", "").mode("t/closed", 0);
            let items: Vec<_> = root.walk("t", WalkLimits::default()).unwrap().collect();
            arena.mode("t/closed", 0o700);
            let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].kind(), ErrorKind::Denied);
            let seen: BTreeSet<_> =
                items.iter().filter_map(|item| Some(item.as_ref().ok()?.path().to_path_buf())).collect();
            for path in ["a", "a/f", "closed", "z", "z/f"] {
                assert!(seen.contains(Path::new(path)), "{path} was lost");
            }
        });
    });
}

#[test]
fn a_tree_swapped_for_a_link_is_not_entered() {
    for_each_resolver(|root, arena| {
        for n in 0..4 {
            arena.file(format!("t/d{n}/inside"), "");
        }
        let mut walk = root.walk("t", WalkLimits::default()).unwrap();
        let first = walk.next().unwrap().unwrap();
        for n in 0..4 {
            let dir = arena.at(format!("t/d{n}"));
            fs::remove_dir_all(&dir).unwrap();
            std::os::unix::fs::symlink(arena.outside(), &dir).unwrap();
        }
        assert!(first.path().to_str().unwrap().starts_with('d'));
        for entry in walk.flatten() {
            assert!(!entry.path().ends_with("secret") && !entry.path().ends_with("sub"), "{entry:?}");
        }
    });
}

#[test]
fn depth_costs_no_descriptors_and_no_stack() {
    child::run("walk::depth_costs_no_descriptors_and_no_stack", || {
        child::limit_descriptors(64);
        for choice in resolvers() {
            let Some(arena) = Arena::on_tmpfs() else { return crate::support::skip("/dev/shm is no tmpfs") };
            drop(tree::deep(fs::File::open(arena.root()).unwrap(), "d", 1_500));
            let root = arena.open(Policy::default().with_resolver(choice));
            let worker = std::thread::Builder::new().stack_size(256 << 10);
            let count =
                worker.spawn(move || walked(&root, ".", WalkLimits::default().with_depth(2_000))).unwrap();
            match count.join().unwrap() {
                Ok(paths) => assert_eq!(paths.len(), 1_500),
                // A walk that holds one descriptor per level may say so, but must say so.
                Err(error) => assert_eq!(error.kind(), ErrorKind::TooMany),
            }
            assert!(child::open_descriptors() < 16);
        }
    });
}
