//! Trees that no path reaches to the bottom of, built by handles.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, mkdirat, openat};

fn enter(parent: impl AsFd, name: &str) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty()).unwrap()
}

/// Makes `levels` directories called `name`, one in the other, and returns the innermost.
pub fn deep(top: impl AsFd, name: &str, levels: u32) -> OwnedFd {
    let mut at = enter(top, ".");
    for _ in 0..levels {
        mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        at = enter(&at, name);
    }
    at
}

/// Makes `count` empty files in `dir`.
pub fn wide(dir: impl AsFd, count: u32) {
    let dir = dir.as_fd();
    for number in 0..count {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(openat(dir, format!("f{number}"), flags, Mode::from_raw_mode(0o644)).unwrap());
    }
}

/// How many levels of `name` there are beneath `top`.
pub fn depth(top: impl AsFd, name: &str) -> u32 {
    let mut at = enter(top, ".");
    let mut levels = 0;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    while let Ok(next) = openat(&at, name, flags, Mode::empty()) {
        at = next;
        levels += 1;
    }
    levels
}
