//! Recording what became of a message, and sending one in the guest's place.

use std::time::SystemTime;

use rusqlite::Connection;

use super::handle::Mailbox;
use super::marks::{self, Delivered, Mark, Marks};
use super::outbound::{Origin, Outbound, Post};
use super::retries::{Standing, to_millis};
use super::seq::Seq;
use super::sqlite::{MAIL, failed, in_transaction};
use crate::error::{Error, ErrorKind, Result};
use crate::root::Ensured;

impl Mailbox {
    /// Records what became of a message, and returns where it is now: after a failure for now it is pending until the
    /// [pause](super::Retries) is over, or failed if that was the last try.
    ///
    /// What was [sent](Delivered::Done) stays so. When a message of the guest is done or has failed, the guest finds it in the table
    /// `delivered` of `inbound.db`. If that cannot be written, as while the guest holds a lock on it, a later [`take`](Self::take) writes it.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy), [`NoSpace`](ErrorKind::NoSpace), [`NotFound`](ErrorKind::NotFound) if the session was removed, and the kinds of every
    /// resolution.
    pub fn mark(&self, message: &Outbound, outcome: Delivered) -> Result<Standing> {
        self.alive()?;
        let fault = |error: &rusqlite::Error| failed("mark message", MAIL, error).about(&message.id);
        let (key, now) = (message.key(), SystemTime::now());
        let raw = (message.origin == Origin::Guest).then_some(message.raw_id.as_str());
        let mark = {
            let mail = self.mail();
            let write = |mail: &Connection| {
                let before = Marks::of(mail)?.find(&key)?.unwrap_or(Mark::new(message.seq.get()));
                let mark = before.after(outcome, &self.config().retries(), to_millis(now));
                marks::write(mail, &key, raw, &mark, now)?;
                Ok(mark)
            };
            in_transaction(&mail, write).map_err(|error| fault(&error))?
        };
        self.look_again();
        self.publish(raw, &mark, now);
        Ok(mark.standing())
    }

    /// Lets the guest know what became of its message, if that is final.
    pub(super) fn publish(&self, raw: Option<&str>, mark: &Mark, now: SystemTime) {
        if let Some(raw) = raw.filter(|_| mark.is_final()) {
            self.copy_to_guest(|inbound| marks::publish(inbound, raw, mark.state.name(), to_millis(now)));
        }
    }

    /// Queues a message for [`take`](Self::take) in the guest's place, such as that the guest was stopped. It is kept on the host's
    /// side, so that the guest's database still has one writer.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy), [`NoSpace`](ErrorKind::NoSpace), [`TooMany`](ErrorKind::TooMany) if no number is left, [`NotFound`](ErrorKind::NotFound) if the
    /// session was removed.
    ///
    /// ```
    /// # use beneath::{MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
    /// # let config = SessionsConfig::default().with_share(MountPoint::new("/share")?);
    /// # let (session, _) = Sessions::new(root, config).create(&SessionId::new("s"))?;
    /// use beneath::mailbox::{Delivered, Mailbox, Post};
    /// use beneath::MessageId;
    ///
    /// let mailbox = Mailbox::open(&session)?;
    /// mailbox.post(&Post::new(&MessageId::new("ended"), "chat", "The agent was restarted."))?;
    /// let lock = session.try_lock()?;
    /// let taken = mailbox.take(&lock, 1)?;
    /// mailbox.mark(&taken.messages[0], Delivered::Done)?;
    /// assert!(mailbox.take(&lock, 1)?.messages.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post(&self, message: &Post<'_>) -> Result<Ensured> {
        self.alive()?;
        let insert = |mail: &Connection| {
            let last = "SELECT coalesce(max(seq), 0) FROM posted";
            let last: i64 = mail.query_row(last, (), |row| row.get(0))?;
            let Some(seq) = Seq::next_of_host(last.max(self.seen())) else { return Ok(None) };
            let sql = "INSERT OR IGNORE INTO posted (seq, id, kind, content, channel, platform, thread) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let Post { id, kind, content, to } = message;
            mail.execute(sql, (seq.get(), id.as_str(), kind, content, &to.channel, &to.platform, &to.thread))
                .map(Some)
        };
        let inserted = in_transaction(&self.mail(), insert)
            .map_err(|error| failed("post message", MAIL, &error).about(&message.id))?;
        self.look_again();
        match inserted {
            Some(0) => Ok(Ensured::Existed),
            Some(_) => Ok(Ensured::Created),
            None => {
                Err(Error::new("post message", &message.id, ErrorKind::TooMany)
                    .with_detail("no number is left"))
            }
        }
    }
}
