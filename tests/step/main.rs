//! One preemption, exhaustively: stop a call before each of its system calls, let a guest strike, continue.
//!
//! Every primitive, both resolvers, every system call, every mutation. A round is repeatable: it depends neither on
//! the number of CPUs nor on luck. Controls that check a path and then use it again run in the same rig and must be
//! caught, or the run is void.
//!
//! `cargo test --test step -- read` runs the rows whose name contains `read`. With `BENEATH_TEST_FULL` set it also
//! stops before calls that change nothing and lets the guest strike twice; that takes minutes.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod mutations;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use beneath::{Durability, Links, ResolverChoice};
use beneath_kit::trace::judge::{self, Leniency, Round};
use beneath_kit::trace::lack::Lack;
use beneath_kit::trace::naive::CONTROLS;
use beneath_kit::trace::place::{Devices, Places};
use beneath_kit::trace::scenario::{self, Effect, Report, Request, SCENARIOS};
use beneath_kit::trace::scene::{Contents, Leaf, Scene, Snapshot};
use beneath_kit::trace::{Act, End, Tracer};
use mutations::{Aim, LINKED, MUTATIONS, Mutation, Site, UNLINKED};
use nix::libc;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(10);
/// A control is expected to hang on a FIFO.
const LITTLE_PATIENCE: Duration = Duration::from_millis(100);

/// Also stop before calls that only close a descriptor, combine every lack with both resolvers, and strike twice.
fn full() -> bool {
    std::env::var_os("BENEATH_TEST_FULL").is_some()
}

/// One row of the table.
#[derive(Clone, Debug)]
struct Job {
    name: &'static str,
    leaf: Leaf,
    effect: Effect,
    resolver: ResolverChoice,
    lack: Lack,
    devices: Devices,
    strikes: Strikes,
    control: bool,
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
        let mut title = self.name.to_owned();
        if self.devices == Devices::Dead {
            title.push_str(" [nodev]");
        }
        if self.strikes == Strikes::Twice {
            title.push_str(" [twice]");
        }
        if self.strikes == Strikes::LinkUnlink {
            title.push_str(" [link, unlink]");
        }
        if self.lack != Lack::Nothing {
            title = format!("{title} [{}]", self.lack.name());
        }
        title
    }

    fn resolver_name(&self) -> &'static str {
        match self.resolver {
            _ if self.control => "path",
            ResolverChoice::Walk => "walk",
            _ => "openat2",
        }
    }
}

/// What a guest may strike twice.
const TWICE: &[&str] = &["read_contained", "write_exclusive", "replace", "remove_file"];

/// What depends on how many names a file has.
const COUNTING: &[&str] =
    &["read_contained", "open_contained", "read following links", "set_access", "descend"];

fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for scenario in SCENARIOS {
        for resolver in [ResolverChoice::Openat2, ResolverChoice::Walk] {
            if scenario.links == Links::FollowBeneath && resolver == ResolverChoice::Walk {
                continue;
            }
            let lacks: &[Lack] = match scenario.effect {
                Effect::RemovesTree(_) => &[Lack::Nothing, Lack::Moves],
                _ if resolver == ResolverChoice::Walk && !full() => &[Lack::Nothing],
                Effect::Creates | Effect::Replaces => {
                    &[Lack::Nothing, Lack::UnnamedFiles, Lack::EmptyPath, Lack::HardLinks]
                }
                Effect::Moves(..) => &[Lack::Nothing, Lack::NoReplace],
                _ => &[Lack::Nothing],
            };
            let mounts: &[Devices] =
                if scenario.opens_files { &[Devices::Live, Devices::Dead] } else { &[Devices::Live] };
            for &devices in mounts {
                for &lack in lacks {
                    jobs.push(Job {
                        name: scenario.name,
                        leaf: scenario.leaf,
                        effect: scenario.effect,
                        resolver,
                        lack,
                        devices,
                        strikes: Strikes::Once,
                        control: false,
                    });
                }
            }
            for (strikes, wanted) in [
                (Strikes::Twice, full() && TWICE.contains(&scenario.name)),
                (Strikes::LinkUnlink, COUNTING.contains(&scenario.name)),
            ] {
                let mut again: Vec<Job> =
                    jobs.iter().filter(|job| job.name == scenario.name).cloned().collect();
                again.retain(|job| {
                    (job.resolver, job.lack, job.strikes) == (resolver, Lack::Nothing, Strikes::Once)
                });
                again.retain(|_| wanted);
                jobs.extend(again.into_iter().map(|job| Job { strikes, ..job }));
            }
        }
    }
    for control in CONTROLS.iter().filter(|control| control.checks_first) {
        jobs.push(Job {
            name: control.name,
            leaf: control.leaf,
            effect: control.effect,
            resolver: ResolverChoice::Openat2,
            lack: Lack::Nothing,
            devices: Devices::Live,
            strikes: match control.name {
                "control: count names" => Strikes::LinkUnlink,
                _ => Strikes::Once,
            },
            control: true,
        });
    }
    jobs
}

