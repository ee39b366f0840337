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
//! | `outbox/<name>/` | the guest has sent it | claimed by the next turn |
//! | `claimed/<ticket>/`, empty | a claim has begun, nothing was taken | removed by the next turn |
//! | `claimed/<ticket>/<name>/` | claimed | pending |
//! | `claimed/<ticket>/<name>`, a file, and `outbox/.beneath-<ticket>/` | claimed in place | pending |
//! | `claimed/<ticket>/<name>`, a file, alone | nothing was taken, or the guest has removed it | removed after a minute |
//! | the same, and the outbox is not the one that the file names | it is not mounted, or the guest has replaced it | reported, and removed by the sweep |
//! | `trash/<ticket>`, with or without `outbox/.beneath-<ticket>/` | cleared | removed by the sweep |
//! | `outbox/.beneath-<ticket>`, alone | the guest's own, or left by a sweep that was cut short | reported, and removed by the sweep |
//!
//! Each step from one row to the next is one rename or the creation of one entry, and only a rename that succeeded makes a claim.
//! The ticket never changes, so a record of tickets says what was sent, however often an id is used. The message keeps the name that
//! the guest gave it, whatever that is: the id follows from it, and it goes back under it.
//!
//! From the second attempt on the directory of a claim has the number of attempts at its end. Counting is one rename on every
//! file system, from `<ticket>` to `<ticket>.2` and so on, before the claim is given out:
//!
//! | dies | after a crash | after a power cut |
//! |---|---|---|
//! | before the rename | pending, not counted | pending, not counted |
//! | after it | pending, counted | pending, counted or not: it is not synced |
//!
//! In every case there is one directory for the ticket, with the message in it.
//!
//! In place means under another name in the outbox. That takes the right to write to `outbox` and nothing else, not even
//! to the message itself, whose parent stays the same. The guest sees that name, and can take the message back or
//! remove it; it cannot pass another message off under a ticket that it did not see there.
//!
//! What remains: a guest that moves a message in place back to its id has sent it once more, as it could have by a copy.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

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
/// The longest note of a claim in place: why it is one, and in which outbox.
const NOTE: u64 = 80;

