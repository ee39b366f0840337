//! All sessions of a service, in one directory of the host.
//!
//! Problem: a host dies in the middle of making or removing a session, directories that are none of its sessions are beside them,
//! and groups have any names.
//!
//! Defence: [markers](super::handle::marker) say what is what. A session is built under a name of its own (`.new-…`), gets its
//! marker last, and then its id in one step; a removal takes the id away in one step (`.removed-…`), before it deletes
//! anything. What is left by a host that is killed:
//!
//! | killed while | left | then |
//! |---|---|---|
//! | making a session, before it has its id | `.new-…` | swept once it is old enough; the id is free |
//! | completing one whose parts are missing | a session with some of them | the next `create` makes the rest |
//! | making a group | `.new-…` | as above |
//! | marking a directory made by hand as a group | an empty directory, with or without the marker | the next `group` goes on |
//! | removing, before the id is gone | the session, whole | nothing was lost |
//! | removing, after that | `.removed-…`, marked or not | the next sweep goes on; handles that are still open are dead |
//! | removing in place, where the session cannot be renamed | the id, marked as being removed | the next `remove` or sweep goes on |
//! | removing in place, between the marker and the directory, its last two steps | an empty directory | the id stays taken until somebody removes it |
//!
//! What remains: the last row.

mod remove;
mod survey;
mod sweep;

use std::path::Path;
use std::sync::Arc;

use super::handle::Session;
use super::handle::config::SessionsConfig;
use super::handle::home::Home;
use super::handle::marker::{Kind, kind_of, look_at, mark_group, mark_session};
use super::handle::parts::{GUEST, HOST, Part, Parts, SHARE, ensure_guest, ensure_host};
use super::sweep::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{SafeName, SessionId};
use crate::root::{Access, Ensured, HardLinks, Mounts, Policy, Root};

#[cfg(feature = "seal")]
use crate::root::{Seal, Seat};
pub use survey::Survey;

/// The mode of `<sessions>/<session>`: the guest may pass through to its part, and sees nothing else.
const SESSION_ACCESS: Access = Access::custom(0o600, 0o711);

/// Prefixes of what is neither a session nor a group. Ids never start with a dot.
const NEW: &str = ".new-";
const REMOVED: &str = ".removed-";

/// A host-only directory of sessions.
///
/// ```text
/// <sessions>/<session>/guest/{inbox,outbox,workspace}      mount this one into the container, nothing above it
/// <sessions>/<session>/share                               if the config asks for it: the guest's to read, mount it read-only
/// <sessions>/<session>/host/{staging,claimed,trash,state}  0700, never mounted
/// <sessions>/<session>/.session                            says that this is a session, and which
/// <sessions>/.clock                                        how long the sessions were watched, for `sweep`
/// ```
/// With [groups](Self::group) there are more levels above the sessions. Directories that the host has not marked as one or the
/// other are left alone.
///
/// A session may have a file system of its own: create it, mount the file system at its `guest`, and
/// [`create`](Self::create) it again, which makes what the file system lacks. Messages are then read in place, since they
/// cannot be moved to the host's side. Unmount it before you remove the session.
///
/// ```
/// use beneath::{Ensured, Root, SessionId, Sessions, ambient_authority};
/// use beneath::session::SessionsConfig;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let root = Root::open_ambient(path, ambient_authority())?;
/// let sessions = Sessions::new(root, SessionsConfig::default());
///
/// let id = SessionId::generate()?;
/// let (session, how) = sessions.create(&id)?;
/// assert_eq!(how, Ensured::Created);
/// assert!(session.verify().is_sound());
/// assert_eq!(sessions.list()?, [id.clone()]);
///
/// assert!(sessions.remove(&id)?.is_complete());
/// assert!(!sessions.exists(&id)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sessions {
    root: Arc<Root>,
    /// The handle of before it was sealed, by which others can mount what is in it.
    plain: Option<Arc<Root>>,
    config: Arc<SessionsConfig>,
}

impl Sessions {
    /// Keeps sessions in `root`, which no guest may reach.
    ///
    /// The policy of `root` gives way to the config's.
    #[must_use]
    pub fn new(root: Root, config: SessionsConfig) -> Self {
        // No guest reaches this level, so mounts and second names are the host's own.
        let policy = config.host_policy().with_mounts(Mounts::Cross).with_hard_links(HardLinks::Allow);
        let root = root.with_policy(policy.with_access(SESSION_ACCESS));
        Self { root: Arc::new(root), plain: None, config: Arc::new(config) }
    }

