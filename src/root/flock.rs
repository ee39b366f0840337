//! One holder at a time, across threads and processes, on a file in a directory that only the host can reach.
//!
//! Problem: `flock` belongs to the open file and not to its name. A child that was forked shares it, and a file that was
//! removed and made anew under the same name is another lock.
//!
//! Defence: it is given up by the process that took it and by no other; after it was taken the name is compared with the open
//! file.
//!
//! What remains: it is advisory, so it holds only between users of this crate.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::metadata::describe;
use super::{ContainedFile, Root};
use crate::error::{Error, ErrorKind, Result};

/// A held lock; it ends when this is dropped, and with the process.
#[derive(Debug)]
pub(crate) struct Flock<F: AsFd = OwnedFd> {
    held: F,
    /// The process that took it.
    holder: u32,
}

impl<F: AsFd> Drop for Flock<F> {
    /// A child that was forked meanwhile shares the open file, and closing it here would leave the lock to the child.
    fn drop(&mut self) {
        // In a child it is the parent's to give up.
        if self.holder == std::process::id() {
            // Should it fail, the lock ends with the last descriptor.
            let _ = flock(self.held.as_fd(), FlockOperation::Unlock);
        }
    }
}

impl Flock {
    /// Takes the lock at `path`, making the file if there is none.
    ///
    /// # Errors
    /// `Busy` if somebody else holds it, `Unsupported` where the file system or a filter of system calls has no `flock`.
    pub(crate) fn try_take(root: &Root, path: &Path, operation: &'static str) -> Result<Self> {
        // Opened before it is made: on a full disk a lock that is held must not look like one that cannot be made.
        let file = match root.open_contained(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match root.write_exclusive(path, "") {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
                root.open_contained(path)?
            }
            file => file?,
        };
        let failed = |errno| match errno {
            Errno::WOULDBLOCK => Self::busy(path, operation),
            errno => Error::from_errno(operation, path, errno),
        };
        let file = ContainedFile::into_file(file).into();
        let lock = Self::on(file, FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
        // Whoever removed the file meanwhile held a lock that is no longer the one at this path.
        lock.is_at(root, path)?.then_some(lock).ok_or_else(|| Self::busy(path, operation))
    }

    /// Takes a lock on the directory itself; `WOULDBLOCK` if somebody else holds one that excludes it.
    pub(crate) fn try_directory(dir: &Root, operation: FlockOperation) -> rustix::io::Result<Self> {
        // An open file of its own, so that two threads do not share the lock.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::on(openat(dir, c".", flags, Mode::empty())?, operation)
    }

    fn on(held: OwnedFd, operation: FlockOperation) -> rustix::io::Result<Self> {
        match flock(&held, operation) {
            Ok(()) => Ok(Self { held, holder: std::process::id() }),
            Err(Errno::INTR) => Err(Errno::WOULDBLOCK),
            Err(errno) => Err(errno),
        }
    }

    /// Whether this process holds the very lock that is at `path`.
    pub(crate) fn is_at(&self, root: &Root, path: &Path) -> Result<bool> {
        let held = describe(self.held.as_fd()).map_err(|errno| Error::from_errno("lock", path, errno))?;
        let now = root.metadata(path)?;
        Ok((now.dev(), now.ino()) == (held.dev(), held.ino()) && self.holder == std::process::id())
    }

    /// [`is_at`](Self::is_at) in one call, for a name in a directory that is held.
    #[cfg(feature = "mailbox")]
    pub(crate) fn is_named(&self, directory: &Root, name: &Path) -> Result<bool> {
        let held = super::Glance::of(&self.held).map_err(|errno| Error::from_errno("lock", name, errno))?;
        let now = directory.glance(name)?;
        Ok(now.is_same_file(&held) && self.holder == std::process::id())
    }

    /// The error for a lock that somebody else holds.
    pub(crate) fn busy(path: &Path, operation: &'static str) -> Error {
        Error::new(operation, path, ErrorKind::Busy).with_detail("is held by another worker")
    }
}

#[cfg(feature = "queue")]
impl Flock<ContainedFile> {
    /// Takes the lock on a file that is open, unless somebody else holds it. Where there are no locks, nobody does.
    pub(crate) fn try_hold(held: ContainedFile) -> Option<Self> {
        match flock(held.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => None,
            _ => Some(Self { held, holder: std::process::id() }),
        }
    }

    /// The file that is locked.
    pub(crate) fn file(&mut self) -> &mut ContainedFile {
        &mut self.held
    }
}
