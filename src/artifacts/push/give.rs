//! What the workspace has changed, brought to the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::stream::{self, StreamExt as _};

use super::upload::Intend;
use super::uploader::{Before, Room, Uploaded, Uploader, may_pass};
use crate::artifacts::Artifacts;
use crate::artifacts::client::Client;
use crate::artifacts::disk::blocking;
use crate::artifacts::local::{Local, Scope};
use crate::artifacts::options::{Deletions, SyncOptions};
use crate::artifacts::progress::Event;
use crate::artifacts::remote::Found;
use crate::artifacts::report::{Held, Side};
use crate::artifacts::state::{Intents, Known, Log, Planned, Record, Uploads};
use crate::artifacts::sync::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::tree::{Act, Conflict, Leaf, OnConflict, Plan, Rules, Tree, Whose, Why, beside, plan};

/// What is to be done to the store.
#[derive(Debug, Default)]
struct Work {
    puts: Vec<Job>,
    deletes: Vec<GuestPath>,
    /// Empty directories that the store does not know of.
    marks: Vec<GuestPath>,
    /// Directories that are gone.
    unmarks: Vec<GuestPath>,
    /// How many paths differ still afterwards.
    pending: u64,
    held: Option<Held>,
    /// Whether what would be held was approved.
    approved: bool,
    conflicts: Vec<Conflict>,
    left: Vec<(GuestPath, Error)>,
}

impl Work {
    /// Whether nothing is done to the store.
    fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty() && self.marks.is_empty() && self.unmarks.is_empty()
    }
}

/// One file to upload.
#[derive(Clone, Debug)]
struct Job {
    path: GuestPath,
    /// The path of the object: another one if that of the file is in conflict.
    to: GuestPath,
    /// What it takes the place of.
    over: Option<Known>,
    leaf: Leaf,
}

impl Artifacts {
    /// Does the push half of a call.
    pub(in crate::artifacts) async fn give(&self, mut turn: Turn, options: &SyncOptions) -> Result<Turn> {
        let desk = Arc::clone(&turn.desk);
        let uploads = blocking("mirror", move || Uploads::read(&desk.places.state)).await?;
        let room = Room::beside(&self.client.limits, std::iter::empty());
        let began = turn.local.began.unwrap_or(SystemTime::UNIX_EPOCH);
        let reader = Uploader::new(&self.client, &turn.desk.places, room, Uploads::default(), began);
        let gone = turn.gone(|path| turn.local.tree.is_absent(path));
        let _none_is_here = self.ask_for_removed(&mut turn, gone).await;
        self.look_into(&reader, &mut turn).await;
        let work = turn.work(&self.client, options);
        let replaced: HashSet<&GuestPath> = work.puts.iter().map(|job| &job.to).collect();
        let staying = turn.remote.objects.iter().filter(|(path, _)| !replaced.contains(path));
        let room = Room::beside(&self.client.limits, staying.map(|(_, object)| object.size));
        let uploader = Uploader::new(&self.client, &turn.desk.places, room, uploads, began);
        uploader.discard_abandoned().await;
        if work.approved {
            turn.base.notes.references.remove(&Side::There);
        }
        turn.adopt();
        turn.report.pending = work.pending;
        if !work.is_empty() {
            turn = blocking("write", move || turn.base.doubt(&turn.desk.places.state).map(|()| turn)).await?;
        }

        let bytes = work.puts.iter().fold(0, |sum: u64, job| sum.saturating_add(job.leaf.size()));
        let objects = (work.puts.len() + work.deletes.len()) as u64;
        self.client.progress.report(&Event::Planned { objects, bytes });
        let mut unsent = HashSet::new();
        let mut lasting = HashSet::new();
        // A version that gets another name has it before its own is taken: nothing is in a workspace alone meanwhile.
        let (replacing, new): (Vec<_>, Vec<_>) = work.puts.into_iter().partition(|job| job.over.is_some());
        for jobs in [new, replacing] {
            let loses = |job: &Job| {
                job.over.as_ref().is_some_and(|over| {
                    let waits = unsent.contains(&over.leaf.content()) || turn.has_alone(&job.path);
                    over.leaf != job.leaf && waits
                })
            };
            let (waiting, jobs): (Vec<_>, Vec<_>) = jobs.into_iter().partition(loses);
            for job in waiting {
                turn.report.failed.add(&job.path, waits("put", &job.path));
            }
            for (job, result) in self.upload_all(&uploader, jobs, &turn.intents).await {
                let sent = self.note(&mut turn, &job, result);
                if !sent {
                    unsent.insert(job.leaf.content());
                    lasting.insert(job.to);
                }
            }
        }
        turn.report.conflicts.extend(work.conflicts);
        turn.report.held.extend(work.held);
        for (path, error) in work.left {
            turn.report.left.add(&path, error);
        }
        let (mut turn, deletes) = self.look_again(turn, work.deletes, options).await?;
        let gone: HashSet<GuestPath> = deletes.iter().cloned().collect();
        lasting.extend(self.delete_all(&uploader, &mut turn, deletes, &unsent).await?);
        self.unmark_all(&uploader, &mut turn, work.unmarks).await;
        // A directory in place of a store loses those that become empty.
        self.mark_all(&uploader, &mut turn, work.marks).await;
        turn.report.unconditional += uploader.unconditional();
        blocking("write", move || {
            let state = &turn.desk.places.state;
            // A pull that was cut off may have fetched what is older than the base now.
            let outdated = |record: &Record| match turn.base.get(&record.path) {
                Some(known) => known.version != record.version,
                None => gone.contains(&record.path),
            };
            Log::forget(state, turn.base.binding(), outdated)?;
            turn.base.write(state)?;
            uploader.write_uploads()?;
            // What failed may still have come through.
            turn.intents.keep(state, |path| lasting.contains(path))?;
            Ok(turn)
        })
        .await
    }

