//! The report of every call that lists something a guest may have filled.

use std::path::Path;

use crate::error::Error;
use crate::report::Leftovers;

/// What a place contains: the messages of an [outbox](super::Outbox::messages), those that are
/// [pending](super::Outbox::pending), the entries of a directory of the
/// [workspace](super::Workspace::list), what a message holds [besides the declared files](super::Claim::undeclared).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a list may be incomplete"]
#[non_exhaustive]
pub struct Listing<T> {
    /// What was found, in the order that the call promises.
    pub entries: Vec<T>,
    /// What was there and is not in the list, and why.
    pub refused: Leftovers,
    /// Whether a limit cut something off.
    pub truncated: bool,
    /// How many there are, in the list or not, so far as the call has looked.
    pub total: u64,
}

impl<T> Listing<T> {
    /// Whether the list is all that was asked for: nothing was refused, and no limit cut off what follows. What an offset or a
    /// filter leaves out was not asked for.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && !self.truncated
    }

    /// What is not in the list, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), refused: Leftovers::default(), truncated: false, total: 0 }
    }
}
