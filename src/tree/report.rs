//! What a merge is asked to do, and what it did.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use super::contents::{Tree, TreeLimits};
use super::leaf::{Leaf, unhex};
use super::stored::encode_path;
use crate::entropy::hex;
use crate::error::{Error, ErrorKind};
use crate::name::GuestPath;
use crate::report::Leftovers;

/// What a merge does with what both sides have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The target keeps the name, and the source's version gets a name beside: `name.theirs-8hex.ext`.
    #[default]
    KeepBoth,
    /// The target stays as it is.
    KeepTarget,
    /// The source's version gets the name, and the target's a name beside: `name.ours-8hex.ext`.
    TakeSource,
    /// Nothing is changed at all. What a guest changes after that was decided is treated as by [`KeepBoth`](Self::KeepBoth).
    Fail,
}

/// Whether removals are held back if they are suspiciously many, and replacements if nothing is as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// All are held if they are more than 20 and more than half of the base, or all of two or more. A file that has another
    /// name now does not count.
    ///
    /// If the base has 20 files or more and the source has not one of them with the content that it had, under whatever name, nothing is
    /// replaced either: somebody's work leaves something as it was, and what encrypts or truncates a tree does not. Where that is done
    /// a part at a time, with a merge after each, nothing is held.
    ///
    /// Nothing that comes later ends a hold: from then on the loss is measured by what the base had at that time, too, until
    /// everything is seen and is no such loss any more.
    #[default]
    On,
    /// None is held.
    Off,
    /// As [`On`](Self::On), but what was held once and reported with this approval is let through, if it is still exactly that.
    Approved(Approval),
}

/// Which removals and replacements exactly somebody approves.
///
/// It is made from the paths and the content of what would be lost, and whether something takes its place, so that nothing else is lost
/// by it. What takes its place may be something else by then.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Approval([u8; 32]);

impl Approval {
    /// Of what leaves each path, and whether something takes its place.
    pub(super) fn of<'h>(held: impl Iterator<Item = (&'h GuestPath, Option<&'h Leaf>, bool)>) -> Self {
        let mut lines: Vec<String> = held
            .map(|(path, leaf, replaced)| {
                let (act, leaf) = (u8::from(replaced), leaf.map_or_else(String::new, Leaf::encode));
                format!("{} {act} {leaf}\n", encode_path(path))
            })
            .collect();
        lines.sort_unstable();
        Self(lines.iter().fold(Sha256::new(), |hash, line| hash.chain_update(line)).finalize().into())
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(self.0))
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Approval({self})")
    }
}

impl FromStr for Approval {
    type Err = Error;

    /// Reads back what `Display` has written, for an approval that a person gives later.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) if it is no approval.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = unhex(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| Error::new("approve", text, ErrorKind::InvalidData))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Approval {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How to merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    pub(super) on_conflict: OnConflict,
    pub(super) guard: Guard,
    pub(super) limits: TreeLimits,
}

impl MergeOptions {
    /// Sets what is done with what both sides have changed.
    #[must_use]
    pub fn with_on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Sets whether changes that look like an accident are held back.
    #[must_use]
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Looks at no more than `limits` of each side.
    #[must_use]
    pub fn with_limits(mut self, limits: TreeLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// Why there is a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Why {
    /// Both sides have changed it, each in its own way.
    BothChanged,
    /// The source has removed it, the target has changed it. It stays.
    DeletedThere,
    /// The target has removed it, the source has changed it. It comes back.
    DeletedHere,
    /// It is a directory on one side and something else on the other.
    Kinds,
}

/// What both sides have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Conflict {
    /// Where.
    pub path: GuestPath,
    /// In which way.
    pub why: Why,
    /// The name of the second version, if there are two.
    pub beside: Option<GuestPath>,
}

/// What a merge did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "there may be conflicts, and the base of the next merge is in it"]
#[non_exhaustive]
pub struct Merged {
    /// How many files, links and empty directories the target has got.
    pub written: u64,
    /// How many it has lost. They are in the trash.
    pub removed: u64,
    /// What both sides have changed.
    pub conflicts: Vec<Conflict>,
    /// Removals and replacements that the [`Guard`] has held back.
    pub held: Vec<GuestPath>,
    /// What lets them through, by [`Guard::Approved`].
    pub approval: Option<Approval>,
    /// How many changes of the target the source does not have.
    pub ahead: u64,
    /// How often a name was free for a moment, since the file system cannot exchange.
    pub not_atomic: u64,
    /// What was refused or failed on either side, and why.
    pub left: Leftovers,
    /// The base of the next merge from the same source. It is not serialised: [`Tree::encode`] does that.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub base: Tree,
    /// Whether what would be held was approved.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) approved: bool,
}

impl Merged {
    /// Whether the target has all changes of the source, and no second version of anything.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.held.is_empty() && self.left.is_empty()
    }

    /// What was refused or failed, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}
