//! How much a session contains, and whether its guest is alive.
//!
//! Problem: sizes are what a guest says. A sparse file claims more than it has, one file has many names, a directory that may
//! not be entered hides the rest, and a heartbeat has any time that the guest gives it.
//!
//! Defence: allocated blocks count, each inode once. What could not be looked at is reported, and a quota refuses it. Of the two
//! times of a heartbeat the earlier counts, one of which the kernel sets.
//!
//! What remains: a count is no snapshot. A hard bound is a file system of its own.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::handle::Session;
use super::handle::resolve::Spelled;
use crate::error::{Error, ErrorKind, Result};
use crate::report::Leftovers;
use crate::root::{HardLinks, Metadata, WalkLimits};

/// What a session's guest side contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "the count may be incomplete"]
#[non_exhaustive]
pub struct Usage {
    /// Bytes that are really allocated; each file counts once, however many names it has.
    pub allocated: u64,
    /// Bytes that the files claim to be long; a sparse file claims more than it has.
    pub bytes: u64,
    /// Entries of every kind.
    pub entries: u64,
    /// Directories and entries that could not be looked at, and why.
    pub left: Leftovers,
    /// Whether the limits cut something off, so that there is more than this.
    pub truncated: bool,
}

impl Usage {
    /// Whether everything was counted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && !self.truncated
    }

    /// Counts one entry. `shared` are the files with several names that were counted before.
    fn count(&mut self, file: &Metadata, shared: &mut HashSet<(u64, u64)>) {
        self.entries += 1;
        if file.is_dir() || file.nlink() < 2 || shared.insert((file.dev(), file.ino())) {
            self.allocated = self.allocated.saturating_add(file.allocated());
            if file.is_file() {
                self.bytes = self.bytes.saturating_add(file.len());
            }
        }
    }

    /// What could not be looked at, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}

/// How much a session may contain.
///
/// ```
/// use beneath::session::Quota;
///
/// let quota = Quota::unlimited().with_bytes(1 << 30).with_entries(100_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    bytes: u64,
    entries: u64,
}

impl Quota {
    /// No bound.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { bytes: u64::MAX, entries: u64::MAX }
    }

    /// Bounds the allocated bytes.
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Bounds the entries.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Judges what was counted.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) or [`TooMany`](ErrorKind::TooMany); the latter also if the count was cut off or
    /// something was unreadable, since what was not seen may be anything: a guest hides what it likes behind mode 000.
    pub fn check(&self, usage: &Usage) -> Result<()> {
        let refuse = |kind, why| Err(Error::new("check quota", ".", kind).with_detail(why));
        if usage.allocated > self.bytes {
            return refuse(ErrorKind::TooLarge, "more bytes than the quota");
        }
        if usage.entries > self.entries {
            return refuse(ErrorKind::TooMany, "more entries than the quota");
        }
        if usage.truncated {
            return refuse(ErrorKind::TooMany, "more than could be counted");
        }
        if !usage.left.is_empty() {
            return refuse(ErrorKind::TooMany, "some of it could not be looked at");
        }
        Ok(())
    }
}

impl Session {
    /// Counts what the guest's side contains, within `limits`; within them in each of its [places](Self::from_places), if they are
    /// apart.
    ///
    /// # Errors
    /// The kinds of every resolution of the guest's directory itself.
    ///
    /// # Races
    /// It is no snapshot. What a guest adds or removes meanwhile may or may not be counted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::{WalkLimits, session::Quota};
    ///
    /// session.guest().write_exclusive("workspace/a.txt", "hello")?;
    /// let usage = session.usage(WalkLimits::default())?;
    /// assert_eq!((usage.bytes, usage.entries), (5, 4));
    /// Quota::unlimited().with_bytes(1 << 20).check(&usage)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn usage(&self, limits: WalkLimits) -> Result<Usage> {
        let mut usage = Usage::default();
        let mut shared = HashSet::new();
        for (_, top) in self.tops()? {
            let mut walk = top.walk(".", limits)?;
            for entry in walk.by_ref() {
                match entry {
                    Ok(entry) => usage.count(entry.metadata(), &mut shared),
                    Err(error) => {
                        usage.left.add(error.subject().unwrap_or(Path::new("")).to_owned(), error);
                    }
                }
            }
            usage.truncated |= walk.truncated();
        }
        Ok(usage)
    }

    /// How long ago the guest last touched the file at `path`, or `None` if there is none. `path` is as
    /// [`resolve`](Self::resolve) reads it.
    ///
    /// A guest can give a file any modification time, and one in the future would make it look alive without end. So the
    /// time counts that is earlier: the modification, or the last change of the inode, which the kernel's
    /// clock sets. Neither makes the age negative.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotRegular`](ErrorKind::NotRegular), [`HardLinked`](ErrorKind::HardLinked) unless the
    /// policy allows it, since somebody else may be touching it, and the kinds of every resolution.
    ///
    /// # Races
    /// It was true during the call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// assert_eq!(session.heartbeat_age(".heartbeat")?, None);
    /// # let guest_path = dir.path().join("s/guest");
    /// std::fs::write(guest_path.join("workspace/.heartbeat"), "")?;
    /// assert!(session.heartbeat_age(".heartbeat")?.unwrap().as_secs() < 60);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn heartbeat_age<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<Option<Duration>> {
        let (part, path) = self.resolve(path)?;
        let (root, path) = self.at(part, path)?;
        let file = match root.metadata(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !file.is_file() {
            return Err(Error::new("stat", path, ErrorKind::NotRegular));
        }
        if file.nlink() > 1 && root.policy().hard_links() != HardLinks::Allow {
            return Err(Error::new("stat", path, ErrorKind::HardLinked));
        }
        let touched = file.modified().min(file.changed());
        Ok(Some(SystemTime::now().duration_since(touched).unwrap_or_default()))
    }
}
