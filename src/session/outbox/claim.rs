//! A message that the host has taken.
//!
//! Problem: between reading, sending and removing, the guest may have made a file a link or a FIFO, or used the id again, and an
//! error after the sending makes the caller send once more.
//!
//! Defence: files are read from the directory that was claimed, by handle, each with its own outcome. Clearing is one move within
//! the host's side, and returns a report instead of an error.
//!
//! What remains: a guest that holds a file open can still write to it.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::collected::{Collected, Collector, one_name};
use super::slot::Slot;
use super::ticket::Ticket;
use crate::error::{ErrorKind, Result};
use crate::name::{GuestPath, MessageId};
use crate::root::{ContainedFile, Durability, FileType, HardLinks, Metadata, Removed, Root};
use crate::session::event;
use crate::session::handle::Session;
use crate::session::handle::parts::{Part, TRASH};
use crate::session::limited::{LimitedFile, start_of};
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
    /// The name that the guest gave to its directory.
    name: OsString,
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
    pub(super) fn new(session: &Session, name: &OsStr, slot: Slot, place: Place, dir: Option<Root>) -> Self {
        let (id, name) = (MessageId::of_directory(name), name.to_owned());
        // The message is the guest's wherever it is.
        let dir = dir.map(|dir| dir.with_policy(session.policy_of(Part::Outbox)));
        Self { session: session.clone(), id, name, slot, place, dir }
    }

    /// The message's id, as the guest chose it. A guest may use it again for another message.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// The name that the guest gave to the message's directory: any bytes. It is the [id](Self::id)'s own, or the id as it is written.
    #[must_use]
    pub fn directory_name(&self) -> &OsStr {
        &self.name
    }

    /// What names this claim, and no other: the key for the service's record of what was sent.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.slot.ticket
    }

    /// How often it was given out, this time included: by [`claim`](super::Outbox::claim) the first time, then by
    /// [`collect`](super::Outbox::collect) and [`claim_pending`](super::Outbox::claim_pending). It survives the host.
    ///
    /// It is a hint, to give up on a message that makes the service fail each time. An attempt that could not be counted, on a
    /// full disk, is made nevertheless, and a power cut may undo the last counts.
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
        // It is done before anything else is, so that attempts that end with the host's death count too. It is not synced: the
        // claim is durable under either name.
        let counted = self.session.claimed().and_then(|shelf| {
            let policy = shelf.policy().clone().with_durability(Durability::None);
            let shelf = shelf.try_clone()?.with_policy(policy);
            shelf.move_to(self.slot.name(), &shelf, next.name())
        });
        match counted {
            Ok(_) => self.slot = next,
            Err(error) => event::refused("collect", &error),
        }
        self
    }

    /// Reads the declared files, within the config's limits.
    ///
    /// There is one outcome for each name, in the order they were first declared; a name that is repeated is read
    /// once. A file that is missing, linked, special, too large or of a type that the
    /// [config](crate::SessionsConfig::with_types) does not accept, or a name that is not one component, is an outcome with the
    /// reason, and the others are read.
    ///
    /// A name that some file can have is taken as it is, byte for byte. Any other is read in the config's
    /// [spelling](crate::SessionsConfig::with_spelling): `./a` and `<mount point>/outbox/<message>/a` are `a`.
    ///
    /// # Errors
    /// Whatever is not the guest's doing and may be better [next time](crate::Error::is_transient), for any of the files: no
    /// descriptor or memory left ([`TooMany`](ErrorKind::TooMany), [`Io`](ErrorKind::Io)), a device that fails, a file
    /// that somebody holds ([`Busy`](ErrorKind::Busy)). The message must not be cleared then. And the kinds of every
    /// resolution of the message's directory itself.
    ///
    /// # Races
    /// As [`Root::read_contained`].
    pub fn read<N: AsRef<OsStr>>(&self, declared: impl IntoIterator<Item = N>) -> Result<Collected<Vec<u8>>> {
        self.collect(declared, |dir, name, limit| {
            let bytes = dir.read_contained(name, limit)?;
            self.check_type(name, &bytes)?;
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
    pub fn open<N: AsRef<OsStr>>(
        &self,
        declared: impl IntoIterator<Item = N>,
    ) -> Result<Collected<LimitedFile>> {
        self.collect(declared, |dir, name, limit| {
            let file = LimitedFile::new("read", self.open_typed(dir, name)?, name, limit)?;
            let length = file.len_hint();
            Ok((file, length))
        })
    }

    /// Opens a file, if the config accepts its type.
    pub(super) fn open_typed(&self, dir: &Root, name: &GuestPath) -> Result<ContainedFile> {
        let mut file = dir.open_contained(name)?;
        if self.session.config().types().is_some() {
            let start = start_of(&mut file, name.as_path())?;
            self.check_type(name, &start)?;
        }
        Ok(file)
    }

    fn check_type(&self, name: &GuestPath, start: &[u8]) -> Result<()> {
        self.session.config().types().map_or(Ok(()), |types| types.check(name, start).map(drop))
    }

    fn collect<N: AsRef<OsStr>, T>(
        &self,
        declared: impl IntoIterator<Item = N>,
        take: impl Fn(&Root, &GuestPath, u64) -> Result<(T, u64)>,
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
            let name = self.file_name("read", raw.as_ref());
            collector.add(raw.as_ref(), name, |name, limit| take(dir, name, limit))?;
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
    pub fn undeclared<N: AsRef<OsStr>>(
        &self,
        declared: impl IntoIterator<Item = N>,
    ) -> Result<Listing<Undeclared>> {
        // What no file can be called is declared by nobody.
        let named = |raw: N| self.file_name("list", raw.as_ref()).ok();
        let declared: HashSet<OsString> =
            declared.into_iter().filter_map(named).map(|name| name.as_path().into()).collect();
        let several = self.session.policy_of(Part::Outbox).hard_links() == HardLinks::Allow;
        let mut list = Listing::default();
        for entry in self.directory()?.list(".")? {
            let entry = entry?;
            if declared.contains(entry.file_name()) {
                continue;
            }
            list.total += 1;
            if list.entries.len() >= UNDECLARED {
                list.truncated = true;
                break;
            }
            let refusal = match entry.metadata().file_type() {
                FileType::Symlink => Some(ErrorKind::Symlink),
                FileType::File if entry.metadata().nlink() > 1 && !several => Some(ErrorKind::HardLinked),
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
                let remove =
                    |slot: &Slot| self.session.host().remove_tree_quarantined(slot.path(), &trash, budget);
                let slot = match self.at_slot(remove) {
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
    /// if `outbox` was replaced, and the kinds of every resolution. The claim is then still pending. The message gets the name back
    /// that the guest gave it.
    ///
    /// # Races
    /// From then on the guest can change it again. On a file system without `RENAME_NOREPLACE` an empty directory that
    /// the guest has put there is replaced.
    pub fn release(self) -> Result<()> {
        self.at_slot(|slot| self.put_back(slot))
    }

    fn put_back(&self, slot: &Slot) -> Result<()> {
        let (root, there) = self.session.at(Part::Outbox, &self.name)?;
        // A sync that fails does no harm: after a power cut it is pending again.
        let _ = match self.place {
            Place::Moved => {
                if self.session.apart(Part::Outbox).is_none() {
                    root.ensure_dir(Part::Outbox)?;
                }
                self.session.host().move_to(slot.path().join(&self.name), root, there)?
            }
            Place::InPlace(_) => root.move_to(self.aside(), root, there)?,
        };
        slot.forget(&self.session, &self.name);
        Ok(())
    }

    pub(super) fn directory(&self) -> Result<Root> {
        self.session.alive()?;
        match (&self.dir, self.place) {
            (Some(dir), _) => dir.try_clone(),
            (None, Place::Moved) => {
                self.at_slot(|slot| self.opened(self.session.host(), slot.path().join(&self.name)))
            }
            (None, Place::InPlace(_)) => {
                self.opened(self.session.located(Part::Outbox, Path::new(".")).0, self.aside())
            }
        }
    }

    /// Calls `call` with the directory of this claim among the claims. Whoever has counted an attempt meanwhile has renamed it.
    fn at_slot<T>(&self, call: impl Fn(&Slot) -> Result<T>) -> Result<T> {
        let error = match call(&self.slot) {
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            result => return result,
        };
        self.slot.renamed(&self.session)?.map_or(Err(error), |slot| call(&slot))
    }

    fn opened(&self, root: &Root, path: PathBuf) -> Result<Root> {
        Ok(root.descend(path)?.with_policy(self.session.policy_of(Part::Outbox)))
    }

    /// Where a message in place is.
    fn aside(&self) -> PathBuf {
        self.session.located(Part::Outbox, self.slot.aside().as_ref()).1
    }

    /// The file in the message that is declared by `raw`.
    pub(super) fn file_name(&self, operation: &'static str, raw: &OsStr) -> Result<GuestPath> {
        let refused = match one_name(raw, operation) {
            Err(error) => error,
            exact => return exact,
        };
        let is_absolute = raw.as_encoded_bytes().trim_ascii_start().starts_with(b"/");
        let meant = match is_absolute {
            true => match self.session.resolve(raw) {
                Ok((Part::Outbox, path)) => {
                    GuestPath::new(&self.name).ok().and_then(|message| path.strip_prefix(&message))
                }
                _ => None,
            },
            // From the message, and not from the workspace.
            false => GuestPath::parse(raw, &[], self.session.config().spelling()).ok(),
        };
        meant.filter(|path| path.depth() == 1).ok_or(refused)
    }
}

/// What was removed of a message: of the part in place the counts, if there is one, and of both what stays.
fn with(aside: Option<Removed>, slot: Removed) -> Removed {
    let Some(mut removed) = aside else { return slot };
    removed.complete &= slot.complete;
    removed.left.absorb(slot.left);
    removed
}
