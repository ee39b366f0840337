//! A file that is written bit by bit and appears whole.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::root::resolve::Handle;
use crate::root::resolve::path::subject;
use crate::root::resolve::path::{Checked, Meant};
use crate::root::write::draft::{Draft, Failure};
use crate::root::{Access, Durability, Root};

impl Root {
    /// Starts a new file that appears at `path` when it is [committed](NewFile::commit).
    ///
    /// # Errors
    /// Those of every resolution, and [`NoSpace`](ErrorKind::NoSpace), [`ReadOnly`](ErrorKind::ReadOnly) or
    /// [`Denied`](ErrorKind::Denied).
    ///
    /// ```
    /// use std::io::Write;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// let mut file = root.new_file("log.txt")?.with_limit(1 << 20);
    /// writeln!(file, "first line")?;
    /// assert!(root.metadata("log.txt").is_err(), "not there yet");
    /// file.commit()?;
    /// assert_eq!(root.read_contained("log.txt", 64)?, b"first line\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_file(&self, path: impl AsRef<Path>) -> Result<NewFile> {
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("write", path)?;
        let failed = |failure: Failure| failure.about("write", subject(path));
        let dir = Handle::Opened(dir.into_owned().map_err(|errno| failed(errno.into()))?);
        Ok(NewFile {
            draft: Draft::create(dir).map_err(|errno| failed(errno.into()))?,
            leaf: leaf.to_vec(),
            subject: subject(path).to_path_buf(),
            access: self.policy.access(),
            durability: self.policy.durability(),
            limit: u64::MAX,
            written: 0,
            failed: None,
        })
    }
}

/// A new file that nobody sees until it is committed.
///
/// Dropping it leaves nothing. After a failed write it cannot be committed any more.
#[derive(Debug)]
pub struct NewFile {
    draft: Draft<'static>,
    leaf: Vec<u8>,
    subject: PathBuf,
    access: Access,
    durability: Durability,
    limit: u64,
    written: u64,
    failed: Option<ErrorKind>,
}

impl NewFile {
    /// Refuses to grow beyond `max_bytes`.
    #[must_use]
    pub fn with_limit(mut self, max_bytes: u64) -> Self {
        self.limit = max_bytes;
        self
    }

    /// How many bytes were written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Publishes the file under its name, which must be free.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), [`TooLarge`](ErrorKind::TooLarge) if the limit was hit, or the kind
    /// of an earlier failed write.
    ///
    /// # Races
    /// As [`Root::write_exclusive`].
    pub fn commit(mut self) -> Result<()> {
        let leaf = std::mem::take(&mut self.leaf);
        self.publish(|draft| draft.publish_new(&leaf))
    }

    /// Publishes the file under `name` in the same directory instead, and can be called again if that name is taken.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), and [`InvalidPath`](ErrorKind::InvalidPath) if `name` is not one component.
    pub fn commit_as(&mut self, name: impl AsRef<Path>) -> Result<()> {
        let checked = Checked::new("write", name.as_ref(), Meant::Entry)?;
        let (None, leaf) = checked.split() else {
            return Err(Error::new("write", name, ErrorKind::InvalidPath).with_detail("name has a slash"));
        };
        self.subject.set_file_name(name.as_ref());
        self.publish(|draft| draft.publish_new(leaf))?;
        // A second name would make it a hard link.
        self.failed = Some(ErrorKind::AlreadyExists);
        Ok(())
    }

    /// Publishes the file in place of whatever non-directory has its name.
    ///
    /// # Errors
    /// As [`Root::replace`], or the kind of an earlier failed write.
    ///
    /// # Races
    /// As [`Root::replace`].
    pub fn commit_replace(mut self) -> Result<()> {
        let leaf = std::mem::take(&mut self.leaf);
        self.publish(|draft| draft.publish_over(&leaf))
    }

    fn publish(&mut self, publish: impl FnOnce(&mut Draft<'static>) -> Result<(), Failure>) -> Result<()> {
        if let Some(kind) = self.failed {
            return Err(Error::new("write", &self.subject, kind));
        }
        let published = match self.draft.finish(self.access, self.durability) {
            Ok(()) => publish(&mut self.draft),
            Err(errno) => Err(errno.into()),
        };
        published.map_err(|failure| failure.about("write", &self.subject))
    }

    fn fail(&mut self, error: Error) -> io::Error {
        self.failed = Some(error.kind());
        error.into()
    }
}

impl io::Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if let Some(kind) = self.failed {
            return Err(Error::new("write", &self.subject, kind).into());
        }
        if self.limit.saturating_sub(self.written) < bytes.len() as u64 {
            let error = Error::new("write", &self.subject, ErrorKind::TooLarge);
            return Err(self.fail(error));
        }
        match self.draft.write(bytes) {
            Ok(written) => {
                self.written += written as u64;
                Ok(written)
            }
            Err(errno) => {
                let error = Error::from_errno("write", &self.subject, errno);
                Err(self.fail(error))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
