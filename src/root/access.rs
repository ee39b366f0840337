//! Changing mode and owner of what is already there.
//!
//! Problem: `chmod` and `chown` go by path and follow links, so a guest that exchanges an entry for a link has the
//! link's target changed; a second name of a host file needs not even a race.
//!
//! Defence: the entry is pinned with `O_PATH`, judged by its handle, and changed through that handle. A file is changed only
//! after the proof that it has no other name.
//!
//! What remains: the guest may change its own entries back at once.

pub(super) mod acl;
pub(super) mod times;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chmodat, chownat};
use rustix::io::Errno;

use super::metadata::describe;
use super::metadata::{FileType, Metadata};
use super::read::single::{self, Proof, Purpose, REOPENED};
#[cfg(feature = "session")]
use super::read::stamps::{Before, TICK};
use super::resolve::path::subject;
use super::resolve::path::{Checked, Meant};
use super::resolve::proc::{missing_proc, own_descriptors};
use super::{Access, Root};
use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "set access";

/// What [`Root::set_access`] does with the execute bits of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Execute {
    /// The file gets exactly the policy's mode.
    #[default]
    Clear,
    /// Whoever may read the file by the new mode may still execute it, if they could before.
    Keep,
}

impl Execute {
    pub(super) fn mode(self, access: Access, entry: &Metadata) -> u32 {
        match (entry.file_type(), self) {
            (FileType::Directory, _) => access.dir_mode(),
            (_, Self::Clear) => access.file_mode(),
            (_, Self::Keep) => access.file_mode() | entry.mode() & 0o111 & access.file_mode() >> 2,
        }
    }
}

/// What [`Root::set_access`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// Mode or owner was another; it was set.
    Changed,
    /// Mode and owner were as wanted; nothing was done.
    Unchanged,
}

impl Root {
    /// Gives the regular file or directory at `path` the mode and owner of `access`, and removes its access control lists.
    ///
    /// Set-id and sticky bits that `access` does not ask for are cleared.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink); [`HardLinked`](ErrorKind::HardLinked) whatever the policy says of reading;
    /// [`NotRegular`](ErrorKind::NotRegular) for FIFOs, sockets and devices; [`Denied`](ErrorKind::Denied), with the mode as it
    /// was and without the lists; [`Busy`](ErrorKind::Busy) if the guest keeps exchanging, linking or changing the file;
    /// [`Unsupported`](ErrorKind::Unsupported) without a usable `/proc`, or if mode and owner did not stay, as on a file system
    /// that has none; and the kinds of every resolution.
    ///
    /// # Races
    /// What is changed is an inode that was an entry beneath the root during the call, and the only name of its file: not
    /// even a guest that links and unlinks a host's file meanwhile has that changed. Before Linux 6.13, and on file systems with
    /// coarse times, a file that has just changed is waited for until the change is 10 ms old, and no longer than 100 ms.
    ///
    /// ```
    /// use beneath::{Access, Applied, Execute};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("run.sh", "#!/bin/sh")?;
    /// assert_eq!(root.set_access("run.sh", Access::shared(), Execute::Keep)?, Applied::Changed);
    /// assert_eq!(root.metadata("run.sh")?.mode(), 0o660);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_access(&self, path: impl AsRef<Path>, access: Access, execute: Execute) -> Result<Applied> {
        self.set_access_until(path.as_ref(), access, execute, single::patience())
    }

    /// Describes a directory at a moment from which every change of its entries changes the description. `None` if that did not
    /// come before `until`, or the directory is gone.
    #[cfg(feature = "session")]
    pub(crate) fn settled_metadata(&self, path: &Path, until: Instant) -> Option<Metadata> {
        loop {
            let before = Before::now();
            let found = self.metadata(path).ok()?;
            if self.is_decisive(before, &found, Purpose::Change) {
                return Some(found);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(TICK);
        }
    }

    /// As [`set_access`](Self::set_access), waiting for files that have just changed no longer than `until`.
    pub(crate) fn set_access_until(
        &self,
        path: &Path,
        access: Access,
        execute: Execute,
        until: Instant,
    ) -> Result<Applied> {
        let path = Checked::new(OPERATION, path, Meant::DirectoryOrRoot)?;
        self.writable(OPERATION, path)?;
        let failed = |errno| Error::from_errno(OPERATION, subject(path), errno);
        let mut applied = Applied::Unchanged;
        for _ in 0..REOPENED {
            let pin = self.open(OPERATION, path, OFlags::PATH)?;
            let entry = describe(pin.as_fd()).map_err(failed)?;
            if !matches!(entry.file_type(), FileType::Directory | FileType::File) {
                // Never a link: the resolver has refused it.
                return Err(Error::new(OPERATION, subject(path), ErrorKind::NotRegular));
            }
            let wanted = Wanted::new(access, execute, &entry);
            let listed = acl::is_set(pin.as_fd()).map_err(missing_proc(Errno::OPNOTSUPP)).map_err(failed)?;
            // Files with several names are refused even if they need nothing.
            if (entry.is_dir() || entry.nlink() == 1) && !listed && wanted.is(&entry) {
                return Ok(applied);
            }
            if entry.is_file()
                && self.prove_single(OPERATION, path, pin.as_fd(), Purpose::Change, until)? != Proof::Single
            {
                continue;
            }
            if listed {
                acl::remove(pin.as_fd()).map_err(failed)?;
            }
            // With a list, the bits of the group are what the list may grant, and not the group's own.
            let old = if listed { entry.mode() & !0o070 } else { entry.mode() };
            wanted.apply(pin.as_fd(), &entry, old).map_err(failed)?;
            applied = Applied::Changed;
            // Looked at once more: what did not stay was changed back, or is not kept by the file system.
            // The list, too: until it lost the file the guest could set another.
            let stayed = describe(pin.as_fd()).is_ok_and(|entry| wanted.is(&entry));
            if stayed && acl::is_set(pin.as_fd()).is_ok_and(|set| !set) {
                return Ok(applied);
            }
        }
        Err(match applied {
            Applied::Changed => {
                failed(Errno::OPNOTSUPP).with_detail("mode or owner did not stay as they were set")
            }
            Applied::Unchanged => failed(Errno::BUSY).with_detail("is exchanged without pause"),
        })
    }
}

