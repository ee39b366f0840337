//! Moving entries.
//!
//! Problem: `rename` follows links in the middle of both paths, and replaces what is at the new name.
//!
//! Defence: both ends get a parent handle from the resolver, each beneath its own root, and one component. The name must be
//! free, unless the caller asks to replace or exchange what is there; the kernel looks and moves in one step.
//!
//! What remains: what is moved, replaced or exchanged is what is at the name at that moment, and that is beneath the root too.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{RenameFlags, fsync, renameat, renameat_with};
use rustix::io::{Errno, retry_on_intr};

use super::metadata::{describe, describe_at};
use super::resolve::Handle;
use super::resolve::path::{Checked, Meant, subject};
#[cfg(feature = "session")]
use super::write::draft::rename_fresh;
use super::write::draft::{open_to_sync, rename_new};
use super::{Durability, Root};
use crate::error::{Error, ErrorKind, Result};

/// What [`Root::rename_with`] does with an entry that has the new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rename {
    /// It stays, and the call fails with [`AlreadyExists`](ErrorKind::AlreadyExists).
    #[default]
    NoReplace,
    /// It goes, in the same step. A directory takes the place of an empty directory only, anything else that of anything but a
    /// directory. If both are names of one file, the kernel does nothing, and both stay.
    Replace,
    /// It gets the old name, in the same step. Both must be there, and may be of different kinds.
    Exchange,
}

impl Root {
    /// Moves an entry to a name that must be free. A link is moved, never followed.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), [`NotFound`](ErrorKind::NotFound),
    /// [`InvalidPath`](ErrorKind::InvalidPath) for a directory into itself, [`Denied`](ErrorKind::Denied) where a policy
    /// (Landlock, project quotas) allows no move between the two directories, [`Unsupported`](ErrorKind::Unsupported) on a
    /// file system that can move a file only by replacing, and the kinds of every resolution.
    ///
    /// # Races
    /// What is moved is what is at the name at that moment. On file systems without `RENAME_NOREPLACE` a file has
    /// both names for an instant.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_to(from, self, to)
    }

    /// Moves an entry to another root on the same mount; otherwise as [`rename`](Self::rename).
    ///
    /// Each end is kept beneath its own root.
    ///
    /// # Errors
    /// As [`rename`](Self::rename), and [`CrossDevice`](ErrorKind::CrossDevice) if the roots are on different mounts.
    pub fn rename_to(&self, from: impl AsRef<Path>, other: &Self, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, other, to, Rename::NoReplace)
    }

    /// Moves an entry to another root on the same mount, or to this one, and replaces or exchanges what is there if `how` says so.
    ///
    /// A link at either end is moved, replaced or exchanged itself, never followed.
    ///
    /// # Errors
    /// As [`rename_to`](Self::rename_to). For [`Rename::Replace`] [`NotRegular`](ErrorKind::NotRegular) if a directory is at the new
    /// name of something else, [`NotDirectory`](ErrorKind::NotDirectory) if something else is at that of a directory,
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if the directory there is not empty. For [`Rename::Exchange`]
    /// [`NotFound`](ErrorKind::NotFound) if either is missing, and [`Unsupported`](ErrorKind::Unsupported) on a file system that
    /// cannot exchange. The subject says which of the two it is about.
    ///
    /// # Races
    /// The kernel looks and moves in one step, so a reader of the new name finds the old entry or the new one. What is replaced or
    /// exchanged is what is at the name at that moment. A replacement moves nothing if the guest has made both names those
    /// of one file; both then stay.
    ///
    /// ```
    /// use beneath::Rename;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("current", "one")?;
    /// root.write_exclusive("next", "two")?;
    /// root.rename_with("next", &root, "current", Rename::Exchange)?;
    /// assert_eq!(root.read_contained("current", 8)?, b"two");
    /// root.rename_with("next", &root, "current", Rename::Replace)?;
    /// assert_eq!(root.read_contained("current", 8)?, b"one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        other: &Self,
        to: impl AsRef<Path>,
        how: Rename,
    ) -> Result<()> {
        let ends = Ends::new((self, from.as_ref()), (other, to.as_ref()), how)?;
        // Before the move, since a guest may forbid it later.
        let sync = ends.open_to_sync(other, OldPlace::Required)?;
        let (from_dir, to_dir) = (ends.from_dir.as_fd(), ends.to_dir.as_fd());
        match how {
            Rename::NoReplace => rename_new(from_dir, ends.old, to_dir, ends.new),
            Rename::Replace => renameat(from_dir, ends.old, to_dir, ends.new),
            Rename::Exchange => renameat_with(from_dir, ends.old, to_dir, ends.new, RenameFlags::EXCHANGE),
        }
        .map_err(|errno| ends.failed(errno))?;
        ends.sync(&sync)
    }

    /// Moves an entry to a name that nobody else uses, in one step on every file system.
    ///
    /// The inner result is that of the sync, which can fail after the move is done. A directory that the guest does not let
    /// the host read is not synced; the directory that the entry is moved to always is.
    #[cfg(feature = "session")]
    pub(crate) fn move_to(
        &self,
        from: impl AsRef<Path>,
        other: &Self,
        to: impl AsRef<Path>,
    ) -> Result<Result<()>> {
        let ends = Ends::new((self, from.as_ref()), (other, to.as_ref()), Rename::NoReplace)?;
        let sync = ends.open_to_sync(other, OldPlace::IfReadable)?;
        rename_fresh(ends.from_dir.as_fd(), ends.old, ends.to_dir.as_fd(), ends.new)
            .map_err(|errno| ends.failed(errno))?;
        Ok(ends.sync(&sync))
    }
}

