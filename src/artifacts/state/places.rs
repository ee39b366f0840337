//! The three directories that artifacts work in, and the lock on them.
//!
//! Problem: two calls on one session would publish and journal over each other; staging on another mount could not be
//! published by a rename.
//!
//! Defence: one lock in the state, which the kernel gives up with the process, and a rename that is tried at the start.
//!
//! What remains: the lock is advisory, and not every network file system has it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::binding::identity;
use crate::artifacts::disk::blocking;
use crate::artifacts::store::{Leave, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Flock, Root};
use crate::session::Session;
use crate::tree::lock_merges;

/// The longest that a call waits for another one, in this process or elsewhere, to finish.
const LOCK_WAIT: Duration = Duration::from_secs(10);

const LOCK: &str = "artifacts.lock";

/// A name that is never in staging.
const PROBE: &str = ".beneath-probe";

/// Where the files of a session are, and where the host works on them.
///
/// Workspace and staging are on one mount. Only `workspace` may be reachable for the guest.
#[derive(Debug)]
pub struct Places {
    /// The directory that the guest sees. Its policy also holds for what is restored into it.
    pub workspace: Root,
    /// The host's own directory for what is not complete yet.
    pub staging: Root,
    /// The host's own directory for what must be remembered.
    pub state: Root,
}

impl Places {
    /// The places of a session, with its workspace as it is now, for bundles that are installed into the workspace itself.
    ///
    /// State and staging are kept in directories of their own on the host's side.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotDirectory`](ErrorKind::NotDirectory) or [`NotFound`](ErrorKind::NotFound) if
    /// the guest has replaced its workspace; [`Session::repair`](crate::Session::repair) puts it back.
    ///
    /// ```
    /// use beneath::artifacts::Places;
    /// use beneath::{Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let root = Root::open_ambient(dir.path(), ambient_authority())?;
    /// let (session, _) = Sessions::new(root, SessionsConfig::default()).create(&SessionId::new("s1"))?;
    /// let places = Places::of(&session)?;
    /// places.workspace.write_exclusive("restored.txt", "hello")?;
    /// assert!(session.workspace().exists("restored.txt")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(session: &Session) -> Result<Self> {
        let own = |path: &str| {
            session.host().ensure_dir(path)?;
            session.host().descend(path)
        };
        Ok(Self {
            workspace: session.open_part(crate::session::Part::Workspace)?,
            staging: own("staging/artifacts")?,
            state: own("state/artifacts")?,
        })
    }

    /// The same directories, ready for work.
    pub(crate) fn prepared(self) -> Result<Arc<Self>> {
        let Self { workspace, staging, state } = self;
        // The kernel compares the mounts of both ends before it looks for the names; two mounts of one device differ, too.
        let probe = staging.rename_to(PROBE, &workspace, PROBE);
        if probe.is_err_and(|error| error.kind() == ErrorKind::CrossDevice) {
            return Err(Error::new("open", "staging", ErrorKind::CrossDevice)
                .with_detail("staging and workspace are on different mounts"));
        }
        // What is staged is published by a rename, so it must already be what the workspace's policy wants.
        let staging = staging.with_policy(workspace.policy().clone());
        Ok(Arc::new(Self { workspace, staging, state }))
    }
}

/// The directories of a session for one call, and the locks on them.
///
/// Whoever works on the directories holds it, so that the locks last as long as the work, even if nobody waits for that any
/// more.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) places: Arc<Places>,
    /// Where merges into the workspace are prepared.
    pub(crate) work: Root,
    /// Where what they displace is kept.
    pub(crate) trash: Root,
    /// Which directory the workspace is.
    pub(crate) identity: String,
    _locks: [Flock; 2],
    _leave: Leave,
}

impl Desk {
    /// Opens the directories of `session` as they are now, when `source` has room for another call, and after waiting a while for
    /// other calls on the session.
    pub(crate) async fn open(session: &Session, source: &Source) -> Result<Arc<Self>> {
        let leave = source.turn().await;
        let start = Instant::now();
        loop {
            let session = session.clone();
            match blocking("open", move || Self::try_open(&session)).await {
                Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < LOCK_WAIT => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                desk => return desk.map(|desk| Arc::new(Self { _leave: leave, ..desk })),
            }
        }
    }

    /// Opens the directories of `session` as they are now, for a call that asks the store nothing.
    pub(crate) fn try_open(session: &Session) -> Result<Self> {
        let places = Places::of(session)?.prepared()?;
        let own = |path: &str| {
            session.host().ensure_dir(path)?;
            session.host().descend(path)
        };
        let (work, trash) = (own("state")?, own("trash")?);
        let first = Flock::try_take(&places.state, Path::new(LOCK), "lock")?;
        let locks = [first, lock_merges(&work)?];
        let identity = identity(&places.workspace)?;
        Ok(Self { places, work, trash, identity, _locks: locks, _leave: None })
    }

    /// Fails if the guest has put another directory in place of the workspace meanwhile.
    pub(crate) fn is_same(&self, session: &Session) -> Result<()> {
        match identity(&Places::of(session)?.workspace)? == self.identity {
            true => Ok(()),
            false => Err(Error::new("look at", "workspace", ErrorKind::Busy)
                .with_detail("another directory is in its place")),
        }
    }
}

/// Takes the lock `name` in `state`, waiting a while for it.
pub(crate) async fn lock_named(state: &Root, name: String) -> Result<Arc<Flock>> {
    let start = Instant::now();
    loop {
        match Flock::try_take(state, Path::new(&name), "lock") {
            Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < LOCK_WAIT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            lock => return lock.map(Arc::new),
        }
    }
}
