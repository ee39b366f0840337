//! The uploads in parts that are under way, in the host's own state.
//!
//! Problem: a host that dies leaves parts in the store, which cost and are in no listing.
//!
//! Defence: the id of each upload is noted before its first part, and the next mirror discards it. Only ids that this
//! session has noted are discarded: what the store lists may be another host's work.
//!
//! What remains: an upload between its start and its note, and those of a session that is never mirrored again.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use super::lines::append;
use super::version::{escape, unescape};
use crate::artifacts::disk::forget;
use crate::error::{Error, ErrorKind, Result};
use crate::root::Root;

const UPLOADS: &str = "push.uploads";
/// Largest note read; a line has less than 3 KiB.
const NOTE_MAX: u64 = 16 << 20;

/// Ids with their keys.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<Vec<(String, String)>>);

impl Uploads {
    /// What an earlier call has left; what cannot be read is the store's to expire.
    pub(crate) fn read(state: &Root) -> Result<Self> {
        let text = match state.read_contained(UPLOADS, NOTE_MAX) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::TooLarge) => Vec::new(),
            Err(error) => return Err(error),
        };
        let line = |line: &str| {
            let (id, key) = line.split_once('\t')?;
            Some((unescape(id)?, unescape(key)?))
        };
        // A line without its end was being written when the host died.
        let text = String::from_utf8_lossy(&text);
        let lines = text.split_inclusive('\n').filter_map(|text| line(text.strip_suffix('\n')?));
        Ok(Self(Mutex::new(lines.collect())))
    }

    pub(crate) fn all(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes an upload that has begun.
    pub(crate) fn note(&self, state: &Root, id: &str, key: &str) -> Result<()> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((id.to_owned(), key.to_owned()));
        append(state, UPLOADS)?
            .write_all(line(id, key).as_bytes())
            .map_err(|error| Error::new("write", UPLOADS, ErrorKind::Io).with_source(error))
    }

    /// Forgets an upload that has ended.
    pub(crate) fn forget(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(noted, _)| noted != id);
    }

    /// Writes what is left.
    pub(crate) fn write(&self, state: &Root) -> Result<()> {
        let all = self.all();
        if all.is_empty() {
            return forget(state, UPLOADS);
        }
        state.replace(UPLOADS, all.iter().map(|(id, key)| line(id, key)).collect::<String>())
    }
}

fn line(id: &str, key: &str) -> String {
    let mut line = String::new();
    escape(id, &mut line);
    line.push('\t');
    escape(key, &mut line);
    line.push('\n');
    line
}
