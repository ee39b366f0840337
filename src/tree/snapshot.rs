//! What is in the workspace, and what has changed since.
//!
//! Problem: a change may leave the modification time where it was or set it back, may keep the size, and may come
//! within the same tick of the clock as the snapshot before it.
//!
//! Defence: a file is known by its inode, size, modification and change time; the last cannot be set at will. A
//! file that changed so shortly before the snapshot that another change might look the same counts as changed, unless
//! both snapshots carry hashes and those are equal.
//!
//! A guest may also fill its workspace with what is refused. The first thousand of that are listed and all are counted; a
//! hash of each path is kept, so that what is refused is never taken for deleted.
//!
//! What remains: a write through a mapping that was made before changes content without a new stamp on some file systems.
//! Hashes find it.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::limits::ObjectLimits;
use super::reserved::is_reserved;
use super::stamp::{Digest, Stamp, digest, is_fresh};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SafeName, SafePath};
use crate::report::Leftovers;
use crate::root::{Entry, HardLinks, Root, WalkLimits};

/// Longest directory in which a file can have a [`SafePath`].
const DIRECTORY_MAX: usize = 4093;

/// Whether a snapshot reads the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashing {
    /// No: stamps decide.
    Never,
    /// Yes: a file that was only touched does not count as modified.
    Always,
}

/// What a directory held at some time.
#[derive(Clone, Debug, Default)]
#[must_use = "something may have been refused"]
pub struct Snapshot {
    /// In the order of the paths' bytes.
    pub(crate) files: Vec<Seen>,
    refused: Refused,
    truncated: bool,
}

/// What is there but cannot be mirrored, and why.
#[derive(Clone, Debug, Default)]
struct Refused {
    left: Leftovers,
    /// Of every path. Two paths with one hash keep a deletion from being seen, which a guest cannot bring about at will.
    hashes: HashSet<u64>,
    state: RandomState,
}

impl Refused {
    fn push(&mut self, path: PathBuf, error: Error) {
        self.hashes.insert(self.state.hash_one(path.as_path()));
        self.left.add(path, error);
    }

    fn contains(&self, path: &Path) -> bool {
        !self.hashes.is_empty()
            && path.ancestors().any(|above| self.hashes.contains(&self.state.hash_one(above)))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: SafePath,
    pub(crate) stamp: Stamp,
    /// Whether a later change could have left the same stamp.
    pub(crate) fresh: bool,
    pub(crate) digest: Option<Digest>,
}

/// What differs between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use]
#[non_exhaustive]
pub struct Diff {
    /// Files that were not there before.
    pub new: Vec<SafePath>,
    /// Files that were there and are other files, or have other content.
    pub modified: Vec<SafePath>,
    /// Files that are gone.
    pub deleted: Vec<SafePath>,
    /// What the later snapshot refused, whether it has changed or not.
    pub left: Leftovers,
}

impl Diff {
    /// Whether no file differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.modified.is_empty() && self.deleted.is_empty()
    }

    /// Whether the later snapshot refused nothing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// What the later snapshot refused, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}

impl Snapshot {
    /// Takes a snapshot of `root`, leaving out the names in `reserved` at its top.
    ///
    /// Links, special files, files with several names (unless the policy allows them) and names that are no
    /// [`SafePath`] are not part of it; [`refused`](Self::refused) lists them. The limits are those of
    /// [`ObjectLimits::default`].
    ///
    /// # Errors
    /// Those of [`Root::walk`] at its start. What cannot be entered later is reported as refused.
    ///
    /// # Races
    /// Each file was there at some time during the call.
    ///
    /// ```
    /// use beneath::artifacts::{Hashing, Snapshot};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// let before = Snapshot::take(&root, &[], Hashing::Never)?;
    /// root.write_exclusive("report.txt", "done")?;
    /// let after = Snapshot::take(&root, &[], Hashing::Never)?;
    /// assert_eq!(before.diff(&after).new[0].as_str(), "report.txt");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take(root: &Root, reserved: &[SafeName], hashing: Hashing) -> Result<Self> {
        Self::take_within(root, reserved, hashing, &ObjectLimits::default())
    }

