//! The rows, and the pairs of a call and a strike that each plays.

use std::collections::BTreeSet;

use beneath::Durability;
use beneath_kit::env;
use beneath_kit::naive::Caught;
use beneath_kit::rig::Dice;
use beneath_kit::scene::lack::Lack;
use beneath_kit::scene::place::Devices;
use beneath_kit::scene::scenario::{SCENARIOS, Scenario};
use beneath_kit::scene::stage::Play;
use beneath_kit::scene::target::{Blow, blows};
use beneath_kit::strikes::{Aim, LINKED, TO_A_DIRECTORY, UNLINKED};

/// How many pairs of a row are played after the first call, unless all are.
const SAMPLE: usize = 60;
/// How many are played of the pairs in which the guest strikes twice. There are up to a million in a row.
const TWICE_SAMPLE: usize = 5_000;

/// Also stop before calls that only close a descriptor, combine every lack with both resolvers, and strike twice.
pub(crate) fn full() -> bool {
    env::FULL.is_set()
}

/// One row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) play: Play,
    pub(crate) devices: Devices,
    pub(crate) strikes: Strikes,
}

/// How often the guest strikes in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strikes {
    Once,
    /// Before two different calls; for the calls that read and write, and only in a full run.
    Twice,
    /// Before two different calls: a host's file gets a second name at the leaf, and then loses it.
    LinkUnlink,
}

impl Job {
    pub(crate) fn title(&self) -> String {
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

pub(crate) fn jobs() -> Vec<Job> {
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
pub(crate) struct Step {
    pub(crate) call: String,
    /// Nothing a guest does just before it differs from the same just before the next one.
    pub(crate) indifferent: bool,
    /// The host has a temporary name at this moment.
    pub(crate) temporary: bool,
}

/// A blow, and the call before which it falls.
pub(crate) type Timed = (usize, Blow);

/// Every way to strike a job with these steps.
pub(crate) fn all_pairs(job: &Job, steps: &[Step]) -> Vec<Vec<Timed>> {
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
pub(crate) fn chosen_pairs(job: &Job, steps: &[Step], seed: u64) -> Vec<Vec<Timed>> {
    let all = all_pairs(job, steps);
    let sample = match job.strikes {
        Strikes::Twice => TWICE_SAMPLE,
        _ if full() => usize::MAX,
        _ => env::SAMPLE.number().unwrap_or(SAMPLE),
    };
    if all.len() <= sample {
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
    chosen.extend(dice.sample(others, sample));
    chosen
}

/// Whether a control is caught by this before the right call.
fn is_known(scenario: &Scenario, blow: &Blow) -> bool {
    let name = blow.name();
    scenario.is_control()
        && (blow.is(Aim::Parent, TO_A_DIRECTORY)
            || KNOWN.iter().any(|known| known.0 == scenario.name && known.2 == name))
}

/// A pair at which a control must be caught: the last call of that name, the strike, the rule.
pub(crate) const KNOWN: &[(&str, &[&str], &str, &str)] = &[
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
