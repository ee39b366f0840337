//! Trees that no path reaches to the bottom of, built by handles.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, mkdirat, openat};

use crate::strikes::exchange::{NEW, open_dir};

/// Makes `levels` directories called `name`, one in the other, and returns the innermost.
pub fn deep(top: impl AsFd, name: &str, levels: u32) -> OwnedFd {
    let mut at = open_dir(top, ".").unwrap();
    for _ in 0..levels {
        mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        at = open_dir(&at, name).unwrap();
    }
    at
}

/// Makes `count` empty files in `dir`.
pub fn wide(dir: impl AsFd, count: u32) {
    let dir = dir.as_fd();
    for number in 0..count {
        drop(openat(dir, format!("f{number}"), NEW, Mode::from_raw_mode(0o644)).unwrap());
    }
}

/// How many levels of `name` there are beneath `top`.
pub fn depth(top: impl AsFd, name: &str) -> u32 {
    let levels = std::iter::successors(open_dir(top, ".").ok(), |at| open_dir(at, name).ok());
    u32::try_from(levels.count()).unwrap() - 1
}
