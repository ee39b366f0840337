//! What a restore is asked to do, and what it tells.

use super::plan::Refusal;
use crate::error::Error;
use crate::name::SafePath;

/// What became of one object.
#[derive(Debug)]
#[non_exhaustive]
pub enum Restored {
    /// It is in the workspace.
    Placed {
        /// Where.
        path: SafePath,
        /// Its size.
        bytes: u64,
    },
    /// What was in the workspace stands, by policy.
    Kept {
        /// Where.
        path: SafePath,
    },
    /// It has arrived and waits in staging for those that failed.
    Waiting {
        /// Where it will be.
        path: SafePath,
    },
    /// It does not come in, however often it is tried.
    Refused {
        /// Its key, as the store lists it.
        key: Vec<u8>,
        /// Why.
        error: Error,
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
#[non_exhaustive]
pub enum Ended {
    /// Every object that can come in is there.
    Complete,
    /// Some objects failed. The next call goes on from here.
    ///
    /// Unless the failures came while publishing, the workspace is untouched.
    Incomplete,
    /// An earlier restore was complete, and the policy is [`OnLocal::ColdStart`].
    AlreadyRestored,
    /// The workspace is in use, and the policy is [`OnLocal::ColdStart`].
    NotCold,
    /// Files are in the way, and the policy is [`OnLocal::Fail`]; nothing was written.
    Conflict,
}

/// What a restore did.
#[derive(Debug)]
#[non_exhaustive]
pub struct RestoreReport {
    /// How it ended.
    pub ended: Ended,
    /// Whether it finished an interrupted restore. The outcomes are then those of the objects that were fetched.
    pub resumed: bool,
    /// One outcome per object.
    pub outcomes: Vec<Restored>,
}

impl RestoreReport {
    pub(super) fn empty(ended: Ended) -> Self {
        Self { ended, resumed: false, outcomes: Vec::new() }
    }

    /// How many objects are in the workspace.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, Restored::Placed { .. })).count()
    }

    /// The objects that were refused.
    pub fn refused(&self) -> impl Iterator<Item = (&[u8], &Error)> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Restored::Refused { key, error } => Some((key.as_slice(), error)),
            _ => None,
        })
    }

    /// The objects that failed.
    pub fn failed(&self) -> impl Iterator<Item = (&SafePath, &Error)> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Restored::Failed { path, error } => Some((path, error)),
            _ => None,
        })
    }
}

impl From<Refusal> for Restored {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { key: refusal.raw, error: refusal.error }
    }
}
