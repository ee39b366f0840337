//! One look at the messages that are there.
//!
//! Problem: a row has any types and any size, ids come twice, numbers jump to the end of all numbers, and one bad row must not keep the
//! others back.
//!
//! Defence: a row is judged in SQL by type and length before its texts are loaded, and refused by itself. Numbers count only if a guest
//! may use them. Of two messages with one id the one that was sent, or that has the smaller number, counts.
//!
//! What remains: the content of a text is not checked.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::handle::Mailbox;
use super::hostile::Image;
use super::marks::{Mark, Marks, State, millis};
use super::outbound::{Earlier, Origin, Outbound, Taken, key};
use super::pending::Pending;
use super::routing::Routing;
use super::seq::Seq;
use super::sqlite::in_snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::report::Leftovers;
use crate::session::DbStamp;

pub(super) const OPERATION: &str = "take messages";
const TABLE: &str = "messages_out";
/// How long the id of a message may be, in bytes; and its kind, its address and what it answers.
const ID_BYTES: usize = 512;
const WORD_BYTES: i64 = 1024;
/// How many messages are handed out at once, whatever the caller says.
const MOST: usize = 10_000;
/// When a database that could not be read is read again although it has not changed.
const REST: Duration = Duration::from_secs(60);
/// How far ahead a guest may put a message off.
const AHEAD: Duration = Duration::from_secs(366 * 24 * 3600);

/// One look under way.
pub(super) struct Look<'l> {
    mailbox: &'l Mailbox,
    mail: &'l Connection,
    marks: Marks<'l>,
    now: i64,
    /// When the first is due that is not yet.
    pub(super) due: Option<i64>,
    /// Messages whose last try has never ended: key, id as the guest wrote it, and mark.
    pub(super) spent: Vec<(String, Option<String>, Mark)>,
    pending: Pending,
    refused: Leftovers,
}

impl<'l> Look<'l> {
    pub(super) fn new(
        mailbox: &'l Mailbox,
        mail: &'l Connection,
        now: i64,
        max: usize,
    ) -> rusqlite::Result<Self> {
        let (marks, pending) = (Marks::of(mail)?, Pending::of_at_most(max.min(MOST)));
        let (spent, refused) = (Vec::new(), Leftovers::default());
        Ok(Self { mailbox, mail, marks, now, due: None, spent, pending, refused })
    }

