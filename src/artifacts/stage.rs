//! Objects that have arrived, written to the staged tree in batches.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use super::fetch::{Arrived, Content, Target};
use super::journal::Log;
use super::plan::Planned;
use super::publish::TREE;
use super::record::Record;
use super::snapshot::digest;
use super::state::{Places, discard, forget};
use crate::error::Result;
use crate::root::{Flock, NewFile, Root, WalkLimits};

/// The directory of a restore in staging.
pub(crate) const RESTORE: &str = "restore";
const PARTS: &str = "restore/parts";

/// The staged tree of one restore.
#[derive(Debug)]
pub(crate) struct Stage {
    places: Arc<Places>,
    log: Mutex<Log>,
    /// Held as long as anything may still be written, even after the caller has gone.
    _lock: Arc<Flock>,
}

impl Stage {
    /// Opens the tree for more files.
    pub(crate) fn open(places: Arc<Places>, lock: Arc<Flock>) -> Result<Self> {
        places.staging.ensure_dir(TREE)?;
        places.staging.ensure_dir(PARTS)?;
        let log = Mutex::new(Log::append(&places.state)?);
        Ok(Self { places, log, _lock: lock })
    }

    /// Which of `objects` are in the tree already, by index. All else is removed from it.
    ///
    /// A host that died may have left a part of a file: what the log does not tell of, or tells otherwise, is not there.
    pub(crate) fn reuse(places: &Places, objects: &[Planned]) -> Result<Vec<(usize, Record)>> {
        let Ok(tree) = places.staging.descend(TREE) else {
            return Self::clear(places).map(|()| Vec::new());
        };
        let mut staged = Vec::new();
        for record in Log::read(&places.state)? {
            let found = objects.binary_search_by(|object| object.path.cmp(&record.path));
            let Some((index, wanted)) = found.ok().and_then(|index| Some((index, objects.get(index)?)))
            else {
                continue;
            };
            let same_version = record.etag.is_some() && wanted.etag == record.etag;
            if same_version && is_whole(&tree, &record) {
                staged.push((index, record));
            }
        }
        staged.sort_by_key(|(index, _)| *index);
        staged.dedup_by_key(|(index, _)| *index);
        // What cannot be sorted out is not worth keeping.
        if staged.is_empty() || keep_only(&tree, objects, &staged).is_err() {
            return Self::clear(places).map(|()| Vec::new());
        }
        discard(&places.staging, PARTS)?;
        Log::rewrite(&places.state, staged.iter().map(|(_, record)| record))?;
        Ok(staged)
    }

    /// Removes all that an earlier restore has left.
    pub(crate) fn clear(places: &Places) -> Result<()> {
        discard(&places.staging, RESTORE)?;
        Log::discard(&places.state)
    }

    /// A place for a large object until it is complete.
    pub(crate) fn part(self: &Arc<Self>, index: usize) -> Part {
        Part { stage: Arc::clone(self), path: part_path(index) }
    }

    /// Writes what has arrived and tells the log of it.
    pub(crate) fn write(
        &self,
        objects: &[Planned],
        batch: Vec<(usize, Result<Arrived>)>,
    ) -> Result<Vec<(usize, Result<Record>)>> {
        let mut parent: Option<(String, Root)> = None;
        let mut lines = String::new();
        let mut written = Vec::with_capacity(batch.len());
        for (index, arrived) in batch {
            let Some(object) = objects.get(index) else { continue };
            let result = arrived.and_then(|arrived| self.write_one(object, index, arrived, &mut parent));
            if let Ok(record) = &result {
                record.write_line(&mut lines);
            }
            written.push((index, result));
        }
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write(&lines)?;
        Ok(written)
    }

    fn write_one(
        &self,
        object: &Planned,
        index: usize,
        arrived: Arrived,
        parent: &mut Option<(String, Root)>,
    ) -> Result<Record> {
        let staging = &self.places.staging;
        let (directory, name) = object.path.as_str().rsplit_once('/').unwrap_or((".", object.path.as_str()));
        // Paths come in order, so the next one is mostly in the same directory; nobody else moves it.
        let root = match parent {
            Some((open, root)) if open == directory => root,
            _ => {
                let whole = format!("{TREE}/{directory}");
                let whole = whole.strip_suffix("/.").unwrap_or(&whole);
                staging.ensure_dir(whole)?;
                &mut parent.insert((directory.to_owned(), staging.descend(whole)?)).1
            }
        };
        let (digest, size) = match arrived.content {
            Content::Held(bytes) => {
                root.write_unwatched(name, &bytes)?;
                (Sha256::digest(&bytes).into(), bytes.len() as u64)
            }
            Content::Filed { digest, size } => {
                staging.rename_to(part_path(index), root, name)?;
                (digest, size)
            }
        };
        Ok(Record { path: object.path.clone(), size, etag: arrived.etag, digest, stamp: None })
    }
}

/// Whether the file that `record` tells of is there with all its bytes.
fn is_whole(tree: &Root, record: &Record) -> bool {
    digest(tree, &record.path, record.size)
        .is_ok_and(|(stamp, digest)| (stamp.size, digest) == (record.size, record.digest))
}

/// Removes all but the given files and the directories of `objects`.
fn keep_only(tree: &Root, objects: &[Planned], staged: &[(usize, Record)]) -> Result<()> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in tree.walk(".", WalkLimits::default().with_entries(u64::MAX))? {
        let entry = entry?;
        let is_directory = entry.metadata().is_dir();
        let is_wanted = |path: &str| {
            if !is_directory {
                return staged.binary_search_by(|(_, record)| record.path.as_str().cmp(path)).is_ok();
            }
            let beneath = format!("{path}/");
            let first = objects.partition_point(|object| object.path.as_str() < beneath.as_str());
            objects.get(first).is_some_and(|object| object.path.as_str().starts_with(&beneath))
        };
        if !entry.path().to_str().is_some_and(is_wanted) {
            if is_directory { &mut directories } else { &mut files }.push(entry.path().to_path_buf());
        }
    }
    files.iter().try_for_each(|path| forget(tree, path))?;
    directories.iter().try_for_each(|path| discard(tree, path))
}

fn part_path(index: usize) -> PathBuf {
    PathBuf::from(format!("{PARTS}/{index}"))
}

/// Where a large object is written until it is complete.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    stage: Arc<Stage>,
    path: PathBuf,
}

impl Target for Part {
    fn open(&self) -> Result<NewFile> {
        self.stage.places.staging.new_file(&self.path)
    }

    fn commit(&self, file: NewFile) -> Result<()> {
        file.commit_replace()
    }
}
