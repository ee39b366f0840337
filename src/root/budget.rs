//! How much a removal may do, and what it did.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::ErrorKind;

/// Bounds on a removal, so that a guest that keeps creating cannot keep the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub(super) entries: u64,
    pub(super) passes: u32,
    pub(super) time: Duration,
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

    /// Stops after `passes` directories had to be gone through once more because they had filled again.
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

    /// Stops after `time`.
    #[must_use]
    pub fn with_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }
}

/// What a removal did.
#[derive(Clone, Debug, Default)]
#[must_use = "a removal may be incomplete"]
#[non_exhaustive]
pub struct Removed {
    /// How many entries other than directories are gone.
    pub files: u64,
    /// How many directories are gone, the top included.
    pub directories: u64,
    /// Whether the top itself is gone.
    pub complete: bool,
    /// What stayed and why; no more than the first few.
    pub left: Vec<Left>,
    /// How many entries are known to have stayed.
    pub left_total: u64,
}

/// Something a removal could not remove.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Where it is, relative to the top; empty for the top itself.
    pub path: PathBuf,
    /// Why it is still there; [`Busy`](ErrorKind::Busy) if the budget ran out.
    pub kind: ErrorKind,
}
