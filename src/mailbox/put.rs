//! Giving the guest a message.
//!
//! Problem: a message is a row and some files. A guest that reads the row before the files are there misses them; a host that dies
//! in between leaves files without a row, or a row without files; two hosts that put one message at a time take each other's files
//! back.
//!
//! Defence: files first, each whole or not at all, then the row with their paths, in one transaction. Whoever puts the message again
//! finds the files by name and content. If the row cannot be written, the files that this call made are removed. One `put` at a
//! time, by a lock that the guest cannot reach and that ends with the process.
//!
//! What remains: files of a message that is never put again stay until the inbox is swept.

use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

use super::handle::Mailbox;
use super::inbound::{Inbound, Put};
use super::retries::to_millis;
use super::seq::Seq;
use super::sqlite::{INBOUND, failed, in_transaction};
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::root::Ensured;
use crate::session::{Delivery, Outcome};

const OPERATION: &str = "put message";

impl Mailbox {
    /// Gives the guest a message: its attachments go to the inbox, then a row goes to `messages_in` of `inbound.db`, and one for each
    /// attachment to `files_in`, with its path for the guest or why it was refused.
    ///
    /// The number of the message is even, and larger than any of the host's and than any of the guest's that a
    /// [`take`](Self::take) of this mailbox or its clones has seen, or one of another before this was opened. A message whose id is there already is not written again, and neither are its files.
    ///
    /// An attachment that is refused does not keep the message back; [`Put::refused`] lists it. If this fails, there is no message,
    /// and the files that it had written are gone, but for those that [cannot be removed](Delivery::rollback).
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if another host or the guest holds the database for longer than the config allows;
    /// [`TooLarge`](ErrorKind::TooLarge), [`NoSpace`](ErrorKind::NoSpace), [`NotFound`](ErrorKind::NotFound) if the session was removed, and
    /// the kinds of every resolution.
    ///
    /// # Races
    /// Two calls for one id make one message. The guest sees all of it or nothing; its files are the guest's, as always.
    ///
    /// ```
    /// # use beneath::{MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
    /// # let config = SessionsConfig::default().with_share(MountPoint::new("/share")?);
    /// # let (session, _) = Sessions::new(root, config).create(&SessionId::new("s"))?;
    /// use beneath::mailbox::{Inbound, Mailbox};
    /// use beneath::{Ensured, MessageId, session::Attachment};
    ///
    /// let mailbox = Mailbox::open(&session)?;
    /// let message = || {
    ///     let photo = Attachment::from_bytes("\u{89}PNG").with_name("photo.png");
    ///     Inbound::new(&MessageId::new("m-1"), "chat", "see the photo").with_attachments([photo])
    /// };
    /// let put = mailbox.put(message())?;
    /// assert!(put.is_complete() && put.seq.get() == 2);
    /// assert_eq!(mailbox.put(message())?.how, Ensured::Existed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(&self, message: Inbound<'_>) -> Result<Put> {
        self.alive()?;
        if message.attachments.is_empty() {
            // A row alone is one transaction.
            let inbound = self.open_inbound()?;
            let inserted = insert(&inbound, &message, self.seen());
            return match inserted.map_err(|error| fault(&message.id, &error))? {
                Some(seq) => Ok(Put { seq, how: Ensured::Created, delivery: None }),
                None => existing(&inbound, &message.id),
            };
        }
        let _turn = self.lock_puts()?;
        let inbound = self.open_inbound()?;
        if let Some(seq) = find(&inbound, &message.id).map_err(|error| fault(&message.id, &error))? {
            return Ok(Put { seq, how: Ensured::Existed, delivery: None });
        }
        self.put_with_files(inbound, message)
    }

    fn put_with_files(&self, inbound: Connection, mut message: Inbound<'_>) -> Result<Put> {
        let attachments = std::mem::take(&mut message.attachments);
        let delivery = self.session().inbox().deliver(&message.id, attachments);
        let write = |inbound: &Connection| {
            let seq = insert(inbound, &message, self.seen())?;
            seq.map_or(Ok(()), |seq| add_files(inbound, seq, &delivery)).map(|()| seq)
        };
        let failed = match in_transaction(&inbound, write) {
            Ok(Some(seq)) => return Ok(Put { seq, how: Ensured::Created, delivery: Some(delivery) }),
            // Another host has put it meanwhile, without files.
            Ok(None) => existing(&inbound, &message.id),
            Err(error) => Err(fault(&message.id, &error)),
        };
        drop(inbound);
        if failed.is_ok() {
            // What stays is swept with the inbox.
            drop(delivery.rollback());
            return failed;
        }
        // An error at the very end may be one of a transaction that is done: the files stay for the next try.
        let look =
            |inbound: Connection| find(&inbound, &message.id).map_err(|error| fault(&message.id, &error));
        match self.open_inbound().and_then(look) {
            Ok(Some(seq)) => return Ok(Put { seq, how: Ensured::Created, delivery: Some(delivery) }),
            Ok(None) => drop(delivery.rollback()),
            Err(_) => {}
        }
        failed
    }
}

