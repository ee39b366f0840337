//! The loop that loses no message and sends none twice.
//!
//! Problem: between reading, sending, recording and removing, the host may die or run out of descriptors, the guest may use
//! the id again, and one message that cannot be read must not block the others.
//!
//! Defence: one message at a time, what a crash has left first. A message is removed only after the ledger has its
//! ticket, and the ledger is asked before the message is handed out. Whatever fails leaves its message pending, is
//! reported, and the next message comes.
//!
//! What remains: if the host dies after sending and before the ledger has recorded it, the message is handed out again with the
//! same ticket. Whoever can send and record in one step, or whose receiver knows the ticket, sends exactly once.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::claim::Claim;
use super::ticket::Ticket;
use super::{MESSAGES, Outbox, shelf};
use crate::error::{Error, Result};
use crate::name::MessageId;
use crate::report::Leftovers;
use crate::session::event;
use crate::session::handle::lock::SessionLock;
use crate::session::listing::Listing;
use crate::session::sweep::reason;

/// The service's own record of the messages that were sent, by ticket.
///
/// It must survive a crash to be of use. A `HashSet` does not, and serves for tests.
///
/// A ticket is asked for as long as its message is [pending](Outbox::pending), and may be forgotten once it is not in a list of those
/// that is [complete](Listing::is_complete): a claim that could not be looked at is pending too. Where moves are
/// not [durable](crate::Durability::Full) keep it for longer: a power cut can bring a cleared message back.
pub trait Ledger<E> {
    /// Whether the message with this ticket was sent.
    ///
    /// # Errors
    /// The service's own. The message then stays pending.
    fn contains(&mut self, ticket: &Ticket) -> Result<bool, E>;

    /// Records that the message with this ticket was sent.
    ///
    /// Nothing to do for a service that records it in the same transaction in which it sends.
    ///
    /// # Errors
    /// The service's own. The message then stays pending, and is handed out again unless the ledger has it.
    fn record(&mut self, ticket: &Ticket) -> Result<(), E>;
}

impl<E> Ledger<E> for HashSet<Ticket> {
    fn contains(&mut self, ticket: &Ticket) -> Result<bool, E> {
        Ok(HashSet::contains(self, ticket))
    }

    fn record(&mut self, ticket: &Ticket) -> Result<(), E> {
        self.insert(ticket.clone());
        Ok(())
    }
}

/// What to do with a message that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Disposition {
    /// It was sent, or is not worth sending: record it and remove it.
    Done,
    /// Leave it pending; the next turn hands it out again.
    Keep,
    /// Give it back to the guest's outbox.
    Release,
    /// Leave it pending and hand out no further message.
    Stop,
}

/// What one [`Outbox::collect`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "messages may have failed or been refused"]
#[non_exhaustive]
pub struct Collection<E> {
    /// How many messages are done: recorded and removed.
    pub done: u64,
    /// How many were in the ledger already, because an earlier turn ended between recording and removing. They are
    /// removed now.
    pub repeated: u64,
    /// How many were left pending as asked.
    pub kept: u64,
    /// How many were given back to the guest.
    pub released: u64,
    /// Those that are done or repeated and could not be removed whole, by ticket; a [`sweep`](Outbox::sweep) does that.
    pub left: Leftovers,
    /// What failed, and may succeed in the next turn; at most [`Leftovers::FIRST`].
    pub failed: Vec<Failed<E>>,
    /// How many failed.
    pub failed_total: u64,
    /// Entries of the outbox that are no message, and why.
    pub refused: Leftovers,
    /// Whether messages may be left in the outbox: it has more entries than one turn looks at, too many messages are
    /// pending, or the turn was [stopped](Disposition::Stop).
    pub truncated: bool,
}

/// A message that could not be dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Failed<E> {
    /// Which message, if that is known; without a ticket either it is the outbox that could not be listed.
    pub id: Option<MessageId>,
    /// The ticket under which it is pending. Without one the message is in the outbox, or its claim has failed after the
    /// move and the next turn finds it pending.
    pub ticket: Option<Ticket>,
    /// The service's error, or that of the claim.
    pub error: E,
}

