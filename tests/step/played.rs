//! What came of a row, and whether it is what must come of it.

use std::collections::{BTreeMap, BTreeSet};

use beneath_kit::rig::Row;
use beneath_kit::scene::stage::Outcome;

use crate::jobs::{Job, KNOWN, Step, Timed};

/// What came of a job.
pub(crate) struct Played {
    pub(crate) job: Job,
    pub(crate) steps: Vec<Step>,
    pub(crate) pairs: usize,
    pub(crate) played: usize,
    pub(crate) strikes: BTreeSet<String>,
    /// Pairs whose strike had nothing to act on.
    pub(crate) void: usize,
    pub(crate) succeeded: usize,
    /// Call index, strike, what was broken.
    pub(crate) violations: Vec<(usize, String, String)>,
    /// What each strike before the first call led to.
    pub(crate) first: BTreeMap<String, String>,
    pub(crate) verdicts: BTreeMap<String, usize>,
}

impl Played {
    pub(crate) fn add(&mut self, pair: &[Timed], applied: usize, outcome: &Outcome) {
        let (index, blow) = &pair[0];
        let verdict = outcome.verdict();
        self.played += 1;
        self.strikes.insert(blow.name());
        self.void += usize::from(applied == 0);
        self.succeeded += usize::from(verdict == "ok");
        if *index == 0 && applied == 1 && pair.len() == 1 {
            self.first.insert(blow.name(), verdict.clone());
        }
        *self.verdicts.entry(verdict).or_default() += 1;
        if !outcome.violations.is_empty() {
            let mut what = outcome.violations.join("; ");
            for (index, blow) in &pair[1..] {
                what.push_str(&format!(" (then before call {index}, {})", blow.name()));
            }
            self.violations.push((*index, blow.name(), what));
        }
    }

    pub(crate) fn row(&self) -> Row {
        let numbers = [
            self.steps.len(),
            self.strikes.len(),
            self.pairs,
            self.played,
            self.void,
            self.succeeded,
            self.violations.len(),
        ];
        let mut cells = vec![self.job.title(), self.job.play.resolver_name().to_owned()];
        cells.extend(numbers.map(|number| number.to_string()));
        let mut details: Vec<String> =
            self.steps.iter().enumerate().map(|(index, step)| format!("{index:3} {}", step.call)).collect();
        details.push(format!("{:?}", self.verdicts));
        let broken = self.violations.iter().map(|(index, strike, what)| {
            let call = self.steps.get(*index).map_or("", |step| &step.call);
            format!("before call {index} {call}, {strike}: {what}")
        });
        let failures = match self.job.play.scenario.is_control() {
            true => {
                details.extend(broken);
                self.missed()
            }
            false => broken.collect(),
        };
        Row { cells, failures, details, skipped: None }
    }

    /// What a control was not caught at.
    fn missed(&self) -> Vec<String> {
        let name = self.job.play.scenario.name;
        let caught = |rule: &str| self.violations.iter().any(|(.., what)| what.contains(rule));
        let mut missed: Vec<String> =
            (!caught("escape")).then(|| "was not caught".to_owned()).into_iter().collect();
        for (_, calls, strike, rule) in KNOWN.iter().filter(|known| known.0 == name) {
            let named = |step: &Step| calls.iter().any(|name| step.call.starts_with(&format!("{name}(")));
            let caught = self.violations.iter().any(|(index, by, what)| {
                by == strike && what.contains(rule) && self.steps.get(*index).is_some_and(named)
            });
            if !caught {
                missed.push(format!("was not caught ({rule}) before {calls:?} by {strike}"));
            }
        }
        missed
    }
}

/// Before the first call both resolvers meet the same tree, and so must say the same.
pub(crate) fn disagreements(rows: &[Played]) -> Vec<String> {
    let mut first: BTreeMap<String, &Played> = BTreeMap::new();
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| !row.job.play.scenario.is_control()) {
        let Some(other) = first.insert(row.job.title(), row) else { continue };
        for (strike, verdict) in &row.first {
            match other.first.get(strike) {
                Some(said) if said != verdict => found.push(format!(
                    "{} after {strike}: {} says {said}, {} says {verdict}",
                    row.job.title(),
                    other.job.play.resolver_name(),
                    row.job.play.resolver_name()
                )),
                _ => {}
            }
        }
    }
    found
}
