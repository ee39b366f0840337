//! The guest's own files, worked on from outside.
//!
//! Problem: file calls offered to agents go through a shell, follow links, overwrite silently, lose binary content, and
//! parse `ls`.
//!
//! Defence: bytes in, bytes out, on handles. A path as the guest writes it becomes a [`SafePath`] first, and is then
//! looked up beneath the guest's handle with `workspace` as its first component.
//!
//! What remains: the guest works on the same files at the same time.

mod list;
mod tail;

use std::path::PathBuf;

use super::handle::Session;
use super::handle::parts::{Part, TRASH};
use super::limited::LimitedFile;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::{ContainedFile, Ensured, Metadata, NewFile, Removed, Root, Walk, WalkLimits};

pub use list::ListOptions;
pub use tail::{FileIdentity, Tail, TailChunk, TailEvent, TailPosition};

/// The guest's workspace; see [`Session::workspace`].
///
/// Paths are as the guest writes them: relative, with a leading slash, or absolute under the guest's mount point, with or
/// without `workspace` after it. All three name the same file.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// use beneath::session::ListOptions;
///
/// let workspace = session.workspace();
/// workspace.write_exclusive("/workspace/src/main.rs", "fn main() {}")?;
/// assert_eq!(workspace.read_contained("src/main.rs", 1024)?, b"fn main() {}");
/// assert_eq!(workspace.read_range("/src/main.rs", 3, 4)?, b"main");
///
/// let listing = workspace.list("", ListOptions::default().recursive())?;
/// let paths: Vec<_> = listing.entries.iter().map(|entry| entry.path().display().to_string()).collect();
/// assert_eq!(paths, ["src", "src/main.rs"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Workspace {
    session: Session,
}

impl Session {
    /// The directory in which the guest works.
    #[must_use]
    pub fn workspace(&self) -> Workspace {
        Workspace { session: self.clone() }
    }
}

impl Workspace {
    /// Writes a new file, and the directories above it.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), [`InvalidPath`](ErrorKind::InvalidPath), and those of
    /// [`Root::write_exclusive`](crate::Root::write_exclusive).
    ///
    /// # Races
    /// As [`Root::write_exclusive`](crate::Root::write_exclusive).
    pub fn write_exclusive(&self, raw: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let (guest, path) = self.path_for_writing(raw)?;
        guest.write_exclusive(path, bytes)
    }

    /// Writes a file in place of whatever non-directory is there, and the directories above it.
    ///
    /// # Errors
    /// [`NotRegular`](ErrorKind::NotRegular) for a directory, [`InvalidPath`](ErrorKind::InvalidPath), and those of
    /// [`Root::replace`](crate::Root::replace).
    ///
    /// # Races
    /// As [`Root::replace`](crate::Root::replace).
    pub fn replace(&self, raw: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let (guest, path) = self.path_for_writing(raw)?;
        guest.replace(path, bytes)
    }

    /// Starts a file of any size that appears when it is committed, exclusively or in place of another.
    ///
    /// # Errors
    /// Those of [`Root::new_file`](crate::Root::new_file).
    pub fn new_file(&self, raw: &str) -> Result<NewFile> {
        let (guest, path) = self.path_for_writing(raw)?;
        guest.new_file(path)
    }

    /// Reads a file, at most `max_bytes` of it.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge), and those of [`Root::read_contained`](crate::Root::read_contained).
    ///
    /// # Races
    /// As [`Root::read_contained`](crate::Root::read_contained).
    pub fn read_contained(&self, raw: &str, max_bytes: u64) -> Result<Vec<u8>> {
        self.guest()?.read_contained(self.path(raw)?, max_bytes)
    }

