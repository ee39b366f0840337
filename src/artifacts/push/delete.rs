//! Objects whose file is gone, deleted last of all.
//!
//! Problem: an object may have changed since the listing, its file may be back, and the host may die between two deletions. One
//! request for each object, with one before it that looks, makes a large deletion slow.
//!
//! Defence: where the server is seen to compare and delete in one step, the request carries the version: for a thousand objects
//! at a time if it can, or one by one. Elsewhere each object is looked at right before, and counted as unconditional. What is
//! about to be deleted is noted before the request, and leaves the base after the answer.
//!
//! What remains: where it was looked at before, what another host puts in between is deleted.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::uploader::{Uploader, is_conflict};
use crate::artifacts::Artifacts;
use crate::artifacts::disk::blocking;
use crate::artifacts::state::{Intents, Known, Places};
use crate::artifacts::store::{Compares, Deletes, Doomed, changed};
use crate::artifacts::sync::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::tree::{Conflict, Leaf, Why};

/// Requests for many objects at a time.
const BATCHES: usize = 4;

/// What is to be deleted, and what became of it: whether it was still the version that this workspace had.
struct Job {
    path: GuestPath,
    known: Known,
}

type Outcome = (GuestPath, Result<bool>);

impl Artifacts {
    /// Deletes objects whose file is gone. One whose content could not be sent under another name stays. Returns those of which
    /// nobody knows whether they are gone.
    pub(super) async fn delete_all(
        &self,
        uploader: &Uploader,
        turn: &mut Turn,
        paths: Vec<GuestPath>,
        unsent: &HashSet<Leaf>,
    ) -> Result<Vec<GuestPath>> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let (desk, session) = (Arc::clone(&turn.desk), self.session.clone());
        blocking("look at", move || desk.is_same(&session)).await?;
        let (base, intents) = (&turn.base, &turn.intents);
        let jobs = paths.into_iter().filter_map(|path| {
            let mut known = base.get(&path)?.clone();
            // It may have been put again since, with the same content.
            known.version = turn.contents.get(&path).map_or(known.version, |found| found.version.clone());
            Some(Job { path, known })
        });
        let (waiting, going): (Vec<_>, Vec<_>) =
            jobs.partition(|job| unsent.contains(&job.known.leaf.content()));
        let deletes = self.client.source.deletes(&self.client.prefix, self.client.retry).await;
        let (size, at_once) = match deletes.together() {
            true => (batch(going.len(), deletes.bulk), BATCHES),
            false => (1, self.client.concurrency),
        };
        let mut going = going.into_iter();
        let batches = std::iter::from_fn(|| Some(going.by_ref().take(size).collect::<Vec<_>>()));
        let batches = batches.take_while(|batch| !batch.is_empty());
        let deleted = stream::iter(batches).map(|batch| self.delete_batch(uploader, intents, batch, deletes));
        let deleted: Vec<Vec<Outcome>> = deleted.buffer_unordered(at_once).collect().await;
        for Job { path, .. } in waiting {
            let error = Error::new("delete", &path, ErrorKind::Busy)
                .with_detail("its content could not be sent under another name");
            turn.report.failed.add(&path, error);
        }
        let mut failed = Vec::new();
        for (path, deleted) in deleted.into_iter().flatten() {
            match deleted {
                Ok(true) => {
                    turn.base.remove(&path);
                    turn.report.deleted += 1;
                }
                Ok(false) => {
                    turn.report.conflicts.push(Conflict { path, why: Why::DeletedHere, beside: None });
                }
                Err(error) => {
                    turn.report.failed.add(&path, error);
                    failed.push(path);
                }
            }
        }
        Ok(failed)
    }

    async fn delete_batch(
        &self,
        uploader: &Uploader,
        intents: &Intents,
        jobs: Vec<Job>,
        deletes: Deletes,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(jobs.len());
        let mut doomed = Vec::with_capacity(jobs.len());
        for (job, gone) in still_gone(&uploader.places, jobs).await {
            match gone.and_then(|()| self.client.prefix.key(&job.path)) {
                Ok(key) => doomed.push((job, key)),
                Err(error) => outcomes.push((job.path, Err(error))),
            }
        }
        if deletes.way() != Compares::InOneStep {
            doomed = self.compare_each(uploader, doomed, &mut outcomes).await;
        }
        if let Err(error) = intents.note_deletions(doomed.iter().map(|(job, _)| &job.path)) {
            outcomes.extend(doomed.into_iter().map(|(job, _)| (job.path, Err(error.clone()))));
            return outcomes;
        }
        let answers = uploader.remove(&doomed, deletes).await;
        let settled = doomed.into_iter().zip(answers);
        let settled = stream::iter(settled)
            .map(|((job, key), answer)| async move {
                let _leave = self.client.source.leave().await;
                let settled = uploader.settle_deletion(&job, &key, answer, deletes).await;
                (job.path, settled)
            })
            .buffer_unordered(self.client.concurrency);
        outcomes.extend(settled.collect::<Vec<_>>().await);
        outcomes
    }

    /// Those of which the store has the version that this workspace had, or nothing.
    async fn compare_each(
        &self,
        uploader: &Uploader,
        doomed: Vec<(Job, String)>,
        outcomes: &mut Vec<Outcome>,
    ) -> Vec<(Job, String)> {
        let compared = stream::iter(doomed).map(|(job, key)| async move {
            let _leave = self.client.source.leave().await;
            let owns = uploader.owns(&key, &job.path, &job.known).await;
            (job, key, owns)
        });
        let mut compared = std::pin::pin!(compared.buffer_unordered(self.client.concurrency));
        let mut same = Vec::new();
        while let Some((job, key, owns)) = compared.next().await {
            match owns {
                Ok(true) => same.push((job, key)),
                other => outcomes.push((job.path, other)),
            }
        }
        same
    }
}

