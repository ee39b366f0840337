//! A scene with a victim, for one scenario.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use beneath::{Durability, ResolverChoice};
use tempfile::TempDir;

use super::judge::{Leniency, Round};
use super::lack::Lack;
use super::scenario::Scenario;
use super::victim::{Report, Request};
use super::{Scene, clear};
use crate::snapshot::{Contents, Snapshot, is_temporary};
use crate::trace::{Act, End, Stop, Tracer};

/// What a victim may take at the very most, on a machine busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What is played.
#[derive(Clone, Copy)]
pub struct Play {
    pub scenario: &'static Scenario,
    pub resolver: ResolverChoice,
    pub lack: Lack,
    pub durability: Durability,
}

impl Play {
    /// A scenario with each resolver, and on less able file systems; with the walk only if it is `thorough`, or if the
    /// walk takes other ways there.
    pub fn all(scenario: &'static Scenario, durability: Durability, thorough: bool) -> Vec<Self> {
        let mut plays = Vec::new();
        for &resolver in scenario.resolvers() {
            let all = scenario.lacks();
            let lacks = match resolver {
                ResolverChoice::Walk if !thorough && !all.contains(&Lack::Moves) => &all[..1],
                _ => all,
            };
            plays.extend(lacks.iter().map(|&lack| Self { scenario, resolver, lack, durability }));
        }
        plays
    }

    pub fn resolver_name(&self) -> &'static str {
        match self.resolver {
            _ if self.scenario.is_control() => "path",
            ResolverChoice::Walk => "walk",
            _ => "openat2",
        }
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
        let source = self.scene.reset().expect("the scene can be built");
        let Play { scenario, resolver, lack, durability } = self.play;
        let request = Request { scenario: scenario.name, base: &self.scene.base, resolver, durability };
        let mut states = States { scene: &self.scene, seen: Vec::new() };
        if scenario.cold {
            self.tracer.renew();
        }
        let end = self.tracer.round(&request.line(), patience, &mut |stop| {
            let act = hook(stop, &mut states);
            match lack.denies(stop) {
                Some(errno) if act == Act::Go => Act::Fail(errno),
                _ => act,
            }
        });
        let mut seen = states.seen;
        let after = self.scene.inside_now();
        let outside_end = self.scene.outside_now(Contents::Skipped);
        let report = match &end {
            End::Answered(line) => Some(Report::parse(line)),
            _ => None,
        };
        let mut violations = Vec::new();
        if let Some(attacked) = seen.pop() {
            let round = Round {
                scenario,
                source,
                earlier: if seen.is_empty() { vec![&attacked] } else { seen.iter().collect() },
                attacked: &attacked,
                end: &after,
                outside_before: &self.outside,
                outside_end: &outside_end,
                leniency: leniency(),
            };
            violations = round.violations(report.as_ref());
        }
        match &end {
            End::Answered(_) | End::Killed => {}
            End::Hung => violations.push("hang".into()),
            End::Died(how) => violations.push(format!("the victim died: {how}")),
        }
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

    pub fn base(&self) -> &Path {
        &self.scene.base
    }
}
