//! What a mirror did.

use std::path::Path;

use crate::error::Error;
use crate::name::SafePath;
use crate::report::Leftovers;

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Mirrored {
    /// The store holds it now.
    Uploaded {
        /// Which.
        path: SafePath,
        /// Its size.
        bytes: u64,
    },
    /// The store held the same content already.
    Unchanged {
        /// Which.
        path: SafePath,
    },
    /// The object is gone, as the file is.
    Deleted {
        /// Which.
        path: SafePath,
    },
    /// The store holds what another host has put there; the file was not uploaded.
    Conflict {
        /// Which.
        path: SafePath,
    },
    /// It did not work this time.
    Failed {
        /// Which.
        path: SafePath,
        /// Why.
        error: Error,
    },
}

/// What a mirror did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a mirror may be incomplete"]
#[non_exhaustive]
pub struct MirrorReport {
    /// One outcome for each file that was looked at and not refused; files known to be unchanged are not looked at.
    pub outcomes: Vec<Mirrored>,
    /// What is never uploaded as it is, by its path as it is named on disk: links, special files, files with several names,
    /// names that are no [`SafePath`], and what is over a limit.
    pub left: Leftovers,
}

impl MirrorReport {
    /// How many files were uploaded.
    #[must_use]
    pub fn uploaded(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, Mirrored::Uploaded { .. })).count()
    }

    /// How many objects were deleted.
    #[must_use]
    pub fn deleted(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, Mirrored::Deleted { .. })).count()
    }

    /// The paths that another host has changed.
    pub fn conflicts(&self) -> impl Iterator<Item = &SafePath> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Mirrored::Conflict { path } => Some(path),
            _ => None,
        })
    }

    /// Whether nothing was refused, nothing failed and nothing is in conflict.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let stays =
            |outcome: &Mirrored| matches!(outcome, Mirrored::Failed { .. } | Mirrored::Conflict { .. });
        self.left.is_empty() && !self.outcomes.iter().any(stays)
    }

    /// What was refused, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }

    /// The files that failed.
    pub fn failed(&self) -> impl Iterator<Item = (&SafePath, &Error)> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Mirrored::Failed { path, error } => Some((path, error)),
            _ => None,
        })
    }
}
