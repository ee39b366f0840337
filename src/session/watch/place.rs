//! What a watch is of.

use std::path::Path;

use crate::error::Result;
use crate::name::GuestPath;
use crate::root::Root;
use crate::session::handle::Session;
use crate::session::handle::parts::Part;

/// What a watch is of.
#[derive(Debug)]
pub(super) enum Place {
    Part(Session, Part, GuestPath),
    /// A directory beneath a root, and the session it belongs to, if any.
    #[cfg(feature = "queue")]
    Beneath(Option<Session>, Root, GuestPath),
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
            Self::Beneath(_, root, path) => (root, path.clone()),
        };
        loop {
            match (root.descend(&path), path.parent()) {
                (Err(error), Some(above)) if !error.is_transient() => path = above,
                (found, _) => return found,
            }
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
