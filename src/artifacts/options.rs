//! What a caller decides about what both sides have changed, and about deletions.

use super::report::SyncReport;
use crate::tree::{Approval, Guard, Hashing, Measure, OnConflict};

/// Whose version keeps the name of a file that both sides have changed. The other version gets a name beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// That of the workspace; the store's version comes as `name.theirs-8hex.ext`.
    #[default]
    Local,
    /// That of the store; the workspace's version becomes `name.ours-8hex.ext`.
    Remote,
}

/// What is done about files and objects that the other side has deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deletions {
    /// They stay, and are reported as held.
    Keep,
    /// They are deleted here, too, unless they are suspiciously many, or may only have moved to where nobody has looked. Then all
    /// are held and reported.
    ///
    /// If one side has nothing any more of 20 files or more that both had, as after an encryption, nothing is replaced on the other side
    /// either: see [`Guard::On`](crate::tree::Guard::On).
    #[default]
    Guarded,
    /// As [`Guarded`](Self::Guarded), but what was held and reported with this approval is deleted, if it is still exactly that.
    Approved(Approval),
}

/// What a call does with the objects that have arrived, if others have failed for reasons that may pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// They are published. The next call brings the others.
    #[default]
    Partial,
    /// Nothing is published, and nothing is uploaded. What has arrived waits in staging for the next call.
    AllOrNothing,
}

/// Whether a call looks at the store before it changes anything there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remote {
    /// The store is listed.
    #[default]
    List,
    /// The store is taken for what this host left there: for a prefix that nobody else writes to. A mirror without changes
    /// then sends no request at all.
    ///
    /// What has changed is put and deleted on the condition that the object is still the one that is known, so another host's
    /// object is not overwritten. But what the store has lost, or has got from others, is not seen: complete
    /// then means that the workspace holds what the store was left with. The store is listed all the same if the last call was not
    /// complete or was cut off, and where there is no base. Only [`mirror`](super::Artifacts::mirror) makes use of it.
    Trust,
}

/// How a workspace and a store are brought together.
///
/// ```
/// use beneath::artifacts::{Deletions, Prefer, SyncOptions};
///
/// let options = SyncOptions::default().with_prefer(Prefer::Remote).with_deletions(Deletions::Keep);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncOptions {
    pub(crate) prefer: Prefer,
    pub(crate) deletions: Deletions,
    pub(crate) hashing: Hashing,
    pub(crate) arrivals: Arrivals,
    pub(crate) remote: Remote,
}

impl Default for SyncOptions {
    /// The workspace's version keeps the name, deletions are guarded, files with a known stamp are not read, what has arrived is
    /// published, the store is listed.
    fn default() -> Self {
        Self {
            prefer: Prefer::default(),
            deletions: Deletions::default(),
            hashing: Hashing::Never,
            arrivals: Arrivals::default(),
            remote: Remote::default(),
        }
    }
}

impl SyncOptions {
    /// Sets whose version keeps the name of what both sides have changed.
    #[must_use]
    pub fn with_prefer(mut self, prefer: Prefer) -> Self {
        self.prefer = prefer;
        self
    }

    /// Sets what is done about deletions.
    #[must_use]
    pub fn with_deletions(mut self, deletions: Deletions) -> Self {
        self.deletions = deletions;
        self
    }

    /// Sets whether every file is read: for guests that write through mappings, which may leave no stamp.
    #[must_use]
    pub fn with_hashing(mut self, hashing: Hashing) -> Self {
        self.hashing = hashing;
        self
    }

    /// Sets what becomes of the objects that have arrived, if others have failed. An object that is refused is not one that has
    /// failed: it would be refused again.
    #[must_use]
    pub fn with_arrivals(mut self, arrivals: Arrivals) -> Self {
        self.arrivals = arrivals;
        self
    }

    /// Sets whether a mirror lists the store.
    #[must_use]
    pub fn with_remote(mut self, remote: Remote) -> Self {
        self.remote = remote;
        self
    }

    /// Whether nothing is published after the failures of this report.
    pub(crate) fn withholds(&self, report: &SyncReport) -> bool {
        self.arrivals == Arrivals::AllOrNothing && !report.failed.is_empty()
    }

    /// How a guard measures what the other side has lost.
    pub(crate) fn measure(&self) -> Measure<'static> {
        Measure { waiting: &[], keeps: self.deletions == Deletions::Keep, fewest: 2 }
    }

    pub(crate) fn guard(&self) -> Guard {
        match self.deletions {
            Deletions::Keep | Deletions::Guarded => Guard::On,
            Deletions::Approved(approval) => Guard::Approved(approval),
        }
    }

    pub(crate) fn on_conflict(&self) -> OnConflict {
        match self.prefer {
            Prefer::Local => OnConflict::KeepBoth,
            Prefer::Remote => OnConflict::TakeSource,
        }
    }
}
