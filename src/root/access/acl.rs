//! Access control lists, which grant beside the mode.
//!
//! Problem: a guest gives a file an ACL that names another user, and `chmod` leaves it there; a default ACL on a directory is
//! inherited by everything the host makes in it.
//!
//! Defence: whatever gets the mode of an [`Access`](crate::root::Access) loses its ACLs first.
//!
//! What remains: a guest that owns the entry may set another one at once.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, flistxattr, fremovexattr, listxattr, openat, removexattr};
use rustix::io::Errno;
use rustix::path::DecInt;

use crate::root::resolve::proc::{missing_proc, own_descriptors};

/// The list that applies to the entry itself.
const ACCESS: &CStr = c"system.posix_acl_access";
/// The list that the new entries of a directory get.
const DEFAULT: &CStr = c"system.posix_acl_default";
/// More names than anything but a guest gives to a file.
const NAMES_BYTES: usize = 1024;

/// Removes what a new file has inherited.
pub(in crate::root) fn strip_file(new: BorrowedFd<'_>) -> rustix::io::Result<()> {
    removed(fremovexattr(new, ACCESS))
}

/// Removes what a new directory has inherited.
pub(in crate::root) fn strip_directory(new: BorrowedFd<'_>) -> rustix::io::Result<()> {
    removed(fremovexattr(new, ACCESS)).and_then(|()| removed(fremovexattr(new, DEFAULT)))
}

/// Whether the entry behind a pin has a list.
pub(in crate::root) fn is_set(pin: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let mut names = [0; NAMES_BYTES];
    let listed = match listxattr(place(pin), &mut names[..]) {
        // Without `/proc` a directory can still be opened through its own handle.
        Err(Errno::NOENT) => openat(pin, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|dir| flistxattr(dir, &mut names[..])),
        listed => listed,
    };
    match listed {
        Ok(length) => {
            let mut names = names.get(..length).unwrap_or_default().split_inclusive(|byte| *byte == 0);
            Ok(names.any(|name| [ACCESS, DEFAULT].iter().any(|list| list.to_bytes_with_nul() == name)))
        }
        // So many names that there may be one among them.
        Err(Errno::RANGE | Errno::TOOBIG) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Removes the lists of the entry behind a pin.
pub(in crate::root) fn remove(pin: BorrowedFd<'_>) -> rustix::io::Result<()> {
    // Fails unless `/proc` shows this thread's descriptors, so that no other entry's lists go.
    own_descriptors(pin).map_err(missing_proc(Errno::OPNOTSUPP))?;
    [ACCESS, DEFAULT].into_iter().try_for_each(|list| removed(removexattr(place(pin), list)))
}

/// An `O_PATH` descriptor cannot be asked for its attributes, but its name among the thread's descriptors leads to the inode.
fn place(pin: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", DecInt::from_fd(pin).as_str())
}

fn removed(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        // There was none, or the file system knows none. A default list is a directory's, which some say with EACCES.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(()),
        result => result,
    }
}
