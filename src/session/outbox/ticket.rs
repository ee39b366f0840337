//! The name of one claim, which no guest chooses.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::name::SessionId;

/// The digits of the time and of the random part.
const TIME: usize = 19;
const RANDOM: usize = 32;

/// Names one claimed message for good: the same before and after a crash, and another for each message, however often the
/// guest uses an id.
///
/// The key of a [`Ledger`](super::Ledger), and a good idempotency key for whoever the message is sent to. It sorts by the
/// time of the claim.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// # session.guest().ensure_dir("outbox/42")?;
/// use beneath::session::Ticket;
///
/// let claim = session.outbox().claim(&beneath::MessageId::new("42"))?.unwrap();
/// let text = claim.ticket().to_string(); // for the database
/// assert_eq!(&text.parse::<Ticket>()?, claim.ticket());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Ticket(String);

impl Ticket {
    pub(super) fn generate() -> Result<Self> {
        SessionId::generate_at(SystemTime::now()).map(|id| Self(id.as_str().to_owned()))
    }

    /// The ticket as text: ASCII letters, digits and a hyphen.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_ticket = text.split_once('-').is_some_and(|(time, random)| {
            let digits = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'T' | b'Z');
            let hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
            (time.len(), random.len()) == (TIME, RANDOM)
                && time.bytes().all(digits)
                && random.bytes().all(hex)
        });
        match is_ticket {
            true => Ok(Self(text.to_owned())),
            false => Err(Error::new("check ticket", text, ErrorKind::InvalidName)),
        }
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Ticket {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Ticket {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ticket_is_read_back_and_nothing_else_is() {
        let ticket = Ticket::generate().unwrap();
        assert_eq!(ticket.to_string().parse::<Ticket>().unwrap(), ticket);
        assert_ne!(ticket, Ticket::generate().unwrap());
        let upper = ticket.as_str().to_uppercase();
        let longer = format!("{ticket}0");
        for text in ["", "-", "42", "../x", &longer, &upper, &longer[1..], &ticket.as_str()[1..]] {
            assert_eq!(text.parse::<Ticket>().unwrap_err().kind(), ErrorKind::InvalidName, "{text}");
        }
    }
}