    /// Takes a snapshot as [`take`](Self::take) does, within `limits`.
    ///
    /// It looks at no more than twice the objects that `limits` allow, since directories count as well, and with
    /// [`Hashing::Always`] it reads no more bytes than they allow, of each file and in all. What is over is refused,
    /// as [`TooMany`](ErrorKind::TooMany) or [`TooLarge`](ErrorKind::TooLarge).
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Races
    /// As [`take`](Self::take).
    pub fn take_within(
        root: &Root,
        reserved: &[SafeName],
        hashing: Hashing,
        limits: &ObjectLimits,
    ) -> Result<Self> {
        let start = SystemTime::now();
        let mut snapshot = Self::default();
        let mut walk =
            root.walk(".", WalkLimits::default().with_entries(limits.objects.saturating_mul(2)))?;
        let mut too_long: Option<PathBuf> = None;
        for entry in walk.by_ref() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let subject = error.subject().unwrap_or("".as_ref()).to_path_buf();
                    snapshot.refused.push(subject, error);
                    continue;
                }
            };
            if too_long.as_ref().is_some_and(|above| entry.path().starts_with(above)) {
                continue;
            }
            match judge(&entry, reserved, root.policy().hard_links()) {
                Ok(Some((path, stamp))) => {
                    let fresh = is_fresh(&stamp, start);
                    snapshot.files.push(Seen { path, stamp, fresh, digest: None });
                }
                Ok(None) => {}
                Err(error) => {
                    if entry.metadata().is_dir() {
                        too_long = Some(entry.path().to_path_buf());
                    }
                    snapshot.refused.push(entry.into_path(), error);
                }
            }
        }
        snapshot.truncated = walk.truncated();
        snapshot.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        if hashing == Hashing::Always {
            snapshot.hash(root, limits);
        }
        Ok(snapshot)
    }

    /// Reads every file; what cannot be read any more is left out.
    fn hash(&mut self, root: &Root, limits: &ObjectLimits) {
        let files = std::mem::take(&mut self.files);
        let mut left = limits.bytes;
        for mut seen in files {
            match digest(root, &seen.path, limits.file_bytes.min(left)) {
                Ok((stamp, digest)) => {
                    left = left.saturating_sub(stamp.size);
                    seen.digest = Some(digest);
                    seen.stamp = stamp;
                    self.files.push(seen);
                }
                Err(error) => self.refused.push(seen.path.as_utf8_path().into(), error),
            }
        }
    }

    /// How many files it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it holds no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files, in the order of their paths' bytes.
    pub fn paths(&self) -> impl Iterator<Item = &SafePath> {
        self.files.iter().map(|seen| &seen.path)
    }

    /// Whether everything that is there is part of it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.truncated && self.refused.left.is_empty()
    }

    /// What is there but was left out, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.left.iter()
    }

    /// What is there but was left out, by its path.
    pub fn left(&self) -> &Leftovers {
        &self.refused.left
    }

    pub(crate) fn into_left(self) -> Leftovers {
        self.refused.left
    }

    /// Whether `path` may be there although no file was seen at it: something is at it or above it that was not
    /// looked into.
    pub(crate) fn may_hold(&self, path: &SafePath) -> bool {
        self.truncated || self.refused.contains(path.as_utf8_path().as_ref())
    }

    /// What has changed from this snapshot to a later one.
    ///
    /// A path with something at it that cannot be mirrored does not count as deleted, nor does what lies beneath it.
    pub fn diff(&self, later: &Self) -> Diff {
        let mut diff = Diff { left: later.refused.left.clone(), ..Diff::default() };
        let (mut before, mut after) = (self.files.iter().peekable(), later.files.iter().peekable());
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => return diff,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.path.cmp(&new.path),
            };
            let old = if order.is_le() { before.next() } else { None };
            let new = if order.is_ge() { after.next() } else { None };
            match (old, new) {
                (Some(old), Some(new)) if changed(old, new) => diff.modified.push(new.path.clone()),
                (Some(old), None) if !later.may_hold(&old.path) => diff.deleted.push(old.path.clone()),
                (None, Some(new)) => diff.new.push(new.path.clone()),
                _ => {}
            }
        }
    }
}

/// The file that an entry is, none for a directory and what is reserved, or why it cannot be part of a snapshot.
fn judge(entry: &Entry, reserved: &[SafeName], hard_links: HardLinks) -> Result<Option<(SafePath, Stamp)>> {
    let refuse = |kind| Error::new("mirror", entry.path(), kind);
    let metadata = entry.metadata();
    if metadata.is_dir() {
        // Beneath it no file has a path that could be a key.
        let too_long = entry.path().as_os_str().len() > DIRECTORY_MAX;
        let error = || refuse(ErrorKind::InvalidPath).with_detail("path is too long");
        return if too_long { Err(error()) } else { Ok(None) };
    }
    let path = entry.path().to_str();
    let path = path.ok_or_else(|| refuse(ErrorKind::InvalidName).with_detail("name is not UTF-8"))?;
    let path = SafePath::new(path)?;
    match () {
        () if is_reserved(&GuestPath::from(&path), reserved) => Ok(None),
        () if metadata.is_symlink() => Err(refuse(ErrorKind::Symlink)),
        () if !metadata.is_file() => Err(refuse(ErrorKind::NotRegular)),
        // Its other name may be outside.
        () if metadata.nlink() > 1 && hard_links == HardLinks::Refuse => Err(refuse(ErrorKind::HardLinked)),
        () => Ok(Some((path, Stamp::of(metadata)))),
    }
}

fn changed(old: &Seen, new: &Seen) -> bool {
    match (old.digest, new.digest) {
        (Some(old), Some(new)) => old != new,
        _ => old.fresh || old.stamp != new.stamp,
    }
}
