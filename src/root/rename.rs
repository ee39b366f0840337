//! Moving entries.
//!
//! Problem: `rename` follows links in the middle of both paths, and replaces what is at the new name.
//!
//! Defence: both ends get a parent handle from the resolver, each beneath its own root, and one component. The name must be
//! free, and the kernel looks and moves in one step.
//!
//! What remains: what is moved is what is at the name at that moment, and that is beneath the root too.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::fsync;
use rustix::io::{Errno, retry_on_intr};

use super::metadata::{describe, describe_at};
use super::resolve::Handle;
use super::resolve::path::{Checked, Meant, subject};
#[cfg(feature = "session")]
use super::write::draft::rename_fresh;
use super::write::draft::{open_to_sync, rename_new};
use super::{Durability, Root};
use crate::error::{Error, ErrorKind, Result};

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
        let ends = Ends::new((self, from.as_ref()), (other, to.as_ref()))?;
        // Before the move, since a guest may forbid it later.
        let sync = ends.open_to_sync(other, OldPlace::Required)?;
        rename_new(ends.from_dir.as_fd(), ends.old, ends.to_dir.as_fd(), ends.new)
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
        let ends = Ends::new((self, from.as_ref()), (other, to.as_ref()))?;
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
    from: Checked<'p>,
    from_dir: Handle<'r>,
    old: &'p [u8],
    to: Checked<'p>,
    to_dir: Handle<'r>,
    new: &'p [u8],
}

impl<'r, 'p> Ends<'r, 'p> {
    fn new(from: (&'r Root, &'p Path), to: (&'r Root, &'p Path)) -> Result<Self> {
        let ((from_root, from), (to_root, to)) = (from, to);
        let from = Checked::new("rename", from, Meant::Entry)?;
        let to = Checked::new("rename", to, Meant::Entry)?;
        let (from_dir, old) = from_root.parent("rename", from)?;
        let (to_dir, new) = to_root.parent("rename", to)?;
        Ok(Self { from, from_dir, old, to, to_dir, new })
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
        let error = Error::from_errno("rename", blamed(errno, self.from, self.to), errno);
        let ends = || Some((describe(self.from_dir.as_fd()).ok()?, describe(self.to_dir.as_fd()).ok()?));
        match errno {
            Errno::INVAL
                if describe_at(self.from_dir.as_fd(), self.old).is_ok_and(|entry| entry.is_dir()) =>
            {
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
}

/// The end of a rename that an errno is about.
fn blamed<'a>(errno: Errno, from: Checked<'a>, to: Checked<'a>) -> &'a Path {
    match errno {
        Errno::EXIST | Errno::NOTEMPTY | Errno::NOSPC | Errno::DQUOT => subject(to),
        _ => subject(from),
    }
}
