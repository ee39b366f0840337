//! Writing where a guest watches.
//!
//! Problem: a guest plants a link at the name, reads or changes a half-written file, swaps a temporary file before it
//! is renamed, or lets the host die in the middle.
//!
//! Defence: the file is made without a name (`O_TMPFILE`), filled, given mode and owner through its handle, and then
//! linked to its name in one step that never replaces anything. Where the file system has no unnamed files, it gets
//! an unguessable temporary name, is renamed without replacing, and what then has the name is compared with the handle.
//!
//! What remains: from the moment it is published the file is the guest's. Where a temporary name is needed, as for one step of
//! [`Root::replace`], a guest that swaps it makes the call fail with `Busy`, and a host that dies leaves it behind.

pub(super) mod copy;
pub(super) mod draft;
pub(super) mod new_file;
pub(super) mod options;

use std::os::fd::AsFd;
use std::path::Path;

#[cfg(feature = "queue")]
use rustix::fs::{OFlags, fsync};
#[cfg(feature = "queue")]
use rustix::io::{Errno, retry_on_intr};

use super::Root;
use super::resolve::Handle;
use super::resolve::path::subject;
use super::resolve::path::{Checked, Meant};
use super::write::draft::{Draft, Failure};
use super::write::options::{Finish, WriteOptions};
#[cfg(any(feature = "artifacts", feature = "queue"))]
use crate::error::Error;
#[cfg(feature = "queue")]
use crate::error::ErrorKind;
use crate::error::Result;
#[cfg(feature = "queue")]
use crate::root::Durability;