/// What came of a job.
struct Row {
    job: Job,
    steps: Vec<Step>,
    pairs: usize,
    mutations: BTreeSet<&'static str>,
    /// Pairs whose mutation had nothing to act on.
    void: usize,
    succeeded: usize,
    /// Call index, mutation, what was broken.
    violations: Vec<(usize, &'static str, String)>,
    /// What each mutation before the first call led to.
    first: BTreeMap<&'static str, String>,
    verdicts: BTreeMap<String, usize>,
}

impl Row {
    fn add(&mut self, strikes: &[Strike], played: Played) {
        let (index, mutation) = strikes[0];
        self.pairs += 1;
        self.mutations.insert(mutation.name);
        self.void += usize::from(played.applied == 0);
        let verdict = played.report.as_ref().map_or("none".into(), Report::verdict);
        self.succeeded += usize::from(verdict == "ok");
        if index == 0 && played.applied == 1 && strikes.len() == 1 {
            self.first.insert(mutation.name, verdict.clone());
        }
        *self.verdicts.entry(verdict).or_default() += 1;
        if !played.violations.is_empty() {
            let mut what = played.violations.join("; ");
            for (index, mutation) in &strikes[1..] {
                what.push_str(&format!(" (then before call {index}, {})", mutation.name));
            }
            self.violations.push((index, mutation.name, what));
        }
    }
}

/// A mutation, and the call before which it happens.
type Strike = (usize, &'static Mutation);

/// Every way to strike a job with these steps.
fn strikes(job: &Job, steps: &[Step]) -> Vec<Vec<Strike>> {
    let numbered = steps.iter().enumerate().filter(|(_, step)| full() || !step.indifferent);
    let single: Vec<Strike> = numbered
        .flat_map(|(index, step)| {
            let sensible = MUTATIONS.iter().filter(move |mutation| makes_sense(job, mutation, step));
            sensible.map(move |mutation| (index, mutation))
        })
        .collect();
    match job.strikes {
        Strikes::Once => single.into_iter().map(|strike| vec![strike]).collect(),
        Strikes::Twice | Strikes::LinkUnlink => {
            let worth: Vec<Strike> =
                single.into_iter().filter(|strike| !steps[strike.0].indifferent).collect();
            let fits = |first: &Strike, second: &Strike| match job.strikes {
                Strikes::LinkUnlink => first.1.name == LINKED && second.1.name.starts_with(UNLINKED),
                _ => true,
            };
            let pairs = worth.iter().flat_map(|first| worth.iter().map(move |second| vec![*first, *second]));
            pairs.filter(|pair| pair[0].0 < pair[1].0 && fits(&pair[0], &pair[1])).collect()
        }
    }
}

/// Builds the scene and plays every pair on it.
struct Player {
    job: Job,
    tracer: Tracer,
    site: Site,
    outside: Snapshot,
    /// The same with contents, for a last look.
    canary: Snapshot,
    _dir: TempDir,
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

struct Played {
    /// How many of the mutations found something to act on.
    applied: usize,
    report: Option<Report>,
    steps: Vec<Step>,
    violations: Vec<String>,
}

impl Player {
    fn new(job: Job, dir: TempDir) -> Self {
        let scene = Scene::new(&dir.path().join("scene"), job.leaf).expect("the scene can be built");
        let outside = scene.outside_now(Contents::Skipped);
        let canary = scene.outside_now(Contents::Read);
        let tracer = Tracer::start().expect("a victim starts like the first");
        Self { tracer, site: Site { scene }, outside, canary, _dir: dir, job }
    }

    fn play(&mut self, strikes: &[Strike]) -> Played {
        let scene = self.site.scene.clone();
        let source = scene.reset().expect("the scene can be built");
        let request = Request {
            scenario: self.job.name,
            base: &scene.base,
            resolver: self.job.resolver,
            durability: Durability::None,
        };
        let mut steps = Vec::new();
        let mut applied = 0;
        // The tree before and after each strike.
        let mut states: Vec<Snapshot> = Vec::new();
        let waits = self.job.control && strikes.iter().any(|(_, mutation)| mutation.name == "leaf: FIFO");
        let patience = if waits { LITTLE_PATIENCE } else { PATIENCE };
        let lack = self.job.lack;
        if scenario::is_cold(self.job.name) {
            self.tracer.renew();
        }
        let end = self.tracer.round(&request.line(), patience, &mut |stop| {
            if strikes.is_empty() {
                steps.push(Step {
                    call: stop.describe(),
                    indifferent: stop.call.is(libc::SYS_close),
                    temporary: scene.inside_now().iter().any(|(path, _)| judge::is_temporary(path)),
                });
            }
            for (number, (_, mutation)) in strikes.iter().enumerate().filter(|(_, (at, _))| *at == stop.index)
            {
                states.push(scene.inside_now());
                applied += usize::from(self.site.apply(mutation).is_ok());
                states.push(scene.inside_now());
                if lack == Lack::Nothing && number + 1 == strikes.len() {
                    return Act::Release;
                }
            }
            lack.denies(stop).map_or(Act::Go, Act::Fail)
        });
        let after = scene.inside_now();
        let outside_end = scene.outside_now(Contents::Skipped);
        let report = match &end {
            End::Answered(line) => Some(Report::parse(line)),
            _ => None,
        };
        let mutations = || strikes.iter().map(|(_, mutation)| mutation);
        let of_temporaries = mutations().any(|mutation| mutation.aim == Aim::Temporary);
        let mut leniency = Leniency {
            temporary_taken: of_temporaries,
            by_name: [Lack::HardLinks, Lack::UnnamedFiles].contains(&self.job.lack),
            two_steps: self.job.lack == Lack::NoReplace,
            ..Leniency::default()
        };
        // A temporary name the guest has made, or one in a directory that it has closed to us.
        leniency.leftovers = of_temporaries || mutations().any(|mutation| mutation.name.contains("mode 000"));
        let mut violations = Vec::new();
        if let Some(attacked) = states.pop() {
            let round = Round {
                effect: self.job.effect,
                source,
                earlier: states.iter().collect(),
                attacked: &attacked,
                end: &after,
                outside_before: &self.outside,
                outside_end: &outside_end,
                leniency,
            };
            violations = round.violations(report.as_ref());
        }
        match &end {
            End::Answered(_) => {}
            End::Hung => violations.push("hang".into()),
            other => violations.push(format!("victim: {other:?}")),
        }
        if self.outside != outside_end {
            beneath_kit::trace::scene::clear(&scene.outside()).expect("the canary can be rebuilt");
            self.site.scene = Scene::new(&scene.base, self.job.leaf).expect("the canary can be rebuilt");
            self.outside = scene.outside_now(Contents::Skipped);
            self.canary = scene.outside_now(Contents::Read);
        }
        Played { applied, report, steps, violations }
    }

    fn play_all(mut self) -> Row {
        let mut row = Row {
            job: self.job.clone(),
            steps: Vec::new(),
            pairs: 0,
            mutations: BTreeSet::new(),
            void: 0,
            succeeded: 0,
            violations: Vec::new(),
            first: BTreeMap::new(),
            verdicts: BTreeMap::new(),
        };
        let undisturbed = self.play(&[]);
        row.steps = undisturbed.steps;
        let again = self.play(&[]);
        if row.steps.len() != again.steps.len() {
            row.violations.push((0, "none", "the number of calls differs from run to run".into()));
        }
        match undisturbed.report {
            Some(report) if report.verdict() == "ok" => {}
            other => row.violations.push((0, "none", format!("fails undisturbed: {other:?}"))),
        }
        for strikes in strikes(&row.job, &row.steps) {
            let played = self.play(&strikes);
            row.add(&strikes, played);
        }
        let canary = self.site.scene.outside_now(Contents::Read);
        if let Some(change) = self.canary.difference(&canary) {
            row.violations.push((0, "any", format!("escape, seen in the end: {change}")));
        }
        row
    }
}

/// Whether there is anything for the mutation to act on.
fn makes_sense(job: &Job, mutation: &Mutation, step: &Step) -> bool {
    match mutation.aim {
        Aim::Anything => true,
        Aim::InLeaf => job.leaf == Leaf::Directory,
        Aim::FileLeaf => job.leaf != Leaf::Directory,
        Aim::Rename => matches!(job.effect, Effect::Moves(..)),
        Aim::Temporary => step.temporary,
    }
}

/// A pair at which a control must be caught: the last call of that name, the mutation, the rule.
const KNOWN: &[(&str, &[&str], &str, &str)] = &[
    ("control: read", &["openat", "open"], "leaf: link to an outside file", "escape"),
    ("control: read", &["openat", "open"], "parent: exchanged with a link", "escape"),
    ("control: read", &["openat", "open"], "leaf: FIFO", "hang"),
    ("control: count names", &["openat", "open"], LINKED, "escape"),
    ("control: write", &["openat", "open"], "leaf: dangling link to the outside", "escape"),
    ("control: write", &["openat", "open"], "parent: exchanged with a link", "escape"),
    ("control: remove", &["openat", "open"], "in the leaf: directory exchanged with a link", "escape"),
    ("control: remove", &["unlink", "unlinkat"], "parent: exchanged with a link", "escape"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == beneath_kit::trace::VICTIM) {
        std::panic::set_hook(Box::new(|_| {}));
        beneath_kit::trace::serve(scenario::answer);
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let verbose = std::env::var_os("STEP_VERBOSE").is_some();
    let places = Places::find();
    if let Err(reason) = Tracer::start() {
        println!("step: skipped: {reason}");
        println!("0 passed, 0 failed");
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<Job> = jobs()
        .into_iter()
        .filter(|job| {
            let possible = job.control || places.dir(job.devices).is_some();
            if !possible {
                println!("{}: skipped: no such mount, and no right to make one", job.title());
            }
            possible
        })
        .filter(|job| {
            filters.is_empty() || filters.iter().any(|filter| job.title().contains(filter.as_str()))
        })
        .collect();
    let start = Instant::now();
    let rows = beneath_kit::trace::in_parallel(chosen, |job| {
        let dir = places.dir(job.devices).unwrap_or_else(|| places.any_dir());
        Player::new(job, dir).play_all()
    });
    let mut failures = Vec::new();
    print_table(&rows);
    for row in &rows {
        if verbose {
            println!("{} ({})", row.job.title(), row.job.resolver_name());
            for (index, step) in row.steps.iter().enumerate() {
                println!("  {index:3} {}", step.call);
            }
            println!("  {:?}", row.verdicts);
        }
        if row.job.control {
            if verbose {
                for (index, mutation, what) in &row.violations {
                    println!("  caught before call {index}, {mutation}: {what}");
                }
            }
            failures.extend(missed(row));
            continue;
        }
        for (index, mutation, what) in &row.violations {
            let call = row.steps.get(*index).map_or("", |step| &step.call);
            failures.push(format!(
                "{} ({}) before call {index} {call}, {mutation}: {what}",
                row.job.title(),
                row.job.resolver_name()
            ));
        }
    }
    failures.extend(disagreements(&rows));
    for failure in failures.iter().take(60) {
        println!("FAILED {failure}");
    }
    let pairs: usize = rows.iter().map(|row| row.pairs).sum();
    let failed = failures.len();
    println!("{pairs} pairs in {:.1} s", start.elapsed().as_secs_f64());
    println!("{} passed, {failed} failed", rows.len().saturating_sub(failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_table(rows: &[Row]) {
    println!(
        "{:44} {:9} {:>6} {:>9} {:>7} {:>7} {:>7} {:>10}",
        "primitive", "resolver", "calls", "mutations", "pairs", "void", "ok", "violations"
    );
    for row in rows {
        println!(
            "{:44} {:9} {:>6} {:>9} {:>7} {:>7} {:>7} {:>10}",
            row.job.title(),
            row.job.resolver_name(),
            row.steps.len(),
            row.mutations.len(),
            row.pairs,
            row.void,
            row.succeeded,
            row.violations.len()
        );
    }
}

/// The known pairs at which a control was not caught.
fn missed(row: &Row) -> Vec<String> {
    let known = KNOWN.iter().filter(|known| known.0 == row.job.name);
    known
        .filter(|(_, calls, mutation, rule)| {
            let named = |step: &Step| calls.iter().any(|name| step.call.starts_with(&format!("{name}(")));
            !row.violations.iter().any(|(index, by, what)| {
                by == mutation && what.contains(rule) && row.steps.get(*index).is_some_and(named)
            })
        })
        .map(|(name, calls, mutation, rule)| {
            format!("{name} was not caught ({rule}) before {calls:?} by {mutation}")
        })
        .collect()
}

/// Before the first call both resolvers meet the same tree, and so must say the same.
fn disagreements(rows: &[Row]) -> Vec<String> {
    let mut first: BTreeMap<String, &Row> = BTreeMap::new();
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| !row.job.control) {
        let Some(other) = first.insert(row.job.title(), row) else { continue };
        for (mutation, verdict) in &row.first {
            if let Some(told) = other.first.get(mutation)
                && told != verdict
            {
                found.push(format!(
                    "{} after {mutation}: {} says {told}, {} says {verdict}",
                    row.job.title(),
                    other.job.resolver_name(),
                    row.job.resolver_name()
                ));
            }
        }
    }
    found
}