    /// Reads the objects that have changed where the file has changed, too, or where this host was about to put something.
    async fn look_into(&self, reader: &Uploader, turn: &mut Turn) {
        let Turn { base, local, remote, contents, intents, .. } = &*turn;
        let is_unsure = |object: &Planned| {
            let was = base.get(&object.path).map(|known| &known.leaf);
            let changed = local.tree.get(&object.path) != was || !intents.of(&object.path).is_empty();
            // Some servers give the same bytes another version by themselves.
            let alike = was.is_some_and(|was| was.size() == object.size);
            (changed || alike) && !contents.contains_key(&object.path)
        };
        let unsure: Vec<Planned> = remote.changed(base, |_| None).into_iter().filter(is_unsure).collect();
        let found = stream::iter(unsure).map(|object| async move {
            let _leave = self.client.source.leave().await;
            let found = match self.client.prefix.key(&object.path) {
                Ok(key) => reader.identify(&key, &object.path, self.client.limits.file_bytes).await,
                Err(error) => Err(error),
            };
            (object.path, found)
        });
        let mut found = std::pin::pin!(found.buffer_unordered(self.client.concurrency));
        while let Some((path, found)) = found.next().await {
            match found {
                Ok(Some(found)) => {
                    let leaf = found.leaf(turn.mode(&path));
                    let access = turn.desk.places.workspace.policy().access();
                    let said = found.attributes.mode.filter(|_| matches!(leaf, Leaf::File { .. }));
                    let mode = said.map(|mode| access.widen(mode)).or_else(|| turn.unsaid(&path, &leaf));
                    let version = turn.remote.of_etag(&path, found.etag);
                    // This host has put it before it was cut off.
                    if turn.intents.of(&path).contains(&found.digest) {
                        let (leaf, version) = (leaf.clone(), version.clone());
                        let known = Known { leaf, version, mode, file: None, stamp: None };
                        turn.base.insert(path.clone(), known);
                    }
                    turn.contents.insert(path, Found { leaf, version, mode });
                }
                Ok(None) => {
                    let error =
                        Error::new("get", &path, ErrorKind::NotFound).with_detail("is listed and gone");
                    turn.report.failed.add(&path, error);
                }
                Err(error) => turn.report.failed.add(&path, error),
            }
        }
    }

