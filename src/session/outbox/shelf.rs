//! Claims on the disk.
//!
//! Problem: the host may die before each step, a guest may use an id again while an earlier message of that id is still
//! being sent, and another worker's claim must never be taken for one's own.
//!
//! Defence: each claim has a directory of its own among the claims, named by a ticket that is fresh and unguessable.
//! Its content says how far the claim has come:
//!
//! | on disk | meaning | after a crash |
//! |---|---|---|
//! | `outbox/<id>/` | the guest has sent it | claimed by the next turn |
//! | `claimed/<ticket>/`, empty | a claim has begun, nothing was taken | removed by the next turn |
//! | `claimed/<ticket>/<id>/` | claimed | pending |
//! | `claimed/<ticket>/<id>`, a file, and `outbox/.beneath-<ticket>/` | claimed in place | pending |
//! | `claimed/<ticket>/<id>`, a file, alone | nothing was taken, or the guest has removed it | removed after a minute |
//! | `trash/<ticket>`, with or without `outbox/.beneath-<ticket>/` | cleared | removed by the sweep |
//! | `outbox/.beneath-<ticket>`, alone | the guest's own, or left by a sweep that was cut short | reported, and removed by the sweep |
//!
//! Each step from one row to the next is one rename or the creation of one entry, and only a rename that succeeded makes a claim.
//! The ticket never changes, so a record of tickets says what was sent, however often an id is used. The name has the
//! number of attempts at its end from the second one on: `<ticket>.2`.
//!
//! In place means under another name in the outbox. That takes the right to write to `outbox` and nothing else, not even
//! to the message itself, whose parent stays the same. The guest sees that name, and can take the message back or
//! remove it; it cannot pass another message off under a ticket that it did not see there.
//!
//! What remains: a guest that moves a message in place back to its id has sent it once more, as it could have by a copy.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::claim::{Claim, Place};
use super::slot::Slot;
use super::ticket::Ticket;
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::root::{Entry, FileType, Root};
use crate::session::event;
use crate::session::handle::Session;
use crate::session::handle::parts::{CLAIMED, Part, TRASH};
use crate::session::sweep::age;

/// How often a claim begins anew because somebody tidied its empty directory away.
const TRIES: u32 = 16;
/// How long a claim may take from its empty directory to the message in it, where other workers may be at work.
pub(super) const BEGUN: Duration = Duration::from_secs(60);
/// The longest note of a claim in place.
const NOTE: u64 = 32;

/// Takes a message.
pub(super) fn take(session: &Session, id: &MessageId) -> Result<Option<Claim>> {
    let there = Part::Outbox.as_ref().join(id);
    for _ in 0..TRIES {
        let slot = Slot::new()?;
        let shelf = make(session, &slot)?;
        let failed = match session.guest().move_to(&there, &shelf, id) {
            Ok(synced) => return moved(session, &slot, &shelf, id, synced),
            Err(error) => error,
        };
        let why = failed.kind();
        let noted = match why {
            // The note comes first, so that a message that has left its name is known.
            ErrorKind::CrossDevice | ErrorKind::Denied | ErrorKind::Unsupported => {
                shelf.write_exclusive(id, format!("{why:?}"))
            }
            _ => Err(failed),
        };
        let Err(error) = noted else { return take_in_place(session, &slot, id, why) };
        // If not the message but the place for it was missing, somebody has tidied the empty directory away.
        let tidied = slot.remove(session).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        match error.kind() {
            ErrorKind::NotFound if tidied => {}
            ErrorKind::NotFound => return Ok(None),
            _ => return Err(error.about(there)),
        }
    }
    Err(Error::new("claim", there, ErrorKind::Busy))
}

fn make(session: &Session, slot: &Slot) -> Result<Root> {
    match session.claimed()?.ensure_and_descend(slot.name()) {
        // Somebody has emptied the host's side.
        Err(error) if error.kind() == ErrorKind::NotFound => session.host().ensure_and_descend(slot.path()),
        made => made,
    }
    .map(|(shelf, _)| shelf)
}

/// The guest may have exchanged the message until it was moved; now it can no longer.
fn moved(
    session: &Session,
    slot: &Slot,
    shelf: &Root,
    id: &MessageId,
    synced: Result<()>,
) -> Result<Option<Claim>> {
    let there = Part::Outbox.as_ref().join(id);
    match shelf.descend(id) {
        Ok(dir) => {
            synced.map_err(|error| unsynced(error, &there))?;
            Ok(Some(Claim::new(session, id.clone(), slot.clone(), Place::Moved, Some(dir))))
        }
        Err(error) if is_no_directory(&error) => {
            // If its name is taken again, the guest has put two things there that are no message.
            if shelf.move_to(id, session.guest(), &there).is_err() {
                let _ = shelf.remove_file(id);
            }
            slot.forget(session, id);
            Err(error.about(there))
        }
        // It is claimed, and the next turn finds it pending.
        Err(error) => Err(error.about(there)),
    }
}

