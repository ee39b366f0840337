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
//! Left: a guest that holds a descriptor into the directory can still change what is in it. Where the message cannot be
//! moved away (the host's side is on another mount, or an unprivileged host may not move a directory that the guest
//! owns) it gets another name in the outbox and is read there, with the same checks on every file. A host that may not
//! even write to `outbox` claims nothing.

mod shelf;
mod turn;

use std::path::Path;
use std::time::Duration;

use super::claim::{Claim, gone};
use super::clear::{Deadline, sweep_until};
use super::layout::{CLAIMED, Part, TRASH};
use super::retire::{Swept, age};
use super::{Session, event, slot};
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::report::Leftovers;
use crate::root::Metadata;

pub use turn::{Collection, Disposition, Failed, Ledger};

/// How many messages [`Outbox::messages`] lists at a time, and how many may be pending before no more are claimed.
const MESSAGES: usize = 10_000;
/// How many entries it looks at: a guest can make any number that are no message.
const LOOKED_AT: usize = 100_000;
/// How many refused entries, or failed messages, are reported one by one.
const REPORTED: usize = 32;

/// The guest's outbox; see [`Session::outbox`].
///
/// [`collect`](Self::collect) is the loop that loses nothing and sends nothing twice. The other calls are its parts, for
/// those who take messages one by one.
#[derive(Clone, Copy, Debug)]
pub struct Outbox<'s> {
    session: &'s Session,
}

/// What is in the outbox; see [`Outbox::messages`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Messages {
    /// The messages, oldest first by the kernel's clock.
    pub ids: Vec<MessageId>,
    /// Entries that are no message, and why.
    pub refused: Leftovers,
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
    /// Lists the messages in the outbox; links, files and names that are no id are refused.
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
            if found.len() >= MESSAGES || index >= LOOKED_AT {
                messages.truncated = true;
                break;
            }
            let entry = entry?;
            if slot::is_aside(entry.file_name()) {
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
            let error = Error::new("list messages", entry.path(), kind);
            messages.refused.add(entry.into_path(), error);
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
    /// directory is something else; [`Denied`](ErrorKind::Denied) if the host may not write to `outbox`; and the kinds of
    /// every resolution. If the host ran out of something after the move, or could not make it durable, the message is
    /// [pending](Self::pending).
    ///
    /// # Races
    /// Of two concurrent claims exactly one succeeds. The guest may exchange the directory until the move, and never after.
    /// If it uses the id again, that is another message, whatever has become of this one.
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
    /// claim.clear();
    /// assert!(session.outbox().claim(&MessageId::new("42"))?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim(&self, id: &MessageId) -> Result<Option<Claim<'s>>> {
        self.session
            .alive()
            .and_then(|()| shelf::take(self.session, id))
            .inspect_err(|error| event::refused("claim", error))
    }

    /// The messages that were claimed and neither cleared nor released, oldest claim first.
    ///
    /// After a crash these are what the host had taken. Whether they were sent, only the service's own record can tell.
    /// What else is among the claims is no message: each is an event, files and links are removed, and directories are
    /// left to [`sweep`](Self::sweep).
    ///
    /// # Errors
    /// The kinds of every resolution.
    ///
    /// # Races
    /// Another worker's claims are pending too: take the session's [lock](Session::try_lock) first, or use
    /// [`collect`](Self::collect), which asks for it.
    pub fn pending(&self) -> Result<Vec<Claim<'s>>> {
        let slots = shelf::slots(self.session)?;
        slots
            .into_iter()
            .filter_map(|slot| shelf::load(self.session, slot, shelf::BEGUN).transpose())
            .collect()
    }

    /// Removes what nobody has touched for `limit`: messages in the outbox, pending claims, and the remains of
    /// interrupted removals. Messages that failed for good, or were never asked for, end here.
    ///
    /// All of it together takes no longer than the config's [budget](super::SessionsConfig::with_budget) and the removal
    /// of one entry; what was not looked at by then is [reported](Swept::out_of_time).
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) if `outbox` itself was replaced, and the kinds of every resolution.
    ///
    /// # Races
    /// A message that the guest is still writing is young.
    pub fn sweep(&self, limit: Duration) -> Result<Swept> {
        let deadline = Deadline::new(self.session.config().budget());
        let mut swept = Swept::default();
        let host = self.session.host();
        let trash = host.descend(TRASH)?;
        // The guest's part comes last: it can make that as long as it likes.
        for place in [TRASH, CLAIMED] {
            for entry in host.list(place)? {
                let Some(budget) = deadline.left() else {
                    swept.out_of_time = true;
                    return Ok(swept);
                };
                let entry = entry?;
                if age(entry.metadata()) < limit {
                    swept.kept += 1;
                    continue;
                }
                let path = Path::new(place).join(entry.path());
                let removed = match (entry.metadata().is_dir(), place) {
                    (true, CLAIMED) => host.remove_tree_quarantined(&path, &trash, budget),
                    (true, _) => host.remove_tree_contained_within(&path, budget),
                    (false, _) => host.remove_file(&path).map(|()| gone()),
                };
                swept.record(entry.path(), removed);
            }
        }
        sweep_until(self.session, Part::Outbox, limit, deadline, &mut swept)?;
        Ok(swept)
    }
}
