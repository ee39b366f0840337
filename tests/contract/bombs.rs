//! What only size can break: a hundred thousand levels, two hundred thousand entries, a terabyte of nothing.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use beneath::{ErrorKind, Policy};

use beneath_kit::{Arena, child, kind, resolvers, skip, tree};

#[test]
fn a_hundred_thousand_levels_go_at_64_descriptors_and_a_small_stack() {
    child::run("bombs::a_hundred_thousand_levels_go_at_64_descriptors_and_a_small_stack", || {
        const LEVELS: u32 = 100_000;
        child::limit_descriptors(64);
        for choice in resolvers() {
            let Some(arena) = Arena::on_tmpfs() else { return skip("/dev/shm is no tmpfs") };
            arena.dir("t");
            drop(tree::deep(File::open(arena.at("t")).unwrap(), "d", LEVELS));
            let root = arena.open(Policy::default().with_resolver(choice));
            let before = child::open_descriptors();
            let worker = std::thread::Builder::new().stack_size(256 << 10);
            let removed =
                worker.spawn(move || root.remove_tree_contained("t").unwrap()).unwrap().join().unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            assert_eq!(removed.directories, u64::from(LEVELS) + 1);
            assert!(arena.names(".").is_empty());
            assert_eq!(child::open_descriptors(), before - 1, "the root itself was closed");
        }
    });
}

#[test]
fn two_hundred_thousand_entries_go_without_a_list_of_them() {
    child::run("bombs::two_hundred_thousand_entries_go_without_a_list_of_them", || {
        const ENTRIES: u32 = 200_000;
        let Some(arena) = Arena::on_tmpfs() else { return skip("/dev/shm is no tmpfs") };
        arena.dir("t");
        tree::wide(File::open(arena.at("t")).unwrap(), ENTRIES);
        let root = arena.open(Policy::default());
        let before = child::peak_memory();
        let removed = root.remove_tree_contained("t").unwrap();
        assert!(removed.is_complete(), "{removed:?}");
        assert_eq!(removed.files, u64::from(ENTRIES));
        let grown = child::peak_memory() - before;
        assert!(grown < 4 << 20, "{grown} bytes more");
    });
}

#[test]
fn a_sparse_terabyte_costs_nothing() {
    child::run("bombs::a_sparse_terabyte_costs_nothing", || {
        for choice in resolvers() {
            let arena = Arena::new();
            arena.file("bomb", "");
            if let Err(error) = File::options().write(true).open(arena.at("bomb")).unwrap().set_len(1 << 40) {
                return skip(&format!("no sparse terabyte here: {error}"));
            }
            let root = arena.open(Policy::default().with_resolver(choice));
            let (before, start) = (child::peak_memory(), Instant::now());
            assert_eq!(kind(root.read_contained("bomb", 10 << 20)), ErrorKind::TooLarge);
            let mut file = root.open_contained("bomb").unwrap();
            assert_eq!(kind(file.read_to_limit(10 << 20)), ErrorKind::TooLarge);
            let grown = child::peak_memory() - before;
            assert!(grown < 16 << 20, "{grown} bytes more");
            // Whoever reads it all takes minutes.
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
            fs::remove_file(arena.at("bomb")).unwrap();
        }
    });
}

#[test]
fn a_directory_that_is_wide_and_deep_is_walked_within_limits() {
    child::run("bombs::a_directory_that_is_wide_and_deep_is_walked_within_limits", || {
        let Some(arena) = Arena::on_tmpfs() else { return skip("/dev/shm is no tmpfs") };
        tree::wide(File::open(arena.root()).unwrap(), 50_000);
        let root = arena.open(Policy::default());
        let before = child::peak_memory();
        let limits = beneath::WalkLimits::default().with_entries(20_000);
        let mut walk = root.walk(".", limits).unwrap();
        let seen = walk.by_ref().take_while(Result::is_ok).count();
        assert_eq!(seen, 20_000);
        let grown = child::peak_memory() - before;
        assert!(grown < 4 << 20, "{grown} bytes more");
    });
}
