//! What this host knows of the store, in its own state: which object held what, and what it was about to put.

use std::collections::{BTreeMap, HashMap};
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

/// What the store and the workspace had in common when this host last knew.
#[derive(Debug, Default)]
pub(crate) struct Base(BTreeMap<SafePath, Record>);

impl Base {
    /// Reads what was written last; what cannot be understood is as good as unknown.
    pub(crate) fn read(state: &Root) -> Result<Self> {
        let file = match state.open_contained(BASE) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut lines = BufReader::new(file).lines().map_while(std::result::Result::ok);
        if lines.next().as_deref() != Some(HEADER) {
            return Ok(Self::default());
        }
        let records = lines.map_while(|line| Record::parse(&line));
        Ok(Self(records.map(|record| (record.path.clone(), record)).collect()))
    }

    pub(crate) fn write(&self, state: &Root) -> Result<()> {
        let failed = |error: std::io::Error| Error::new("write", BASE, ErrorKind::Io).with_source(error);
        let mut file = state.new_file(BASE)?;
        let mut text = format!("{HEADER}\n");
        for record in self.0.values() {
            record.write_line(&mut text);
            if text.len() > 1 << 16 {
                file.write_all(text.as_bytes()).map_err(failed)?;
                text.clear();
            }
        }
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.commit_replace()
    }

    pub(crate) fn get(&self, path: &SafePath) -> Option<&Record> {
        self.0.get(path)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &SafePath> {
        self.0.keys()
    }

    pub(crate) fn insert(&mut self, record: Record) {
        self.0.insert(record.path.clone(), record);
    }

    pub(crate) fn remove(&mut self, path: &SafePath) {
        self.0.remove(path);
    }

    /// Notes the version that the local file prevailed over, so that a mirror may replace it.
    pub(crate) fn adopt(&mut self, path: &SafePath, etag: Option<Box<str>>) {
        let record = Record { path: path.clone(), size: 0, etag, digest: [0; 32], stamp: None };
        self.0.entry(path.clone()).or_insert(record);
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
        let mut options = cap_std::fs::OpenOptions::new();
        options.append(true).create(true);
        let file = cap_std::fs::Dir::from(state.try_clone()?)
            .open_with(INTENTS, &options)
            .map_err(|error| Error::new("open", INTENTS, ErrorKind::Io).with_source(error))?;
        Ok(Self { earlier, now: Mutex::new((file.into_std(), Vec::new())) })
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

fn line(path: &SafePath, digest: &Digest) -> String {
    format!("{}\t{}\n", hex(digest), path.as_str())
}
