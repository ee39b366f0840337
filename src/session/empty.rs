//! Ending a session without its directories.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::database::QUARANTINE;
use super::handle::Session;
use super::handle::parts::{QUEUE, STAGING, STATE, TRASH};
use super::sweep::{Sweep, Swept};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Session {
    /// Removes all that the guest's side contains, and what the host's side has of it: claims, copies, remains. The directories
    /// themselves stay, and so does what the [share](Session::share) contains.
    ///
    /// Claims go first, each moved away in one step before any of it is removed, so that one which is still
    /// [pending](super::Outbox::pending) afterwards is whole.
    ///
    /// This ends a session that was laid over directories by [`from_roots`](Self::from_roots) or [`from_places`](Self::from_places),
    /// which belong to whoever made them. It takes no longer than the config's budget and the removal of one entry. A session of
    /// [`Sessions`](super::Sessions) is ended by [`Sessions::remove`](super::Sessions::remove), directories and all.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if somebody holds the session's lock, and the kinds of every resolution. What could not be removed
    /// is in [`Swept`].
    ///
    /// # Races
    /// A guest that still runs can make more at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// session.workspace().write_exclusive("a/b", "hello")?;
    /// assert!(session.empty()?.is_complete());
    /// assert_eq!(session.guest().list(".")?.count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn empty(&self) -> Result<Swept> {
        let _lock = self.try_lock()?;
        let mut sweep = Sweep::new(self, Duration::ZERO)?;
        sweep.claims()?;
        for (part, _) in self.tops()? {
            sweep.part(part)?;
        }
        for shelf in [STAGING, TRASH, QUEUE].map(PathBuf::from) {
            sweep.host_directory(&shelf)?;
        }
        sweep.host_directory(&Path::new(STATE).join(QUARANTINE))?;
        Ok(sweep.finish())
    }
}
