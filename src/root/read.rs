//! Reading what a guest left.
//!
//! Problem: the name may be a link, a FIFO whose open never returns, a device whose open has side effects, a file
//! under lease, a second name of a host file, or a file of any claimed size that changes while it is read.
//!
//! Defence: pin the entry with `O_PATH`, which opens nothing, judge it by its handle, and reopen that very inode
//! without blocking. On a `nodev` mount device nodes are dead, so one direct open does. Never more than the limit
//! and one byte is read.
//!
//! What remains: the content is no snapshot while a guest holds the file open. Without a usable `/proc` the reopen is a second
//! lookup, and a guest that may make device nodes can have one opened, though never read.

pub(super) mod linked;
pub(super) mod single;
pub(super) mod stamps;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, OFlags, Stat, fstat};
use rustix::io::{Errno, retry_on_intr};

use super::metadata::Metadata;
use super::metadata::describe;
use super::resolve::path::subject;
use super::resolve::path::{Checked, Meant};
use super::resolve::proc::{forget_descriptors, reopen};
use super::{HardLinks, Mounts, Resolver, Root};
use crate::error::{Error, ErrorKind, Result};
use single::{Names, Proof, Purpose, REOPENED, Seen};
use stamps::Before;

const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// How much is read at a time once a file turns out larger than it said.
const CHUNK: usize = 65_536;

