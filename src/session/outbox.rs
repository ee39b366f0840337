//! Where the guest puts what the host is to take.
//!
//! Problem: the guest names the message and may have made `outbox` a link to somebody's home; it changes, swaps and
//! refills the message while the host reads and removes it; a crash between sending and removing sends twice.
//!
//! Defence: a message is claimed by moving its directory to the host's side in one step, beneath both handles. From then
//! on no path of the guest's leads to it. It stays there under a ticket of its own until it is cleared, so a crash loses
//! nothing, and an id that the guest uses again is another message; clearing begins with one more move, so a message
//! is either wholly there or gone. [`Outbox::collect`] is the loop over all that.
//!
//! What remains: a guest that holds a descriptor into the directory can still change what is in it. Where the message cannot be
//! moved away (the host's side is on another mount, or an unprivileged host may not move a directory that the guest
//! owns) it gets another name in the outbox and is read there, with the same checks on every file. A host that may not
//! even write to `outbox` claims nothing.

mod claim;
mod collected;
mod forward;
mod shelf;
mod slot;
mod sweep;
mod ticket;
mod turn;

use std::ffi::{OsStr, OsString};

use super::event;
use super::handle::Session;
use super::handle::lock::SessionLock;
use super::handle::parts::Part;
use super::listing::Listing;
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::root::Metadata;

pub use claim::{Claim, Place, Undeclared};
pub use collected::{Collected, CollectedFile};
pub use ticket::Ticket;
pub use turn::{Collection, Disposition, Failed, Ledger};

/// How many messages [`Outbox::messages`] lists at a time, and how many may be pending before no more are claimed.
const MESSAGES: usize = 10_000;
/// How many entries it looks at: a guest can make any number that are no message.
const LOOKED_AT: usize = 100_000;

const LIST: &str = "list messages";

/// The guest's outbox; see [`Session::outbox`].
///
/// [`collect`](Self::collect) is the loop that loses nothing and sends nothing twice. The other calls are its parts, for
/// those who take messages one by one.
#[derive(Clone, Debug)]
pub struct Outbox {
    session: Session,
}

impl Session {
    /// The directory in which the guest leaves what it sends.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox { session: self.clone() }
    }
}

impl Outbox {
    /// Lists the messages in the outbox, oldest first by the kernel's clock.
    ///
    /// A message is a directory, whatever its name; its id is [that of the name](MessageId::of_directory). If the guest has both a
    /// directory of the name that the host gives to an id and one that it has named by the id itself, those are two messages, and
    /// the id is listed twice. Links, files, and names that are [reserved](crate::SessionsConfig::with_reserved) are refused, and
    /// so are names that start with a dot: a guest can put a message together there, and then rename it. Messages that are claimed
    /// in place are left out.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) if `outbox` itself was replaced, and the kinds of every resolution. A missing
    /// outbox is empty.
    ///
    /// # Races
    /// It is no snapshot.
    pub fn messages(&self) -> Result<Listing<MessageId>> {
        let Listing { entries, refused, truncated, total } = self.directories()?;
        let entries = entries.iter().map(MessageId::of_directory).collect();
        Ok(Listing { entries, refused, truncated, total })
    }