impl Root {
    /// Writes `bytes` to a new file at `path`.
    ///
    /// The name appears with the whole content or not at all, and nothing is left behind by a failure or a crash of this
    /// process. What a power cut leaves depends on the policy's [`Durability`](crate::Durability), and with the default it
    /// may be a torn file.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists) if the name is taken, even by a dangling link;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on a file system that has neither hard links nor a rename that does not
    /// replace; [`NoSpace`](crate::ErrorKind::NoSpace), [`ReadOnly`](crate::ErrorKind::ReadOnly),
    /// [`Denied`](crate::ErrorKind::Denied) and the kinds of every resolution.
    ///
    /// # Races
    /// Of two concurrent writers exactly one succeeds. A reader sees the whole file or none. Once published, the file
    /// is the guest's to change.
    ///
    /// ```
    /// use beneath::ErrorKind;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("photo.png", b"\x89PNG")?;
    /// let again = root.write_exclusive("photo.png", b"other").unwrap_err();
    /// assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_exclusive(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.write_exclusive_with(path, bytes, WriteOptions::default())
    }

    /// Writes `bytes` to a new file at `path`, with a mode of its own or with its parents.
    ///
    /// # Errors
    /// As [`write_exclusive`](Self::write_exclusive), and [`Denied`](crate::ErrorKind::Denied) for a mode with set-id or sticky
    /// bits. With parents, those of [`ensure_dir`](Self::ensure_dir).
    ///
    /// # Races
    /// As [`write_exclusive`](Self::write_exclusive). A parent that the guest removes again at once is
    /// [`NotFound`](crate::ErrorKind::NotFound).
    ///
    /// ```
    /// use beneath::{ErrorKind, WriteOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive_with("bin/run", "#!/bin/sh", WriteOptions::default().with_mode(0o755).with_parents())?;
    /// let set_id = WriteOptions::default().with_mode(0o4755);
    /// assert_eq!(root.write_exclusive_with("bin/su", "", set_id).unwrap_err().kind(), ErrorKind::Denied);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_exclusive_with(
        &self,
        path: impl AsRef<Path>,
        bytes: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let finish = options.finish("write", path, &self.policy)?;
        let (dir, leaf) = self.parent_for_write("write", path, options)?;
        draft(dir, bytes.as_ref(), finish, finish.mode())
            .and_then(|mut draft| draft.publish_new(leaf))
            .map_err(|failure| failure.about("write", subject(path)))
    }

    /// Puts `bytes` at `path` in place of whatever non-directory is there.
    ///
    /// A link at the name is replaced, never followed. A reader sees the old content or the new, never a mixture. A regular
    /// file's permission bits are kept, but not its set-id and sticky bits, its owner and its access control lists; with a list,
    /// the bits of the group are what the list may grant.
    ///
    /// # Errors
    /// [`NotRegular`](crate::ErrorKind::NotRegular) if a directory is there, [`Denied`](crate::ErrorKind::Denied) if a regular
    /// file is there that nobody may write by its mode, unless the policy makes files so, [`Busy`](crate::ErrorKind::Busy) if the guest interfered with the
    /// exchange, and those of [`write_exclusive`](Self::write_exclusive).
    ///
    /// # Races
    /// The guest may put something else at the name as soon as it is published. A host that dies between the last two
    /// steps leaves a file named `.beneath-…` beside the old content.
    ///
    /// The mode is looked up before the file is replaced, so the guest can exchange it in between: a read-only file is spared as a
    /// courtesy, and no guarantee. A guest that puts a file with a wide mode there first has the new content readable for more users
    /// than the policy's mode says; [`WriteOptions::with_mode`] leaves it no choice.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.replace("status", "starting")?;
    /// root.replace("status", "ready")?;
    /// assert_eq!(root.read_contained("status", 64)?, b"ready");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.replace_with(path, bytes, WriteOptions::default())
    }

    /// Puts `bytes` at `path` in place of whatever non-directory is there, with a mode of its own, with its parents, or over a
    /// read-only file.
    ///
    /// # Errors
    /// As [`replace`](Self::replace) and [`write_exclusive_with`](Self::write_exclusive_with).
    ///
    /// # Races
    /// As [`replace`](Self::replace).
    ///
    /// ```
    /// use beneath::{ErrorKind, WriteOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive_with("notes", "old", WriteOptions::default().with_mode(0o444))?;
    /// assert_eq!(root.replace("notes", "new").unwrap_err().kind(), ErrorKind::Denied);
    /// root.replace_with("notes", "new", WriteOptions::default().over_read_only())?;
    /// assert_eq!(root.metadata("notes")?.mode(), 0o444);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_with(
        &self,
        path: impl AsRef<Path>,
        bytes: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let path = Checked::new("replace", path.as_ref(), Meant::Entry)?;
        let finish = options.finish("replace", path, &self.policy)?;
        let (dir, leaf) = self.parent_for_write("replace", path, options)?;
        finish
            .mode_over(dir.as_fd(), leaf)
            .and_then(|mode| draft(dir, bytes.as_ref(), finish, mode))
            .and_then(|mut draft| draft.publish_over(leaf))
            .map_err(|failure| failure.about("replace", subject(path)))
    }

    /// Adds `bytes` to the end of the file at `path`, which is made if it is not there, where no guest can reach. A host that dies
    /// half-way leaves a part of them.
    #[cfg(feature = "queue")]
    pub(crate) fn append(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let checked = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = match self.open("write", checked, flags) {
            Err(error) if error.kind() == ErrorKind::NotFound => return self.write_exclusive(path, bytes),
            opened => opened?,
        };
        let failed = |errno| Error::from_errno("write", subject(checked), errno);
        let mut rest = bytes;
        while !rest.is_empty() {
            match retry_on_intr(|| rustix::io::write(&file, rest)).map_err(failed)? {
                0 => return Err(failed(Errno::IO)),
                written => rest = rest.get(written..).unwrap_or_default(),
            }
        }
        match self.policy.durability() {
            Durability::None => Ok(()),
            Durability::File | Durability::Full => retry_on_intr(|| fsync(&file)).map_err(failed),
        }
    }

    /// Writes `bytes` to a new file at `path`, where no guest can reach, with this mode and this time of modification. Returns which
    /// file that is.
    ///
    /// The file has its name at once: a host that dies half-way leaves a part of it.
    #[cfg(feature = "artifacts")]
    pub(crate) fn write_unwatched(
        &self,
        path: impl AsRef<Path>,
        bytes: &[u8],
        mode: u32,
        modified: Option<std::time::SystemTime>,
    ) -> Result<crate::root::Metadata> {
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("write", path)?;
        Draft::create_visible(dir, leaf, mode)
            .and_then(|draft| {
                draft.write_all(bytes)?;
                modified.map_or(Ok(()), |time| draft.set_modified(time))?;
                draft.keep(self.policy.access(), mode, self.policy.durability())
            })
            .map_err(|errno| Error::from_errno("write", subject(path), errno))
    }
}

fn draft<'a>(dir: Handle<'a>, bytes: &[u8], finish: Finish, mode: u32) -> Result<Draft<'a>, Failure> {
    let mut draft = Draft::create(dir)?;
    draft.write_all(bytes)?;
    draft.finish(finish.access, mode, finish.durability)?;
    Ok(draft)
}
