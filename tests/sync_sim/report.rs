//! What a call says that it did, by whichever rules.

use std::collections::BTreeSet;

use beneath::artifacts::{Approval, SyncReport};

use crate::disk::Name;

/// What a call says that it did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) complete: bool,
    pub(crate) conflicts: BTreeSet<Name>,
    /// Whether nothing failed and nothing was refused.
    pub(crate) clean: bool,
    pub(crate) refused: u64,
    /// How much was brought from one side to the other.
    pub(crate) done: u64,
    pub(crate) deleted: u64,
    pub(crate) held: Vec<Approval>,
    pub(crate) text: String,
}

impl From<SyncReport> for Report {
    fn from(report: SyncReport) -> Self {
        Self {
            complete: report.is_complete(),
            conflicts: report.conflicts.iter().map(|conflict| conflict.path.as_bytes().to_vec()).collect(),
            clean: report.failed.is_empty() && report.left.is_empty(),
            refused: report.left.total,
            done: report.placed + report.removed + report.uploaded + report.deleted,
            deleted: report.deleted + report.removed,
            held: report.held.iter().map(|held| held.approval).collect(),
            text: format!("{report:?}"),
        }
    }
}
