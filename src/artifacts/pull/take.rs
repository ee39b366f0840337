//! What the store has changed, brought to the workspace.
//!
//! Problem: a host can die at any point, and a caller can drop the future at any point. A listing can lack what is there.
//!
//! Defence: objects are complete in staging before anything is changed. A log says which are, and the journal of the merge
//! says how far that has come. The base is written last, from what has arrived. What a listing lacks is asked for once more
//! before a file is removed, and before the base forgets it.
//!
//! What remains: after a crash the workspace may have a part of the changes until the next call.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::fetch::Fetcher;
use super::stage::Stage;
use crate::artifacts::Artifacts;
use crate::artifacts::disk::blocking;
use crate::artifacts::options::{Deletions, SyncOptions};
use crate::artifacts::patience::Patience;
use crate::artifacts::progress::{Event, Step};
use crate::artifacts::remote::Found;
use crate::artifacts::report::{Held, Side};
use crate::artifacts::state::{Binding, Desk, FileId, Known, Planned, Record, Version};
use crate::artifacts::store::{Head, is_transient};
use crate::artifacts::sync::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::tree::{Guard, Leaf, Measure, MergePlaces, Merged, Rules, Staged, Theirs, Tree, Why, merge_trees};

/// Objects written to staging in one go.
const BATCH: usize = 64;
/// The most files that one call removes.
const REMOVALS: usize = 1000;

impl Artifacts {
    /// Does the pull half of a call.
    pub(in crate::artifacts) async fn take(&self, turn: Turn, options: &SyncOptions) -> Result<Turn> {
        self.take_guarded(turn, options, options.guard()).await
    }

    pub(in crate::artifacts) async fn take_guarded(
        &self,
        mut turn: Turn,
        options: &SyncOptions,
        guard: Guard,
    ) -> Result<Turn> {
        let objects = Arc::new(turn.remote.changed(&turn.base, |path| turn.mode(path)));
        let bytes = objects.iter().fold(0, |sum: u64, object| sum.saturating_add(object.size));
        self.client.progress.report(&Event::Planned { objects: objects.len() as u64, bytes });
        let (stage, staged) = self.stage(&turn.desk, turn.base.binding(), &objects).await?;
        let mut records = Vec::with_capacity(objects.len());
        for (index, error) in self.fetch_all(&objects, &stage, staged, &mut records).await? {
            let Some(object) = objects.get(index) else { continue };
            self.note_failure(&mut turn, &object.path, error);
        }
        for record in &mut records {
            record.mode = record.mode.or_else(|| turn.unsaid(&record.path, &record.leaf));
        }
        let gone = turn.gone(|path| turn.local.tree.get(path).is_some() || turn.local.tree.is_absent(path));
        let waiting = self.ask_for_removed(&mut turn, gone).await;
        if options.withholds(&turn.report) {
            // What is staged is listed in the log, and the next call goes on from there.
            turn.report.withheld = records.len() as u64;
            return Ok(turn);
        }
        let (options, progress) = (*options, self.client.progress.clone());
        blocking("publish", move || {
            progress.report(&Event::Entered(Step::Publishing));
            let all: Vec<GuestPath> = objects.iter().map(|object| object.path.clone()).collect();
            let staged = stage.tree()?;
            let staged = Staged { root: &staged, all: &all };
            let turn = turn.merge(staged, records, &waiting, (&options, guard))?;
            Stage::clear(&turn.desk.places)?;
            Ok(turn)
        })
        .await
    }

    /// Nobody knows what is at the path.
    fn note_failure(&self, turn: &mut Turn, path: &GuestPath, error: Error) {
        turn.remote.unknown.insert(path.clone());
        match is_transient(&error) {
            true => turn.report.failed.add(path, error),
            false => {
                let key = self.client.prefix.key(path).unwrap_or_default();
                self.client.progress.report(&Event::Refused { raw: key.as_bytes(), error: &error });
                turn.report.left.add(key, error);
            }
        }
    }

