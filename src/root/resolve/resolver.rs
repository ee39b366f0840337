//! Which of the two ways from a path to a descriptor this process has.

use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, ResolveFlags, openat2};
use rustix::io::{Errno, retry_on_intr};

use super::proc::DIRECTORY;

/// How a [`Root`](crate::Root) turns paths into descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolver {
    /// By `openat2`, the whole path at once.
    Openat2,
    /// Component by component, where openat2 is missing or blocked. Same guarantees, more syscalls.
    Walk,
}

/// Whether this process may call openat2. An empty path costs no descriptor: with openat2 it is ENOENT.
pub(in crate::root) fn probe(root: BorrowedFd<'_>) -> Resolver {
    match retry_on_intr(|| openat2(root, c"", DIRECTORY, Mode::empty(), ResolveFlags::BENEATH)) {
        Err(Errno::NOENT) => Resolver::Openat2,
        // ENOSYS from an old kernel; a seccomp profile may answer EPERM, EACCES, EINVAL or anything else.
        _ => Resolver::Walk,
    }
}
