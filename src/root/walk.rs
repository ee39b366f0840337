//! Looking at what is there: one directory, or a bounded tree.
//!
//! Problem: a guest exchanges a directory for a link between its listing and the descent, nests without end, fills a
//! directory without end, and uses names that are not text.
//!
//! Defence: every level is opened from the handle of the one above, without following links, and each entry is
//! described from its directory's handle. Depth and count are limited, and what is cut off is reported.
//!
//! What remains: a listing is no snapshot. Entries that come or go meanwhile may or may not be seen.

pub(super) mod scan;

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Root;
use super::metadata::Metadata;
use super::metadata::describe_at;
use super::resolve::path::{Checked, Meant};
use super::walk::scan::Scanner;
use crate::error::{Error, ErrorKind, Result};

/// How many entries in a row may be gone before they can be described.
const VANISHED: u32 = 100_000;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl Root {
    /// Lists the entries of a directory, in the order the file system gives them.
    ///
    /// Links, FIFOs and everything else are shown as what they are. The listing is streamed, so a directory with
    /// millions of entries costs no memory; bound the time with [`Iterator::take`].
    ///
    /// # Errors
    /// [`NotDirectory`](ErrorKind::NotDirectory), [`Symlink`](ErrorKind::Symlink), [`NotFound`](ErrorKind::NotFound)
    /// and the kinds of every resolution. An entry that cannot be described is an error of its own, and the rest
    /// follows. A directory that cannot be read on ends the listing with an error, which is [`Busy`](ErrorKind::Busy) if
    /// entry after entry vanishes and [`Io`](ErrorKind::Io) if a file system returns nothing but `.` and `..`, or a name
    /// that is none.
    ///
    /// # Races
    /// Entries that vanish before they are described are left out. A file system that a guest serves may list without end,
    /// the same name again and again, and may take any time for each answer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("a.txt", "hello")?;
    /// for entry in root.list(".")? {
    ///     let entry = entry?;
    ///     println!("{:?}: {} bytes", entry.file_name(), entry.metadata().len());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&self, path: impl AsRef<Path>) -> Result<List> {
        let path = Checked::new("list", path.as_ref(), Meant::DirectoryOrRoot)?;
        let dir = self.open("list", path, DIRECTORY)?;
        Ok(List(Entries::new(dir)))
    }

    /// Opens a directory to work in it, as [`descend`](Self::descend) does, and to list it: one lookup, so it is one directory.
    #[cfg(feature = "queue")]
    pub(crate) fn descend_and_list(&self, path: impl AsRef<Path>) -> Result<Entries<Self>> {
        let path = Checked::new("list", path.as_ref(), Meant::DirectoryOrRoot)?;
        let dir = self.open("list", path, DIRECTORY)?;
        Ok(Entries::new(self.narrowed(dir)))
    }

    /// Walks a directory and everything beneath it, parents before what they hold.
    ///
    /// Links are shown and never entered, whatever the policy. Mounts are entered only under
    /// [`Mounts::Cross`](super::Mounts::Cross). The walk holds one descriptor per level, so the limit on depth is also
    /// one on descriptors.
    ///
    /// # Errors
    /// As [`list`](Self::list). During the walk: [`TooMany`](ErrorKind::TooMany) for a directory that is too deep, which
    /// is then not entered, and for the count of entries, which ends the walk;
    /// [`CrossDevice`](ErrorKind::CrossDevice) for a mount; and any other kind for what could not be entered.
    ///
    /// # Races
    /// Each entry was, at some moment, in the directory it is shown in; the directory may have moved since.
    pub fn walk(&self, path: impl AsRef<Path>, limits: WalkLimits) -> Result<Walk> {
        let path = Checked::new("walk", path.as_ref(), Meant::DirectoryOrRoot)?;
        let dir = self.open("walk", path, DIRECTORY)?;
        Ok(Walk {
            root: self.try_clone()?,
            scanner: Scanner::new(),
            levels: vec![Level::new(dir)],
            prefix: PathBuf::new(),
            enter: None,
            gone: None,
            seen: 0,
            truncated: false,
            limits,
        })
    }
}

/// Bounds on a [`Walk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkLimits {
    entries: u64,
    depth: u32,
}

impl Default for WalkLimits {
    /// A million entries, 64 levels.
    fn default() -> Self {
        Self { entries: 1_000_000, depth: 64 }
    }
}

impl WalkLimits {
    /// Ends the walk after `entries` entries.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Shows `depth` levels; 1 is the directory's own entries.
    #[must_use]
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }
}

/// One entry of a [`List`] or [`Walk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    path: PathBuf,
    metadata: Metadata,
}

impl Entry {
    /// The path relative to the directory that was listed or walked; any bytes but NUL.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last component.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// What the kernel said of the entry itself, links included.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Takes the path.
    #[must_use]
    pub fn into_path(self) -> PathBuf {
        self.path
    }
}

/// One open directory, and the names read from it but not shown yet.
#[derive(Debug)]
struct Level<D> {
    dir: D,
    /// A bufferful of names, each with its NUL.
    names: Vec<u8>,
    shown: usize,
    ended: bool,
}

impl<D: AsFd> Level<D> {
    fn new(dir: D) -> Self {
        Self { dir, names: Vec::new(), shown: 0, ended: false }
    }

