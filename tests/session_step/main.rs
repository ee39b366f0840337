//! Sessions under the stepper: stop a host before each of its system calls, let the guest strike, continue.
//!
//! The core has its own rig, `step`; here the calls are those of a service, and the guest strikes at each part of the
//! session that the call is about. After every round the canary outside is as it was, nothing of it was read, and what
//! the call promises holds. The same jobs done by path run in the same rig and must be caught.
//!
//! `cargo test --test session_step -- claim` runs the rows whose name contains `claim`. With `BENEATH_TEST_FULL` set the
//! guest has every strike at its disposal, not only the one that hurts most; that takes minutes.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../session/naive.rs"]
#[allow(dead_code)]
mod naive;
mod scenarios;
mod strikes;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use beneath::ResolverChoice;
use beneath_kit::trace::place::{Devices, Places};
use beneath_kit::trace::scene::{CANARY, Contents, Leaf, Scene, Snapshot};
use beneath_kit::trace::{Act, End, Stop, Tracer};
use nix::errno::Errno;
use nix::libc;
use scenarios::{After, IDLE, SCENARIOS, SWEEP_IDLE, Scenario, Told};
use strikes::{STRIKES, Strike};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(10);
/// A control is expected to hang on a FIFO.
const LITTLE_PATIENCE: Duration = Duration::from_millis(100);
const RESOLVERS: [ResolverChoice; 2] = [ResolverChoice::Openat2, ResolverChoice::Walk];

/// The canary, whose names are those of the session, and the session itself.
struct Stage {
    scene: Scene,
    _dir: TempDir,
}

impl Stage {
    fn new(dir: TempDir) -> Self {
        let base = dir.path().join("stage");
        let scene = Scene::new(&base, Leaf::File).unwrap();
        scenarios::fill(&scene.outside().join("dir"), CANARY);
        Self { scene, _dir: dir }
    }

    fn base(&self) -> &Path {
        &self.scene.base
    }

    fn reset(&self, scenario: &Scenario) {
        for dir in ["all", "exile"].map(|dir| self.base().join(dir)) {
            beneath_kit::trace::scene::clear(&dir).unwrap();
            std::fs::create_dir(&dir).unwrap();
        }
        scenarios::build(&self.base().join("all"), scenario);
    }

    fn everything(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for dir in ["all", "exile"] {
            snapshot.add(self.base(), Path::new(dir), Contents::Read);
        }
        snapshot
    }
}

#[derive(Default)]
struct Row {
    calls: usize,
    pairs: usize,
    void: usize,
    succeeded: usize,
    /// Index and text of the call, the strike, what was broken.
    violations: Vec<(usize, String, String, String)>,
    verdicts: BTreeMap<String, usize>,
}

struct Player {
    scenario: &'static Scenario,
    resolver: ResolverChoice,
    stage: Stage,
    tracer: Tracer,
    canary: Snapshot,
}

impl Player {
    fn new(scenario: &'static Scenario, resolver: ResolverChoice, dir: TempDir) -> Self {
        let stage = Stage::new(dir);
        let canary = stage.scene.outside_now(Contents::Read);
        Self { scenario, resolver, stage, tracer: Tracer::start().unwrap(), canary }
    }

