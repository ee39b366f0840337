//! Listings and walks with the metadata of every entry. Each file holds one byte, so that the sizes add up to their number.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use beneath::WalkLimits;
use beneath_kit::bench::{Ground, Line, OURS, RAW, Ways};
use cap_std::fs::Dir;
use ignore::{WalkBuilder, WalkState};
use rustix::fs::{AtFlags, FileType, Mode, RawDir, StatxFlags, openat2, statx};

use super::{BENEATH, DIRECTORY, capped, hold, ours};

const ENTRIES: usize = 20_000;

/// Where the walkers stop.
#[derive(Clone, Copy)]
enum Depth {
    One,
    All,
}

impl Depth {
    fn most(self) -> usize {
        if matches!(self, Self::One) { 1 } else { usize::MAX }
    }
}

pub(super) fn list(ground: &Ground) -> Ways {
    let dir = &ground.dir;
    let entries = ground.size(ENTRIES);
    (0..entries).for_each(|n| fs::write(dir.join(format!("file-{n}")), b"x").unwrap());
    let (plain, raw, root, cap) = (dir.clone(), hold(dir), ours(dir), capped(dir));
    let mut lines = vec![
        summing("std", entries, move || {
            fs::read_dir(&plain).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
        }),
        summing(RAW, entries, move || raw_sizes(&raw, ".", Depth::One)),
        summing(OURS, entries, move || {
            root.list(".").unwrap().map(|entry| entry.unwrap().metadata().len()).sum()
        }),
        summing("cap-std", entries, move || {
            cap.entries().unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
        }),
        summing("walkdir", entries, walkdir(dir, Depth::One)),
    ];
    lines.extend(walkers(dir, entries, Depth::One));
    Ok(lines)
}

pub(super) fn walk(ground: &Ground) -> Ways {
    let dir = &ground.dir;
    let entries = ground.size(ENTRIES);
    for n in 0..entries {
        let inner = dir.join(format!("d{}/e{}", n % 20, n % 400));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join(format!("file-{n}")), b"x").unwrap();
    }
    let (raw, root, cap) = (hold(dir), ours(dir), capped(dir));
    let mut lines = vec![
        summing("walkdir", entries, walkdir(dir, Depth::All)),
        summing(RAW, entries, move || raw_sizes(&raw, ".", Depth::All)),
        summing(OURS, entries, move || {
            let walk = root.walk(".", WalkLimits::default()).unwrap().map(|entry| entry.unwrap());
            walk.filter(|entry| entry.metadata().is_file()).map(|entry| entry.metadata().len()).sum()
        })
        .besides(&[("fcntl", "the walk holds a copy of the root's handle"), ("close", "the same copy")]),
        summing("cap-std", entries, move || cap_sizes(&cap)),
    ];
    lines.extend(walkers(dir, entries, Depth::All));
    Ok(lines)
}

fn summing(name: &'static str, entries: usize, mut call: impl FnMut() -> u64 + 'static) -> Line {
    Line::once(name, move || assert_eq!(call(), entries as u64))
}

/// The size of a file; a directory adds nothing.
fn size(metadata: &fs::Metadata) -> u64 {
    if metadata.is_file() { metadata.len() } else { 0 }
}

fn walkdir(dir: &Path, depth: Depth) -> impl FnMut() -> u64 + 'static {
    let dir = dir.to_owned();
    move || {
        let walk = walkdir::WalkDir::new(&dir).max_depth(depth.most()).into_iter();
        walk.map(|entry| size(&entry.unwrap().metadata().unwrap())).sum()
    }
}

/// Walkers that leave nothing out, and that have as many threads as there are processors where they say so.
fn walkers(dir: &Path, entries: usize, depth: Depth) -> [Line; 3] {
    let walk = {
        let dir = dir.to_owned();
        move || {
            let mut walk = WalkBuilder::new(&dir);
            walk.standard_filters(false).max_depth(Some(depth.most()));
            walk
        }
    };
    let (threaded, jwalk) = (walk.clone(), dir.to_owned());
    [
        summing("ignore", entries, move || {
            walk().build().map(|entry| size(&entry.unwrap().metadata().unwrap())).sum()
        }),
        summing("ignore, threads", entries, move || {
            let total = AtomicU64::new(0);
            walk_on_threads(&threaded(), &total);
            total.into_inner()
        }),
        summing("jwalk, threads", entries, move || {
            let walk = jwalk::WalkDir::new(&jwalk).skip_hidden(false).max_depth(depth.most());
            walk.into_iter().map(|entry| size(&entry.unwrap().metadata().unwrap())).sum()
        }),
    ]
}

fn walk_on_threads(walk: &WalkBuilder, total: &AtomicU64) {
    walk.build_parallel().run(|| {
        Box::new(|entry| {
            total.fetch_add(size(&entry.unwrap().metadata().unwrap()), Ordering::Relaxed);
            WalkState::Continue
        })
    });
}

fn raw_sizes<P: rustix::path::Arg>(parent: impl AsFd, name: P, depth: Depth) -> u64 {
    let wanted = StatxFlags::BASIC_STATS;
    let dir = openat2(&parent, name, DIRECTORY, Mode::empty(), BENEATH).unwrap();
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    let mut total = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        // An owned name, as every other way gives one.
        std::hint::black_box(entry.file_name().to_owned());
        let found = statx(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW, wanted).unwrap();
        if FileType::from_raw_mode(found.stx_mode.into()).is_file() {
            total += found.stx_size;
        } else if matches!(depth, Depth::All) {
            total += raw_sizes(&dir, entry.file_name(), depth);
        }
    }
    total
}

fn cap_sizes(dir: &Dir) -> u64 {
    let sizes = dir.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => cap_sizes(&entry.open_dir().unwrap()),
            metadata => metadata.len(),
        }
    });
    sizes.sum()
}
