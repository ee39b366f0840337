//! Removing entries of the inbox and outbox, whatever the guest has made of them.

use std::path::Path;
use std::time::{Duration, Instant};

use super::layout::{Part, TRASH};
use super::retire::{Swept, age};
use super::{Session, event};
use crate::error::{ErrorKind, Result};
use crate::root::Removed;

/// Removes one entry of a part, whatever it is.
pub(super) fn remove_entry(session: &Session, part: Part, name: &Path) -> Result<Removed> {
    let path = part.as_ref().join(name);
    let trash = session.host().descend(TRASH)?;
    let removed = match session.guest().remove_tree_quarantined(&path, &trash, session.config().budget()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Removed { complete: true, ..Removed::default() })
        }
        // Either the entry or the part itself is a link; the second is refused again.
        Err(error) if matches!(error.kind(), ErrorKind::Symlink | ErrorKind::NotDirectory) => session
            .guest()
            .remove_file(&path)
            .map(|()| Removed { files: 1, complete: true, ..Removed::default() }),
        result => result,
    }?;
    event::left_behind("clear", &removed);
    Ok(removed)
}

/// Removes the entries of a part that are older than `limit`. Starts on none once the budget's time is over, since a guest
/// can make any number of them.
pub(super) fn sweep_part(session: &Session, part: Part, limit: Duration) -> Result<Swept> {
    let mut swept = Swept::default();
    let entries = match session.guest().list(part) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(swept),
        Err(error) => return Err(error),
    };
    let start = Instant::now();
    for entry in entries {
        let entry = entry?;
        if age(entry.metadata()) < limit || start.elapsed() >= session.config().budget().time() {
            swept.kept += 1;
        } else {
            swept.record(entry.path(), remove_entry(session, part, entry.path()));
        }
    }
    Ok(swept)
}
