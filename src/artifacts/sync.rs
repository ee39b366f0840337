//! The calls that bring a workspace and a store together.
//!
//! Problem: a file that one side lacks was deleted there, or never was there. Whoever cannot tell the two apart either loses
//! files or brings deleted ones back; whoever copies one side over the other loses what only that had.
//!
//! Defence: three trees are compared by one function, [`tree::plan`](crate::tree): what both sides had when this host last
//! knew (the *base*), the workspace by a look at it, and the store by its listing. What only one side has changed goes to the
//! other; what both have changed is kept twice. Deletions are guarded, and what cannot be known is left alone.
//!
//! | base, local, remote | pull | push |
//! |---|---|---|
//! | the store has not changed | – | put if it still has that version; delete if it still has that version |
//! | the workspace has not changed | taken; removed here if the store says that it is gone | – |
//! | both are equal | noted | noted |
//! | all differ | theirs comes beside | ours is uploaded beside |
//! | deleted here, changed there | comes back | – |
//! | changed here, deleted there | stays | put as new |
//! | unknown on either side | – | – |
//!
//! What remains: between the listing and the end of a call another host may put more. The next call finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Artifacts;
use super::disk::blocking;
use super::local::{Local, Scope};
use super::options::SyncOptions;
use super::progress::{Event, Step};
use super::remote::{Contents, Remote};
use super::report::SyncReport;
use super::state::{Base, Binding, Desk, Intents, Places};
use crate::error::Result;
use crate::name::GuestPath;
use crate::tree::{Conflict, Why, recover_from};

/// What one call knows.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) desk: Arc<Desk>,
    pub(super) base: Base,
    pub(super) local: Local,
    pub(super) remote: Remote,
    /// Of the objects that were read.
    pub(super) contents: Contents,
    /// What an earlier call was about to do.
    pub(super) intents: Intents,
    pub(super) report: SyncReport,
}

impl Artifacts {
    /// Brings every object of the store to the workspace, as if nothing were known of either.
    ///
    /// What is missing comes, also what the guest has deleted. What is there stays; if the store has something else at that
    /// path, it comes beside. Nothing is removed.
    ///
    /// A bucket that does not exist is an error. A prefix under which there is nothing is none, since each session begins with one:
    /// where objects are expected, look at [`SyncReport::listed`].
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    ///
    /// # Races
    /// As [`pull`](Self::pull).
    pub async fn restore(&self) -> Result<SyncReport> {
        self.restore_with(&SyncOptions::default()).await
    }

    /// As [`restore`](Self::restore), with [`SyncOptions::with_prefer`] and [`SyncOptions::with_arrivals`].
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    ///
    /// # Races
    /// As [`pull`](Self::pull).
    pub async fn restore_with(&self, options: &SyncOptions) -> Result<SyncReport> {
        let mut turn = self.begin(options).await?;
        turn.base = turn.base.emptied();
        self.take(turn, options).await.map(|turn| self.end(turn))
    }

    /// Brings to the workspace what has changed in the store.
    ///
    /// The objects that have changed are fetched into staging. Then each takes the place of the file that it replaces by an
    /// exchange, and what came out is looked at: if it is not what was expected, it is kept beside. What the store has deleted is
    /// removed here if the store says so once more, and is in the trash of the session for a day. After a crash at any
    /// point, or when the future was dropped, the next call completes it.
    ///
    /// # Errors
    /// The store's error if it cannot be listed, [`NotFound`](crate::ErrorKind::NotFound) if there is no such bucket; [`Busy`](crate::ErrorKind::Busy) if another call is at work, or the guest
    /// replaces its workspace meanwhile; [`Unsupported`](crate::ErrorKind::Unsupported) if a call of another version of
    /// this crate was cut off here; and whatever keeps the host from its own directories. A single object never makes the
    /// call fail.
    ///
    /// # Races
    /// A guest that is running sees files change, each complete. No version that it has written is lost: it keeps its name, has
    /// one beside, or is in the trash if it is what was planned.
    pub async fn pull(&self, options: &SyncOptions) -> Result<SyncReport> {
        let turn = self.begin(options).await?;
        self.take(turn, options).await.map(|turn| self.end(turn))
    }

