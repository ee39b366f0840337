//! What a service decides once for all its sessions.

use crate::root::{Access, Budget, Durability, HardLinks, Policy, ResolverChoice};

/// How sessions are made and what they allow.
///
/// By default files are shared by group (`0660`, directories `0770`), the guest sees its directory at `/workspace`, and inbox and
/// outbox have their default limits.
///
/// ```
/// use beneath::Access;
/// use beneath::session::{MessageLimits, SessionsConfig};
///
/// let config = SessionsConfig::default()
///     .with_access(Access::private().with_owner(1000).with_group(1000))
///     .with_mount_point("/home/agent")
///     .with_inbox(MessageLimits::default().with_file_bytes(20 << 20));
/// assert_eq!(config.mount_point(), "/home/agent");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionsConfig {
    access: Access,
    durability: Durability,
    resolver: ResolverChoice,
    mount_point: String,
    inbox: MessageLimits,
    outbox: MessageLimits,
    budget: Budget,
    sweep_clock: SweepClock,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            access: Access::shared(),
            durability: Durability::default(),
            resolver: ResolverChoice::default(),
            mount_point: "/workspace".to_owned(),
            inbox: MessageLimits::default(),
            outbox: MessageLimits::default(),
            budget: Budget::default(),
            sweep_clock: SweepClock::default(),
        }
    }
}

impl SessionsConfig {
    /// Sets mode and owner of what the host puts on the guest's side.
    ///
    /// A host that runs as root for a guest of user 1000 wants `Access::private().with_owner(1000)`; a host and a
    /// guest that share a group want `Access::shared().with_group(gid)`.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets what is on disk when a delivery returns.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets which resolver the sessions' roots use.
    #[must_use]
    pub fn with_resolver(mut self, resolver: ResolverChoice) -> Self {
        self.resolver = resolver;
        self
    }

    /// Sets where the guest sees its directory. Only paths that a guest wrote are compared with it.
    #[must_use]
    pub fn with_mount_point(mut self, path: impl Into<String>) -> Self {
        self.mount_point = path.into();
        self
    }

    /// Sets the limits of deliveries.
    #[must_use]
    pub fn with_inbox(mut self, limits: MessageLimits) -> Self {
        self.inbox = limits;
        self
    }

    /// Sets the limits of collections.
    #[must_use]
    pub fn with_outbox(mut self, limits: MessageLimits) -> Self {
        self.outbox = limits;
        self
    }

    /// Sets the bounds of every removal.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets which clock says how old a session is.
    #[must_use]
    pub fn with_sweep_clock(mut self, clock: SweepClock) -> Self {
        self.sweep_clock = clock;
        self
    }

    /// Mode and owner of what the host puts on the guest's side.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Where the guest sees its directory.
    #[must_use]
    pub fn mount_point(&self) -> &str {
        &self.mount_point
    }

    /// The limits of deliveries.
    #[must_use]
    pub fn inbox(&self) -> MessageLimits {
        self.inbox
    }

    /// The limits of collections.
    #[must_use]
    pub fn outbox(&self) -> MessageLimits {
        self.outbox
    }

    /// The bounds of every removal.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Which clock says how old a session is.
    #[must_use]
    pub fn sweep_clock(&self) -> SweepClock {
        self.sweep_clock
    }

    pub(in crate::session) fn guest_policy(&self) -> Policy {
        self.host_policy().with_access(self.access)
    }

    /// Never the guest's access: what the host keeps for itself is `0700`.
    pub(in crate::session) fn host_policy(&self) -> Policy {
        Policy::default()
            .with_durability(self.durability)
            .with_resolver(self.resolver)
            .with_hard_links(HardLinks::RefuseStrict)
    }
}

/// Which time counts as the age of a session; see [`Sessions::sweep`](crate::Sessions::sweep).
///
/// ```
/// use std::time::Duration;
/// use beneath::session::{SessionsConfig, SweepClock};
/// # use beneath::{Root, SessionId, Sessions, ambient_authority};
///
/// # let dir = tempfile::tempdir()?;
/// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
/// let sessions = Sessions::new(root, SessionsConfig::default().with_sweep_clock(SweepClock::Wall));
/// # sessions.create(&SessionId::new("s"))?;
/// assert_eq!(sessions.sweep(Duration::from_secs(3600))?.kept, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SweepClock {
    /// The time that the host has watched the sessions while the machine was up. A wall clock that is wrong makes no session
    /// older.
    #[default]
    Watched,
    /// The wall clock as it is now, time without power included: for machines that are off most of the time, or after a
    /// long pause. A clock that is wrong removes sessions in use.
    Wall,
}

/// How much one message may bring, in either direction.
///
/// Deliveries with the same id are one message; see [`Inbox::deliver`](crate::session::Inbox::deliver).
///
/// ```
/// use beneath::session::MessageLimits;
///
/// let limits = MessageLimits::default().with_file_bytes(20 << 20).with_message_bytes(50 << 20).with_files(10);
/// assert_eq!(limits.file_bytes(), 20 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    file_bytes: u64,
    message_bytes: u64,
    files: u64,
}

impl Default for MessageLimits {
    /// 64 MiB a file, 256 MiB and 64 files a message.
    fn default() -> Self {
        Self { file_bytes: 64 << 20, message_bytes: 256 << 20, files: 64 }
    }
}

impl MessageLimits {
    /// Bounds one file.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Bounds all files of one message together.
    #[must_use]
    pub fn with_message_bytes(mut self, bytes: u64) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Bounds the number of files of one message.
    #[must_use]
    pub fn with_files(mut self, files: u64) -> Self {
        self.files = files;
        self
    }

    /// Most bytes of one file.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        self.file_bytes
    }

    /// Most bytes of one message.
    #[must_use]
    pub fn message_bytes(self) -> u64 {
        self.message_bytes
    }

    /// Most files of one message.
    #[must_use]
    pub fn files(self) -> u64 {
        self.files
    }
}
