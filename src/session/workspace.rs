//! The guest's own files, worked on from outside.
//!
//! Problem: file calls offered to agents go through a shell, follow links, overwrite silently, lose binary content, and
//! parse `ls`.
//!
//! Defence: bytes in, bytes out, on handles. A path as the guest writes it becomes a [`GuestPath`] first, by
//! [`Session::resolve`], and is then looked up beneath the guest's handle with `workspace` as its first component.
//!
//! Links are followed only where something is read, only if the policy of the session's root says so, and only beneath the
//! workspace. What the config's rules refuse is refused before the disk is asked.
//!
//! What remains: the guest works on the same files at the same time.

mod detect;
mod entries;
mod filter;
mod list;
mod merge;
mod tail;
mod tree;
mod write;

use super::handle::Session;
use super::handle::parts::{Part, TRASH};
use super::handle::resolve::Spelled;
use super::handle::rules::Act;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{ContainedFile, Ensured, Metadata, Removed, Root, WalkLimits};

pub use filter::{Filter, FilteredWalk};
pub use list::{ListOptions, Order};
pub use tail::{FileIdentity, Tail, TailChunk, TailEvent, TailPosition};

/// The guest's workspace; see [`Session::workspace`].
///
/// Paths are as [`Session::resolve`] reads them: relative to the workspace, or absolute as the guest sees it,
/// `<mount point>/workspace/<path>`. Every call fails with [`Escape`](ErrorKind::Escape) for a path that is not in the workspace, and
/// with [`InvalidPath`](ErrorKind::InvalidPath) for the workspace itself where an entry in it is meant.
/// It fails with [`Denied`](ErrorKind::Denied) for what the config's [read-only paths](super::SessionsConfig::with_read_only) and
/// patterns refuse.
///
/// Calls that read follow links beneath the workspace if the [config](super::SessionsConfig::with_links) or the policy of the
/// given root says so; then [`Symlink`](ErrorKind::Symlink) means a loop of links, and [`Escape`](ErrorKind::Escape) also a link
/// that leads out of the workspace. Calls that change something never follow one.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// use beneath::session::ListOptions;
///
/// let workspace = session.workspace();
/// workspace.write_exclusive("/session/workspace/src/main.rs", "fn main() {}")?;
/// assert_eq!(workspace.read_contained("src/main.rs", 1024)?, b"fn main() {}");
/// assert_eq!(workspace.read_range("./src//main.rs", 3, 4)?, b"main");
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
    /// Reads a file, at most `max_bytes` of it.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge), and those of [`Root::read_contained`](crate::Root::read_contained).
    ///
    /// # Races
    /// As [`Root::read_contained`](crate::Root::read_contained).
    pub fn read_contained<'p>(&self, path: impl Into<Spelled<'p>>, max_bytes: u64) -> Result<Vec<u8>> {
        self.reading(&self.entry(path, Act::Read)?, |root, path| root.read_contained(path, max_bytes))
    }

    /// Reads up to `max_bytes` of a file from `offset` on; fewer at its end, none beyond it.
    ///
    /// # Errors
    /// Those of [`Root::open_contained`](crate::Root::open_contained).
    ///
    /// # Races
    /// As [`Root::read_contained`](crate::Root::read_contained).
    pub fn read_range<'p>(
        &self,
        path: impl Into<Spelled<'p>>,
        offset: u64,
        max_bytes: u64,
    ) -> Result<Vec<u8>> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let path = self.entry(path, Act::Read)?;
        let mut file = self.reading(&path, |root, path| root.open_contained(path))?;
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
    pub fn open_contained<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<ContainedFile> {
        self.reading(&self.entry(path, Act::Read)?, |root, path| root.open_contained(path))
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// Those of [`Root::ensure_dir`](crate::Root::ensure_dir).
    ///
    /// # Races
    /// As [`Root::ensure_dir`](crate::Root::ensure_dir).
    pub fn ensure_dir<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<Ensured> {
        self.changing(&self.entry(path, Act::Make)?, |root, path| root.ensure_dir(path))
    }

    /// Removes one entry that is not a directory; a link itself, never what it points to.
    ///
    /// # Errors
    /// [`NotRegular`](ErrorKind::NotRegular) for a directory, [`NotFound`](ErrorKind::NotFound), and the kinds of every
    /// resolution.
    pub fn remove_file<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<()> {
        self.changing(&self.entry(path, Act::Replace)?, |root, path| root.remove_file(path))
    }

    /// Removes a directory with all it contains, within the config's budget.
    ///
    /// # Errors
    /// Those of [`Root::remove_tree_quarantined`](crate::Root::remove_tree_quarantined).
    ///
    /// # Races
    /// As [`Root::remove_tree_quarantined`](crate::Root::remove_tree_quarantined).
    pub fn remove_tree_contained<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<Removed> {
        self.changing(&self.entry(path, Act::Replace)?, |root, path| {
            let trash = self.session.host().ensure_and_descend(TRASH)?.0;
            root.remove_tree_quarantined(path, &trash, self.session.config().budget())
        })
    }

    /// Visits everything beneath a directory that the config does not block, within `limits`; the workspace itself if `path` is
    /// `.`, empty or `/`.
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
    pub fn walk<'p>(&self, path: impl Into<Spelled<'p>>, limits: WalkLimits) -> Result<FilteredWalk> {
        self.walk_with(path, limits, Filter::default())
    }

    /// Describes an entry.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotFound`](ErrorKind::NotFound), and those of
    /// [`Root::metadata`](crate::Root::metadata).
    ///
    /// # Races
    /// As [`Root::metadata`](crate::Root::metadata).
    pub fn metadata<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<Metadata> {
        self.reading(&self.directory(path)?, |root, path| root.metadata(path))
    }

    /// Whether there is an entry that is not a link, or that links lead to if they are followed.
    ///
    /// # Errors
    /// The kinds of every resolution but [`NotFound`](ErrorKind::NotFound); so a link that is not followed is an error, not an
    /// absence. [`try_exists`](Self::try_exists) takes a link for an entry.
    ///
    /// # Races
    /// It was true during the call.
    pub fn exists<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            // A session that was removed is not an absent file.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => {
                self.session.alive().map(|()| false)
            }
            Err(error) => Err(error),
        }
    }

    /// The path from the workspace of an entry in it, with which `act` may be done.
    fn entry<'p>(&self, path: impl Into<Spelled<'p>>, act: Act) -> Result<GuestPath> {
        let path = path.into();
        match self.within(path.clone(), act)? {
            within if within.is_top() => {
                Err(Error::new("check path", path.subject(), ErrorKind::InvalidPath)
                    .with_detail("is the workspace itself"))
            }
            within => Ok(within),
        }
    }

    /// The path from the workspace of what is to be listed or described, which may be the workspace itself.
    fn directory<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<GuestPath> {
        self.within(path.into(), Act::Look)
    }

    fn within(&self, path: Spelled<'_>, act: Act) -> Result<GuestPath> {
        match self.session.resolve(path.clone())? {
            (Part::Workspace, within) => self.session.config().rules().check(&within, act).map(|()| within),
            _ => Err(Error::new("check path", path.subject(), ErrorKind::Escape)
                .with_detail("is not in the workspace")),
        }
    }

    /// Calls `call` with the root that reads go through, where links may be followed, and with the path there.
    fn reading<T>(&self, within: &GuestPath, call: impl FnOnce(&Root, &GuestPath) -> Result<T>) -> Result<T> {
        let (root, path) = self.session.at_to_read(within)?;
        call(&root, &path)
    }

    /// Calls `call` with a root that follows no link, and with the path there.
    fn changing<T>(
        &self,
        within: &GuestPath,
        call: impl FnOnce(&Root, &GuestPath) -> Result<T>,
    ) -> Result<T> {
        let (root, path) = self.session.at_to_write(within)?;
        call(root, &path)
    }
}
