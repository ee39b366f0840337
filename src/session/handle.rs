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
pub(super) mod identity;
pub(super) mod layout;
pub(super) mod located;
pub(super) mod lock;
pub(super) mod marker;
pub(super) mod mount;
pub(super) mod options;
pub(super) mod parts;
pub(super) mod resolve;
pub(super) mod rules;
pub(super) mod share;

use std::sync::{Arc, OnceLock};

use self::config::SessionsConfig;
use self::home::Home;
use self::parts::Parts;
use crate::error::Result;
use crate::root::{HardLinks, Links, Root};

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
    share: Option<Arc<Root>>,
}

/// What all clones of a session share.
#[derive(Debug)]
struct Places {
    guest: Root,
    /// The parts, if the guest can replace none of them.
    apart: Option<Parts<Root>>,
    /// What the guest's root, or that of the workspace, said of links. It counts for the workspace alone.
    links: Links,
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
    /// Each root keeps its policy, but that [`HardLinks::Refuse`](crate::HardLinks::Refuse) becomes
    /// [`RefuseStrict`](crate::HardLinks::RefuseStrict) on the guest's side; that of `guest` says which modes and owners deliveries get.
    /// What `host` lacks is made; on the guest's side directories are made when they are first needed.
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
        Ok(Self::assemble(guest, None, host, Arc::default(), None))
    }

    /// Lays a session over four existing directories: inbox, outbox and workspace, each of which the guest may write to, and `host`,
    /// which it must not reach.
    ///
    /// Mount each of the three by itself, and nothing above it, so that the guest can replace none of them. Set where it sees them by
    /// [`SessionsConfig::with_places`]. Each root keeps its policy, as for [`from_roots`](Self::from_roots); that of
    /// the workspace may follow links. The three may be on different file systems: messages are moved out of the guest's reach if
    /// the outbox and `host` are on one mount, and read in the outbox otherwise.
    ///
    /// The directories belong to whoever made them. No call of a session removes one; [`empty`](Self::empty) removes what they
    /// contain.
    ///
    /// # Errors
    /// As [`from_roots`](Self::from_roots), and [`TooMany`](crate::ErrorKind::TooMany) if no descriptor is left.
    ///
    /// ```
    /// use beneath::session::{Attachment, Parts};
    /// use beneath::{MessageId, MountPoint, Root, Session, SessionsConfig, ambient_authority};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let open = |name: &str| {
    ///     let path = dir.path().join(name);
    ///     std::fs::create_dir(&path)?;
    ///     Ok::<_, std::io::Error>(Root::open_ambient(path, ambient_authority())?)
    /// };
    /// let roots = Parts { inbox: open("in")?, outbox: open("out")?, workspace: open("work")? };
    /// let places = Parts {
    ///     inbox: MountPoint::new("/inbox")?,
    ///     outbox: MountPoint::new("/outbox")?,
    ///     workspace: MountPoint::new("/work")?,
    /// };
    /// let session = Session::from_places(roots, open("private")?)?
    ///     .with_config(SessionsConfig::default().with_places(places));
    /// let delivery = session.inbox().deliver(&MessageId::new("42"), [Attachment::from_bytes("x").with_name("a")]);
    /// assert_eq!(delivery.files().next().unwrap().guest_path, "/inbox/42/a");
    /// assert!(dir.path().join("in/42/a").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_places(places: Parts<Root>, host: Root) -> Result<Self> {
        parts::ensure_host(&host)?;
        let guest = places.workspace.try_clone()?;
        Ok(Self::assemble(guest, Some(places), host, Arc::default(), None))
    }

    /// Replaces the limits, the mount points, the budget, and what is said of names and of links in the workspace; the roots keep their
    /// policies.
    #[must_use]
    pub fn with_config(mut self, config: SessionsConfig) -> Self {
        self.config = Arc::new(config);
        self
    }

    pub(super) fn assemble(
        guest: Root,
        apart: Option<Parts<Root>>,
        host: Root,
        config: Arc<SessionsConfig>,
        home: Option<Home>,
    ) -> Self {
        let links = guest.policy().links();
        let (guest, apart) = (strictly(guest), apart.map(|parts| parts.map(strictly)));
        let (claimed, trash) = (OnceLock::new(), OnceLock::new());
        Self {
            places: Arc::new(Places { guest, apart, links, host, home, claimed, trash }),
            config,
            share: None,
        }
    }

    /// [`NotFound`](crate::ErrorKind::NotFound) once the session was removed.
    pub(crate) fn alive(&self) -> Result<()> {
        self.places.home.as_ref().map_or(Ok(()), Home::check)
    }

    /// Where claimed messages are. A person may have removed it since; then it is NotFound to whatever is moved there.
    pub(super) fn claimed(&self) -> Result<&Root> {
        shelf(self.host(), parts::CLAIMED, &self.places.claimed)
    }

    /// Where things go to be removed; as [`claimed`](Self::claimed).
    pub(crate) fn trash(&self) -> Result<&Root> {
        shelf(self.host(), parts::TRASH, &self.places.trash)
    }

    /// The directory that the guest may write to; the workspace, if the session was laid over [places](Self::from_places).
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

/// A link is followed in the workspace alone, and only to read; a file with several names is refused with the proof.
fn strictly(root: Root) -> Root {
    let policy = root.policy().clone().with_links(Links::Refuse);
    let hard_links = match policy.hard_links() {
        HardLinks::Refuse => HardLinks::RefuseStrict,
        chosen => chosen,
    };
    root.with_policy(policy.with_hard_links(hard_links))
}

fn shelf<'a>(host: &Root, name: &str, held: &'a OnceLock<Root>) -> Result<&'a Root> {
    if let Some(root) = held.get() {
        return Ok(root);
    }
    let root = host.ensure_and_descend(name)?.0;
    Ok(held.get_or_init(|| root))
}
