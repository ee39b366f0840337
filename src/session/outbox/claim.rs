//! A message that the host has taken.
//!
//! Problem: between reading, sending and removing, the guest may have made a file a link or a FIFO, or used the id again, and an
//! error after the sending makes the caller send once more.
//!
//! Defence: files are read from the directory that was claimed, by handle, each with its own outcome. Clearing is one move within
//! the host's side, and returns a report instead of an error.
//!
//! What remains: a guest that holds a file open can still write to it.

use std::ffi::OsString;

use super::collected::{Collected, Collector, one_name};
use super::slot::Slot;
use super::ticket::Ticket;
use crate::error::{ErrorKind, Result};
use crate::name::{MessageId, SafePath};
use crate::root::{FileType, Metadata, Removed, Root};
use crate::session::event;
use crate::session::handle::Session;
use crate::session::handle::parts::{Part, TRASH};
use crate::session::limited::LimitedFile;
use crate::session::listing::Listing;
use crate::session::sweep::remove_entry;

/// How many entries [`Claim::undeclared`] lists.
const UNDECLARED: usize = 1000;

/// Where a claimed message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// On the host's side, where no path of the guest's leads.
    Moved,
    /// In the outbox under a name of the host's, `.beneath-<ticket>`, since it could not be moved away, for this reason:
    /// [`CrossDevice`](ErrorKind::CrossDevice) if the host's side is on another mount, [`Denied`](ErrorKind::Denied) if
    /// the host may not move it. Every file is read with the same checks, but the guest can still exchange one for
    /// another between two reads, or take the message away.
    InPlace(ErrorKind),
}

/// A message that the host has taken from the outbox.
///
/// Dropping it changes nothing: the message stays [pending](super::Outbox::pending).
#[derive(Debug)]
#[must_use = "a claim stays pending until it is cleared or released"]
pub struct Claim {
    pub(super) session: Session,
    id: MessageId,
    slot: Slot,
    place: Place,
    /// Held from the moment of the claim; a pending one is opened when it is used.
    dir: Option<Root>,
}

/// An entry of a message that the guest did not declare.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undeclared {
    /// Its name; any bytes but NUL and `/`.
    pub name: OsString,
    /// What it is.
    pub metadata: Metadata,
    /// Why [`Claim::read`] would not read it, if it would not.
    pub refusal: Option<ErrorKind>,
}

impl Claim {
    pub(super) fn new(session: &Session, id: MessageId, slot: Slot, place: Place, dir: Option<Root>) -> Self {
        Self { session: session.clone(), id, slot, place, dir }
    }

