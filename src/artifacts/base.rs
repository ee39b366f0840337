//! What this host knows of the store, in its own state: which object held what, and what it was about to put.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::{Mutex, PoisonError};

use super::record::{Digest, Record, hex, unhex};
use super::state::forget;
use crate::error::{Error, ErrorKind, Result};
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
        let file = match state.open_contained(BASE) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut lines = BufReader::new(file);
        let mut line = String::new();
        let mut known: Vec<Record> = Vec::new();
        let mut first = true;
        // A line without its end was being appended when the host died.
        while lines.read_line(&mut line).is_ok() && line.ends_with('\n') {
            let text = line.trim_end_matches('\n');
            if std::mem::take(&mut first) {
                if text != HEADER {
                    return Ok(Self::default());
                }
            } else {
                known.extend(Record::parse(text));
            }
            line.clear();
        }
        // The sort is stable: of several with one path the newest comes first.
        known.reverse();
        known.sort_by(|a, b| a.path.cmp(&b.path));
        known.dedup_by(|next, kept| next.path == kept.path);
        Ok(Self { known, ..Self::default() })
    }

    /// Adds one record to what was written last, mostly without reading that.
    pub(crate) fn append(state: &Root, record: &Record) -> Result<()> {
        let failed = |error: std::io::Error| Error::new("write", BASE, ErrorKind::Io).with_source(error);
        let mut file = open_append(state, BASE)?;
        let before = file.metadata().map_err(failed)?.len();
        let mut text = if before == 0 { format!("{HEADER}\n") } else { String::new() };
        record.write_line(&mut text);
        file.write_all(text.as_bytes()).map_err(failed)?;
        if before / APPENDED != (before + text.len() as u64) / APPENDED {
            Self::read(state)?.write(state)?;
        }
        Ok(())
    }

    /// Writes what was read with all that has changed since.
    pub(crate) fn write(mut self, state: &Root) -> Result<()> {
        let failed = |error: std::io::Error| Error::new("write", BASE, ErrorKind::Io).with_source(error);
        self.known.retain(|record| !self.removed.contains(&record.path));
        self.known.append(&mut self.added);
        self.known.sort_by(|a, b| a.path.cmp(&b.path));
        let mut file = state.new_file(BASE)?;
        let mut text = format!("{HEADER}\n");
        let mut records = self.known.iter().peekable();
        while let Some(record) = records.next() {
            // The sort is stable: of several with one path the last is the newest.
            if records.peek().is_some_and(|next| next.path == record.path) {
                continue;
            }
            record.write_line(&mut text);
            if text.len() > 1 << 16 {
                file.write_all(text.as_bytes()).map_err(failed)?;
                text.clear();
            }
        }
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.commit_replace()
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
        match state.open_contained(INTENTS) {
            Ok(file) => {
                for line in BufReader::new(file).lines().map_while(std::result::Result::ok) {
                    let Some((digest, path)) = line.split_once('\t') else { continue };
                    if let (Some(digest), Ok(path)) = (unhex(digest), SafePath::new(path)) {
                        earlier.entry(path).or_default().push(digest);
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file = open_append(state, INTENTS)?;
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
        now.0
            .write_all(line(path, digest).as_bytes())
            .map_err(|error| Error::new("write", INTENTS, ErrorKind::Io).with_source(error))
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
        let failed = |error| Error::new("write", INTENTS, ErrorKind::Io).with_source(error);
        let mut file = open_append(state, INTENTS)?;
        let before = file.metadata().map_err(failed)?.len();
        file.write_all(line(path, digest).as_bytes()).map_err(failed)?;
        Ok(Self { file, before })
    }

    /// Forgets it, once the base knows better.
    pub(crate) fn done(self) -> Result<()> {
        self.file
            .set_len(self.before)
            .map_err(|error| Error::new("write", INTENTS, ErrorKind::Io).with_source(error))
    }
}

/// Opens a file of the host's own for more lines.
pub(crate) fn open_append(state: &Root, name: &str) -> Result<std::fs::File> {
    let mut options = cap_std::fs::OpenOptions::new();
    options.append(true).create(true);
    let file = cap_std::fs::Dir::from(state.try_clone()?)
        .open_with(name, &options)
        .map_err(|error| Error::new("open", name, ErrorKind::Io).with_source(error))?;
    Ok(file.into_std())
}

fn line(path: &SafePath, digest: &Digest) -> String {
    format!("{}\t{}\n", hex(digest), path.as_str())
}
