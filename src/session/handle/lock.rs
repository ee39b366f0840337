//! One worker at a time, across threads and processes.
//!
//! Problem: two workers that both find a pending message send it twice, and a session that is removed under a worker takes the
//! worker's messages with it.
//!
//! Defence: a `flock` on a file on the host's side, which the guest can neither take nor remove. A removal takes it too.
//!
//! What remains: it is advisory. Whoever does not take it is not stopped.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Session;
use super::home::Home;
use crate::error::{ErrorKind, Result};
use crate::root::{Flock, Root};

/// On the host's side, so that the guest can neither take it nor remove it.
const LOCK: &str = "state/lock";
#[cfg(feature = "mailbox")]
const NAME: &str = "lock";
const OPERATION: &str = "lock session";
const POLL: Duration = Duration::from_millis(5);

/// The exclusive right to work on a session; dropping it gives it up, and so does the death of the process.
#[derive(Debug)]
#[must_use = "the lock ends when this is dropped"]
pub struct SessionLock(Flock);

impl Session {
    /// Takes the session's lock if nobody holds it.
    ///
    /// No call of this crate takes it by itself but [`Sessions::remove`](crate::session::Sessions::remove) and
    /// [`Sessions::sweep`](crate::session::Sessions::sweep). Take it around a loop that claims, delivers and clears, so that two
    /// workers do not both find the same pending claim.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if another thread or process holds it, or the session comes and goes;
    /// [`NotFound`](ErrorKind::NotFound) if the session was removed, [`Unsupported`](ErrorKind::Unsupported) where the file system or a filter of system calls has no
    /// `flock`.
    ///
    /// # Races
    /// The guest cannot interfere: the file is on the host's side. While it is held nobody removes the session. A process
    /// that was forked while it was held neither keeps it nor has it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// let lock = session.try_lock()?;
    /// assert_eq!(session.try_lock().unwrap_err().kind(), beneath::ErrorKind::Busy);
    /// drop(lock);
    /// assert!(session.try_lock().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_lock(&self) -> Result<SessionLock> {
        self.alive()?;
        let lock = lock(self.host())?;
        // Nobody removes it from here on: that takes the lock.
        self.places.home.as_ref().map_or(Ok(()), Home::check_marker)?;
        Ok(lock)
    }

    /// Takes the session's lock, waiting for it no longer than `patience`.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock), [`Busy`](ErrorKind::Busy) only after that time.
    pub fn lock_within(&self, patience: Duration) -> Result<SessionLock> {
        let start = Instant::now();
        loop {
            match self.try_lock() {
                Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < patience => {
                    std::thread::sleep(POLL);
                }
                result => return result,
            }
        }
    }
}

impl SessionLock {
    /// Checks that it is the lock of this very session.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if it is the lock of another session, or of one that was removed since.
    pub(in crate::session) fn must_be_of(&self, session: &Session) -> Result<()> {
        match self.0.is_at(session.host(), Path::new(LOCK))? {
            true => Ok(()),
            false => Err(Flock::busy(Path::new(LOCK), OPERATION)),
        }
    }

    /// [`must_be_of`](Self::must_be_of), for a caller who holds the directory `state` of the session.
    #[cfg(feature = "mailbox")]
    pub(crate) fn must_be_in(&self, state: &Root) -> Result<()> {
        match self.0.is_named(state, Path::new(NAME))? {
            true => Ok(()),
            false => Err(Flock::busy(Path::new(LOCK), OPERATION)),
        }
    }
}

pub(in crate::session) fn lock(host: &Root) -> Result<SessionLock> {
    Flock::try_take(host, Path::new(LOCK), OPERATION).map(SessionLock)
}
