//! Making, describing, moving and unlinking single entries.
//!
//! Problem: `mkdirat`, `renameat2` and `unlinkat` follow links in the middle of a path.
//!
//! Defence: they get a parent handle from the resolver and one component, and none of them follows that one.
//!
//! Left: between the lookup of the parent and the call the guest may have put another entry at the name. The call then
//! acts on that one, which is beneath the root too.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, unlinkat};
use rustix::io::{Errno, retry_on_intr};

use super::access::acl;
use super::metadata::Metadata;
use super::metadata::{describe, describe_at};
use super::resolve::Handle;
use super::resolve::path::subject;
use super::resolve::path::{Checked, Meant};
use super::resolve::proc::DIRECTORY;
#[cfg(feature = "session")]
use super::write::draft::rename_fresh;
use super::write::draft::{give_access, open_to_sync, rename_new};
use super::{Durability, Mounts, Root};
use crate::error::{Error, ErrorKind, Result};

/// How often a directory that the guest removes again is made anew.
const MAKE_TRIES: u32 = 16;

/// What [`Root::ensure_dir`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ensured {
    /// The directory was not there; it was made.
    Created,
    /// The directory was there; nothing was changed.
    Existed,
}

impl Root {
    /// Makes sure that `path` is a directory, with every level above it.
    ///
    /// New levels get the policy's mode and owner, whatever the umask. Existing ones are left as they are.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if something else is in the way,
    /// [`Busy`](ErrorKind::Busy) if the guest keeps removing what is made, and the kinds of every resolution.
    ///
    /// # Races
    /// Of two concurrent callers both succeed. A guest that exchanges the new directory for another of its own at once
    /// has mode and owner given to that one. It may replace the directory afterwards: use [`descend`](Self::descend) or
    /// a path through this root, never the memory of this call.
    ///
    /// ```
    /// use beneath::Ensured;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// assert_eq!(root.ensure_dir("inbox/42")?, Ensured::Created);
    /// assert_eq!(root.ensure_dir("inbox/42")?, Ensured::Existed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ensure_dir(&self, path: impl AsRef<Path>) -> Result<Ensured> {
        const OPERATION: &str = "create directory";
        let whole = Checked::new(OPERATION, path.as_ref(), Meant::Directory)?;
        let mut missing = Vec::new();
        let mut prefix = Some(whole);
        let mut dir = loop {
            let Some(existing) = prefix else { break Handle::Root(self.as_fd()) };
            match self.open(OPERATION, existing, DIRECTORY) {
                Ok(dir) => break Handle::Opened(dir),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let (above, name) = existing.split();
                    missing.push(name);
                    prefix = above;
                }
                Err(error) => return Err(error.about(subject(whole))),
            }
        };
        let mut ensured = Ensured::Existed;
        for name in missing.into_iter().rev() {
            let made = self.make_dir(&dir, name);
            let (next, how) = made.map_err(|errno| Error::from_errno(OPERATION, subject(whole), errno))?;
            dir = Handle::Opened(next);
            ensured = how;
        }
        Ok(ensured)
    }

    /// Makes sure that `path` is a directory, as [`ensure_dir`](Self::ensure_dir) does, and opens that very one.
    #[cfg(feature = "session")]
    pub(crate) fn ensure_and_descend(&self, path: impl AsRef<Path>) -> Result<(Self, Ensured)> {
        const OPERATION: &str = "create directory";
        let whole = Checked::new(OPERATION, path.as_ref(), Meant::Directory)?;
        let (dir, name) = match self.parent(OPERATION, whole) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let (Some(above), _) = whole.split() {
                    self.ensure_dir(subject(above)).map_err(|error| error.about(subject(whole)))?;
                }
                self.parent(OPERATION, whole)?
            }
            found => found?,
        };
        let made = self.make_dir(&dir, name);
        let (made, how) = made.map_err(|errno| Error::from_errno(OPERATION, subject(whole), errno))?;
        Ok((self.narrowed(made), how))
    }

    /// Makes one level and opens it, or opens what somebody else has made meanwhile.
    fn make_dir(&self, dir: &Handle<'_>, name: &[u8]) -> rustix::io::Result<(OwnedFd, Ensured)> {
        let dir = dir.as_fd();
        for _ in 0..MAKE_TRIES {
            let ensured = match mkdirat(dir, name, Mode::RWXU) {
                Ok(()) => Ensured::Created,
                Err(Errno::EXIST) => Ensured::Existed,
                Err(errno) => return Err(errno),
            };
            // The umask may have taken from the new directory what it takes to open it.
            let opened = match ensured {
                Ensured::Created => self.enter(dir, name),
                Ensured::Existed => self.open_child(dir, name, DIRECTORY, Mounts::Refuse),
            };
            match opened {
                Ok(made) => {
                    if ensured == Ensured::Created {
                        let access = self.policy.access();
                        acl::strip_directory(made.as_fd())?;
                        give_access(made.as_fd(), access, access.dir_mode())?;
                        if self.policy.durability() == Durability::Full {
                            let parent = open_to_sync(dir)?;
                            retry_on_intr(|| fsync(&parent))?;
                        }
                    }
                    return Ok((made, ensured));
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::BUSY)
    }

    /// Describes the entry at `path`.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) for a link, even at the end; [`NotFound`](ErrorKind::NotFound) and the kinds of
    /// every resolution.
    ///
    /// # Races
    /// It was true during the call. To act on the same entry, open it and ask the handle.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = Checked::new("stat", path.as_ref(), Meant::DirectoryOrRoot)?;
        let fd = self.open("stat", path, OFlags::PATH)?;
        describe(fd.as_fd()).map_err(|errno| Error::from_errno("stat", subject(path), errno))
    }

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
        let from = Checked::new("rename", from.as_ref(), Meant::Entry)?;
        let to = Checked::new("rename", to.as_ref(), Meant::Entry)?;
        let (from_dir, old) = self.parent("rename", from)?;
        let (to_dir, new) = other.parent("rename", to)?;
        let failed = |errno| move_failed(errno, (&from_dir, from), (&to_dir, to));
        let mut sync = Vec::new();
        if other.policy.durability() == Durability::Full {
            // Before the move, since a guest may forbid it later.
            for dir in [&to_dir, &from_dir] {
                sync.push(open_to_sync(dir.as_fd()).map_err(failed)?);
            }
        }
        rename_new(from_dir.as_fd(), old, to_dir.as_fd(), new).map_err(failed)?;
        sync.iter().try_for_each(|dir| retry_on_intr(|| fsync(dir))).map_err(failed)
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
        let from = Checked::new("rename", from.as_ref(), Meant::Entry)?;
        let to = Checked::new("rename", to.as_ref(), Meant::Entry)?;
        let (from_dir, old) = self.parent("rename", from)?;
        let (to_dir, new) = other.parent("rename", to)?;
        let failed = |errno| move_failed(errno, (&from_dir, from), (&to_dir, to));
        let mut sync = Vec::new();
        if other.policy.durability() == Durability::Full {
            sync.push(open_to_sync(to_dir.as_fd()).map_err(failed)?);
            match open_to_sync(from_dir.as_fd()) {
                Err(Errno::ACCESS) => {}
                opened => sync.push(opened.map_err(failed)?),
            }
        }
        rename_fresh(from_dir.as_fd(), old, to_dir.as_fd(), new).map_err(failed)?;
        Ok(sync.iter().try_for_each(|dir| retry_on_intr(|| fsync(dir))).map_err(failed))
    }

    /// Makes the entries of a directory durable, if the policy asks for that.
    #[cfg(feature = "session")]
    pub(crate) fn sync_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        if self.policy.durability() != Durability::Full {
            return Ok(());
        }
        let path = Checked::new("sync", path.as_ref(), Meant::DirectoryOrRoot)?;
        let dir = self.open("sync", path, OFlags::DIRECTORY)?;
        retry_on_intr(|| fsync(&dir)).map_err(|errno| Error::from_errno("sync", subject(path), errno))
    }

    /// Unlinks anything but a directory; a link itself, never what it points to.
    ///
    /// # Errors
    /// [`NotRegular`](ErrorKind::NotRegular) for a directory, [`NotFound`](ErrorKind::NotFound) and the kinds of every
    /// resolution.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = Checked::new("remove", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("remove", path)?;
        unlinkat(dir.as_fd(), leaf, AtFlags::empty())
            .map_err(|errno| Error::from_errno("remove", subject(path), errno))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if it holds something, [`NotDirectory`](ErrorKind::NotDirectory) for
    /// anything else, a link included, [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution.
    ///
    /// # Races
    /// What goes is the empty directory that stands at the name at that moment.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = Checked::new("remove", path.as_ref(), Meant::Directory)?;
        let (dir, leaf) = self.parent("remove", path)?;
        unlinkat(dir.as_fd(), leaf, AtFlags::REMOVEDIR).map_err(|errno| {
            let error = Error::from_errno("remove", subject(path), errno);
            match errno {
                Errno::NOTEMPTY | Errno::EXIST => error.with_detail("is not empty"),
                _ => error,
            }
        })
    }
}

