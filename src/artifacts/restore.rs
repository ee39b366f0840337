//! Bringing the objects of a session back as files.

mod report;

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::Artifacts;
use super::base::Base;
use super::fetch::Fetcher;
use super::journal::{self, Phase};
use super::plan::{Plan, Planned, Refusal};
use super::progress::{Event, Progress, Step};
use super::publish::{Published, publish};
use super::record::Record;
use super::stage::{RESTORE, Stage};
use super::state::{Places, blocking, discard, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Flock, Root};
pub use report::{Ended, OnLocal, RestoreReport, Restored};

/// Objects written to staging in one go.
const BATCH: usize = 64;

impl Artifacts {
    /// Brings every object of the session into the workspace.
    ///
    /// First the store is listed and every refusal is decided: bad keys, reserved names, duplicates, files where
    /// others need a directory, limits. Then the objects are fetched into staging. Only when all have arrived are
    /// they moved to the workspace. A crash at any point, or dropping the future, is made good by the next call.
    ///
    /// # Errors
    /// The store's error if it cannot be listed; [`ErrorKind::TooMany`] or [`ErrorKind::TooLarge`] if it lists more than
    /// the limits in all; [`ErrorKind::Busy`] if another call is at work; and whatever keeps the host from its own
    /// directories. A single object never makes the call fail.
    ///
    /// # Races
    /// A guest that is running sees files appear, each complete. It can keep one from appearing by putting something
    /// in its way, which is reported, and it can change each as soon as it is there.
    pub async fn restore(&self, policy: OnLocal) -> Result<RestoreReport> {
        let places = &self.places;
        let lock = lock(&places.state).await?;
        let phase = {
            let places = Arc::clone(places);
            blocking("read", move || journal::read(&places.state)).await?
        };
        match phase {
            Phase::Publishing(prefix, policy, records, kept) => {
                if prefix != self.prefix.as_str() {
                    return Err(Error::new("restore", &prefix, ErrorKind::Busy)
                        .with_detail("a restore of another prefix was interrupted here"));
                }
                let run = Finish { refused: Vec::new(), kept, records, policy, resumed: true };
                return self.finish(run, lock).await;
            }
            Phase::Complete => {
                let places = Arc::clone(places);
                blocking("remove", move || Stage::clear(&places)).await?;
                if policy == OnLocal::ColdStart {
                    return Ok(RestoreReport::empty(Ended::AlreadyRestored));
                }
            }
            Phase::None if policy == OnLocal::ColdStart && !self.is_cold().await? => {
                return Ok(RestoreReport::empty(Ended::NotCold));
            }
            Phase::None | Phase::Fetching => {}
        }
        self.fetch_and_publish(policy, lock).await
    }

