//! How far a restore has come, in the host's own state.
//!
//! | journal | staging | workspace | the next call |
//! |---|---|---|---|
//! | none | nothing | untouched | begins |
//! | fetching | some objects, told in the log | untouched | lists again, keeps what is still right |
//! | publishing | what is not published yet | what is | goes on publishing |
//! | complete | perhaps remains | all | cleans up |
//!
//! The journal is replaced as a whole, so there is no state between two of these. An object is in staging or in the
//! workspace, never in both and never in neither, since one rename takes it across.

use std::io::{BufRead as _, BufReader, Write as _};

use super::plan::Planned;
use super::record::{Record, escape, unescape};
use super::restore::OnLocal;
use super::state::forget;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::Root;

const JOURNAL: &str = "restore.journal";
const LOG: &str = "restore.log";
const HEADER: &str = "beneath-restore 1";
/// How the line of an object begins whose local file stands.
const KEPT: &str = "kept\t";

/// What the journal says.
#[derive(Debug, PartialEq)]
pub(crate) enum Phase {
    None,
    Fetching,
    /// With the prefix, the policy, every object that was fetched, and those whose local file stands.
    Publishing(String, OnLocal, Vec<Record>, Vec<Planned>),
    Complete,
}

/// Reads the journal. One that cannot be understood counts as `Fetching`, never as complete.
pub(crate) fn read(state: &Root) -> Result<Phase> {
    let file = match state.open_contained(JOURNAL) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Phase::None),
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file).lines();
    let mut line = || match lines.next() {
        Some(Ok(line)) => Ok(Some(line)),
        Some(Err(error)) => Err(Error::new("read", JOURNAL, ErrorKind::Io).with_source(error)),
        None => Ok(None),
    };
    let first = line()?.unwrap_or_default();
    let mut words = first.strip_prefix(HEADER).unwrap_or_default().split_ascii_whitespace();
    match words.next() {
        Some("complete") => Ok(Phase::Complete),
        Some("publishing") => {
            let policy = words.next().and_then(OnLocal::from_word);
            let prefix = words.next().and_then(unescape);
            let (Some(policy), Some(prefix)) = (policy, prefix) else { return Ok(Phase::Fetching) };
            let (mut records, mut kept) = (Vec::new(), Vec::new());
            while let Some(line) = line()? {
                if line == "end" {
                    return Ok(Phase::Publishing(prefix, policy, records, kept));
                }
                if let Some(fields) = line.strip_prefix(KEPT) {
                    let Some(object) = parse_kept(fields) else { break };
                    kept.push(object);
                    continue;
                }
                let Some(record) = Record::parse(&line) else { break };
                records.push(record);
            }
            Ok(Phase::Fetching)
        }
        _ => Ok(Phase::Fetching),
    }
}

pub(crate) fn write_fetching(state: &Root) -> Result<()> {
    state.replace(JOURNAL, format!("{HEADER} fetching\n"))
}

pub(crate) fn write_publishing(
    state: &Root,
    prefix: &str,
    policy: OnLocal,
    records: &[Record],
    kept: &[Planned],
) -> Result<()> {
    let mut text = format!("{HEADER} publishing {} ", policy.word());
    escape(prefix, &mut text);
    text.push('\n');
    let mut file = state.new_file(JOURNAL)?;
    let failed = |error: std::io::Error| Error::new("write", JOURNAL, ErrorKind::Io).with_source(error);
    let lines = kept.iter().map(Line::Kept).chain(records.iter().map(Line::Fetched));
    for line in lines {
        line.write(&mut text);
        if text.len() > 1 << 16 {
            file.write_all(text.as_bytes()).map_err(failed)?;
            text.clear();
        }
    }
    text.push_str("end\n");
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.commit_replace()
}

enum Line<'a> {
    Kept(&'a Planned),
    Fetched(&'a Record),
}

impl Line<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Fetched(record) => record.write_line(out),
            Self::Kept(object) => {
                out.push_str(KEPT);
                match &object.etag {
                    Some(etag) => escape(etag, out),
                    None => out.push('-'),
                }
                out.push('\t');
                out.push_str(object.path.as_str());
                out.push('\n');
            }
        }
    }
}

fn parse_kept(fields: &str) -> Option<Planned> {
    let (etag, path) = fields.split_once('\t')?;
    let etag = match etag {
        "-" => None,
        escaped => Some(unescape(escaped)?.into()),
    };
    Some(Planned { path: SafePath::new(path).ok()?, size: 0, etag })
}

pub(crate) fn write_complete(state: &Root) -> Result<()> {
    state.replace(JOURNAL, format!("{HEADER} complete\n"))?;
    forget(state, LOG)
}

/// Which objects are in staging, complete. Losing its end costs no more than fetching those again.
#[derive(Debug)]
pub(crate) struct Log(std::fs::File);

impl Log {
    /// Opens the log for more lines.
    pub(crate) fn append(state: &Root) -> Result<Self> {
        let failed = |error| Error::new("open", LOG, ErrorKind::Io).with_source(error);
        let mut options = cap_std::fs::OpenOptions::new();
        options.append(true).create(true);
        let file = cap_std::fs::Dir::from(state.try_clone()?).open_with(LOG, &options).map_err(failed)?;
        Ok(Self(file.into_std()))
    }

    pub(crate) fn write(&mut self, lines: &str) -> Result<()> {
        self.0
            .write_all(lines.as_bytes())
            .map_err(|error| Error::new("write", LOG, ErrorKind::Io).with_source(error))
    }

    /// What the log tells, up to the first line that makes no sense.
    pub(crate) fn read(state: &Root) -> Result<Vec<Record>> {
        let file = match state.open_contained(LOG) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut lines = BufReader::new(file);
        let mut records = Vec::new();
        let mut line = String::new();
        // A line without its end was being written when the host died.
        while lines.read_line(&mut line).is_ok() && line.ends_with('\n') {
            let Some(record) = Record::parse(line.trim_end_matches('\n')) else { break };
            records.push(record);
            line.clear();
        }
        Ok(records)
    }

    pub(crate) fn discard(state: &Root) -> Result<()> {
        forget(state, LOG)
    }
}
