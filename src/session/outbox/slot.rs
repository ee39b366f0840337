//! The directory of one claim among the claims, by name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::ticket::Ticket;
use crate::error::Result;
use crate::session::handle::Session;
use crate::session::handle::parts::CLAIMED;

/// The start of the host's own names in the outbox; no id begins like that.
const ASIDE: &str = ".beneath-";

/// A claim's directory among the claims.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) ticket: Ticket,
    pub(super) attempts: u32,
}

impl Slot {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { ticket: Ticket::generate()?, attempts: 1 })
    }

    pub(super) fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let (ticket, attempts) = match name.split_once('.') {
            None => (name, 1),
            Some((ticket, attempts)) => (ticket, attempts.parse().ok()?),
        };
        let slot = Self { ticket: ticket.parse().ok()?, attempts };
        (slot.name() == name).then_some(slot)
    }

    pub(super) fn name(&self) -> String {
        match self.attempts {
            1 => self.ticket.to_string(),
            attempts => format!("{}.{attempts}", self.ticket),
        }
    }

    /// Its path from the host's side.
    pub(super) fn path(&self) -> PathBuf {
        Path::new(CLAIMED).join(self.name())
    }

    /// The name of a message that is claimed in place.
    pub(super) fn aside(&self) -> String {
        format!("{ASIDE}{}", self.ticket)
    }

    /// The slot of the next attempt.
    pub(super) fn again(&self) -> Self {
        Self { ticket: self.ticket.clone(), attempts: self.attempts.saturating_add(1) }
    }

    /// The directory of the same claim, if an attempt was counted meanwhile.
    pub(super) fn renamed(&self, session: &Session) -> Result<Option<Self>> {
        for entry in session.host().list(CLAIMED)? {
            match Self::parse(entry?.file_name()) {
                Some(slot) if slot.ticket == self.ticket && slot != *self => return Ok(Some(slot)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Removes it if it is empty.
    pub(super) fn remove(&self, session: &Session) -> Result<()> {
        session.host().remove_dir(self.path())
    }

    /// Removes it with its note. What stays is left to the sweep.
    pub(super) fn forget(&self, session: &Session, message: &OsStr) {
        let _ = session.host().remove_file(self.path().join(message));
        let _ = self.remove(session);
    }
}

/// The ticket in the name of an entry of the outbox, if it has the form that the host gives to messages in place. A guest can
/// give the same form to its own entries.
pub(super) fn ticket_of(name: &OsStr) -> Option<Ticket> {
    name.to_str()?.strip_prefix(ASIDE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_read_back_and_nothing_else_is() {
        let first = Slot::new().unwrap();
        let third = first.again().again();
        for slot in [&first, &third] {
            assert_eq!(Slot::parse(slot.name().as_ref()).as_ref(), Some(slot));
            assert_eq!(ticket_of(slot.aside().as_ref()).as_ref(), Some(&slot.ticket));
        }
        assert_eq!(third.name(), format!("{}.3", first.ticket));
        for tail in [".1", ".", ".x", ".+3", ".03", ".99999999999", "~"] {
            assert_eq!(Slot::parse(format!("{}{tail}", first.ticket).as_ref()), None, "{tail}");
        }
        assert_eq!(Slot::parse("42".as_ref()), None);
        assert_eq!(ticket_of(".beneath-42".as_ref()), None);
    }
}
