//! What a copy of a tree may take, and what it has done.

use std::path::Path;

use crate::error::Error;
use crate::report::Leftovers;
use crate::root::WalkLimits;

/// Bounds of a [`copy_tree`](crate::Root::copy_tree), and what the copy looks like.
///
/// By default at most a million entries, 64 levels, 64 GiB in all and 8 GiB a file are copied, to a name that must be free, and
/// with the modes that the policy gives.
///
/// ```
/// use beneath::{TreeOptions, WalkLimits};
///
/// let options = TreeOptions::default()
///     .with_walk(WalkLimits::default().with_entries(10_000))
///     .with_bytes(1 << 30)
///     .keep_modes();
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    pub(super) walk: WalkLimits,
    pub(super) bytes: u64,
    pub(super) file_bytes: u64,
    pub(super) modes: Modes,
    pub(super) existing: Existing,
}

/// Where the permission bits of the copy come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modes {
    Policy,
    Source,
}

/// What happens where something is at the name of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    Refuse,
    Keep,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            walk: WalkLimits::default(),
            bytes: 64 << 30,
            file_bytes: 8 << 30,
            modes: Modes::Policy,
            existing: Existing::Refuse,
        }
    }
}

impl TreeOptions {
    /// Bounds the number of entries and the depth. Each level takes three descriptors.
    #[must_use]
    pub const fn with_walk(mut self, limits: WalkLimits) -> Self {
        self.walk = limits;
        self
    }

    /// Copies at most `bytes` in all; a file that is too large for the rest is refused.
    #[must_use]
    pub const fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Refuses files of more than `bytes`.
    #[must_use]
    pub const fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Gives files and directories the permission bits of their source instead of the policy's. Set-id and sticky bits are not
    /// copied, nor are access control lists: where the source has one, the bits of the group are what the list may grant. A
    /// directory that was there keeps its mode, unless it is the policy's, as a call that was cut off leaves it.
    #[must_use]
    pub const fn keep_modes(mut self) -> Self {
        self.modes = Modes::Source;
        self
    }

    /// Copies into directories that are there, so that a copy that was cut off can be continued.
    ///
    /// Nothing that is there is replaced. A file of the same content and a link of the same text count as
    /// [`present`](CopiedTree::present), whatever mode they have; anything else in the way is refused, and so is a second name of
    /// this copy that the file system takes for the first. What is compared counts against the bytes of [`with_bytes`](Self::with_bytes).
    #[must_use]
    pub const fn into_existing(mut self) -> Self {
        self.existing = Existing::Keep;
        self
    }
}

/// What a [`copy_tree`](crate::Root::copy_tree) has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "something may not have been copied"]
#[non_exhaustive]
pub struct CopiedTree {
    /// Regular files that were copied.
    pub files: u64,
    /// Directories that were made, the top among them.
    pub directories: u64,
    /// Links that were made.
    pub links: u64,
    /// Bytes in the files that were copied.
    pub bytes: u64,
    /// Files and links that were there already; see [`TreeOptions::into_existing`].
    pub present: u64,
    /// What was not copied, by its path in the tree.
    pub left: Leftovers,
}

impl CopiedTree {
    /// Whether everything that was met is in the copy, or counts as [`present`](Self::present) there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// What was not copied, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}
