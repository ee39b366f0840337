//! Removing what is done.
//!
//! Problem: messages and marks grow without end, and a mark that is removed too early has its message sent again.
//!
//! Defence: a mark goes only if the guest's table of messages, read just now, has no such message any more. Where there is no such
//! table nothing is known, and the marks stay. A message that the host has posted goes together with its mark, whatever the guest
//! does. The last message that was put stays, so that no message for the guest has the number of another.
//!
//! What remains: a guest that writes a message again after its mark is gone sends it again.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use super::handle::Mailbox;
use super::marks::millis;
use super::outbound::{Origin, key};
use super::retries::to_millis;
use super::sqlite::{INBOUND, MAIL, failed, in_transaction};
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::report::Leftovers;

const OPERATION: &str = "sweep mailbox";

/// What [`Mailbox::sweep`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a sweep may leave something behind"]
#[non_exhaustive]
pub struct MailSwept {
    /// How many messages of the guest's inbound database are gone.
    pub messages: u64,
    /// How many marks are gone.
    pub marks: u64,
    /// Why marks of the guest's messages stay, if they do.
    pub left: Leftovers,
}

impl MailSwept {
    /// Whether everything that was old enough is gone.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// What should have gone and did not, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}

impl Mailbox {
    /// Removes messages that the guest has completed or failed, and marks of messages that it has removed, both if nothing has
    /// changed for `older_than`.
    ///
    /// # Errors
    /// Those of [`put`](Self::put). A database of the guest's that is not there, has no messages' table or cannot be read is in the
    /// report, and the marks of its messages stay.
    ///
    /// # Races
    /// A guest that removes a message and writes it again meanwhile has it sent again.
    pub fn sweep(&self, older_than: Duration) -> Result<MailSwept> {
        self.alive()?;
        let before = to_millis(SystemTime::now()).saturating_sub(millis(older_than));
        let mut swept = MailSwept::default();
        let inbound = self.open_inbound()?;
        let messages = in_transaction(&inbound, |inbound| sweep_messages(inbound, before));
        swept.messages = messages.map_err(|error| failed(OPERATION, INBOUND, &error))? as u64;
        let ids = match self.ids_of_guest() {
            Ok(ids) => Some(ids),
            Err(error) => {
                swept.left.add(self.outbound(), error);
                None
            }
        };
        // Those of the host's own messages are none of the guest's business.
        let is_gone = |key: &String, raw: &Option<String>| {
            raw.is_none() || ids.as_ref().is_some_and(|ids| !ids.contains(key))
        };
        let fault = |error: rusqlite::Error| failed(OPERATION, MAIL, &error);
        let mut gone = old_marks(&self.mail(), before).map_err(fault)?;
        gone.retain(|(key, raw)| is_gone(key, raw));
        // First the copies: a mark whose copy is gone is published again, and nothing else.
        let forget = |inbound: &Connection| {
            let mut delete = inbound.prepare("DELETE FROM delivered WHERE id = ?1")?;
            gone.iter()
                .filter_map(|(_, raw)| raw.as_ref())
                .try_for_each(|raw| delete.execute([raw]).map(drop))
        };
        in_transaction(&inbound, forget).map_err(|error| failed(OPERATION, INBOUND, &error))?;
        in_transaction(&self.mail(), |mail| sweep_marks(mail, &gone)).map_err(fault)?;
        swept.marks = gone.len() as u64;
        self.look_again();
        Ok(swept)
    }

    /// The keys of all messages that the guest's database has.
    fn ids_of_guest(&self) -> Result<HashSet<String>> {
        let mut ids = HashSet::new();
        let Some(image) = self.read_outbound(OPERATION)? else {
            return Err(Error::new(OPERATION, self.outbound(), ErrorKind::NotFound));
        };
        if !image.has("messages_out") {
            return Err(image.refuse(ErrorKind::InvalidData, "has no table messages_out"));
        }
        let sql =
            "SELECT id FROM messages_out NOT INDEXED WHERE typeof(id) = 'text' AND octet_length(id) <= 512";
        image.for_each(sql, |row| {
            // An id that is not UTF-8 has no mark.
            if let Ok(raw) = row.get::<_, String>(0) {
                ids.insert(key(Origin::Guest, &MessageId::new(raw)));
            }
            Ok::<_, Error>(())
        })?;
        Ok(ids)
    }
}

fn sweep_messages(inbound: &Connection, before: i64) -> rusqlite::Result<usize> {
    let done = "status <> 'pending' AND changed <= ?1 AND seq < (SELECT max(seq) FROM messages_in)";
    let files = format!("DELETE FROM files_in WHERE seq IN (SELECT seq FROM messages_in WHERE {done})");
    inbound.execute(&files, [before])?;
    inbound.execute(&format!("DELETE FROM messages_in WHERE {done}"), [before])
}

/// Keys of old marks that are final, and the ids that the guest gave.
fn old_marks(mail: &Connection, before: i64) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let sql = "SELECT key, raw FROM marks WHERE state IN ('delivered', 'failed') AND changed <= ?1";
    let mut statement = mail.prepare(sql)?;
    statement.query_map([before], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn sweep_marks(mail: &Connection, gone: &[(String, Option<String>)]) -> rusqlite::Result<()> {
    let mut marks = mail.prepare("DELETE FROM marks WHERE key = ?1")?;
    let mut posted = mail.prepare("DELETE FROM posted WHERE 'host:' || id = ?1")?;
    for (key, raw) in gone {
        marks.execute([key])?;
        if raw.is_none() {
            posted.execute([key])?;
        }
    }
    Ok(())
}
