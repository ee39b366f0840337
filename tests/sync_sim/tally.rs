//! What has happened, so that a run which shows nothing is noticed.

use crate::history::End;
use crate::report::Report;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) requests: u64,
    pub(crate) complete: u64,
    pub(crate) conflicts: u64,
    pub(crate) deleted: u64,
    pub(crate) held: u64,
    pub(crate) faults: u64,
    pub(crate) dropped: u64,
    pub(crate) died: u64,
    pub(crate) accidents: u64,
    pub(crate) settled: u64,
    /// Losses that the documentation names.
    pub(crate) documented: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, more) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *sum += more.1;
        }
    }

    pub(crate) fn add_report(&mut self, report: &Report) {
        self.conflicts += report.conflicts.len() as u64;
        self.deleted += report.deleted;
        self.held += report.held.len() as u64;
    }

    pub(crate) fn cut(&mut self, end: End) {
        match end {
            End::Dropped => self.dropped += 1,
            End::Died => self.died += 1,
        }
    }

    pub(crate) fn numbers(&self) -> [(&'static str, u64); 12] {
        [
            ("calls", self.calls),
            ("requests", self.requests),
            ("complete", self.complete),
            ("conflicts", self.conflicts),
            ("deletions", self.deleted),
            ("held", self.held),
            ("faults", self.faults),
            ("dropped futures", self.dropped),
            ("deaths", self.died),
            ("accidents", self.accidents),
            ("brought to rest", self.settled),
            ("documented losses", self.documented),
        ]
    }

    fn numbers_mut(&mut self) -> [&mut u64; 12] {
        [
            &mut self.calls,
            &mut self.requests,
            &mut self.complete,
            &mut self.conflicts,
            &mut self.deleted,
            &mut self.held,
            &mut self.faults,
            &mut self.dropped,
            &mut self.died,
            &mut self.accidents,
            &mut self.settled,
            &mut self.documented,
        ]
    }
}
