//! What was counted in a bout, and the verdict on each row of the table.

use serde::{Deserialize, Serialize};

use super::{Bout, Contender, Outcome, Volume};
use crate::rig::{Column, Row};

/// How many escapes and wrongs are kept in words.
const STORIES: usize = 3;

/// What was counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub calls: u64,
    pub ok: u64,
    pub refused: u64,
    pub escapes: u64,
    pub wrong: u64,
    /// The first few escapes and wrongs, in words.
    pub stories: Vec<String>,
}

impl Tally {
    pub(super) fn count(&mut self, outcome: Outcome) {
        self.calls += 1;
        let (counter, story) = match outcome {
            Outcome::Ok => (&mut self.ok, None),
            Outcome::Refused => (&mut self.refused, None),
            Outcome::Escaped(story) => (&mut self.escapes, Some(story)),
            Outcome::Wrong(story) => (&mut self.wrong, Some(story)),
        };
        *counter += 1;
        if self.stories.len() < STORIES {
            self.stories.extend(story);
        }
    }

    /// Adds what another bout of the same kind has counted.
    pub fn add(&mut self, more: Self) {
        self.calls += more.calls;
        self.ok += more.ok;
        self.refused += more.refused;
        self.escapes += more.escapes;
        self.wrong += more.wrong;
        self.stories.extend(more.stories);
    }

    /// Whether enough calls went either way for the race to have taken place.
    fn two_sided(&self, bout: &Bout, share: u64) -> bool {
        self.ok * share >= self.calls && (self.refused * share >= self.calls || bout.never_refused.is_some())
    }

    pub(super) fn shown(&self, bout: &Bout, contender: Contender, share: u64) -> bool {
        match contender {
            Contender::Control => self.escapes > 0,
            _ => self.two_sided(bout, share),
        }
    }
}

/// `control` counts the calls of the naive host, and `caught` those that led it out.
pub const COLUMNS: &[Column] = &[
    ("kind", 17),
    ("operation", 28),
    ("resolver", 9),
    ("calls", 8),
    ("ok", 8),
    ("refused", 8),
    ("escapes", 8),
    ("control", 8),
    ("caught", 8),
];

/// One bout through one resolver, with the control that ran on the same rig and must be caught so often per million calls.
pub fn row(
    bout: &Bout,
    contender: Contender,
    tally: &Tally,
    control: &Tally,
    volume: Volume,
    demanded: u64,
) -> Row {
    let mut failures = Vec::new();
    if tally.escapes > 0 {
        failures.push(format!("ESCAPED: {}", tally.stories.join("; ")));
    }
    if tally.wrong > 0 {
        failures.push(format!("WRONG {} times: {}", tally.wrong, tally.stories.join("; ")));
    }
    if control.escapes == 0 || control.escapes * 1_000_000 < demanded * control.calls {
        failures.push("VOID: the control was not caught often enough".into());
    }
    if !tally.two_sided(bout, volume.share) {
        let share = volume.share;
        failures.push(format!(
            "VOID: fewer than one in {share} succeeded or fewer than one in {share} were refused"
        ));
    }
    let numbers = [tally.calls, tally.ok, tally.refused, tally.escapes, control.calls, control.escapes];
    let row = Row::of([bout.kind, bout.verb, contender.name()], &numbers.map(|number| number as usize));
    Row { failures, ..row }
}

/// Why some rows show one side only, and why some are missing: one line each, with the operations it is about.
pub fn notes(bouts: &[&Bout]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    for bout in bouts {
        let plain = bout.needs_plain_user.then_some("root is bound by no mode, so as root it runs as nobody");
        let reasons = [
            bout.never_refused.map(|why| format!("{}: nothing need be refused: {why}", bout.kind)),
            bout.without_walk.map(|why| format!("{}: not run with the walk: {why}", bout.kind)),
            plain.map(|why| format!("{}: {why}", bout.kind)),
        ];
        for reason in reasons.into_iter().flatten() {
            match notes.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, verbs)) => verbs.push(bout.verb),
                None => notes.push((reason, vec![bout.verb])),
            }
        }
    }
    notes.into_iter().map(|(reason, verbs)| format!("{reason} ({})", verbs.join("; "))).collect()
}