    /// Looks at what the guest has written; what cannot be read as a whole is refused as a whole. An error is one of the host's own
    /// database, for which no guest's is refused.
    pub(super) fn guest(&mut self) -> rusqlite::Result<Option<DbStamp>> {
        let bytes = match self.mailbox.outbound_bytes() {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.refused.add(self.mailbox.outbound(), error);
                return Ok(None);
            }
        };
        let stamp = bytes.stamp().clone();
        let image = self.mailbox.open_image(OPERATION, &bytes);
        // The image has a copy.
        drop(bytes);
        match image.map_err(Fault::Guest).and_then(|image| self.scan(&image)) {
            Ok(()) => {}
            Err(Fault::Host(error)) => return Err(error),
            Err(Fault::Guest(error)) => {
                // What was found before it went wrong is not trusted either, and looking again at once would find the same.
                (self.pending, self.spent) = (Pending::of_at_most(self.pending.most()), Vec::new());
                self.refused = Leftovers::one(self.mailbox.outbound(), error);
                self.due = Some(self.now.saturating_add(millis(REST)));
            }
        }
        Ok(Some(stamp))
    }

    fn scan(&mut self, image: &Image) -> Result<(), Fault> {
        if !image.has(TABLE) {
            let refuse = || Err(image.refuse(ErrorKind::InvalidData, "has no table messages_out").into());
            return if image.is_empty() { Ok(()) } else { refuse() };
        }
        let bytes = i64::try_from(self.mailbox.config().content_bytes()).unwrap_or(i64::MAX);
        let word = |name: &str| format!("CASE WHEN octet_length({name}) <= {WORD_BYTES} THEN {name} END");
        let fits = |name: &str| format!("coalesce(octet_length({name}), 0) <= {WORD_BYTES}");
        let optional = ["in_reply_to", "channel", "platform", "thread"];
        let typed = optional.map(|name| format!("typeof({name}) IN ('text', 'null')")).join(" AND ");
        let sql = format!(
            "SELECT CASE WHEN typeof(id) = 'text' AND octet_length(id) <= {ID_BYTES} THEN id END,
                    CASE WHEN typeof(seq) = 'integer' THEN seq END,
                    CASE WHEN typeof(deliver_after) IN ('integer', 'null') THEN coalesce(deliver_after, 0) END,
                    typeof(kind) = 'text' AND typeof(content) = 'text' AND {typed},
                    octet_length(content) <= {bytes} AND {} AND {},
                    {}, CASE WHEN octet_length(content) <= {bytes} THEN content END, {}
             FROM {TABLE} NOT INDEXED",
            fits("kind"),
            optional.map(fits).join(" AND "),
            word("kind"),
            optional.map(word).join(", "),
        );
        let mut seen = 0;
        let mail = self.mail;
        in_snapshot(mail, |_| image.for_each(&sql, |row| self.judge(row, &mut seen)))?;
        Ok(self.note_seen(seen)?)
    }

    /// Judges one row; texts that are too long were not loaded.
    fn judge(&mut self, row: &Row<'_>, seen: &mut i64) -> Result<(), Fault> {
        let refuse = |kind, why: &'static str| Error::new(OPERATION, TABLE, kind).with_detail(why);
        let Some(raw) = text(row, 0) else {
            self.refused.add("", refuse(ErrorKind::InvalidData, "has an id that is no text, or too long"));
            return Ok(());
        };
        let id = MessageId::new(&raw);
        let seq = row.get::<_, Option<i64>>(1).ok().flatten().and_then(Seq::of_guest);
        let after = row.get::<_, Option<i64>>(2).ok().flatten();
        let latest = self.now.saturating_add(millis(AHEAD));
        let after = after.filter(|after| *after <= latest);
        let flag = |column| row.get::<_, Option<bool>>(column).ok().flatten() == Some(true);
        let fault = match (seq, after, flag(3), flag(4)) {
            (None, ..) => Some((ErrorKind::InvalidData, "has a number that no guest may use")),
            (_, None, ..) => Some((ErrorKind::InvalidData, "is put off by no time, or for too long")),
            (_, _, false, _) => Some((ErrorKind::InvalidData, "has columns of other types")),
            (_, _, _, false) => Some((ErrorKind::TooLarge, "has more content than the limit")),
            _ => None,
        };
        let (None, Some(seq), Some(after)) = (fault, seq, after) else {
            let (kind, why) = fault.unwrap_or((ErrorKind::InvalidData, "cannot be read"));
            self.refused.add(id.as_str(), refuse(kind, why).about(&id));
            return Ok(());
        };
        *seen = (*seen).max(seq.get());
        let message = Head { id, raw_id: raw, seq, origin: Origin::Guest };
        if let Some(earlier) = self.is_due(&message, after)? {
            match message.with(row, 5, earlier) {
                Ok(message) => self.pending.add(message),
                Err((id, why)) => {
                    self.refused.add(id.as_str(), refuse(ErrorKind::InvalidData, why).about(&id))
                }
            }
        }
        Ok(())
    }

    /// What the host has posted.
    pub(super) fn posted(&mut self) -> rusqlite::Result<()> {
        let mail = self.mail;
        let sql = "SELECT seq, id, kind, content, NULL, channel, platform, thread FROM posted ORDER BY seq";
        let mut statement = mail.prepare(sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (seq, raw_id): (i64, String) = (row.get(0)?, row.get(1)?);
            let Ok(id) = MessageId::from_component(&raw_id) else { continue };
            let message = Head { id, raw_id, seq: Seq::of_host(seq), origin: Origin::Host };
            if let Some(earlier) = self.is_due(&message, 0)?
                && let Ok(message) = message.with(row, 2, earlier)
            {
                self.pending.add(message);
            }
        }
        Ok(())
    }

    /// What is known of earlier tries of a message that is due; none of one that is not.
    fn is_due(&mut self, message: &Head, after: i64) -> rusqlite::Result<Option<Earlier>> {
        let retries = self.mailbox.config().retries();
        let key = key(message.origin, &message.id);
        let mark = self.marks.find(&key)?;
        if let Some(mark) = mark.filter(Mark::is_final) {
            if mark.seq != message.seq.get() {
                self.refuse_twin(&message.id);
            }
            return Ok(None);
        }
        if let Some(mark) = mark.filter(|mark| mark.is_spent(&retries)) {
            let error = Error::new(OPERATION, &message.id, ErrorKind::TooMany);
            self.refused.add(message.id.as_str(), error.with_detail("no host has survived its last try"));
            let raw = (message.origin == Origin::Guest).then(|| message.raw_id.clone());
            self.spent.push((key, raw, Mark { state: State::Failed, ..mark }));
            return Ok(None);
        }
        let due = mark.map_or(0, |mark| mark.due(&retries, self.now)).max(after);
        if due > self.now {
            self.due = Some(self.due.map_or(due, |first| first.min(due)));
            return Ok(None);
        }
        Ok(Some(match mark {
            None => Earlier::Never,
            Some(Mark { state: State::Trying, tries, .. }) => Earlier::Unfinished(tries),
            Some(Mark { tries, .. }) => Earlier::Failed(tries),
        }))
    }

    pub(super) fn hand_out(&mut self) -> Taken {
        let (sorted, more) = std::mem::take(&mut self.pending).into_sorted();
        let (mut messages, mut keys) = (Vec::new(), HashSet::new());
        for message in sorted {
            if keys.insert(message.key()) {
                messages.push(message);
            } else {
                self.refuse_twin(&message.id);
            }
        }
        Taken { messages, more, refused: std::mem::take(&mut self.refused) }
    }

    fn refuse_twin(&mut self, id: &MessageId) {
        let error = Error::new(OPERATION, id, ErrorKind::AlreadyExists);
        self.refused.add(id.as_str(), error.with_detail("the id was used before"));
    }

    /// Numbers that the host gives must be larger, also after a restart.
    fn note_seen(&self, seen: i64) -> rusqlite::Result<()> {
        if seen > self.mailbox.seen() {
            let sql = "INSERT INTO state (name, value) VALUES ('seen', ?1) ON CONFLICT (name) \
                       DO UPDATE SET value = max(value, excluded.value)";
            self.mail.execute(sql, [seen])?;
            self.mailbox.has_seen(seen);
        }
        Ok(())
    }
}