    /// Reads up to `max_bytes` of a file from `offset` on; fewer at its end, none beyond it.
    ///
    /// # Errors
    /// Those of [`Root::open_contained`](crate::Root::open_contained).
    ///
    /// # Races
    /// As [`Root::read_contained`](crate::Root::read_contained).
    pub fn read_range(&self, raw: &str, offset: u64, max_bytes: u64) -> Result<Vec<u8>> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let path = self.path(raw)?;
        let mut file = self.guest()?.open_contained(&path)?;
        let mut bytes = Vec::new();
        let read =
            file.seek(SeekFrom::Start(offset)).and_then(|_| file.take(max_bytes).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(bytes),
            // A position that no file has.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(Vec::new()),
            Err(error) => Err(Error::new("read", path, ErrorKind::Io).with_source(error)),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of [`Root::open_contained`](crate::Root::open_contained).
    ///
    /// # Races
    /// As [`Root::open_contained`](crate::Root::open_contained).
    pub fn open_contained(&self, raw: &str) -> Result<ContainedFile> {
        self.guest()?.open_contained(self.path(raw)?)
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// Those of [`Root::ensure_dir`](crate::Root::ensure_dir).
    ///
    /// # Races
    /// As [`Root::ensure_dir`](crate::Root::ensure_dir).
    pub fn ensure_dir(&self, raw: &str) -> Result<Ensured> {
        self.guest()?.ensure_dir(self.path(raw.trim_end_matches('/'))?)
    }

    /// Removes one entry that is not a directory; a link itself, never what it points to.
    ///
    /// # Errors
    /// [`NotRegular`](ErrorKind::NotRegular) for a directory, [`NotFound`](ErrorKind::NotFound), and the kinds of every
    /// resolution.
    pub fn remove_file(&self, raw: &str) -> Result<()> {
        self.guest()?.remove_file(self.path(raw)?)
    }

    /// Removes a directory with all it contains, within the config's budget.
    ///
    /// # Errors
    /// Those of [`Root::remove_tree_quarantined`](crate::Root::remove_tree_quarantined).
    ///
    /// # Races
    /// As [`Root::remove_tree_quarantined`](crate::Root::remove_tree_quarantined).
    pub fn remove_tree_contained(&self, raw: &str) -> Result<Removed> {
        let (guest, path) = (self.guest()?, self.path(raw.trim_end_matches('/'))?);
        let trash = self.session.host().descend(TRASH)?;
        guest.remove_tree_quarantined(path, &trash, self.session.config().budget())
    }

    /// Renames an entry to a name that must be free, and makes the directories above that.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), and those of [`Root::rename`](crate::Root::rename).
    ///
    /// # Races
    /// As [`Root::rename`](crate::Root::rename).
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let from = self.path(from)?;
        self.guest()?.metadata(&from).map(drop).or_else(allow_link)?;
        let (guest, to) = self.path_for_writing(to)?;
        guest.rename(from, to)
    }

    /// Moves a regular file of at most `max_bytes` to another session's workspace, where its name must be free.
    ///
    /// The content is copied and the old file then deleted. Moving the file itself, or a directory, would leave this
    /// session's guest with any descriptor it holds on it, and so with a way into the other session.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), [`TooLarge`](ErrorKind::TooLarge), and those of
    /// [`Root::open_contained`](crate::Root::open_contained). On every error the old file is still there; on one from
    /// deleting it, both are.
    ///
    /// # Races
    /// What this guest writes to the old file meanwhile may be lost.
    pub fn move_to(&self, from: &str, other: &Workspace, to: &str, max_bytes: u64) -> Result<()> {
        const OPERATION: &str = "move";
        let path = self.path(from)?;
        let mut file = LimitedFile::new(OPERATION, self.guest()?.open_contained(&path)?, &path, max_bytes)?;
        let mut copy = other.new_file(to)?;
        std::io::copy(&mut file, &mut copy).map_err(|error| Error::from_io(OPERATION, &path, error))?;
        copy.commit()?;
        self.session.guest().remove_file(path)
    }

    /// Visits everything beneath a directory, within `limits`; the workspace itself if `raw` is empty, `.`, `/` or the mount
    /// point.
    ///
    /// # Errors
    /// Those of [`Root::walk`](crate::Root::walk).
    ///
    /// # Races
    /// As [`Root::walk`](crate::Root::walk).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// let workspace = session.workspace();
    /// workspace.write_exclusive("src/main.rs", "fn main() {}")?;
    /// let walk = workspace.walk("src", beneath::WalkLimits::default())?;
    /// let paths: Vec<_> = walk.map(|entry| Ok(entry?.into_path())).collect::<beneath::Result<_>>()?;
    /// assert_eq!(paths, [std::path::Path::new("main.rs")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn walk(&self, raw: &str, limits: WalkLimits) -> Result<Walk> {
        self.guest()?.walk(self.directory_path(raw)?, limits)
    }

    /// Describes an entry.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotFound`](ErrorKind::NotFound), and those of
    /// [`Root::metadata`](crate::Root::metadata).
    ///
    /// # Races
    /// As [`Root::metadata`](crate::Root::metadata).
    pub fn metadata(&self, raw: &str) -> Result<Metadata> {
        self.guest()?.metadata(self.directory_path(raw)?)
    }

    /// Whether there is an entry that is not a link.
    ///
    /// # Errors
    /// The kinds of every resolution but [`NotFound`](ErrorKind::NotFound); so a link is an error, not an absence.
    ///
    /// # Races
    /// It was true during the call.
    pub fn exists(&self, raw: &str) -> Result<bool> {
        match self.guest()?.metadata(self.directory_path(raw)?) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn guest(&self) -> Result<&Root> {
        self.session.live_guest()
    }

    fn roots(&self) -> [String; 2] {
        let mount = self.session.config().mount_point().trim_end_matches('/');
        [format!("{mount}/{}", Part::Workspace.name()), mount.to_owned()]
    }

    fn safe_path(&self, raw: &str) -> Result<SafePath> {
        let roots = self.roots();
        SafePath::from_guest(raw, &roots.each_ref().map(String::as_str))
    }

    fn path(&self, raw: &str) -> Result<PathBuf> {
        Ok(Part::Workspace.as_ref().join(self.safe_path(raw)?))
    }

    fn directory_path(&self, raw: &str) -> Result<PathBuf> {
        let plain = raw.trim_end_matches('/');
        let top = plain.is_empty() || plain == "." || self.roots().iter().any(|root| root == plain);
        if top { Ok(Part::Workspace.as_ref().to_path_buf()) } else { self.path(plain) }
    }

    /// The path from the guest's directory, once the directories above it are there.
    fn path_for_writing(&self, raw: &str) -> Result<(&Root, PathBuf)> {
        let (guest, path) = (self.guest()?, self.path(raw)?);
        guest.ensure_dir(path.parent().unwrap_or(Part::Workspace.as_ref()))?;
        Ok((guest, path))
    }
}

/// A link can be renamed, though not described.
fn allow_link(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Symlink => Ok(()),
        _ => Err(error),
    }
}