    /// The same sessions, with their directory [sealed](Root::seal) once: on everything that is reached through them the kernel
    /// follows no link and opens no device.
    ///
    /// Guest and host side of a session are on the same mount then, so messages are still claimed by moving them. Sessions that
    /// have a file system of their own cannot be used so: a mount inside the directory is not seen. They are
    /// [`Unsupported`](ErrorKind::Unsupported) when they are opened or made; mount nothing in one that is open. What is handed to whoever
    /// starts a guest, by [`Session::to_mount`] and others, is on the original mount: few can bind one that is attached nowhere.
    ///
    /// # Errors
    /// Those of [`Root::seal`].
    ///
    /// ```no_run
    /// use beneath::{Root, Seat, Sessions, SessionsConfig, ambient_authority};
    ///
    /// let seat = Seat::open_ambient("/run/my-service/seat", ambient_authority())?;
    /// let root = Root::open_ambient("/srv/sessions", ambient_authority())?;
    /// let sessions = Sessions::new(root, SessionsConfig::default()).sealed(&seat)?;
    /// # drop(sessions);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[cfg(feature = "seal")]
    pub fn sealed(self, seat: &Seat) -> Result<Self> {
        let plain = self.plain.unwrap_or(self.root);
        let root = plain.seal(Seal::ReadWrite, seat)?;
        Ok(Self { root: Arc::new(root), plain: Some(plain), config: self.config })
    }

    /// The config in force.
    #[must_use]
    pub fn config(&self) -> &SessionsConfig {
        &self.config
    }