/// What an entry is to have.
struct Wanted {
    mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
}

impl Wanted {
    fn new(access: Access, execute: Execute, entry: &Metadata) -> Self {
        Self { mode: execute.mode(access, entry), owner: access.owner(), group: access.group() }
    }

    fn is_owned(&self, entry: &Metadata) -> bool {
        self.owner.is_none_or(|uid| uid == entry.uid()) && self.group.is_none_or(|gid| gid == entry.gid())
    }

    fn is(&self, entry: &Metadata) -> bool {
        self.is_owned(entry) && self.mode == entry.mode()
    }

    /// Changes the entry behind a pin, or gives it back the `old` mode. Whoever gives an entry away may do nothing more to it, so
    /// the owner comes last; only set-id bits come after it, where changing the owner has cleared them.
    fn apply(&self, pin: BorrowedFd<'_>, entry: &Metadata, old: u32) -> rustix::io::Result<()> {
        // `fchmod` refuses an `O_PATH` descriptor. Its name in the thread's own descriptors leads to the inode, which is no link.
        let (descriptors, number) = own_descriptors(pin).map_err(missing_proc(Errno::OPNOTSUPP))?;
        let change_mode =
            |mode| chmodat(&descriptors, number.as_c_str(), Mode::from_raw_mode(mode), AtFlags::empty());
        change_mode(self.mode)?;
        if self.is_owned(entry) {
            return Ok(());
        }
        let (owner, group) = (self.owner.map(Uid::from_raw), self.group.map(Gid::from_raw));
        if let Err(errno) = chownat(pin, c"", owner, group, AtFlags::EMPTY_PATH) {
            // The first failure is the one to report.
            let _ = change_mode(old);
            return Err(errno);
        }
        match describe(pin)?.mode() == self.mode {
            true => Ok(()),
            false => change_mode(self.mode),
        }
    }
}
