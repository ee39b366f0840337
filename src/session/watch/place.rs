//! What a watch is of.

use std::path::Path;
#[cfg(feature = "queue")]
use std::sync::Arc;

use crate::error::Result;
use crate::name::GuestPath;
use crate::root::{Changes, Root};
use crate::session::handle::Session;
use crate::session::handle::parts::Part;

/// What a watch is of.
#[derive(Debug)]
pub(super) enum Place {
    Part(Session, Part, GuestPath),
    /// A directory beneath a root, and the session it belongs to, if any.
    #[cfg(feature = "queue")]
    Beneath(Option<Session>, Arc<Root>, GuestPath),
}

impl Place {
    pub(super) fn alive(&self) -> Result<()> {
        match self {
            Self::Part(session, ..) => session.alive(),
            #[cfg(feature = "queue")]
            Self::Beneath(session, ..) => session.as_ref().map_or(Ok(()), Session::alive),
        }
    }

    /// The directory, or the nearest one above it that there is.
    pub(super) fn nearest(&self) -> Result<Root> {
        let (root, mut path) = match self {
            Self::Part(session, part, path) => {
                let (root, path) = session.at(*part, path)?;
                (root, GuestPath::new(path)?)
            }
            #[cfg(feature = "queue")]
            Self::Beneath(_, root, path) => (&**root, path.clone()),
        };
        loop {
            match (root.descend(&path), path.parent()) {
                (Err(error), Some(above)) if !error.is_transient() => path = above,
                (found, _) => return found,
            }
        }
    }

    /// Whether it is looked up from this very root.
    #[cfg(feature = "queue")]
    pub(super) fn is_beneath(&self, other: &Arc<Root>) -> bool {
        match self {
            Self::Part(..) => false,
            Self::Beneath(_, root, _) => Arc::ptr_eq(root, other),
        }
    }

    /// Of a queue only new names count: what the host takes away itself would wake it.
    pub(super) fn changes(&self) -> Changes {
        match self {
            Self::Part(..) => Changes::All,
            #[cfg(feature = "queue")]
            Self::Beneath(..) => Changes::NewNames,
        }
    }

    /// What it is called in errors.
    pub(super) fn subject(&self) -> &Path {
        match self {
            Self::Part(_, part, _) => part.as_ref(),
            #[cfg(feature = "queue")]
            Self::Beneath(_, _, path) => path.as_ref(),
        }
    }
}
