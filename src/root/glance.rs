//! What the kernel says of a name, in one call.
//!
//! Problem: whoever asks again and again whether a file has changed pays for opening it each time.
//!
//! Defence: one `statx` of the name, without following a link. The time of the last change is the kernel's, and no guest can set it. A
//! change in the same tick of the clock as the one before may have the same time, so it counts only once that is past, and only on
//! file systems that this kernel stamps itself.
//!
//! What remains: a guest that writes through a mapping is noticed when it first writes to a page, and then not until the kernel has
//! written the page back and the guest writes again; on tmpfs, which writes nothing back, never.

use std::os::fd::AsFd;
use std::path::{Component, Path};
use std::time::Duration;

use rustix::fs::{AtFlags, Stat, StatxFlags, fstat, makedev, statx};

use super::Root;
use super::read::stamps::{Before, stamps_changes};
use crate::error::{Error, Result};

/// How long ago a change must be for the next one to have another time, on file systems that keep whole seconds too.
const MARGIN: Duration = Duration::from_secs(2);

/// What shows that a file is another one, or has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glance {
    inode: (u64, u64),
    pub(crate) len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Glance {
    /// Of a file that is held.
    pub(crate) fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        fstat(file).map(|found| Self::new(&found))
    }

    // The types of the fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    fn new(found: &Stat) -> Self {
        Self {
            inode: (found.st_dev as u64, found.st_ino as u64),
            len: found.st_size as u64,
            modified: (found.st_mtime as i64, found.st_mtime_nsec as i64),
            changed: (found.st_ctime as i64, found.st_ctime_nsec as i64),
        }
    }

    /// Whether it is the same file, changed or not.
    #[cfg(feature = "mailbox")]
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        self.inode == other.inode
    }
}

/// A moment before something is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Before);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(Before::now())
    }

    /// Whether every change after the look shows in the next one, for a file in `root` that was looked at after this moment. Read
    /// after the look, the clock would say nothing: much time may have passed in between, and a change with the time of the
    /// one before.
    pub(crate) fn settles(self, seen: &Glance, root: &Root) -> bool {
        let changed = (seen.changed.0, u32::try_from(seen.changed.1).unwrap_or(0));
        self.0.is_past(changed, MARGIN) && stamps_changes(root.as_fd())
    }
}

impl Root {
    /// Looks at what has that name; a link is not followed.
    pub(crate) fn glance(&self, path: &Path) -> Result<Glance> {
        let mut components = path.components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(name)), None) => {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
                match statx(self, name, flags, StatxFlags::BASIC_STATS) {
                    Ok(found) => Ok(Glance {
                        inode: (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino),
                        len: found.stx_size,
                        modified: (found.stx_mtime.tv_sec, i64::from(found.stx_mtime.tv_nsec)),
                        changed: (found.stx_ctime.tv_sec, i64::from(found.stx_ctime.tv_nsec)),
                    }),
                    Err(errno) => Err(Error::from_errno("stat", path, errno)),
                }
            }
            _ => match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => self.descend(parent)?.glance(Path::new(name)),
                _ => Err(Error::from_errno("stat", path, rustix::io::Errno::INVAL)),
            },
        }
    }
}