    /// The message's id, as the guest chose it. A guest may use it again for another message.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// What names this claim, and no other: the key for the service's record of what was sent.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.slot.ticket
    }

    /// How often [`collect`](super::Outbox::collect) has handed it out, this time included; 1 for a new claim.
    ///
    /// It is a hint, to give up on a message that makes the service fail each time. An attempt that could not be counted, on a
    /// full disk, is made nevertheless.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.slot.attempts
    }

    /// Where the message is.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The same claim, about to be handed out once more.
    pub(super) fn again(mut self) -> Self {
        let next = self.slot.again();
        // It is on the disk before anything is done, so that attempts that end with the host's death count too.
        let counted =
            self.session.claimed().and_then(|shelf| shelf.move_to(self.slot.name(), shelf, next.name()));
        match counted {
            Ok(_) => self.slot = next,
            Err(error) => event::refused("collect", &error),
        }
        self
    }

    /// Reads the declared files, within the config's limits.
    ///
    /// There is one outcome for each name, in the order they were first declared; a name that is repeated is read
    /// once. A file that is missing, linked, special or too large, or a name that is not one safe component, is an
    /// outcome with the reason, and the others are read.
    ///
    /// # Errors
    /// Whatever is not the guest's doing and may be better [next time](crate::Error::is_transient), for any of the files: no
    /// descriptor or memory left ([`TooMany`](ErrorKind::TooMany), [`Io`](ErrorKind::Io)), a device that fails, a file
    /// that somebody holds ([`Busy`](ErrorKind::Busy)). The message must not be cleared then. And the kinds of every
    /// resolution of the message's directory itself.
    ///
    /// # Races
    /// As [`Root::read_contained`].
    pub fn read<N: AsRef<str>>(&self, declared: impl IntoIterator<Item = N>) -> Result<Collected<Vec<u8>>> {
        self.collect(declared, |dir, name, limit| {
            let bytes = dir.read_contained(name, limit)?;
            let length = bytes.len() as u64;
            Ok((bytes, length))
        })
    }

    /// Opens the declared files for streaming; otherwise as [`read`](Self::read).
    ///
    /// Each holds a descriptor. The sizes at the time of opening count towards the message's limit; each file
    /// fails with [`TooLarge`](ErrorKind::TooLarge) when it turns out longer than its limit.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Races
    /// As [`Root::open_contained`].
    pub fn open<N: AsRef<str>>(
        &self,
        declared: impl IntoIterator<Item = N>,
    ) -> Result<Collected<LimitedFile>> {
        self.collect(declared, |dir, name, limit| {
            let file = LimitedFile::new("read", dir.open_contained(name)?, name, limit)?;
            let length = file.len_hint();
            Ok((file, length))
        })
    }

    fn collect<N: AsRef<str>, T>(
        &self,
        declared: impl IntoIterator<Item = N>,
        take: impl Fn(&Root, &SafePath, u64) -> Result<(T, u64)>,
    ) -> Result<Collected<T>> {
        let opened;
        let dir = match &self.dir {
            Some(dir) => self.session.alive().map(|()| dir)?,
            None => {
                opened = self.directory()?;
                &opened
            }
        };
        let mut collector = Collector::new("read", self.session.config().outbox());
        for raw in declared {
            collector.add(raw.as_ref(), |name, limit| take(dir, name, limit))?;
        }
        Ok(collector.finish())
    }

    /// Lists what the message contains besides the declared files, sorted by name.
    ///
    /// # Errors
    /// The kinds of every resolution of the message's directory itself.
    ///
    /// # Races
    /// It is no snapshot.
    pub fn undeclared<N: AsRef<str>>(
        &self,
        declared: impl IntoIterator<Item = N>,
    ) -> Result<Listing<Undeclared>> {
        let declared: std::collections::HashSet<OsString> =
            declared.into_iter().map(|name| OsString::from(name.as_ref())).collect();
        let mut list = Listing::default();
        for entry in self.directory()?.list(".")? {
            let entry = entry?;
            if declared.contains(entry.file_name()) {
                continue;
            }
            if list.entries.len() >= UNDECLARED {
                list.truncated = true;
                break;
            }
            let refusal = match entry.metadata().file_type() {
                FileType::Symlink => Some(ErrorKind::Symlink),
                FileType::File if entry.metadata().nlink() > 1 => Some(ErrorKind::HardLinked),
                FileType::File
                    if entry.file_name().to_str().is_none_or(|name| one_name(name, "list").is_err()) =>
                {
                    Some(ErrorKind::InvalidName)
                }
                FileType::File => None,
                _ => Some(ErrorKind::NotRegular),
            };
            let (name, metadata) = (entry.file_name().to_owned(), entry.metadata().clone());
            list.entries.push(Undeclared { name, metadata, refusal });
        }
        list.entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(list)
    }

    /// Removes the message, because it was sent.
    ///
    /// This returns no error, so that no caller takes one for a failed sending and sends again; the report may be ignored. From the moment it
    /// returns, neither [`pending`](super::Outbox::pending) nor [`claim`](super::Outbox::claim) gives this message
    /// again, even if some of it could not be removed; [`sweep`](super::Outbox::sweep) removes the remains. Only if not even
    /// the host's own directory can be written may it be pending still: keep a record of what was sent, by
    /// [ticket](Self::ticket).
    ///
    /// # Races
    /// A guest that holds a descriptor into the directory may keep creating until the budget is spent; the report is then
    /// not [complete](Removed::is_complete). What goes of a message [in place](Place::InPlace) is what is under the
    /// host's name for it; a new message of the same id is not touched.
    pub fn clear(self) -> Removed {
        let removed = self.discard().unwrap_or_else(|error| {
            event::refused("clear", &error);
            Removed::nothing(error)
        });
        event::left_behind("clear", &removed);
        removed
    }

    /// The move to the trash is what clears the message; the removal can take its time.
    fn discard(&self) -> Result<Removed> {
        let budget = self.session.config().budget();
        let (trash, name) = (self.session.trash()?, self.slot.name());
        // A sync that fails does no harm: after a power cut it is pending, and in the ledger.
        match self.session.claimed()?.move_to(&name, trash, &name) {
            // The ticket in the trash says that the entry in the outbox is the host's: it goes last, and stays with what stays.
            Ok(_) => match self.remove_aside().transpose()? {
                Some(aside) if !aside.is_complete() => Ok(aside),
                aside => Ok(with(aside, trash.remove_tree_contained_within(&name, budget)?)),
            },
            // A person has removed one of the two directories: look them up again.
            Err(_) => {
                let trash = self.session.host().ensure_and_descend(TRASH)?.0;
                let slot = match self.session.host().remove_tree_quarantined(self.slot.path(), &trash, budget)
                {
                    Err(error) if error.kind() == ErrorKind::NotFound => Removed::all(),
                    removed => removed?,
                };
                Ok(with(self.remove_aside().transpose()?, slot))
            }
        }
    }

    /// Removes a message that is in place.
    fn remove_aside(&self) -> Option<Result<Removed>> {
        match self.place {
            Place::Moved => None,
            Place::InPlace(_) => Some(remove_entry(&self.session, Part::Outbox, self.slot.aside().as_ref())),
        }
    }

    /// Gives the message back to the outbox, because it could not be sent now.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if the guest has used the id again, [`Symlink`](ErrorKind::Symlink)
    /// if `outbox` was replaced, and the kinds of every resolution. The claim is then still pending.
    ///
    /// # Races
    /// From then on the guest can change it again. On a file system without `RENAME_NOREPLACE` an empty directory that
    /// the guest has put there is replaced.
    pub fn release(self) -> Result<()> {
        let guest = self.session.live_guest()?;
        let there = Part::Outbox.as_ref().join(&self.id);
        // A sync that fails does no harm: after a power cut it is pending again.
        let _ = match self.place {
            Place::Moved => {
                guest.ensure_dir(Part::Outbox)?;
                self.session.host().move_to(self.slot.path().join(&self.id), guest, there)?
            }
            Place::InPlace(_) => {
                guest.move_to(Part::Outbox.as_ref().join(self.slot.aside()), guest, there)?
            }
        };
        self.slot.forget(&self.session, &self.id);
        Ok(())
    }

    pub(super) fn directory(&self) -> Result<Root> {
        self.session.alive()?;
        match (&self.dir, self.place) {
            (Some(dir), _) => dir.try_clone(),
            (None, Place::Moved) => self.session.host().descend(self.slot.path().join(&self.id)),
            (None, Place::InPlace(_)) => {
                self.session.guest().descend(Part::Outbox.as_ref().join(self.slot.aside()))
            }
        }
    }
}

/// What was removed of a message: of the part in place the counts, if there is one, and of both what stays.
fn with(aside: Option<Removed>, slot: Removed) -> Removed {
    let Some(mut removed) = aside else { return slot };
    removed.complete &= slot.complete;
    removed.left.absorb(slot.left);
    removed
}
