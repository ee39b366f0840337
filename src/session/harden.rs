//! Re-applying modes and owners to a tree that a guest has worked in.
//!
//! Problem: a recursive chmod follows a link that was swapped in, changes host files through hard links, opens devices,
//! strips the execute bits of scripts, and says "secured" when half of it failed.
//!
//! Defence: a bounded walk by handles; each entry is pinned, judged and changed through its own handle. Everything that
//! is not changed is counted and reported. A guest that moves a file back and forth can keep it out of every listing, but
//! then the directories have changed meanwhile: they are looked at once more, and the report is not complete.
//!
//! What remains: a guest that owns its files may change them back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::event;
use super::handle::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::report::Leftovers;
use crate::root::{Access, Applied, Execute, FileType, Metadata, Root, WalkLimits};

/// How long one call waits, in all, for files that have just changed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What [`harden_tree`] applies.
///
/// ```
/// use beneath::{Access, Execute, session::Hardening};
///
/// let hardening = Hardening::new(Access::shared()).with_execute(Execute::Keep);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardening {
    access: Access,
    execute: Execute,
    limits: WalkLimits,
}

impl Hardening {
    /// Applies `access`, clears execute bits of files, within the default limits.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access, execute: Execute::Clear, limits: WalkLimits::default() }
    }

    /// Sets what happens to the execute bits of files.
    #[must_use]
    pub fn with_execute(mut self, execute: Execute) -> Self {
        self.execute = execute;
        self
    }

    /// Bounds the walk.
    #[must_use]
    pub fn with_limits(mut self, limits: WalkLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// What [`harden_tree`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "hardening may be incomplete"]
#[non_exhaustive]
pub struct Hardened {
    /// Regular files that have the access now.
    pub files: u64,
    /// Directories that have the access now, the top included.
    pub directories: u64,
    /// How many of these had another before.
    pub changed: u64,
    /// Symbolic links, which have no access of their own.
    pub links: u64,
    /// Files with several names, which are left: one may be a host file's.
    pub hard_links: u64,
    /// FIFOs, sockets and devices, which are left.
    pub special: u64,
    /// What could not be changed or looked at, and why; files with several names and special files included.
    pub left: Leftovers,
    /// Directories that changed meanwhile and entries that vanished: what the guest moved may have been missed.
    pub unsettled: u64,
    /// Whether the limits cut something off.
    pub truncated: bool,
}

impl Hardened {
    /// Whether everything but the symbolic links had the access when the call ended, and nothing can have been missed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.unsettled == 0 && !self.truncated
    }

    /// What does not have the access, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }

    fn applied(&mut self, file_type: FileType, applied: Applied) {
        match file_type {
            FileType::Directory => self.directories += 1,
            _ => self.files += 1,
        }
        self.changed += u64::from(applied == Applied::Changed);
    }

    fn absorb(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.changed += other.changed;
        self.links += other.links;
        self.hard_links += other.hard_links;
        self.special += other.special;
        self.left.absorb(other.left);
        self.unsettled += other.unsettled;
        self.truncated |= other.truncated;
    }

    fn refuse(&mut self, path: PathBuf, error: Error) {
        match error.kind() {
            ErrorKind::Symlink => self.links += 1,
            // The guest has removed it, or moved it to where the walk has been.
            ErrorKind::NotFound => self.unsettled += 1,
            kind => {
                self.hard_links += u64::from(kind == ErrorKind::HardLinked);
                self.special += u64::from(kind == ErrorKind::NotRegular);
                self.left.add(path, error);
            }
        }
    }
}

/// Gives the directory at `path` and everything beneath it the access of `hardening`, by handle.
///
/// Links are skipped and counted; files with several names and special files are left and reported. `.` is the whole root.
///
/// # Errors
/// [`Symlink`](ErrorKind::Symlink), [`NotDirectory`](ErrorKind::NotDirectory), [`NotFound`](ErrorKind::NotFound) and the
/// kinds of every resolution of the top. What happens further down is reported in [`Hardened`].
///
/// # Races
/// Only inodes that were entries beneath the root, and whose only name that was, are changed. A guest that still works in
/// the tree makes the report incomplete; so does a file that changes all the time, which is waited for no longer than a
/// second in all.
///
/// ```
/// use beneath::session::{Hardening, harden_tree};
/// use beneath::{Access, Root, ambient_authority};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let root = Root::open_ambient(path, ambient_authority())?;
/// root.ensure_dir("out")?;
/// root.write_exclusive("out/a.txt", "hello")?;
/// std::os::unix::fs::symlink("/etc/passwd", path.join("out/passwd"))?;
///
/// let hardened = harden_tree(&root, "out", Hardening::new(Access::shared()))?;
/// assert_eq!((hardened.directories, hardened.files, hardened.links), (1, 1, 1));
/// assert_eq!(root.metadata("out/a.txt")?.mode(), 0o660);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn harden_tree(root: &Root, path: impl AsRef<Path>, hardening: Hardening) -> Result<Hardened> {
    let path = path.as_ref();
    let now = Instant::now();
    let until = now.checked_add(PATIENCE).unwrap_or(now);
    let set = |path: &Path| root.set_access_until(path, hardening.access, hardening.execute, until);
    let mut report = Hardened::default();
    let mut entered = Vec::new();
    let top = set(path)?;
    let mut enter = |report: &mut Hardened, path: PathBuf| match root.settled_metadata(&path, until) {
        Some(found) => entered.push((path, identity(&found))),
        None => report.unsettled += 1,
    };
    enter(&mut report, path.to_path_buf());
    let mut walk = root.walk(path, hardening.limits)?;
    report.applied(FileType::Directory, top);
    // A directory is listed before it is entered, so one that forbids entering allows it by then.
    for entry in walk.by_ref() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                event::refused("harden", &error);
                report.refuse(error.subject().unwrap_or(path).to_path_buf(), error);
                continue;
            }
        };
        let file_type = entry.metadata().file_type();
        let inside = entry.into_path();
        let whole = if path == Path::new(".") { inside.clone() } else { path.join(&inside) };
        match set(&whole) {
            Ok(applied) => {
                report.applied(file_type, applied);
                if file_type == FileType::Directory {
                    // Before the walk enters it.
                    enter(&mut report, whole);
                }
            }
            Err(error) => {
                event::refused("harden", &error);
                report.refuse(inside, error);
            }
        }
    }
    report.truncated = walk.truncated();
    let changed = |(path, found): &&(PathBuf, Identity)| {
        root.metadata(path).map_or(true, |now| identity(&now) != *found)
    };
    report.unsettled += entered.iter().filter(changed).count() as u64;
    Ok(report)
}

/// A directory, and when its entries last changed.
type Identity = (u64, u64, SystemTime);

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino(), found.changed())
}

impl Session {
    /// Gives the guest's whole side the config's access again, or each of its [places](Self::from_places) that of its policy; see [`harden_tree`].
    ///
    /// # Errors
    /// As [`harden_tree`].
    ///
    /// # Races
    /// As [`harden_tree`].
    pub fn harden(&self, execute: Execute) -> Result<Hardened> {
        let mut hardened = Hardened::default();
        for (_, top) in self.tops()? {
            let hardening = Hardening::new(top.policy().access()).with_execute(execute);
            hardened.absorb(harden_tree(top, ".", hardening)?);
        }
        Ok(hardened)
    }
}
