//! A file that is written bit by bit and appears whole.

use std::io;
#[cfg(feature = "session")]
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[cfg(feature = "session")]
use rustix::io::{pread, retry_on_intr};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "session")]
use crate::root::ContainedFile;
#[cfg(feature = "artifacts")]
use crate::root::Metadata;
use crate::root::Root;
#[cfg(feature = "artifacts")]
use crate::root::metadata::describe;
use crate::root::resolve::Handle;
use crate::root::resolve::path::subject;
use crate::root::resolve::path::{Checked, Meant};
#[cfg(feature = "session")]
use crate::root::write::copy::have_same_content;
use crate::root::write::draft::{Draft, Failure};
use crate::root::write::options::{Finish, WriteOptions};

/// How much is copied at a time.
const CHUNK: usize = 65_536;

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
        self.new_file_with(path, WriteOptions::default())
    }

    /// Starts a new file, as [`new_file`](Self::new_file) does, with a mode of its own, with its parents, or to be published
    /// over a read-only file.
    ///
    /// # Errors
    /// As [`new_file`](Self::new_file) and [`write_exclusive_with`](Self::write_exclusive_with).
    ///
    /// # Races
    /// Parents are made now, and stay if the file is dropped.
    ///
    /// ```
    /// use beneath::WriteOptions;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// let options = WriteOptions::default().with_mode(0o755).with_parents();
    /// let mut file = root.new_file_with("bin/run", options)?.with_sha256();
    /// assert_eq!(file.copy_from(&b"#!/bin/sh\n"[..], 1 << 20)?, 10);
    /// assert_eq!(file.sha256().unwrap()[..2], [0xa8, 0x07]);
    /// file.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_file_with(&self, path: impl AsRef<Path>, options: WriteOptions) -> Result<NewFile> {
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let finish = options.finish("write", path, &self.policy)?;
        let (dir, leaf) = self.parent_for_write("write", path, options)?;
        let failed = |failure: Failure| failure.about("write", subject(path));
        let dir = Handle::Opened(dir.into_owned().map_err(|errno| failed(errno.into()))?);
        Ok(NewFile {
            draft: Draft::create(dir).map_err(|errno| failed(errno.into()))?,
            leaf: leaf.to_vec(),
            subject: subject(path).to_path_buf(),
            finish,
            limit: u64::MAX,
            written: 0,
            modified: None,
            hash: None,
            failed: None,
            #[cfg(feature = "session")]
            admit: None,
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
    finish: Finish,
    limit: u64,
    written: u64,
    modified: Option<SystemTime>,
    /// Only who asks for it pays.
    hash: Option<Box<Sha256>>,
    failed: Option<ErrorKind>,
    /// Which other names it may get.
    #[cfg(feature = "session")]
    admit: Option<Admit>,
}

/// What a layer above says to a name in the directory of a new file.
#[cfg(feature = "session")]
struct Admit(Box<Check>);

#[cfg(feature = "session")]
type Check = dyn Fn(&Path) -> Result<()> + Send + Sync;

#[cfg(feature = "session")]
impl std::fmt::Debug for Admit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admit")
    }
}

impl NewFile {
    /// Asks `admit` about each name that the file is to get [instead of its own](Self::commit_as).
    #[cfg(feature = "session")]
    pub(crate) fn admitting(mut self, admit: impl Fn(&Path) -> Result<()> + Send + Sync + 'static) -> Self {
        self.admit = Some(Admit(Box::new(admit)));
        self
    }

    /// Refuses to grow beyond `max_bytes`.
    #[must_use]
    pub fn with_limit(mut self, max_bytes: u64) -> Self {
        self.limit = max_bytes;
        self
    }

