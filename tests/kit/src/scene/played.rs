//! What came of a stepper's row, and whether it is what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::stage::Outcome;
use crate::contender::Contender;
use crate::rig::{Column, Row};

/// What a control gets: it is expected to hang on a FIFO.
pub const LITTLE_PATIENCE: Duration = Duration::from_millis(100);

pub const COLUMNS: &[Column] = &[
    ("operation", 46),
    ("resolver", 9),
    ("calls", 6),
    ("strikes", 8),
    ("pairs", 7),
    ("played", 7),
    ("void", 6),
    ("ok", 6),
    ("violations", 10),
];

/// The calls before one of which a control must be caught by a strike, and the rule that it breaks.
pub type Known = (&'static [&'static str], &'static str, &'static str);

/// The rounds of a row.
#[derive(Debug, Default)]
pub struct Played {
    pub title: String,
    pub contender: Contender,
    /// Those of an undisturbed round.
    calls: Vec<String>,
    pub pairs: usize,
    pub played: usize,
    strikes: BTreeSet<String>,
    /// Pairs whose strike had nothing to act on.
    void: usize,
    succeeded: usize,
    /// Call index, strike, what was broken.
    violations: Vec<(usize, String, String)>,
    /// What each strike before the first call led to.
    first: BTreeMap<String, String>,
    verdicts: BTreeMap<String, usize>,
}

impl Played {
    /// A row before the first strike, with the calls of an undisturbed round and how that ended.
    pub fn new(title: String, contender: Contender, calls: Vec<String>, undisturbed: Outcome) -> Self {
        let mut played = Self { title, contender, calls, ..Self::default() };
        if undisturbed.verdict() != "ok" {
            played.violate("none", format!("fails undisturbed: {:?}", undisturbed.report));
        }
        undisturbed.violations.into_iter().for_each(|what| played.violate("none", what));
        played
    }

    /// Something broken that no strike before a certain call explains.
    pub fn violate(&mut self, strike: &str, what: String) {
        self.violations.push((0, strike.into(), what));
    }

    /// Adds a round with strikes before these calls, so many of which found something to act on.
    pub fn add(&mut self, strikes: &[(usize, String)], applied: usize, outcome: &Outcome) {
        let (index, strike) = &strikes[0];
        let verdict = outcome.verdict();
        self.played += 1;
        self.strikes.insert(strike.clone());
        self.void += usize::from(applied == 0);
        self.succeeded += usize::from(verdict == "ok");
        if *index == 0 && applied == 1 && strikes.len() == 1 {
            self.first.insert(strike.clone(), verdict.clone());
        }
        *self.verdicts.entry(verdict).or_default() += 1;
        if !outcome.violations.is_empty() {
            let mut what = outcome.violations.join("; ");
            for (index, strike) in &strikes[1..] {
                what.push_str(&format!(" (then before call {index}, {strike})"));
            }
            self.violations.push((*index, strike.clone(), what));
        }
    }

    /// The row; a control must be caught out of the root at all, and where it is known to be.
    pub fn row(&self, known: &[Known]) -> Row {
        let counts = [self.calls.len(), self.strikes.len(), self.pairs, self.played, self.void];
        let numbers = [&counts[..], &[self.succeeded, self.violations.len()]].concat();
        let mut row = Row::of([&self.title, self.contender.name()], &numbers);
        row.details =
            self.calls.iter().enumerate().map(|(index, call)| format!("{index:3} {call}")).collect();
        row.details.push(format!("{:?}", self.verdicts));
        let broken = self.violations.iter().map(|(index, strike, what)| {
            let call = self.calls.get(*index).map_or("", String::as_str);
            format!("before call {index} {call}, {strike}: {what}")
        });
        if self.contender == Contender::Control {
            row.details.extend(broken);
            row.failures = self.missed(known);
        } else {
            row.failures = broken.collect();
        }
        if self.calls.is_empty() || (self.played == 0 && self.pairs > 0) {
            row.failures.push("nothing was played".into());
        }
        row
    }

    /// What a control was not caught at.
    fn missed(&self, known: &[Known]) -> Vec<String> {
        let caught = |rule: &str| self.violations.iter().any(|(.., what)| what.contains(rule));
        let mut missed: Vec<String> =
            (!caught("escape")).then(|| "was not caught".to_owned()).into_iter().collect();
        for (calls, strike, rule) in known {
            let named = |call: &String| calls.iter().any(|name| call.starts_with(&format!("{name}(")));
            let caught = self.violations.iter().any(|(index, by, what)| {
                by == strike && what.contains(rule) && self.calls.get(*index).is_some_and(named)
            });
            if !caught {
                missed.push(format!("was not caught ({rule}) before {calls:?} by {strike}"));
            }
        }
        missed
    }
}

/// Before the first call both resolvers meet the same tree, and so must say the same.
pub fn disagreements(rows: &[Played]) -> Vec<String> {
    let mut first: BTreeMap<&str, &Played> = BTreeMap::new();
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.contender != Contender::Control) {
        let Some(other) = first.insert(&row.title, row) else { continue };
        for (strike, verdict) in &row.first {
            match other.first.get(strike) {
                Some(said) if said != verdict => found.push(format!(
                    "{} after {strike}: {} says {said}, {} says {verdict}",
                    row.title,
                    other.contender.name(),
                    row.contender.name()
                )),
                _ => {}
            }
        }
    }
    found
}
