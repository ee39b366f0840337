//! What this host knows of the store, in its own state: which object held what, and what it was about to put.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::lines::{self, NewLines};
use super::record::{Digest, Record, unhex};
use super::state::forget;
use crate::entropy::hex;
use crate::error::Result;
use crate::name::SafePath;
use crate::root::Root;

const BASE: &str = "mirror.base";
const INTENTS: &str = "mirror.log";
const HEADER: &str = "beneath-mirror 1";
/// Bytes of single records after which the whole is written anew.
const APPENDED: u64 = 1 << 20;

/// What the store and the workspace had in common when this host last knew.
#[derive(Debug, Default)]
pub(crate) struct Base {
    /// As it was read, in the order of the paths.
    known: Vec<Record>,
    added: Vec<Record>,
    removed: HashSet<SafePath>,
}

impl Base {
    /// Reads what was written last; what cannot be understood is as good as unknown.
    pub(crate) fn read(state: &Root) -> Result<Self> {
        let mut lines = lines::read(state, BASE)?.into_iter().flatten().map_while(Result::ok);
        if lines.next().is_none_or(|first| first != HEADER) {
            return Ok(Self::default());
        }
        let mut known: Vec<Record> = lines.filter_map(|line| Record::parse(&line)).collect();
        // The sort is stable: of several with one path the newest comes first.
        known.reverse();
        known.sort_by(|a, b| a.path.cmp(&b.path));
        known.dedup_by(|next, kept| next.path == kept.path);
        Ok(Self { known, ..Self::default() })
    }

    /// Adds one record to what was written last, mostly without reading that.
    pub(crate) fn append(state: &Root, record: &Record) -> Result<()> {
        let mut file = lines::append(state, BASE)?;
        let before = file.metadata().map_err(|error| lines::failed("write", BASE, error))?.len();
        let mut text = if before == 0 { format!("{HEADER}\n") } else { String::new() };
        record.write_line(&mut text);
        lines::write(&mut file, BASE, &text)?;
        if before / APPENDED != (before + text.len() as u64) / APPENDED {
            Self::read(state)?.write(state)?;
        }
        Ok(())
    }

    /// Writes what was read with all that has changed since.
    pub(crate) fn write(self, state: &Root) -> Result<()> {
        self.write_with(state, std::iter::empty())
    }

    /// The same, with `newest` on top.
    pub(crate) fn write_with<'a>(
        &'a self,
        state: &Root,
        newest: impl Iterator<Item = &'a Record>,
    ) -> Result<()> {
        let known = self.known.iter().filter(|record| !self.removed.contains(&record.path));
        let mut records: Vec<&Record> = known.chain(&self.added).chain(newest).collect();
        records.sort_by(|a, b| a.path.cmp(&b.path));
        let mut file = NewLines::new(state, BASE)?;
        file.add(|out| out.push_str(&format!("{HEADER}\n")))?;
        let mut records = records.into_iter().peekable();
        while let Some(record) = records.next() {
            // The sort is stable: of several with one path the last is the newest.
            if records.peek().is_none_or(|next| next.path != record.path) {
                file.add(|out| record.write_line(out))?;
            }
        }
        file.commit()
    }

    /// What was known of `path` when this was read.
    pub(crate) fn get(&self, path: &SafePath) -> Option<&Record> {
        self.known.get(self.known.binary_search_by(|record| record.path.cmp(path)).ok()?)
    }

    /// All that was known when this was read.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.known.iter()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &SafePath> {
        self.known.iter().map(|record| &record.path)
    }

    pub(crate) fn insert(&mut self, record: Record) {
        self.added.push(record);
    }

    pub(crate) fn remove(&mut self, path: &SafePath) {
        self.removed.insert(path.clone());
    }

    /// Notes the version that the local file prevailed over, so that a mirror may replace it.
    pub(crate) fn adopt(&mut self, path: &SafePath, etag: Option<Box<str>>) {
        if self.get(path).is_none() {
            self.insert(Record { path: path.clone(), size: 0, etag, digest: [0; 32], stamp: None });
        }
    }
}

/// The hashes of what this host was about to put when it was last heard of.
#[derive(Debug)]
pub(crate) struct Intents {
    earlier: HashMap<SafePath, Vec<Digest>>,
    now: Mutex<(std::fs::File, Vec<(SafePath, Digest)>)>,
}

impl Intents {
    pub(crate) fn open(state: &Root) -> Result<Self> {
        let mut earlier: HashMap<SafePath, Vec<Digest>> = HashMap::new();
        for line in lines::read(state, INTENTS)?.into_iter().flatten().map_while(Result::ok) {
            let Some((digest, path)) = line.split_once('\t') else { continue };
            if let (Some(digest), Ok(path)) = (unhex(digest), SafePath::new(path)) {
                earlier.entry(path).or_default().push(digest);
            }
        }
        let file = lines::append(state, INTENTS)?;
        Ok(Self { earlier, now: Mutex::new((file, Vec::new())) })
    }

    pub(crate) fn of(&self, path: &SafePath) -> &[Digest] {
        self.earlier.get(path).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &SafePath> {
        self.earlier.keys()
    }

    pub(crate) fn note(&self, path: &SafePath, digest: &Digest) -> Result<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.1.push((path.clone(), *digest));
        lines::write(&mut now.0, INTENTS, &line(path, digest))
    }

    /// Forgets all but what concerns `paths`.
    pub(crate) fn keep<'a>(&mut self, paths: impl Iterator<Item = &'a SafePath>) {
        let mut earlier = std::mem::take(&mut self.earlier);
        let now = std::mem::take(&mut self.now.get_mut().unwrap_or_else(PoisonError::into_inner).1);
        for (path, digest) in now {
            earlier.entry(path).or_default().push(digest);
        }
        self.earlier = paths.filter_map(|path| earlier.remove_entry(path)).collect();
    }

    pub(crate) fn rewrite(&self, state: &Root) -> Result<()> {
        if self.earlier.is_empty() {
            return forget(state, INTENTS);
        }
        let lines =
            self.earlier.iter().flat_map(|(path, digests)| digests.iter().map(|digest| line(path, digest)));
        state.replace(INTENTS, lines.collect::<String>())
    }
}

/// One intent, for a caller that has the lock and need not know of the others.
#[derive(Debug)]
pub(crate) struct Intent {
    file: std::fs::File,
    before: u64,
}

impl Intent {
    pub(crate) fn note(state: &Root, path: &SafePath, digest: &Digest) -> Result<Self> {
        let mut file = lines::append(state, INTENTS)?;
        let before = file.metadata().map_err(|error| lines::failed("write", INTENTS, error))?.len();
        lines::write(&mut file, INTENTS, &line(path, digest))?;
        Ok(Self { file, before })
    }

    /// Forgets it, once the base knows better.
    pub(crate) fn done(self) -> Result<()> {
        self.file.set_len(self.before).map_err(|error| lines::failed("write", INTENTS, error))
    }
}

fn line(path: &SafePath, digest: &Digest) -> String {
    format!("{}\t{}\n", hex(*digest), path.as_str())
}