    /// The sessions of one group, a directory between the root and its sessions; it is made if it is missing.
    ///
    /// Groups may hold groups, to any depth and with any names. An empty directory that somebody made by hand becomes a group.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if `group` is a session, a directory that holds something and is no group, or,
    /// where case is folded, a group of another spelling; [`InvalidName`](ErrorKind::InvalidName) if the name of a new one is
    /// [reserved](SessionsConfig::with_reserved); [`Busy`](ErrorKind::Busy) if it comes and goes;
    /// [`NotDirectory`](ErrorKind::NotDirectory), [`Denied`](ErrorKind::Denied) and the kinds of every resolution.
    ///
    /// # Races
    /// Concurrent callers get the same group.
    ///
    /// ```
    /// # use beneath::{Root, SessionId, Sessions, ambient_authority, safe_name};
    /// # let dir = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(dir.path(), ambient_authority())?, Default::default());
    /// let team = sessions.group(&safe_name("team")?)?;
    /// team.create(&SessionId::new("42"))?;
    /// assert_eq!(sessions.groups()?, [safe_name("team")?]);
    /// assert!(sessions.list()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group(&self, group: &SafeName) -> Result<Self> {
        let taken = |why| Err(Error::new("open group", group, ErrorKind::AlreadyExists).with_detail(why));
        let look = || look_at(&self.root, group.as_str());
        let mut found = look()?;
        if found.0 == Kind::Nothing {
            self.refuse_reserved("open group", group.as_str())?;
            self.publish(group, |dir| mark_group(dir, group.as_str()))?;
            found = look()?;
        }
        self.refuse_mounted("open group", group.as_str())?;
        if let (Kind::Unmarked, Some(dir)) = &found
            && dir.list(".").map_err(|error| error.about(group))?.next().is_none()
        {
            match mark_group(dir, group.as_str()) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.about(group)),
                _ => found = look()?,
            }
        }
        match found {
            (Kind::Group, Some(dir)) => {
                let root = Arc::new(dir.with_policy(self.root.policy().clone()));
                let plain = self.plain.as_ref().map(|plain| plain.descend(group)).transpose()?.map(Arc::new);
                Ok(Self { root, plain, config: Arc::clone(&self.config) })
            }
            // It was made and removed meanwhile.
            (Kind::Nothing, _) => {
                Err(Error::new("open group", group, ErrorKind::Busy).with_detail("comes and goes"))
            }
            (Kind::Session, _) => taken("is a session"),
            (Kind::Unmarked, _) => taken("is not a group"),
            (other, _) => taken(other.reason()),
        }
    }

    /// A sealed directory shows what is beneath a mount point. Who is mounted there never sees what is put there.
    fn refuse_mounted(&self, operation: &'static str, name: &str) -> Result<()> {
        let Some(plain) = &self.plain else { return Ok(()) };
        let apart =
            self.config.places().map(|_| Part::ALL.map(|part| format!("{name}/{GUEST}/{}", part.name())));
        let own = [GUEST, HOST, SHARE].map(|part| format!("{name}/{part}"));
        for path in std::iter::once(name.to_owned()).chain(own).chain(apart.into_iter().flatten()) {
            let look = |root: &Root| root.metadata(&path).map(|found| (found.dev(), found.ino())).ok();
            let (here, there) = (look(&self.root), look(plain));
            // It may come or go between the two looks.
            if here != there && here == look(&self.root) {
                return Err(Error::new(operation, name, ErrorKind::Unsupported)
                    .with_detail("something is mounted in it, which a sealed directory does not show"));
            }
        }
        Ok(())
    }

    fn refuse_reserved(&self, operation: &'static str, name: &str) -> Result<()> {
        match self.config.is_reserved(name) {
            true => Err(Error::new(operation, name, ErrorKind::InvalidName).with_detail("is reserved")),
            false => Ok(()),
        }
    }

    /// Builds a directory under a name of its own, then gives it `name`. None if somebody else was faster.
    fn publish<T>(
        &self,
        name: impl AsRef<Path>,
        build: impl FnOnce(&Root) -> Result<T>,
    ) -> Result<Option<T>> {
        let draft = format!("{NEW}{}", SessionId::generate()?);
        let made = self
            .root
            .ensure_dir(&draft)
            .and_then(|_| build(&self.root.descend(&draft)?))
            .and_then(|built| self.root.rename(&draft, &name).map(|()| built));
        match made {
            Ok(built) => Ok(Some(built)),
            Err(error) => {
                // What stays of it is swept.
                let _ = self.root.remove_tree_contained(&draft);
                match error.kind() {
                    ErrorKind::AlreadyExists => Ok(None),
                    _ => Err(error.about(name)),
                }
            }
        }
    }

    /// Makes the session `id`, or opens it and says that it existed.
    ///
    /// A new session appears whole or not at all. Parts that an existing one lacks are made.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if `id` is a [group](Self::group), a directory that is no session, or, where case
    /// is folded, the session of another spelling; [`Busy`](ErrorKind::Busy) if it is being removed, or
    /// comes and goes;
    /// [`InvalidName`](ErrorKind::InvalidName) if the name of a new one is [reserved](SessionsConfig::with_reserved);
    /// [`NoSpace`](ErrorKind::NoSpace), [`Denied`](ErrorKind::Denied) (say, for an owner that the
    /// host may not give files to) and the kinds of every resolution.
    ///
    /// # Races
    /// Of two concurrent callers exactly one gets [`Ensured::Created`].
    pub fn create(&self, id: &SessionId) -> Result<(Session, Ensured)> {
        if let Some(session) = self.complete(id)? {
            return Ok((session, Ensured::Existed));
        }
        self.refuse_reserved("create session", id.as_str())?;
        clock::begin(&self.root);
        let build = |dir: &Root| {
            let session = self.fill(id, dir)?;
            mark_session(dir, id.as_str()).map(|()| session)
        };
        if let Some(session) = self.publish(id, build)? {
            return Ok((session, Ensured::Created));
        }
        match self.complete(id)? {
            Some(session) => Ok((session, Ensured::Existed)),
            // It was made and removed meanwhile.
            None => Err(Error::new("create session", id, ErrorKind::Busy)),
        }
    }

    /// Makes the session `id`, which must be new.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), and those of [`create`](Self::create).
    pub fn create_new(&self, id: &SessionId) -> Result<Session> {
        match self.create(id)? {
            (session, Ensured::Created) => Ok(session),
            (_, Ensured::Existed) => Err(Error::new("create session", id, ErrorKind::AlreadyExists)),
        }
    }

    /// Makes a session with a fresh unguessable id.
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub fn create_generated(&self) -> Result<(SessionId, Session)> {
        let id = SessionId::generate()?;
        let session = self.create_new(&id)?;
        Ok((id, session))
    }

    /// Gives a session directory everything it lacks.
    fn fill(&self, id: &SessionId, dir: &Root) -> Result<Session> {
        let guest = crossing(dir, self.config.guest_policy())?;
        guest.ensure_dir(GUEST)?;
        if self.config.places().is_some() {
            Part::ALL.iter().try_for_each(|part| guest.ensure_dir(Path::new(GUEST).join(part)).map(drop))?;
        }
        if self.config.share().is_some() {
            crossing(dir, self.config.share_policy())?.ensure_dir(SHARE)?;
        }
        crossing(dir, self.config.host_policy())?.ensure_dir(HOST)?;
        let session = self.assemble(id, dir)?;
        if self.config.places().is_none() {
            ensure_guest(session.guest())?;
        }
        ensure_host(session.host()).map(|()| session)
    }

    /// Opens the session `id` and makes what it lacks; none if there is nothing of that name.
    fn complete(&self, id: &SessionId) -> Result<Option<Session>> {
        let refuse = |kind, why| Err(Error::new("create session", id, kind).with_detail(why));
        match look_at(&self.root, id.as_str())? {
            (Kind::Nothing, _) => Ok(None),
            (Kind::Session, Some(dir)) => {
                self.refuse_mounted("create session", id.as_str())?;
                let filled = self.fill(id, &dir).and_then(|session| session.alive().map(|()| session));
                match filled {
                    // A removal, or the guest, takes a level away while it is made.
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        Err(error.about(id).with_kind(ErrorKind::Busy).with_detail("was changed meanwhile"))
                    }
                    filled => filled.map(Some).map_err(|error| error.about(id)),
                }
            }
            (kind @ Kind::Doomed, _) => refuse(ErrorKind::Busy, kind.reason()),
            (kind, _) => refuse(ErrorKind::AlreadyExists, kind.reason()),
        }
    }

    /// Opens the directories of a session, which are there.
    fn assemble(&self, id: &SessionId, dir: &Root) -> Result<Session> {
        let policy = self.config.guest_policy();
        let guest = enter(dir, GUEST, policy.clone())?;
        let enter_part = |part: Part| enter(&guest, part.name(), policy.clone());
        let apart = self.config.places().map(|_| Parts::try_from_fn(enter_part)).transpose()?;
        let host = enter(dir, HOST, self.config.host_policy())?;
        let home = Home::new(&self.root, self.plain.as_ref(), id, dir)?;
        let session = Session::assemble(guest, apart, host, Arc::clone(&self.config), Some(home));
        if self.config.share().is_none() {
            return Ok(session);
        }
        match enter(dir, SHARE, self.config.share_policy()) {
            Ok(share) => Ok(session.with_share(share)),
            // It was made before the config asked for one.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(session),
            Err(error) => Err(error),
        }
    }

    /// Opens the session `id`, which must exist. Nothing is made or changed.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), also if `id` is something else than a session;
    /// [`InvalidData`](ErrorKind::InvalidData) or [`Unsupported`](ErrorKind::Unsupported) if its marker is damaged or of a later
    /// format; [`Busy`](ErrorKind::Busy) if others make and remove it without pause; and the kinds of every resolution.
    pub fn open(&self, id: &SessionId) -> Result<Session> {
        match look_at(&self.root, id.as_str())? {
            (Kind::Session, Some(dir)) => {
                self.refuse_mounted("open session", id.as_str())?;
                self.assemble(id, &dir).map_err(|error| error.about(id))
            }
            (kind, _) => Err(Error::new("open session", id, ErrorKind::NotFound).with_detail(kind.reason())),
        }
    }

    /// Whether the session `id` exists, whole or in part.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) but [`NotFound`](ErrorKind::NotFound).
    pub fn exists(&self, id: &SessionId) -> Result<bool> {
        match kind_of(&self.root, id.as_str()) {
            Ok(kind) => Ok(kind == Kind::Session),
            Err(error) if error.kind() == ErrorKind::NotDirectory => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Opens a directory of a session. What is mounted at its name was mounted by the host; inside it the policy counts.
fn enter(dir: &Root, name: &str, policy: Policy) -> Result<Root> {
    Ok(crossing(dir, policy.clone())?.descend(name)?.with_policy(policy))
}

fn crossing(dir: &Root, policy: Policy) -> Result<Root> {
    Ok(dir.try_clone()?.with_policy(policy.with_mounts(Mounts::Cross)))
}
