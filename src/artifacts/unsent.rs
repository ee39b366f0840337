//! What the end of a session would take with it.
//!
//! Problem: a session is removed because its guest is done, and not because its files are in the store: the last mirror may have
//! failed, have held something back, or be older than the last change.
//!
//! Defence: the workspace is looked at once more, and compared with what the store has got from here and was not seen to have lost.
//!
//! What remains: the store is not asked, so what it has lost since the last call counts as sent. What a filter leaves out, and what
//! is not in the workspace, as messages in the outbox, is not looked at.

use std::path::Path;

use super::Artifacts;
use super::local::Local;
use super::options::SyncOptions;
use super::state::{Desk, Intents, Known};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::tree::{Hashing, Leaf};

/// What of a workspace is not in the store, as far as this host knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "it is lost if the session is removed"]
#[non_exhaustive]
pub struct Unsent {
    /// What the workspace has, and the store has not, or not with this content and mode.
    pub paths: Vec<GuestPath>,
    /// What no mirror can send, or not all of it, and why: sockets and reserved names are among it.
    pub left: Leftovers,
}

impl Unsent {
    /// Whether the store has all of it. Where workspaces contain what is never sent, look at [`paths`](Self::paths) instead.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.paths.is_empty() && self.left.is_empty()
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
    /// thread. What an earlier call was cut off in is ended first. A file that looks as it did is not read, unless `hashing` says so.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if the workspace is not the one that was mirrored, or was mirrored by other rules: then nobody
    /// knows what is sent until it is mirrored again. To a store that it was not mirrored to, all of it is unsent.
    /// [`Busy`](ErrorKind::Busy) if another call is at work, and those of [`pull`](Self::pull) that are not the store's.
    ///
    /// # Races
    /// What the guest changes after the look, or the host by another call, is not seen.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, Hashing, Prefix, Source, SyncOptions};
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
    /// assert_eq!(artifacts.unsent(Hashing::Never)?.paths, [GuestPath::new("report.txt")?]);
    /// assert!(sessions.remove_if(&id, || Ok(artifacts.unsent(Hashing::Never)?.is_complete()))?.is_none());
    ///
    /// assert!(artifacts.mirror(&SyncOptions::default()).await?.is_complete());
    /// assert!(sessions.remove_if(&id, || Ok(artifacts.unsent(Hashing::Never)?.is_complete()))?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn unsent(&self, hashing: Hashing) -> Result<Unsent> {
        let desk = Desk::try_open(&self.session)?;
        let (base, _) = self.recover(&desk)?;
        if base.is_misfit() {
            return Err(Error::new("look at", ".", ErrorKind::NotFound)
                .with_detail("the workspace that was mirrored is not this one: mirror first"));
        }
        let intents = Intents::open(&desk.places.state, base.binding())?;
        let scope = self.scope(&SyncOptions::default().with_hashing(hashing));
        let local = Local::scan(&desk.places, &base, &scope)?;
        desk.is_same(&self.session)?;
        let sent = |path: &GuestPath, leaf: &Leaf| {
            let in_doubt = base.notes.lost.contains(path) || !intents.of(path).is_empty();
            let same = |known: &Known| {
                let mode = local.mode(path).filter(|_| scope.attributes && known.mode.is_some());
                known.leaf == *leaf && mode.is_none_or(|mode| known.mode == Some(mode))
            };
            !in_doubt && base.get(path).is_some_and(same)
        };
        let paths = local.tree.iter().filter(|(path, leaf)| !sent(path, leaf)).map(|(path, _)| path.clone());
        let mut left = local.tree.left().clone();
        if !scope.attributes {
            local.unkept().for_each(|(path, error)| left.add(path, error));
        }
        Ok(Unsent { paths: paths.collect(), left })
    }
}