    /// Plays one round; gives the calls it made, whether the strike found something to act on, and what was broken.
    fn play(&mut self, strike: Option<(usize, &Strike, &str)>) -> (Vec<String>, bool, String, Vec<String>) {
        self.stage.reset(self.scenario);
        let request = scenarios::request(self.scenario, self.resolver, self.stage.base());
        let (mut calls, mut applied) = (Vec::new(), false);
        let (scenario, base) = (self.scenario, self.stage.base().to_path_buf());
        let patience = if scenario.control { LITTLE_PATIENCE } else { PATIENCE };
        let end = self.tracer.round(&request, patience, &mut |stop| {
            if strike.is_none() {
                calls.push(stop.describe());
            }
            if let Some((at, strike, target)) = strike
                && at == stop.index
            {
                applied = strike.apply(&base, target).is_ok();
                if !scenario.immovable {
                    return Act::Release;
                }
            }
            deny(scenario, stop)
        });
        let mut broken = Vec::new();
        let now = self.stage.scene.outside_now(Contents::Read);
        if let Some(change) = self.canary.difference(&now) {
            broken.push(format!("escape: {change}"));
            beneath_kit::trace::scene::clear(&self.stage.scene.outside()).unwrap();
            Scene::new(self.stage.base(), Leaf::File).unwrap();
            scenarios::fill(&self.stage.scene.outside().join("dir"), CANARY);
            self.canary = self.stage.scene.outside_now(Contents::Read);
        }
        let verdict = match end {
            End::Answered(line) => {
                if line.contains(CANARY) {
                    broken.push("escape: the canary was told".into());
                }
                let told = Told::parse(&line);
                broken.extend(told.faults());
                if applied || strike.is_none() {
                    let target = strike.map(|(_, _, target)| target);
                    let after = After { base: self.stage.base(), told: &told, target };
                    broken.extend(after.torn(&self.stage.everything()));
                    broken.extend((scenario.judge)(&after));
                }
                told.verdict()
            }
            End::Hung => {
                broken.push("hang".into());
                "hang".into()
            }
            other => {
                broken.push(format!("victim: {other:?}"));
                "dead".into()
            }
        };
        (calls, applied, verdict, broken)
    }

    fn play_all(mut self) -> Row {
        let mut row = Row::default();
        let (calls, _, verdict, broken) = self.play(None);
        row.calls = calls.len();
        if verdict != "ok" || !broken.is_empty() {
            row.violations.push((0, String::new(), "none".into(), format!("{verdict} {broken:?}")));
        }
        for (index, call) in calls.iter().enumerate().filter(|(_, call)| !call.starts_with("close(")) {
            for (strike, target) in pairs(self.scenario) {
                let (_, applied, verdict, broken) = self.play(Some((index, strike, target)));
                row.pairs += 1;
                row.void += usize::from(!applied);
                row.succeeded += usize::from(verdict == "ok");
                *row.verdicts.entry(verdict).or_default() += 1;
                if !broken.is_empty() {
                    let name = format!("{target}: {}", strike.name);
                    row.violations.push((index, call.clone(), name, broken.join("; ")));
                }
            }
        }
        row
    }
}

fn full() -> bool {
    std::env::var_os("BENEATH_TEST_FULL").is_some()
}

fn pairs(scenario: &'static Scenario) -> impl Iterator<Item = (&'static Strike, &'static str)> {
    STRIKES
        .iter()
        .flat_map(|strike| scenario.targets.iter().map(move |target| (strike, *target)))
        .filter(|(strike, target)| full() || strike.name == strikes::worst(target))
}

/// A sweep finds the session idle, and before it has the lock another host does some work: that is not swept away.
fn spared_under_the_lock(resolver: ResolverChoice, dir: TempDir) -> Result<(), String> {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == SWEEP_IDLE).unwrap();
    let mut player = Player::new(scenario, resolver, dir);
    player.stage.reset(scenario);
    std::thread::sleep(IDLE + Duration::from_millis(50));
    let base = player.stage.base().to_path_buf();
    let request = scenarios::request(scenario, resolver, &base);
    let mut worked = None;
    let _ = player.tracer.round(&request, PATIENCE, &mut |stop| {
        // The first is that of the session `s`.
        if stop.call.is(libc::SYS_flock) && worked.is_none() {
            worked = Some(scenarios::deliver_under_the_lock(&base));
        }
        Act::Go
    });
    let kept = std::fs::read(base.join("all/s/guest/inbox/42/one.bin"));
    let swept = std::fs::symlink_metadata(base.join("all/t")).is_err();
    match (worked, kept, swept) {
        (Some(Ok(())), Ok(kept), true) if kept == scenarios::hosts().as_bytes() => Ok(()),
        other => Err(format!("{SWEEP_IDLE} ({resolver:?}): {other:?}")),
    }
}

