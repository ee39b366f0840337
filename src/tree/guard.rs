//! What looks like an accident, or like an attack on everything at once.
//!
//! Problem: a workspace that is lost, an empty bucket, or a guest that encrypts or truncates every file looks like work: files went,
//! or have other content. What comes next makes it look smaller: a note of who has done it is as it was in the call after.
//!
//! Defence: the loss is measured by the base. Once it looks like an accident, what the base had then is kept as the *reference*, and
//! the loss is measured by that as well until everything is seen and neither looks like one any more, or somebody approves.
//!
//! What remains: what is destroyed a part at a time, with a call after each, is taken for work.

use std::collections::HashSet;

use super::contents::{State, Tree};
use super::leaf::{Leaf, Leaves};
use crate::name::GuestPath;

/// More removals than this are needed to be too many of a larger base.
const MANY: usize = 20;
/// How many files a base must have, so that the change of all is not ordinary work.
const ENOUGH: usize = 20;

/// How a loss is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure<'m> {
    /// Of what a later call may remove.
    pub(crate) waiting: &'m [Leaf],
    /// Whether nothing is removed anyway.
    pub(crate) keeps: bool,
    /// Of how many files not all may go.
    pub(crate) fewest: usize,
}

/// What a guard says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Too many removals.
    pub(super) many: bool,
    /// Nothing is as it was.
    pub(super) everything: bool,
    /// Whether what nobody can see now may be an accident, too.
    unsure: bool,
}

impl Verdict {
    fn is_accident(self) -> bool {
        self.many || self.everything
    }

    fn or(self, other: Self) -> Self {
        Self {
            many: self.many || other.many,
            everything: self.everything || other.everything,
            unsure: self.unsure || other.unsure,
        }
    }
}

/// Judges what `theirs` has lost of what `base` has, and of what it had when that began to look like an accident.
pub(super) fn judge(base: &Tree, (ours, theirs): (&Tree, &Tree), measure: Measure<'_>) -> Verdict {
    let now = judge_by(&base.leaves, (ours, theirs), |_| true, measure);
    let then = base.reference.as_ref().map(|reference| {
        // All of a single one, too. What comes to another name may come from elsewhere: it does not show that anything is left.
        let was_there = |path: &GuestPath| reference.contains_key(path);
        judge_by(reference, (ours, theirs), was_there, Measure { fewest: 1, ..measure })
    });
    now.or(then.unwrap_or_default())
}

/// What the next call must measure by, too; none if nothing looks like an accident.
pub(crate) fn reference(base: &Tree, (ours, theirs): (&Tree, &Tree), measure: Measure<'_>) -> Option<Leaves> {
    let verdict = judge(base, (ours, theirs), measure);
    match &base.reference {
        None => verdict.is_accident().then(|| base.leaves.clone()),
        Some(reference) => (verdict.is_accident() || verdict.unsure).then(|| reference.clone()),
    }
}

fn judge_by(
    had: &Leaves,
    (ours, theirs): (&Tree, &Tree),
    counts: impl Fn(&GuestPath) -> bool,
    measure: Measure<'_>,
) -> Verdict {
    let (mut lost, mut unseen) = (Vec::new(), 0);
    for (path, leaf) in missing(had, theirs).filter(|(_, leaf)| **leaf != Leaf::Directory) {
        match (ours.state(path), theirs.state(path)) {
            (State::Leaf(_), State::Unknown) => unseen += 1,
            (State::Leaf(_), _) => lost.push(leaf),
            _ => {}
        }
    }
    if (measure.waiting.len(), unseen) != (0, 0) || !lost.is_empty() {
        // What has another name now is no loss.
        let is_new = |(path, leaf): &(&GuestPath, &Leaf)| had.get(*path) != Some(*leaf);
        let arriving: HashSet<&Leaf> = theirs.leaves.iter().filter(is_new).map(|(_, leaf)| leaf).collect();
        lost.extend(measure.waiting);
        lost.retain(|leaf| !arriving.contains(leaf));
    }
    let all = had.values().filter(|leaf| **leaf != Leaf::Directory).count();
    let are_many = |lost: usize| (lost > MANY && lost > all / 2) || (all >= measure.fewest && lost >= all);
    let (everything, blind) = has_changed_throughout(had, theirs, counts, measure.keeps);
    Verdict {
        many: !measure.keeps && are_many(lost.len()),
        everything,
        unsure: blind || (!measure.keeps && are_many(lost.len() + unseen)),
    }
}

/// What had a leaf and has none. Both are in the same order.
fn missing<'h>(had: &'h Leaves, theirs: &Tree) -> impl Iterator<Item = (&'h GuestPath, &'h Leaf)> {
    let mut there = theirs.leaves.keys().peekable();
    had.iter().filter(move |(path, _)| {
        while there.next_if(|other| other < path).is_some() {}
        there.peek() != Some(path)
    })
}

/// Whether `theirs` has nothing of what there was, under any name that `counts`: as if it had been encrypted or truncated, or were another tree.
/// Neither empty files nor links say so, nor what is gone and kept, nor what nobody can see; and whether nobody can see anything.
fn has_changed_throughout(
    had: &Leaves,
    theirs: &Tree,
    counts: impl Fn(&GuestPath) -> bool,
    keeps: bool,
) -> (bool, bool) {
    let is_content = |(path, leaf): &(&GuestPath, &Leaf)| {
        matches!(leaf, Leaf::File { bytes: 1.., .. }) && !(keeps && theirs.state(path) == State::Absent)
    };
    let had = had.iter().filter(is_content);
    let is_there = |(path, leaf): (&GuestPath, &Leaf)| {
        theirs.leaves.get(path).is_some_and(|now| now.content() == leaf.content())
    };
    // Nearly always the first one is.
    if had.clone().any(is_there) || had.clone().count() < ENOUGH {
        return (false, false);
    }
    let counted = theirs.leaves.iter().filter(|(path, _)| counts(path));
    let there: HashSet<Leaf> = counted.map(|(_, leaf)| leaf.content()).collect();
    let mut seen = had.filter(|(path, _)| theirs.state(path) != State::Unknown).peekable();
    match seen.peek() {
        None => (false, true),
        Some(_) => (!seen.any(|(_, leaf)| there.contains(&leaf.content())), false),
    }
}
