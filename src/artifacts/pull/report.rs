//! What a restore did.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use super::plan::Refusal;
use crate::error::Error;
use crate::name::SafePath;
use crate::report::Leftovers;

/// What became of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "the object may have failed"]
#[non_exhaustive]
pub enum Restored {
    /// It is in the workspace.
    Placed {
        /// Where.
        path: SafePath,
        /// Its size.
        bytes: u64,
    },
    /// What was in the workspace stays, by policy.
    Kept {
        /// Where.
        path: SafePath,
    },
    /// It has arrived and waits in staging for those that failed.
    Waiting {
        /// Where it will be.
        path: SafePath,
    },
    /// It did not come in this time.
    Failed {
        /// Where it should be.
        path: SafePath,
        /// Why.
        error: Error,
    },
}

/// How a restore ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Ended {
    /// Every object that can come in is there. Others may have been refused: see [`RestoreReport::is_complete`].
    Complete,
    /// Some objects failed. The next call goes on from here.
    ///
    /// Unless the failures came while publishing, the workspace is untouched.
    Incomplete,
    /// An earlier restore was complete, and the policy is [`OnLocal::ColdStart`](crate::artifacts::OnLocal::ColdStart).
    AlreadyRestored,
    /// The workspace is in use, and the policy is [`OnLocal::ColdStart`](crate::artifacts::OnLocal::ColdStart).
    NotCold,
    /// Files are in the way, and the policy is [`OnLocal::Fail`](crate::artifacts::OnLocal::Fail); nothing was written.
    Conflict,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a restore may be incomplete"]
#[non_exhaustive]
pub struct RestoreReport {
    /// How it ended.
    pub ended: Ended,
    /// Whether it finished an interrupted restore. The outcomes are then those of the objects that were fetched, and of what
    /// the interrupted call had refused only the number is known.
    pub resumed: bool,
    /// One outcome for each object that was not refused.
    pub outcomes: Vec<Restored>,
    /// What does not come in however often it is tried, by its key as the store lists it.
    pub left: Leftovers,
}

impl RestoreReport {
    pub(super) fn empty(ended: Ended) -> Self {
        Self { ended, resumed: false, outcomes: Vec::new(), left: Leftovers::default() }
    }

    /// Whether this call brought in every object that the store lists, or found a file that the policy keeps.
    ///
    /// It is false if anything was refused or failed, and for a call that did nothing because of its policy.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended == Ended::Complete && self.left.is_empty() && self.failed().next().is_none()
    }

    /// How many objects are in the workspace.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, Restored::Placed { .. })).count()
    }

    /// The objects that were refused, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }

    /// The objects that failed.
    pub fn failed(&self) -> impl Iterator<Item = (&SafePath, &Error)> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Restored::Failed { path, error } => Some((path, error)),
            _ => None,
        })
    }
}

/// Refusals by their keys.
pub(super) fn left(refused: impl IntoIterator<Item = Refusal>) -> Leftovers {
    let mut left = Leftovers::default();
    for Refusal { raw, error } in refused {
        left.add(OsString::from_vec(raw), error);
    }
    left
}
