//! The calls that bring a workspace and a store together.
//!
//! Problem: a file that one side lacks was deleted there, or never was there. Code that cannot distinguish the two either loses
//! files or brings deleted ones back; code that copies one side over the other loses what only that had.
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

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::Artifacts;
use super::disk::{blocking, sweep};
use super::guard::watch;
use super::local::{Local, Scope};
use super::options::{self, SyncOptions};
use super::patience::Patience;
use super::progress::{Event, Step};
use super::remote::{Contents, Object, Remote};
use super::report::SyncReport;
use super::state::{Base, Binding, Desk, Intents, Known, Places, Version};
use crate::error::Result;
use crate::name::GuestPath;
use crate::tree::{Conflict, KEPT, Leaf, Why, recover_from};

/// Where a call makes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    HereOnly,
    ToTheStore,
}

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
    /// Whether the store is relied on to keep what an object says of its file.
    pub(super) attributes: bool,
    /// Whether nobody could find out what it keeps.
    pub(super) unsure: bool,
    pub(super) report: SyncReport,
}

impl Turn {
    /// Reports what nothing that comes here can put right: programs that the store does not know as such.
    fn taken(mut self) -> Self {
        let is_program = |leaf: &Leaf| matches!(leaf, Leaf::File { execute: true, .. });
        let says_so = |known: &Known| known.mode.is_none_or(|mode| mode & 0o111 != 0);
        let programs = self.base.iter().filter(|(_, known)| is_program(&known.leaf));
        let unsaid = programs.filter(|(_, known)| self.attributes && !says_so(known)).count();
        self.report.pending += unsaid as u64;
        if !self.attributes {
            for (path, error) in self.local.unkept() {
                self.report.left.add(path, error);
            }
        }
        self
    }
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
        let mut turn = self.begin(options, Writes::HereOnly).await?;
        turn.base = turn.base.emptied();
        self.end(self.take(turn, options).await?.taken()).await
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
        let turn = self.begin(options, Writes::HereOnly).await?;
        self.end(self.take(turn, options).await?.taken()).await
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
        let turn = self.begin(options, Writes::ToTheStore).await?;
        self.end(self.give(turn, options).await?).await
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
        // Whoever takes something must look for it.
        let options = &options.with_remote(options::Remote::List);
        let turn = self.begin(options, Writes::ToTheStore).await?;
        let mut turn = self.take(turn, options).await?;
        if options.withholds(&turn.report) {
            return self.end(turn).await;
        }
        let scope = Scope { attributes: turn.attributes, ..self.scope(options) };
        let turn = blocking("mirror", move || {
            let local = Local::scan(&turn.desk.places, &turn.base, &scope)?;
            let before = std::mem::replace(&mut turn.local, local);
            let reported: HashSet<&Path> = before.tree.refused().map(|(path, _)| path).collect();
            for (path, error) in turn.local.tree.refused().filter(|(path, _)| !reported.contains(path)) {
                turn.report.left.add(path, error.clone());
            }
            Ok(turn)
        })
        .await?;
        self.end(self.give(turn, options).await?).await
    }

    pub(super) fn scope(&self, options: &SyncOptions) -> Scope {
        let (client, reserved) = (self.client.clone(), self.reserved.clone());
        let attributes = client.source.keeps().attributes;
        Scope { client, reserved, hashing: options.hashing, attributes }
    }

    /// What the base of this workspace is bound to.
    pub(super) fn binding(&self, places: &Places) -> Result<Binding> {
        let rules: String = self.reserved.iter().map(|name| format!("{}/", name.as_str())).collect();
        let rules = rules + &self.client.rules();
        let store = (self.client.source.backend().identity(), self.client.prefix.as_str());
        Binding::of(&places.state, &places.workspace, (&store.0, store.1), &rules)
    }

    /// Ends what a call that was cut off has begun, and reads the base. What got a name beside waits there for somebody to choose,
    /// also if this call does not report it.
    pub(super) fn recover(&self, desk: &Desk) -> Result<(Base, Vec<Conflict>)> {
        let Desk { places, work, trash, .. } = desk;
        let conflicts = recover_from(work, trash, &places.workspace)?;
        let mut base = Base::read(&places.state, self.binding(places)?)?;
        for Conflict { path, beside, .. } in &conflicts {
            base.notes.conflicts.extend(beside.clone().map(|beside| (path.clone(), beside)));
        }
        if !conflicts.is_empty() {
            base.write(&places.state)?;
        }
        Ok((base, conflicts))
    }

    /// Ends what an earlier call has begun, and looks at both sides.
    pub(super) async fn begin(&self, options: &SyncOptions, writes: Writes) -> Result<Turn> {
        let desk = Desk::open(&self.session, &self.client.source).await?;
        let (held, scope, artifacts) = (Arc::clone(&desk), self.scope(options), self.clone());
        let (mut base, mut local, intents, conflicts) = blocking("mirror", move || {
            let places = &held.places;
            let (base, conflicts) = artifacts.recover(&held)?;
            let local = Local::scan(places, &base, &scope)?;
            let intents = Intents::open(&places.state, base.binding())?;
            held.is_same(&artifacts.session)?;
            Ok((base, local, intents, conflicts))
        })
        .await?;
        let trusts = writes == Writes::ToTheStore && options.remote == options::Remote::Trust;
        let trusts = trusts && base.is_whole() && intents.is_empty();
        self.client.progress.report(&Event::Entered(Step::Listing));
        let mut remote = match trusts {
            true => Remote::default(),
            false => {
                let is_known =
                    |path: &GuestPath, object: &Object| base.is_at(path, &object.version, object.size);
                Remote::list(&self.client, &self.reserved, &is_known).await?
            }
        };
        // Last, since some servers lose a bucket with its only object.
        let (source, before) = (&self.client.source, self.client.source.keeps());
        let mut keeps = before;
        if writes == Writes::ToTheStore && local.wants_more_than_bytes() {
            keeps = source.try_out(&self.client.prefix, self.client.retry).await;
        }
        if keeps != before {
            let scope = Scope { attributes: keeps.attributes, ..self.scope(options) };
            let held = Arc::clone(&desk);
            (base, local) = blocking("mirror", move || {
                let local = Local::scan(&held.places, &base, &scope)?;
                Ok((base, local))
            })
            .await?;
        }
        if trusts {
            remote = Remote::left_with(&base, &self.client);
        }
        // What a trial has found out is remembered.
        let (attributes, unsure) = (keeps.attributes, keeps != source.keeps());
        let progress = &self.client.progress;
        for (path, error) in local.tree.refused() {
            progress.report(&Event::Refused { raw: path.as_os_str().as_encoded_bytes(), error });
        }
        let mut report = SyncReport { listed: remote.listed, conflicts, ..SyncReport::default() };
        report.left.absorb(local.tree.left().clone());
        report.left.absorb(remote.left.clone());
        // Somebody has chosen already.
        base.notes.conflicts.retain(|_, beside| !local.tree.is_absent(beside));
        self.renew(&mut base, &remote).await;
        let mut loses = false;
        if !trusts {
            let lost = remote.lost(&base);
            loses = lost != base.notes.lost;
            base.notes.lost = lost;
        }
        loses |= watch(&mut base, &local, &remote, options);
        // What this host has deleted right before it died is not another host's deletion.
        for path in intents.deleted().filter(|path| remote.lacks(path)) {
            base.remove(path);
        }
        let differs = !trusts && !remote.is_as(&base);
        if differs || loses {
            let held = Arc::clone(&desk);
            base = blocking("write", move || {
                if differs {
                    base.doubt(&held.places.state)?;
                }
                // It must not count as sent, nor as work, also if this call is cut off.
                if loses {
                    base.write(&held.places.state)?;
                }
                Ok(base)
            })
            .await?;
        }
        let contents = BTreeMap::new();
        Ok(Turn { desk, base, local, remote, contents, intents, attributes, unsure, report })
    }

    /// Asks for the attributes of objects that were put again with the same bytes. Those that say what they said before have not
    /// changed.
    async fn renew(&self, base: &mut Base, remote: &Remote) {
        let patience = &Patience::of(self.client.retry);
        let asked = stream::iter(remote.renewed(base)).map(|(path, listed)| async move {
            let head = match self.client.prefix.key(&path) {
                Ok(key) => patience.call(&path, self.client.head(&path, &key)).await,
                Err(error) => Err(error),
            };
            (path, listed, head)
        });
        let mut asked = std::pin::pin!(asked.buffer_unordered(self.client.concurrency));
        while let Some((path, listed, head)) = asked.next().await {
            // Of what cannot be asked for now, nothing is known.
            if let (Ok(Some(head)), Some(known)) = (head, base.get(&path))
                && head.attributes.fit(&known.leaf)
                && Version::of(head.etag).same_bytes(&listed)
            {
                let version = Version { put_at: listed.put_at, ..known.version.clone() };
                base.insert(path, Known { version, ..known.clone() });
            }
        }
    }

    /// The report. It is about the workspace that the call began with: if the guest has another directory in its place, the call has
    /// failed.
    pub(super) async fn reported(&self, desk: Arc<Desk>, mut report: SyncReport) -> SyncReport {
        let session = self.session.clone();
        if let Err(error) = blocking("look at", move || desk.is_same(&session)).await {
            report.failed.add(".", error);
        }
        report
    }

    /// The report, with the conflicts that nobody has settled since an earlier call.
    async fn end(&self, turn: Turn) -> Result<SyncReport> {
        let Turn { desk, mut base, local, remote, report, .. } = turn;
        let mut report = self.reported(Arc::clone(&desk), report).await;
        let known: HashSet<GuestPath> = report.conflicts.iter().map(|one| one.path.clone()).collect();
        let earlier = base.notes.conflicts.iter().filter(|(path, _)| !known.contains(*path));
        report.conflicts.extend(earlier.map(|(path, beside)| Conflict {
            path: path.clone(),
            why: Why::BothChanged,
            beside: Some(beside.clone()),
        }));
        let is_whole = report.is_complete() && remote.is_all_in(&base, &local.tree);
        blocking("write", move || {
            match is_whole {
                // Where that cannot be noted the next call looks again.
                true => drop(base.vouch(&desk.places.state)),
                false => base.doubt(&desk.places.state)?,
            }
            sweep(&desk.trash, KEPT)
        })
        .await?;
        self.client.progress.report(&Event::Entered(Step::Complete));
        Ok(report)
    }
}
