//! A whole tree, by content.
//!
//! Problem: what could not be read looks like what is not there, and what is not there looks deleted.
//!
//! Defence: *unknown* is a state of its own. What was refused is remembered by its path, with all beneath it; if a limit cut
//! the walk short, every path that was not seen is unknown.
//!
//! What remains: a tree is no snapshot. Each entry was there at some moment of the call.

use std::collections::BTreeSet;
use std::path::Path;

use super::leaf::{Leaf, Leaves};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::root::{Entry, Root, WalkLimits};

/// How much of a tree is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    entries: u64,
    depth: u32,
    file_bytes: u64,
    bytes: u64,
}

impl Default for TreeLimits {
    /// 200,000 entries, 64 levels, 256 MiB a file, 4 GiB in all.
    fn default() -> Self {
        Self { entries: 200_000, depth: 64, file_bytes: 256 << 20, bytes: 4 << 30 }
    }
}

impl TreeLimits {
    /// Looks at no more than `entries` entries.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Enters no more than `depth` levels.
    #[must_use]
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Reads no file of more than `bytes` bytes.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Reads no more than `bytes` bytes in all.
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    pub(crate) fn walk(self) -> WalkLimits {
        WalkLimits::default().with_entries(self.entries).with_depth(self.depth)
    }
}

/// What a directory contained at some time: files, links and empty directories, by content.
///
/// Special files, files with several names (unless the root's policy allows them) and what cannot be read are not part of it:
/// they are [`refused`](Self::refused), and a merge leaves them alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "something may have been refused"]
pub struct Tree {
    pub(super) leaves: Leaves,
    /// The directories that contain something.
    inner: BTreeSet<GuestPath>,
    /// What was refused, with all beneath it.
    unknown: BTreeSet<GuestPath>,
    /// Whether a path may be there that is in none of these.
    cut: bool,
    left: Leftovers,
    /// Of a base: what it had when a loss began to look like an accident, until it does no more.
    pub(super) reference: Option<Leaves>,
}

/// What somebody says of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    Leaf(Leaf),
    /// As if it were not there.
    #[cfg_attr(not(feature = "artifacts"), expect(dead_code, reason = "a whole tree leaves out nothing"))]
    Nothing,
    /// Nobody wants to know what it is, nor what is in it.
    #[cfg_attr(not(feature = "artifacts"), expect(dead_code, reason = "a whole tree leaves out nothing"))]
    LeaveOut,
}

/// What a tree has at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State<'t> {
    Absent,
    /// A file or a link.
    Leaf(&'t Leaf),
    /// A directory, empty or not.
    Directory,
    Unknown,
}

