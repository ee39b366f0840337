//! Sessions under the stepper: stop a host before each of its system calls, let the guest strike, continue.
//!
//! The core has its own rig, `step`; here the calls are those of a service, and the guest strikes at each part of the
//! session that the call is about. After every round the canary outside is as it was, nothing of it was read, and what
//! the call promises holds. The same jobs done by path run in the same rig and must be caught.
//!
//! `cargo test --test session_step -- claim` runs the rows whose name contains `claim`. A row of many pairs plays a sample
//! of them, drawn from the seed. With `BENEATH_TEST_FULL` set it plays all, and the guest has every strike at its disposal,
//! not only the one that hurts most; that takes minutes.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod scenarios;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use beneath::ResolverChoice;
use beneath_kit::env;
use beneath_kit::operations::Leaf;
use beneath_kit::rig::{self, Dice, Rig, in_parallel};
use beneath_kit::scene::place::{Devices, Places};
use beneath_kit::scene::stage::PATIENCE;
use beneath_kit::scene::{self, CANARY, Scene};
use beneath_kit::snapshot::{Contents, Snapshot};
use beneath_kit::strikes::{Aim, At, STRIKES, Strike, TO_A_DIRECTORY, TO_A_FILE};
use beneath_kit::trace::{Act, End, Stop, Tracer, VICTIM, be_victim};
use nix::errno::Errno;
use nix::libc;
use scenarios::{After, IDLE, SCENARIOS, SWEEP_IDLE, Scenario, Told};
use tempfile::TempDir;

/// A control is expected to hang on a FIFO.
const LITTLE_PATIENCE: Duration = Duration::from_millis(100);
/// How many pairs of a row are played, unless all are.
const SAMPLE: usize = 100;
const RESOLVERS: [ResolverChoice; 2] = [ResolverChoice::Openat2, ResolverChoice::Walk];

/// Where strikes put what was there, and what they exchange it for.
pub(crate) fn spare(base: &Path) -> PathBuf {
    base.join("exile/old-0")
}

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
            scene::clear(&dir).unwrap();
            std::fs::create_dir(&dir).unwrap();
        }
        scenarios::build(&self.base().join("all"), scenario);
    }

    fn everything(&self) -> Snapshot {
        Snapshot::of(self.base(), &["all", "exile"], Contents::Opened)
    }

    /// Strikes at a path in the guest's side of the session.
    fn strike(base: &Path, strike: &Strike, target: &str) -> std::io::Result<()> {
        let guest = base.join("all/s/guest");
        let spare = spare(base);
        strike.apply(&At {
            entry: &guest.join(target),
            guest: &guest,
            spare: &spare,
            exile: &spare,
            outside: &base.join("outside"),
            twin: "dir",
            sibling: &guest,
            leaf: (&guest.join(target), Leaf::File),
        })
    }
}

