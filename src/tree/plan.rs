//! What a merge does, decided from three trees alone.
//!
//! | base, ours, theirs | |
//! |---|---|
//! | theirs = base | ours stays |
//! | ours = theirs | nothing to do |
//! | ours = base | theirs is taken: written, or removed here |
//! | all differ, two files or links | conflict: both stay |
//! | changed here, deleted there | conflict: ours stays |
//! | deleted here, changed there | conflict: theirs comes back |
//! | a directory against anything else | conflict: the directory has the name, the other goes beside |
//! | unknown here or there | nothing, and the base stays as it was |
//!
//! A directory equals a directory: what they contain is compared by itself.

use std::collections::BTreeSet;

use super::contents::{State, Tree};
use super::guard::{Measure, Verdict, judge};
use super::leaf::Leaf;
use super::report::{Approval, Guard, OnConflict, Why};
use crate::name::GuestPath;

/// What is done at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step<'t> {
    pub(crate) path: &'t GuestPath,
    pub(crate) act: Act<'t>,
}

/// The order is that of the work: names become free before they are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act<'t> {
    /// Ours goes, if it still is what was seen.
    Remove(&'t Leaf),
    /// Ours gets a name beside.
    Aside(&'t Leaf),
    /// Ours goes, if it is an empty directory.
    RemoveDirectory,
    MakeDirectory,
    /// Theirs gets the name, in place of what was seen there.
    Put {
        theirs: &'t Leaf,
        over: Option<&'t Leaf>,
        keep: Keep,
    },
    /// Theirs gets a name beside.
    PutBeside(&'t Leaf),
}

/// What becomes of what was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    InTrash,
    Beside,
}

/// All steps, and what is said of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan<'t> {
    pub(crate) steps: Vec<Step<'t>>,
    pub(crate) conflicts: Vec<(&'t GuestPath, Why)>,
    /// Removals that the guard does not let through.
    pub(crate) held: BTreeSet<&'t GuestPath>,
    /// What an approval of the held removals must say.
    pub(crate) approval: Option<Approval>,
    /// Whether what would be held was approved.
    pub(crate) approved: bool,
    /// Paths that are not known on one side, and what must wait for others. The base keeps what it has of them.
    pub(crate) open: BTreeSet<&'t GuestPath>,
    /// How many changes of ours theirs does not have.
    pub(crate) ours_only: u64,
}

/// What decides a plan besides the trees.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'r> {
    pub(crate) on_conflict: OnConflict,
    pub(crate) guard: Guard,
    /// Whether a removal at this path must be held, however few there are.
    pub(crate) hold: &'r dyn Fn(&GuestPath) -> bool,
    /// How the guard measures a loss.
    pub(crate) measure: Measure<'r>,
}

/// What is to be done to ours, so that it has the changes from `base` to `theirs`.
pub(crate) fn plan<'t>(base: &'t Tree, ours: &'t Tree, theirs: &'t Tree, rules: Rules<'_>) -> Plan<'t> {
    let on_conflict = rules.on_conflict;
    let mut plan = Plan::default();
    let paths: BTreeSet<&GuestPath> =
        [base, ours, theirs].into_iter().flat_map(|tree| tree.leaves.keys()).collect();
    for path in paths {
        // What is not known of the base cannot be seen to have changed: as if it had not been there.
        let was = match base.state(path) {
            State::Unknown => State::Absent,
            known => known,
        };
        let (here, there) = (ours.state(path), theirs.state(path));
        match () {
            () if here == State::Unknown || there == State::Unknown => {
                plan.open.insert(path);
            }
            () if here == there => {}
            () if there == was => plan.ours_only += 1,
            () if here == was => plan.take(path, here, there, (ours, theirs)),
            () => plan.conflict(path, (here, there), (ours, theirs), on_conflict),
        }
    }
    plan.unblock(ours, on_conflict);
    plan.hold(base, (ours, theirs), rules);
    plan.steps.sort_by_key(|step| step.act.phase());
    plan
}

impl Act<'_> {
    /// Names become free before they are taken, directories are made before what they contain.
    fn phase(&self) -> u8 {
        match self {
            Self::Remove(_) | Self::Aside(_) => 0,
            Self::RemoveDirectory => 1,
            Self::MakeDirectory | Self::Put { .. } | Self::PutBeside(_) => 2,
        }
    }
}

impl<'t> Plan<'t> {
    fn push(&mut self, path: &'t GuestPath, act: Act<'t>) {
        self.steps.push(Step { path, act });
    }

    /// Only they have changed it.
    fn take(
        &mut self,
        path: &'t GuestPath,
        here: State<'t>,
        there: State<'t>,
        (ours, theirs): (&'t Tree, &'t Tree),
    ) {
        match (here, there) {
            (State::Leaf(over), State::Leaf(leaf)) => {
                self.push(path, Act::Put { theirs: leaf, over: Some(over), keep: Keep::InTrash });
            }
            (State::Leaf(leaf), _) => self.push(path, Act::Remove(leaf)),
            (State::Directory, _) if ours.is_empty_directory(path) => self.push(path, Act::RemoveDirectory),
            // What it contains is decided by itself.
            _ => {}
        }
        match (here, there) {
            (State::Leaf(_), State::Leaf(_)) => {}
            (_, State::Leaf(leaf)) => {
                self.push(path, Act::Put { theirs: leaf, over: None, keep: Keep::InTrash });
            }
            (_, State::Directory) if theirs.is_empty_directory(path) => self.push(path, Act::MakeDirectory),
            _ => {}
        }
    }

