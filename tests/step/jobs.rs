//! The rows, and the pairs of a call and a strike that each plays.

use std::collections::BTreeSet;

use beneath_kit::env;
use beneath_kit::naive::Caught;
use beneath_kit::rig::Dice;
use beneath_kit::scene::lack::Lack;
use beneath_kit::scene::place::Devices;
use beneath_kit::scene::played::Known;
use beneath_kit::scene::scenario::{SCENARIOS, Scenario};
use beneath_kit::scene::stage::Play;
use beneath_kit::scene::target::{Blow, blows};
use beneath_kit::strikes::{Aim, LINKED, TO_A_DIRECTORY, UNLINKED};

/// How many pairs of a row are played after the first call, unless all are.
const SAMPLE: usize = 8;
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
    for play in Play::all(scenario, false, full()) {
        let able = play.lack == Lack::Nothing;
        // What a file system lacks has to do with writing, and devices with reading.
        for &devices in if able { mounts } else { &mounts[..1] } {
            let job = |strikes| Job { play, devices, strikes };
            if scenario.is_caught(Caught::ByNames) {
                jobs.push(job(Strikes::LinkUnlink));
                continue;
            }
            jobs.push(job(Strikes::Once));
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

/// Where a link leads a host furthest out that looks at a directory before it enters it.
const WORST: [Aim; 2] = [Aim::Parent, Aim::DirectoryInLeaf];

/// The pairs of a row that are played: the worst before each call, where a control is known to be caught, and a sample of the
/// others. Where the kernel lacks nothing, all before the first call, and each strike at some call, too.
pub(crate) fn chosen_pairs(job: &Job, all: Vec<Vec<Timed>>, seed: u64) -> Vec<Vec<Timed>> {
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
        let worst = pair.len() == 1 && WORST.iter().any(|aim| pair[0].1.is(*aim, TO_A_DIRECTORY));
        let plain = job.play.lack == Lack::Nothing && (first || one_of_each.contains(&at));
        let kept = plain || worst || is_known(job.play.scenario, &pair[0].1);
        if kept { chosen.push(pair) } else { others.push(pair) }
    }
    chosen.extend(dice.sample(others, sample));
    chosen
}

/// Whether a control is caught by this before the right call.
fn is_known(scenario: &Scenario, blow: &Blow) -> bool {
    let name = blow.name();
    scenario.is_control()
        && (blow.is(Aim::Parent, TO_A_DIRECTORY) || known(scenario.name).iter().any(|known| known.1 == name))
}

/// Where the control of this name must be caught.
pub(crate) fn known(title: &str) -> Vec<Known> {
    let known = KNOWN.iter().filter(|known| title.starts_with(known.0));
    known.map(|&(_, calls, strike, rule)| (calls, strike, rule)).collect()
}

const OPENS: &[&str] = &["openat", "open"];
const PARENT: &str = "parent: exchanged with a link to a directory";
const INNER: &str = "in the leaf: directory: exchanged with a link to a directory";

/// Pairs at which a control must be caught: the last call of that name, the strike, the rule.
const KNOWN: &[(&str, &[&str], &str, &str)] = &[
    ("control: read_contained", OPENS, "leaf: link to an outside file", "escape"),
    ("control: read_contained", OPENS, PARENT, "escape"),
    ("control: read_contained", OPENS, "leaf: FIFO", "hang"),
    ("control: count names", OPENS, "leaf: hard link to an outside file", "escape"),
    ("control: write_exclusive", OPENS, "leaf: dangling link to the outside", "escape"),
    ("control: write_exclusive", OPENS, PARENT, "escape"),
    ("control: copy, from", OPENS, "leaf: link to an outside file", "escape"),
    ("control: copy, to", OPENS, PARENT, "escape"),
    ("control: symlink", &["symlinkat", "symlink"], PARENT, "escape"),
    ("control: read_link", &["readlinkat", "readlink"], PARENT, "escape"),
    ("control: read through a link", OPENS, "leaf: exchanged with a link to a file", "escape"),
    ("control: rename_with, replacing", &["renameat2", "renameat", "rename"], PARENT, "escape"),
    ("control: rename_with, exchanging", &["renameat2"], PARENT, "escape"),
    ("control: remove_tree_contained", OPENS, INNER, "escape"),
    ("control: remove_tree_contained", &["unlink", "unlinkat"], PARENT, "escape"),
];
