//! All sessions of a service, in one directory of the host.

use std::path::Path;
use std::sync::Arc;

use super::layout::{GUEST, HOST, HOST_PARTS, Part, ensure_guest, ensure_host};
use super::{Session, SessionsConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{SafeName, SessionId};
use crate::root::{Access, Ensured, Root};

/// The mode of `<sessions>/<session>`: the guest may pass through to its part, and sees nothing else.
const SESSION_ACCESS: Access = Access::custom(0o600, 0o711);

/// Prefixes of what is neither a session nor a group. Ids never start with a dot.
pub(super) const NEW: &str = ".new-";
pub(super) const REMOVED: &str = ".removed-";

/// A host-only directory of sessions.
///
/// ```text
/// <sessions>/<session>/guest/{inbox,outbox,workspace}      mount this one into the container, nothing above it
/// <sessions>/<session>/host/{staging,claimed,trash,state}  0700, never mounted
/// ```
/// With [groups](Self::group) there is one more level above the sessions.
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
/// assert!(sessions.remove(&id)?.complete);
/// assert!(!sessions.exists(&id)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sessions {
    pub(super) root: Root,
    pub(super) config: Arc<SessionsConfig>,
}

impl Sessions {
    /// Keeps sessions in `root`, which no guest may reach.
    ///
    /// The policy of `root` gives way to the config's.
    #[must_use]
    pub fn new(root: Root, config: SessionsConfig) -> Self {
        let policy = config.host_policy().with_access(SESSION_ACCESS);
        Self { root: root.with_policy(policy), config: Arc::new(config) }
    }

    /// The config in force.
    #[must_use]
    pub fn config(&self) -> &SessionsConfig {
        &self.config
    }

    /// The sessions of one group, a directory between the root and its sessions; it is made if it is missing.
    ///
    /// # Errors
    /// [`NotDirectory`](ErrorKind::NotDirectory), [`Denied`](ErrorKind::Denied) and the kinds of every resolution;
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if `group` is a session.
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
        if self.is_session(group.as_ref())? {
            return Err(Error::new("open group", group, ErrorKind::AlreadyExists).with_detail("is a session"));
        }
        self.root.ensure_dir(group)?;
        Ok(Self { root: self.root.descend(group)?, config: Arc::clone(&self.config) })
    }

    /// Makes the session `id`, or opens it and says that it existed.
    ///
    /// A new session appears whole or not at all. Parts that an existing one lacks are made.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if `id` is a [group](Self::group), or a directory that holds no part of a
    /// session and might be one; [`NoSpace`](ErrorKind::NoSpace), [`Denied`](ErrorKind::Denied) (say, for an owner that the
    /// host may not give files to) and the kinds of every resolution.
    ///
    /// # Races
    /// Of two concurrent callers exactly one is told [`Ensured::Created`].
    pub fn create(&self, id: &SessionId) -> Result<(Session, Ensured)> {
        if self.root.metadata(id).is_ok() {
            return self.complete(id).map(|session| (session, Ensured::Existed));
        }
        let draft = format!("{NEW}{}", SessionId::generate()?);
        let made = self.build(Path::new(&draft)).and_then(|()| self.root.rename(&draft, id));
        match made {
            Ok(()) => Ok((self.open(id)?, Ensured::Created)),
            Err(error) => {
                // What stays of it is swept.
                let _ = self.root.remove_tree_contained(&draft);
                match error.kind() {
                    ErrorKind::AlreadyExists => self.complete(id).map(|session| (session, Ensured::Existed)),
                    _ => Err(error.about(id)),
                }
            }
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

    fn build(&self, path: &Path) -> Result<()> {
        self.root.ensure_dir(path)?;
        let dir = self.root.descend(path)?;
        self.fill(&dir)
    }

    /// Gives a session directory everything it lacks.
    fn fill(&self, dir: &Root) -> Result<()> {
        let guest = dir.try_clone()?.with_policy(self.config.guest_policy());
        guest.ensure_dir(GUEST)?;
        ensure_guest(&guest.descend(GUEST)?)?;
        let host = dir.try_clone()?.with_policy(self.config.host_policy());
        host.ensure_dir(HOST)?;
        ensure_host(&host.descend(HOST)?)
    }

    fn complete(&self, id: &SessionId) -> Result<Session> {
        let dir = self.root.descend(id)?;
        if !self.is_session(id.as_ref())? {
            return Err(Error::new("create session", id, ErrorKind::AlreadyExists).with_detail("is a group"));
        }
        self.fill(&dir)?;
        self.open(id)
    }

    /// Opens the session `id`, which must exist. Nothing is made or changed.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution.
    pub fn open(&self, id: &SessionId) -> Result<Session> {
        let dir = self.root.descend(id)?;
        let guest = dir.descend(GUEST).map_err(|error| error.about(id))?;
        let host = dir.descend(HOST).map_err(|error| error.about(id))?;
        Ok(Session::assemble(
            guest.with_policy(self.config.guest_policy()),
            host.with_policy(self.config.host_policy()),
            Arc::clone(&self.config),
        ))
    }

    /// Whether the session `id` exists, whole or in part.
    ///
    /// # Errors
    /// The kinds of every resolution but [`NotFound`](ErrorKind::NotFound).
    pub fn exists(&self, id: &SessionId) -> Result<bool> {
        self.is_session(id.as_ref())
    }

    /// The ids of all sessions, sorted; those of groups are not among them.
    ///
    /// # Errors
    /// The kinds of every resolution.
    pub fn list(&self) -> Result<Vec<SessionId>> {
        let mut ids = Vec::new();
        self.each_directory(|name| {
            if let Ok(id) = SessionId::from_component(name)
                && self.is_session(Path::new(name))?
            {
                ids.push(id);
            }
            Ok(())
        })?;
        ids.sort_unstable();
        Ok(ids)
    }

    /// The names of all groups, sorted.
    ///
    /// # Errors
    /// The kinds of every resolution.
    pub fn groups(&self) -> Result<Vec<SafeName>> {
        let mut groups = Vec::new();
        self.each_directory(|name| {
            if let Ok(group) = SafeName::new(name)
                && !self.is_session(Path::new(name))?
            {
                groups.push(group);
            }
            Ok(())
        })?;
        groups.sort_unstable();
        Ok(groups)
    }

    pub(super) fn each_directory(&self, mut visit: impl FnMut(&str) -> Result<()>) -> Result<()> {
        for entry in self.root.list(".")? {
            let entry = entry?;
            if let (true, Some(name)) = (entry.metadata().is_dir(), entry.file_name().to_str()) {
                visit(name)?;
            }
        }
        Ok(())
    }

    /// A session has at least one of its parts. A group has none where they would be, since it holds sessions: even one
    /// with the id `host` holds only `guest` and `host`.
    pub(super) fn is_session(&self, name: &Path) -> Result<bool> {
        let host = HOST_PARTS.iter().rev().map(|part| Path::new(HOST).join(part));
        let guest = Part::ALL.iter().map(|part| Path::new(GUEST).join(part));
        for part in host.chain(guest) {
            match self.root.metadata(name.join(part)) {
                Ok(_) => return Ok(true),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => {}
                Err(error) => return Err(error.about(name)),
            }
        }
        Ok(false)
    }
}
