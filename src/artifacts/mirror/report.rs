//! What a mirror did.

use std::path::PathBuf;

use crate::error::Error;
use crate::name::SafePath;

/// What became of one file.
#[derive(Debug)]
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
    /// It is nothing that is ever uploaded.
    Refused {
        /// Which, as it is named on disk.
        path: PathBuf,
        /// Why.
        error: Error,
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
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MirrorReport {
    /// One outcome per file that was looked at; files known to be unchanged are not. Of what the walk of the workspace
    /// refused, the first 1,000.
    pub outcomes: Vec<Mirrored>,
    /// How much was refused in all.
    pub refused: u64,
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

    /// Whether nothing failed and nothing is in conflict.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self
            .outcomes
            .iter()
            .any(|outcome| matches!(outcome, Mirrored::Failed { .. } | Mirrored::Conflict { .. }))
    }
}
