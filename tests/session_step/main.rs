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

#[cfg(feature = "queue")]
mod queue;
mod scenarios;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use beneath_kit::operations::Leaf;
use beneath_kit::rig::{self, Dice, Rig, in_parallel};
use beneath_kit::scene::place::{Devices, Places};
use beneath_kit::scene::played::{COLUMNS, LITTLE_PATIENCE, Played};
use beneath_kit::scene::report::Report;
use beneath_kit::scene::stage::{Outcome, PATIENCE};
use beneath_kit::scene::victim::Request;
use beneath_kit::scene::{self, CANARY, Scene};
use beneath_kit::snapshot::{Contents, Snapshot};
use beneath_kit::strikes::{Aim, At, STRIKES, Strike, TO_A_DIRECTORY, TO_A_FILE};
use beneath_kit::trace::{Act, End, Tracer, VICTIM, be_victim};
use beneath_kit::{Contender, env};
use scenarios::{After, Scenario, all_scenarios};
use tempfile::TempDir;

/// How many pairs of a row are played, unless all are.
const SAMPLE: usize = 40;

/// Where strikes put what was there, and what they exchange it for.
pub(crate) fn spare(base: &Path) -> PathBuf {
    base.join("exile/old-0")
}

/// A strike at a path in the guest's side of the session.
#[derive(Clone, Copy)]
struct Blow {
    strike: &'static Strike,
    target: &'static str,
}

impl Blow {
    fn name(&self) -> String {
        format!("{}: {}", self.target, self.strike.name)
    }

    fn apply(&self, base: &Path) -> io::Result<()> {
        let guest = base.join("all/s/guest");
        let spare = spare(base);
        self.strike.apply(&At {
            entry: &guest.join(self.target),
            guest: &guest,
            spare: &spare,
            exile: &spare,
            outside: &base.join("outside"),
            twin: "dir",
            sibling: &guest,
            leaf: (&guest.join(self.target), Leaf::File),
        })
    }

    /// Whether it leads a host that trusts a path furthest out.
    fn is_worst(&self) -> bool {
        let is_file = [".bin", ".json"].iter().any(|end| self.target.ends_with(end));
        self.strike.name == if is_file { TO_A_FILE } else { TO_A_DIRECTORY }
    }
}

fn blows(scenario: &'static Scenario) -> impl Iterator<Item = Blow> {
    let aimed = STRIKES.iter().filter(|strike| strike.is_aimed_at(Aim::Session));
    aimed
        .flat_map(|strike| scenario.targets.iter().map(move |target| Blow { strike, target }))
        .filter(|blow| env::FULL.is_set() || scenario.all_strikes || blow.is_worst())
}

struct Player {
    scenario: &'static Scenario,
    contender: Contender,
    tracer: Tracer,
    scene: Scene,
    canary: Snapshot,
    _dir: TempDir,
}

/// The canary, whose names are those of the session too.
fn build_outside(base: &Path) -> (Scene, Snapshot) {
    let scene = Scene::new(base, Leaf::File).unwrap();
    scenarios::fill(&scene.outside().join("dir"), CANARY);
    let canary = scene.outside_now(Contents::Read);
    (scene, canary)
}

impl Player {
    fn new(scenario: &'static Scenario, contender: Contender, dir: TempDir) -> Self {
        let (scene, canary) = build_outside(&dir.path().join("stage"));
        Self { scenario, contender, tracer: Tracer::start().unwrap(), scene, canary, _dir: dir }
    }

    fn reset(&self) {
        for dir in ["all", "exile"].map(|dir| self.scene.base.join(dir)) {
            scene::clear(&dir).unwrap();
            std::fs::create_dir(&dir).unwrap();
        }
        scenarios::build(&self.scene.base.join("all"), self.scenario);
    }

    /// Plays one round; gives the calls of an undisturbed one, and whether the strike found something to act on.
    fn play(&mut self, blow: Option<(usize, Blow)>) -> (Vec<String>, bool, Outcome) {
        self.reset();
        let (scenario, base) = (self.scenario, self.scene.base.clone());
        let (mut calls, mut applied) = (Vec::new(), blow.is_none());
        let patience = if self.contender == Contender::Control { LITTLE_PATIENCE } else { PATIENCE };
        let request = Request {
            scenario: scenario.name.into(),
            contender: self.contender,
            durable: false,
            base: base.clone(),
        };
        let end: End<Report> = self.tracer.round(&request, patience, &mut |stop| {
            match blow {
                None => calls.push(stop.describe()),
                Some((at, blow)) if at == stop.index => {
                    applied = blow.apply(&base).is_ok();
                    if scenario.meanwhile.is_none() {
                        return Act::Release;
                    }
                }
                Some(_) => {}
            }
            scenario.meanwhile.map_or(Act::Go, |meanwhile| meanwhile(stop, &base))
        });
        let (report, unanswered) = end.answer();
        let mut violations: Vec<String> = unanswered.into_iter().collect();
        if let Some(change) = self.canary.difference(&self.scene.outside_now(Contents::Read)) {
            violations.push(format!("escape: {change}"));
            scene::clear(&self.scene.outside()).unwrap();
            (self.scene, self.canary) = build_outside(&base);
        }
        if let Some(report) = &report {
            violations.extend(report.faults().into_iter().chain(report.untyped()));
        }
        if let Some(report) = report.as_ref().filter(|_| applied) {
            let after = After { base: &base, report, target: blow.map(|(_, blow)| blow.target) };
            violations.extend(after.torn(&Snapshot::of(&base, &["all", "exile"], Contents::Opened)));
            violations.extend((scenario.judge)(&after));
        }
        (calls, applied, Outcome { report, violations, leftovers: 0 })
    }

    fn play_all(mut self, seed: u64) -> Played {
        let (calls, _, undisturbed) = self.play(None);
        let stops = calls.iter().enumerate().filter(|(_, call)| !call.starts_with("close("));
        let mut chosen: Vec<(usize, Blow)> =
            stops.flat_map(|(at, _)| blows(self.scenario).map(move |blow| (at, blow))).collect();
        let mut played = Played::new(self.scenario.name.into(), self.contender, calls, undisturbed);
        played.pairs = chosen.len();
        if !env::FULL.is_set() && self.contender != Contender::Control {
            chosen = Dice::new(seed).sample(chosen, env::SAMPLE.number().unwrap_or(SAMPLE));
        }
        for (at, blow) in chosen {
            let (_, applied, outcome) = self.play(Some((at, blow)));
            played.add(&[(at, blow.name())], usize::from(applied), &outcome);
        }
        played
    }
}

fn main() -> ExitCode {
    rig::main("session_step", COLUMNS, &[(VICTIM, &|_| be_victim(scenarios::answer))], run)
}

fn run(rig: &mut Rig) {
    let places = Places::find();
    rig.place = places.any();
    if let Err(reason) = Tracer::start() {
        return rig.add(rig::Row::skipped("all", reason));
    }
    let chosen = all_scenarios().filter(|scenario| rig.wants(scenario.name));
    let jobs: Vec<(&Scenario, Contender)> = chosen
        .flat_map(|scenario| scenario.contenders.iter().map(move |contender| (scenario, *contender)))
        .collect();
    let seed = rig.seed;
    rig.add_all(in_parallel(jobs, |(scenario, contender)| {
        let dir = places.dir(Devices::Live).unwrap_or_else(|| places.any_dir());
        Player::new(scenario, contender, dir).play_all(seed).row(&[])
    }));
}
