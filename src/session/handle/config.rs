//! What a service decides once for all its sessions.

mod allowed;

use std::collections::BTreeSet;

pub use super::options::{Base64, Dotfiles, MessageLimits, SweepClock};
use super::parts::{Part, Parts};
use super::rules::Rules;
use crate::name::{AllowedTypes, MessageId, MountPoint, Spelling, is_folded};
use crate::root::{Access, Budget, Durability, HardLinks, Links, Mounts, Policy, ResolverChoice};

/// How sessions are made and what they allow.
///
/// By default files are shared by group (`0660`, directories `0770`), the guest sees its directory at `/session`, and inbox and
/// outbox have their default limits.
///
/// ```
/// use beneath::session::{MessageLimits, SessionsConfig};
/// use beneath::{Access, MountPoint};
///
/// let config = SessionsConfig::default()
///     .with_access(Access::private().with_owner(1000).with_group(1000))
///     .with_mount_point(MountPoint::new("/home/agent")?)
///     .with_inbox(MessageLimits::default().with_file_bytes(20 << 20));
/// assert_eq!(config.mount_point().as_str(), "/home/agent");
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionsConfig {
    access: Access,
    durability: Durability,
    resolver: ResolverChoice,
    mount_point: MountPoint,
    places: Option<Parts<MountPoint>>,
    share: Option<MountPoint>,
    links: Links,
    hard_links: HardLinks,
    mounts: Mounts,
    spelling: Spelling,
    dotfiles: Dotfiles,
    base64: Base64,
    reserved: BTreeSet<String>,
    inbox: MessageLimits,
    outbox: MessageLimits,
    budget: Budget,
    sweep_clock: SweepClock,
    rules: Rules,
    types: Option<AllowedTypes>,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            access: Access::shared(),
            durability: Durability::default(),
            resolver: ResolverChoice::default(),
            mount_point: MountPoint::default(),
            places: None,
            share: None,
            links: Links::Refuse,
            hard_links: HardLinks::RefuseStrict,
            mounts: Mounts::Refuse,
            spelling: Spelling::default(),
            dotfiles: Dotfiles::default(),
            base64: Base64::default(),
            reserved: BTreeSet::new(),
            inbox: MessageLimits::default(),
            outbox: MessageLimits::default(),
            budget: Budget::default(),
            sweep_clock: SweepClock::default(),
            rules: Rules::default(),
            types: None,
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

    /// Sets where the guest sees its directory, the one that contains inbox, outbox and workspace. Only paths that a guest
    /// wrote are compared with it.
    #[must_use]
    pub fn with_mount_point(mut self, mount_point: MountPoint) -> Self {
        self.mount_point = mount_point;
        self
    }

    /// Sets that inbox, outbox and workspace are apart: the guest sees each at a mount point of its own, and not the directory
    /// that contains them. Then [`with_mount_point`](Self::with_mount_point) has no effect.
    ///
    /// Mount `<sessions>/<session>/guest/inbox` and so on, each by itself. The guest can then replace none of the three, so a session
    /// holds each by its handle, and a mount there is busy as long as a session is open. What the host has mounted at one of these directories, before it opens the session, is used: say, a
    /// file system for the outbox alone. Messages in that are read [in place](crate::session::Place::InPlace).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// use beneath::session::{Part, Parts};
    /// use beneath::{GuestPath, MountPoint, SessionId, Sessions, SessionsConfig};
    ///
    /// let places = Parts {
    ///     inbox: MountPoint::new("/inbox")?,
    ///     outbox: MountPoint::new("/out")?,
    ///     workspace: MountPoint::new("/home/agent/work")?,
    /// };
    /// let sessions = Sessions::new(root, SessionsConfig::default().with_places(places));
    /// let (session, _) = sessions.create(&SessionId::new("s"))?;
    /// session.workspace().write_exclusive("/home/agent/work/a.txt", "hello")?;
    /// assert_eq!(session.workspace().read_contained("a.txt", 10)?, b"hello");
    /// assert_eq!(session.resolve("/out/42/a")?, (Part::Outbox, GuestPath::new("42/a")?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_places(mut self, places: Parts<MountPoint>) -> Self {
        self.places = Some(places);
        self
    }

    /// Sets that each session has a directory `share`, which the guest sees read-only at `mount_point`; see
    /// [`Session::share`](crate::Session::share). By default there is none.
    ///
    /// [`create`](crate::Sessions::create) makes it, also for a session that exists without it.
    #[must_use]
    pub fn with_share(mut self, mount_point: MountPoint) -> Self {
        self.share = Some(mount_point);
        self
    }

    /// Sets what a link in the workspace means when it is read, listed or described. By default it is refused.
    ///
    /// With [`Links::FollowBeneath`] it is followed as long as every step stays in the workspace, as a virtual environment and
    /// `node_modules/.bin` need; a link that leads out is [`Escape`](crate::ErrorKind::Escape). No other call follows a link, and
    /// none does in the inbox, in the outbox or in a message. It needs openat2.
    #[must_use]
    pub fn with_links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Sets what happens when a file to be read has several names; in the workspace, in messages and for databases. By default
    /// it is refused, with [the proof](HardLinks::RefuseStrict).
    ///
    /// [`HardLinks::Allow`] is right where the guest's side has a mount of its own, since no hard link crosses a mount. Modes and
    /// owners of such files are never changed.
    #[must_use]
    pub fn with_hard_links(mut self, hard_links: HardLinks) -> Self {
        self.hard_links = hard_links;
        self
    }

    /// Sets what happens at a mount point on the guest's side. By default it is refused.
    ///
    /// With [`Mounts::Cross`] what the host has mounted there is read, written and listed. A removal never enters a mount.
    #[must_use]
    pub fn with_mounts(mut self, mounts: Mounts) -> Self {
        self.mounts = mounts;
        self
    }

    /// Sets what becomes of the dot at the start of an attachment's name.
    #[must_use]
    pub fn with_dotfiles(mut self, dotfiles: Dotfiles) -> Self {
        self.dotfiles = dotfiles;
        self
    }

    /// Sets which forms of base64 an attachment may have.
    #[must_use]
    pub fn with_base64(mut self, base64: Base64) -> Self {
        self.base64 = base64;
        self
    }

    /// Sets names that belong to the service; they are compared without regard to case, also where the file system has regard to
    /// it.
    ///
    /// The host makes nothing of such a name from what somebody else chose: no session and no group
    /// ([`InvalidName`](crate::ErrorKind::InvalidName)), and no message in an inbox. An attachment of that name gets a number, as if
    /// the name were taken. A directory of that name in an outbox is no message. What exists already can be opened and
    /// removed, and paths in the workspace are not concerned. Of a name that is not safe, as `a:b`, the directory name of that id
    /// belongs to the service too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// use beneath::{ErrorKind, SessionId, Sessions, SessionsConfig};
    ///
    /// let sessions = Sessions::new(root, SessionsConfig::default().with_reserved(["admin", "CLAUDE.md"]));
    /// let refused = sessions.create(&SessionId::new("Admin")).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::InvalidName);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_reserved<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        // A name that is no safe one has another on the disk if it comes as an id.
        let forms = |name: String| [MessageId::new(&name).to_string(), name];
        self.reserved = names.into_iter().map(Into::into).flat_map(forms).collect();
        self
    }

    /// Sets which spellings of a path are read; see [`GuestPath::parse`](crate::GuestPath::parse).
    #[must_use]
    pub fn with_spelling(mut self, spelling: Spelling) -> Self {
        self.spelling = spelling;
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

    /// What is on disk when a delivery returns.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Which resolver the sessions' roots use.
    #[must_use]
    pub fn resolver(&self) -> ResolverChoice {
        self.resolver
    }

    /// Where the guest sees its directory.
    #[must_use]
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount_point
    }

    /// Where the guest sees inbox, outbox and workspace, if they are apart.
    #[must_use]
    pub fn places(&self) -> Option<&Parts<MountPoint>> {
        self.places.as_ref()
    }

    /// Where the guest sees the directory that it may only read, if sessions have one.
    #[must_use]
    pub fn share(&self) -> Option<&MountPoint> {
        self.share.as_ref()
    }

    /// What a link in the workspace means to a read.
    #[must_use]
    pub fn links(&self) -> Links {
        self.links
    }

    /// What happens when a file to be read has several names.
    #[must_use]
    pub fn hard_links(&self) -> HardLinks {
        self.hard_links
    }

    /// What happens at a mount point on the guest's side.
    #[must_use]
    pub fn mounts(&self) -> Mounts {
        self.mounts
    }

    /// What becomes of the dot at the start of an attachment's name.
    #[must_use]
    pub fn dotfiles(&self) -> Dotfiles {
        self.dotfiles
    }

    /// Which forms of base64 an attachment may have.
    #[must_use]
    pub fn base64(&self) -> Base64 {
        self.base64
    }

    /// Whether a name belongs to the service.
    #[must_use]
    pub fn is_reserved(&self, name: &str) -> bool {
        self.reserved.iter().any(|reserved| is_folded(reserved, name))
    }

    /// Where the guest sees a part, if it sees that by itself.
    pub(in crate::session) fn place(&self, part: Part) -> Option<&MountPoint> {
        self.places.as_ref()?.get(part)
    }

    /// Which spellings of a path are read.
    #[must_use]
    pub fn spelling(&self) -> Spelling {
        self.spelling
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
        self.host_policy().with_access(self.access).with_hard_links(self.hard_links).with_mounts(self.mounts)
    }

    /// Never the guest's owner: what the guest may read here is the host's to change.
    pub(in crate::session) fn share_policy(&self) -> Policy {
        self.host_policy().with_access(Access::custom(0o644, 0o755))
    }

    /// Never the guest's access: what the host keeps for itself is `0700`.
    pub(in crate::session) fn host_policy(&self) -> Policy {
        Policy::default()
            .with_durability(self.durability)
            .with_resolver(self.resolver)
            .with_hard_links(HardLinks::RefuseStrict)
    }
}
