//! One tree takes the changes of another.
//!
//! Problem: a copy of a workspace is worked on, and its changes are to come back, while the workspace itself goes on.
//!
//! Defence: see [`tree`](super). Nothing is destroyed: what is replaced or removed goes to the host's trash, what both sides
//! have changed stays in both versions.
//!
//! What remains: of modes only the bit to execute is compared and carried; owners, times and attributes are not.

use std::collections::BTreeSet;
use std::path::Path;

use super::apply::{Applying, Places, Theirs};
use super::contents::{State, Tree};
use super::guard::{Measure, reference};
use super::journal::{Settled, recover};
use super::plan::{Plan, Rules, part, plan};
use super::report::{Conflict, Guard, MergeOptions, Merged, OnConflict, Why};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{Flock, Root};

const LOCK: &str = "merge.lock";
/// A name that nothing has.
const PROBE: &str = "merge.probe";
const OPERATION: &str = "merge";

/// Brings to `target` what `source` has changed since `base`.
///
/// `base` is the tree that both had when the copy was made; [`Tree::default`] if it is not known, which takes nothing for
/// deleted. Keep [`Merged::base`] for the next merge from this source: with it, what was settled once is not asked again.
///
/// `work` and `trash` are two directories of the host's own, on the mount of `target`, which no guest can reach. `work` is for
/// merges into this target alone, and is kept between them: a merge that was cut off is settled by the next one there, and
/// nothing else may remove what it contains. What was displaced is in `trash`, for the caller to sweep.
///
/// # Errors
/// [`Busy`](ErrorKind::Busy) if another merge uses `work`, [`CrossDevice`](ErrorKind::CrossDevice) if it is on another mount,
/// [`Unsupported`](ErrorKind::Unsupported) if a merge of another version of this crate was cut off there, and those of
/// [`Root::walk`] at its start. What fails for one path is in [`Merged::left`].
///
/// # Races
/// Both trees may change meanwhile. No version that was complete in the target is lost: it keeps its name, has one beside, or is
/// in the trash if it is what was planned. A file of the source that changes while it is copied is reported, and not taken.
pub fn merge(
    base: &Tree,
    source: &Root,
    target: &Root,
    (work, trash): (&Root, &Root),
    options: &MergeOptions,
) -> Result<Merged> {
    merge_where(base, source, target, (work, trash), options, &|_| Ok(()))
}

/// As [`merge`], but leaves alone what `admit` refuses.
pub(crate) fn merge_where(
    base: &Tree,
    source: &Root,
    target: &Root,
    (work, trash): (&Root, &Root),
    options: &MergeOptions,
    admit: &dyn Fn(&GuestPath) -> Result<()>,
) -> Result<Merged> {
    let _lock = Flock::try_take(work, Path::new(LOCK), OPERATION)?;
    same_mount(target, work)?;
    let conflicts = recover_from(work, trash, target)?;
    let (ours, theirs) = (Tree::take(target, options.limits)?, Tree::take(source, options.limits)?);
    let mut merged = Merged { conflicts, ..Merged::default() };
    for side in [&ours, &theirs] {
        merged.left.absorb(side.left().clone());
    }
    let measure = Measure { waiting: &[], keeps: false, fewest: 2 };
    let rules = Rules { on_conflict: options.on_conflict, guard: options.guard, hold: &|_| false, measure };
    let places = Places { theirs: Theirs::Copied(source), ours: target, work, trash };
    merge_trees((base, &ours, &theirs), rules, places, merged, admit)
}

/// Settles what a merge that was cut off has left in `work`.
pub(crate) fn recover_from(work: &Root, trash: &Root, target: &Root) -> Result<Vec<Conflict>> {
    let beside = |(path, settled)| match settled {
        Settled::Beside(name) => Some(Conflict { path, why: Why::BothChanged, beside: Some(name) }),
        Settled::Back | Settled::AsPlanned => None,
    };
    Ok(recover(work, trash, target)?.into_iter().filter_map(beside).collect())
}

/// Takes the lock on merges that use `work`.
#[cfg(feature = "artifacts")]
pub(crate) fn lock_merges(work: &Root) -> Result<Flock> {
    Flock::try_take(work, Path::new(LOCK), OPERATION)
}

/// Merges trees that were looked at, which are the base, ours and theirs.
pub(crate) fn merge_trees(
    (base, ours, theirs): (&Tree, &Tree, &Tree),
    rules: Rules<'_>,
    places: Places<'_>,
    mut merged: Merged,
    admit: &dyn Fn(&GuestPath) -> Result<()>,
) -> Result<Merged> {
    let Plan { steps, conflicts, held, approval, approved, mut open, ours_only } =
        plan(base, ours, theirs, rules);
    (merged.approval, merged.approved, merged.ahead) = (approval, approved, ours_only);
    let planned = |(path, why): (&GuestPath, Why)| Conflict { path: path.clone(), why, beside: None };
    let conflicts: Vec<Conflict> = conflicts.into_iter().map(planned).collect();
    merged.held = held.into_iter().cloned().collect();
    if rules.on_conflict == OnConflict::Fail && !conflicts.is_empty() {
        merged.conflicts.extend(conflicts);
        return Ok(Merged { base: base.clone(), ..merged });
    }
    let mut refused = BTreeSet::new();
    for step in &steps {
        match admit(step.path) {
            Err(error) if refused.insert(step.path) => merged.left.add(step.path, error),
            _ => {}
        }
    }
    let (waiting, steps) = part(steps, &refused);
    open.extend(waiting.iter().map(|step| step.path));
    let undone = match steps.is_empty() {
        true => {
            merged.conflicts.extend(conflicts);
            BTreeSet::new()
        }
        false => {
            let mut applying = Applying::new(places, merged, conflicts)?;
            applying.run(steps, |above| matches!(theirs.state(above), State::Absent | State::Leaf(_)))?;
            merged = applying.merged;
            applying.undone
        }
    };
    open.extend(undone.iter());
    merged.base = next_base(base, theirs, &open);
    if !approved && rules.guard != Guard::Off {
        merged.base.reference = reference(base, (ours, theirs), rules.measure);
    }
    Ok(merged)
}

/// What was agreed upon: theirs, but for what is open.
fn next_base(base: &Tree, theirs: &Tree, open: &BTreeSet<&GuestPath>) -> Tree {
    let mut next = Tree::default();
    for (path, leaf) in theirs.iter().filter(|(path, _)| !open.contains(path)) {
        next.add(path.clone(), leaf.clone());
    }
    // Where the two do not fit together nothing is known, and nothing is then taken for deleted.
    for (path, leaf) in base.iter().filter(|(path, _)| open.contains(path)) {
        if next.has_room(path) {
            next.add(path.clone(), leaf.clone());
        }
    }
    next
}

/// The kernel compares the mounts of both ends before it looks for the names; two mounts of one device differ, too.
fn same_mount(target: &Root, work: &Root) -> Result<()> {
    let probe = work.rename_to(PROBE, target, PROBE);
    match probe.is_err_and(|error| error.kind() == ErrorKind::CrossDevice) {
        false => Ok(()),
        true => Err(Error::new(OPERATION, ".", ErrorKind::CrossDevice)
            .with_detail("the host's directory is on another mount than the target")),
    }
}