    /// Whether nothing but reserved names is in the workspace.
    async fn is_cold(&self) -> Result<bool> {
        let (places, reserved) = (Arc::clone(&self.places), self.reserved.clone());
        blocking("list", move || {
            for entry in places.workspace.list(".")? {
                let entry = entry?;
                let name = entry.file_name();
                if !reserved.iter().any(|reserved| reserved.as_str() == name) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn fetch_and_publish(&self, policy: OnLocal, lock: Arc<Flock>) -> Result<RestoreReport> {
        self.progress.tell(&Event::Entered(Step::Listing));
        let listing = self.source.list(&self.prefix);
        let plan = Plan::read(listing, &self.prefix, &self.limits, &self.reserved).await?;
        for Refusal { raw, error } in &plan.refused {
            self.progress.tell(&Event::Refused { raw, error });
        }
        let Plan { objects, mut refused, bytes } = plan;
        self.progress.tell(&Event::Planned { objects: objects.len() as u64, bytes });

        let local = self.sort_out_local(policy, objects).await?;
        if policy == OnLocal::Fail && !local.present.is_empty() {
            return Ok(conflict(local, refused));
        }
        let kept = local.present;
        let objects = Arc::new(local.absent);

        let (places, planned) = (Arc::clone(&self.places), Arc::clone(&objects));
        let guard = Arc::clone(&lock);
        let (stage, staged) = blocking("write", move || {
            let staged = Stage::reuse(&places, &planned)?;
            journal::write_fetching(&places.state)?;
            Ok((Arc::new(Stage::open(places, guard)?), staged))
        })
        .await?;
        self.progress.tell(&Event::Entered(Step::Fetching));

        let mut records: Vec<Record> = Vec::with_capacity(objects.len());
        let mut failed = Vec::new();
        for (index, result) in self.fetch_all(&objects, &stage, staged, &mut records).await? {
            let Some(object) = objects.get(index) else { continue };
            match result.kind() {
                // It is gone, too large, no file in the directory that it comes from, or one with another on a file
                // system that folds case: waiting for it would keep all others away for ever.
                ErrorKind::NotFound
                | ErrorKind::AlreadyExists
                | ErrorKind::TooLarge
                | ErrorKind::Symlink
                | ErrorKind::NotRegular
                | ErrorKind::HardLinked => {
                    let raw = format!("{}{}", self.prefix.as_str(), object.path.as_str()).into_bytes();
                    self.progress.tell(&Event::Refused { raw: &raw, error: &result });
                    refused.push(Refusal { raw, error: result });
                }
                _ => failed.push((object.path.clone(), result)),
            }
        }
        if !failed.is_empty() {
            let mut report = RestoreReport::empty(Ended::Incomplete);
            report.outcomes = refused.into_iter().map(Restored::from).collect();
            report.outcomes.extend(failed.into_iter().map(|(path, error)| Restored::Failed { path, error }));
            report.outcomes.extend(records.into_iter().map(|record| Restored::Waiting { path: record.path }));
            report.outcomes.extend(kept.into_iter().map(|object| Restored::Kept { path: object.path }));
            return Ok(report);
        }
        drop((objects, stage));
        records.sort_unstable_by(|a, b| a.path.cmp(&b.path));

        let (places, prefix) = (Arc::clone(&self.places), self.prefix.clone());
        let (records, kept) = blocking("write", move || {
            journal::write_publishing(&places.state, prefix.as_str(), policy, &records, &kept)?;
            Ok((records, kept))
        })
        .await?;
        self.finish(Finish { refused, kept, records, policy, resumed: false }, lock).await
    }

    /// Fetches what is not staged yet; fills `records` and returns what went wrong, by index.
    async fn fetch_all(
        &self,
        objects: &Arc<Vec<Planned>>,
        stage: &Arc<Stage>,
        staged: Vec<(usize, Record)>,
        records: &mut Vec<Record>,
    ) -> Result<Vec<(usize, Error)>> {
        let fetcher = Fetcher::new(self, self.prefix.clone());
        let mut staged = staged.into_iter().peekable();
        let mut missing = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            match staged.next_if(|(staged, _)| *staged == index) {
                Some((_, record)) => {
                    let (path, bytes) = (&object.path, record.size);
                    self.progress.tell(&Event::Started { path, bytes });
                    self.progress.tell(&Event::Moved { path, bytes });
                    self.progress.tell(&Event::Done { path, bytes });
                    records.push(record);
                }
                None => missing.push((index, object)),
            }
        }
        let fetcher = &fetcher;
        let mut batches = std::pin::pin!(
            stream::iter(missing)
                .map(|(index, object)| async move { (index, fetcher.fetch(object, stage.part(index)).await) })
                .buffer_unordered(self.concurrency)
                .ready_chunks(BATCH)
                .map(|batch| {
                    let (stage, objects) = (Arc::clone(stage), Arc::clone(objects));
                    blocking("write", move || stage.write(&objects, batch))
                })
                .buffer_unordered(2)
        );
        let mut wrong = Vec::new();
        while let Some(batch) = batches.next().await {
            for (index, result) in batch? {
                match result {
                    Ok(record) => records.push(record),
                    Err(error) => wrong.push((index, error)),
                }
            }
        }
        Ok(wrong)
    }

    /// Tells which planned paths are taken in the workspace.
    async fn sort_out_local(&self, policy: OnLocal, objects: Vec<Planned>) -> Result<Local> {
        if matches!(policy, OnLocal::ColdStart | OnLocal::RemoteWins) {
            return Ok(Local { present: Vec::new(), absent: objects });
        }
        let places = Arc::clone(&self.places);
        blocking("stat", move || {
            let is_absent = |object: &Planned| match places.workspace.metadata(&object.path) {
                Err(error) => error.kind() == ErrorKind::NotFound,
                Ok(_) => false,
            };
            let (absent, present) = objects.into_iter().partition(is_absent);
            Ok(Local { present, absent })
        })
        .await
    }

    /// Publishes what is staged and draws up the report.
    async fn finish(&self, run: Finish, lock: Arc<Flock>) -> Result<RestoreReport> {
        let (places, progress) = (Arc::clone(&self.places), self.progress.clone());
        blocking("publish", move || {
            let report = run.publish(&places, &progress);
            drop(lock);
            report
        })
        .await
    }
}

struct Local {
    present: Vec<Planned>,
    absent: Vec<Planned>,
}

/// A restore whose objects are all in staging, or across already.
struct Finish {
    refused: Vec<Refusal>,
    kept: Vec<Planned>,
    records: Vec<Record>,
    policy: OnLocal,
    resumed: bool,
}

impl Finish {
    fn publish(self, places: &Places, progress: &Progress) -> Result<RestoreReport> {
        progress.tell(&Event::Entered(Step::Publishing));
        let fates = publish(places, self.policy, &self.records)?;
        let failed = fates.iter().any(|fate| matches!(fate, Published::Failed(_)));
        if !failed {
            self.write_base(&places.state, &fates)?;
            journal::write_complete(&places.state)?;
            progress.tell(&Event::Entered(Step::Complete));
            // What cannot be removed now, because a guest holds on to it, is removed by the next call.
            let _ = discard(&places.staging, RESTORE);
        }
        let mut outcomes = Vec::with_capacity(self.refused.len() + self.kept.len() + self.records.len());
        outcomes.extend(self.refused.into_iter().map(Restored::from));
        outcomes.extend(self.kept.into_iter().map(|object| Restored::Kept { path: object.path }));
        outcomes.extend(self.records.into_iter().zip(fates).map(
            |(Record { path, size, .. }, fate)| match fate {
                Published::Moved => Restored::Placed { path, bytes: size },
                Published::Kept => Restored::Kept { path },
                Published::Refused(error) => {
                    progress.tell(&Event::Refused { raw: path.as_str().as_bytes(), error: &error });
                    Restored::Refused { key: path.as_str().as_bytes().to_vec(), error }
                }
                Published::Failed(error) => Restored::Failed { path, error },
            },
        ));
        let ended = if failed { Ended::Incomplete } else { Ended::Complete };
        Ok(RestoreReport { ended, resumed: self.resumed, outcomes })
    }

    /// Notes for later mirrors what store and workspace have in common now.
    fn write_base(&self, state: &Root, fates: &[Published]) -> Result<()> {
        let mut base = Base::read(state)?;
        for object in &self.kept {
            base.adopt(&object.path, object.etag.clone());
        }
        let fated = || self.records.iter().zip(fates);
        for (record, _) in fated().filter(|(_, fate)| matches!(fate, Published::Kept)) {
            base.adopt(&record.path, record.etag.clone());
        }
        let placed = fated().filter(|(_, fate)| matches!(fate, Published::Moved));
        base.write_with(state, placed.map(|(record, _)| record))
    }
}

/// The report of a restore that may not touch what is there.
fn conflict(local: Local, refused: Vec<Refusal>) -> RestoreReport {
    let mut report = RestoreReport::empty(Ended::Conflict);
    report.outcomes = refused.into_iter().map(Restored::from).collect();
    report.outcomes.extend(local.present.into_iter().map(|object| {
        let error = Error::new("restore", &object.path, ErrorKind::AlreadyExists);
        Restored::Failed { path: object.path, error }
    }));
    let unattempted = local.absent.into_iter().map(|object| {
        let error =
            Error::new("restore", &object.path, ErrorKind::Busy).with_detail("other files are in the way");
        Restored::Failed { path: object.path, error }
    });
    report.outcomes.extend(unattempted);
    report
}
