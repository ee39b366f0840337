//! Failure at every single call: each operation meets each error at each of its system calls, loses its process there,
//! and runs out of everything.
//!
//! After every round the canary is untouched, nothing is torn or left over, no descriptor is lost, the error has a kind,
//! and what was reported is true. Controls that leak or tear run in the same rig and must be caught.
//!
//! `cargo test --test faults -- kill` runs the parts whose name contains `kill`.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod durability;
mod exhaustion;
mod kill;
mod matrix;

use std::process::ExitCode;

use beneath::Durability;
use beneath_kit::rig::{self, Rig, Row, in_parallel};
use beneath_kit::scene::lack::Lack;
use beneath_kit::scene::place::Places;
use beneath_kit::scene::scenario::{SCENARIOS, Scenario};
use beneath_kit::scene::stage::{Play, Stage};
use beneath_kit::scene::victim;
use beneath_kit::trace::{Tracer, VICTIM, be_victim};

/// What a part came to.
#[derive(Default)]
struct Count {
    /// How many faults were tried, and how many of them ended in success all the same.
    pairs: usize,
    succeeded: usize,
    violations: Vec<String>,
    note: String,
}

impl Count {
    fn row(mut self, title: String, is_control: bool) -> Row {
        let numbers = [self.pairs, self.succeeded, self.violations.len()];
        let mut cells = vec![title];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.push(self.note);
        let mut row = Row { cells, ..Row::default() };
        if is_control {
            row.failures.extend(self.violations.is_empty().then(|| "was not caught".to_owned()));
            row.details = self.violations;
        } else {
            self.violations.truncate(12);
            row.failures = self.violations;
        }
        row
    }
}

fn title(part: &str, play: &Play) -> String {
    let resolver = if play.scenario.is_control() { "" } else { play.resolver_name() };
    let circumstances =
        [play.scenario.name, resolver, play.lack.name()].into_iter().filter(|text| !text.is_empty());
    format!("{part}: {}", circumstances.collect::<Vec<_>>().join(", "))
}

/// Judges the scenarios that `wanted` picks, each on a stage of its own.
fn rows(
    rig: &Rig,
    places: &Places,
    part: &str,
    wanted: impl Fn(&Scenario) -> bool,
    judge: impl Fn(&mut Stage) -> Count + Sync,
) -> Vec<Row> {
    let durability = |scenario: &Scenario| match scenario.is_control() {
        true => Durability::None,
        false => Durability::Full,
    };
    let chosen = SCENARIOS.iter().filter(|scenario| wanted(scenario));
    let mut plays: Vec<Play> =
        chosen.flat_map(|scenario| Play::all(scenario, durability(scenario), false)).collect();
    plays.retain(|play| rig.wants(&title(part, play)));
    in_parallel(plays, |play| {
        let mut stage = Stage::new(play, places.any_dir());
        let mut count = judge(&mut stage);
        count.violations.extend(stage.corrupted());
        count.row(title(part, &play), play.scenario.is_control())
    })
}

fn main() -> ExitCode {
    let columns = &[("part", 60), ("pairs", 7), ("ok", 7), ("violations", 10), ("note", 44)];
    let roles: &[rig::Role<'_>] =
        &[(VICTIM, &|_| be_victim(victim::answer)), (exhaustion::CHILD, &exhaustion::child)];
    rig::main("faults", columns, roles, run)
}

fn run(rig: &mut Rig) {
    // First, while there is one thread: it may enter a mount namespace of its own.
    let places = Places::find();
    rig.place = places.any();
    exhaustion::run(rig, &places);
    if let Err(reason) = Tracer::start() {
        return rig.add(Row::skipped("tracing", reason));
    }
    let found = [matrix::rows, kill::rows, durability::rows].map(|rows| rows(rig, &places));
    rig.add_all(found.into_iter().flatten());
}

/// Whether a file is given a temporary name here, and so may leave it.
fn has_temporary_names(lack: Lack) -> bool {
    [Lack::UnnamedFiles, Lack::HardLinks].contains(&lack)
}