/// A host that may not move what the guest owns is made so by refusing the move of a message to another directory. It may
/// still rename it.
fn deny(scenario: &Scenario, stop: &Stop) -> Act {
    let [from, _, to, ..] = stop.call.arguments;
    let moves = stop.call.is(libc::SYS_renameat2) && stop.text(1) == "42" && from != to;
    if scenario.immovable && moves { Act::Fail(Errno::EACCES) } else { Act::Go }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == beneath_kit::trace::VICTIM) {
        std::panic::set_hook(Box::new(|_| {}));
        beneath_kit::trace::serve(scenarios::answer);
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let places = Places::find();
    if let Err(reason) = Tracer::start() {
        println!("session_step: skipped: {reason}\n0 passed, 0 failed");
        return ExitCode::SUCCESS;
    }
    let chosen = |scenario: &&Scenario| {
        filters.is_empty() || filters.iter().any(|filter| scenario.name.contains(filter.as_str()))
    };
    let jobs: Vec<(&Scenario, ResolverChoice)> = SCENARIOS
        .iter()
        .filter(chosen)
        .flat_map(|scenario| {
            let resolvers = if scenario.control { &RESOLVERS[..1] } else { &RESOLVERS[..] };
            resolvers.iter().map(move |resolver| (scenario, *resolver))
        })
        .collect();
    let start = Instant::now();
    let mut failures = Vec::new();
    if filters.is_empty() {
        let spared = beneath_kit::trace::in_parallel(RESOLVERS.to_vec(), |resolver| {
            spared_under_the_lock(resolver, places.any_dir())
        });
        failures.extend(spared.into_iter().filter_map(Result::err));
    }
    let rows = beneath_kit::trace::in_parallel(jobs, |(scenario, resolver)| {
        let dir = places.dir(Devices::Live).unwrap_or_else(|| places.any_dir());
        (scenario, resolver, Player::new(scenario, resolver, dir).play_all())
    });
    report(&rows, failures, start)
}

fn report(rows: &[(&Scenario, ResolverChoice, Row)], mut failures: Vec<String>, start: Instant) -> ExitCode {
    let verbose = std::env::var_os("STEP_VERBOSE").is_some();
    println!(
        "{:36} {:9} {:>6} {:>7} {:>7} {:>7} {:>10}",
        "call", "resolver", "calls", "pairs", "void", "ok", "violations"
    );
    for (scenario, resolver, row) in rows {
        let resolver = match resolver {
            _ if scenario.control => "path",
            ResolverChoice::Walk => "walk",
            _ => "openat2",
        };
        println!(
            "{:36} {resolver:9} {:>6} {:>7} {:>7} {:>7} {:>10}",
            scenario.name,
            row.calls,
            row.pairs,
            row.void,
            row.succeeded,
            row.violations.len()
        );
        if verbose {
            println!("  {:?}", row.verdicts);
        }
        if scenario.control {
            let escapes = row.violations.iter().filter(|(.., what)| what.contains("escape")).count();
            if escapes == 0 {
                failures.push(format!("{} was not caught", scenario.name));
            }
            continue;
        }
        for (index, call, strike, what) in &row.violations {
            failures
                .push(format!("{} ({resolver}) before call {index} {call}, {strike}: {what}", scenario.name));
        }
    }
    for failure in failures.iter().take(60) {
        println!("FAILED {failure}");
    }
    let pairs: usize = rows.iter().map(|(.., row)| row.pairs).sum();
    println!("{pairs} pairs in {:.1} s", start.elapsed().as_secs_f64());
    println!("{} rows, {} failed", rows.len(), failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
