//! Failure at every single call: each operation meets each error at each of its system calls, loses its process there,
//! and runs out of everything.
//!
//! After every round the canary is untouched, nothing is torn or left over, no descriptor is lost, the error has a kind,
//! and what was reported is true. Controls that leak or tear run in the same rig and must be caught.
//!
//! `cargo test --test faults -- kill` runs the parts whose name contains `kill`. A row of many faults plays a sample of
//! them, drawn from the seed; with `BENEATH_TEST_FULL` set it plays all.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod durability;
mod exhaustion;
mod kill;
mod matrix;

use std::process::ExitCode;

use beneath_kit::naive::{Caught, TEARING};
use beneath_kit::operations::Effect;
use beneath_kit::rig::{self, Count, Rig, Row, in_parallel};
use beneath_kit::scene::lack::Lack;
use beneath_kit::scene::place::Places;
use beneath_kit::scene::scenario::{SCENARIOS, Scenario};
use beneath_kit::scene::stage::{Play, Stage};
use beneath_kit::scene::victim;
use beneath_kit::trace::{Tracer, VICTIM, be_victim};

fn title(part: &str, play: &Play) -> String {
    let resolver = if play.scenario.is_control() { "" } else { play.contender.name() };
    let circumstances =
        [play.scenario.name, resolver, play.lack.name()].into_iter().filter(|text| !text.is_empty());
    format!("{part}: {}", circumstances.collect::<Vec<_>>().join(", "))
}

/// A part: which scenarios, and what is done to each on a stage of its own.
struct Part {
    name: &'static str,
    wants: fn(&Scenario) -> bool,
    judge: fn(&mut Stage) -> Count,
}

const PARTS: &[Part] = &[
    Part {
        name: "errno",
        wants: |scenario| !scenario.is_control() || scenario.is_caught(Caught::ByFaults),
        judge: matrix::play_all,
    },
    Part {
        name: "kill",
        wants: |scenario| match scenario.is_control() {
            true => scenario.name == TEARING,
            false => scenario.effect.writes(),
        },
        judge: kill::play_all,
    },
    Part {
        name: "durability",
        wants: |scenario| {
            let effect = scenario.effect;
            let names = effect.moves() || matches!(effect, Effect::MakesDirectories | Effect::Links);
            (names || effect.writes()) && !scenario.is_control()
        },
        judge: durability::judge,
    },
];

fn rows(rig: &Rig, places: &Places, part: &Part) -> Vec<Row> {
    let chosen = SCENARIOS.iter().filter(|scenario| (part.wants)(scenario));
    let mut plays: Vec<Play> =
        chosen.flat_map(|scenario| Play::all(scenario, !scenario.is_control(), false)).collect();
    plays.retain(|play| rig.wants(&title(part.name, play)));
    in_parallel(plays, |play| {
        let mut stage = Stage::new(play, places.any_dir());
        let mut count = (part.judge)(&mut stage);
        count.violations.extend(stage.corrupted());
        count.row(title(part.name, &play), play.scenario.is_control())
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
    for part in PARTS {
        rig.add_all(rows(rig, &places, part));
    }
}

/// Whether a file is given a temporary name here, and so may leave it.
fn has_temporary_names(lack: Lack) -> bool {
    [Lack::UnnamedFiles, Lack::HardLinks].contains(&lack)
}
