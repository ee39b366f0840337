//! Copies of a large file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use beneath_kit::bench::{Ground, Line, OURS, RAW, Ways};
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, copy_file_range, fchmod, linkat, openat, seek};

use super::read::{get_old, open};
use super::{FromTo, capped, hold, ours};

pub(super) fn copy(ground: &Ground, size: usize) -> Ways {
    let dir = &ground.dir;
    let size = ground.size(size);
    fs::write(dir.join("from"), vec![7; size]).unwrap();
    get_old();
    // The copy goes outside of the timing.
    let copying = |name: &'static str, mut call: FromTo<Path>| {
        let [from, to] = ["from", "to"].map(|name| dir.join(name));
        Line::new(name, move |watch| {
            let taken = watch.over(|| call(&from, &to));
            assert_eq!(fs::metadata(&to).unwrap().len(), size as u64);
            fs::remove_file(&to).unwrap();
            taken
        })
    };
    let (root, cap) = (ours(dir), capped(dir));
    Ok(vec![
        copying("std", Box::new(move |from, to| assert_eq!(fs::copy(from, to).unwrap(), size as u64))),
        copying(RAW, raw(dir.clone(), ground.is_nodev())),
        copying(
            OURS,
            Box::new(move |_, _| {
                assert_eq!(root.copy("from", "to", size as u64).unwrap().bytes, size as u64)
            }),
        )
        .besides(WRITERS),
        copying(
            "cap-std",
            Box::new(move |_, _| assert_eq!(cap.copy("from", &cap, "to").unwrap(), size as u64)),
        ),
        copying(
            "cp --reflink=auto",
            Box::new(|from, to| {
                let cp = Command::new("cp").arg("--reflink=auto").args([from, to]).status();
                assert!(cp.unwrap().success());
            }),
        ),
    ])
}

/// The bare syscalls copy a file that nobody writes to.
const WRITERS: &[(&str, &str)] = &[
    (
        "statx",
        "whether the name is free before all is copied, and whether somebody writes to the file meanwhile",
    ),
    ("pread64", "whether the file has grown"),
    ("ftruncate", "the size if the file ends in a hole"),
];

/// Holes stay holes, and the copy gets its name when it is complete.
fn raw(dir: PathBuf, is_nodev: bool) -> FromTo<Path> {
    let (dir, descriptors) = (hold(&dir), hold(Path::new("/proc/self/fd")));
    Box::new(move |_, _| {
        let (from, found) = open(&dir, &descriptors, "from", is_nodev);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let to = openat(&dir, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
        let data = seek(&from, SeekFrom::Data(0)).unwrap();
        let hole = seek(&from, SeekFrom::Hole(data)).unwrap();
        assert_eq!((data, hole), (0, found.st_size as u64));
        let size = found.st_size as usize;
        let (mut read, mut written) = (0, 0);
        let copied = copy_file_range(&from, Some(&mut read), &to, Some(&mut written), size).unwrap();
        assert_eq!(copied, size);
        fchmod(&to, Mode::RUSR | Mode::WUSR).unwrap();
        linkat(&to, "", &dir, "to", AtFlags::EMPTY_PATH).unwrap();
    })
}