impl Tree {
    /// Looks at everything beneath `root`, and hashes every file.
    ///
    /// # Errors
    /// Those of [`Root::walk`] at its start. What cannot be read later is reported as refused.
    ///
    /// # Races
    /// Each entry was there at some moment of the call. A file that is written meanwhile may have the hash of a mix.
    ///
    /// ```
    /// use beneath::tree::{Leaf, Tree, TreeLimits};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("a", "hello")?;
    /// root.ensure_dir("empty")?;
    /// let tree = Tree::take(&root, TreeLimits::default())?;
    /// assert!(tree.is_complete());
    /// let leaves: Vec<_> = tree.iter().collect();
    /// assert!(matches!(leaves[0].1, Leaf::File { bytes: 5, .. }));
    /// assert!(matches!(leaves[1].1, Leaf::Directory));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take(root: &Root, limits: TreeLimits) -> Result<Self> {
        Self::take_by(root, limits, |path, entry, max_bytes| {
            Leaf::look(root, path.as_path(), entry.metadata().file_type(), max_bytes).map(Looked::Leaf)
        })
    }

    /// As [`take`](Self::take), with what `look` says of an entry that may have so many bytes.
    pub(crate) fn take_by(
        root: &Root,
        limits: TreeLimits,
        mut look: impl FnMut(&GuestPath, &Entry, u64) -> Result<Looked>,
    ) -> Result<Self> {
        let mut tree = Self::default();
        let mut walk = root.walk(".", limits.walk())?;
        let mut room = limits.bytes;
        let mut directories = Vec::new();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let subject = error.subject().unwrap_or("".as_ref()).to_path_buf();
                    tree.refuse(&subject, error);
                    continue;
                }
            };
            let path = match GuestPath::new(entry.path()) {
                Ok(path) => path,
                Err(error) => {
                    tree.refuse(entry.path(), error);
                    continue;
                }
            };
            match look(&path, &entry, limits.file_bytes.min(room)) {
                Ok(Looked::Nothing) => {}
                Ok(Looked::LeaveOut) => {
                    walk.skip_dir();
                    tree.add_unknown(path);
                }
                Ok(Looked::Leaf(Leaf::Directory)) => directories.push(path),
                Ok(Looked::Leaf(leaf)) => {
                    room = room.saturating_sub(leaf.size());
                    tree.add(path, leaf);
                }
                // It went away meanwhile, as if it had never been seen.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => tree.refuse(path.as_path(), error),
            }
        }
        tree.cut |= walk.truncated();
        for path in directories.into_iter().rev() {
            if !tree.inner.contains(&path) && !tree.unknown.contains(&path) {
                tree.add(path, Leaf::Directory);
            }
        }
        Ok(tree)
    }

    /// The leaves, in the order of their paths' bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&GuestPath, &Leaf)> {
        self.leaves.iter()
    }

    /// How many leaves there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Whether everything that is there is part of it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.cut && self.left.is_empty()
    }

    /// What is there and not part of it, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }

    /// What is there and not part of it, by its path.
    pub fn left(&self) -> &Leftovers {
        &self.left
    }

    pub(crate) fn add(&mut self, path: GuestPath, leaf: Leaf) {
        self.enclose(&path);
        self.leaves.insert(path, leaf);
    }

    /// Whether `path` can be added without a leaf above or beneath it.
    pub(crate) fn has_room(&self, path: &GuestPath) -> bool {
        !self.inner.contains(path)
            && std::iter::successors(path.parent(), GuestPath::parent)
                .all(|above| !self.leaves.contains_key(&above))
    }

    /// Notes that what is at `path` is not part of it, and why.
    pub(crate) fn refuse(&mut self, path: &Path, error: Error) {
        match GuestPath::new(path) {
            Ok(path) if !path.is_top() => self.add_unknown(path),
            // What the top contains is not known, or has no path.
            _ => self.cut = true,
        }
        self.left.add(path, error);
    }

    /// Notes that nobody knows what is at `path` and beneath it.
    pub(crate) fn add_unknown(&mut self, path: GuestPath) {
        self.enclose(&path);
        self.unknown.insert(path);
    }

    /// Has a loss measured by what there was, too.
    #[cfg(feature = "artifacts")]
    pub(crate) fn with_reference(self, reference: Option<Leaves>) -> Self {
        Self { reference, ..self }
    }

    /// What is at `path`, if that is a leaf.
    #[cfg(feature = "artifacts")]
    pub(crate) fn get(&self, path: &GuestPath) -> Option<&Leaf> {
        self.leaves.get(path)
    }

    /// Notes that what is in none of its parts may be there all the same.
    #[cfg(feature = "artifacts")]
    pub(crate) fn cut_off(&mut self) {
        self.cut = true;
    }

    /// Whether there is a directory at `path`, empty or not.
    #[cfg(feature = "artifacts")]
    pub(crate) fn is_directory(&self, path: &GuestPath) -> bool {
        self.state(path) == State::Directory
    }

    /// Whether nobody knows what is at `path`.
    #[cfg(feature = "artifacts")]
    pub(crate) fn is_unknown(&self, path: &GuestPath) -> bool {
        self.state(path) == State::Unknown
    }

    /// Whether it is known that nothing is at `path`.
    #[cfg(feature = "artifacts")]
    pub(crate) fn is_absent(&self, path: &GuestPath) -> bool {
        self.state(path) == State::Absent
    }

    /// The file or link above `path`, if there is one.
    #[cfg(feature = "artifacts")]
    pub(crate) fn file_above(&self, path: &GuestPath) -> Option<GuestPath> {
        let mut above = std::iter::successors(path.parent(), GuestPath::parent);
        above.find(|above| matches!(self.state(above), State::Leaf(_)))
    }

    #[cfg(feature = "artifacts")]
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut
    }

    /// Notes the directories above `path`.
    fn enclose(&mut self, path: &GuestPath) {
        let above = std::iter::successors(path.parent(), GuestPath::parent);
        for directory in above.take_while(|directory| !directory.is_top()) {
            if !self.inner.insert(directory) {
                break;
            }
        }
    }

    pub(super) fn state(&self, path: &GuestPath) -> State<'_> {
        match self.leaves.get(path) {
            Some(Leaf::Directory) => return State::Directory,
            Some(leaf) => return State::Leaf(leaf),
            None if self.inner.contains(path) && !self.unknown.contains(path) => return State::Directory,
            None => {}
        }
        let mut upwards = std::iter::successors(Some(path.clone()), GuestPath::parent);
        match self.cut || upwards.any(|above| self.unknown.contains(&above)) {
            true => State::Unknown,
            false => State::Absent,
        }
    }

    /// Whether the directory `path` contains something that is not known, or a leaf that is not `freed`.
    pub(crate) fn is_in_use(&self, path: &GuestPath, freed: &BTreeSet<&GuestPath>) -> bool {
        if !self.inner.contains(path) {
            return false;
        }
        // In the order of bytes they follow `path`, but not at once: `t-1` is between `t` and `t/a`.
        let near = |other: &&GuestPath| other.as_bytes().starts_with(path.as_bytes());
        let mut leaves = self.leaves.range(path..).map(|(leaf, _)| leaf).take_while(near);
        let mut unknown = self.unknown.range(path..).take_while(near);
        self.cut
            || leaves.any(|leaf| leaf.starts_with(path) && !freed.contains(leaf))
            || unknown.any(|unknown| unknown.starts_with(path))
    }

    /// Whether the directory `path` is itself a leaf, and so empty.
    pub(super) fn is_empty_directory(&self, path: &GuestPath) -> bool {
        self.leaves.get(path) == Some(&Leaf::Directory)
    }
}
