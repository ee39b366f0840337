//! Handing files to a guest and taking files from it.
//!
//! A session is two directories: one that the guest may do anything in, and one that only the host can reach.
//!
//! Give the guest a mount of its own, a bind mount of `guest` in a mount namespace, and not only a `chroot`. A guest that holds
//! a descriptor into a message keeps it when the message is claimed; on the host's own mount, `..` leads from there into
//! the host's side, which only modes then keep closed. On a mount of its own it leads nowhere.
//!
//! | to do | call |
//! |---|---|
//! | make, find and end sessions | [`Sessions`] |
//! | give the guest a message's attachments | [`Inbox::deliver`], or [`rewrite_message`] for a JSON message |
//! | take what the guest sends, each message once | [`Outbox::collect`], [`Claim::read`] |
//! | take one message by its id | [`Outbox::claim`], [`Claim::read`], [`Claim::clear`] |
//! | pass it on to another guest | [`Claim::forward`] |
//! | work on the guest's own files | [`Workspace`] |
//! | follow a log that the guest writes | [`Tail`] |
//! | open a database that the guest can reach | [`Session::copy_db`], never the file itself; [`Session::verify_db`] to look at it |
//! | set modes and owners right | [`harden_tree`], [`Session::repair`] |
//!
//! Every call looks up `inbox`, `outbox` and `workspace` anew, as components beneath the guest's handle, since the guest
//! may have replaced them by links. One bad attachment, file or entry never fails the rest: it is an outcome of its
//! own, with the reason. With the feature `tracing` each refusal is also an event of the target `beneath`.
#![cfg_attr(not(feature = "json"), doc = "", doc = "[`rewrite_message`]: https://docs.rs/beneath")]

mod access;
mod attachment;
mod claim;
mod clear;
mod clock;
mod collect;
mod config;
mod database;
mod delivery;
mod event;
mod home;
mod inbox;
mod layout;
mod lock;
mod marker;
#[cfg(feature = "json")]
mod message;
mod outbox;
mod retire;
mod sessions;
mod slot;
mod survey;
mod tail;
mod ticket;
mod usage;
mod workspace;

use std::sync::{Arc, OnceLock};

pub use access::{Hardened, Hardening, harden_tree};
pub use attachment::Attachment;
pub use claim::{Claim, Cleared, Place, Undeclared, UndeclaredList};
pub use collect::{Collected, CollectedFile, OutboxFile};
pub use config::{MessageLimits, SessionsConfig};
pub use database::{DbFault, DbReport, Sibling, WalSafety};
pub use delivery::{Delivery, Outcome, RolledBack, SavedFile};
pub use inbox::Inbox;
pub use layout::{Layout, Part, PartState};
pub use lock::SessionLock;
#[cfg(feature = "json")]
pub use message::rewrite_message;
pub use outbox::{Collection, Disposition, Failed, Ledger, Messages, Outbox};
pub use retire::Swept;
pub use sessions::Sessions;
pub use survey::Survey;
pub use tail::{FileIdentity, Tail, TailChunk, TailEvent, TailPosition};
pub use ticket::Ticket;
pub use usage::{Quota, Usage};
pub use workspace::{ListOptions, Listing, Workspace};

use crate::error::Result;
use crate::root::Root;
use home::Home;

/// One session: a directory shared with a guest, and one of the host's own.
///
/// A session made by [`Sessions`] or laid over existing directories by [`from_roots`](Self::from_roots). Several
/// `Session`s may be open on the same directories; [`try_lock`](Self::try_lock) is there to take turns.
///
/// Once a session of [`Sessions`] was removed, delivering, claiming and locking through a handle that is still open
/// is [`NotFound`](crate::ErrorKind::NotFound), also if the id was made anew.
#[derive(Debug)]
pub struct Session {
    guest: Root,
    host: Root,
    config: Arc<SessionsConfig>,
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
    /// session.repair()?;
    /// assert!(session.verify().is_sound());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_roots(guest: Root, host: Root) -> Result<Self> {
        layout::ensure_host(&host)?;
        Ok(Self::assemble(guest, host, Arc::default(), None))
    }

    /// Replaces the limits, the mount point and the budget; the roots keep their policies.
    #[must_use]
    pub fn with_config(mut self, config: SessionsConfig) -> Self {
        self.config = Arc::new(config);
        self
    }

    fn assemble(guest: Root, host: Root, config: Arc<SessionsConfig>, home: Option<Home>) -> Self {
        Self { guest, host, config, home, claimed: OnceLock::new(), trash: OnceLock::new() }
    }

    /// [`NotFound`](crate::ErrorKind::NotFound) once the session was removed.
    fn alive(&self) -> Result<()> {
        self.home.as_ref().map_or(Ok(()), Home::check)
    }

    /// Where claimed messages are. A person may have removed it since; then it is NotFound to whatever is moved there.
    fn claimed(&self) -> Result<&Root> {
        shelf(&self.host, layout::CLAIMED, &self.claimed)
    }

    /// Where things go to be removed; as [`claimed`](Self::claimed).
    fn trash(&self) -> Result<&Root> {
        shelf(&self.host, layout::TRASH, &self.trash)
    }

    /// The directory that the guest may write to.
    #[must_use]
    pub fn guest(&self) -> &Root {
        &self.guest
    }

    /// The directory that only the host can reach.
    #[must_use]
    pub fn host(&self) -> &Root {
        &self.host
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