    /// The same by the names of their directories.
    fn directories(&self) -> Result<Listing<OsString>> {
        let mut messages = Listing::default();
        let mut found: Vec<(Metadata, OsString)> = Vec::new();
        let mut aside = Vec::new();
        let (root, outbox) = self.session.at(Part::Outbox, ".")?;
        let entries = match root.list(outbox) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(messages),
            Err(error) => return Err(error),
        };
        for (index, entry) in entries.enumerate() {
            if found.len() >= MESSAGES || index >= LOOKED_AT {
                messages.truncated = true;
                break;
            }
            let entry = entry?;
            if let Some(ticket) = slot::ticket_of(entry.file_name()) {
                aside.push((entry.into_path(), ticket));
                continue;
            }
            let (name, metadata) = (entry.file_name(), entry.metadata());
            let refused = match self.refusal_of(name) {
                None if metadata.is_dir() => {
                    found.push((metadata.clone(), name.to_owned()));
                    continue;
                }
                None if metadata.is_symlink() => Error::new(LIST, name, ErrorKind::Symlink),
                None => Error::new(LIST, name, ErrorKind::NotDirectory),
                Some(why) => Error::new(LIST, name, ErrorKind::InvalidName).with_detail(why),
            };
            messages.refused.add(entry.into_path(), refused);
        }
        if !aside.is_empty() {
            // Asked for last: a message has its ticket on the host's side before it has its name here.
            let claims = shelf::tickets(&self.session)?;
            for (path, _) in aside.into_iter().filter(|(_, ticket)| !claims.contains(ticket)) {
                let error = Error::new(LIST, &path, ErrorKind::InvalidName);
                messages
                    .refused
                    .add(path, error.with_detail("is named like a claim, and there is no such claim"));
            }
        }
        found.sort_by(|(one, a), (other, b)| one.changed().cmp(&other.changed()).then_with(|| a.cmp(b)));
        messages.total = found.len() as u64;
        messages.entries = found.into_iter().map(|(_, name)| name).collect();
        Ok(messages)
    }

    /// Why a directory of that name is no message, whatever it contains.
    fn refusal_of(&self, name: &OsStr) -> Option<&'static str> {
        if name.as_encoded_bytes().starts_with(b".") {
            return Some("starts with a dot");
        }
        name.to_str().is_some_and(|name| self.session.config().is_reserved(name)).then_some("is reserved")
    }

    /// Takes a message, if the guest has left one by that id.
    ///
    /// Its directory is `outbox/<id>`, where the id is as [`MessageId`] writes it. If that is not there, and the id is not its own
    /// directory name, the outbox is searched for a directory that the guest has named by the id itself: `msg:agent-1`. If it has
    /// both, they are two messages, and the next claim takes the second.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName) if the id is [reserved](crate::SessionsConfig::with_reserved);
    /// [`TooMany`](ErrorKind::TooMany) if it is not among the first 100,000 entries of an outbox with more;
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if `outbox` or the message's
    /// directory is something else; [`Denied`](ErrorKind::Denied) if the host may not write to `outbox`; and the kinds of
    /// every resolution. If the host ran out of something after the move, or could not make it durable, the message is
    /// [pending](Self::pending).
    ///
    /// # Races
    /// Of two concurrent claims exactly one succeeds. The guest may exchange the directory until the move, and never after.
    /// If it uses the id again, that is another message, whatever happened to this one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # session.guest().ensure_dir("outbox/42")?;
    /// # session.guest().write_exclusive("outbox/42/a.txt", "hello")?;
    /// use beneath::MessageId;
    ///
    /// let claim = session.outbox().claim(&MessageId::new("42"))?.unwrap();
    /// assert_eq!(claim.read(["a.txt"])?.found().next(), Some(("a.txt".as_ref(), &b"hello".to_vec())));
    /// assert!(claim.clear().is_complete());
    /// assert!(session.outbox().claim(&MessageId::new("42"))?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim(&self, id: &MessageId) -> Result<Option<Claim>> {
        let claimed = match self.claim_directory(id.as_ref()) {
            Ok(None) if !id.is_verbatim() => match self.named_by_guest(id) {
                Ok(Some(name)) => self.claim_directory(&name),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            claimed => claimed,
        };
        claimed.inspect_err(|error| event::refused("claim", error))
    }

    /// Takes the message in a directory of the outbox.
    fn claim_directory(&self, name: &OsStr) -> Result<Option<Claim>> {
        self.session.alive()?;
        match self.refusal_of(name) {
            None => shelf::take(&self.session, name),
            Some(why) => Err(Error::new("claim", name, ErrorKind::InvalidName).with_detail(why)),
        }
    }

    /// The directory whose name is not the host's for this id and has the id nevertheless. There is at most one.
    fn named_by_guest(&self, id: &MessageId) -> Result<Option<OsString>> {
        let (root, outbox) = self.session.at(Part::Outbox, ".")?;
        let entries = match root.list(outbox) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        for (index, entry) in entries.enumerate() {
            if index >= LOOKED_AT {
                let error = Error::new("claim", id, ErrorKind::TooMany);
                return Err(error.with_detail("is not among the entries of the outbox that are looked at"));
            }
            let entry = entry?;
            let name = entry.file_name();
            let is_other = name != id.as_name().as_str() && self.refusal_of(name).is_none();
            if is_other && MessageId::of_directory(name) == *id {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    /// Gives out the pending message of that id, the oldest claim if there are several, and counts it as an
    /// [attempt](Claim::attempts).
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if `lock` is not the lock of this session, and the kinds of every resolution. A claim that cannot
    /// be looked at is passed over; its error, the first if there are several, is returned if it may have the id and no other claim has
    /// it. That is [`Busy`](ErrorKind::Busy) too for one [in place](Place::InPlace) whose outbox is not there.
    ///
    /// # Races
    /// With the lock held nobody else has it, unless somebody took it without the lock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # session.guest().ensure_dir("outbox/msg:agent-1")?;
    /// use beneath::MessageId;
    ///
    /// let id = MessageId::new("msg:agent-1");
    /// drop(session.outbox().claim(&id)?); // and the host dies
    /// let lock = session.try_lock()?;
    /// let claim = session.outbox().claim_pending(&lock, &id)?.unwrap();
    /// assert_eq!((claim.id(), claim.attempts()), (&id, 2));
    /// # let _ = claim.clear();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim_pending(&self, lock: &SessionLock, id: &MessageId) -> Result<Option<Claim>> {
        lock.must_be_of(&self.session)?;
        let mut failed = None;
        for slot in shelf::slots(&self.session)? {
            match shelf::load(&self.session, slot.clone(), shelf::BEGUN) {
                Ok(Some(claim)) if claim.id() == id => return Ok(Some(claim.again())),
                Ok(_) => {}
                Err(error) => {
                    event::refused("claim", &error);
                    if shelf::id_of(&self.session, &slot).is_none_or(|found| found == *id) {
                        failed.get_or_insert(error);
                    }
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// The messages that were claimed and neither cleared nor released, oldest claim first.
    ///
    /// After a crash these are what the host had taken. Whether they were sent is known only to the service's own record.
    /// What else is among the claims is no message: each is an event, files and links are removed, and directories are
    /// left to [`sweep`](Self::sweep).
    ///
    /// A claim that cannot be looked at is [refused](Listing::refused), by its ticket, and stays pending. So is one
    /// [in place](Place::InPlace) whose outbox is not mounted, or was replaced by the guest.
    ///
    /// # Errors
    /// The kinds of every resolution if the claims cannot be listed.
    ///
    /// # Races
    /// Another worker's claims are pending too: take the session's [lock](Session::try_lock) first, or use
    /// [`collect`](Self::collect) or [`claim_pending`](Self::claim_pending), which ask for it. Looking at a claim is no
    /// [attempt](Claim::attempts).
    pub fn pending(&self) -> Result<Listing<Claim>> {
        let mut pending = Listing::default();
        for slot in shelf::slots(&self.session)? {
            let ticket = slot.ticket.clone();
            match shelf::load(&self.session, slot, shelf::BEGUN) {
                Ok(claim) => pending.entries.extend(claim),
                Err(error) => {
                    event::refused("pending", &error);
                    pending.refused.add(ticket.as_str(), error);
                }
            }
        }
        pending.total = pending.entries.len() as u64 + pending.refused.total;
        Ok(pending)
    }
}