/// Whether the directory that an entry leaves must be synced, though the guest may not let the host read it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OldPlace {
    Required,
    IfReadable,
}

/// The two names of a move, each with the directory that holds it.
struct Ends<'r, 'p> {
    roots: (&'r Root, &'r Root),
    from: Checked<'p>,
    from_dir: Handle<'r>,
    old: &'p [u8],
    to: Checked<'p>,
    to_dir: Handle<'r>,
    new: &'p [u8],
    how: Rename,
}

impl<'r, 'p> Ends<'r, 'p> {
    fn new(from: (&'r Root, &'p Path), to: (&'r Root, &'p Path), how: Rename) -> Result<Self> {
        let ((from_root, from), (to_root, to)) = (from, to);
        let from = Checked::new("rename", from, Meant::Entry)?;
        let to = Checked::new("rename", to, Meant::Entry)?;
        from_root.writable("rename", from)?;
        to_root.writable("rename", to)?;
        let (from_dir, old) = from_root.parent("rename", from)?;
        let (to_dir, new) = to_root.parent("rename", to)?;
        Ok(Self { roots: (from_root, to_root), from, from_dir, old, to, to_dir, new, how })
    }

    /// Both directories, opened so that the move can be made durable, if the policy of the new place asks for that.
    fn open_to_sync(&self, root: &Root, old: OldPlace) -> Result<Vec<OwnedFd>> {
        if root.policy.durability() != Durability::Full {
            return Ok(Vec::new());
        }
        let mut sync = vec![open_to_sync(self.to_dir.as_fd()).map_err(|errno| self.failed(errno))?];
        match open_to_sync(self.from_dir.as_fd()) {
            Err(Errno::ACCESS) if old == OldPlace::IfReadable => {}
            opened => sync.push(opened.map_err(|errno| self.failed(errno))?),
        }
        Ok(sync)
    }

    fn sync(&self, directories: &[OwnedFd]) -> Result<()> {
        let sync = |dir| retry_on_intr(|| fsync(dir));
        directories.iter().try_for_each(sync).map_err(|errno| self.failed(errno))
    }

    /// What a failed move means, which the errno alone does not say.
    fn failed(&self, errno: Errno) -> Error {
        let error = Error::from_errno("rename", self.blamed(errno), errno);
        let ends = || Some((describe(self.from_dir.as_fd()).ok()?, describe(self.to_dir.as_fd()).ok()?));
        match errno {
            Errno::INVAL if self.is_into_itself() => {
                error.with_kind(ErrorKind::InvalidPath).with_detail("cannot be moved into itself")
            }
            // Landlock and project quotas say this of two directories of one mount, and overlayfs of a directory that is in a
            // lower layer, even if it would stay where it is.
            Errno::XDEV => match ends() {
                Some((one, other)) if (one.dev(), one.ino()) == (other.dev(), other.ino()) => {
                    error.with_detail("is in a layer of the file system from which it cannot be moved")
                }
                Some((one, other)) if one.mount().is(other.mount()) => error
                    .with_kind(ErrorKind::Denied)
                    .with_detail("may not be moved between these directories"),
                _ => error,
            },
            _ => error,
        }
    }

    /// Whether EINVAL says that one end is in the other. File systems that cannot exchange answer so too, whatever is exchanged.
    fn is_into_itself(&self) -> bool {
        let (from, to) = (subject(self.from), subject(self.to));
        match self.how {
            Rename::Exchange => {
                let inode = |root: &Root| describe(root.as_fd()).map(|dir| (dir.dev(), dir.ino()));
                // The texts say it of one root only.
                let same_root = inode(self.roots.0).is_ok_and(|one| Ok(one) == inode(self.roots.1));
                same_root && (from.starts_with(to) || to.starts_with(from))
            }
            Rename::NoReplace | Rename::Replace => {
                describe_at(self.from_dir.as_fd(), self.old).is_ok_and(|entry| entry.is_dir())
            }
        }
    }

    /// The end that an errno is about.
    fn blamed(&self, errno: Errno) -> &'p Path {
        let is_new = match errno {
            Errno::EXIST | Errno::NOTEMPTY | Errno::NOSPC | Errno::DQUOT => true,
            Errno::ISDIR | Errno::NOTDIR => self.how == Rename::Replace,
            // Either may be missing: ask once, for the error only.
            Errno::NOENT if self.how == Rename::Exchange => {
                describe_at(self.from_dir.as_fd(), self.old).is_ok()
            }
            _ => false,
        };
        subject(if is_new { self.to } else { self.from })
    }
}
