//! One preemption, exhaustively: stop a call before each of its system calls, let a guest strike, continue.
//!
//! Every operation, both resolvers, every system call, every strike. A round is repeatable: it depends neither on the
//! number of CPUs nor on luck. Controls that check a path and then use it again run in the same rig and must be caught,
//! or the run is void.
//!
//! `cargo test --test step -- read` runs the rows whose name contains `read`. A row of many pairs plays a sample of them,
//! drawn from the seed; the table says how many of how many. With `BENEATH_TEST_FULL` set it plays all, also stops before
//! calls that change nothing, and lets the guest strike twice, of which it plays a sample; that takes minutes.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod jobs;

use std::process::ExitCode;

use beneath_kit::rig::{self, Rig, Row, in_parallel};
use beneath_kit::scene::judge::Leniency;
use beneath_kit::scene::lack::Lack;
use beneath_kit::scene::place::Places;
use beneath_kit::scene::played::{COLUMNS, LITTLE_PATIENCE, Played, disagreements};
use beneath_kit::scene::stage::{Outcome, PATIENCE, Play, Stage};
use beneath_kit::scene::victim;
use beneath_kit::snapshot::is_temporary;
use beneath_kit::strikes::{Aim, CLOSED, FIFO};
use beneath_kit::trace::{Act, Tracer, VICTIM, be_victim};
use jobs::{Job, Step, Timed, all_pairs, chosen_pairs, jobs, known};
use nix::libc;

fn play_all(job: Job, places: &Places, seed: u64) -> Played {
    let dir = places.dir(job.devices).unwrap_or_else(|| places.any_dir());
    let mut stage = Stage::new(job.play, dir);
    let (steps, undisturbed) = stage.undisturbed(&|stop, scene| Step {
        call: stop.describe(),
        indifferent: stop.call.is(libc::SYS_close),
        temporary: scene.inside_now().iter().any(|(path, _)| is_temporary(path)),
    });
    let calls = steps.iter().map(|step| step.call.clone()).collect();
    let mut played = Played::new(job.title(), job.play.contender, calls, undisturbed);
    let all = all_pairs(&job, &steps);
    played.pairs = all.len();
    for pair in chosen_pairs(&job, all, seed) {
        let (applied, outcome) = play(&mut stage, &pair);
        let strikes: Vec<_> = pair.iter().map(|(at, blow)| (*at, blow.name())).collect();
        played.add(&strikes, applied, &outcome);
    }
    if let Some(change) = stage.corrupted() {
        played.violate("any", change);
    }
    played
}

/// Plays one round; how many of the blows found something to act on, and how it ended.
fn play(stage: &mut Stage, pair: &[Timed]) -> (usize, Outcome) {
    let Play { scenario, lack, .. } = stage.play;
    let waits = scenario.is_control() && pair.iter().any(|(_, blow)| blow.strike.name == FIFO);
    let patience = if waits { LITTLE_PATIENCE } else { PATIENCE };
    let mut applied = 0;
    let taken = pair.iter().any(|(_, blow)| blow.target.aim == Aim::Temporary);
    let closed = pair.iter().any(|(_, blow)| blow.strike.name == CLOSED);
    let leniency = || Leniency {
        temporary_taken: taken,
        by_name: [Lack::HardLinks, Lack::UnnamedFiles].contains(&lack),
        two_steps: lack == Lack::NoReplace,
        // A temporary name the guest has made, or one in a directory that it has closed to us.
        leftovers: taken || closed,
        ..Leniency::default()
    };
    let outcome = stage.round(
        patience,
        &mut |stop, states| {
            for (number, (_, blow)) in pair.iter().enumerate().filter(|(_, (at, _))| *at == stop.index) {
                states.look();
                applied += usize::from(blow.apply(states.scene).is_ok());
                states.look();
                if lack == Lack::Nothing && number + 1 == pair.len() {
                    return Act::Release;
                }
            }
            Act::Go
        },
        &leniency,
    );
    (applied, outcome)
}

fn main() -> ExitCode {
    rig::main("step", COLUMNS, &[(VICTIM, &|_| be_victim(victim::answer))], run)
}

fn run(rig: &mut Rig) {
    // First, while there is one thread: it may enter a mount namespace of its own.
    let places = Places::find();
    if let Err(reason) = Tracer::start() {
        return rig.add(Row::skipped("all", reason));
    }
    let mut chosen: Vec<Job> = jobs().into_iter().filter(|job| rig.wants(&job.title())).collect();
    chosen.retain(|job| {
        let possible = job.play.scenario.is_control() || places.dir(job.devices).is_some();
        if !possible {
            rig.add(Row::skipped(job.title(), "no such mount, and no right to make one"));
        }
        possible
    });
    rig.place = places.any();
    let seed = rig.seed;
    let rows = in_parallel(chosen, |job| play_all(job, &places, seed));
    rig.add_all(rows.iter().map(|row| row.row(&known(&row.title))));
    disagreements(&rows).into_iter().for_each(|found| rig.fail(found));
    let count = |of: fn(&Played) -> usize| rows.iter().map(of).sum::<usize>();
    rig.note(format!("{} of {} pairs", count(|row| row.played), count(|row| row.pairs)));
}
