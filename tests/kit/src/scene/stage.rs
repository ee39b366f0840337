//! A scene with a victim, for one scenario.

use std::collections::BTreeSet;
use std::time::Duration;

use tempfile::TempDir;

use super::judge::{Leniency, Round};
use super::lack::Lack;
use super::report::Report;
use super::scenario::Scenario;
use super::victim::Request;
use super::{Scene, clear};
use crate::contender::Contender;
use crate::snapshot::{Contents, Snapshot, is_temporary};
use crate::trace::{Act, Stop, Tracer};

/// What a victim may take at the very most, on a machine busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What is played.
#[derive(Clone, Copy)]
pub struct Play {
    pub scenario: &'static Scenario,
    pub contender: Contender,
    pub lack: Lack,
    /// Whether with full durability.
    pub durable: bool,
}

impl Play {
    /// A scenario with each resolver, and on less able file systems; with the walk only if it is `thorough`, or if the
    /// walk takes other ways there.
    pub fn all(scenario: &'static Scenario, durable: bool, thorough: bool) -> Vec<Self> {
        let mut plays = Vec::new();
        for &contender in scenario.contenders() {
            let all = scenario.lacks();
            let lacks = match contender {
                Contender::Walk if !thorough && !all.contains(&Lack::Moves) => &all[..1],
                _ => all,
            };
            plays.extend(lacks.iter().map(|&lack| Self { scenario, contender, lack, durable }));
        }
        plays
    }
}

/// The states of the guest's tree that were looked at.
pub struct States<'a> {
    pub scene: &'a Scene,
    seen: Vec<Snapshot>,
}

impl States<'_> {
    pub fn look(&mut self) {
        self.seen.push(self.scene.inside_now());
    }
}

pub struct Stage {
    pub play: Play,
    tracer: Tracer,
    scene: Scene,
    outside: Snapshot,
    /// The same with contents, for a last look.
    canary: Snapshot,
    _dir: TempDir,
}

/// What a round on the stage came to.
pub struct Outcome {
    pub report: Option<Report>,
    pub violations: Vec<String>,
    /// Temporary names at the end.
    pub leftovers: usize,
}

impl Outcome {
    pub fn verdict(&self) -> String {
        self.report.as_ref().map_or("none".into(), Report::verdict)
    }
}

impl Stage {
    pub fn new(play: Play, dir: TempDir) -> Self {
        let scene =
            Scene::new(&dir.path().join("scene"), play.scenario.leaf).expect("the scene can be built");
        let outside = scene.outside_now(Contents::Skipped);
        let canary = scene.outside_now(Contents::Read);
        let tracer = Tracer::start().expect("a victim starts like the first");
        Self { play, tracer, scene, outside, canary, _dir: dir }
    }

    /// Plays one round. The hook is asked before each call, may look at the tree as it is then, and the last state it has
    /// looked at is what the end is compared with. What it lets go is denied where the play lacks something.
    pub fn round(
        &mut self,
        patience: Duration,
        hook: &mut dyn FnMut(&Stop, &mut States<'_>) -> Act,
        leniency: &dyn Fn() -> Leniency,
    ) -> Outcome {
        let Play { scenario, contender, lack, durable } = self.play;
        if scenario.cold {
            self.tracer.renew();
        }
        // Before the scene is made anew, so that its files are as young for a new victim as for one that is there already.
        self.tracer.prepare();
        let source = self.scene.reset().expect("the scene can be built");
        let base = self.scene.base.clone();
        let request = Request { scenario: scenario.name.into(), contender, durable, base };
        let mut states = States { scene: &self.scene, seen: Vec::new() };
        let end = self.tracer.round(&request, patience, &mut |stop| {
            let act = hook(stop, &mut states);
            match lack.denies(stop) {
                Some(errno) if act == Act::Go => Act::Fail(errno),
                _ => act,
            }
        });
        let seen = states.seen;
        let after = self.scene.inside_now();
        let outside_end = self.scene.outside_now(Contents::Skipped);
        let (report, unanswered) = end.answer();
        let mut violations = Vec::new();
        if !seen.is_empty() {
            let outside = [&self.outside, &outside_end];
            let round = Round { scenario, source, seen: &seen, end: &after, outside, leniency: leniency() };
            violations = round.violations(report.as_ref());
        }
        violations.extend(unanswered);
        if self.outside != outside_end {
            self.rebuild_canary();
        }
        let leftovers = after.iter().filter(|(path, _)| is_temporary(path)).count();
        Outcome { report, violations, leftovers }
    }

    fn rebuild_canary(&mut self) {
        clear(&self.scene.outside()).expect("the canary can be rebuilt");
        self.scene = Scene::new(&self.scene.base, self.scene.leaf_kind).expect("the canary can be rebuilt");
        self.outside = self.scene.outside_now(Contents::Skipped);
        self.canary = self.scene.outside_now(Contents::Read);
    }

    /// The calls of a round in which nothing happens, with what `about` says of each, and how it ended.
    ///
    /// A host that waits for a name to settle may ask more often on a busy machine, so two rounds of a few must agree.
    pub fn undisturbed<T>(&mut self, about: &dyn Fn(&Stop, &Scene) -> T) -> (Vec<T>, Outcome) {
        let mut lengths = BTreeSet::new();
        loop {
            let mut calls = Vec::new();
            let mut outcome = self.round(
                PATIENCE,
                &mut |stop, states| {
                    if stop.index == 0 {
                        states.look();
                    }
                    calls.push(about(stop, states.scene));
                    Act::Go
                },
                &Leniency::default,
            );
            if !lengths.insert(calls.len()) {
                return (calls, outcome);
            }
            if lengths.len() > 8 {
                outcome.violations.push("the number of calls differs from run to run".into());
                return (calls, outcome);
            }
        }
    }

    /// What has changed in the canary's contents that its times did not show.
    pub fn corrupted(&self) -> Option<String> {
        let change = self.canary.difference(&self.scene.outside_now(Contents::Read))?;
        Some(format!("escape, seen in the end: {change}"))
    }
}
