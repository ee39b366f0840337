//! Objects that have arrived, written to the staged tree in batches.
//!
//! Problem: a call that was interrupted leaves files in staging. A file may be cut short there, or be of a version
//! that the store no longer has.
//!
//! Defence: a log has a line for each file that is complete, with its version and its hash. The next call keeps only
//! what the log lists, the store still has, and the hash confirms.
//!
//! What remains: a line that was not written costs one object that is fetched again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use super::fetch::{Arrived, Content, Target};
use crate::artifacts::disk::{discard, forget};
use crate::artifacts::state::{Binding, Desk, FileId, Log, Places, Planned, Record};
use crate::artifacts::store::{Attributes, Kind};
use crate::error::Result;
use crate::name::GuestPath;
use crate::root::{NewFile, Root, WalkLimits, WriteOptions};
use crate::tree::Leaf;

/// The directory for what is fetched, in staging.
const FETCHED: &str = "fetched";
/// The files by their paths.
const TREE: &str = "fetched/tree";
const PARTS: &str = "fetched/parts";

/// The tree of what one call has fetched.
#[derive(Debug)]
pub(super) struct Stage {
    /// Held as long as anything may still be written, even after the caller has gone.
    desk: Arc<Desk>,
    log: Mutex<Log>,
}

impl Stage {
    /// Opens the tree for more files.
    pub(super) fn open(desk: Arc<Desk>, binding: &Binding) -> Result<Self> {
        desk.places.staging.ensure_dir(TREE)?;
        desk.places.staging.ensure_dir(PARTS)?;
        let log = Mutex::new(Log::append(&desk.places.state, binding)?);
        Ok(Self { desk, log })
    }

    /// The tree itself.
    pub(super) fn tree(&self) -> Result<Root> {
        self.desk.places.staging.descend(TREE)
    }

    /// Which of `objects` are in the tree already, by index. All else is removed from it.
    ///
    /// A host that died may have left a part of a file: only what the log lists, with the hash that it lists, counts.
    pub(super) fn reuse(
        places: &Places,
        binding: &Binding,
        objects: &[Planned],
    ) -> Result<Vec<(usize, Record)>> {
        let Ok(tree) = places.staging.descend(TREE) else {
            return Self::clear(places).map(|()| Vec::new());
        };
        let mut staged = Vec::new();
        for record in Log::read(&places.state, binding)? {
            let found = objects.binary_search_by(|object| object.path.cmp(&record.path));
            let Some((index, wanted)) = found.ok().and_then(|index| Some((index, objects.get(index)?)))
            else {
                continue;
            };
            let same_version =
                record.version.same_bytes(&wanted.version) && record.version.put_at == wanted.version.put_at;
            if same_version && is_whole(&tree, &record) {
                staged.push((index, record));
            }
        }
        staged.sort_by_key(|(index, _)| *index);
        staged.dedup_by_key(|(index, _)| *index);
        // A tree that cannot be cleaned up is removed, and its objects are fetched again.
        if staged.is_empty() || keep_only(&tree, objects, &staged).is_err() {
            return Self::clear(places).map(|()| Vec::new());
        }
        discard(&places.staging, PARTS)?;
        Log::rewrite(&places.state, binding, staged.iter().map(|(_, record)| record))?;
        Ok(staged)
    }

    /// Removes all that an earlier call has left.
    pub(super) fn clear(places: &Places) -> Result<()> {
        discard(&places.staging, FETCHED)?;
        Log::discard(&places.state)
    }

    /// A place for a large object until it is complete.
    pub(super) fn part(self: &Arc<Self>, index: usize, object: &Planned) -> Part {
        Part { stage: Arc::clone(self), path: part_path(index), mode: object.mode }
    }

    /// The mode of a file: what its object says, what the file had, or what new files get.
    fn mode(&self, said: Option<u32>, had: Option<u32>) -> u32 {
        let access = self.desk.places.staging.policy().access();
        said.or(had).map_or(access.file_mode() & 0o777, |mode| access.widen(mode))
    }

    /// Writes what has arrived, and adds it to the log.
    pub(super) fn write(
        &self,
        objects: &[Planned],
        batch: Vec<(usize, Result<Arrived>)>,
    ) -> Result<Vec<(usize, Result<Record>)>> {
        let mut parent: Option<(GuestPath, Root)> = None;
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
        parent: &mut Option<(GuestPath, Root)>,
    ) -> Result<Record> {
        let staging = &self.desk.places.staging;
        let directory = object.path.parent().unwrap_or_default();
        let name = object.path.file_name().unwrap_or_default();
        // Paths come in order, so the next one is mostly in the same directory; nobody else moves it.
        let root = match parent {
            Some((open, root)) if *open == directory => root,
            _ => {
                let whole = GuestPath::new(TREE)?.join(directory.as_path())?;
                staging.ensure_dir(&whole)?;
                let root = staging.descend(&whole)?;
                &mut parent.insert((directory, root)).1
            }
        };
        let Attributes { kind, mode: said, modified, .. } = arrived.attributes;
        let mode = self.mode(said, object.mode);
        let file = |bytes, sha256| Leaf::File { bytes, sha256, execute: mode & 0o100 != 0 };
        let mut written = None;
        let leaf = match arrived.content {
            Content::Held(text) if kind == Kind::Link => {
                let leaf = Leaf::Link { text: text.into() };
                leaf.make(root, name)?;
                leaf
            }
            Content::Held(bytes) => {
                let found = root.write_unwatched(name, &bytes, mode, modified)?;
                written = Some((FileId::of(&found), mode));
                file(bytes.len() as u64, Sha256::digest(&bytes).into())
            }
            Content::Filed { digest, size } => {
                staging.rename_to(part_path(index), root, name)?;
                file(size, digest)
            }
        };
        let said = said.filter(|_| kind == Kind::File).map(|_| mode);
        Ok(Record { path: object.path.clone(), leaf, version: arrived.version, mode: said, file: written })
    }
}

/// Whether the file of `record` is there with all its bytes.
fn is_whole(tree: &Root, record: &Record) -> bool {
    let found = Leaf::at(tree, record.path.as_path(), record.leaf.size());
    found.is_ok_and(|found| found.as_ref() == Some(&record.leaf))
}

/// Removes all but the given files and the directories of `objects`.
fn keep_only(tree: &Root, objects: &[Planned], staged: &[(usize, Record)]) -> Result<()> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in tree.walk(".", WalkLimits::default().with_entries(u64::MAX))? {
        let entry = entry?;
        let is_directory = entry.metadata().is_dir();
        let is_wanted = |path: GuestPath| {
            if !is_directory {
                return staged.binary_search_by(|(_, record)| record.path.cmp(&path)).is_ok();
            }
            let beneath = [path.as_bytes(), b"/"].concat();
            let first = objects.partition_point(|object| object.path.as_bytes() < beneath.as_slice());
            objects.get(first).is_some_and(|object| object.path.starts_with(&path))
        };
        if !GuestPath::new(entry.path()).is_ok_and(is_wanted) {
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
pub(super) struct Part {
    stage: Arc<Stage>,
    path: PathBuf,
    /// What the file had.
    mode: Option<u32>,
}

impl Target for Part {
    fn open(&self, attributes: &Attributes) -> Result<NewFile> {
        let options = WriteOptions::default().with_mode(self.stage.mode(attributes.mode, self.mode));
        let file = self.stage.desk.places.staging.new_file_with(&self.path, options)?;
        Ok(match attributes.modified {
            Some(time) => file.with_modified(time),
            None => file,
        })
    }

    fn commit(&self, file: NewFile) -> Result<()> {
        file.commit_replace()
    }
}
