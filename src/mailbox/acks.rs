//! What the guest says of the messages that it was given.

use std::path::Path;
use std::time::SystemTime;

use super::hostile::Image;
use super::retries::from_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::name::MessageId;
use crate::report::Leftovers;

const OPERATION: &str = "read acks";
const TABLE: &str = "acks";

/// What the guest does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum AckStatus {
    /// It works on it.
    Processing,
    /// It has done it.
    Completed,
    /// It could not do it.
    Failed,
}

impl AckStatus {
    const ALL: [Self; 3] = [Self::Processing, Self::Completed, Self::Failed];

    /// How the guest writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// What the guest says of one message. All of it is the guest's word.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Ack {
    /// Which message.
    pub id: MessageId,
    /// What it does with it.
    pub status: AckStatus,
    /// Since when, by the guest's clock.
    pub changed: SystemTime,
}

/// What the guest says of its messages; see [`Mailbox::acks`](super::Mailbox::acks).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "rows may have been refused"]
#[non_exhaustive]
pub struct Acks {
    /// One for each message that it has begun.
    pub acks: Vec<Ack>,
    /// Rows that are no acks, and why.
    pub refused: Leftovers,
}

impl Acks {
    /// Whether nothing was refused.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty()
    }

    /// Rows that are no acks, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }

    /// The acks of an image. A database without the table has none.
    pub(super) fn of(image: &Image) -> Result<Self> {
        let mut found = Self::default();
        if !image.has(TABLE) {
            return Ok(found);
        }
        let sql = "SELECT CASE WHEN typeof(id) = 'text' AND octet_length(id) <= 255 THEN id END,
                          CASE WHEN typeof(status) = 'text' AND octet_length(status) <= 16 THEN status END,
                          CASE WHEN typeof(changed) = 'integer' THEN changed END
                   FROM acks NOT INDEXED";
        image.for_each(sql, |row| {
            let refuse = |kind, why: &'static str| Error::new(OPERATION, TABLE, kind).with_detail(why);
            let id = row.get::<_, Option<String>>(0).ok().flatten();
            let id = id.and_then(|id| MessageId::from_component(&id).ok());
            let status = row.get::<_, Option<String>>(1).ok().flatten();
            let status = AckStatus::ALL.into_iter().find(|known| status.as_deref() == Some(known.as_str()));
            let changed = row.get::<_, Option<i64>>(2).ok().flatten();
            match (id, status, changed) {
                (Some(id), Some(status), Some(changed)) => {
                    found.acks.push(Ack { id, status, changed: from_millis(changed) });
                }
                (None, ..) => found.refused.add("", refuse(ErrorKind::InvalidName, "names no message")),
                (Some(id), ..) => {
                    let error = refuse(ErrorKind::InvalidData, "has no known status or no time");
                    found.refused.add(id.as_str(), error.about(&id));
                }
            }
            Ok::<_, Error>(())
        })?;
        Ok(found)
    }
}
