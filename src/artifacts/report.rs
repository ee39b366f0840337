//! What a call did.

use std::path::Path;

use crate::error::Error;
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::tree::{Approval, Conflict};

/// Where something is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Side {
    /// In the workspace: the store has no such object any more.
    Here,
    /// In the store: the workspace has no such file any more.
    There,
}

/// Deletions that wait for an approval, and, where one side has nothing any more of what both had, replacements.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Held {
    /// Where they would be made.
    pub side: Side,
    /// What would go, or be replaced.
    pub paths: Vec<GuestPath>,
    /// What lets exactly these through, by [`Deletions::Approved`](super::Deletions::Approved).
    pub approval: Approval,
}

/// What a call that brings a workspace and a store together did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "the two sides may still differ"]
#[non_exhaustive]
pub struct SyncReport {
    /// How many objects the store lists.
    ///
    /// None is also what a wrong prefix looks like, of a session that should have objects. A call on an empty prefix is complete if
    /// the workspace is empty, too. If this workspace has had objects there before, nothing is removed from it without
    /// an approval, not even a single file.
    pub listed: u64,
    /// How many files the workspace has got.
    pub placed: u64,
    /// How many files it has lost. They are in the trash of the session.
    pub removed: u64,
    /// How many objects the store has got.
    pub uploaded: u64,
    /// How many objects it has lost.
    pub deleted: u64,
    /// How many objects were put or deleted that the store did not compare in the same step, since it cannot, or is not seen to.
    /// Each was compared right before; what another host puts in between is lost. It does not make a call incomplete.
    pub unconditional: u64,
    /// What both sides have changed. Both versions are kept, and `beside` is the name of the second one.
    pub conflicts: Vec<Conflict>,
    /// Deletions and replacements that were held back.
    pub held: Vec<Held>,
    /// How many objects have arrived and are not published, since others have failed and [`Arrivals::AllOrNothing`] was asked for.
    ///
    /// [`Arrivals::AllOrNothing`]: super::Arrivals::AllOrNothing
    pub withheld: u64,
    /// How many paths differ still, since this call goes in one direction only.
    pub pending: u64,
    /// What may succeed in the next call, and why it did not now, by path.
    pub failed: Leftovers,
    /// What is not brought to the other side however often it is tried: keys of the store, and paths of the workspace.
    pub left: Leftovers,
}

impl SyncReport {
    /// Whether the workspace and the store hold the same files now.
    ///
    /// It is false if anything was refused, failed, held back or is in conflict, and if one side has changes that this call
    /// does not bring to the other. That of [`materialise`](super::Artifacts::materialise) is of its one path alone.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending == 0
            && self.withheld == 0
            && self.conflicts.is_empty()
            && self.held.is_empty()
            && self.failed.is_empty()
            && self.left.is_empty()
    }

    /// What was refused, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }

    /// How many deletions and replacements are held back.
    #[must_use]
    pub fn held_back(&self) -> usize {
        self.held.iter().map(|held| held.paths.len()).sum()
    }
}