    /// Uploads several files at a time.
    async fn upload_all(
        &self,
        uploader: &Uploader,
        jobs: Vec<Job>,
        intents: &Intents,
    ) -> Vec<(Job, Result<Uploaded>)> {
        let uploads = stream::iter(jobs).map(|job| async move {
            let key = match self.client.prefix.key(&job.to) {
                Ok(key) => key,
                Err(error) => return (job, Err(error)),
            };
            let before = Before { known: job.over.as_ref(), ours: intents.of(&job.to) };
            // A second version is no file here: whoever took it for one would see it deleted.
            let intend: Intend<'_> = &|digest| match job.to == job.path {
                true => intents.note(&job.to, digest),
                false => Ok(()),
            };
            let result = uploader.upload((&job.path, &job.leaf), &key, before, intend).await;
            (job, result)
        });
        uploads.buffer_unordered(self.client.concurrency).collect().await
    }

    /// Adds what became of one file to the base and to the report; returns whether the store has it.
    fn note(&self, turn: &mut Turn, job: &Job, result: Result<Uploaded>) -> bool {
        let report = &mut turn.report;
        let result = result.map(|uploaded| uploaded.by(|| turn.local.file(&job.path)));
        match result {
            Ok(Uploaded::Put(known)) => {
                report.uploaded += 1;
                // A second version in the store is a file that the next pull brings here.
                match job.to == job.path {
                    true => turn.base.insert(job.path.clone(), known),
                    false => report.pending += 1,
                }
                return true;
            }
            Ok(Uploaded::Same(known)) => {
                if job.to == job.path {
                    turn.base.insert(job.path.clone(), known);
                }
                return true;
            }
            Ok(Uploaded::Conflict) => {
                let conflict = Conflict { path: job.path.clone(), why: Why::BothChanged, beside: None };
                report.conflicts.push(conflict);
            }
            Err(error) if may_pass(&error) => report.failed.add(&job.path, error),
            // It went away meanwhile, as if it had never been seen.
            Err(error) if error.kind() == ErrorKind::NotFound => report.failed.add(&job.path, error),
            Ok(Uploaded::Over(error)) | Err(error) => {
                let raw = job.path.as_bytes();
                self.client.progress.report(&Event::Refused { raw, error: &error });
                report.left.add(&job.path, error);
            }
        }
        false
    }

    /// Which of `paths` have a file that is still gone. A look takes its time: a file that is moved meanwhile, from where nobody has
    /// looked yet to where somebody has, is seen nowhere. Then the store has it under its old name alone.
    async fn look_again(
        &self,
        mut turn: Turn,
        paths: Vec<GuestPath>,
        options: &SyncOptions,
    ) -> Result<(Turn, Vec<GuestPath>)> {
        if paths.is_empty() {
            return Ok((turn, paths));
        }
        let scope = Scope { attributes: turn.attributes, ..self.scope(options) };
        blocking("mirror", move || {
            let again = Local::scan(&turn.desk.places, &turn.base, &scope)?;
            let (files, leaves) = again.unsent(&turn.base);
            let has_moved = |known: &Known| {
                known.file.is_some_and(|file| files.contains(&file)) || leaves.contains(&known.leaf.content())
            };
            let may_be_here = |path: &GuestPath| {
                let known = turn.base.get(path);
                // What the first look could not see either was held then, and is approved.
                let hides = again.may_hide(known) && !turn.local.may_hide(known);
                hides || known.is_some_and(has_moved)
            };
            let (waiting, gone): (Vec<_>, _) = paths.into_iter().partition(may_be_here);
            for path in waiting {
                let error = Error::new("delete", &path, ErrorKind::Busy)
                    .with_detail("its file may have got another name meanwhile");
                turn.report.failed.add(&path, error);
            }
            Ok((turn, gone))
        })
        .await
    }
}

/// Why an object stays as it is.
fn waits(operation: &'static str, path: &GuestPath) -> Error {
    Error::new(operation, path, ErrorKind::Busy)
        .with_detail("its content could not be sent under another name")
}

impl Turn {
    /// Decides what is done to the store.
    fn work(&self, client: &Client, options: &SyncOptions) -> Work {
        let Self { base, local, remote, contents, .. } = self;
        let (was, there) = (base.tree(Side::There), remote.tree(base, contents));
        let keeps = options.deletions == Deletions::Keep;
        let hold = |path: &GuestPath| keeps || self.has_alone(path) || local.may_hide(base.get(path));
        let on_conflict = OnConflict::KeepTarget;
        let rules = Rules { on_conflict, guard: options.guard(), hold: &hold, measure: options.measure() };
        let Plan { steps, conflicts, held, approval, approved, open, ours_only } =
            plan(&was, &there, &local.tree, rules);
        // What nobody has read is no file here, and so in none of the steps.
        let unread = remote.objects.keys().filter(|path| there.get(path).is_none() && !open.contains(path));
        let pending = ours_only + open.len() as u64 + unread.count() as u64;
        let mut work = Work { pending, approved, ..Work::default() };
        let over = |path: &GuestPath| {
            let leaf = there.get(path)?.clone();
            let (version, mode) = remote.version(base, contents, path);
            Some(Known { leaf, version, mode, file: None, stamp: None })
        };
        for step in steps {
            let path = step.path;
            match step.act {
                Act::Put { theirs, .. } => work.puts.push(Job {
                    path: path.clone(),
                    to: path.clone(),
                    over: over(path),
                    leaf: theirs.clone(),
                }),
                Act::Remove(_) => work.deletes.push(path.clone()),
                Act::RemoveDirectory => work.unmarks.push(path.clone()),
                Act::MakeDirectory | Act::Aside(_) | Act::PutBeside(_) => {}
            }
        }
        if self.attributes {
            let put = |path: &GuestPath| {
                let leaf = local.tree.get(path)?.clone();
                Some(Job { path: path.clone(), to: path.clone(), over: over(path), leaf })
            };
            work.puts.extend(self.modes(&there).filter_map(put));
        } else {
            work.left.extend(local.unkept().map(|(path, error)| (path.clone(), error)));
        }
        // What is in the directory is put before the file goes that has its name. An earlier call has come no further.
        let covered = remote.covered.iter().filter(|(path, object)| {
            base.is_at(path, &object.version, object.size) && local.tree.is_directory(path) && !hold(path)
        });
        work.deletes.extend(covered.map(|(path, _)| path.clone()));
        (work.marks, work.unmarks) = self.directories(&was, &there, &work.deletes, work.unmarks);
        for (path, why) in conflicts {
            work.conflict(&client.prefix, path, why, (local.tree.get(path), there.file_above(path)));
        }
        if let Some(approval) = approval {
            let paths = held.into_iter().cloned().collect();
            work.held = Some(Held { side: Side::There, paths, approval });
        }
        work
    }