#[derive(Default)]
struct Count {
    calls: usize,
    pairs: usize,
    played: usize,
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
                applied = Stage::strike(&base, strike, target).is_ok();
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
            scene::clear(&self.stage.scene.outside()).unwrap();
            Scene::new(self.stage.base(), Leaf::File).unwrap();
            scenarios::fill(&self.stage.scene.outside().join("dir"), CANARY);
            self.canary = self.stage.scene.outside_now(Contents::Read);
        }
        let verdict = match end {
            End::Answered(line) => {
                if line.contains(CANARY) {
                    broken.push("escape: the answer contains the canary".into());
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

    fn play_all(mut self, seed: u64) -> Count {
        let mut row = Count::default();
        let (calls, _, verdict, broken) = self.play(None);
        row.calls = calls.len();
        if verdict != "ok" || !broken.is_empty() {
            row.violations.push((0, String::new(), "none".into(), format!("{verdict} {broken:?}")));
        }
        let stops = calls.iter().enumerate().filter(|(_, call)| !call.starts_with("close("));
        let mut chosen: Vec<_> =
            stops.flat_map(|stop| pairs(self.scenario).map(move |pair| (stop, pair))).collect();
        row.pairs = chosen.len();
        if !env::FULL.is_set() && !self.scenario.control {
            chosen = Dice::new(seed).sample(chosen, env::SAMPLE.number().unwrap_or(SAMPLE));
        }
        row.played = chosen.len();
        for ((index, call), (strike, target)) in chosen {
            let (_, applied, verdict, broken) = self.play(Some((index, strike, target)));
            row.void += usize::from(!applied);
            row.succeeded += usize::from(verdict == "ok");
            *row.verdicts.entry(verdict).or_default() += 1;
            if !broken.is_empty() {
                let name = format!("{target}: {}", strike.name);
                row.violations.push((index, call.clone(), name, broken.join("; ")));
            }
        }
        row
    }
}

/// What leads a host that trusts a path furthest out.
fn worst(target: &str) -> &'static str {
    if target.ends_with(".bin") { TO_A_FILE } else { TO_A_DIRECTORY }
}

fn pairs(scenario: &'static Scenario) -> impl Iterator<Item = (&'static Strike, &'static str)> {
    STRIKES
        .iter()
        .filter(|strike| strike.is_aimed_at(Aim::Session))
        .flat_map(|strike| scenario.targets.iter().map(move |target| (strike, *target)))
        .filter(|(strike, target)| env::FULL.is_set() || strike.name == worst(target))
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
    let columns = &[
        ("call", 36),
        ("resolver", 9),
        ("calls", 6),
        ("pairs", 7),
        ("played", 7),
        ("void", 7),
        ("ok", 7),
        ("violations", 10),
    ];
    rig::main("session_step", columns, &[(VICTIM, &|_| be_victim(scenarios::answer))], run)
}

fn run(rig: &mut Rig) {
    let places = Places::find();
    rig.place = places.any();
    if let Err(reason) = Tracer::start() {
        return rig.add(rig::Row::skipped("all", reason));
    }
    let chosen = SCENARIOS.iter().filter(|scenario| rig.wants(scenario.name));
    let jobs: Vec<(&Scenario, ResolverChoice)> = chosen
        .flat_map(|scenario| {
            let resolvers = if scenario.control { &RESOLVERS[..1] } else { &RESOLVERS[..] };
            resolvers.iter().map(move |resolver| (scenario, *resolver))
        })
        .collect();
    if rig.wants_all() {
        let spared =
            in_parallel(RESOLVERS.to_vec(), |resolver| spared_under_the_lock(resolver, places.any_dir()));
        spared.into_iter().filter_map(Result::err).for_each(|failure| rig.fail(failure));
    }
    let seed = rig.seed;
    rig.add_all(in_parallel(jobs, |(scenario, resolver)| {
        let dir = places.dir(Devices::Live).unwrap_or_else(|| places.any_dir());
        Player::new(scenario, resolver, dir).play_all(seed).row(scenario, resolver)
    }));
}

impl Count {
    fn row(self, scenario: &Scenario, resolver: ResolverChoice) -> rig::Row {
        let resolver = match resolver {
            _ if scenario.control => "path",
            ResolverChoice::Walk => "walk",
            _ => "openat2",
        };
        let mut cells = vec![scenario.name.to_owned(), resolver.to_owned()];
        let numbers = [self.calls, self.pairs, self.played, self.void, self.succeeded, self.violations.len()];
        cells.extend(numbers.map(|number| number.to_string()));
        let broken: Vec<String> = self
            .violations
            .iter()
            .map(|(index, call, strike, what)| format!("before call {index} {call}, {strike}: {what}"))
            .collect();
        let caught = broken.iter().any(|what| what.contains("escape"));
        let failures = match (scenario.control, caught) {
            (true, true) => Vec::new(),
            (true, false) => vec!["was not caught".into()],
            _ if self.played == 0 && self.pairs > 0 => vec!["nothing was played".into()],
            (false, _) => broken,
        };
        rig::Row { cells, failures, details: vec![format!("{:?}", self.verdicts)], skipped: None }
    }
}
