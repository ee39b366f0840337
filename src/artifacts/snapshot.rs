//! What is in the workspace, and what has changed since.
//!
//! The problem: a change may leave the modification time where it was or set it back, may keep the size, and may come
//! within the same tick of the clock as the snapshot before it.
//!
//! The defence: a file is known by its inode, size, modification and change time; the last cannot be set at will. A
//! file that changed so shortly before the snapshot that another change might look the same counts as changed, unless
//! both snapshots carry hashes and those are equal.
//!
//! A guest may also fill its workspace with what is refused. Of that the first thousand are told and the others counted;
//! of each a hash of its path stays, so that what is refused is never taken for deleted.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::limits::ObjectLimits;
use super::plan::is_reserved;
use super::record::{Digest, Stamp, nanoseconds};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{SafeName, SafePath};
use crate::root::{HardLinks, Root, WalkLimits};

/// Time stamps may stand still for a tick of the kernel's clock, at most 10 ms.
const TICK: i128 = 50_000_000;
/// The tick of a file system that keeps whole seconds only.
const COARSE_TICK: i128 = 2_500_000_000;
/// How many refusals are told one by one.
const TOLD: usize = 1000;
/// Longest directory in which a file can have a [`SafePath`].
const DIRECTORY_MAX: usize = 4093;
const SECOND: i128 = 1_000_000_000;

/// Whether a snapshot reads the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashing {
    /// No: stamps decide.
    Never,
    /// Yes: a file that was only touched does not count as modified.
    Always,
}

/// What a directory held at some time.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// In the order of the paths' bytes.
    pub(crate) files: Vec<Seen>,
    refused: Refused,
    truncated: bool,
}

/// What is there but cannot be mirrored, and why.
#[derive(Debug, Default)]
struct Refused {
    told: Vec<(PathBuf, Error)>,
    total: u64,
    /// Of every path. Two paths with one hash keep a deletion from being seen, which a guest cannot bring about at will.
    hashes: HashSet<u64>,
    state: RandomState,
}

impl Refused {
    fn push(&mut self, path: PathBuf, error: Error) {
        self.total += 1;
        self.hashes.insert(self.state.hash_one(path.as_path()));
        if self.told.len() < TOLD {
            self.told.push((path, error));
        }
    }

    fn holds(&self, path: &Path) -> bool {
        !self.hashes.is_empty()
            && path.ancestors().any(|above| self.hashes.contains(&self.state.hash_one(above)))
    }
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) path: SafePath,
    pub(crate) stamp: Stamp,
    /// Whether a later change could have left the same stamp.
    pub(crate) fresh: bool,
    pub(crate) digest: Option<Digest>,
}

/// What differs between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diff {
    /// Files that were not there before.
    pub new: Vec<SafePath>,
    /// Files that were there and are other files, or have other content.
    pub modified: Vec<SafePath>,
    /// Files that are gone.
    pub deleted: Vec<SafePath>,
}

impl Diff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.modified.is_empty() && self.deleted.is_empty()
    }
}

impl Snapshot {
    /// Takes a snapshot of `root`, leaving out the names in `reserved` at its top.
    ///
    /// Links, special files, files with several names (unless the policy allows them) and names that are no
    /// [`SafePath`] are not part of it; [`refused`](Self::refused) tells of them. The limits are those of
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
            let refuse = |kind| Error::new("mirror", entry.path(), kind);
            let metadata = entry.metadata();
            if metadata.is_dir() {
                if entry.path().as_os_str().len() > DIRECTORY_MAX {
                    let error = refuse(ErrorKind::InvalidPath).with_detail("path is too long");
                    too_long = Some(entry.path().to_path_buf());
                    snapshot.refused.push(entry.into_path(), error);
                }
                continue;
            }
            let path = match entry.path().to_str().map(SafePath::new) {
                Some(Ok(path)) => path,
                Some(Err(error)) => {
                    snapshot.refused.push(entry.into_path(), error);
                    continue;
                }
                None => {
                    let error = refuse(ErrorKind::InvalidName).with_detail("name is not UTF-8");
                    snapshot.refused.push(entry.into_path(), error);
                    continue;
                }
            };
            if is_reserved(&path, reserved) {
                continue;
            }
            let kind = match () {
                () if metadata.is_symlink() => Some(ErrorKind::Symlink),
                () if !metadata.is_file() => Some(ErrorKind::NotRegular),
                () if metadata.nlink() > 1 && root.policy().hard_links() == HardLinks::Refuse => {
                    Some(ErrorKind::HardLinked)
                }
                () => None,
            };
            if let Some(kind) = kind {
                let error = refuse(kind);
                snapshot.refused.push(entry.into_path(), error);
                continue;
            }
            let stamp = Stamp::of(metadata);
            snapshot.files.push(Seen { path, stamp, fresh: is_fresh(&stamp, start), digest: None });
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

    /// What is there but was left out, and why; at most the first 1,000 of [`refused_total`](Self::refused_total).
    #[must_use]
    pub fn refused(&self) -> &[(PathBuf, Error)] {
        &self.refused.told
    }

    /// How much was left out in all.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.total
    }

    pub(crate) fn into_refused(self) -> Vec<(PathBuf, Error)> {
        self.refused.told
    }

    pub(crate) fn find(&self, path: &SafePath) -> Option<&Seen> {
        let index = self.files.binary_search_by(|seen| seen.path.cmp(path)).ok()?;
        self.files.get(index)
    }

    /// Whether `path` may be there although no file was seen at it: something stands at it or above it that was not
    /// looked into.
    pub(crate) fn may_hold(&self, path: &SafePath) -> bool {
        self.truncated || self.refused.holds(path.as_utf8_path().as_ref())
    }

    /// What has changed from this snapshot to a later one.
    ///
    /// A path at which something stands that cannot be mirrored does not count as deleted, nor does what lies beneath
    /// it.
    #[must_use]
    pub fn diff(&self, later: &Self) -> Diff {
        let mut diff = Diff::default();
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

fn changed(old: &Seen, new: &Seen) -> bool {
    match (old.digest, new.digest) {
        (Some(old), Some(new)) => old != new,
        _ => old.fresh || old.stamp != new.stamp,
    }
}

/// Whether a change just after `now` could leave this stamp as it is.
pub(crate) fn is_fresh(stamp: &Stamp, now: SystemTime) -> bool {
    let tick = if stamp.changed % SECOND == 0 { COARSE_TICK } else { TICK };
    stamp.changed.saturating_add(tick) >= nanoseconds(now)
}

/// The hash of a file of at most `limit` bytes, and its stamp from before it was read.
pub(crate) fn digest(root: &Root, path: &SafePath, limit: u64) -> Result<(Stamp, Digest)> {
    let file = root.open_contained(path)?;
    let stamp = Stamp::of(file.metadata());
    if stamp.size > limit {
        return Err(Error::new("read", path, ErrorKind::TooLarge));
    }
    // A guest may let it grow faster than it is read. The stamp tells that it has.
    let mut file = file.take(stamp.size);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::new("read", path, ErrorKind::Io).with_source(error)),
        };
        match buffer.get(..read) {
            Some([]) | None => return Ok((stamp, hash.finalize().into())),
            Some(bytes) => hash.update(bytes),
        }
    }
}