    /// Both have changed it.
    fn conflict(
        &mut self,
        path: &'t GuestPath,
        sides: (State<'t>, State<'t>),
        (_, theirs): (&'t Tree, &'t Tree),
        policy: OnConflict,
    ) {
        let why = match sides {
            (State::Leaf(_), State::Leaf(_)) => Why::BothChanged,
            (_, State::Absent) => Why::DeletedThere,
            (State::Absent, _) => Why::DeletedHere,
            _ => Why::Kinds,
        };
        self.conflicts.push((path, why));
        if policy == OnConflict::KeepTarget {
            return;
        }
        let made = theirs.is_empty_directory(path).then_some(Act::MakeDirectory);
        match sides {
            (State::Leaf(over), State::Leaf(leaf)) if policy == OnConflict::TakeSource => {
                self.push(path, Act::Put { theirs: leaf, over: Some(over), keep: Keep::Beside });
            }
            (State::Leaf(_) | State::Directory, State::Leaf(leaf)) => self.push(path, Act::PutBeside(leaf)),
            (State::Leaf(leaf), State::Absent) if policy == OnConflict::TakeSource => {
                self.push(path, Act::Aside(leaf));
            }
            (State::Leaf(leaf), State::Directory) => {
                self.push(path, Act::Aside(leaf));
                made.into_iter().for_each(|act| self.push(path, act));
            }
            (State::Absent, State::Leaf(leaf)) => {
                self.push(path, Act::Put { theirs: leaf, over: None, keep: Keep::InTrash });
            }
            (State::Absent, State::Directory) => made.into_iter().for_each(|act| self.push(path, act)),
            _ => {}
        }
    }

    /// What can arrive only where something of ours stays in the way is a conflict, too.
    fn unblock(&mut self, ours: &'t Tree, policy: OnConflict) {
        let leaves = |act: &Act<'_>| matches!(act, Act::Remove(_) | Act::Aside(_) | Act::RemoveDirectory);
        let freed: BTreeSet<&GuestPath> =
            self.steps.iter().filter(|step| leaves(&step.act)).map(|step| step.path).collect();
        let is_file = |path: &GuestPath| matches!(ours.state(path), State::Leaf(_)) && !freed.contains(path);
        let below_a_file = |path: &GuestPath| {
            std::iter::successors(path.parent(), GuestPath::parent).any(|above| is_file(&above))
        };
        let known: BTreeSet<&GuestPath> = self.conflicts.iter().map(|(path, _)| *path).collect();
        for step in std::mem::take(&mut self.steps) {
            let arrives = matches!(step.act, Act::Put { over: None, .. } | Act::MakeDirectory);
            let in_use = matches!(step.act, Act::Put { .. }) && ours.is_in_use(step.path, &freed);
            if !arrives || !(below_a_file(step.path) || in_use) {
                self.steps.push(step);
                continue;
            }
            if !known.contains(step.path) {
                self.conflicts.push((step.path, Why::Kinds));
            }
            // An empty directory has no content that could be lost.
            match step.act {
                Act::Put { theirs, .. } if policy != OnConflict::KeepTarget => {
                    self.push(step.path, Act::PutBeside(theirs));
                }
                _ => {}
            }
        }
    }

    /// Holds what the guard and the rules hold.
    fn hold(&mut self, base: &Tree, sides: (&Tree, &Tree), rules: Rules<'_>) {
        let verdict = match rules.guard {
            Guard::Off => Verdict::default(),
            Guard::On | Guard::Approved(_) => judge(base, sides, rules.measure),
        };
        let Verdict { many, everything, .. } = verdict;
        let is_held = |step: &&Step<'_>| match step.act {
            Act::Remove(_) | Act::RemoveDirectory => many || everything || (rules.hold)(step.path),
            Act::Put { over: Some(_), keep: Keep::InTrash, .. } => everything,
            _ => false,
        };
        let held: Vec<&Step<'_>> = self.steps.iter().filter(is_held).collect();
        if held.is_empty() {
            return;
        }
        let loss = |step: &&Step<'t>| (step.path, step.leaving(), step.arriving().is_some());
        let approval = Approval::of(held.iter().map(loss));
        if rules.guard == Guard::Approved(approval) {
            self.approved = true;
            return;
        }
        self.held = held.into_iter().map(|step| step.path).collect();
        self.approval = Some(approval);
        let (waiting, steps) = part(std::mem::take(&mut self.steps), &self.held);
        self.steps = steps;
        self.open.extend(waiting.into_iter().map(|step| step.path));
    }
}

/// The steps that must wait for what is not done at `paths`, which are those there, beneath them and above them, and the others.
pub(super) fn part<'t>(
    steps: Vec<Step<'t>>,
    paths: &BTreeSet<&'t GuestPath>,
) -> (Vec<Step<'t>>, Vec<Step<'t>>) {
    let upwards = |path: &GuestPath| std::iter::successors(Some(path.clone()), GuestPath::parent);
    let above: BTreeSet<GuestPath> = paths.iter().flat_map(|path| upwards(path)).collect();
    steps
        .into_iter()
        .partition(|step| above.contains(step.path) || upwards(step.path).any(|above| paths.contains(&above)))
}

impl<'t> Step<'t> {
    /// The version of theirs that this step writes.
    pub(super) fn arriving(&self) -> Option<&'t Leaf> {
        match self.act {
            Act::Put { theirs, .. } | Act::PutBeside(theirs) => Some(theirs),
            _ => None,
        }
    }

    /// The version of ours that this step takes away from its name.
    pub(super) fn leaving(&self) -> Option<&'t Leaf> {
        match self.act {
            Act::Put { over, .. } => over,
            Act::Remove(ours) => Some(ours),
            _ => None,
        }
    }
}