fn fault(id: &MessageId, error: &rusqlite::Error) -> Error {
    failed(OPERATION, INBOUND, error).about(id)
}

/// Adds the row, with the next number of the host above `seen`; none if the id is there, or no number is left.
fn insert(inbound: &Connection, message: &Inbound<'_>, seen: i64) -> rusqlite::Result<Option<Seq>> {
    let Inbound { id, kind, content, from, not_before, .. } = message;
    // The number is as `Seq::next_of_host` has it. One that is too large becomes a real number, which is refused.
    let sql = "INSERT OR IGNORE INTO messages_in (seq, id, kind, content, channel, platform, thread, created, not_before, changed) \
               VALUES ((SELECT (max(coalesce(max(seq), 0), ?1) / 2 + 1) * 2 FROM messages_in), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?8)";
    let (now, not_before) = (to_millis(SystemTime::now()), not_before.map_or(0, to_millis));
    let address = (&from.channel, &from.platform, &from.thread);
    let values = (seen, id.as_str(), kind, content, address.0, address.1, address.2, now, not_before);
    match inbound.execute(sql, values) {
        Ok(inserted) => Ok((inserted == 1).then(|| Seq::of_host(inbound.last_insert_rowid()))),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::TypeMismatch) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The message that was there already.
fn existing(inbound: &Connection, id: &MessageId) -> Result<Put> {
    match find(inbound, id).map_err(|error| fault(id, &error))? {
        Some(seq) => Ok(Put { seq, how: Ensured::Existed, delivery: None }),
        None => Err(Error::new(OPERATION, id, ErrorKind::TooMany).with_detail("no number is left")),
    }
}

/// The number of the message with that id.
fn find(inbound: &Connection, id: &MessageId) -> rusqlite::Result<Option<Seq>> {
    let sql = "SELECT seq FROM messages_in WHERE id = ?1";
    inbound.query_row(sql, [id.as_str()], |row| row.get(0).map(Seq::of_host)).optional()
}

fn add_files(inbound: &Connection, seq: Seq, delivery: &Delivery) -> rusqlite::Result<()> {
    if delivery.outcomes().is_empty() {
        return Ok(());
    }
    let sql =
        "INSERT INTO files_in (seq, position, name, path, bytes, refused) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut statement = inbound.prepare(sql)?;
    for (position, outcome) in (0_i64..).zip(delivery.outcomes()) {
        match outcome {
            Outcome::Saved(file) | Outcome::AlreadySaved(file) => {
                let bytes = i64::try_from(file.bytes).unwrap_or(i64::MAX);
                let (name, path) = (file.name.as_str(), file.guest_path.as_str());
                statement.execute((seq.get(), position, name, path, bytes, None::<String>))?;
            }
            Outcome::Refused(error) => {
                let none = None::<String>;
                statement.execute((
                    seq.get(),
                    position,
                    &none,
                    &none,
                    None::<i64>,
                    error.kind().to_string(),
                ))?;
            }
        }
    }
    Ok(())
}
