//! Copying a file that a guest still works on.
//!
//! Problem: `cp` by path follows links at both ends, waits for a FIFO, copies a host's file through a second name of it, follows a
//! file that grows without end, fills the holes of a sparse one, and leaves half a file when it fails.
//!
//! Defence: the source is opened as [`Root::open_contained`] does. The destination is a draft, as for a write, which gets its name
//! complete or not at all. The kernel copies from handle to handle, and shares the blocks where the file system can
//! (`copy_file_range`); where it cannot, the bytes go through a buffer of fixed size. No more than the limit is copied,
//! whatever size the file has or gets meanwhile, and holes stay holes.
//!
//! What remains: the copy is no snapshot while a guest writes to the source: each byte is as it was at some moment of the call. On
//! tmpfs the kernel itself may read a page of zeros, which the file never had, from a file that is truncated and written anew.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ftruncate, seek};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use crate::error::{Error, ErrorKind, Result};
use crate::root::metadata::{describe, describe_at};
use crate::root::read::stamps::{Before, TICK};
use crate::root::resolve::path::{Checked, Meant, subject};
use crate::root::write::draft::{Draft, Failure};
use crate::root::{ContainedFile, Execute, Root};

const OPERATION: &str = "copy";
/// How much is copied at a time where the kernel does not do it.
const CHUNK: usize = 65_536;
/// How often a file may change while its last hole is looked at.
const DOUBTS: u32 = 10;

/// What [`Root::copy`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Copied {
    /// The size of the copy.
    pub bytes: u64,
}

impl Root {
    /// Copies the regular file at `from`, at most `max_bytes`, to a new file at `to`, which must be free.
    ///
    /// The copy appears whole or not at all. It gets the policy's mode and owner; whoever may read it by that mode may also execute
    /// it, if they could execute the source. Set-id bits, times, attributes and access control lists are not copied; holes stay
    /// holes.
    ///
    /// # Errors
    /// For the source those of [`read_contained`](Self::read_contained), with [`TooLarge`](ErrorKind::TooLarge) for more than
    /// `max_bytes`; for the destination those of [`write_exclusive`](Self::write_exclusive), with
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) also if both are one path. The subject says which of the two it is about.
    ///
    /// # Races
    /// The bytes come from one file that was an entry beneath the root during the call. A guest that writes to it
    /// meanwhile can mix old and new content. The copy is another file, which no later change of the source reaches.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("draft.md", "# Plan")?;
    /// assert_eq!(root.copy("draft.md", "final.md", 1 << 20)?.bytes, 6);
    /// assert_eq!(root.read_contained("final.md", 64)?, b"# Plan");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, max_bytes: u64) -> Result<Copied> {
        self.copy_to(from, self, to, max_bytes)
    }

    /// Copies a file to another root, on any file system; otherwise as [`copy`](Self::copy).
    ///
    /// This root's policy decides about the source, the other's about the new file.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    ///
    /// # Races
    /// As [`copy`](Self::copy).
    ///
    /// ```
    /// # let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
    /// # let guest = beneath::Root::open_ambient(one.path(), beneath::ambient_authority())?;
    /// # let host = beneath::Root::open_ambient(two.path(), beneath::ambient_authority())?;
    /// guest.write_exclusive("report.pdf", "%PDF")?;
    /// guest.copy_to("report.pdf", &host, "kept.pdf", 10 << 20)?;
    /// assert_eq!(host.read_contained("kept.pdf", 64)?, b"%PDF");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_to(
        &self,
        from: impl AsRef<Path>,
        other: &Self,
        to: impl AsRef<Path>,
        max_bytes: u64,
    ) -> Result<Copied> {
        Checked::new(OPERATION, to.as_ref(), Meant::Entry)?;
        let source = self.open_contained(from.as_ref()).map_err(|error| error.again(OPERATION))?;
        other.copy_opened((&source, from.as_ref()), to.as_ref(), max_bytes)
    }

    /// Copies an open file, which was found at `from`, to this root; otherwise as [`copy_to`](Self::copy_to).
    pub(crate) fn copy_opened(
        &self,
        (source, from): (&ContainedFile, &Path),
        to: &Path,
        max_bytes: u64,
    ) -> Result<Copied> {
        let to = Checked::new(OPERATION, to, Meant::Entry)?;
        // Of the source's own bits only those to execute.
        let mode = Execute::Keep.mode(self.policy.access(), source.metadata());
        self.take_copy((source, from), to, mode, max_bytes)
    }

    /// Copies an open file, which was found at `from`, to a new file at `to` of this root.
    pub(in crate::root) fn take_copy(
        &self,
        (source, from): (&ContainedFile, &Path),
        to: Checked<'_>,
        mode: u32,
        max_bytes: u64,
    ) -> Result<Copied> {
        let too_large = || Error::new(OPERATION, from, ErrorKind::TooLarge);
        if source.len_hint() > max_bytes {
            return Err(too_large());
        }
        let failed = |failure: Failure| failure.about(OPERATION, subject(to));
        self.writable(OPERATION, to)?;
        let (dir, leaf) = self.parent(OPERATION, to)?;
        // A large file is not copied in vain. Whether the name is free is decided when the copy gets it.
        if describe_at(dir.as_fd(), leaf).is_ok() {
            return Err(failed(Errno::EXIST.into()));
        }
        let mut draft = Draft::create(dir).map_err(|errno| failed(errno.into()))?;
        let bytes = match copy_content(source.as_fd(), draft.as_fd(), max_bytes) {
            Ok(bytes) => bytes,
            Err(Broken::TooLarge) => return Err(too_large()),
            Err(Broken::Source(errno)) => return Err(Error::from_errno(OPERATION, from, errno)),
            Err(Broken::Copy(errno)) => return Err(failed(errno.into())),
        };
        let (access, durability) = (self.policy.access(), self.policy.durability());
        draft.finish(access, mode, durability).map_err(|errno| failed(errno.into()))?;
        draft.publish_new(leaf).map_err(failed)?;
        Ok(Copied { bytes })
    }
}

