//! One preemption, exhaustively: stop a call before each of its system calls, let a guest strike, continue.
//!
//! Every operation, both resolvers, every system call, every strike. A round is repeatable: it depends neither on the
//! number of CPUs nor on luck. Controls that check a path and then use it again run in the same rig and must be caught,
//! or the run is void.
//!
//! `cargo test --test step -- read` runs the rows whose name contains `read`. A row of many pairs plays a sample of them,
//! drawn from the seed; the table says how many of how many. With `BENEATH_TEST_FULL` set it plays all, also stops before
//! calls that change nothing, and lets the guest strike twice; that takes minutes.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use beneath::Durability;
use beneath_kit::env;
use beneath_kit::rig::{self, Dice, Rig, Row, in_parallel};
use beneath_kit::scene::judge::Leniency;
use beneath_kit::scene::lack::Lack;
use beneath_kit::scene::place::{Devices, Places};
use beneath_kit::scene::scenario::{Caught, SCENARIOS, Scenario};
use beneath_kit::scene::stage::{Outcome, PATIENCE, Play, Stage};
use beneath_kit::scene::target::{Blow, blows};
use beneath_kit::scene::victim;
use beneath_kit::snapshot::is_temporary;
use beneath_kit::strikes::{Aim, CLOSED, FIFO, LINKED, TO_A_DIRECTORY, UNLINKED};
use beneath_kit::trace::{Act, Tracer, VICTIM, be_victim};
use nix::libc;

/// A control is expected to hang on a FIFO.
const LITTLE_PATIENCE: Duration = Duration::from_millis(100);
/// How many pairs of a row are played after the first call, unless all are.
const SAMPLE: usize = 120;

/// Also stop before calls that only close a descriptor, combine every lack with both resolvers, and strike twice.
fn full() -> bool {
    env::FULL.is_set()
}

/// One row of the table.
#[derive(Clone, Copy)]
struct Job {
    play: Play,
    devices: Devices,
    strikes: Strikes,
}

/// How often the guest strikes in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strikes {
    Once,
    /// Before two different calls; for the calls that read and write, and only in a full run.
    Twice,
    /// Before two different calls: a host's file gets a second name at the leaf, and then loses it.
    LinkUnlink,
}

impl Job {
    fn title(&self) -> String {
        let mut title = self.play.scenario.name.to_owned();
        if self.devices == Devices::Dead {
            title.push_str(" [nodev]");
        }
        match self.strikes {
            Strikes::Once => {}
            Strikes::Twice => title.push_str(" [twice]"),
            Strikes::LinkUnlink => title.push_str(" [link, unlink]"),
        }
        match self.play.lack {
            Lack::Nothing => title,
            lack => format!("{title} [{}]", lack.name()),
        }
    }
}

/// What a guest may strike twice.
const TWICE: &[&str] = &["read_contained", "write_exclusive", "replace", "remove_file"];

fn jobs() -> Vec<Job> {
    SCENARIOS.iter().filter(|scenario| !scenario.is_caught(Caught::ByFaults)).flat_map(jobs_of).collect()
}

fn jobs_of(scenario: &'static Scenario) -> Vec<Job> {
    let mounts: &[Devices] =
        if scenario.opens_files { &[Devices::Live, Devices::Dead] } else { &[Devices::Live] };
    let mut jobs = Vec::new();
    for play in Play::all(scenario, Durability::None, full()) {
        for &devices in mounts {
            let job = |strikes| Job { play, devices, strikes };
            if scenario.is_caught(Caught::ByNames) {
                jobs.push(job(Strikes::LinkUnlink));
                continue;
            }
            jobs.push(job(Strikes::Once));
            let able = play.lack == Lack::Nothing;
            if able && full() && TWICE.contains(&scenario.name) {
                jobs.push(job(Strikes::Twice));
            }
            if able && scenario.counts_names {
                jobs.push(job(Strikes::LinkUnlink));
            }
        }
    }
    jobs
}

/// A call of an undisturbed run.
#[derive(Clone, Debug)]
struct Step {
    call: String,
    /// Nothing a guest does just before it differs from the same just before the next one.
    indifferent: bool,
    /// The host has a temporary name at this moment.
    temporary: bool,
}

/// A blow, and the call before which it falls.
type Timed = (usize, Blow);

/// Every way to strike a job with these steps.
fn all_pairs(job: &Job, steps: &[Step]) -> Vec<Vec<Timed>> {
    let numbered = steps.iter().enumerate().filter(|(_, step)| full() || !step.indifferent);
    let single: Vec<Timed> = numbered
        .flat_map(|(index, step)| {
            let sensible = move |blow: &Blow| blow.target.makes_sense(job.play.scenario, step.temporary);
            blows().filter(sensible).map(move |blow| (index, blow))
        })
        .collect();
    let fits = |first: &Timed, second: &Timed| match job.strikes {
        Strikes::Once => false,
        Strikes::Twice => true,
        Strikes::LinkUnlink => first.1.is(Aim::Leaf, LINKED) && second.1.is_like(Aim::Leaf, UNLINKED),
    };
    if job.strikes == Strikes::Once {
        return single.into_iter().map(|timed| vec![timed]).collect();
    }
    let worth: Vec<Timed> = single.into_iter().filter(|timed| !steps[timed.0].indifferent).collect();
    let pairs = worth.iter().flat_map(|first| worth.iter().map(move |second| vec![*first, *second]));
    pairs.filter(|pair| pair[0].0 < pair[1].0 && fits(&pair[0], &pair[1])).collect()
}

