//! Which directory a name leads to, compared with the one that is held.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::path::Arg;

use crate::root::Root;

/// Which directory it is. While something in it is held open, no other directory gets its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Identity {
    device: (u32, u32),
    inode: u64,
}

impl Identity {
    /// Of the directory that is held.
    pub(in crate::session) fn of(dir: &Root) -> rustix::io::Result<Self> {
        Self::ask(dir, c"", AtFlags::EMPTY_PATH)
    }

    /// Of whatever has that name; a link is not followed.
    pub(in crate::session) fn at(dir: &Root, name: &str) -> rustix::io::Result<Self> {
        Self::ask(dir, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn ask(dir: impl AsFd, name: impl Arg, flags: AtFlags) -> rustix::io::Result<Self> {
        // The time of its making would be another after an overlay has copied it up.
        let found = statx(dir, name, flags, StatxFlags::INO)?;
        Ok(Self { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino })
    }
}