impl<E> Collection<E> {
    fn new() -> Self {
        Self {
            done: 0,
            repeated: 0,
            kept: 0,
            released: 0,
            left: Leftovers::default(),
            failed: Vec::new(),
            failed_total: 0,
            refused: Leftovers::default(),
            truncated: false,
        }
    }

    /// Whether nothing is left: no message failed, was kept or given back, nothing was refused, and there is no more.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.open() + self.refused.total + self.released + self.left.total == 0 && !self.truncated
    }

    /// What is in the outbox and no message, then what was done and could not be removed whole, with the reasons: the first of
    /// [`refused`](Self::refused) and [`left`](Self::left). What failed is in [`failed`](Self::failed).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter().chain(&self.left)
    }

    /// How many were handed out and are still pending, or could not be claimed.
    fn open(&self) -> u64 {
        self.failed_total + self.kept
    }

    fn fail(&mut self, id: Option<MessageId>, ticket: Option<Ticket>, error: E) {
        self.failed_total += 1;
        if self.failed.len() < Leftovers::FIRST {
            self.failed.push(Failed { id, ticket, error });
        }
    }

    fn clear(&mut self, claim: Claim) {
        let ticket = claim.ticket().clone();
        let removed = claim.clear();
        if !removed.is_complete() {
            let ticket = Path::new(ticket.as_str());
            self.left.add(ticket, reason(removed, "clear", ticket));
        }
    }
}

impl Outbox {
    /// Hands out each message once: what a crash has left, then what is in the outbox, oldest first.
    ///
    /// For each message: it is claimed; if the `ledger` has its [ticket](Claim::ticket), it is removed; else `send` gets
    /// it. After [`Disposition::Done`] the ticket is recorded and the message removed, in that order. If the host dies at
    /// any point, the next turn goes on there:
    ///
    /// | dies | next turn |
    /// |---|---|
    /// | before the claim | claims it |
    /// | before the ledger has its ticket | hands it out again, with the same ticket |
    /// | before it is removed | finds the ticket in the ledger, removes it |
    ///
    /// So with a ledger that survives, a message is sent twice only if the host dies between sending and recording; do both
    /// in one step, or give the ticket to the receiver, and it is sent once. With less than
    /// [`Durability::Full`](crate::Durability::Full) a power cut may also undo the claim itself, and the message comes again
    /// under another ticket. A message that is released in this turn may be handed out again in the same.
    ///
    /// A message whose handling fails stays pending and is reported, and the next one comes. Return errors of
    /// [`Claim::read`] with `?`: they mean that the host lacked something, and the message must not be removed. What the
    /// guest did wrong is reported for the file and is no error.
    ///
    /// At most 10,000 new messages are handed out, one at a time, holding a handful of descriptors; and none as long as
    /// that many fail.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) if `lock` is not the lock of this session, and the kinds of every resolution if
    /// the claims cannot be listed. Then nothing was handed out. All else is in the report.
    ///
    /// # Races
    /// The guest may do anything meanwhile, an id that it uses again included: that is another message with another ticket.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # session.guest().ensure_dir("outbox/42")?;
    /// # session.guest().write_exclusive("outbox/42/report.txt", "all is well")?;
    /// use std::collections::HashSet;
    /// use beneath::session::{Disposition, Ticket};
    ///
    /// # let mut mailed = Vec::new();
    /// let mut ledger: HashSet<Ticket> = HashSet::new(); // in a service: a table of its database
    /// let lock = session.try_lock()?;
    /// let report = session.outbox().collect(&lock, &mut ledger, |claim| {
    ///     let collected = claim.read(["report.txt"])?;
    ///     for (name, bytes) in collected.found() {
    ///         // send it, with claim.ticket() as its idempotency key
    /// #       mailed.push((name.to_owned(), bytes.clone()));
    ///     }
    ///     Ok::<_, beneath::Error>(Disposition::Done)
    /// })?;
    /// assert_eq!(report.done, 1);
    /// assert!(report.is_complete());
    /// # assert_eq!(mailed, [("report.txt".into(), b"all is well".to_vec())]);
    /// # assert!(session.outbox().pending()?.total == 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn collect<E: From<Error>>(
        &self,
        lock: &SessionLock,
        ledger: &mut (impl Ledger<E> + ?Sized),
        mut send: impl FnMut(&Claim) -> Result<Disposition, E>,
    ) -> Result<Collection<E>> {
        lock.must_be_of(&self.session)?;
        let mut turn = Turn { collection: Collection::new(), ledger, send: &mut send, stopped: false };
        for slot in shelf::slots(&self.session)? {
            let ticket = slot.ticket.clone();
            // With the lock held nobody else is in the middle of a claim.
            match shelf::load(&self.session, slot, Duration::ZERO) {
                Ok(Some(claim)) => turn.handle(claim.again()),
                Ok(None) => {}
                Err(error) => turn.collection.fail(None, Some(ticket), error.into()),
            }
            if turn.stopped {
                return Ok(turn.collection);
            }
        }
        // A guest that closes or replaces its outbox keeps nothing that is pending.
        let messages = self.directories().unwrap_or_else(|error| {
            turn.collection.fail(None, None, error.into());
            Listing::default()
        });
        turn.collection.refused = messages.refused;
        turn.collection.truncated |= messages.truncated;
        for name in messages.entries {
            // While the service is down, what the guest sends stays in its outbox.
            if turn.stopped || turn.collection.open() >= MESSAGES as u64 {
                turn.collection.truncated = true;
                break;
            }
            match self.claim_directory(&name).inspect_err(|error| event::refused("claim", error)) {
                Ok(Some(claim)) => turn.handle(claim),
                Ok(None) => {}
                Err(error) => turn.collection.fail(Some(MessageId::of_directory(name)), None, error.into()),
            }
        }
        Ok(turn.collection)
    }
}

