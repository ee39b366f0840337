//! The guest's own files, worked on from outside.
//!
//! Problem: file calls offered to agents go through a shell, follow links, overwrite silently, lose binary content, and
//! parse `ls`.
//!
//! Defence: bytes in, bytes out, on handles. A path as the guest writes it becomes a [`SafePath`] first, and is then
//! looked up beneath the guest's handle with `workspace` as its first component.
//!
//! Left: the guest works on the same files at the same time.

use std::path::{Path, PathBuf};

use super::Session;
use super::collect::OutboxFile;
use super::layout::{Part, TRASH};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::{ContainedFile, Ensured, Entry, Metadata, NewFile, Removed, WalkLimits};

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
/// workspace.write("/workspace/src/main.rs", "fn main() {}")?;
/// assert_eq!(workspace.read("src/main.rs", 1024)?, b"fn main() {}");
/// assert_eq!(workspace.read_range("/src/main.rs", 3, 4)?, b"main");
///
/// let listing = workspace.list("", ListOptions::default().recursive())?;
/// let paths: Vec<_> = listing.entries.iter().map(|entry| entry.path().display().to_string()).collect();
/// assert_eq!(paths, ["src", "src/main.rs"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Workspace<'s> {
    pub(super) session: &'s Session,
}

impl Session {
    /// The directory in which the guest works.
    #[must_use]
    pub fn workspace(&self) -> Workspace<'_> {
        Workspace { session: self }
    }
}

/// What [`Workspace::list`] shows.
///
/// The default shows the directory's own entries, no hidden ones, and at most 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    hidden: bool,
    depth: u32,
    entries: u64,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { hidden: false, depth: 1, entries: 1000 }
    }
}

impl ListOptions {
    /// Shows names that start with a dot, too.
    #[must_use]
    pub fn with_hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Shows what directories hold, 64 levels deep.
    #[must_use]
    pub fn recursive(self) -> Self {
        self.with_depth(64)
    }

    /// Shows `depth` levels.
    #[must_use]
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Shows at most `entries`.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }
}

/// What a directory holds; see [`Workspace::list`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The entries, sorted by path; each with type, size, mode and times.
    pub entries: Vec<Entry>,
    /// What could not be looked at.
    pub refused: Vec<Error>,
    /// Whether a limit cut something off.
    pub truncated: bool,
}

impl Listing {
    fn fill(&mut self, entries: impl Iterator<Item = Result<Entry>>, options: ListOptions) {
        for entry in entries {
            match entry {
                Ok(entry) if !options.hidden && is_hidden(entry.path()) => {}
                Ok(_) if self.entries.len() as u64 >= options.entries => {
                    self.truncated = true;
                    break;
                }
                Ok(entry) => self.entries.push(entry),
                Err(error) if error.kind() == ErrorKind::TooMany => self.truncated = true,
                Err(error) => self.refused.push(error),
            }
        }
    }
}