    /// Opens the staged tree for `objects`, and returns which of them it has already.
    async fn stage(
        &self,
        desk: &Arc<Desk>,
        binding: &Binding,
        objects: &Arc<Vec<Planned>>,
    ) -> Result<(Arc<Stage>, Vec<(usize, Record)>)> {
        let (desk, planned, binding) = (Arc::clone(desk), Arc::clone(objects), binding.clone());
        let staged = blocking("write", move || {
            let staged = Stage::reuse(&desk.places, &binding, &planned)?;
            Ok((Arc::new(Stage::open(desk, &binding)?), staged))
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
                    let (path, bytes) = (&object.path, record.leaf.size());
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
                    Some((index, fetcher.fetch(object, stage.part(index, object)).await))
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

    /// Asks for each object that the listing lacks: it may be stale or cut short. Returns what of the workspace may be gone as well,
    /// and stays for now.
    pub(in crate::artifacts) async fn ask_for_removed(
        &self,
        turn: &mut Turn,
        mut gone: Vec<Gone>,
    ) -> Vec<Leaf> {
        let mut waiting = gone.split_off(gone.len().min(REMOVALS));
        for Gone { path, .. } in &waiting {
            turn.remote.unknown.insert(path.clone());
            turn.report.pending += 1;
        }
        let patience = &Patience::of(self.client.retry);
        let asked = stream::iter(gone).map(|gone| async move {
            let _leave = self.client.source.leave().await;
            let asked = match self.client.key(&gone.path, &gone.leaf) {
                Ok(key) => patience.call(&gone.path, self.client.head(&gone.path, &key)).await,
                Err(error) => Err(error),
            };
            (gone, asked)
        });
        let mut asked = std::pin::pin!(asked.buffer_unordered(self.client.concurrency));
        while let Some((gone, found)) = asked.next().await {
            let path = gone.path.clone();
            let error = match found {
                Ok(None) => continue,
                // Some servers answer so for a directory, which they have in place of the object.
                Ok(Some(head)) if gone.is_directory_now && !gone.is_meant(&head) => continue,
                Ok(Some(_)) => Error::new("list", &path, ErrorKind::Busy)
                    .with_detail("the store has it, and does not list it"),
                Err(error) => {
                    waiting.push(gone);
                    error
                }
            };
            turn.remote.unknown.insert(path.clone());
            turn.report.failed.add(&path, error);
        }
        // One that has changed here is not removed.
        waiting.retain(|Gone { path, leaf, .. }| {
            *leaf != Leaf::Directory && turn.local.tree.get(path) == Some(leaf)
        });
        waiting.into_iter().map(|gone| gone.leaf).collect()
    }
}

/// What is known and is not listed any more.
#[derive(Debug)]
pub(in crate::artifacts) struct Gone {
    path: GuestPath,
    leaf: Leaf,
    /// The version of its object that was known.
    version: Version,
    /// Whether a directory is listed in its place.
    is_directory_now: bool,
}

impl Gone {
    /// Whether the store says this of the object that was known. Some keep the version of an object for the directory in its place.
    fn is_meant(&self, head: &Head) -> bool {
        Version::of(head.etag.as_deref()).same_bytes(&self.version) && head.size == self.leaf.size()
    }
}

impl Turn {
    /// What the store does not list any more, as far as it is `meant`. If the workspace has it, a file that has not changed would be
    /// removed, and one that has may lose its name. If it has not, both would forget it.
    pub(in crate::artifacts) fn gone(&self, meant: impl Fn(&GuestPath) -> bool) -> Vec<Gone> {
        let Self { base, remote, contents, .. } = self;
        let there = remote.tree(base, contents);
        let is_gone = |(path, known): &(&GuestPath, &Known)| {
            let unlisted = match known.leaf {
                Leaf::Directory => there.is_absent(path),
                // Also if a directory is listed in its place.
                _ => remote.lacks_object(path),
            };
            unlisted && meant(path)
        };
        let gone = |(path, known): (&GuestPath, &Known)| Gone {
            path: path.clone(),
            leaf: known.leaf.clone(),
            version: known.version.clone(),
            is_directory_now: there.is_directory(path) || there.get(path) == Some(&Leaf::Directory),
        };
        base.iter().filter(is_gone).map(gone).collect()
    }

    /// The mode of the file at `path`, here or when it was last here.
    pub(in crate::artifacts) fn mode(&self, path: &GuestPath) -> Option<u32> {
        self.local.mode(path).or_else(|| self.base.get(path)?.mode)
    }

    /// The mode of an object that says none, although its store keeps what is said, where the file here is a program: without the
    /// bits to execute, since no other host makes a program of it. A mirror sees that the modes differ, and puts it again.
    pub(in crate::artifacts) fn unsaid(&self, path: &GuestPath, leaf: &Leaf) -> Option<u32> {
        let is_program = matches!(leaf, Leaf::File { execute: true, .. });
        let mode = self.mode(path).filter(|_| is_program && self.attributes)?;
        Some(mode & !0o111)
    }

    /// Merges what is staged into the workspace, and writes the base.
    fn merge(
        mut self,
        staged: Staged<'_>,
        records: Vec<Record>,
        waiting: &[Leaf],
        (options, guard): (&SyncOptions, Guard),
    ) -> Result<Self> {
        let (mut ids, mut own) = (BTreeMap::new(), Vec::new());
        for Record { path, leaf, version, mode, file } in records {
            // It stays the same file when it gets its name, and is found by that if the guest moves it.
            let look =
                || staged.root.metadata(&path).ok().map(|file| (FileId::of(&file), file.mode() & 0o777));
            if let Some(file) = file.or_else(look) {
                ids.insert(path.clone(), file);
            }
            // This host has put it before it was cut off, and the guest has worked on since.
            if let Leaf::File { sha256, .. } = &leaf
                && self.local.tree.get(&path).is_some()
                && self.intents.of(&path).contains(sha256)
            {
                let (leaf, version) = (leaf.clone(), version.clone());
                self.base.insert(path.clone(), Known { leaf, version, mode, file: None, stamp: None });
                own.push(path.clone());
            }
            self.contents.insert(path, Found { leaf, version, mode });
        }
        let Self { desk, base, local, remote, contents, .. } = &self;
        let (was, theirs) = (base.tree(Side::Here), remote.tree(base, contents));
        // A directory that is left out here may be a file there, which is not.
        let hidden = theirs.iter().filter(|(path, _)| local.tree.is_unknown(path)).count() as u64;
        let keeps = options.deletions == Deletions::Keep;
        let measure = Measure { waiting, fewest: remote.fewest(), ..options.measure() };
        let rules = Rules { on_conflict: options.on_conflict(), guard, hold: &|_| keeps, measure };
        let ours = &desk.places.workspace;
        let places =
            MergePlaces { theirs: Theirs::Moved(staged), ours, work: &desk.work, trash: &desk.trash };
        let merged =
            merge_trees((&was, &local.tree, &theirs), rules, places, Merged::default(), &|_| Ok(()))?;
        let known = self.next(&merged.base, &theirs, &ids);
        if merged.approved {
            self.base.notes.references.remove(&Side::Here);
        }
        self.base.replace(known);
        for conflict in &merged.conflicts {
            if let (Why::BothChanged | Why::Kinds, Some(beside)) = (conflict.why, &conflict.beside) {
                self.base.notes.conflicts.insert(conflict.path.clone(), beside.clone());
            }
        }
        self.base.write(&self.desk.places.state)?;
        self.intents.settle(&self.desk.places.state, &own)?;
        let report = &mut self.report;
        report.placed += merged.written;
        report.removed += merged.removed;
        report.pending += merged.ahead + hidden;
        report.conflicts.extend(merged.conflicts);
        report.failed.absorb(merged.left);
        if let Some(approval) = merged.approval {
            report.held.push(Held { side: Side::Here, paths: merged.held, approval });
        }
        Ok(self)
    }

    /// What is known after a merge whose base is `agreed`: theirs, but for what is open.
    fn next(
        &self,
        agreed: &Tree,
        theirs: &Tree,
        ids: &BTreeMap<GuestPath, (FileId, u32)>,
    ) -> BTreeMap<GuestPath, Known> {
        let Self { base, local, remote, contents, .. } = self;
        let known = |(path, leaf): (&GuestPath, &Leaf)| {
            let mut known = match theirs.get(path) == Some(leaf) {
                true => local.known(path, leaf.clone(), remote.version(base, contents, path)),
                false => base.get(path)?.clone(),
            };
            let placed = ids.get(path).filter(|_| known.file.is_none());
            if let Some((file, mode)) = placed {
                (known.file, known.mode) = (Some(*file), known.mode.or(Some(*mode)));
            }
            Some((path.clone(), known))
        };
        // A mirror goes on with these by what is known of them.
        let covered = remote.covered.keys().filter_map(|path| Some((path.clone(), base.get(path)?.clone())));
        covered.chain(agreed.iter().filter_map(known)).collect()
    }
}
