//! Where the guest puts what the host is to take.
//!
//! Problem: the guest names the message and may have made `outbox` a link to somebody's home; it changes, swaps and
//! refills the message while the host reads and removes it; a crash between sending and removing sends twice.
//!
//! Defence: a message is claimed by moving its directory to the host's side in one step, beneath both handles. From then
//! on no path of the guest's leads to it. It stays there until it is cleared, so a crash loses nothing; clearing
//! begins with one more move, so a message is either wholly there or gone.
//!
//! Left: a guest that holds a descriptor into the directory can still change what is in it. Where the move is
//! impossible (the host's side is on another mount, or an unprivileged host may not move a directory that the guest
//! owns) the message is read in place, with the same checks on every file.

use std::path::Path;
use std::time::{Duration, Instant};

use super::claim::{Claim, Place};
use super::clear::sweep_part;
use super::layout::{CLAIMED, Part, TRASH};
use super::retire::{Swept, age};
use super::{Session, event, mark};
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::root::{Left, Metadata, Root};

/// How many messages [`Outbox::messages`] tells at a time.
const MESSAGES: usize = 10_000;
/// How many refused entries it tells by name.
const TOLD: usize = 32;

/// The guest's outbox; see [`Session::outbox`].
///
/// The loop that loses nothing and sends nothing twice:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// # let guest_path = dir.path().join("s/guest");
/// # std::fs::create_dir(guest_path.join("outbox/42"))?;
/// # std::fs::write(guest_path.join("outbox/42/a.txt"), "hello")?;
/// # let mut ledger = std::collections::HashSet::new();
/// # let declared = ["a.txt"];
/// use beneath::MessageId;
///
/// let _lock = session.try_lock()?;
/// let outbox = session.outbox();
/// let mut claims = outbox.pending()?; // what a crash has left comes first
/// claims.extend(outbox.claim(&MessageId::new("42"))?);
/// for claim in claims {
///     // The ledger is the service's own record of what was sent.
///     if !ledger.contains(claim.id()) {
///         let collected = claim.read(declared)?;
///         // send(collected) …
///         ledger.insert(claim.id().clone());
///     }
///     claim.clear(); // cannot fail in a way that asks for a second try
/// }
/// # assert_eq!(ledger.len(), 1);
/// # assert!(outbox.pending()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Outbox<'s> {
    session: &'s Session,
}

/// What stands in the outbox; see [`Outbox::messages`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Messages {
    /// The messages, oldest first by the kernel's clock.
    pub ids: Vec<MessageId>,
    /// Entries that are no message, and why; no more than the first few.
    pub refused: Vec<Left>,
    /// How many entries are no message.
    pub refused_total: u64,
    /// Whether there are more entries than were looked at.
    pub truncated: bool,
}

impl Session {
    /// The directory in which the guest leaves what it sends.
    #[must_use]
    pub fn outbox(&self) -> Outbox<'_> {
        Outbox { session: self }
    }
}

