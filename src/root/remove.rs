//! Removing a tree that a guest is still working in.
//!
//! Problem: a recursive remover follows a directory that was exchanged for a link, runs out of stack or descriptors on
//! a deep tree and out of memory on a wide one, hangs on a FIFO, stops at the first directory it may not enter, and
//! never ends while a guest keeps creating.
//!
//! Defence: a loop over at most 24 open directories, each opened from the handle of the one above without
//! following links or crossing mounts. What lies deeper is first moved up into the doomed top. Where it cannot be moved,
//! directories above are closed and entered again by name on the way back. Names are read a bufferful at a time;
//! directories are tried again until they are gone; a [`Budget`] ends it all.
//!
//! What remains: `unlinkat` goes by name, so an entry that the guest swaps in at the last moment is the one that goes. It was in
//! the doomed tree as well. Where directories cannot be moved, a budget that ends before the bottom of the deepest branch
//! is reached removes little, each time anew. What a call waits for in the kernel nobody can bound; see [`Budget`].

pub(super) mod budget;
mod chain;
mod frame;
mod removal;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::Root;
use super::metadata::describe_at;
use super::remove::budget::{Budget, Removed};
use super::resolve::path::subject;
use super::resolve::path::{Checked, Meant};
use super::write::draft::{rename_new, unguessable_name};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use removal::{OPERATION, Removal};

impl Root {
    /// Removes the directory at `path` and everything in it, within the default [`Budget`].
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if `path` is not a real directory,
    /// [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution. What could not be removed further down is
    /// no error but reported in [`Removed`].
    ///
    /// # Races
    /// Nothing outside the tree is touched, whatever the guest does. A guest that keeps creating makes it end with
    /// [`is_complete`](Removed::is_complete) false. The number of calls and the time between them are bounded, a single call is
    /// not: a guest that is inside a large `write`, or that serves the file system, can make the kernel wait. See
    /// [`Budget`] for what to do about it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.ensure_dir("job/out")?;
    /// root.write_exclusive("job/out/log", "done")?;
    /// let removed = root.remove_tree_contained("job")?;
    /// assert!(removed.is_complete());
    /// assert_eq!((removed.files, removed.directories), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_tree_contained(&self, path: impl AsRef<Path>) -> Result<Removed> {
        self.remove_tree_contained_within(path, Budget::default())
    }

    /// Removes the directory at `path` within the given budget.
    ///
    /// # Errors
    /// As [`remove_tree_contained`](Self::remove_tree_contained).
    pub fn remove_tree_contained_within(&self, path: impl AsRef<Path>, budget: Budget) -> Result<Removed> {
        let path = Checked::new(OPERATION, path.as_ref(), Meant::Directory)?;
        self.writable(OPERATION, path)?;
        let (dir, leaf) = self.parent(OPERATION, path)?;
        Removal::new(self, budget)
            .run(dir.as_fd(), leaf)
            .map_err(|errno| Error::from_errno(OPERATION, subject(path), errno))
    }

    /// Moves the directory at `path` into `quarantine`, where no guest can name it, and removes it there.
    ///
    /// If it cannot be moved (another mount, a directory the host may not move) it is removed in place. What is left
    /// of it stays in `quarantine` under a name that begins with `.beneath-`.
    ///
    /// # Errors
    /// As [`remove_tree_contained`](Self::remove_tree_contained), as long as the directory still has its name. Once it was
    /// moved, whatever goes wrong is reported in [`Removed`].
    ///
    /// # Races
    /// A guest that holds a descriptor or working directory inside can still create there until the removal has passed.
    pub fn remove_tree_quarantined(
        &self,
        path: impl AsRef<Path>,
        quarantine: &Self,
        budget: Budget,
    ) -> Result<Removed> {
        let path = Checked::new(OPERATION, path.as_ref(), Meant::Directory)?;
        self.writable(OPERATION, path)?;
        let (dir, leaf) = self.parent(OPERATION, path)?;
        let failed = |errno| Error::from_errno(OPERATION, subject(path), errno);
        let name = unguessable_name().map_err(failed)?;
        let doomed = real_directory(dir.as_fd(), leaf).map_err(failed)?;
        match rename_new(dir.as_fd(), doomed, quarantine.as_fd(), name.as_bytes()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(failed(Errno::NOENT)),
            Err(_) => return Removal::new(self, budget).run(dir.as_fd(), leaf).map_err(failed),
        }
        // The guest may have exchanged it just before the move; here it can no longer.
        if let Err(errno) = real_directory(quarantine.as_fd(), name.as_bytes()) {
            let back = rename_new(quarantine.as_fd(), name.as_bytes(), dir.as_fd(), leaf);
            if back.is_err() {
                // Its name is taken again, so there is no place to put it back to.
                let _ = unlinkat(quarantine.as_fd(), &*name, AtFlags::empty());
            }
            return Err(failed(errno));
        }
        // It has lost its name, so from here on whatever goes wrong is reported as something left.
        Ok(Removal::new(quarantine, budget)
            .run(quarantine.as_fd(), name.as_bytes())
            .unwrap_or_else(|errno| Removed::nothing(failed(errno))))
    }
}

/// The name again, if it is a directory and no link.
fn real_directory<'n>(dir: BorrowedFd<'_>, name: &'n [u8]) -> rustix::io::Result<&'n [u8]> {
    match describe_at(dir, name)? {
        entry if entry.is_dir() => Ok(name),
        entry if entry.is_symlink() => Err(Errno::LOOP),
        _ => Err(Errno::NOTDIR),
    }
}