    /// The next entry that is still there, its path behind `prefix`.
    fn next(&mut self, scanner: &mut Scanner, prefix: &Path) -> Option<Result<Entry, (PathBuf, Errno)>> {
        let mut vanished = 0;
        loop {
            let rest = self.names.get(self.shown..).unwrap_or_default();
            if let Ok(name) = CStr::from_bytes_until_nul(rest) {
                self.shown += name.count_bytes() + 1;
                let path = || join(prefix, name);
                match describe_at(self.dir.as_fd(), name) {
                    Ok(metadata) => return Some(Ok(Entry { path: path(), metadata })),
                    // A guest that creates and removes without pause must not keep the caller here.
                    Err(Errno::NOENT) if vanished < VANISHED => {
                        vanished += 1;
                        continue;
                    }
                    Err(Errno::NOENT) => {
                        self.ended = true;
                        self.names.clear();
                        return Some(Err((prefix.to_path_buf(), Errno::BUSY)));
                    }
                    Err(errno) => return Some(Err((path(), errno))),
                }
            }
            if self.ended {
                return None;
            }
            self.names.clear();
            self.shown = 0;
            let names = &mut self.names;
            match scanner.next_batch(self.dir.as_fd(), |name, _| names.extend(name.to_bytes_with_nul())) {
                Ok(more) => self.ended = !more,
                Err(errno) => {
                    self.ended = true;
                    return Some(Err((prefix.to_path_buf(), errno)));
                }
            }
        }
    }
}

/// The path of an entry, in one allocation.
fn join(prefix: &Path, name: &CStr) -> PathBuf {
    let (prefix, name) = (prefix.as_os_str().as_bytes(), name.to_bytes());
    let mut path = Vec::with_capacity(prefix.len() + 1 + name.len());
    if !prefix.is_empty() {
        path.extend(prefix);
        path.push(b'/');
    }
    path.extend(name);
    OsString::from_vec(path).into()
}

/// The entries of one directory; see [`Root::list`].
#[derive(Debug)]
pub struct List(Entries<OwnedFd>);

impl Iterator for List {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// The same, of a directory that is held in any way.
#[derive(Debug)]
pub(crate) struct Entries<D> {
    level: Level<D>,
    scanner: Scanner,
}

impl<D: AsFd> Entries<D> {
    fn new(dir: D) -> Self {
        Self { level: Level::new(dir), scanner: Scanner::new() }
    }

    /// The directory itself.
    #[cfg(feature = "queue")]
    pub(crate) fn directory(&self) -> &D {
        &self.level.dir
    }
}

impl<D: AsFd> Iterator for Entries<D> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.level.next(&mut self.scanner, Path::new(""))?;
        Some(entry.map_err(|(path, errno)| Error::from_errno("list", path, errno)))
    }
}

/// The entries of a tree; see [`Root::walk`].
#[derive(Debug)]
pub struct Walk {
    root: Root,
    scanner: Scanner,
    levels: Vec<Level<OwnedFd>>,
    /// Path of the last level.
    prefix: PathBuf,
    /// A directory that was shown and is to be entered next.
    enter: Option<PathBuf>,
    /// A directory that was shown and was gone when it was to be entered.
    gone: Option<PathBuf>,
    seen: u64,
    truncated: bool,
    limits: WalkLimits,
}

impl Walk {
    /// Whether a limit has cut something off so far.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// How many directories it is in; 1 while it shows the entries of the top.
    pub(in crate::root) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The directory that holds the entry shown last.
    pub(in crate::root) fn dir(&self) -> Option<BorrowedFd<'_>> {
        self.levels.last().map(|level| level.dir.as_fd())
    }

    /// The directory that was shown and then could not be found any more, if the last step met one.
    pub(in crate::root) fn take_gone(&mut self) -> Option<PathBuf> {
        self.gone.take()
    }

    /// Does not enter the directory that was shown last; of anything else there is nothing to skip.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.ensure_dir(".git/objects")?;
    /// let mut walk = root.walk(".", beneath::WalkLimits::default())?;
    /// assert_eq!(walk.next().unwrap()?.file_name(), ".git");
    /// walk.skip_dir();
    /// assert!(walk.next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn skip_dir(&mut self) {
        self.enter = None;
    }

    fn enter(&mut self, path: PathBuf) -> Result<()> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        if self.levels.len() as u64 >= u64::from(self.limits.depth) {
            self.truncated = true;
            return Err(Error::new("walk", path, ErrorKind::TooMany).with_detail("is deeper than the limit"));
        }
        let name = path.file_name().unwrap_or_default();
        let mounts = self.root.policy().mounts();
        match self.root.open_child(level.dir.as_fd(), name, DIRECTORY, mounts) {
            Ok(dir) => {
                self.levels.push(Level::new(dir));
                self.prefix = path;
                Ok(())
            }
            // It is gone, with all it held, or has another name by now.
            Err(Errno::NOENT) => {
                self.gone = Some(path);
                Ok(())
            }
            Err(errno) => Err(Error::from_errno("walk", path, errno)),
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(Err(error)) = self.enter.take().map(|path| self.enter(path)) {
            return Some(Err(error));
        }
        loop {
            match self.levels.last_mut()?.next(&mut self.scanner, &self.prefix) {
                None => {
                    self.levels.pop();
                    self.prefix.pop();
                }
                Some(_) if self.seen >= self.limits.entries => {
                    self.levels.clear();
                    self.truncated = true;
                    let error = Error::new("walk", &self.prefix, ErrorKind::TooMany);
                    return Some(Err(error.with_detail("more entries than the limit")));
                }
                Some(Ok(entry)) => {
                    self.seen += 1;
                    if entry.metadata.is_dir() {
                        self.enter = Some(entry.path.clone());
                    }
                    return Some(Ok(entry));
                }
                Some(Err((path, errno))) => {
                    self.seen += 1;
                    return Some(Err(Error::from_errno("walk", path, errno)));
                }
            }
        }
    }
}
