//! What the end of a session would take with it.
//!
//! Problem: a session is removed because its guest is done, and not because its files are in the store: the last mirror may have
//! failed, have held something back, or be older than the last change.
//!
//! Defence: the workspace is looked at once more, and compared with what the store has got from here.
//!
//! What remains: the store is not asked, so what others have deleted there since counts as sent. What a filter leaves out is not
//! looked at. What a guest that still runs writes after the look goes with the session.

use std::path::Path;

use super::Artifacts;
use super::local::Local;
use super::options::SyncOptions;
use super::state::Desk;
use crate::error::{Error, Result};
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::tree::Leaf;

/// What of a workspace is not in the store, as far as this host knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "it is lost if the session is removed"]
#[non_exhaustive]
pub struct Unsent {
    /// What the workspace has, and the store has not, or not with this content.
    pub paths: Vec<GuestPath>,
    /// What both sides had changed, and nobody has chosen yet.
    pub conflicts: Vec<GuestPath>,
    /// What cannot be sent, and why. Names that are reserved are among it.
    pub left: Leftovers,
}

impl Unsent {
    /// Whether the store has all of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.conflicts.is_empty() && self.left.is_empty()
    }

    /// What cannot be sent, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}

impl Artifacts {
    /// Returns what the workspace has and the store has not, as far as this host knows. The store is not asked.
    ///
    /// It is for [`Sessions::remove_if`](crate::Sessions::remove_if), and so it is not asynchronous: it works on the calling
    /// thread. What an earlier call was cut off in is ended first.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) if another call is at work, and those of [`pull`](Self::pull) that are not the store's.
    ///
    /// # Races
    /// What the guest changes after the look is not seen.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, Prefix, Source, SyncOptions};
    /// # use beneath::{GuestPath, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(home.path(), ambient_authority())?, SessionsConfig::default());
    /// # let id = SessionId::new("s1");
    /// # let (session, _) = sessions.create(&id)?;
    /// # let source = Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// let artifacts = Artifacts::new(source, Prefix::session(&id), &session);
    /// session.workspace().write_exclusive("report.txt", "done")?;
    ///
    /// assert_eq!(artifacts.unsent()?.paths, [GuestPath::new("report.txt")?]);
    /// assert!(sessions.remove_if(&id, || Ok(artifacts.unsent()?.is_empty()))?.is_none());
    ///
    /// assert!(artifacts.mirror(&SyncOptions::default()).await?.is_complete());
    /// assert!(sessions.remove_if(&id, || Ok(artifacts.unsent()?.is_empty()))?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn unsent(&self) -> Result<Unsent> {
        let desk = Desk::try_open(&self.session)?;
        let (base, _) = self.recover(&desk)?;
        let local = Local::scan(&desk.places, &base, &self.scope(&SyncOptions::default()))?;
        desk.is_same(&self.session)?;
        let sent = |path: &GuestPath, leaf: &Leaf| base.get(path).is_some_and(|known| known.leaf == *leaf);
        let paths = local.tree.iter().filter(|(path, leaf)| !sent(path, leaf)).map(|(path, _)| path.clone());
        let open = base.conflicts.iter().filter(|(_, beside)| !local.tree.is_absent(beside));
        Ok(Unsent {
            paths: paths.collect(),
            conflicts: open.map(|(path, _)| path.clone()).collect(),
            left: local.tree.left().clone(),
        })
    }
}
