//! Changing mode and owner of what is already there.
//!
//! Problem: `chmod` and `chown` go by path and follow links, so a guest that exchanges an entry for a link has the
//! link's target changed; a second name of a host file needs not even a race.
//!
//! Defence: the entry is pinned with `O_PATH`, judged by its handle, and changed through that handle.
//!
//! Left: the guest may change its own entries back at once.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chmodat, chownat};

use super::metadata::{FileType, Metadata};
use super::path::{Checked, Meant};
use super::resolve::{describe, own_descriptors, subject};
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
    fn mode(self, access: Access, entry: &Metadata) -> u32 {
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
    /// Gives the regular file or directory at `path` the mode and owner of `access`.
    ///
    /// Set-id and sticky bits that `access` does not ask for are cleared.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`HardLinked`](ErrorKind::HardLinked) whatever the policy says of reading,
    /// [`NotRegular`](ErrorKind::NotRegular) for FIFOs, sockets and devices, [`Denied`](ErrorKind::Denied),
    /// [`Unsupported`](ErrorKind::Unsupported) without a usable `/proc`, and the kinds of every resolution.
    ///
    /// # Races
    /// What is changed is an inode that was an entry beneath the root during the call, and the only name of its file.
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
        let path = Checked::new(OPERATION, path.as_ref(), Meant::DirectoryOrRoot)?;
        let failed = |errno| Error::from_errno(OPERATION, subject(path), errno);
        let pin = self.open(OPERATION, path, OFlags::PATH)?;
        let entry = describe(pin.as_fd()).map_err(failed)?;
        let refuse = |kind| Err(Error::new(OPERATION, subject(path), kind));
        match entry.file_type() {
            FileType::Directory => {}
            FileType::File if entry.nlink() == 1 => {}
            FileType::File => return refuse(ErrorKind::HardLinked),
            // Never a link: the resolver has refused it.
            _ => return refuse(ErrorKind::NotRegular),
        }
        let mode = execute.mode(access, &entry);
        let owned = access.owner().is_none_or(|uid| uid == entry.uid())
            && access.group().is_none_or(|gid| gid == entry.gid());
        if owned && mode == entry.mode() {
            return Ok(Applied::Unchanged);
        }
        if !owned {
            let (owner, group) = (access.owner().map(Uid::from_raw), access.group().map(Gid::from_raw));
            chownat(pin.as_fd(), c"", owner, group, AtFlags::EMPTY_PATH).map_err(failed)?;
        }
        // Changing the owner clears the set-id bits, so the mode comes last.
        change_mode(pin.as_fd(), mode).map_err(failed)?;
        Ok(Applied::Changed)
    }
}

/// `fchmod` refuses an `O_PATH` descriptor, so its name in the process's own descriptors is used. That leads to the
/// inode, which is no link.
fn change_mode(pin: BorrowedFd<'_>, mode: u32) -> rustix::io::Result<()> {
    let (descriptors, number) = own_descriptors(pin).map_err(|_| rustix::io::Errno::OPNOTSUPP)?;
    chmodat(&descriptors, number.as_c_str(), Mode::from_raw_mode(mode), AtFlags::empty())
}
