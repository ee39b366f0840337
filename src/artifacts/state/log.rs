//! Which objects are in staging, complete.
//!
//! Problem: a host that dies while it fetches has files in staging, and one of them may be cut short.
//!
//! Defence: a line is added when an object is complete. The next call keeps only what is listed and still has its hash, and
//! nothing of another store: versions are the same in two stores that count. Nor is anything kept that is older than the base:
//! an old listing may show it again.
//!
//! What remains: a line that was not written costs one object that is fetched again.

use super::binding::Binding;
use super::lines::{self, NewLines};
use super::record::Record;
use crate::artifacts::disk::forget;
use crate::error::Result;
use crate::root::Root;

const LOG: &str = "fetch.log";

/// The log, open for more lines.
#[derive(Debug)]
pub(crate) struct Log(std::fs::File);

impl Log {
    /// Opens the log of what comes from the store of `binding`.
    pub(crate) fn append(state: &Root, binding: &Binding) -> Result<Self> {
        let first = lines::read(state, LOG)?.and_then(|mut lines| lines.next()).transpose()?;
        if first.as_deref() != Some(binding.file()) {
            state.replace(LOG, format!("{}\n", binding.file()))?;
        }
        lines::append(state, LOG).map(Self)
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        lines::write(&mut self.0, LOG, text)
    }

    /// What the log lists, up to the first line that cannot be read.
    pub(crate) fn read(state: &Root, binding: &Binding) -> Result<impl Iterator<Item = Record> + use<>> {
        let mut lines = lines::read(state, LOG)?.into_iter().flatten();
        let is_ours = lines.next().transpose()?.as_deref() == Some(binding.file());
        let lines = is_ours.then_some(lines).into_iter().flatten();
        Ok(lines.map_while(|line| Record::parse(&line.ok()?)))
    }

    /// Replaces the log by one that lists `records`.
    pub(crate) fn rewrite<'a>(
        state: &Root,
        binding: &Binding,
        records: impl Iterator<Item = &'a Record>,
    ) -> Result<()> {
        let mut log = NewLines::new(state, LOG)?;
        log.add(|out| out.extend([binding.file(), "\n"]))?;
        for record in records {
            log.add(|out| record.write_line(out))?;
        }
        log.commit()
    }

    /// Leaves out what is `outdated`: if it is asked for again, it is fetched again.
    pub(crate) fn forget(state: &Root, binding: &Binding, outdated: impl Fn(&Record) -> bool) -> Result<()> {
        let records: Vec<Record> = Self::read(state, binding)?.collect();
        match records.iter().any(&outdated) {
            true => Self::rewrite(state, binding, records.iter().filter(|record| !outdated(record))),
            false => Ok(()),
        }
    }

    pub(crate) fn discard(state: &Root) -> Result<()> {
        forget(state, LOG)
    }
}
