//! Objects that have arrived, written to the staged tree in batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use super::fetch::{Arrived, Content, Target};
use super::journal::Log;
use super::plan::Planned;
use super::publish::TREE;
use super::record::Record;
use super::state::{Lock, Places, discard};
use crate::error::{ErrorKind, Result};
use crate::root::{NewFile, Root};

/// The directory of a restore in staging.
pub(crate) const RESTORE: &str = "restore";
const PARTS: &str = "restore/parts";

/// The staged tree of one restore.
#[derive(Debug)]
pub(crate) struct Stage {
    places: Arc<Places>,
    log: Mutex<Log>,
    /// Held as long as anything may still be written, even after the caller has gone.
    _lock: Arc<Lock>,
}

impl Stage {
    /// Opens the tree for more files.
    pub(crate) fn open(places: Arc<Places>, lock: Arc<Lock>) -> Result<Self> {
        places.staging.ensure_dir(TREE)?;
        places.staging.ensure_dir(PARTS)?;
        let log = Mutex::new(Log::append(&places.state)?);
        Ok(Self { places, log, _lock: lock })
    }

    /// Which of `objects` are in the tree already, by index; empties the tree if anything else is in it.
    pub(crate) fn reuse(places: &Places, objects: &[Planned]) -> Result<Vec<(usize, Record)>> {
        let mut staged = Vec::new();
        for record in Log::read(&places.state)? {
            let Ok(index) = objects.binary_search_by(|object| object.path.cmp(&record.path)) else {
                continue;
            };
            let wanted = objects.get(index);
            let same = record.etag.is_some() && wanted.is_some_and(|object| object.etag == record.etag);
            let path = format!("{TREE}/{}", record.path.as_str());
            if same && places.staging.metadata(path).is_ok_and(|file| file.len() == record.size) {
                staged.push((index, record));
            }
        }
        staged.sort_by_key(|(index, _)| *index);
        staged.dedup_by_key(|(index, _)| *index);
        if only_these(places, objects, &staged) {
            return Ok(staged);
        }
        Self::clear(places)?;
        Ok(Vec::new())
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
        let mut parent: Option<(PathBuf, Root)> = None;
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
        parent: &mut Option<(PathBuf, Root)>,
    ) -> Result<Record> {
        let staging = &self.places.staging;
        let path = Path::new(TREE).join(object.path.as_str());
        let directory = path.parent().unwrap_or(Path::new(TREE));
        // Paths come in order, so the next one is mostly in the same directory; nobody else moves it.
        let root = match parent {
            Some((open, root)) if open == directory => root,
            _ => {
                staging.ensure_dir(directory)?;
                &mut parent.insert((directory.to_path_buf(), staging.descend(directory)?)).1
            }
        };
        let name = object.path.file_name();
        let (digest, size) = match arrived.content {
            Content::Held(bytes) => {
                root.replace(name, &bytes)?;
                (Sha256::digest(&bytes).into(), bytes.len() as u64)
            }
            Content::Filed { digest, size } => {
                match root.remove_file(name) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => staging.rename_to(part_path(index), root, name)?,
                }
                (digest, size)
            }
        };
        Ok(Record { path: object.path.clone(), size, etag: arrived.etag, digest, stamp: None })
    }
}

/// Whether the tree holds the given files and their directories, and nothing else. What cannot be looked at is something
/// else.
fn only_these(places: &Places, objects: &[Planned], staged: &[(usize, Record)]) -> bool {
    let walk = match places.staging.walk(TREE, crate::root::Limits::default().with_entries(u64::MAX)) {
        Ok(walk) => walk,
        Err(error) => return error.kind() == ErrorKind::NotFound && staged.is_empty(),
    };
    let mut files = 0;
    for entry in walk {
        let Ok(entry) = entry else { return false };
        let Some(path) = entry.path().to_str() else { return false };
        let wanted = if entry.metadata().is_dir() {
            let directory = format!("{path}/");
            let first = objects.partition_point(|object| object.path.as_str() < directory.as_str());
            objects.get(first).is_some_and(|object| object.path.as_str().starts_with(&directory))
        } else {
            files += 1;
            staged.binary_search_by(|(_, record)| record.path.as_str().cmp(path)).is_ok()
        };
        if !wanted {
            return false;
        }
    }
    files == staged.len()
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