/// Takes a message.
pub(super) fn take(session: &Session, name: &OsStr) -> Result<Option<Claim>> {
    let (root, there) = session.located(Part::Outbox, name.as_ref());
    for _ in 0..TRIES {
        let slot = Slot::new()?;
        let shelf = make(session, &slot)?;
        let failed = match root.move_to(&there, &shelf, name) {
            Ok(synced) => return moved(session, &slot, &shelf, name, synced),
            Err(error) => error,
        };
        let why = failed.kind();
        let noted = match why {
            ErrorKind::CrossDevice | ErrorKind::Denied | ErrorKind::Unsupported => {
                note(session, &shelf, name, why)
            }
            _ => Err(failed),
        };
        let error = match noted {
            Ok(outbox) => return take_in_place(session, &outbox, &slot, name, why),
            Err(error) => error,
        };
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
    name: &OsStr,
    synced: Result<()>,
) -> Result<Option<Claim>> {
    let (root, there) = session.located(Part::Outbox, name.as_ref());
    match shelf.descend(name) {
        Ok(dir) => {
            synced.map_err(|error| unsynced(error, &there))?;
            Ok(Some(Claim::new(session, name, slot.clone(), Place::Moved, Some(dir))))
        }
        Err(error) if is_no_directory(&error) => {
            // If its name is taken again, the guest has put two things there that are no message.
            if shelf.move_to(name, root, &there).is_err() {
                let _ = shelf.remove_file(name);
            }
            slot.forget(session, name);
            Err(error.about(there))
        }
        // It is claimed, and the next turn finds it pending.
        Err(error) => Err(error.about(there)),
    }
}

/// Opens the outbox, and notes that a message is about to get another name in it. The note comes first, so that a message that has left its
/// name is known.
fn note(session: &Session, shelf: &Root, name: &OsStr, why: ErrorKind) -> Result<Root> {
    let outbox = session.open_part(Part::Outbox)?;
    shelf.write_exclusive(name, format!("{why:?} {}", identity(&outbox)?))?;
    Ok(outbox)
}

/// Identifies a directory, also after it was mounted anew.
fn identity(dir: &Root) -> Result<String> {
    let dir = dir.metadata(".")?;
    let born = dir.created().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{} {}", dir.ino(), born.unwrap_or_default().as_nanos()))
}

/// Gives a message another name in the outbox. If that fails, the note is taken back.
fn take_in_place(
    session: &Session,
    outbox: &Root,
    slot: &Slot,
    name: &OsStr,
    why: ErrorKind,
) -> Result<Option<Claim>> {
    let (_, there) = session.located(Part::Outbox, name.as_ref());
    let synced = match outbox.move_to(name, outbox, slot.aside()) {
        Ok(synced) => synced,
        Err(error) => {
            slot.forget(session, name);
            return if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error.about(there)) };
        }
    };
    match outbox.descend(slot.aside()) {
        Ok(dir) => {
            synced.map_err(|error| unsynced(error, &there))?;
            Ok(Some(Claim::new(session, name, slot.clone(), Place::InPlace(why), Some(dir))))
        }
        Err(error) if is_no_directory(&error) => {
            // If its name is taken again, it stays under the new one for the sweep.
            let _ = outbox.move_to(slot.aside(), outbox, name);
            slot.forget(session, name);
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
    let name = entry.file_name();
    let place = match entry.metadata().file_type() {
        FileType::Directory => Some(Place::Moved),
        FileType::File => {
            let place = look_aside(session, &slot, &path.join(entry.path()))?;
            // The guest has taken its message back, or removed it.
            if place.is_none() && age(entry.metadata()) >= BEGUN {
                slot.forget(session, name);
            }
            place
        }
        // A crash came between taking it and finding that it is no directory.
        _ => {
            discard_stray(session, &path, &entry);
            None
        }
    };
    let Some(place) = place else { return Ok(None) };
    session.host().sync_dir(&path)?;
    Ok(Some(Claim::new(session, name, slot, place, None)))
}

/// Where a message in place is, durable if the policy asks for that.
///
/// A note without its message, which the guest may have removed, stays for a minute: another worker may be about to move the message. If
/// the outbox is not the one of the note, nobody can say what became of the message, and the note stays until it is swept.
fn look_aside(session: &Session, slot: &Slot, note: &Path) -> Result<Option<Place>> {
    let is_missing = |error: &Error| is_no_directory(error) || error.kind() == ErrorKind::NotFound;
    let outbox = match session.open_part(Part::Outbox) {
        Err(error) if is_missing(&error) => None,
        outbox => Some(outbox?),
    };
    let note = session.host().read_contained(note, NOTE);
    if let Some(outbox) = &outbox {
        match outbox.metadata(slot.aside()) {
            Ok(entry) if entry.is_dir() => {
                match outbox.sync_dir(".") {
                    Err(error) if error.kind() != ErrorKind::Denied => return Err(error),
                    _ => {}
                }
                let why = read_note(&note?).map_or(ErrorKind::Denied, |(why, _)| why);
                return Ok(Some(Place::InPlace(why)));
            }
            Err(error) if !is_missing(&error) => return Err(error),
            _ => {}
        }
    }
    let note = match note {
        // Not the host's: a file that the guest had in place of a message, taken just before a crash.
        Err(error) if matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::HardLinked) => return Ok(None),
        note => note?,
    };
    // One that was cut off has no outbox.
    let Some((_, noted)) = read_note(&note) else { return Ok(None) };
    if let Some(outbox) = outbox
        && identity(&outbox)? == noted
    {
        return Ok(None);
    }
    let error = Error::new("claim", slot.ticket.as_str(), ErrorKind::Busy);
    Err(error.with_detail("was claimed in an outbox that is not there now"))
}

/// Why a message is in place, and in which outbox.
fn read_note(note: &[u8]) -> Option<(ErrorKind, &str)> {
    let (why, outbox) = str::from_utf8(note).ok()?.split_once(' ')?;
    let why = match why {
        "CrossDevice" => ErrorKind::CrossDevice,
        "Denied" => ErrorKind::Denied,
        "Unsupported" => ErrorKind::Unsupported,
        _ => return None,
    };
    Some((why, outbox))
}

/// The message that a claim is of, if that can be seen.
pub(super) fn id_of(session: &Session, slot: &Slot) -> Option<MessageId> {
    let entry = session.host().list(slot.path()).ok()?.next()?.ok()?;
    Some(MessageId::of_directory(entry.file_name()))
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