/// The pairs of a row that are played: all before the first call, each strike at some call, where a control is known to be
/// caught, and a sample of the others.
fn chosen_pairs(job: &Job, steps: &[Step], seed: u64) -> Vec<Vec<Timed>> {
    let all = all_pairs(job, steps);
    if full() || all.len() <= SAMPLE {
        return all;
    }
    let mut dice = Dice::new(seed);
    let mut met = BTreeSet::new();
    // Beginning somewhere, so that it is not always the earliest call that a strike is met at.
    let begin = dice.below(all.len() as u64) as usize;
    let order = (begin..all.len()).chain(0..begin);
    let one_of_each: BTreeSet<usize> = order.filter(|at| met.insert(all[*at][0].1.name())).collect();
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for (at, pair) in all.into_iter().enumerate() {
        let first = pair.len() == 1 && pair[0].0 == 0;
        let kept = first || one_of_each.contains(&at) || is_known(job.play.scenario, &pair[0].1);
        if kept { chosen.push(pair) } else { others.push(pair) }
    }
    chosen.extend(dice.sample(others, SAMPLE));
    chosen
}

/// Whether a control is caught by this before the right call.
fn is_known(scenario: &Scenario, blow: &Blow) -> bool {
    let name = blow.name();
    scenario.is_control()
        && (blow.is(Aim::Parent, TO_A_DIRECTORY)
            || KNOWN.iter().any(|known| known.0 == scenario.name && known.2 == name))
}

/// What came of a job.
struct Played {
    job: Job,
    steps: Vec<Step>,
    pairs: usize,
    played: usize,
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

fn play_all(job: Job, places: &Places, seed: u64) -> Played {
    let dir = places.dir(job.devices).unwrap_or_else(|| places.any_dir());
    let mut stage = Stage::new(job.play, dir);
    let (steps, undisturbed) = stage.undisturbed(&|stop, scene| Step {
        call: stop.describe(),
        indifferent: stop.call.is(libc::SYS_close),
        temporary: scene.inside_now().iter().any(|(path, _)| is_temporary(path)),
    });
    let pairs = chosen_pairs(&job, &steps, seed);
    let mut played = Played {
        job,
        pairs: all_pairs(&job, &steps).len(),
        steps,
        played: 0,
        strikes: BTreeSet::new(),
        void: 0,
        succeeded: 0,
        violations: Vec::new(),
        first: BTreeMap::new(),
        verdicts: BTreeMap::new(),
    };
    let mut broken = undisturbed.violations.clone();
    if undisturbed.verdict() != "ok" {
        broken.push(format!("fails undisturbed: {:?}", undisturbed.report));
    }
    played.violations.extend(broken.into_iter().map(|what| (0, "none".into(), what)));
    for pair in pairs {
        let (applied, outcome) = play(&mut stage, &pair);
        played.add(&pair, applied, &outcome);
    }
    played.violations.extend(stage.corrupted().map(|change| (0, "any".into(), change)));
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

impl Played {
    fn add(&mut self, pair: &[Timed], applied: usize, outcome: &Outcome) {
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

    fn row(&self) -> Row {
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

/// A pair at which a control must be caught: the last call of that name, the strike, the rule.
const KNOWN: &[(&str, &[&str], &str, &str)] = &[
    ("control: read_contained", &["openat", "open"], "leaf: link to an outside file", "escape"),
    (
        "control: read_contained",
        &["openat", "open"],
        "parent: exchanged with a link to a directory",
        "escape",
    ),
    ("control: read_contained", &["openat", "open"], "leaf: FIFO", "hang"),
    ("control: count names", &["openat", "open"], "leaf: hard link to an outside file", "escape"),
    ("control: write_exclusive", &["openat", "open"], "leaf: dangling link to the outside", "escape"),
    (
        "control: write_exclusive",
        &["openat", "open"],
        "parent: exchanged with a link to a directory",
        "escape",
    ),
    (
        "control: remove_tree_contained",
        &["openat", "open"],
        "in the leaf: directory: exchanged with a link to a directory",
        "escape",
    ),
    (
        "control: remove_tree_contained",
        &["unlink", "unlinkat"],
        "parent: exchanged with a link to a directory",
        "escape",
    ),
];

/// Before the first call both resolvers meet the same tree, and so must say the same.
fn disagreements(rows: &[Played]) -> Vec<String> {
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

fn main() -> ExitCode {
    let columns = &[
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
    rig::main("step", columns, &[(VICTIM, &|_| be_victim(victim::answer))], run)
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
    rig.add_all(rows.iter().map(Played::row));
    disagreements(&rows).into_iter().for_each(|found| rig.fail(found));
    let count = |of: fn(&Played) -> usize| rows.iter().map(of).sum::<usize>();
    rig.note(format!("{} of {} pairs", count(|row| row.played), count(|row| row.pairs)));
}