/// Which side of a copy failed.
enum Broken {
    TooLarge,
    Source(Errno),
    Copy(Errno),
}

/// Copies from the beginning to the end or to the limit, and returns the size of the copy.
fn copy_content(source: BorrowedFd<'_>, copy: BorrowedFd<'_>, limit: u64) -> Result<u64, Broken> {
    let at = copy_known(source, copy, limit)?;
    // The size is only what the kernel knows: a file that is served from elsewhere, or that grows, has more.
    let end = copy_rest(source, copy, at, limit)?;
    // A copy that ends with a hole has no byte that sets its size.
    ftruncate(copy, end).map_err(Broken::Copy)?;
    Ok(end)
}

/// Copies what the file has by its size, without its holes, and returns where that ends.
fn copy_known(source: BorrowedFd<'_>, copy: BorrowedFd<'_>, limit: u64) -> Result<u64, Broken> {
    let (mut at, mut doubts) = (0, 0);
    loop {
        // Before the look for a hole, so that what is written behind it now is not taken for one.
        let before = Before::now();
        let found = describe(source).map_err(Broken::Source)?;
        let size = found.len();
        if size > limit {
            return Err(Broken::TooLarge);
        }
        if at >= size {
            return Ok(at);
        }
        let Some((start, end)) = next_data(source, at, size) else {
            // Nothing but a hole up to the end, or no end there at that moment: a guest that saves a file truncates it and writes it
            // anew. The times distinguish the two, if they are old enough to have changed by that.
            let again = describe(source).map_err(Broken::Source)?;
            let unchanged = (again.len(), again.stamps().0) == (size, found.stamps().0);
            if unchanged && before.is_past(found.stamps().0, TICK) {
                at = size;
            } else if doubts < DOUBTS {
                doubts += 1;
                std::thread::sleep(TICK);
            } else {
                // Without regard to holes, so that whatever comes is what was read.
                return Ok(at);
            }
            continue;
        };
        at = start;
        while at < end {
            match copy_some(source, copy, at, end - at)? {
                // It is shorter by now.
                0 => return Ok(at),
                copied => at += copied,
            }
        }
    }
}

/// The next range that is no hole; none if there is no more data behind `at`.
fn next_data(source: BorrowedFd<'_>, at: u64, size: u64) -> Option<(u64, u64)> {
    let start = match seek(source, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return None,
        // A file system that knows no holes.
        Err(_) => return Some((at, size)),
    };
    let end = seek(source, SeekFrom::Hole(start)).unwrap_or(size);
    let start = start.clamp(at, size);
    // The guest may have made a hole there between the two. One byte more, so that each round comes nearer to the end.
    Some((start, end.clamp(start.saturating_add(1).min(size), size)))
}

/// Copies some of a range within the kernel, or through a buffer where that cannot be. Zero at the end of the source.
fn copy_some(source: BorrowedFd<'_>, copy: BorrowedFd<'_>, at: u64, length: u64) -> Result<u64, Broken> {
    let (mut from, mut to) = (at, at);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    match retry_on_intr(|| copy_file_range(source, Some(&mut from), copy, Some(&mut to), length)) {
        Ok(copied) => Ok(copied as u64),
        // These are the copy's own, and the buffer would meet them too.
        Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::ROFS)) => Err(Broken::Copy(errno)),
        // Two file systems, one that cannot do it, a profile that forbids it, or a source that cannot be read.
        Err(_) => copy_through(source, copy, at, &mut vec![0; length.min(CHUNK)]),
    }
}

/// Copies to the end of the source, through a buffer, and returns where that is.
fn copy_rest(source: BorrowedFd<'_>, copy: BorrowedFd<'_>, mut at: u64, limit: u64) -> Result<u64, Broken> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let copied = copy_through(source, copy, at, &mut buffer)?;
        at += copied;
        match copied {
            0 => return Ok(at),
            _ if at > limit => return Err(Broken::TooLarge),
            _ => {}
        }
    }
}

/// Whether two files have the same bytes, as far as `limit`, and end there or before.
pub(in crate::root) fn have_same_content(
    one: BorrowedFd<'_>,
    other: BorrowedFd<'_>,
    limit: u64,
) -> rustix::io::Result<bool> {
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    loop {
        let read = (fill(one, &mut ours, at)?, fill(other, &mut theirs, at)?);
        if ours.get(..read.0) != theirs.get(..read.1) {
            return Ok(false);
        }
        at += read.0 as u64;
        match read.0 {
            0 => return Ok(true),
            _ if at > limit => return Ok(false),
            _ => {}
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match retry_on_intr(|| pread(file, &mut *rest, at + filled as u64))? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

fn copy_through(
    source: BorrowedFd<'_>,
    copy: BorrowedFd<'_>,
    at: u64,
    buffer: &mut [u8],
) -> Result<u64, Broken> {
    let length = retry_on_intr(|| pread(source, &mut *buffer, at)).map_err(Broken::Source)?;
    let mut rest = buffer.get(..length).unwrap_or_default();
    let mut to = at;
    while !rest.is_empty() {
        let written = match retry_on_intr(|| pwrite(copy, rest, to)) {
            // A regular file that takes nothing would be asked without end.
            Ok(0) => Err(Errno::IO),
            result => result,
        };
        let written = written.map_err(Broken::Copy)?;
        to += written as u64;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(length as u64)
}