impl Root {
    /// Reads the regular file at `path`, at most `max_bytes` of it.
    ///
    /// Never waits for a FIFO, a device or a lease, whatever is at the name. A file that has changed in the last two seconds, or
    /// any under [`HardLinks::RefuseStrict`], is proven to have no other name, for which its directory's lock is waited for.
    /// A thread that reads on a mount without `nodev` keeps one descriptor of its own.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotRegular`](ErrorKind::NotRegular), [`HardLinked`](ErrorKind::HardLinked),
    /// [`Busy`](ErrorKind::Busy) (the guest holds a lease, or keeps linking, exchanging or changing the file),
    /// [`TooLarge`](ErrorKind::TooLarge),
    /// [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution.
    ///
    /// # Races
    /// The bytes come from one file that was an entry beneath the root during the call. A guest that writes to it
    /// meanwhile can mix old and new content.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("result.json", "{}")?;
    /// assert_eq!(root.read_contained("result.json", 10 << 20)?, b"{}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_contained(&self, path: impl AsRef<Path>, max_bytes: u64) -> Result<Vec<u8>> {
        let path = Checked::new("read", path.as_ref(), Meant::Entry)?;
        let mut until = None;
        for _ in 0..REOPENED {
            let opened = self.open_regular(path, &mut until)?;
            let mut bytes = Vec::new();
            let mut now = opened.read(&mut bytes, max_bytes, Until::Short).map_err(about(path))?;
            // A short read ends a regular file, unless it grows or the size is not the truth.
            if now.st_size as u64 != bytes.len() as u64 {
                now = opened.read(&mut bytes, max_bytes, Until::End).map_err(about(path))?;
            }
            if self.still_single(path, &opened, Seen::from(&now), &mut until)? {
                return Ok(bytes);
            }
        }
        Err(restless(path))
    }

    /// Opens the regular file at `path` for reading.
    ///
    /// # Errors
    /// As [`read_contained`](Self::read_contained), except for the size.
    ///
    /// # Races
    /// The handle stays on its file whatever the guest does to the name; the content may still change.
    pub fn open_contained(&self, path: impl AsRef<Path>) -> Result<ContainedFile> {
        let path = Checked::new("read", path.as_ref(), Meant::Entry)?;
        let failed = |errno| Error::from_errno("read", subject(path), errno);
        let mut until = None;
        for _ in 0..REOPENED {
            let opened = self.open_regular(path, &mut until)?;
            let metadata = describe(opened.fd.as_fd()).map_err(failed)?;
            if self.still_single(path, &opened, Seen::from(&metadata), &mut until)? {
                let subject = subject(path).to_path_buf();
                return Ok(ContainedFile { file: File::from(opened.fd), metadata, subject });
            }
        }
        Err(restless(path))
    }

    fn open_regular(&self, path: Checked<'_>, until: &mut Option<Instant>) -> Result<Opened> {
        for _ in 0..REOPENED {
            let before = Before::now();
            let (fd, file) = self.open_judged(path)?;
            let names = self.look(before, Seen::from(&file));
            if names == Names::Single || self.is_proven(path, fd.as_fd(), until)? {
                let proven = names != Names::Single || self.policy.hard_links() == HardLinks::Allow;
                return Ok(Opened { fd, file, before, proven });
            }
            // The name leads elsewhere by now, unless `/proc` has led to another table's file.
            if fstat(&fd).is_ok_and(|opened| !Seen::from(&opened).is(Seen::from(&file))) {
                forget_descriptors();
            }
        }
        Err(restless(path))
    }

    /// Opens what is at `path` if it is a regular file, and says what it was judged by.
    fn open_judged(&self, path: Checked<'_>) -> Result<(OwnedFd, Stat)> {
        // The walk learns of a mount only after the open, so it cannot rely on this mount's nodev.
        if self.nodev && self.resolver() == Resolver::Openat2 && self.policy.mounts() == Mounts::Refuse {
            return self.open_directly(path);
        }
        let pin = self.open("read", path, OFlags::PATH)?;
        let pinned = self.admit(path, pin.as_fd())?;
        match reopen(pin.as_fd(), READ) {
            Ok(Some(fd)) => Ok((fd, pinned)),
            Ok(None) => self.open_directly(path),
            Err(errno) => Err(Error::from_errno("read", subject(path), errno)),
        }
    }

    fn open_directly(&self, path: Checked<'_>) -> Result<(OwnedFd, Stat)> {
        let fd = match self.open("read", path, READ) {
            // Of a device node, too, a nodev mount says EACCES: ask once, for the error only.
            Err(error) if error.kind() == ErrorKind::Denied => {
                let pin = self.open("read", path, OFlags::PATH)?;
                return self.admit(path, pin.as_fd()).and(Err(error));
            }
            opened => opened?,
        };
        let file = self.admit(path, fd.as_fd())?;
        Ok((fd, file))
    }

    /// Judges the entry behind a handle, which no guest can exchange any more.
    fn admit(&self, path: Checked<'_>, fd: BorrowedFd<'_>) -> Result<Stat> {
        let entry = fstat(fd).map_err(|errno| Error::from_errno("read", subject(path), errno))?;
        match FileType::from_raw_mode(entry.st_mode) {
            // Before it is opened, which may be denied. One that loses a name just now is looked at again.
            FileType::RegularFile
                if entry.st_nlink > 1
                    && self.policy.hard_links() != HardLinks::Allow
                    && single::has_several_names(fd) =>
            {
                Err(Error::new("read", subject(path), ErrorKind::HardLinked))
            }
            FileType::RegularFile => Ok(entry),
            // Never a link: the resolver has refused it.
            _ => Err(Error::new("read", subject(path), ErrorKind::NotRegular)),
        }
    }

    /// Whether what was opened is the file that was judged, and still has no name elsewhere. Asked after the content was
    /// read, so that a name that came or went meanwhile has left its trace.
    fn still_single(
        &self,
        path: Checked<'_>,
        opened: &Opened,
        now: Seen,
        until: &mut Option<Instant>,
    ) -> Result<bool> {
        if !now.is(Seen::from(&opened.file)) {
            // `/proc` has shown another table, as to a child that has the process id of its parent in another namespace.
            forget_descriptors();
            return Ok(false);
        }
        if opened.proven || self.look(opened.before, now) == Names::Single {
            return Ok(true);
        }
        self.is_proven(path, opened.fd.as_fd(), until)
    }

    /// One call waits once for all its proofs.
    fn is_proven(&self, path: Checked<'_>, fd: BorrowedFd<'_>, until: &mut Option<Instant>) -> Result<bool> {
        let until = *until.get_or_insert_with(single::patience);
        Ok(self.prove_single("read", path, fd, Purpose::Read, until)? != Proof::Elsewhere)
    }
}

/// A regular file on its way to be read.
struct Opened {
    fd: OwnedFd,
    /// What it was judged by.
    file: Stat,
    /// The clock before it was looked up.
    before: Before,
    /// Nothing more need be asked.
    proven: bool,
}

