//! The directory that the guest reads and cannot change.
//!
//! Problem: what the host writes for the guest into a directory that the guest may write to, the guest can replace: a database
//! by a link to another session's, its journal by one that makes SQLite delete a host file, a socket by its own.
//!
//! Defence: a third directory beside `guest` and `host`, which belongs to the host and which the guest sees through a read-only
//! mount. No name in it is the guest's, so the host may use it by path.
//!
//! What remains: the mount must be read-only, which only whoever starts the guest can do; [`Mount::access`] says so. A guest that
//! is root in the host's user namespace and sees the directory on a writable mount can change it.
//!
//! [`Mount::access`]: super::mount::Mount::access

use std::sync::Arc;

use super::Session;
use super::layout::PartState;
use crate::root::Root;

impl Session {
    /// The directory that the guest sees read-only, for what the guest reads and must not replace: databases that the host
    /// writes, sockets. It belongs to the host; files in it are `0644` and directories `0755`.
    ///
    /// None unless the config [asks for it](crate::SessionsConfig::with_share), for a session that was made before the config
    /// asked and was only [opened](crate::Sessions::open), and for a session over directories without
    /// [`with_share`](Self::with_share).
    ///
    /// **Mount it read-only.** [`to_mount`](Self::to_mount) lists it so.
    ///
    /// ```
    /// use beneath::{MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
    /// let config = SessionsConfig::default().with_share(MountPoint::new("/share")?);
    /// let (session, _) = Sessions::new(root, config).create(&SessionId::new("s"))?;
    /// session.share().unwrap().write_exclusive("ready", "")?;
    /// assert!(dir.path().join("s/share/ready").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn share(&self) -> Option<&Root> {
        self.share.as_deref()
    }

    /// Gives a session over [directories](Self::from_roots) one that the guest sees read-only. The root keeps its policy.
    #[must_use]
    pub fn with_share(mut self, share: Root) -> Self {
        self.share = Some(Arc::new(share));
        self
    }

    /// What there is of the directory; none if the session is to have none.
    pub(super) fn state_of_share(&self) -> Option<PartState> {
        let Some(share) = self.share() else {
            return self.config().share().map(|_| PartState::Missing);
        };
        Some(match self.alive().and_then(|()| share.metadata(".")) {
            // A directory that is held has no name once somebody has removed it.
            Ok(dir) if dir.nlink() == 0 => PartState::Missing,
            Ok(_) => PartState::Sound,
            Err(error) => PartState::Unreadable(error),
        })
    }
}