impl<'s> Outbox<'s> {
    /// Tells which messages stand in the outbox; links, files and names that are no id are refused.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) if `outbox` itself was replaced, and the kinds of every resolution. A missing
    /// outbox is empty.
    ///
    /// # Races
    /// It is no snapshot.
    pub fn messages(&self) -> Result<Messages> {
        let mut messages = Messages::default();
        let mut found: Vec<(Metadata, MessageId)> = Vec::new();
        let entries = match self.session.guest().list(Part::Outbox) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(messages),
            Err(error) => return Err(error),
        };
        for (index, entry) in entries.enumerate() {
            if index >= MESSAGES {
                messages.truncated = true;
                break;
            }
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| MessageId::from_component(name).ok());
            let kind = match (id, entry.metadata()) {
                (Some(id), directory) if directory.is_dir() => {
                    found.push((directory.clone(), id));
                    continue;
                }
                (None, _) => ErrorKind::InvalidName,
                (_, link) if link.is_symlink() => ErrorKind::Symlink,
                _ => ErrorKind::NotDirectory,
            };
            messages.refused_total += 1;
            if messages.refused.len() < TOLD {
                messages.refused.push(Left { path: entry.into_path(), kind });
            }
        }
        found.sort_by(|(one, a), (other, b)| one.changed().cmp(&other.changed()).then_with(|| a.cmp(b)));
        messages.ids = found.into_iter().map(|(_, id)| id).collect();
        Ok(messages)
    }

    /// Takes a message, if the guest has left one by that id.
    ///
    /// Its directory is `outbox/<id>`, where the id is as [`MessageId`] writes it: an id that is not a safe name has
    /// another directory name, and the guest must be told that one.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if `outbox` or the message's
    /// directory is something else; [`AlreadyExists`](ErrorKind::AlreadyExists) if an earlier claim of the same id is
    /// still [pending](Self::pending); and the kinds of every resolution.
    ///
    /// # Races
    /// Of two concurrent claims exactly one succeeds, unless the message has to be read [in place](Place::InPlace). The
    /// guest may exchange the directory until the move, and never after.
    pub fn claim(&self, id: &MessageId) -> Result<Option<Claim<'s>>> {
        let claimed = self.claim_message(id);
        if let Err(error) = &claimed {
            event::refused("claim", error);
        }
        claimed
    }

    fn claim_message(&self, id: &MessageId) -> Result<Option<Claim<'s>>> {
        self.session.alive()?;
        let guest = self.session.guest();
        let there = Part::Outbox.as_ref().join(id);
        match guest.rename_to(&there, self.session.claimed()?, id) {
            Ok(()) => self.moved(self.session.claimed()?, id, &there),
            // Is it the message that is missing, or the place for it? Somebody may have emptied the host's side.
            Err(error) if error.kind() == ErrorKind::NotFound && guest.metadata(&there).is_ok() => {
                let claimed = self.session.host().ensure_and_descend(CLAIMED)?.0;
                guest.rename_to(&there, &claimed, id)?;
                self.moved(&claimed, id, &there)
            }
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(None),
                // The move may be done and only its sync denied. No earlier claim stands there: that is AlreadyExists.
                ErrorKind::Denied | ErrorKind::Unsupported
                    if self.session.claimed()?.metadata(id).is_ok() =>
                {
                    self.moved(self.session.claimed()?, id, &there)
                }
                ErrorKind::CrossDevice | ErrorKind::Denied | ErrorKind::Unsupported => {
                    Claim::in_place(self.session, id, error.kind())
                }
                ErrorKind::AlreadyExists => Err(error.about(there).with_detail("is claimed already")),
                _ => Err(error.about(there)),
            },
        }
    }

    /// The guest may have exchanged the message until it was moved; now it can no longer.
    fn moved(&self, claimed: &Root, id: &MessageId, there: &Path) -> Result<Option<Claim<'s>>> {
        match claimed.descend(id) {
            Ok(dir) => Claim::new(self.session, id.clone(), Place::Moved, Some(dir)).unless_cleared(),
            Err(error) => {
                // It was no directory. Should its name be taken again, it was the guest's litter twice.
                if claimed.rename_to(id, self.session.guest(), there).is_err() {
                    let _ = claimed.remove_file(id);
                }
                Err(error.about(there))
            }
        }
    }

    /// The messages that were claimed and neither cleared nor released, oldest claim first.
    ///
    /// After a crash these are what the host had taken. Whether they were sent, only the service's own record can tell.
    /// A message that is read in place is not among them: it still stands in the outbox. What else stands among the claims
    /// is no message: each is told as an event, files and links are removed, and directories are left to
    /// [`sweep`](Self::sweep).
    ///
    /// # Errors
    /// The kinds of every resolution.
    ///
    /// # Races
    /// Another worker's claims are pending too: take the session's [lock](Session::try_lock) first.
    pub fn pending(&self) -> Result<Vec<Claim<'s>>> {
        let mut found = Vec::new();
        for entry in self.session.host().list(CLAIMED)? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| MessageId::from_component(name).ok());
            match id {
                Some(id) if entry.metadata().is_dir() => found.push((entry.metadata().changed(), id)),
                // A crash came between taking it and finding that it is no directory.
                _ => self.discard_stray(entry.path(), entry.metadata()),
            }
        }
        found.sort_unstable();
        found
            .into_iter()
            .map(|(_, id)| Claim::new(self.session, id, Place::Moved, None).unless_cleared())
            .filter_map(Result::transpose)
            .collect()
    }

    fn discard_stray(&self, name: &Path, entry: &Metadata) {
        let path = Path::new(CLAIMED).join(name);
        let kind = if entry.is_dir() { ErrorKind::InvalidName } else { ErrorKind::NotDirectory };
        event::refused("pending", &Error::new("claim", &path, kind));
        if !entry.is_dir()
            && let Err(error) = self.session.host().remove_file(path)
        {
            event::refused("pending", &error);
        }
    }

    /// Removes what nobody has touched for `limit`: messages in the outbox, pending claims, and the remains of
    /// interrupted removals. Messages that failed for good, or were never asked for, end here. Of messages that were
    /// cleared [in place](Place::InPlace) and are gone, no note is kept.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) if `outbox` itself was replaced, and the kinds of every resolution.
    ///
    /// # Races
    /// A message that the guest is still writing is young.
    pub fn sweep(&self, limit: Duration) -> Result<Swept> {
        let start = Instant::now();
        let mut swept = sweep_part(self.session, Part::Outbox, limit)?;
        mark::sweep(self.session)?;
        let host = self.session.host();
        let trash = host.descend(TRASH)?;
        for place in [CLAIMED, TRASH] {
            for entry in host.list(place)? {
                let entry = entry?;
                let budget = self.session.config().budget();
                if age(entry.metadata()) < limit || start.elapsed() >= budget.time() {
                    swept.kept += 1;
                    continue;
                }
                let path = Path::new(place).join(entry.path());
                let removed = match (entry.metadata().is_dir(), place) {
                    (true, CLAIMED) => host.remove_tree_quarantined(&path, &trash, budget),
                    (true, _) => host.remove_tree_contained_within(&path, budget),
                    (false, _) => host.remove_file(&path).map(|()| super::claim::gone()),
                };
                swept.record(entry.path(), removed);
            }
        }
        Ok(swept)
    }
}
