//! A scene with a victim, for one scenario.

use std::time::Duration;

use beneath::{Durability, Links, ResolverChoice};
use tempfile::TempDir;

use beneath_kit::trace::judge::{Leniency, Round};
use beneath_kit::trace::lack::Lack;
use beneath_kit::trace::naive::Control;
use beneath_kit::trace::scenario::{Effect, Report, Request, SCENARIOS, Scenario, is_cold};
use beneath_kit::trace::scene::{self, Contents, Leaf, Scene, Snapshot};
use beneath_kit::trace::{Act, End, Stop, Tracer};

const PATIENCE: Duration = Duration::from_secs(10);

/// What is played.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    pub(crate) name: &'static str,
    pub(crate) leaf: Leaf,
    pub(crate) effect: Effect,
    pub(crate) resolver: ResolverChoice,
    pub(crate) lack: Lack,
    pub(crate) durability: Durability,
    pub(crate) control: bool,
}

impl Play {
    /// The scenarios that `wanted` picks, with each resolver, and with less able file systems.
    pub(crate) fn all(wanted: impl Fn(&Scenario) -> bool) -> Vec<Self> {
        let mut plays = Vec::new();
        for scenario in SCENARIOS.iter().filter(|scenario| wanted(scenario)) {
            for resolver in [ResolverChoice::Openat2, ResolverChoice::Walk] {
                let lacks: &[Lack] = match (resolver, scenario.effect) {
                    (ResolverChoice::Walk, _) if scenario.links == Links::FollowBeneath => &[],
                    (_, Effect::RemovesTree(_)) => &[Lack::Nothing, Lack::Moves],
                    (ResolverChoice::Walk, _) => &[Lack::Nothing],
                    (_, Effect::Creates | Effect::Replaces) => {
                        &[Lack::Nothing, Lack::UnnamedFiles, Lack::EmptyPath, Lack::HardLinks]
                    }
                    (_, Effect::Moves(..)) => &[Lack::Nothing, Lack::NoReplace],
                    _ => &[Lack::Nothing],
                };
                plays.extend(lacks.iter().map(|&lack| Self {
                    name: scenario.name,
                    leaf: scenario.leaf,
                    effect: scenario.effect,
                    resolver,
                    lack,
                    durability: Durability::Full,
                    control: false,
                }));
            }
        }
        plays
    }

    pub(crate) fn control(control: &Control) -> Self {
        Self {
            name: control.name,
            leaf: control.leaf,
            effect: control.effect,
            resolver: ResolverChoice::Openat2,
            lack: Lack::Nothing,
            durability: Durability::None,
            control: true,
        }
    }

    pub(crate) fn title(&self, part: &str) -> String {
        let resolver = match self.resolver {
            _ if self.control => "",
            ResolverChoice::Walk => ", walk",
            _ => ", openat2",
        };
        let lack = match self.lack {
            Lack::Nothing => String::new(),
            lack => format!(", {}", lack.name()),
        };
        format!("{part}: {}{resolver}{lack}", self.name)
    }
}

pub(crate) struct Stage {
    pub(crate) play: Play,
    tracer: Tracer,
    scene: Scene,
    outside: Snapshot,
    _dir: TempDir,
}

/// What a round on the stage came to.
pub(crate) struct Outcome {
    pub(crate) report: Option<Report>,
    pub(crate) violations: Vec<String>,
    pub(crate) leftovers: usize,
}

impl Stage {
    pub(crate) fn new(play: Play, dir: TempDir) -> Self {
        let scene = Scene::new(&dir.path().join("scene"), play.leaf).expect("the scene can be built");
        let outside = scene.outside_now(Contents::Read);
        let tracer = Tracer::start().expect("a victim starts like the first");
        Self { play, tracer, scene, outside, _dir: dir }
    }

    /// Plays one round. The hook is not asked about calls that the lack denies anyway.
    pub(crate) fn round(
        &mut self,
        hook: &mut dyn FnMut(&Stop) -> Act,
        leniency: &dyn Fn() -> Leniency,
    ) -> Outcome {
        let source = self.scene.reset().expect("the scene can be built");
        let before = self.scene.inside_now();
        let request = Request {
            scenario: self.play.name,
            base: &self.scene.base,
            resolver: self.play.resolver,
            durability: self.play.durability,
        };
        let lack = self.play.lack;
        if is_cold(self.play.name) {
            self.tracer.renew();
        }
        let end = self.tracer.round(&request.line(), PATIENCE, &mut |stop| {
            let act = hook(stop);
            match lack.denies(stop) {
                Some(errno) if act == Act::Go => Act::Fail(errno),
                _ => act,
            }
        });
        let after = self.scene.inside_now();
        let outside_end = self.scene.outside_now(Contents::Read);
        let report = match &end {
            End::Answered(line) => Some(Report::parse(line)),
            _ => None,
        };
        let round = Round {
            effect: self.play.effect,
            source,
            earlier: vec![&before],
            attacked: &before,
            end: &after,
            outside_before: &self.outside,
            outside_end: &outside_end,
            leniency: leniency(),
        };
        let mut violations = round.violations(report.as_ref());
        match &end {
            End::Answered(_) | End::Killed => {}
            End::Hung => violations.push("hang".into()),
            End::Died(how) => violations.push(format!("the victim died: {how}")),
        }
        let leftovers =
            after.iter().filter(|(path, _)| beneath_kit::trace::judge::is_temporary(path)).count();
        Outcome { report, violations, leftovers }
    }

    /// The calls of a round in which nothing happens, and its report.
    pub(crate) fn undisturbed(&mut self) -> (Vec<Stop>, Outcome) {
        let mut stops = Vec::new();
        let outcome = self.round(
            &mut |stop| {
                stops.push(*stop);
                Act::Go
            },
            &Leniency::default,
        );
        (stops, outcome)
    }

    /// Whether the data stands at the leaf at this moment.
    pub(crate) fn published(scene: &Scene) -> bool {
        std::fs::read(scene.root().join("g/p/leaf")).is_ok_and(|now| now == scene::data().as_bytes())
    }

    pub(crate) fn scene(&self) -> Scene {
        self.scene.clone()
    }
}
