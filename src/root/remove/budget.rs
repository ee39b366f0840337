//! How much a removal may do, and what it did.

use std::path::Path;
use std::time::Duration;

use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::report::Leftovers;

/// Bounds on a removal, so that a guest that keeps creating cannot keep the host.
///
/// What is bounded is the number of calls to the kernel and the time between them: the clock is read for each entry, and
/// once the time is over nothing further begins. How long a single call takes, nothing in a process can bound:
/// - A guest task inside one large `write` holds the lock of that file, and `unlink` and `rename` wait for it, also in
///   another session on the same file system, also after the guest was killed.
/// - A file system that the guest serves itself (FUSE), or a page fault that it handles (userfaultfd), may never answer.
///
/// So give each session a file system of its own, give guests neither FUSE nor userfaultfd, remove after the guest is
/// dead, and remove on a thread that you can afford to lose.
///
/// Where directories cannot be moved (without the key of an encrypted tree, with a project id for each level, in the lower
/// layer of an overlay) the removal has to reach the bottom of the tree before anything goes. There a budget of fewer
/// entries than levels, or too little time to go through them, makes no progress however often it is given.
///
/// ```
/// use std::time::Duration;
///
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// root.ensure_dir("job/a/b")?;
/// let little = beneath::Budget::default().with_entries(1).with_time(Duration::from_secs(1));
/// assert!(!root.remove_tree_contained_within("job", little)?.is_complete());
/// assert!(root.remove_tree_contained("job")?.is_complete());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub(in crate::root) entries: u64,
    pub(in crate::root) passes: u32,
    pub(in crate::root) time: Duration,
}

impl Default for Budget {
    /// Any number of entries, 1,024 further passes, five minutes.
    fn default() -> Self {
        Self::unlimited().with_passes(1024).with_time(Duration::from_secs(300))
    }
}

impl Budget {
    /// No bound at all. A guest that creates faster than this removes keeps it going for ever.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { entries: u64::MAX, passes: u32::MAX, time: Duration::MAX }
    }

    /// Stops after `entries` entries were dealt with.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Stops after `passes` directories had to be gone through once more because they had filled again, or had changed in
    /// another way.
    #[must_use]
    pub fn with_passes(mut self, passes: u32) -> Self {
        self.passes = passes;
        self
    }

    /// How long it may take.
    #[cfg(feature = "session")]
    pub(crate) fn time(self) -> Duration {
        self.time
    }

    /// Begins nothing further after `time`; see above for what this does not bound.
    #[must_use]
    pub fn with_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }
}

/// What a removal did.
///
/// Nothing that a removal does helps against a read-only subvolume of btrfs, which a guest without privileges can make
/// inside its tree: it stays with all that is in it, reported once with the kind of a read-only file system. The owner or root
/// clears the flag with `btrfs property set <path> ro false`; the next removal takes it away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a removal may be incomplete"]
#[non_exhaustive]
pub struct Removed {
    /// How many entries other than directories are gone.
    pub files: u64,
    /// How many directories are gone, the top included.
    pub directories: u64,
    /// What is known to have stayed, by its path relative to the top, which is empty for the top itself. For what is too deep
    /// for a path of the kernel's it is the lowest directory around it that a path reaches. The kind is
    /// [`Busy`](ErrorKind::Busy) if the budget ran out.
    pub left: Leftovers,
    pub(crate) complete: bool,
}

impl Removed {
    /// Nothing is there any more.
    #[cfg(feature = "session")]
    pub(crate) fn all() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// The top stayed, for this reason.
    pub(crate) fn nothing(error: Error) -> Self {
        Self { left: Leftovers::one("", error), ..Self::default() }
    }

    /// Whether the top itself is gone, and so everything in it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// What stayed, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}