    /// The files that differ from `there` in their mode alone, if the store keeps that. It is no other content, and yet goes there.
    pub(in crate::artifacts) fn modes<'t>(&'t self, there: &'t Tree) -> impl Iterator<Item = &'t GuestPath> {
        let Self { base, local, remote, contents, attributes, .. } = self;
        let is_other = move |path: &GuestPath| {
            let (_, was) = remote.version(base, contents, path);
            *attributes && was.is_some() && local.mode(path).is_some_and(|mode| Some(mode) != was)
        };
        let unchanged = local.tree.iter().filter(|(path, leaf)| there.get(path) == Some(leaf));
        unchanged.map(|(path, _)| path).filter(move |path| is_other(path))
    }

    /// Whether the second version of a conflict at `path` is here and cannot be sent: the store has it at `path` alone.
    fn has_alone(&self, path: &GuestPath) -> bool {
        self.base.notes.conflicts.get(path).is_some_and(|beside| self.local.tree.is_unknown(beside))
    }

    /// Notes in the base what both sides have, and what neither has.
    fn adopt(&mut self) {
        let Self { base, local, remote, contents, .. } = &mut *self;
        let there = remote.tree(base, contents);
        for (path, leaf) in local.tree.iter() {
            if there.get(path) == Some(leaf) {
                let known = local.known(path, leaf.clone(), remote.version(base, contents, path));
                base.insert(path.clone(), known);
            }
        }
        let gone = |path: &&GuestPath| local.tree.is_absent(path) && there.is_absent(path);
        let gone: Vec<GuestPath> = base.iter().map(|(path, _)| path).filter(gone).cloned().collect();
        for path in gone {
            base.remove(&path);
        }
    }
}

impl Work {
    /// Both sides have changed what is at `path`, where the workspace has `leaf` and the store may have a file `above`. The roles of
    /// the plan are exchanged here: its target is the store.
    fn conflict(
        &mut self,
        prefix: &crate::artifacts::Prefix,
        path: &GuestPath,
        why: Why,
        (leaf, above): (Option<&Leaf>, Option<GuestPath>),
    ) {
        let leaf = leaf.filter(|leaf| **leaf != Leaf::Directory).cloned();
        let mut put = |to: GuestPath, leaf| {
            self.puts.push(Job { path: path.clone(), to, over: None, leaf });
        };
        // An object beneath the key of a file would make a directory of it, and then nobody could read the file.
        let place = above.as_ref().unwrap_or(path);
        let rest = above.as_ref().and_then(|above| path.strip_prefix(above)).unwrap_or_default();
        let name = |leaf: &Leaf| {
            let name = beside(place, Whose::Ours, &leaf.tag(), 0).and_then(|name| name.join(&rest)).ok();
            name.filter(|name| prefix.key(name).is_ok())
        };
        let (why, beside) = match (why, leaf) {
            // The store has deleted it: it is put as new.
            (Why::DeletedHere, Some(leaf)) if above.is_none() => {
                put(path.clone(), leaf);
                (Why::DeletedThere, None)
            }
            (Why::DeletedHere, None) => (Why::DeletedThere, None),
            (Why::DeletedThere, _) => {
                self.pending += 1;
                (Why::DeletedHere, None)
            }
            (why, Some(leaf)) => {
                let name = name(&leaf);
                if let Some(name) = &name {
                    put(name.clone(), leaf);
                }
                (if above.is_some() { Why::Kinds } else { why }, name)
            }
            (why, None) => (why, None),
        };
        self.conflicts.push(Conflict { path: path.clone(), why, beside });
    }
}