/// What a message is known by.
struct Head {
    id: MessageId,
    raw_id: String,
    seq: Seq,
    origin: Origin,
}

impl Head {
    /// The message with its columns from `first` on: kind, content, what it answers, and its address.
    fn with(
        self,
        row: &Row<'_>,
        first: usize,
        earlier: Earlier,
    ) -> Result<Outbound, (MessageId, &'static str)> {
        let word = |column| match row.get_ref(first + column) {
            Ok(ValueRef::Null) => Some(None),
            _ => text(row, first + column).map(Some),
        };
        let columns = || {
            let to = Routing { channel: word(3)?, platform: word(4)?, thread: word(5)? };
            Some((text(row, first)?, text(row, first + 1)?, word(2)?, to))
        };
        let Self { id, raw_id, seq, origin } = self;
        match columns() {
            Some((kind, content, in_reply_to, to)) => {
                Ok(Outbound { id, raw_id, seq, origin, kind, content, in_reply_to, to, earlier })
            }
            None => Err((id, "is not UTF-8")),
        }
    }
}

/// A column that is a text, and one of UTF-8.
fn text(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => str::from_utf8(bytes).ok().map(str::to_owned),
        _ => None,
    }
}

/// An error of either database.
enum Fault {
    Guest(Error),
    Host(rusqlite::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Guest(error)
    }
}

impl From<rusqlite::Error> for Fault {
    /// Those of the guest's database are errors of this crate by then.
    fn from(error: rusqlite::Error) -> Self {
        Self::Host(error)
    }
}
