//! One mirror from its beginning to its end.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::report::{MirrorReport, Mirrored};
use super::uploader::{Known, Room, Uploaded, Uploader, may_pass};
use crate::artifacts::Artifacts;
use crate::artifacts::disk::blocking;
use crate::artifacts::policy::{Deletions, Overwrites};
use crate::artifacts::progress::Event;
use crate::artifacts::state::{Base, Intents, Places, Uploads, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::tree::{Diff, Hashing, Snapshot};

/// What is to be brought to the store, as far as it is known before it is opened.
#[derive(Debug)]
struct Changes {
    changed: Vec<SafePath>,
    deleted: Vec<SafePath>,
    /// Of the files that have changed.
    bytes: u64,
}

impl Artifacts {
    /// Brings the store up to date with the workspace.
    ///
    /// What has changed is found by comparing with what this session last restored or mirrored. After a crash the next
    /// call goes on; what was uploaded before counts as this host's own. What would bring the store over the limits, in
    /// objects or in bytes, is refused: it could not be restored.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if another call is at work, and whatever keeps the host from its own directories or from
    /// listing the workspace. A single file never makes the call fail.
    ///
    /// # Races
    /// As [`mirror_diff`](Self::mirror_diff).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, Deletions, Overwrites, Prefix, Source};
    /// # use beneath::{Root, SafePath, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(home.path(), ambient_authority())?, SessionsConfig::default());
    /// # let (session, _) = sessions.create(&SessionId::new("s1"))?;
    /// # let source = Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// # let artifacts = Artifacts::new(source, Prefix::session(&SessionId::new("s1")), &session);
    /// session.workspace().write_exclusive("report.txt", "done")?;
    /// let report = artifacts.mirror(Deletions::Propagate, Overwrites::Refuse).await?;
    /// assert!(report.is_complete());
    /// assert_eq!(report.uploaded(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn mirror(&self, deletions: Deletions, overwrites: Overwrites) -> Result<MirrorReport> {
        let places = &self.open().await?;
        let guard = lock(&places.state).await?;
        let (held, reserved, limits) = (Arc::clone(places), self.reserved.clone(), self.client.limits);
        let (snapshot, base, intents) = blocking("mirror", move || {
            let snapshot = Snapshot::take_within(&held.workspace, &reserved, Hashing::Never, &limits)?;
            Ok((snapshot, Base::read(&held.state)?, Intents::open(&held.state)?))
        })
        .await?;
        let is_known = |path: &SafePath| {
            let (seen, record) = (snapshot.find(path), base.get(path));
            seen.zip(record).is_some_and(|(seen, record)| record.stamp.as_deref() == Some(&seen.stamp))
        };
        let changed: Vec<SafePath> = snapshot.paths().filter(|path| !is_known(path)).cloned().collect();
        let sizes = changed.iter().filter_map(|path| snapshot.find(path)).map(|seen| seen.stamp.size);
        let bytes = sizes.fold(0, u64::saturating_add);
        let deleted: Vec<SafePath> = match deletions {
            Deletions::Keep => Vec::new(),
            Deletions::Propagate => {
                // What was put just before a crash is in no base yet.
                let put = intents.paths().filter(|path| base.get(path).is_none());
                base.paths()
                    .chain(put)
                    .filter(|path| snapshot.find(path).is_none() && !snapshot.may_hold(path))
                    .cloned()
                    .collect()
            }
        };
        let mut report = MirrorReport { left: snapshot.into_left(), ..MirrorReport::default() };
        for (path, error) in &report.left {
            self.client.progress.report(&Event::Refused { raw: path.as_os_str().as_encoded_bytes(), error });
        }
        let changes = Changes { changed, deleted, bytes };
        self.transfer(places, base, intents, changes, overwrites, &mut report).await?;
        drop(guard);
        Ok(report)
    }

    /// Brings what `diff` names to the store, and nothing else. What the diff could not look at counts as refused.
    ///
    /// # Errors
    /// As [`mirror`](Self::mirror).
    ///
    /// # Races
    /// A path is opened beneath the workspace when its turn comes: what is uploaded is a regular file that was at
    /// the path then. What has become a link, a second name or a special file is refused.
    pub async fn mirror_diff(
        &self,
        diff: &Diff,
        deletions: Deletions,
        overwrites: Overwrites,
    ) -> Result<MirrorReport> {
        let places = &self.open().await?;
        let guard = lock(&places.state).await?;
        let held = Arc::clone(places);
        let changed: Vec<SafePath> = diff.new.iter().chain(&diff.modified).cloned().collect();
        let (base, intents, changed, bytes) = blocking("mirror", move || {
            // What cannot be described is refused when its turn comes.
            let sizes = changed.iter().filter_map(|path| held.workspace.metadata(path).ok());
            let bytes = sizes.fold(0, |sum: u64, file| sum.saturating_add(file.len()));
            Ok((Base::read(&held.state)?, Intents::open(&held.state)?, changed, bytes))
        })
        .await?;
        let deleted = match deletions {
            Deletions::Keep => Vec::new(),
            Deletions::Propagate => diff.deleted.clone(),
        };
        let mut report = MirrorReport { left: diff.left.clone(), ..MirrorReport::default() };
        let changes = Changes { changed, deleted, bytes };
        self.transfer(places, base, intents, changes, overwrites, &mut report).await?;
        drop(guard);
        Ok(report)
    }

    async fn transfer(
        &self,
        places: &Arc<Places>,
        mut base: Base,
        mut intents: Intents,
        changes: Changes,
        overwrites: Overwrites,
        report: &mut MirrorReport,
    ) -> Result<()> {
        let Changes { changed, deleted, bytes } = changes;
        let objects = (changed.len() + deleted.len()) as u64;
        self.client.progress.report(&Event::Planned { objects, bytes });
        let touched: HashSet<&SafePath> = changed.iter().chain(&deleted).collect();
        let staying = base.records().filter(|record| !touched.contains(&record.path));
        let room = Room::beside(&self.client.limits, staying);
        let held = Arc::clone(places);
        let uploads = blocking("read", move || Uploads::read(&held.state)).await?;
        let uploader = Uploader::new(&self.client, places, room, uploads);
        uploader.discard_abandoned().await;
        let always = overwrites == Overwrites::Allow;
        for (path, result) in self.upload_all(&uploader, changed, &base, &intents, always).await {
            self.note(path, result, &mut base, report);
        }
        for path in deleted {
            let known = Known { base: base.get(&path), ours: intents.of(&path), always };
            let outcome = match self.delete(&uploader, known, &path).await {
                Ok(true) => {
                    base.remove(&path);
                    Mirrored::Deleted { path }
                }
                // Another host's, and never ours.
                Ok(false) if base.get(&path).is_none() => continue,
                Ok(false) => Mirrored::Conflict { path },
                Err(error) => Mirrored::Failed { path, error },
            };
            report.outcomes.push(outcome);
        }
        // A put that failed may still have come through.
        intents.keep(report.failed().map(|(path, _)| path));
        let places = Arc::clone(places);
        blocking("write", move || {
            base.write(&places.state)?;
            uploader.write_uploads()?;
            intents.rewrite(&places.state)
        })
        .await
    }

    /// Uploads what has changed, several files at a time.
    async fn upload_all(
        &self,
        uploader: &Uploader,
        changed: Vec<SafePath>,
        base: &Base,
        intents: &Intents,
        always: bool,
    ) -> Vec<(SafePath, Result<Uploaded>)> {
        let uploads = stream::iter(changed).map(|path| async move {
            let known = Known { base: base.get(&path), ours: intents.of(&path), always };
            let result = uploader.upload(&path, known, |path, digest| intents.note(path, digest)).await;
            (path, result)
        });
        uploads.buffer_unordered(self.client.concurrency).collect().await
    }

    /// Adds what became of one file to the base and to the report.
    fn note(&self, path: SafePath, result: Result<Uploaded>, base: &mut Base, report: &mut MirrorReport) {
        report.outcomes.push(match result {
            Ok(Uploaded::Put(record)) => {
                let bytes = record.size;
                base.insert(record);
                Mirrored::Uploaded { path, bytes }
            }
            Ok(Uploaded::Same(record)) => {
                base.insert(record);
                Mirrored::Unchanged { path }
            }
            Ok(Uploaded::Conflict) => Mirrored::Conflict { path },
            Err(error) if may_pass(&error) => Mirrored::Failed { path, error },
            Ok(Uploaded::Over(error)) | Err(error) => {
                self.client.progress.report(&Event::Refused { raw: path.as_str().as_bytes(), error: &error });
                return report.left.add(path.as_str(), error);
            }
        });
    }

    /// Removes an object whose file is still gone; returns whether it was this session's to remove.
    async fn delete(&self, uploader: &Uploader, known: Known<'_>, path: &SafePath) -> Result<bool> {
        let (places, wanted) = (Arc::clone(&uploader.places), path.clone());
        blocking("stat", move || match places.workspace.metadata(&wanted) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::new("delete", &wanted, ErrorKind::Busy).with_detail("file is back")),
        })
        .await?;
        let key = self.client.prefix.key(path)?;
        if uploader.owns(&key, path, known).await? {
            uploader.delete(&key, path).await?;
            return Ok(true);
        }
        Ok(false)
    }
}
