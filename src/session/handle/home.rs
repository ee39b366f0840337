//! Whether a session is still there.
//!
//! Problem: a handle outlives what it was opened on. A worker that still holds a session which somebody removed would deliver
//! into a tree that is being deleted, and take a lock that protects nothing.
//!
//! Defence: the name that the session was opened by still leads to the directory that was opened. A removal takes that name
//! away in one step, before anything else, and whoever makes the id anew makes another directory. Since a removal
//! holds the lock when it does so, a session that is there once the lock is held stays until the lock is dropped.
//!
//! What remains: without the lock, a call that has begun before the removal may still work in the doomed tree.

use std::path::Path;
use std::sync::Arc;

use super::identity::Identity;
use super::marker::{Kind, kind_of};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SessionId;
use crate::root::Root;

const OPERATION: &str = "use session";

/// Where a session made by [`Sessions`](crate::session::Sessions) is found.
#[derive(Clone, Debug)]
pub(in crate::session) struct Home {
    sessions: Arc<Root>,
    /// The same directory by the handle of before it was sealed.
    plain: Option<Arc<Root>>,
    id: SessionId,
    dir: Identity,
}

impl Home {
    pub(in crate::session) fn new(
        sessions: &Arc<Root>,
        plain: Option<&Arc<Root>>,
        id: &SessionId,
        dir: &Root,
    ) -> Result<Self> {
        let dir = Identity::of(dir).map_err(|errno| Error::from_errno(OPERATION, id, errno))?;
        Ok(Self { sessions: Arc::clone(sessions), plain: plain.map(Arc::clone), id: id.clone(), dir })
    }

    /// What is at `path` in the session's directory, by a handle on a mount that is attached; none if the session's own handles
    /// are such.
    pub(in crate::session) fn attached(&self, path: &Path) -> Option<Result<Root>> {
        let plain = self.plain.as_ref()?;
        Some(plain.descend(Path::new(self.id.as_str()).join(path)))
    }

    /// [`NotFound`](ErrorKind::NotFound) once the session was removed.
    pub(in crate::session) fn check(&self) -> Result<()> {
        match Identity::at(&self.sessions, self.id.as_str()) {
            Ok(now) if now == self.dir => Ok(()),
            Ok(_) => Err(self.removed()),
            Err(errno) if ErrorKind::of(errno) == ErrorKind::NotFound => Err(self.removed()),
            Err(errno) => Err(Error::from_errno(OPERATION, &self.id, errno)),
        }
    }

    /// [`check`](Self::check), also where a session is removed without losing its name first.
    pub(in crate::session) fn check_marker(&self) -> Result<()> {
        self.check()?;
        match kind_of(&self.sessions, self.id.as_str())? {
            Kind::Session => Ok(()),
            _ => Err(self.removed()),
        }
    }

    fn removed(&self) -> Error {
        Error::new(OPERATION, &self.id, ErrorKind::NotFound).with_detail("was removed")
    }
}
