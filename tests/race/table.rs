//! The table a race run ends in, and the verdict on each of its rows.

use std::fmt::Write as _;

use crate::plan::{Contender, Scenario};
use crate::rig::Tally;

/// One attack on one operation through one resolver, with the control that ran on the same rig.
pub(crate) struct Row {
    pub(crate) scenario: Scenario,
    pub(crate) contender: Contender,
    pub(crate) tally: Tally,
    pub(crate) control: Tally,
    /// How often the control must be caught, per million calls.
    pub(crate) demanded: u64,
}

impl Row {
    /// What is wrong with the row, if anything is.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.tally.escapes > 0 {
            faults.push(format!("ESCAPED: {}", self.tally.stories.join("; ")));
        }
        if self.tally.wrong > 0 {
            faults.push(format!("WRONG {} times: {}", self.tally.wrong, self.tally.stories.join("; ")));
        }
        let caught = self.control.escapes;
        if caught == 0 || caught * 1_000_000 < self.demanded * self.control.calls {
            faults.push("VOID: the control was not caught often enough".into());
        }
        if !self.tally.two_sided(self.scenario) {
            faults.push("VOID: fewer than 10 % succeeded or fewer than 10 % were refused".into());
        }
        faults
    }

    pub(crate) const HEADER: &str = "kind              operation   resolver     calls        ok   refused escapes   control: calls  escapes";

    pub(crate) fn line(&self) -> String {
        let Tally { calls, ok, refused, escapes, .. } = &self.tally;
        let mut line = format!(
            "{:<17} {:<11} {:<8} {calls:>9} {ok:>9} {refused:>9} {escapes:>7} {:>16} {:>8}",
            self.scenario.name,
            self.scenario.verb(),
            self.contender.name(),
            self.control.calls,
            self.control.escapes,
        );
        for fault in self.faults() {
            // Writing to a String cannot fail.
            let _ = write!(line, "  {fault}");
        }
        line
    }
}

/// Says once each why some rows show one side only, and why some are missing.
pub(crate) fn notes(scenarios: &[Scenario]) -> String {
    let mut notes = String::new();
    for scenario in scenarios {
        let (name, verb) = (scenario.name, scenario.verb());
        if let Some(why) = scenario.never_refused() {
            let _ = writeln!(notes, "{name} {verb}: nothing need be refused: {why}");
        }
        for contender in Contender::ALL {
            if let Some(why) = scenario.excludes(contender) {
                let _ = writeln!(notes, "{name} {verb}: not run with {}: {why}", contender.name());
            }
        }
        if scenario.needs_plain_user() {
            let _ = writeln!(notes, "{name} {verb}: root is bound by no mode, so as root it runs as nobody");
        }
    }
    notes
}
