//! What becomes of the messages that the guest was given.
//!
//! Problem: only the guest knows what it has done, and only the host may write it down where the next guest reads it. A guest that
//! dies with a message must not take it along, and a message that kills every guest must not be given to all of them.
//!
//! Defence: the guest writes acks to its own database; the host copies the final ones. A message that a dead guest had is given out
//! again after a pause that grows, and only so often.
//!
//! What remains: a guest that says it has done a message is believed.

use std::path::Path;
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _};

use super::acks::{Ack, AckStatus, Acks};
use super::handle::Mailbox;
use super::marks::millis;
use super::retries::{Standing, from_millis, to_millis};
use super::sqlite::{INBOUND, failed, in_snapshot, in_transaction};
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::report::Leftovers;

/// What [`Mailbox::settle`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "rows may have been refused"]
#[non_exhaustive]
pub struct Settled {
    /// How many messages are completed now and were not before.
    pub completed: u64,
    /// How many have failed now and had not before.
    pub failed: u64,
    /// Rows that are no acks, and why.
    pub refused: Leftovers,
}

impl Settled {
    /// Whether nothing was refused.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty()
    }

    /// Rows that are no acks, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }
}

impl Mailbox {
    /// What the guest says of the messages that it was given.
    ///
    /// # Errors
    /// Those of [`Session::read_db`](crate::Session::read_db), and [`InvalidData`](ErrorKind::InvalidData) or [`TooMany`](ErrorKind::TooMany) for a database that
    /// is damaged, has more than tables, or takes too long to read.
    pub fn acks(&self) -> Result<Acks> {
        self.alive()?;
        let image = self.read_outbound("read acks")?;
        image.map_or_else(|| Ok(Acks::default()), |image| Acks::of(&image))
    }

    /// Writes down which messages the guest has completed or failed, so that no later guest is given them.
    ///
    /// # Errors
    /// Those of [`acks`](Self::acks) and of [`put`](Self::put).
    ///
    /// # Races
    /// What the guest says meanwhile is found by the next call.
    pub fn settle(&self) -> Result<Settled> {
        let Acks { acks, refused } = self.acks()?;
        let mut settled = Settled { refused, ..Settled::default() };
        let is_final = |ack: &Ack| ack.status != AckStatus::Processing;
        let inbound = self.open_inbound()?;
        let fault = |error: rusqlite::Error| failed("settle", INBOUND, &error);
        let acks = acks.into_iter().filter(is_final);
        // The guest may have acked a hundred thousand that nobody has put: one statement, and one lock.
        let open = in_snapshot(&inbound, |inbound| pending(inbound, acks)).map_err(fault)?;
        if open.is_empty() {
            return Ok(settled);
        }
        let now = to_millis(SystemTime::now());
        let done = in_transaction(&inbound, |inbound| {
            let sql = "UPDATE messages_in SET status = ?2, changed = ?3 WHERE id = ?1 AND status = 'pending'";
            let mut update = inbound.prepare(sql)?;
            let settle =
                |ack: Ack| Ok((ack.status, update.execute((ack.id.as_str(), ack.status.as_str(), now))?));
            open.into_iter().map(settle).collect::<rusqlite::Result<Vec<_>>>()
        });
        for (status, rows) in done.map_err(fault)? {
            match status {
                AckStatus::Completed => settled.completed += rows as u64,
                _ => settled.failed += rows as u64,
            }
        }
        Ok(settled)
    }

    /// Gives a message to the next guest that the last one had when it was ended: after a pause, or not at all if it was tried
    /// [too often](super::Retries). Returns where it is now; a message that is completed or failed stays so.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no such message, and those of [`put`](Self::put).
    pub fn retry(&self, id: &MessageId) -> Result<Standing> {
        self.alive()?;
        let inbound = self.open_inbound()?;
        let (now, retries) = (SystemTime::now(), self.config().retries());
        let done = in_transaction(&inbound, |inbound| {
            let sql = "SELECT status, tries FROM messages_in WHERE id = ?1";
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?));
            let Some((status, tries)) = inbound.query_row(sql, [id.as_str()], read).optional()? else {
                return Ok(None);
            };
            if status != PENDING {
                let failed = status == AckStatus::Failed.as_str();
                return Ok(Some(if failed { Standing::Failed } else { Standing::Done }));
            }
            let tries = tries.saturating_add(1);
            let wait = retries.wait_after(tries);
            let status = if wait.is_some() { PENDING } else { AckStatus::Failed.as_str() };
            let not_before = to_millis(now).saturating_add(wait.map_or(0, millis));
            let sql =
                "UPDATE messages_in SET status = ?2, tries = ?3, not_before = ?4, changed = ?5 WHERE id = ?1";
            inbound.execute(sql, (id.as_str(), status, tries, not_before, to_millis(now)))?;
            let pending = Standing::Pending { tries, not_before: from_millis(not_before) };
            Ok(Some(if wait.is_some() { pending } else { Standing::Failed }))
        });
        match done {
            Ok(Some(standing)) => Ok(standing),
            Ok(None) => Err(Error::new("retry message", id, ErrorKind::NotFound)),
            Err(error) => Err(failed("retry message", INBOUND, &error).about(id)),
        }
    }

    /// How many messages wait for a guest, and are due.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn due(&self, now: SystemTime) -> Result<u64> {
        self.alive()?;
        let inbound = self.open_inbound()?;
        let sql = "SELECT count(*) FROM messages_in WHERE status = 'pending' AND not_before <= ?1";
        let count: rusqlite::Result<i64> = inbound.query_row(sql, [to_millis(now)], |row| row.get(0));
        count
            .map(|count| u64::try_from(count).unwrap_or(0))
            .map_err(|error| failed("count messages", INBOUND, &error))
    }
}

const PENDING: &str = "pending";

/// Those of messages that are there and not settled yet.
fn pending(inbound: &Connection, acks: impl Iterator<Item = Ack>) -> rusqlite::Result<Vec<Ack>> {
    let mut find = inbound.prepare("SELECT 1 FROM messages_in WHERE id = ?1 AND status = 'pending'")?;
    let mut open = Vec::new();
    for ack in acks {
        if find.exists([ack.id.as_str()])? {
            open.push(ack);
        }
    }
    Ok(open)
}
