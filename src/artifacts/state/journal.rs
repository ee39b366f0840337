//! How far a restore has come, in the host's own state.
//!
//! | journal | staging | workspace | the next call |
//! |---|---|---|---|
//! | none | nothing | untouched | begins |
//! | fetching | some objects, listed in the log | untouched | lists again, keeps what is still right |
//! | publishing | what is not published yet | what is | goes on publishing |
//! | complete | perhaps remains | all | cleans up |
//!
//! The journal is replaced as a whole, so there is no state between two of these. An object is in staging or in the
//! workspace, never in both and never in neither, since one rename takes it across.

use super::lines::{self, NewLines};
use super::record::{Planned, Record, escape, unescape};
use crate::artifacts::disk::forget;
use crate::artifacts::policy::OnLocal;
use crate::error::Result;
use crate::name::SafePath;
use crate::root::Root;

const JOURNAL: &str = "restore.journal";
const LOG: &str = "restore.log";
const HEADER: &str = "beneath-restore 1";
/// How the line of an object begins whose local file stays.
const KEPT: &str = "kept\t";

/// What the journal says.
#[derive(Debug, PartialEq)]
pub(crate) enum Phase {
    None,
    Fetching,
    Publishing(Publishing),
    Complete,
}

/// A restore that has all its objects in staging, or in the workspace already.
#[derive(Debug, PartialEq)]
pub(crate) struct Publishing {
    pub(crate) prefix: String,
    pub(crate) policy: OnLocal,
    /// Every object that was fetched.
    pub(crate) records: Vec<Record>,
    /// Those whose local file stays.
    pub(crate) kept: Vec<Planned>,
    /// How many were refused.
    pub(crate) refused: u64,
}

/// Reads the journal. One that cannot be understood counts as `Fetching`, never as complete.
pub(crate) fn read(state: &Root) -> Result<Phase> {
    let Some(mut lines) = lines::read(state, JOURNAL)? else { return Ok(Phase::None) };
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut words = first.strip_prefix(HEADER).unwrap_or_default().split_ascii_whitespace();
    match words.next() {
        Some("complete") => Ok(Phase::Complete),
        Some("publishing") => {
            let policy = words.next().and_then(OnLocal::from_word);
            let prefix = words.next().and_then(unescape);
            // Without a number nobody knows: then it counts as not complete.
            let refused = words.next().map_or(Some(1), |number| number.parse().ok());
            let (Some(policy), Some(prefix), Some(refused)) = (policy, prefix, refused) else {
                return Ok(Phase::Fetching);
            };
            let (mut records, mut kept) = (Vec::new(), Vec::new());
            for line in lines {
                let line = line?;
                if line == "end" {
                    let publishing = Publishing { prefix, policy, records, kept, refused };
                    return Ok(Phase::Publishing(publishing));
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

impl Publishing {
    pub(crate) fn write(&self, state: &Root) -> Result<()> {
        let mut journal = NewLines::new(state, JOURNAL)?;
        journal.add(|out| {
            out.push_str(&format!("{HEADER} publishing {} ", self.policy.word()));
            escape(&self.prefix, out);
            out.push_str(&format!(" {}\n", self.refused));
        })?;
        for object in &self.kept {
            journal.add(|out| write_kept(object, out))?;
        }
        for record in &self.records {
            journal.add(|out| record.write_line(out))?;
        }
        journal.add(|out| out.push_str("end\n"))?;
        journal.commit()
    }
}

fn write_kept(object: &Planned, out: &mut String) {
    out.push_str(KEPT);
    match &object.etag {
        Some(etag) => escape(etag, out),
        None => out.push('-'),
    }
    out.push('\t');
    out.push_str(object.path.as_str());
    out.push('\n');
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
        lines::append(state, LOG).map(Self)
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        lines::write(&mut self.0, LOG, text)
    }

    /// What the log lists, up to the first line that cannot be read.
    pub(crate) fn read(state: &Root) -> Result<impl Iterator<Item = Record>> {
        let lines = lines::read(state, LOG)?.into_iter().flatten();
        Ok(lines.map_while(|line| Record::parse(&line.ok()?)))
    }

    /// Replaces the log by one that lists `records`.
    pub(crate) fn rewrite<'a>(state: &Root, records: impl Iterator<Item = &'a Record>) -> Result<()> {
        let mut log = NewLines::new(state, LOG)?;
        for record in records {
            log.add(|out| record.write_line(out))?;
        }
        log.commit()
    }

    pub(crate) fn discard(state: &Root) -> Result<()> {
        forget(state, LOG)
    }
}
