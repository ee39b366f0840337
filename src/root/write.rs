//! Writing where a guest watches.
//!
//! Problem: a guest plants a link at the name, reads or changes a half-written file, swaps a temporary file before it
//! is renamed, or lets the host die in the middle.
//!
//! Defence: the file is made without a name (`O_TMPFILE`), filled, given mode and owner through its handle, and then
//! linked to its name in one step that never replaces anything. Where the file system has no unnamed files, it gets
//! an unguessable temporary name, is renamed without replacing, and what then has the name is compared with the handle.
//!
//! Left: from the moment it is published the file is the guest's. Where a temporary name is needed, as for one step of
//! [`Root::replace`], a guest that swaps it makes the call fail with `Busy`, and a host that dies leaves it behind.

pub(super) mod draft;
pub(super) mod new_file;

use std::path::Path;

use super::Root;
use super::resolve::Handle;
use super::resolve::path::subject;
use super::resolve::path::{Checked, Meant};
use super::write::draft::{Draft, Failure};
#[cfg(feature = "artifacts")]
use crate::error::Error;
use crate::error::Result;

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
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("write", path)?;
        self.draft(dir, bytes.as_ref())
            .and_then(|mut draft| draft.publish_new(leaf))
            .map_err(|failure| failure.about("write", subject(path)))
    }

    /// Puts `bytes` at `path` in place of whatever non-directory is there.
    ///
    /// A link at the name is replaced, never followed. A reader sees the old content or the new, never a mixture.
    ///
    /// # Errors
    /// [`NotRegular`](crate::ErrorKind::NotRegular) if a directory is there, [`Busy`](crate::ErrorKind::Busy) if the guest
    /// interfered with the exchange, and those of [`write_exclusive`](Self::write_exclusive).
    ///
    /// # Races
    /// The guest may put something else at the name as soon as it is published. A host that dies between the last two
    /// steps leaves a file named `.beneath-…` beside the old content.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = Checked::new("replace", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("replace", path)?;
        self.draft(dir, bytes.as_ref())
            .and_then(|mut draft| draft.publish_over(leaf))
            .map_err(|failure| failure.about("replace", subject(path)))
    }

    /// Writes `bytes` to a new file at `path`, where no guest can reach.
    ///
    /// The file has its name at once: a host that dies half-way leaves a part of it.
    #[cfg(feature = "artifacts")]
    pub(crate) fn write_unwatched(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("write", path)?;
        Draft::create_visible(dir, leaf, self.policy.access())
            .and_then(|draft| {
                draft.write_all(bytes)?;
                draft.keep(self.policy.access(), self.policy.durability())
            })
            .map_err(|errno| Error::from_errno("write", subject(path), errno))
    }

    fn draft<'a>(&self, dir: Handle<'a>, bytes: &[u8]) -> Result<Draft<'a>, Failure> {
        let mut draft = Draft::create(dir)?;
        draft.write_all(bytes)?;
        draft.finish(self.policy.access(), self.policy.durability())?;
        Ok(draft)
    }
}
