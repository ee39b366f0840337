//! Power cuts: what a disk holds at any moment, looked at after the journal was replayed.
//!
//! A file system on a loop device is written to while its backing file is cloned, which is one moment of the disk. The
//! clone is mounted as after a power cut. What was published durably must be there and whole; what was not may be
//! anything, and that it sometimes is shows that the cut is a cut. Takes root, mkfs.ext4 and mkfs.xfs (whose clones
//! are of one moment).
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::{Durability, Policy, Root, ambient_authority};
use beneath_kit::namespace::with_private_mounts;
use beneath_kit::skip;

const CUTS: usize = 12;
/// Files published between two cuts, at least.
const BETWEEN: usize = 15;

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn make_and_mount(image: &Path, megabytes: u64, make: &[&str], point: &Path) -> bool {
    File::create(image).unwrap().set_len(megabytes << 20).unwrap();
    fs::create_dir_all(point).unwrap();
    run(make[0], &[&make[1..], &[text(image)]].concat())
        && run("mount", &["-o", "loop", text(image), text(point)])
}

fn content(number: usize) -> Vec<u8> {
    vec![(number % 251) as u8; 20_000 + number % 7 * 4_096]
}

/// What one cut showed.
#[derive(Debug, Default)]
struct Seen {
    /// Published before the cut, and not there.
    lost: BTreeSet<usize>,
    /// There, and not whole.
    torn: BTreeSet<usize>,
    whole: usize,
}

fn look(disk: &Path, published: &[usize]) -> Seen {
    let mut seen = Seen::default();
    let mut there = BTreeSet::new();
    for entry in fs::read_dir(disk.join("d")).into_iter().flatten() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // A temporary name may be left by a cut, as the docs say of `replace`; here nothing makes one.
        let number: usize =
            name.strip_prefix('f').unwrap_or_else(|| panic!("left behind: {name}")).parse().unwrap();
        there.insert(number);
        if fs::read(disk.join("d").join(&name)).is_ok_and(|bytes| bytes == content(number)) {
            seen.whole += 1;
        } else {
            seen.torn.insert(number);
        }
    }
    seen.lost = published.iter().copied().filter(|number| !there.contains(number)).collect();
    seen
}

/// Publishes files on a disk and cuts its power again and again; gives what each cut showed, or none without the tools.
fn cut(scratch: &Path, durability: Durability) -> Option<Vec<Seen>> {
    let (base, disk, after) = (scratch.join("base"), scratch.join("disk"), scratch.join("after"));
    fs::create_dir_all(&after).unwrap();
    let xfs = ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"];
    if !make_and_mount(&scratch.join("base.img"), 512, &xfs, &base) {
        return None;
    }
    let image = base.join("disk.img");
    if !make_and_mount(&image, 96, &["mkfs.ext4", "-q", "-F"], &disk) {
        return None;
    }
    fs::create_dir(disk.join("d")).unwrap();
    assert!(run("sync", &["-f", text(&disk)]));
    let root = Root::open_ambient(&disk, ambient_authority()).unwrap();
    let root = root.with_policy(Policy::default().with_durability(durability));

    let (published, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if stop.load(Ordering::Relaxed)
                    || root.write_exclusive(format!("d/f{number}"), content(number)).is_err()
                {
                    break;
                }
                published.lock().unwrap().push(number);
            }
        });
        let seen = (1..=CUTS).map(|round| {
            while published.lock().unwrap().len() < round * BETWEEN {
                std::thread::yield_now();
            }
            let before = published.lock().unwrap().clone();
            let clone = base.join("clone.img");
            let target = File::create(&clone).unwrap();
            rustix::fs::ioctl_ficlone(&target, File::open(&image).unwrap()).unwrap();
            drop(target);
            assert!(run("mount", &["-o", "loop", text(&clone), text(&after)]), "the clone does not mount");
            let seen = look(&after, &before);
            assert!(run("umount", &[text(&after)]));
            seen
        });
        let seen = seen.collect();
        stop.store(true, Ordering::Relaxed);
        seen
    });
    drop(root);
    let _ = run("umount", &[text(&disk)]);
    let _ = run("umount", &[text(&base)]);
    Some(seen)
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let place = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(place).unwrap();
    let path = dir.path().to_path_buf();
    (dir, path)
}

#[test]
fn what_was_published_durably_survives_a_power_cut_whole() {
    with_private_mounts(|| {
        for durability in [Durability::None, Durability::File, Durability::Full] {
            let (_dir, path) = scratch();
            let Some(cuts) = cut(&path, durability) else {
                return skip("ext4 on xfs cannot be made or mounted here");
            };
            let lost: usize = cuts.iter().map(|seen| seen.lost.len()).sum();
            let torn: usize = cuts.iter().map(|seen| seen.torn.len()).sum();
            let whole: usize = cuts.iter().map(|seen| seen.whole).sum();
            println!("{durability:?}: {} cuts, {whole} files whole, {lost} lost, {torn} torn", cuts.len());
            match durability {
                Durability::None => {
                    assert!(lost + torn > 0, "the control lost nothing: this is no power cut")
                }
                Durability::File => assert_eq!(torn, 0),
                _ => assert_eq!((lost, torn), (0, 0)),
            }
        }
    });
}
