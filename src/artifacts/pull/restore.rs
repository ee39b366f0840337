//! One restore from its beginning to its end.
//!
//! Problem: a host can die at any point, and a caller can drop the future at any point.
//!
//! Defence: the journal has one of four states, and each next step is repeatable. Nothing is published before all objects
//! have arrived, and the journal lists them before the first is published.
//!
//! What remains: after a crash the workspace may have a part of the files until the next call.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::fetch::Fetcher;
use super::plan::{Plan, Refusal};
use super::publish::{Published, publish};
use super::report::{Ended, RestoreReport, Restored, left};
use super::stage::{RESTORE, Stage};
use crate::artifacts::Artifacts;
use crate::artifacts::disk::{blocking, discard};
use crate::artifacts::policy::OnLocal;
use crate::artifacts::progress::{Event, Progress, Step};
use crate::artifacts::state::journal::{self, Phase, Publishing};
use crate::artifacts::state::{Base, Places, Planned, Record, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::report::Leftovers;
use crate::root::{Flock, Root};

/// Objects written to staging in one go.
const BATCH: usize = 64;

impl Artifacts {
    /// Brings every object of the session into the workspace.
    ///
    /// First the store is listed and every refusal is decided: bad keys, reserved names, duplicates, files where
    /// others need a directory, limits. Then the objects are fetched into staging. Only when all have arrived are
    /// they moved to the workspace. After a crash at any point, or when the future was dropped, the next call completes it.
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
        let places = &self.open().await?;
        let lock = lock(&places.state).await?;
        let phase = {
            let places = Arc::clone(places);
            blocking("read", move || journal::read(&places.state)).await?
        };
        match phase {
            Phase::Publishing(Publishing { prefix, policy, records, kept, refused }) => {
                if prefix != self.client.prefix.as_str() {
                    return Err(Error::new("restore", &prefix, ErrorKind::Busy)
                        .with_detail("a restore of another prefix was interrupted here"));
                }
                let left = Leftovers { total: refused, ..Leftovers::default() };
                let run = Finish { left, kept, records, policy, resumed: true };
                return self.finish(run, places, lock).await;
            }
            Phase::Complete => {
                let places = Arc::clone(places);
                blocking("remove", move || Stage::clear(&places)).await?;
                if policy == OnLocal::ColdStart {
                    return Ok(RestoreReport::empty(Ended::AlreadyRestored));
                }
            }
            Phase::None if policy == OnLocal::ColdStart && !self.is_cold(places).await? => {
                return Ok(RestoreReport::empty(Ended::NotCold));
            }
            Phase::None | Phase::Fetching => {}
        }
        self.fetch_and_publish(policy, places, lock).await
    }

    /// Whether nothing but reserved names is in the workspace.
    async fn is_cold(&self, places: &Arc<Places>) -> Result<bool> {
        let (places, reserved) = (Arc::clone(places), self.reserved.clone());
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

    async fn fetch_and_publish(
        &self,
        policy: OnLocal,
        places: &Arc<Places>,
        lock: Arc<Flock>,
    ) -> Result<RestoreReport> {
        let Plan { objects, mut refused, .. } = self.plan().await?;
        let local = self.sort_out_local(places, policy, objects).await?;
        if policy == OnLocal::Fail && !local.present.is_empty() {
            return Ok(conflict(local, refused));
        }
        let (kept, objects) = (local.present, Arc::new(local.absent));
        let (stage, staged) = self.stage(places, &objects, &lock).await?;

        let mut records: Vec<Record> = Vec::with_capacity(objects.len());
        let mut failed = Vec::new();
        for (index, error) in self.fetch_all(&objects, &stage, staged, &mut records).await? {
            let Some(object) = objects.get(index) else { continue };
            if is_final(&error) {
                let raw = format!("{}{}", self.client.prefix.as_str(), object.path.as_str()).into_bytes();
                self.client.progress.report(&Event::Refused { raw: &raw, error: &error });
                refused.push(Refusal { raw, error });
            } else {
                failed.push(Restored::Failed { path: object.path.clone(), error });
            }
        }
        drop((objects, stage));
        let left = left(refused);
        if !failed.is_empty() {
            let waiting = records.into_iter().map(|record| Restored::Waiting { path: record.path });
            let kept = kept.into_iter().map(|object| Restored::Kept { path: object.path });
            let outcomes = failed.into_iter().chain(waiting).chain(kept).collect();
            return Ok(RestoreReport { outcomes, left, ..RestoreReport::empty(Ended::Incomplete) });
        }
        records.sort_unstable_by(|a, b| a.path.cmp(&b.path));

        let prefix = self.client.prefix.as_str().to_owned();
        let publishing = Publishing { prefix, policy, records, kept, refused: left.total };
        let held = Arc::clone(places);
        let Publishing { records, kept, .. } = blocking("write", move || {
            publishing.write(&held.state)?;
            Ok(publishing)
        })
        .await?;
        self.finish(Finish { left, kept, records, policy, resumed: false }, places, lock).await
    }

    /// Lists the store and decides every refusal.
    async fn plan(&self) -> Result<Plan> {
        self.client.progress.report(&Event::Entered(Step::Listing));
        let listing = self.client.source.list(&self.client.prefix);
        let plan = Plan::read(listing, &self.client.prefix, &self.client.limits, &self.reserved).await?;
        for Refusal { raw, error } in &plan.refused {
            self.client.progress.report(&Event::Refused { raw, error });
        }
        self.client
            .progress
            .report(&Event::Planned { objects: plan.objects.len() as u64, bytes: plan.bytes });
        Ok(plan)
    }

    /// Opens the staged tree for `objects`, and returns which of them it has already.
    async fn stage(
        &self,
        places: &Arc<Places>,
        objects: &Arc<Vec<Planned>>,
        lock: &Arc<Flock>,
    ) -> Result<(Arc<Stage>, Vec<(usize, Record)>)> {
        let (places, planned, lock) = (Arc::clone(places), Arc::clone(objects), Arc::clone(lock));
        let staged = blocking("write", move || {
            let staged = Stage::reuse(&places, &planned)?;
            journal::write_fetching(&places.state)?;
            Ok((Arc::new(Stage::open(places, lock)?), staged))
        })
        .await?;
        self.client.progress.report(&Event::Entered(Step::Fetching));
        Ok(staged)
    }

    /// Fetches what is not staged yet; fills `records` and returns what went wrong, by index.
    async fn fetch_all(
        &self,
        objects: &Arc<Vec<Planned>>,
        stage: &Arc<Stage>,
        staged: Vec<(usize, Record)>,
        records: &mut Vec<Record>,
    ) -> Result<Vec<(usize, Error)>> {
        let fetcher = Fetcher::new(&self.client, self.client.prefix.clone());
        let mut staged = staged.into_iter().peekable();
        let mut missing = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            match staged.next_if(|(staged, _)| *staged == index) {
                Some((_, record)) => {
                    let (path, bytes) = (&object.path, record.size);
                    self.client.progress.report(&Event::Started { path, bytes });
                    self.client.progress.report(&Event::Moved { path, bytes });
                    self.client.progress.report(&Event::Done { path, bytes });
                    records.push(record);
                }
                None => missing.push(index),
            }
        }
        let fetcher = &fetcher;
        let mut batches = std::pin::pin!(
            stream::iter(missing)
                .map(|index| async move {
                    let object = objects.get(index)?;
                    Some((index, fetcher.fetch(object, stage.part(index)).await))
                })
                .buffer_unordered(self.client.concurrency)
                .filter_map(std::future::ready)
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

    /// Divides the planned paths into those that are taken in the workspace and those that are free.
    async fn sort_out_local(
        &self,
        places: &Arc<Places>,
        policy: OnLocal,
        objects: Vec<Planned>,
    ) -> Result<Local> {
        if matches!(policy, OnLocal::ColdStart | OnLocal::RemoteWins) {
            return Ok(Local { present: Vec::new(), absent: objects });
        }
        let places = Arc::clone(places);
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

    /// Publishes what is staged, and makes the report.
    async fn finish(&self, run: Finish, places: &Arc<Places>, lock: Arc<Flock>) -> Result<RestoreReport> {
        let (places, progress) = (Arc::clone(places), self.client.progress.clone());
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

/// A restore whose objects are all in staging, or in the workspace already.
struct Finish {
    left: Leftovers,
    kept: Vec<Planned>,
    records: Vec<Record>,
    policy: OnLocal,
    resumed: bool,
}

impl Finish {
    fn publish(self, places: &Places, progress: &Progress) -> Result<RestoreReport> {
        progress.report(&Event::Entered(Step::Publishing));
        let fates = publish(places, self.policy, &self.records)?;
        let failed = fates.iter().any(|fate| matches!(fate, Published::Failed(_)));
        if !failed {
            self.write_base(&places.state, &fates)?;
            journal::write_complete(&places.state)?;
            progress.report(&Event::Entered(Step::Complete));
            // What cannot be removed now, because a guest holds on to it, is removed by the next call.
            let _ = discard(&places.staging, RESTORE);
        }
        let mut left = self.left;
        let mut outcomes = Vec::with_capacity(self.kept.len() + self.records.len());
        outcomes.extend(self.kept.into_iter().map(|object| Restored::Kept { path: object.path }));
        for (Record { path, size, .. }, fate) in self.records.into_iter().zip(fates) {
            match fate {
                Published::Moved => outcomes.push(Restored::Placed { path, bytes: size }),
                Published::Kept => outcomes.push(Restored::Kept { path }),
                Published::Refused(error) => {
                    progress.report(&Event::Refused { raw: path.as_str().as_bytes(), error: &error });
                    left.add(path.as_str(), error);
                }
                Published::Failed(error) => outcomes.push(Restored::Failed { path, error }),
            }
        }
        let ended = if failed { Ended::Incomplete } else { Ended::Complete };
        Ok(RestoreReport { ended, resumed: self.resumed, outcomes, left })
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

/// Whether an object does not come in however often it is tried: it is gone, too large, no file in the directory that it
/// comes from, or one with another on a file system that folds case. To wait for it would keep all others from the
/// workspace in every call.
fn is_final(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::TooLarge
            | ErrorKind::Symlink
            | ErrorKind::NotRegular
            | ErrorKind::HardLinked
    )
}

/// The report of a restore that may not touch what is there.
fn conflict(local: Local, refused: Vec<Refusal>) -> RestoreReport {
    let mut report = RestoreReport::empty(Ended::Conflict);
    report.left = left(refused);
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