    /// Brings to the store what has changed in the workspace.
    ///
    /// The store is listed first. What another host has changed as well is not overwritten: the file is uploaded under a
    /// name beside, so that its only copy is not in a workspace. Deletions come last. After a crash the next call goes on;
    /// what was uploaded before counts as this host's own.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    ///
    /// # Races
    /// What is uploaded is a regular file that was at its path when its turn came, and did not change while it was read.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, Prefix, Source, SyncOptions};
    /// # use beneath::{Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(home.path(), ambient_authority())?, SessionsConfig::default());
    /// # let (session, _) = sessions.create(&SessionId::new("s1"))?;
    /// # let source = Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// # let artifacts = Artifacts::new(source, Prefix::session(&SessionId::new("s1")), &session);
    /// session.workspace().write_exclusive("report.txt", "done")?;
    /// let report = artifacts.mirror(&SyncOptions::default()).await?;
    /// assert!(report.is_complete());
    /// assert_eq!(report.uploaded, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn mirror(&self, options: &SyncOptions) -> Result<SyncReport> {
        let turn = self.begin(options).await?;
        self.give(turn, options).await.map(|turn| self.end(turn))
    }

    /// Pulls, and then mirrors.
    ///
    /// A conflict is settled here by keeping both versions, so both are in the store afterwards.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    ///
    /// # Races
    /// As [`pull`](Self::pull) and [`mirror`](Self::mirror).
    pub async fn sync(&self, options: &SyncOptions) -> Result<SyncReport> {
        let turn = self.begin(options).await?;
        let mut turn = self.take(turn, options).await?;
        if options.withholds(&turn.report) {
            return Ok(self.end(turn));
        }
        let scope = self.scope(options);
        let turn = blocking("mirror", move || {
            // What it refuses is reported already.
            turn.local = Local::scan(&turn.desk.places, &turn.base, &scope)?;
            Ok(turn)
        })
        .await?;
        self.give(turn, options).await.map(|turn| self.end(turn))
    }

    fn scope(&self, options: &SyncOptions) -> Scope {
        let (client, reserved) = (self.client.clone(), self.reserved.clone());
        Scope { client, reserved, hashing: options.hashing }
    }

    /// What the base of this workspace is bound to.
    pub(super) fn binding(&self, places: &Places) -> Result<Binding> {
        let rules: String = self.reserved.iter().map(|name| format!("{}/", name.as_str())).collect();
        let store = (self.client.source.backend().identity(), self.client.prefix.as_str());
        Binding::of(&places.state, &places.workspace, (&store.0, store.1), &rules)
    }

    /// Ends what an earlier call has begun, and looks at both sides.
    pub(super) async fn begin(&self, options: &SyncOptions) -> Result<Turn> {
        let desk = Desk::open(&self.session).await?;
        let (held, scope, artifacts) = (Arc::clone(&desk), self.scope(options), self.clone());
        let (mut base, local, intents, conflicts) = blocking("mirror", move || {
            let Desk { places, work, trash, .. } = &*held;
            let conflicts = recover_from(work, trash, &places.workspace)?;
            let base = Base::read(&places.state, artifacts.binding(places)?)?;
            let local = Local::scan(places, &base, &scope)?;
            let intents = Intents::open(&places.state, base.binding())?;
            held.is_same(&artifacts.session)?;
            Ok((base, local, intents, conflicts))
        })
        .await?;
        let progress = &self.client.progress;
        for (path, error) in local.tree.refused() {
            progress.report(&Event::Refused { raw: path.as_os_str().as_encoded_bytes(), error });
        }
        progress.report(&Event::Entered(Step::Listing));
        let remote = Remote::list(&self.client, &self.reserved).await?;
        let mut report = SyncReport { listed: remote.listed, conflicts, ..SyncReport::default() };
        report.left.absorb(local.tree.left().clone());
        report.left.absorb(remote.left.clone());
        // Somebody has chosen already.
        base.conflicts.retain(|_, beside| local.tree.get(beside).is_some());
        // What this host has deleted right before it died is not another host's deletion.
        for path in intents.deleted().filter(|path| remote.lacks(path)) {
            base.remove(path);
        }
        Ok(Turn { desk, base, local, remote, contents: BTreeMap::new(), intents, report })
    }

    /// The report, with the conflicts that nobody has settled since an earlier call.
    fn end(&self, turn: Turn) -> SyncReport {
        let Turn { base, mut report, .. } = turn;
        let is_new =
            |path: &GuestPath, report: &SyncReport| !report.conflicts.iter().any(|one| one.path == *path);
        for (path, beside) in base.conflicts {
            if is_new(&path, &report) {
                report.conflicts.push(Conflict { path, why: Why::BothChanged, beside: Some(beside) });
            }
        }
        self.client.progress.report(&Event::Entered(Step::Complete));
        report
    }
}