/// One turn of the loop under way.
struct Turn<'t, L: ?Sized, S: ?Sized, E> {
    collection: Collection<E>,
    ledger: &'t mut L,
    send: &'t mut S,
    stopped: bool,
}

impl<L: ?Sized, S: ?Sized, E: From<Error>> Turn<'_, L, S, E>
where
    L: Ledger<E>,
    S: FnMut(&Claim) -> Result<Disposition, E>,
{
    fn handle(&mut self, claim: Claim) {
        match self.decide(&claim) {
            Ok(Decision::Repeated) => {
                self.collection.repeated += 1;
                self.collection.clear(claim);
            }
            Ok(Decision::New(Disposition::Done)) => {
                self.collection.done += 1;
                self.collection.clear(claim);
            }
            Ok(Decision::New(Disposition::Release)) => {
                let (id, ticket) = (claim.id().clone(), claim.ticket().clone());
                match claim.release() {
                    Ok(()) => self.collection.released += 1,
                    Err(error) => self.collection.fail(Some(id), Some(ticket), error.into()),
                }
            }
            Ok(Decision::New(Disposition::Keep)) => self.collection.kept += 1,
            Ok(Decision::New(Disposition::Stop)) => {
                self.collection.kept += 1;
                self.collection.truncated = true;
                self.stopped = true;
            }
            Err(error) => self.collection.fail(Some(claim.id().clone()), Some(claim.ticket().clone()), error),
        }
    }

    /// Asks the ledger, then the service, and records what is done.
    fn decide(&mut self, claim: &Claim) -> Result<Decision, E> {
        if self.ledger.contains(claim.ticket())? {
            return Ok(Decision::Repeated);
        }
        let disposition = (self.send)(claim)?;
        if disposition == Disposition::Done {
            self.ledger.record(claim.ticket())?;
        }
        Ok(Decision::New(disposition))
    }
}

enum Decision {
    /// It was sent in an earlier turn.
    Repeated,
    New(Disposition),
}
