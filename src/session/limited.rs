//! A guest's file, read up to a limit.
//!
//! Problem: a guest makes a file longer while it is read, so its size at opening bounds nothing.
//!
//! Defence: what was really read is counted, and reading fails with the byte that passes the limit.
//!
//! What remains: the content may be from before and after a change.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::name::Detected;
use crate::root::ContainedFile;

/// A guest's file, open for reading up to a limit.
///
/// Reading fails with [`TooLarge`](ErrorKind::TooLarge) if the guest has made it longer than that.
///
/// It is `Send` and owns all it needs, so it can be given to whatever takes a reader: a request's body, a hash, a thread. That keeps the
/// limit. What takes a file and nothing else gets it by [`into_file`](Self::into_file), and has to count by itself.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// use std::io::Read;
/// use beneath::session::LimitedFile;
///
/// let workspace = session.workspace();
/// workspace.write_exclusive("a.txt", "hello")?;
/// let mut file = LimitedFile::limit(workspace.open_contained("a.txt")?, 5)?;
/// assert_eq!(std::io::read_to_string(&mut file)?, "hello");
/// assert!(LimitedFile::limit(workspace.open_contained("a.txt")?, 4).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LimitedFile {
    /// What the caller is doing with it, for the error.
    operation: &'static str,
    file: ContainedFile,
    subject: PathBuf,
    /// How many bytes may still come.
    left: u64,
}

impl LimitedFile {
    pub(super) fn new(
        operation: &'static str,
        file: ContainedFile,
        subject: impl AsRef<Path>,
        limit: u64,
    ) -> Result<Self> {
        let subject = subject.as_ref().to_path_buf();
        if file.len_hint() > limit {
            return Err(Error::new(operation, subject, ErrorKind::TooLarge));
        }
        Ok(Self { operation, file, subject, left: limit })
    }

    /// Bounds what is read of `file`, from where it is now.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if it was longer when it was opened.
    pub fn limit(file: ContainedFile, max_bytes: u64) -> Result<Self> {
        let subject = file.subject().to_owned();
        Self::new("read", file, subject, max_bytes)
    }

    /// The size when it was opened; more or less may come.
    #[must_use]
    pub fn len_hint(&self) -> u64 {
        self.file.len_hint()
    }

    /// How many bytes may still be read.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The file itself, without the limit.
    #[must_use]
    pub fn into_contained(self) -> ContainedFile {
        self.file
    }

    /// The plain file, and how many bytes may still be read of it. The file does not know the limit: a guest that makes it longer
    /// has all of it read by whoever reads to its end, so read no more than this, as `file.take(left)` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # session.guest().ensure_dir("outbox/42")?;
    /// # session.guest().write_exclusive("outbox/42/a", "hello")?;
    /// # let claim = session.outbox().claim(&beneath::MessageId::new("42"))?.unwrap();
    /// use std::io::Read;
    ///
    /// for file in claim.open(["a"])?.files {
    ///     let (file, left) = file.content?.into_file();
    ///     let mut bounded = file.take(left);
    /// #   let mut bytes = Vec::new();
    /// #   assert_eq!(bounded.read_to_end(&mut bytes)?, 5);
    /// }
    /// # let _ = claim.clear();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_file(self) -> (File, u64) {
        (self.file.into_file(), self.left)
    }
}

/// The first bytes of a file, by which its type is judged. Reading begins at the start again.
pub(super) fn start_of(file: &mut ContainedFile, subject: &Path) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    let read = file.by_ref().take(Detected::PREFIX as u64).read_to_end(&mut start);
    match read.and_then(|_| file.rewind()) {
        Ok(()) => Ok(start),
        Err(error) => Err(Error::from_io("read", subject, error)),
    }
}

impl Read for LimitedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One byte more than is left distinguishes the end from the limit.
        let room = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(room);
        let read = self.file.read(buffer.get_mut(..wanted).unwrap_or_default())?;
        match self.left.checked_sub(read as u64) {
            Some(left) => {
                self.left = left;
                Ok(read)
            }
            None => Err(Error::new(self.operation, &self.subject, ErrorKind::TooLarge).into()),
        }
    }
}
