//! Taking what the guest sends.
//!
//! Problem: two workers that take one message send it twice, and asking a hundred guests every second must cost next to nothing.
//!
//! Defence: the lock of the session is asked for. A database that has not changed, and of which nothing is due, is not read; nor is one
//! that could not be read, for a while.
//!
//! What remains: whoever sends a message and dies before marking it finds it again, as [unfinished](super::Earlier::Unfinished).

use std::time::SystemTime;

use rusqlite::Connection;

use super::handle::{Glance, Mailbox};
use super::look::{Look, OPERATION};
use super::marks::{self, Mark};
use super::outbound::Taken;
use super::retries::to_millis;
use super::sqlite::{MAIL, failed, in_transaction};
use crate::error::Result;
use crate::session::SessionLock;

impl Mailbox {
    /// The messages that are due and were neither sent nor given up, by their numbers; at most `max`, and about 4 MiB.
    ///
    /// They are the guest's, from `outbound.db`, and those that the host has [posted](Self::post). `lock` is the session's, so that two
    /// workers do not take the same. [`mark`](Self::mark) each; one that is not marked is taken again.
    ///
    /// A row that is not as it should be is refused and reported, each time. So is a database as a whole that cannot be
    /// read: it is written to right now ([`Busy`](crate::ErrorKind::Busy)), it has a hot journal, since the guest has died in a transaction
    /// ([`InvalidData`](crate::ErrorKind::InvalidData); its own next open mends that), it is damaged or has more than tables, it is too large, or reading it
    /// takes too long. What the host has posted is handed out all the same.
    ///
    /// A message of which a host has died in the last of its [tries](super::Retries) is given up and reported.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) if `lock` is the lock of another session; [`NotFound`](crate::ErrorKind::NotFound) if the session was removed; and those of
    /// the host's own database.
    ///
    /// # Races
    /// What the guest writes meanwhile is found by the next call.
    pub fn take(&self, lock: &SessionLock, max: usize) -> Result<Taken> {
        self.check_lock(lock)?;
        let now = to_millis(SystemTime::now());
        let mut glance = self.glance();
        // Also where nothing else happens: a guest that held a lock learns what it missed.
        self.catch_up();
        if self.is_quiet(&mut glance, now)? {
            return Ok(Taken { refused: glance.refused.clone(), ..Taken::default() });
        }
        self.alive()?;
        let mail = self.mail();
        // Before all else: what changes from here on is for the next call.
        let version = self.version(&mail)?;
        let fault = |error: rusqlite::Error| failed(OPERATION, MAIL, &error);
        let mut look = Look::new(self, &mail, now, max).map_err(fault)?;
        let stamp = look.guest().map_err(fault)?;
        look.posted().map_err(fault)?;
        let taken = look.hand_out();
        let Look { due, spent, .. } = look;
        self.give_up(&mail, &spent)?;
        // What was handed out and is not marked is due again.
        let due = if taken.messages.is_empty() && !taken.more { due } else { Some(now) };
        *glance = Glance { stamp, refused: taken.refused.clone(), looked: now, due, marks: Some(version) };
        Ok(taken)
    }

    /// Whether nothing has changed since the last look, and nothing was due then or is now.
    fn is_quiet(&self, glance: &mut Glance, now: i64) -> Result<bool> {
        let Glance { stamp: Some(stamp), looked, due, marks: Some(version), .. } = glance else {
            return Ok(false);
        };
        // A clock that was set back says nothing of what is due.
        if *looked > now || due.is_some_and(|due| due <= now) || !self.is_version(version)? {
            return Ok(false);
        }
        // What is wrong with it now is found by reading it. A session that is gone is found here too.
        Ok(self.session().db_is(self.outbound(), stamp).is_ok_and(|same| same))
    }

    /// Messages whose last try has never ended.
    fn give_up(&self, mail: &Connection, spent: &[(String, Option<String>, Mark)]) -> Result<()> {
        if spent.is_empty() {
            return Ok(());
        }
        let now = SystemTime::now();
        let write = |mail: &Connection| {
            spent.iter().try_for_each(|(key, raw, mark)| marks::write(mail, key, raw.as_deref(), mark, now))
        };
        in_transaction(mail, write).map_err(|error| failed(OPERATION, MAIL, &error))?;
        for (_, raw, mark) in spent {
            self.publish(raw.as_deref(), mark, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};

    #[test]
    fn after_the_clock_was_set_back_all_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
        let config = SessionsConfig::default().with_share(MountPoint::new("/share").unwrap());
        let (session, _) = Sessions::new(root, config).create(&SessionId::new("s")).unwrap();
        let mailbox = Mailbox::open(&session).unwrap();
        let lock = session.try_lock().unwrap();
        assert!(mailbox.take(&lock, 1).unwrap().is_complete());
        let now = to_millis(SystemTime::now());
        let mut glance = mailbox.glance();
        glance.due = Some(now + 60_000);
        assert!(mailbox.is_quiet(&mut glance, now).unwrap());
        assert!(!mailbox.is_quiet(&mut glance, now - 3_600_000).unwrap());
    }
}