/// Gives a message another name in the outbox. If that fails, the note is taken back.
fn take_in_place(session: &Session, slot: &Slot, id: &MessageId, why: ErrorKind) -> Result<Option<Claim>> {
    let there = Part::Outbox.as_ref().join(id);
    let renamed = session.guest().descend(Part::Outbox).and_then(|outbox| {
        let synced = outbox.move_to(id, &outbox, slot.aside())?;
        Ok((outbox, synced))
    });
    let (outbox, synced) = match renamed {
        Ok(renamed) => renamed,
        Err(error) => {
            slot.forget(session, id);
            return if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error.about(there)) };
        }
    };
    match outbox.descend(slot.aside()) {
        Ok(dir) => {
            synced.map_err(|error| unsynced(error, &there))?;
            Ok(Some(Claim::new(session, id.clone(), slot.clone(), Place::InPlace(why), Some(dir))))
        }
        Err(error) if is_no_directory(&error) => {
            // If its name is taken again, it stays under the new one for the sweep.
            let _ = outbox.move_to(slot.aside(), &outbox, id);
            slot.forget(session, id);
            Err(error.about(there))
        }
        Err(error) => Err(error.about(there)),
    }
}

fn is_no_directory(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Symlink | ErrorKind::NotDirectory)
}

/// The move is done, so no other worker has it; but until it is durable nothing may be sent, since a power cut could undo it.
fn unsynced(error: Error, there: &Path) -> Error {
    error.about(there).with_detail("was claimed and is pending, but the move could not be made durable")
}

/// The claims on the shelf, oldest first.
pub(super) fn slots(session: &Session) -> Result<Vec<Slot>> {
    session.alive()?;
    let mut slots = Vec::new();
    for entry in session.host().list(CLAIMED)? {
        let entry = entry?;
        match Slot::parse(entry.file_name()) {
            Some(slot) if entry.metadata().is_dir() => slots.push(slot),
            _ => discard_stray(session, Path::new(CLAIMED), &entry),
        }
    }
    slots.sort_unstable();
    Ok(slots)
}

/// The tickets of all claims, and of those that are cleared and not yet removed.
pub(super) fn tickets(session: &Session) -> Result<HashSet<Ticket>> {
    let mut tickets = HashSet::new();
    for place in [CLAIMED, TRASH] {
        let entries = match session.host().list(place) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            tickets.extend(Slot::parse(entry?.file_name()).map(|slot| slot.ticket));
        }
    }
    Ok(tickets)
}

/// The claim in a slot, durable if the policy asks for that. `None` if it holds none; an empty one that is older than `begun`
/// is removed.
pub(super) fn load(session: &Session, slot: Slot, begun: Duration) -> Result<Option<Claim>> {
    match look_into(session, slot, begun) {
        // Another worker has cleared it meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        loaded => loaded,
    }
}

fn look_into(session: &Session, slot: Slot, begun: Duration) -> Result<Option<Claim>> {
    let path = slot.path();
    let mut entries = session.host().list(&path)?;
    let Some(entry) = entries.next().transpose()? else {
        // If a claim has just begun there, whoever makes it begins anew.
        if age(&session.host().metadata(&path)?) >= begun {
            let _ = slot.remove(session);
        }
        return Ok(None);
    };
    let id = entry.file_name().to_str().and_then(|name| MessageId::from_component(name).ok());
    let place = match (&id, entry.metadata().file_type()) {
        (Some(_), FileType::Directory) => Some(Place::Moved),
        (Some(id), FileType::File) => {
            let place = place_of_note(session, &slot, &path.join(entry.path()))?;
            // The guest has taken its message back, or removed it.
            if place.is_none() && age(entry.metadata()) >= BEGUN {
                slot.forget(session, id);
            }
            place
        }
        // A crash came between taking it and finding that it is no directory.
        _ => {
            discard_stray(session, &path, &entry);
            None
        }
    };
    let (Some(id), Some(place)) = (id, place) else { return Ok(None) };
    session.host().sync_dir(&path)?;
    if place != Place::Moved {
        match session.guest().sync_dir(Part::Outbox) {
            Err(error) if error.kind() != ErrorKind::Denied => return Err(error),
            _ => {}
        }
    }
    Ok(Some(Claim::new(session, id, slot, place, None)))
}

/// A note without its message, which the guest may have removed, stays for a minute: another worker may be about to move
/// the message.
fn place_of_note(session: &Session, slot: &Slot, note: &Path) -> Result<Option<Place>> {
    match session.guest().metadata(Part::Outbox.as_ref().join(slot.aside())) {
        Ok(entry) if entry.is_dir() => {}
        Ok(_) => return Ok(None),
        Err(error) if is_no_directory(&error) || error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let why = match session.host().read_contained(note, NOTE)?.as_slice() {
        b"CrossDevice" => ErrorKind::CrossDevice,
        b"Unsupported" => ErrorKind::Unsupported,
        _ => ErrorKind::Denied,
    };
    Ok(Some(Place::InPlace(why)))
}

fn discard_stray(session: &Session, dir: &Path, entry: &Entry) {
    let path = dir.join(entry.path());
    let kind = if entry.metadata().is_dir() { ErrorKind::InvalidName } else { ErrorKind::NotDirectory };
    event::refused("pending", &Error::new("claim", &path, kind));
    if !entry.metadata().is_dir()
        && let Err(error) = session.host().remove_file(path)
    {
        event::refused("pending", &error);
    }
}
