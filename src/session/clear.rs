//! Removing entries of the inbox and outbox, whatever the guest has made of them.

use std::path::Path;
use std::time::{Duration, Instant};

use super::layout::{Part, TRASH};
use super::retire::{Swept, age};
use super::{Session, event};
use crate::error::{ErrorKind, Result};
use crate::root::{Budget, Removed};

/// When the time for a whole job is over, of which each removal is a part.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    start: Instant,
    budget: Budget,
}

impl Deadline {
    pub(super) fn new(budget: Budget) -> Self {
        Self { start: Instant::now(), budget }
    }

    /// What is left for the next removal; `None` if the time is over.
    pub(super) fn left(&self) -> Option<Budget> {
        let left = self.budget.time().checked_sub(self.start.elapsed())?;
        (!left.is_zero()).then(|| self.budget.with_time(left))
    }
}

/// Removes one entry of a part, whatever it is.
pub(super) fn remove_entry(session: &Session, part: Part, name: &Path) -> Result<Removed> {
    remove_entry_within(session, part, name, session.config().budget())
}

fn remove_entry_within(session: &Session, part: Part, name: &Path, budget: Budget) -> Result<Removed> {
    let path = part.as_ref().join(name);
    let trash = session.host().descend(TRASH)?;
    let removed = match session.guest().remove_tree_quarantined(&path, &trash, budget) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Removed::all()),
        // Either the entry or the part itself is a link; the second is refused again.
        Err(error) if matches!(error.kind(), ErrorKind::Symlink | ErrorKind::NotDirectory) => {
            session.guest().remove_file(&path).map(|()| Removed { files: 1, ..Removed::all() })
        }
        result => result,
    }?;
    event::left_behind("clear", &removed);
    Ok(removed)
}

/// Removes the entries of a part that are older than `limit`, within the config's budget.
pub(super) fn sweep_part(session: &Session, part: Part, limit: Duration) -> Result<Swept> {
    let mut swept = Swept::default();
    sweep_until(session, part, limit, Deadline::new(session.config().budget()), &mut swept)?;
    Ok(swept)
}

/// Removes the entries of a part that are older than `limit`, until the deadline. A guest can make any number of
/// them, so even looking at them ends there.
pub(super) fn sweep_until(
    session: &Session,
    part: Part,
    limit: Duration,
    deadline: Deadline,
    swept: &mut Swept,
) -> Result<()> {
    let entries = match session.guest().list(part) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let Some(budget) = deadline.left() else {
            swept.out_of_time = true;
            return Ok(());
        };
        let entry = entry?;
        if age(entry.metadata()) < limit {
            swept.kept += 1;
        } else {
            swept.record(entry.path(), remove_entry_within(session, part, entry.path(), budget));
        }
    }
    Ok(())
}
