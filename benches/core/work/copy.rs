//! Copies of a large file: plain `std`, the bare syscall, this crate, and `cp`.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::fs::copy_file_range;

use super::{Group, Line, fresh, ours};

const SIZE: u64 = 64 << 20;

pub(super) fn copy(base: &Path) -> Group {
    let dir = fresh(base, "copy");
    fs::write(dir.join("from"), vec![7; SIZE as usize]).unwrap();
    let root = ours(&dir);
    let lines = vec![
        copying("std", &dir, |from, to| assert_eq!(fs::copy(from, to).unwrap(), SIZE)),
        copying("raw", &dir, raw),
        copying("beneath", &dir, move |_, _| assert_eq!(root.copy("from", "to", SIZE).unwrap().bytes, SIZE)),
        copying("cp --reflink=auto", &dir, |from, to| {
            let cp = Command::new("cp").arg("--reflink=auto").args([from, to]).status();
            assert!(cp.unwrap().success());
        }),
    ];
    Group { name: "copy 64 MiB".into(), lines }
}

/// Copies `from` to `to` in the directory, and removes the copy outside the timing.
fn copying(name: &'static str, dir: &Path, mut call: impl FnMut(&Path, &Path) + 'static) -> Line {
    let [from, to] = ["from", "to"].map(|name| dir.join(name));
    let run = move || {
        let start = Instant::now();
        call(&from, &to);
        let taken = start.elapsed();
        assert_eq!(fs::metadata(&to).unwrap().len(), SIZE);
        fs::remove_file(&to).unwrap();
        taken
    };
    Line { name, run: Box::new(run) }
}

fn raw(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).unwrap(), File::create_new(to).unwrap());
    while copy_file_range(&from, None, &to, None, SIZE as usize).unwrap() > 0 {}
}
