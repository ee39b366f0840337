//! What the workspace has changed, brought to the store.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::upload::Intend;
use super::uploader::{Before, Room, Uploaded, Uploader, may_pass};
use crate::artifacts::Artifacts;
use crate::artifacts::disk::blocking;
use crate::artifacts::options::{Deletions, SyncOptions};
use crate::artifacts::progress::Event;
use crate::artifacts::report::{Held, Side};
use crate::artifacts::state::{Intents, Known, Planned, Uploads};
use crate::artifacts::sync::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::tree::{Act, Conflict, Leaf, OnConflict, Plan, Rules, Whose, Why, beside, plan};

/// What is to be done to the store.
#[derive(Debug, Default)]
struct Work {
    puts: Vec<Job>,
    deletes: Vec<GuestPath>,
    /// How many paths differ still afterwards.
    pending: u64,
    held: Option<Held>,
    conflicts: Vec<Conflict>,
    left: Vec<(GuestPath, Error)>,
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
        let reader = Uploader::new(&self.client, &turn.desk.places, room, Uploads::default());
        self.look_into(&reader, &mut turn).await;
        let work = turn.work(&self.client.prefix, options);
        let replaced: HashSet<&GuestPath> = work.puts.iter().map(|job| &job.to).collect();
        let staying = turn.remote.objects.iter().filter(|(path, _)| !replaced.contains(path));
        let room = Room::beside(&self.client.limits, staying.map(|(_, object)| object.size));
        let uploader = Uploader::new(&self.client, &turn.desk.places, room, uploads);
        uploader.discard_abandoned().await;
        turn.adopt();
        turn.report.pending = work.pending;

        let bytes = work.puts.iter().fold(0, |sum: u64, job| sum.saturating_add(job.leaf.size()));
        let objects = (work.puts.len() + work.deletes.len()) as u64;
        self.client.progress.report(&Event::Planned { objects, bytes });
        let mut unsent = HashSet::new();
        let mut lasting = HashSet::new();
        for (job, result) in self.upload_all(&uploader, work.puts, &turn.intents).await {
            let sent = self.note(&mut turn, &job, result);
            if !sent {
                unsent.insert(job.leaf);
                lasting.insert(job.to);
            }
        }
        turn.report.conflicts.extend(work.conflicts);
        turn.report.held.extend(work.held);
        for (path, error) in work.left {
            turn.report.left.add(&path, error);
        }
        lasting.extend(self.delete_all(&uploader, &mut turn, work.deletes, &unsent).await?);
        turn.report.unconditional += uploader.unconditional();
        blocking("write", move || {
            let state = &turn.desk.places.state;
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
            changed && !contents.contains_key(&object.path)
        };
        let unsure: Vec<Planned> = remote.changed(base).into_iter().filter(is_unsure).collect();
        let found = stream::iter(unsure).map(|object| async move {
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
                    let leaf = Leaf::File { bytes: found.bytes, sha256: found.digest, execute: false };
                    let (leaf, etag) = (turn.with_mode(&path, leaf), found.etag.map(String::into_boxed_str));
                    // This host has put it before it was cut off.
                    if turn.intents.of(&path).contains(&found.digest) {
                        let known = Known { leaf: leaf.clone(), etag: etag.clone(), file: None, stamp: None };
                        turn.base.insert(path.clone(), known);
                    }
                    turn.contents.insert(path, (leaf, etag));
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
            let intend: Intend<'_> = &|digest| intents.note(&job.to, digest);
            let result = uploader.upload(&job.path, &key, before, intend).await;
            (job, result)
        });
        uploads.buffer_unordered(self.client.concurrency).collect().await
    }

    /// Adds what became of one file to the base and to the report; returns whether the store has it.
    fn note(&self, turn: &mut Turn, job: &Job, result: Result<Uploaded>) -> bool {
        let report = &mut turn.report;
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
}

impl Turn {
    /// Decides what is done to the store.
    fn work(&self, prefix: &crate::artifacts::Prefix, options: &SyncOptions) -> Work {
        let Self { base, local, remote, contents, .. } = self;
        let (was, there) = (base.tree(), remote.tree(base, contents));
        let keeps = options.deletions == Deletions::Keep;
        let hold = |path: &GuestPath| keeps || local.may_hide(base.get(path));
        let rules = Rules { on_conflict: OnConflict::KeepTarget, guard: options.guard(), hold: &hold };
        let Plan { steps, conflicts, held, approval, open, ours_only } =
            plan(&was, &there, &local.tree, rules);
        // What nobody has read is no file here, and so in none of the steps.
        let unread = remote.objects.keys().filter(|path| there.get(path).is_none() && !open.contains(path));
        let pending = ours_only + open.len() as u64 + unread.count() as u64;
        let mut work = Work { pending, ..Work::default() };
        let refuse = |path: &GuestPath, detail| {
            (path.clone(), Error::new("mirror", path, ErrorKind::Unsupported).with_detail(detail))
        };
        let over = |path: &GuestPath| {
            let leaf = there.get(path)?.clone();
            Some(Known { leaf, etag: remote.version(base, contents, path), file: None, stamp: None })
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
                Act::MakeDirectory => work.left.push(refuse(path, "an empty directory is not kept")),
                Act::RemoveDirectory | Act::Aside(_) | Act::PutBeside(_) => {}
            }
        }
        let executable = |(_, leaf): &(&GuestPath, &Leaf)| matches!(leaf, Leaf::File { execute: true, .. });
        let executable = local.tree.iter().filter(executable);
        work.left.extend(executable.map(|(path, _)| refuse(path, "the bit to execute is not kept")));
        for (path, why) in conflicts {
            work.conflict(prefix, path, why, local.tree.get(path));
        }
        if let Some(approval) = approval {
            let paths = held.into_iter().cloned().collect();
            work.held = Some(Held { side: Side::There, paths, approval });
        }
        work
    }

    /// Notes in the base what both sides have, and what neither has.
    fn adopt(&mut self) {
        let Self { base, local, remote, contents, .. } = &mut *self;
        let there = remote.tree(base, contents);
        for (path, leaf) in local.tree.iter().filter(|(_, leaf)| **leaf != Leaf::Directory) {
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
    /// Both sides have changed what is at `path`, where the workspace has `leaf`. The roles of the plan are exchanged here: its
    /// target is the store.
    fn conflict(
        &mut self,
        prefix: &crate::artifacts::Prefix,
        path: &GuestPath,
        why: Why,
        leaf: Option<&Leaf>,
    ) {
        let leaf = leaf.filter(|leaf| **leaf != Leaf::Directory).cloned();
        let mut put = |to: GuestPath, leaf| {
            self.puts.push(Job { path: path.clone(), to, over: None, leaf });
        };
        let (why, beside) = match (why, leaf) {
            // The store has deleted it: it is put as new.
            (Why::DeletedHere, Some(leaf)) => {
                put(path.clone(), leaf);
                (Why::DeletedThere, None)
            }
            (Why::DeletedHere, None) => (Why::DeletedThere, None),
            (Why::DeletedThere, _) => {
                self.pending += 1;
                (Why::DeletedHere, None)
            }
            (why, Some(leaf)) => {
                let name = beside(path, Whose::Ours, &leaf.tag(), 0).ok();
                let name = name.filter(|name| prefix.key(name).is_ok());
                if let Some(name) = &name {
                    put(name.clone(), leaf);
                }
                (why, name)
            }
            (why, None) => (why, None),
        };
        self.conflicts.push(Conflict { path: path.clone(), why, beside });
    }
}
