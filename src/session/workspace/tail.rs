//! Following a file that a guest keeps writing to.
//!
//! Problem: reading the whole log each time is quadratic and unbounded; counting characters splits them; a log that was
//! truncated, rotated or exchanged for another file looks like one to which nothing is added.
//!
//! Defence: a position in bytes, at most so many bytes a time, and the file's identity beside it.
//!
//! What remains: if a guest truncates a log and writes more than was there before the next look, that is not seen. What was
//! between is lost, and the bytes that follow are from the new content.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::SystemTime;

use super::Workspace;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::Metadata;
use crate::session::handle::resolve::Spelled;
use crate::session::handle::rules::Act;

/// A place in a file that grows; see [`Workspace::tail`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// # let guest_path = dir.path().join("s/guest");
/// use beneath::session::TailEvent;
///
/// let mut tail = session.workspace().tail("run.log")?;
/// assert!(tail.next_chunk(1024)?.bytes.is_empty(), "no file yet");
///
/// std::fs::write(guest_path.join("workspace/run.log"), "one\n")?;
/// assert_eq!(tail.next_chunk(1024)?.bytes, b"one\n");
///
/// std::fs::write(guest_path.join("workspace/run.log"), "x")?;
/// let chunk = tail.next_chunk(1024)?;
/// assert_eq!((chunk.event, chunk.bytes), (Some(TailEvent::Truncated), b"x".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tail {
    workspace: Workspace,
    path: GuestPath,
    position: TailPosition,
}

/// Where a [`Tail`] is; it can be kept and given to [`Tail::resume`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TailPosition {
    /// How many bytes of the file were returned.
    pub offset: u64,
    /// The file they were from, if there was one.
    pub file: Option<FileIdentity>,
}

/// What distinguishes a file from another one that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct FileIdentity {
    /// The device it is on.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// When it was made, where the file system records it: inode numbers are used again.
    pub created: Option<SystemTime>,
}

impl FileIdentity {
    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino(), created: file.created() }
    }
}

/// What happened to a file since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TailEvent {
    /// It is shorter than what was read of it; reading begins again.
    Truncated,
    /// Another file has its name; reading begins at the start of that one.
    Replaced,
    /// It is gone.
    Removed,
}

/// The next bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "the tail goes on after it"]
#[non_exhaustive]
pub struct TailChunk {
    /// What was added; may end in the middle of a line or character.
    pub bytes: Vec<u8>,
    /// What happened before these bytes.
    pub event: Option<TailEvent>,
    /// Whether there is more to read at once.
    pub more: bool,
}

impl Workspace {
    /// Follows the file at `path` from its start; it need not exist yet.
    ///
    /// # Errors
    /// [`Escape`](ErrorKind::Escape), [`InvalidPath`](ErrorKind::InvalidPath).
    pub fn tail<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<Tail> {
        Ok(Tail {
            workspace: self.clone(),
            path: self.entry(path, Act::Read)?,
            position: TailPosition::default(),
        })
    }
}

impl Tail {
    /// Continues from a position that was kept.
    #[must_use]
    pub fn resume(mut self, position: TailPosition) -> Self {
        self.position = position;
        self
    }

    /// Where the next chunk begins.
    #[must_use]
    pub fn position(&self) -> TailPosition {
        self.position
    }

    /// Reads what was added since, at most `max_bytes`. A missing file has nothing to read.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotRegular`](ErrorKind::NotRegular), [`HardLinked`](ErrorKind::HardLinked),
    /// [`Busy`](ErrorKind::Busy) and the kinds of every resolution. The position stays as it was.
    ///
    /// # Races
    /// Bytes that the guest changes behind the position are not seen.
    pub fn next_chunk(&mut self, max_bytes: u64) -> Result<TailChunk> {
        let mut chunk = TailChunk::default();
        let mut file = match self.workspace.reading(&self.path, |root, path| root.open_contained(path)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.workspace.session.alive()?;
                chunk.event = self.position.file.take().map(|_| TailEvent::Removed);
                self.position.offset = 0;
                return Ok(chunk);
            }
            Err(error) => return Err(error),
        };
        let identity = FileIdentity::of(file.metadata());
        let mut offset = self.position.offset;
        if self.position.file.is_some_and(|known| known != identity) {
            chunk.event = Some(TailEvent::Replaced);
            offset = 0;
        } else if file.len_hint() < offset {
            chunk.event = Some(TailEvent::Truncated);
            offset = 0;
        }
        let failed = |error| Error::new("tail", &self.path, ErrorKind::Io).with_source(error);
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        file.by_ref().take(max_bytes).read_to_end(&mut chunk.bytes).map_err(failed)?;
        offset += chunk.bytes.len() as u64;
        chunk.more = chunk.bytes.len() as u64 == max_bytes && file.len_hint() > offset;
        self.position = TailPosition { offset, file: Some(identity) };
        Ok(chunk)
    }
}
