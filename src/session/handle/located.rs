//! Where the parts of a session are, for a call on one of them.
//!
//! Problem: inbox, outbox and workspace are entries of a directory that the guest may write to, or three directories that the host has
//! mounted apart. Which of the two, and what a link means, must not be decided by each call.
//!
//! Defence: a part is found here alone. In the guest's directory it is a component of every path, so that it is looked up anew each
//! time; where it is apart it is a handle. To follow links in the workspace, that is opened first, without following any, and becomes
//! what they must stay beneath.
//!
//! What remains: a workspace that the guest replaces between two calls is another one to the second.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::Session;
use super::parts::Part;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{Links, Policy, Root};

/// A root that a session holds, or one that was opened for this call.
#[derive(Debug)]
pub(in crate::session) enum Held<'s> {
    Session(&'s Root),
    Call(Root),
}

impl Deref for Held<'_> {
    type Target = Root;

    fn deref(&self) -> &Root {
        match self {
            Self::Session(root) => root,
            Self::Call(root) => root,
        }
    }
}

impl Session {
    /// The root that `path` in a part is looked up from, and the path from there, unless the session was removed. `.` is the part
    /// itself.
    ///
    /// # Errors
    /// [`Escape`](ErrorKind::Escape) for what is in no part, where there is no directory that contains them.
    pub(crate) fn at(&self, part: Part, path: impl AsRef<Path>) -> Result<(&Root, PathBuf)> {
        self.alive()?;
        if part == Part::Guest && self.places.apart.is_some() {
            let error = Error::new("check path", path, ErrorKind::Escape);
            return Err(error.with_detail("is in none of the session's places"));
        }
        Ok(self.located(part, path.as_ref()))
    }

    /// As [`at`](Self::at), in the middle of a call.
    pub(in crate::session) fn located(&self, part: Part, path: &Path) -> (&Root, PathBuf) {
        match self.apart(part) {
            Some(root) => (root, path.to_owned()),
            None if part == Part::Guest => (self.guest(), path.to_owned()),
            None if path == Path::new(".") => (self.guest(), part.as_ref().to_owned()),
            None => (self.guest(), part.as_ref().join(path)),
        }
    }

    /// The same for a call that changes something in the workspace. No link is followed.
    pub(in crate::session) fn at_to_write(&self, path: &GuestPath) -> Result<(&Root, GuestPath)> {
        let (root, path) = self.at(Part::Workspace, path)?;
        Ok((root, GuestPath::new(path)?))
    }

    /// The same for a call that reads in the workspace, where links may be followed.
    pub(in crate::session) fn at_to_read(&self, path: &GuestPath) -> Result<(Held<'_>, GuestPath)> {
        if self.links() == Links::Refuse {
            let (root, path) = self.at_to_write(path)?;
            return Ok((Held::Session(root), path));
        }
        let workspace = self.open_part(Part::Workspace)?;
        let policy = workspace.policy().clone().with_links(Links::FollowBeneath);
        Ok((Held::Call(workspace.with_policy(policy)), path.clone()))
    }

    fn links(&self) -> Links {
        match self.places.links {
            Links::Refuse => self.config().links(),
            follow => follow,
        }
    }

    /// The directory of a part, held for this call.
    pub(crate) fn open_part(&self, part: Part) -> Result<Root> {
        let (root, path) = self.at(part, ".")?;
        root.descend(path)
    }

    /// What is allowed in a part, wherever what is in it was moved to.
    pub(in crate::session) fn policy_of(&self, part: Part) -> Policy {
        self.apart(part).unwrap_or(self.guest()).policy().clone()
    }

    /// A part that is apart from the others.
    pub(in crate::session) fn apart(&self, part: Part) -> Option<&Root> {
        self.places.apart.as_ref()?.get(part)
    }

    /// The roots that all of the guest's side is beneath, each with the part that it is.
    pub(in crate::session) fn tops(&self) -> Result<Vec<(Part, &Root)>> {
        self.alive()?;
        Ok(match &self.places.apart {
            Some(_) => Part::ALL.into_iter().filter_map(|part| Some((part, self.apart(part)?))).collect(),
            None => vec![(Part::Guest, self.guest())],
        })
    }
}