impl Workspace<'_> {
    /// Writes a new file, and the directories above it.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), [`InvalidPath`](ErrorKind::InvalidPath), and those of
    /// [`Root::write_exclusive`](crate::Root::write_exclusive).
    ///
    /// # Races
    /// As [`Root::write_exclusive`](crate::Root::write_exclusive).
    pub fn write(&self, raw: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path_for_writing(raw)?;
        self.session.guest().write_exclusive(path, bytes)
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
        let path = self.path_for_writing(raw)?;
        self.session.guest().replace(path, bytes)
    }

    /// Starts a file of any size that appears when it is committed, exclusively or in place of another.
    ///
    /// # Errors
    /// Those of [`Root::new_file`](crate::Root::new_file).
    pub fn new_file(&self, raw: &str) -> Result<NewFile> {
        let path = self.path_for_writing(raw)?;
        self.session.guest().new_file(path)
    }

    /// Reads a file, at most `max_bytes` of it.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge), and those of [`Root::read_contained`](crate::Root::read_contained).
    ///
    /// # Races
    /// As [`Root::read_contained`](crate::Root::read_contained).
    pub fn read(&self, raw: &str, max_bytes: u64) -> Result<Vec<u8>> {
        self.session.guest().read_contained(self.path(raw)?, max_bytes)
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
        let mut file = self.session.guest().open_contained(&path)?;
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
    pub fn open(&self, raw: &str) -> Result<ContainedFile> {
        self.session.guest().open_contained(self.path(raw)?)
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// Those of [`Root::ensure_dir`](crate::Root::ensure_dir).
    ///
    /// # Races
    /// As [`Root::ensure_dir`](crate::Root::ensure_dir).
    pub fn mkdir(&self, raw: &str) -> Result<Ensured> {
        self.session.guest().ensure_dir(self.path(raw.trim_end_matches('/'))?)
    }

    /// Deletes one entry that is not a directory; a link itself, never what it points to.
    ///
    /// # Errors
    /// [`NotRegular`](ErrorKind::NotRegular) for a directory, [`NotFound`](ErrorKind::NotFound), and the kinds of every
    /// resolution.
    pub fn delete(&self, raw: &str) -> Result<()> {
        self.session.guest().remove_file(self.path(raw)?)
    }

    /// Deletes a directory with all it holds, within the config's budget.
    ///
    /// # Errors
    /// Those of [`Root::remove_tree_quarantined`](crate::Root::remove_tree_quarantined).
    ///
    /// # Races
    /// As [`Root::remove_tree_quarantined`](crate::Root::remove_tree_quarantined).
    pub fn delete_tree(&self, raw: &str) -> Result<Removed> {
        let trash = self.session.host().descend(TRASH)?;
        let budget = self.session.config().budget();
        let path = self.path(raw.trim_end_matches('/'))?;
        self.session.guest().remove_tree_quarantined(path, &trash, budget)
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
        self.session.guest().metadata(&from).map(drop).or_else(allow_link)?;
        let to = self.path_for_writing(to)?;
        self.session.guest().rename(from, to)
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
    pub fn move_to(&self, from: &str, other: &Workspace<'_>, to: &str, max_bytes: u64) -> Result<()> {
        let path = self.path(from)?;
        let mut file = OutboxFile::new(self.session.guest().open_contained(&path)?, &path, max_bytes)?;
        let mut copy = other.new_file(to)?;
        std::io::copy(&mut file, &mut copy).map_err(|error| Error::from_io("move", &path, error))?;
        copy.commit()?;
        self.session.guest().remove_file(path)
    }

    /// Lists a directory; the workspace itself if `raw` is empty, `.`, `/` or the mount point.
    ///
    /// # Errors
    /// Those of [`Root::list`](crate::Root::list). What cannot be looked at further down is in
    /// [`Listing::refused`].
    ///
    /// # Races
    /// It is no snapshot.
    pub fn list(&self, raw: &str, options: ListOptions) -> Result<Listing> {
        let path = self.directory_path(raw)?;
        // Hidden entries are not shown, but the guest must not make the host look at them for ever.
        let bound = if options.hidden { options.entries } else { options.entries.saturating_mul(16) };
        let guest = self.session.guest();
        let mut listing = Listing::default();
        if options.depth > 1 {
            let limits = WalkLimits::default().with_depth(options.depth).with_entries(bound);
            listing.fill(guest.walk(path, limits)?, options);
        } else {
            let mut entries = guest.list(path)?;
            let most = usize::try_from(bound).unwrap_or(usize::MAX);
            listing.fill(entries.by_ref().take(most), options);
            listing.truncated |= entries.next().is_some();
        }
        listing.entries.sort_by(|one, other| one.path().cmp(other.path()));
        Ok(listing)
    }

    /// Describes an entry.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotFound`](ErrorKind::NotFound), and those of
    /// [`Root::metadata`](crate::Root::metadata).
    ///
    /// # Races
    /// As [`Root::metadata`](crate::Root::metadata).
    pub fn stat(&self, raw: &str) -> Result<Metadata> {
        self.session.guest().metadata(self.directory_path(raw)?)
    }

    /// Whether there is an entry that is not a link.
    ///
    /// # Errors
    /// The kinds of every resolution but [`NotFound`](ErrorKind::NotFound); so a link is an error, not an absence.
    ///
    /// # Races
    /// It was true during the call.
    pub fn exists(&self, raw: &str) -> Result<bool> {
        match self.stat(raw) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn roots(&self) -> [String; 2] {
        let mount = self.session.config().mount_point().trim_end_matches('/');
        [format!("{mount}/{}", Part::Workspace.name()), mount.to_owned()]
    }

    fn safe_path(&self, raw: &str) -> Result<SafePath> {
        let roots = self.roots();
        SafePath::from_guest(raw, &roots.each_ref().map(String::as_str))
    }

    pub(super) fn path(&self, raw: &str) -> Result<PathBuf> {
        Ok(Part::Workspace.as_ref().join(self.safe_path(raw)?))
    }

    fn directory_path(&self, raw: &str) -> Result<PathBuf> {
        let plain = raw.trim_end_matches('/');
        let top = plain.is_empty() || plain == "." || self.roots().iter().any(|root| root == plain);
        if top { Ok(Part::Workspace.as_ref().to_path_buf()) } else { self.path(plain) }
    }

    /// The path, once the directories above it are there.
    fn path_for_writing(&self, raw: &str) -> Result<PathBuf> {
        let path = self.safe_path(raw)?;
        let workspace = Part::Workspace.as_ref();
        if let Some(parent) = path.parent() {
            self.session.guest().ensure_dir(workspace.join(parent))?;
        } else {
            self.session.guest().ensure_dir(workspace)?;
        }
        Ok(workspace.join(path))
    }
}

/// A link can be renamed, though not described.
fn allow_link(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Symlink => Ok(()),
        _ => Err(error),
    }
}

fn is_hidden(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str().as_encoded_bytes().starts_with(b"."))
}