/// What a failed move means, which the errno alone does not say.
fn move_failed(errno: Errno, from: (&Handle<'_>, Checked<'_>), to: (&Handle<'_>, Checked<'_>)) -> Error {
    let ((from_dir, from), (to_dir, to)) = (from, to);
    let error = Error::from_errno("rename", blamed(errno, from, to), errno);
    let ends = || Some((describe(from_dir.as_fd()).ok()?, describe(to_dir.as_fd()).ok()?));
    match errno {
        Errno::INVAL if describe_at(from_dir.as_fd(), from.split().1).is_ok_and(|entry| entry.is_dir()) => {
            error.with_kind(ErrorKind::InvalidPath).with_detail("cannot be moved into itself")
        }
        // Landlock and project quotas say this of two directories of one mount, and overlayfs of a directory that is in a
        // lower layer, even if it would stay where it is.
        Errno::XDEV => match ends() {
            Some((one, other)) if (one.dev(), one.ino()) == (other.dev(), other.ino()) => {
                error.with_detail("is in a layer of the file system from which it cannot be moved")
            }
            Some((one, other)) if one.mount().is(other.mount()) => {
                error.with_kind(ErrorKind::Denied).with_detail("may not be moved between these directories")
            }
            _ => error,
        },
        _ => error,
    }
}

/// The end of a rename that an errno is about.
fn blamed<'a>(errno: Errno, from: Checked<'a>, to: Checked<'a>) -> &'a Path {
    match errno {
        Errno::EXIST | Errno::NOTEMPTY | Errno::NOSPC | Errno::DQUOT => subject(to),
        _ => subject(from),
    }
}
