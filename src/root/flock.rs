//! One holder at a time, across threads and processes, on a file in a directory that only the host can reach.
//!
//! Problem: `flock` belongs to the open file and not to its name. A child that was forked shares it, and a file that was
//! removed and made anew under the same name is another lock.
//!
//! Defence: it is given up by the process that took it and by no other; after it was taken the name is compared with the open
//! file.
//!
//! What remains: it is advisory, so it holds only between users of this crate.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::metadata::describe;
use super::{ContainedFile, Root};
use crate::error::{Error, ErrorKind, Result};

/// A held lock; it ends when this is dropped, and with the process.
#[derive(Debug)]
pub(crate) struct Flock {
    file: ContainedFile,
    /// The process that took it.
    holder: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Locked,
    /// There are no locks here.
    Unlocked,
    /// Its file has lost its name.
    Over,
}

impl Drop for Flock {
    fn drop(&mut self) {
        if self.state == State::Locked {
            release(self.file.as_fd(), self.holder);
        }
    }
}

/// A child that was forked meanwhile shares the open file, and closing it here would leave the lock to the child.
fn release(held: BorrowedFd<'_>, holder: u32) {
    // In a child it is the parent's to give up.
    if holder == std::process::id() {
        // Should it fail, the lock ends with the last descriptor.
        let _ = flock(held, FlockOperation::Unlock);
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
        match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(Self::busy(path, operation)),
            Err(errno) => return Err(Error::from_errno(operation, path, errno)),
        }
        let lock = Self { file, holder: std::process::id(), state: State::Locked };
        // Whoever removed the file meanwhile held a lock that is no longer the one at this path.
        lock.is_at(root, path)?.then_some(lock).ok_or_else(|| Self::busy(path, operation))
    }

    /// Takes the lock on a file that is open, unless somebody else holds it. Where there are no locks, nobody does.
    #[cfg(feature = "queue")]
    pub(crate) fn try_hold(file: ContainedFile) -> Option<Self> {
        let state = match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => State::Locked,
            Err(Errno::WOULDBLOCK) => return None,
            Err(_) => State::Unlocked,
        };
        Some(Self { file, holder: std::process::id(), state })
    }

    /// Whether others see that it is held.
    #[cfg(feature = "queue")]
    pub(crate) fn is_locked(&self) -> bool {
        self.state == State::Locked
    }

    /// Gives up the lock of a file whose name was removed: nobody can find it to lock it, so a child that shares it does no harm.
    #[cfg(feature = "queue")]
    pub(crate) fn end(mut self) {
        self.state = State::Over;
    }

    /// The file that is locked.
    #[cfg(feature = "queue")]
    pub(crate) fn file(&self) -> &ContainedFile {
        &self.file
    }

    /// The same, to be read.
    #[cfg(feature = "queue")]
    pub(crate) fn file_mut(&mut self) -> &mut ContainedFile {
        &mut self.file
    }

    /// Whether this process holds the very lock that is at `path`.
    pub(crate) fn is_at(&self, root: &Root, path: &Path) -> Result<bool> {
        let (now, held) = (root.metadata(path)?, self.file.metadata());
        Ok((now.dev(), now.ino()) == (held.dev(), held.ino()) && self.holder == std::process::id())
    }

    /// [`is_at`](Self::is_at) in one call, for a name in a directory that is held.
    #[cfg(feature = "mailbox")]
    pub(crate) fn is_named(&self, directory: &Root, name: &Path) -> Result<bool> {
        let held = super::Glance::of(&self.file).map_err(|errno| Error::from_errno("lock", name, errno))?;
        let now = directory.glance(name)?;
        Ok(now.is_same_file(&held) && self.holder == std::process::id())
    }

    /// The error for a lock that somebody else holds.
    pub(crate) fn busy(path: &Path, operation: &'static str) -> Error {
        Error::new(operation, path, ErrorKind::Busy).with_detail("is held by another worker")
    }
}

/// A held lock on a directory itself; it ends when this is dropped, and with the process.
#[derive(Debug)]
pub(crate) struct DirectoryFlock {
    dir: OwnedFd,
    holder: u32,
}

impl Drop for DirectoryFlock {
    fn drop(&mut self) {
        release(self.dir.as_fd(), self.holder);
    }
}

impl DirectoryFlock {
    /// Takes the lock; `WOULDBLOCK` if somebody else holds one that excludes it.
    pub(crate) fn try_take(dir: &Root, operation: FlockOperation) -> rustix::io::Result<Self> {
        // An open file of its own, so that two threads do not share the lock.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(dir, c".", flags, Mode::empty())?;
        match flock(&dir, operation) {
            Ok(()) => Ok(Self { dir, holder: std::process::id() }),
            Err(Errno::INTR) => Err(Errno::WOULDBLOCK),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the directory that is locked is at `path`.
    pub(crate) fn is_at(&self, root: &Root, path: &Path) -> Result<bool> {
        let held = describe(self.dir.as_fd()).map_err(|errno| Error::from_errno("lock", path, errno))?;
        let now = root.metadata(path)?;
        Ok((now.dev(), now.ino()) == (held.dev(), held.ino()))
    }
}
