//! Which messages were read in place and cleared, but may not be gone.
//!
//! Problem: a message that the host may not move or remove would be given again and again. A mark by id alone would take
//! the next message of that id for the old one, and so would the number of its inode, which a file system gives again at
//! once.
//!
//! Defence: the mark holds device, inode and time of creation, which no guest can set. What differs in any of them is a new
//! message.
//!
//! Left: where no creation time is recorded, the last change stands in for it. There a guest that touches a cleared message
//! has it given again. So has one that hides it from a sweep and then brings it back; it could as well have sent it anew.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::Session;
use super::layout::{Part, STATE};
use crate::error::{ErrorKind, Result};
use crate::name::MessageId;
use crate::root::Metadata;

/// Host-only: one file for each mark, by message id.
const CLEARED: &str = "cleared";
const LONGEST: u64 = 128;

pub(super) fn put(session: &Session, id: &MessageId, directory: &Metadata) -> Result<()> {
    session.host().ensure_dir(shelf())?;
    session.host().replace(path(id), identity(directory)).map(drop)
}

pub(super) fn remove(session: &Session, id: &MessageId) -> Result<()> {
    session.host().remove_file(path(id))
}

/// Whether this very directory was cleared; it is asked for only if there is a mark.
pub(super) fn matches(
    session: &Session,
    id: &MessageId,
    directory: impl FnOnce() -> Result<Metadata>,
) -> Result<bool> {
    match session.host().read_contained(path(id), LONGEST) {
        Ok(mark) => Ok(mark == identity(&directory()?).as_bytes()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the marks of directories that are gone, or that another one has replaced.
pub(super) fn sweep(session: &Session) -> Result<()> {
    let marks = match session.host().list(shelf()) {
        Ok(marks) => marks,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for mark in marks {
        let mark = mark?;
        let Some(id) = mark.file_name().to_str().and_then(|name| MessageId::from_component(name).ok()) else {
            continue;
        };
        let stale = match session.guest().metadata(Part::Outbox.as_ref().join(&id)) {
            Ok(entry) => !matches(session, &id, || Ok(entry))?,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if stale {
            match remove(session, &id) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

pub(super) fn identity(directory: &Metadata) -> String {
    let (kind, time) = match directory.created() {
        Some(created) => ("created", created),
        None => ("changed", directory.changed()),
    };
    let nanoseconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{} {} {kind} {nanoseconds}", directory.dev(), directory.ino())
}

fn shelf() -> PathBuf {
    Path::new(STATE).join(CLEARED)
}

fn path(id: &MessageId) -> PathBuf {
    shelf().join(id)
}
