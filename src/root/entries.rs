//! Making, describing and unlinking single entries.
//!
//! Problem: `mkdirat` and `unlinkat` follow links in the middle of a path.
//!
//! Defence: they get a parent handle from the resolver and one component, and none of them follows that one.
//!
//! What remains: between the lookup of the parent and the call the guest may have put another entry at the name. The call then
//! acts on that one, which is beneath the root too.

mod links;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, unlinkat};
use rustix::io::{Errno, retry_on_intr};

use super::access::acl;
use super::metadata::Metadata;
use super::metadata::describe;
use super::resolve::Handle;
use super::resolve::path::subject;
use super::resolve::path::{Checked, Meant};
use super::resolve::proc::DIRECTORY;
use super::write::draft::{give_access, open_to_sync};
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
        if !missing.is_empty() {
            self.writable(OPERATION, whole)?;
        }
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
    pub(super) fn make_dir(&self, dir: &Handle<'_>, name: &[u8]) -> rustix::io::Result<(OwnedFd, Ensured)> {
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

    /// Whether anything is at `path`, a link itself included: it is not followed, and may lead nowhere.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) for a link in the middle of the path, [`NotDirectory`](ErrorKind::NotDirectory) for
    /// another entry there, and the kinds of every resolution but [`NotFound`](ErrorKind::NotFound), which is `false`. With a
    /// trailing slash only a directory is meant, so a link at the end is an error too.
    ///
    /// # Races
    /// It was true during the call. To make an entry only if it is not there, make it: each such call is exclusive.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.symlink("nowhere", "dangling")?;
    /// assert!(root.try_exists("dangling")?);
    /// assert!(!root.try_exists("nowhere")?);
    /// assert!(root.try_exists("dangling/x").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = Checked::new("stat", path.as_ref(), Meant::DirectoryOrRoot)?;
        match self.pin_entry("stat", path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
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
        self.writable("remove", path)?;
        let (dir, leaf) = self.parent("remove", path)?;
        unlinkat(dir.as_fd(), leaf, AtFlags::empty())
            .map_err(|errno| Error::from_errno("remove", subject(path), errno))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`NotEmpty`](ErrorKind::NotEmpty) if it contains something, [`NotDirectory`](ErrorKind::NotDirectory) for
    /// anything else, a link included, [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution.
    ///
    /// # Races
    /// What goes is the empty directory that is at the name at that moment.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = Checked::new("remove", path.as_ref(), Meant::Directory)?;
        self.writable("remove", path)?;
        let (dir, leaf) = self.parent("remove", path)?;
        unlinkat(dir.as_fd(), leaf, AtFlags::REMOVEDIR).map_err(|errno| {
            let error = Error::from_errno("remove", subject(path), errno);
            match errno {
                Errno::NOTEMPTY | Errno::EXIST => error.with_kind(ErrorKind::NotEmpty),
                _ => error,
            }
        })
    }
}