impl Opened {
    /// Reads on, and describes the file after that.
    fn read(&self, bytes: &mut Vec<u8>, limit: u64, until: Until) -> Result<Stat, ReadFailure> {
        let length = match until {
            Until::Short => u64::try_from(self.file.st_size).unwrap_or(0),
            Until::End => 0,
        };
        read_limited(self.fd.as_fd(), bytes, length, limit, until)?;
        fstat(&self.fd).map_err(ReadFailure::System)
    }
}

fn about(path: Checked<'_>) -> impl Fn(ReadFailure) -> Error {
    move |failure| failure.about(subject(path))
}

fn restless(path: Checked<'_>) -> Error {
    Error::new("read", subject(path), ErrorKind::Busy).with_detail("is exchanged without pause")
}

enum ReadFailure {
    TooLarge,
    System(Errno),
}

impl ReadFailure {
    fn about(self, subject: &Path) -> Error {
        match self {
            Self::TooLarge => Error::new("read", subject, ErrorKind::TooLarge),
            Self::System(errno) => Error::from_errno("read", subject, errno),
        }
    }
}

/// When to stop reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// At the first read that brings less than was asked for.
    Short,
    /// At the first read that brings nothing.
    End,
}

/// Reads on into `bytes`, to the end or to one byte past the limit. The length is only where to begin: memory follows what
/// is read.
fn read_limited(
    fd: BorrowedFd<'_>,
    bytes: &mut Vec<u8>,
    length: u64,
    limit: u64,
    until: Until,
) -> Result<(), ReadFailure> {
    if length > limit {
        return Err(ReadFailure::TooLarge);
    }
    let mut wanted = usize::try_from(length).unwrap_or(CHUNK).min(CHUNK) + 1;
    loop {
        bytes.try_reserve_exact(wanted).map_err(|_| ReadFailure::System(Errno::NOMEM))?;
        let read = retry_on_intr(|| rustix::io::read(fd, spare_capacity(bytes)));
        if read.map_err(ReadFailure::System)? == 0 {
            return Ok(());
        }
        let room = limit.checked_sub(bytes.len() as u64).ok_or(ReadFailure::TooLarge)?;
        wanted = match bytes.len() == bytes.capacity() {
            // One byte past the limit is enough to know.
            true => CHUNK.max(bytes.len()).min(usize::try_from(room).unwrap_or(usize::MAX).saturating_add(1)),
            false if until == Until::Short => return Ok(()),
            false => 1,
        };
    }
}

/// A regular file beneath the root, open for reading.
///
/// [`Read`] and [`Seek`] work on the handle, so the guest cannot exchange the file, but it may still grow, shrink or
/// change it. Use [`read_to_limit`](Self::read_to_limit) or [`Read::take`] rather than reading to an end that the
/// guest can keep moving.
#[derive(Debug)]
pub struct ContainedFile {
    file: File,
    metadata: Metadata,
    subject: PathBuf,
}

impl ContainedFile {
    /// What the kernel said of the file when it was opened.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The size when it was opened; more or less may come.
    #[must_use]
    pub fn len_hint(&self) -> u64 {
        self.metadata.len()
    }

    /// Where it was found.
    #[cfg(feature = "session")]
    pub(crate) fn subject(&self) -> &Path {
        &self.subject
    }

    /// Reads from the present position on.
    #[cfg(feature = "queue")]
    pub(crate) fn reader(&self) -> impl Read + '_ {
        &self.file
    }

    /// Reads from the present position to the end, at most `max_bytes`.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there is more, or the kind of the system's error.
    pub fn read_to_limit(&mut self, max_bytes: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // A hint for the first read; where it begins, less may be left.
        let length = self.len_hint().min(max_bytes);
        let mut read = |until, length| -> Result<u64> {
            read_limited(self.file.as_fd(), &mut bytes, length, max_bytes, until)
                .map_err(|failure| failure.about(&self.subject))?;
            Ok(bytes.len() as u64)
        };
        // A short read ends a regular file, unless it has changed its size or that is not the truth.
        if read(Until::Short, length)? != self.len_hint() {
            read(Until::End, 0)?;
        }
        Ok(bytes)
    }

    /// Gives up the handle as a plain file, opened for reading and non-blocking. No limit goes with it: the guest may make the file
    /// longer while it is read.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }
}

impl Read for ContainedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for ContainedFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

impl AsFd for ContainedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
