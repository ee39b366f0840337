//! One session: its two directories, its config, and whether it is still there.
//!
//! Problem: by the time a path is used, the guest has made it lead elsewhere, or somebody has removed the session and made
//! another one of the same id.
//!
//! Defence: two directories are opened once, and everything is looked up beneath their handles. Each call first checks that the
//! session is still the one that was opened.
//!
//! What remains: whoever takes the roots themselves, by [`Session::guest`] and [`Session::host`], checks nothing.

pub(super) mod config;
pub(super) mod home;
pub(super) mod layout;
pub(super) mod lock;
pub(super) mod marker;
pub(super) mod parts;

use std::sync::{Arc, OnceLock};

use self::config::SessionsConfig;
use self::home::Home;
use crate::error::Result;
use crate::root::Root;

/// One session: a directory shared with a guest, and one of the host's own.
///
/// A session made by [`Sessions`](super::Sessions) or laid over existing directories by [`from_roots`](Self::from_roots). Several
/// `Session`s may be open on the same directories; [`try_lock`](Self::try_lock) is there to take turns. A clone is cheap and
/// shares the handles, and so does everything that a session gives out: inbox, outbox, workspace, claims and tails have no
/// lifetime and move to other threads.
///
/// Once a session of [`Sessions`](super::Sessions) was removed, every call through a handle that is still open fails with
/// [`NotFound`](crate::ErrorKind::NotFound), also if the id was made anew. The roots [`guest`](Self::guest) and
/// [`host`](Self::host) themselves do not look. Where a session cannot be renamed, as in a lower layer of an overlay, it is removed
/// in place: until that is complete only [`try_lock`](Self::try_lock) and opening it notice.
#[derive(Clone, Debug)]
pub struct Session {
    places: Arc<Places>,
    config: Arc<SessionsConfig>,
}

/// What all clones of a session share.
#[derive(Debug)]
struct Places {
    guest: Root,
    host: Root,
    /// None for a session that is laid over directories.
    home: Option<Home>,
    /// Two directories of the host's side that every collection needs; no guest can replace them.
    claimed: OnceLock<Root>,
    trash: OnceLock<Root>,
}

impl Session {
    /// Lays a session over two existing directories: `guest`, which the guest may write to, and `host`, which it must
    /// not reach.
    ///
    /// Each root keeps its policy; that of `guest` says which modes and owners deliveries get. What `host` lacks is
    /// made; on the guest's side directories are made when they are first needed.
    ///
    /// If both are on one mount, claimed messages are moved out of the guest's reach. Otherwise they
    /// are renamed in the outbox and read there.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`NoSpace`](crate::ErrorKind::NoSpace),
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) and the kinds of every resolution.
    ///
    /// ```
    /// use beneath::{Access, Policy, Root, Session, ambient_authority};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let (shared, private) = (dir.path().join("shared"), dir.path().join("private"));
    /// # std::fs::create_dir(&shared)?; std::fs::create_dir(&private)?;
    /// let guest = Root::open_ambient(&shared, ambient_authority())?
    ///     .with_policy(Policy::default().with_access(Access::shared()));
    /// let host = Root::open_ambient(&private, ambient_authority())?;
    /// let session = Session::from_roots(guest, host)?;
    /// let _found = session.repair()?;
    /// assert!(session.verify().is_sound());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_roots(guest: Root, host: Root) -> Result<Self> {
        parts::ensure_host(&host)?;
        Ok(Self::assemble(guest, host, Arc::default(), None))
    }

    /// Replaces the limits, the mount point and the budget; the roots keep their policies.
    #[must_use]
    pub fn with_config(mut self, config: SessionsConfig) -> Self {
        self.config = Arc::new(config);
        self
    }

    pub(super) fn assemble(guest: Root, host: Root, config: Arc<SessionsConfig>, home: Option<Home>) -> Self {
        let (claimed, trash) = (OnceLock::new(), OnceLock::new());
        Self { places: Arc::new(Places { guest, host, home, claimed, trash }), config }
    }

    /// [`NotFound`](crate::ErrorKind::NotFound) once the session was removed.
    pub(super) fn alive(&self) -> Result<()> {
        self.places.home.as_ref().map_or(Ok(()), Home::check)
    }

    /// The guest's directory, unless the session was removed.
    pub(super) fn live_guest(&self) -> Result<&Root> {
        self.alive().map(|()| self.guest())
    }

    /// Where claimed messages are. A person may have removed it since; then it is NotFound to whatever is moved there.
    pub(super) fn claimed(&self) -> Result<&Root> {
        shelf(self.host(), parts::CLAIMED, &self.places.claimed)
    }

    /// Where things go to be removed; as [`claimed`](Self::claimed).
    pub(super) fn trash(&self) -> Result<&Root> {
        shelf(self.host(), parts::TRASH, &self.places.trash)
    }

    /// The directory that the guest may write to.
    #[must_use]
    pub fn guest(&self) -> &Root {
        &self.places.guest
    }

    /// The directory that only the host can reach.
    #[must_use]
    pub fn host(&self) -> &Root {
        &self.places.host
    }

    /// The config in force.
    #[must_use]
    pub fn config(&self) -> &SessionsConfig {
        &self.config
    }
}

fn shelf<'a>(host: &Root, name: &str, held: &'a OnceLock<Root>) -> Result<&'a Root> {
    if let Some(root) = held.get() {
        return Ok(root);
    }
    let root = host.ensure_and_descend(name)?.0;
    Ok(held.get_or_init(|| root))
}