    /// Lets the file be last modified at `time`, whenever it is written and committed.
    ///
    /// The file system rounds the time, and bounds it to what it can keep.
    ///
    /// ```
    /// use std::io::Write as _;
    /// use std::time::{Duration, UNIX_EPOCH};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    /// let mut file = root.new_file("report")?.with_modified(time);
    /// file.write_all(b"done")?;
    /// file.commit()?;
    /// assert_eq!(root.metadata("report")?.modified(), time);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_modified(mut self, time: SystemTime) -> Self {
        self.modified = Some(time);
        self
    }

    /// Hashes what is written, from the first byte on. Has no effect once something was written.
    #[must_use]
    pub fn with_sha256(mut self) -> Self {
        if self.written == 0 {
            self.hash.get_or_insert_default();
        }
        self
    }

    /// The SHA-256 of what was written so far, if it was [asked for](Self::with_sha256) before the first byte.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// let file = root.new_file("empty")?.with_sha256();
    /// assert_eq!(file.sha256().unwrap()[..4], [0xe3, 0xb0, 0xc4, 0x42]);
    /// assert_eq!(root.new_file("other")?.sha256(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn sha256(&self) -> Option<[u8; 32]> {
        self.hash.as_ref().map(|hash| Sha256::clone(hash).finalize().into())
    }

    /// Writes what `reader` gives until its end, at most `max_bytes`, and returns how much that was. Memory does not grow with it.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there is more, the kinds of a write, and [`Io`](ErrorKind::Io) if the reader fails.
    /// After each of them the file cannot be committed any more.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// let mut file = root.new_file("upload")?;
    /// assert_eq!(file.copy_from(std::io::repeat(7), 100).unwrap_err().kind(), beneath::ErrorKind::TooLarge);
    /// assert!(file.commit().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_from(&mut self, mut reader: impl io::Read, max_bytes: u64) -> Result<u64> {
        let mut buffer = vec![0; CHUNK];
        let mut copied = 0;
        loop {
            // One byte past the limit is enough to know.
            let room = usize::try_from(max_bytes - copied).unwrap_or(CHUNK).saturating_add(1).min(CHUNK);
            let given = match reader.read(buffer.get_mut(..room).unwrap_or_default()) {
                Ok(0) => return Ok(copied),
                Ok(length) => buffer.get(..length.min(room)).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let error = Error::from_io("write", &self.subject, error);
                    self.failed = Some(error.kind());
                    return Err(error);
                }
            };
            copied += given.len() as u64;
            if copied > max_bytes {
                self.failed = Some(ErrorKind::TooLarge);
                return Err(Error::new("write", &self.subject, ErrorKind::TooLarge));
            }
            io::Write::write_all(self, given)
                .map_err(|error| Error::from_io("write", &self.subject, error))?;
        }
    }

    /// How many bytes were written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Whether `other` has the bytes that were written so far, and no more.
    #[cfg(feature = "session")]
    pub(crate) fn has_content_of(&self, other: &ContainedFile) -> bool {
        other.len_hint() == self.written
            && have_same_content(self.draft.as_fd(), other.as_fd(), self.written).unwrap_or(false)
    }

    /// The hash of what was written so far, which is read again.
    ///
    /// # Errors
    /// The kinds of a read.
    #[cfg(feature = "session")]
    pub(crate) fn hash_all(&self) -> Result<Sha256> {
        let (mut hash, mut at) = (Sha256::new(), 0);
        let mut buffer = vec![0; CHUNK];
        while at < self.written {
            let read = retry_on_intr(|| pread(self.draft.as_fd(), &mut *buffer, at))
                .map_err(|errno| Error::from_errno("read", &self.subject, errno))?;
            if read == 0 {
                return Err(Error::new("read", &self.subject, ErrorKind::Io));
            }
            hash.update(buffer.get(..read).unwrap_or_default());
            at += read as u64;
        }
        Ok(hash)
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
        self.publish(Ok(self.finish.mode()), |draft| draft.publish_new(&leaf))
    }

    /// Publishes the file under `name` in the same directory instead, and can be called again if that name is taken.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), [`InvalidPath`](ErrorKind::InvalidPath) if `name` is not one component, and
    /// [`Denied`](ErrorKind::Denied) if the rules of the workspace that the file is for refuse it.
    pub fn commit_as(&mut self, name: impl AsRef<Path>) -> Result<()> {
        let checked = Checked::new("write", name.as_ref(), Meant::Entry)?;
        let (None, leaf) = checked.split() else {
            return Err(Error::new("write", name, ErrorKind::InvalidPath).with_detail("name has a slash"));
        };
        #[cfg(feature = "session")]
        if let Some(Admit(admit)) = &self.admit {
            admit(name.as_ref())?;
        }
        self.subject.set_file_name(name.as_ref());
        self.publish(Ok(self.finish.mode()), |draft| draft.publish_new(leaf))?;
        // A second name would make it a hard link.
        self.failed = Some(ErrorKind::AlreadyExists);
        Ok(())
    }

    /// Publishes the file in place of whatever non-directory has its name, and keeps the permission bits of a regular file there.
    ///
    /// # Errors
    /// As [`Root::replace`], or the kind of an earlier failed write.
    ///
    /// # Races
    /// As [`Root::replace`].
    pub fn commit_replace(mut self) -> Result<()> {
        self.publish_over()
    }

    /// The same, and returns what the file is then.
    #[cfg(feature = "artifacts")]
    pub(crate) fn commit_replace_seen(mut self) -> Result<Metadata> {
        self.publish_over()?;
        self.seen()
    }

    /// What the file is, by its handle: another one may have its name by now.
    #[cfg(feature = "artifacts")]
    pub(crate) fn seen(&self) -> Result<Metadata> {
        describe(self.draft.as_fd()).map_err(|errno| Error::from_errno("stat", &self.subject, errno))
    }

    fn publish_over(&mut self) -> Result<()> {
        let leaf = std::mem::take(&mut self.leaf);
        self.publish(self.finish.mode_over(self.draft.dir(), &leaf), |draft| draft.publish_over(&leaf))
    }

    fn publish(
        &mut self,
        mode: Result<u32, Failure>,
        publish: impl FnOnce(&mut Draft<'static>) -> Result<(), Failure>,
    ) -> Result<()> {
        if let Some(kind) = self.failed {
            return Err(Error::new("write", &self.subject, kind));
        }
        let Finish { access, durability, .. } = self.finish;
        let times = self.modified.map_or(Ok(()), |time| self.draft.set_modified(time));
        mode.and_then(|mode| Ok(times.and_then(|()| self.draft.finish(access, mode, durability))?))
            .and_then(|()| publish(&mut self.draft))
            .map_err(|failure| failure.about("write", &self.subject))
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
                if let Some(hash) = &mut self.hash {
                    hash.update(bytes.get(..written).unwrap_or_default());
                }
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
