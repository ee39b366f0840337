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

use super::event;
use super::handle::Session;
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
    /// Lists the messages in the outbox, oldest first by the kernel's clock; links, files and names that are no id are refused.
    /// Messages that are claimed in place are left out.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) if `outbox` itself was replaced, and the kinds of every resolution. A missing
    /// outbox is empty.
    ///
    /// # Races
    /// It is no snapshot.
    pub fn messages(&self) -> Result<Listing<MessageId>> {
        let mut messages = Listing::default();
        let mut found: Vec<(Metadata, MessageId)> = Vec::new();
        let mut aside = Vec::new();
        let entries = match self.session.live_guest()?.list(Part::Outbox) {
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
            let error = Error::new(LIST, entry.path(), kind);
            messages.refused.add(entry.into_path(), error);
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
        messages.entries = found.into_iter().map(|(_, id)| id).collect();
        Ok(messages)
    }

    /// Takes a message, if the guest has left one by that id.
    ///
    /// Its directory is `outbox/<id>`, where the id is as [`MessageId`] writes it: an id that is not a safe name has
    /// another directory name, which the guest has to use.
    ///
    /// # Errors
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
    /// assert_eq!(claim.read(["a.txt"])?.found().next(), Some(("a.txt", &b"hello".to_vec())));
    /// assert!(claim.clear().is_complete());
    /// assert!(session.outbox().claim(&MessageId::new("42"))?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim(&self, id: &MessageId) -> Result<Option<Claim>> {
        self.session
            .alive()
            .and_then(|()| shelf::take(&self.session, id))
            .inspect_err(|error| event::refused("claim", error))
    }

    /// The messages that were claimed and neither cleared nor released, oldest claim first.
    ///
    /// After a crash these are what the host had taken. Whether they were sent is known only to the service's own record.
    /// What else is among the claims is no message: each is an event, files and links are removed, and directories are
    /// left to [`sweep`](Self::sweep).
    ///
    /// # Errors
    /// The kinds of every resolution.
    ///
    /// # Races
    /// Another worker's claims are pending too: take the session's [lock](Session::try_lock) first, or use
    /// [`collect`](Self::collect), which asks for it.
    pub fn pending(&self) -> Result<Vec<Claim>> {
        let slots = shelf::slots(&self.session)?;
        slots
            .into_iter()
            .filter_map(|slot| shelf::load(&self.session, slot, shelf::BEGUN).transpose())
            .collect()
    }
}
