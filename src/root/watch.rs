//! Watching a directory by its handle.
//!
//! Problem: inotify takes a path and follows its links, so a guest that replaces the directory makes the host watch another one.
//!
//! Defence: the path is that of this thread's own descriptor in `/proc`, which leads to the very inode. Each watch ends with its
//! first event, so a guest that makes a thousand files queues as many events as one that makes one.
//!
//! What remains: it needs `/proc`, and the permission to read the directory.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::inotify::{WatchFlags, add_watch};
use rustix::io::Errno;

use super::Root;
use super::resolve::proc::{missing_proc, number_of};

const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// What a guest does. Not what a host does that looks around: it would wake itself.
const CHANGE: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// A new name. `fchmod` of a draft that has none is a change too, in spite of IN_EXCL_UNLINK, and a reader would look twice for each
/// file.
#[cfg(feature = "queue")]
const NEW_NAME: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Which changes of a directory are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    All,
    /// Only names that come.
    #[cfg(feature = "queue")]
    NewNames,
}

impl Root {
    /// Has `inotify` report the next change of this directory or of an entry in it, once. Returns the number of the watch, which is
    /// that of an earlier one on the same directory if it has not ended.
    pub(crate) fn watch_once(&self, inotify: BorrowedFd<'_>, changes: Changes) -> rustix::io::Result<i32> {
        // At worst a directory is watched that nobody has asked for, and the timer ends the wait.
        let number = number_of(self.as_fd()).map_err(missing_proc(Errno::NOSYS))?;
        let changes = match changes {
            Changes::All => CHANGE,
            // Somebody else may wait for more in the same directory.
            #[cfg(feature = "queue")]
            Changes::NewNames => NEW_NAME | WatchFlags::MASK_ADD,
        };
        // Without IN_EXCL_UNLINK the host's own drafts, which have no name, would count.
        let flags = changes | WatchFlags::ONESHOT | WatchFlags::ONLYDIR | WatchFlags::EXCL_UNLINK;
        add_watch(inotify, Path::new(DESCRIPTORS).join(number), flags).map_err(|errno| match errno {
            // A descriptor leads to its directory even after that is removed.
            Errno::NOENT | Errno::NOTDIR => Errno::NOSYS,
            errno => errno,
        })
    }

    /// Whether every change is made through this kernel. Of what another machine changes on a network file system, or a
    /// virtual machine on a shared one, inotify knows nothing.
    pub(crate) fn has_local_changes_only(&self) -> bool {
        self.stamps
    }
}