impl Uploader {
    /// Removes objects, in one request if there are several; returns how the version of each was compared.
    async fn remove(&self, doomed: &[(Job, String)], deletes: Deletes) -> Vec<Result<Compares>> {
        match doomed {
            [] => Vec::new(),
            [(job, key)] if deletes.one == deletes.way() => vec![self.remove_one(job, key, deletes).await],
            [(first, _), ..] => self.remove_together(&first.path, doomed, deletes).await,
        }
    }

    async fn remove_together(
        &self,
        first: &GuestPath,
        doomed: &[(Job, String)],
        deletes: Deletes,
    ) -> Vec<Result<Compares>> {
        let versioned = |job: &Job| deletes.many == Compares::InOneStep && job.known.version.etag.is_some();
        let objects = doomed.iter().map(|(job, key)| {
            let etag = job.known.version.etag.as_deref().filter(|_| versioned(job)).map(str::to_owned);
            Doomed { key: key.clone(), etag }
        });
        let objects: Vec<_> = objects.collect();
        let time = (objects.len() as u64) << 10;
        let compared = |job| if versioned(job) { Compares::InOneStep } else { Compares::Never };
        match self.call(first, time, || self.source.backend().delete_many(&objects)).await {
            Ok(outcomes) if outcomes.len() == objects.len() => {
                let outcomes = outcomes.into_iter().zip(doomed);
                outcomes.map(|(outcome, (job, _))| outcome.map(|()| compared(job))).collect()
            }
            // Each is asked for by itself, and gets an answer of its own.
            _ => doomed.iter().map(|_| Err(Error::new("delete", first, ErrorKind::Unsupported))).collect(),
        }
    }

    async fn remove_one(&self, job: &Job, key: &str, deletes: Deletes) -> Result<Compares> {
        let store = self.source.backend();
        if let Some(etag) = job.known.version.etag.as_deref().filter(|_| deletes.one == Compares::InOneStep) {
            self.call(&job.path, 0, || store.delete_if(key, etag)).await?;
            return Ok(Compares::InOneStep);
        }
        // Elsewhere it was compared right before.
        if deletes.way() == Compares::InOneStep && !self.owns(key, &job.path, &job.known).await? {
            return Err(changed("delete", key));
        }
        self.call(&job.path, 0, || store.delete(key)).await?;
        Ok(Compares::Never)
    }

    /// Whether the object is gone after this answer; not if it is another version than this workspace had.
    async fn settle_deletion(
        &self,
        job: &Job,
        key: &str,
        answer: Result<Compares>,
        deletes: Deletes,
    ) -> Result<bool> {
        let answer = match answer {
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Unsupported) => {
                // The comparison before is as old as all the attempts that have failed since.
                let may_remove =
                    deletes.one == Compares::InOneStep || self.owns(key, &job.path, &job.known).await?;
                match may_remove {
                    true => self.remove_one(job, key, deletes).await,
                    false => Err(changed("delete", key)),
                }
            }
            answer => answer,
        };
        match answer {
            Ok(compared) => {
                self.count(compared);
                Ok(true)
            }
            // An earlier attempt may have removed it, whose answer was lost.
            Err(error) if is_conflict(&error) => {
                let found = self.call(&job.path, 0, || self.source.backend().head(key)).await?;
                Ok(found.is_none())
            }
            Err(error) => Err(error),
        }
    }
}

/// How many objects each request is about, so that the last ones at one time are as large as the first.
fn batch(all: usize, most: usize) -> usize {
    match all.div_ceil(most.saturating_mul(BATCHES).max(1)) {
        0 | 1 => most,
        rounds => all.div_ceil(rounds * BATCHES),
    }
}

/// Whether the file of each is still gone.
async fn still_gone(places: &Arc<Places>, jobs: Vec<Job>) -> Vec<(Job, Result<()>)> {
    let (places, paths) = (Arc::clone(places), jobs.iter().map(|job| job.path.clone()).collect::<Vec<_>>());
    let looked = blocking("stat", move || {
        let look = |path: &GuestPath| match places.workspace.metadata(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => Ok(()),
            Ok(found) if found.is_dir() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::new("delete", path, ErrorKind::Busy).with_detail("file is back")),
        };
        Ok(paths.iter().map(look).collect::<Vec<_>>())
    });
    match looked.await {
        Ok(looked) => jobs.into_iter().zip(looked).collect(),
        Err(error) => jobs.into_iter().map(|job| (job, Err(error.clone()))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_at_one_time_are_about_as_many_objects_each() {
        let sizes = [(1, 1000), (1500, 1000), (4000, 1000), (4001, 501), (5000, 625), (8000, 1000)];
        for (all, size) in sizes {
            assert_eq!(batch(all, 1000), size, "{all}");
        }
        assert_eq!((batch(5000, 10), batch(41, 10)), (10, 6));
    }
}
