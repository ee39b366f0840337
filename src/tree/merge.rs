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

use super::apply::{Applying, Places};
use super::contents::{State, Tree, TreeLimits};
use super::journal::{Settled, recover};
use super::plan::{Plan, Step, plan};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::root::{Flock, Root};

const LOCK: &str = "merge.lock";
/// A name that nothing has.
const PROBE: &str = "merge.probe";
const OPERATION: &str = "merge";

/// What a merge does with what both sides have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The target keeps the name, and the source's version gets a name beside: `name.theirs-8hex.ext`.
    #[default]
    KeepBoth,
    /// The target stays as it is.
    KeepTarget,
    /// The source's version gets the name, and the target's a name beside: `name.ours-8hex.ext`.
    TakeSource,
    /// Nothing is changed at all.
    Fail,
}

/// Whether removals are held back if they are suspiciously many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// All are held if they are more than 20 and more than half of the base, or all of two or more. A file that has another
    /// name now does not count.
    #[default]
    On,
    /// None is held.
    Off,
}

/// How to merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    on_conflict: OnConflict,
    guard: Guard,
    limits: TreeLimits,
}

impl MergeOptions {
    /// Sets what is done with what both sides have changed.
    #[must_use]
    pub fn with_on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Sets whether many removals are held back.
    #[must_use]
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Looks at no more than `limits` of each side.
    #[must_use]
    pub fn with_limits(mut self, limits: TreeLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// Why there is a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Why {
    /// Both sides have changed it, each in its own way.
    BothChanged,
    /// The source has removed it, the target has changed it. It stays.
    DeletedThere,
    /// The target has removed it, the source has changed it. It comes back.
    DeletedHere,
    /// It is a directory on one side and something else on the other.
    Kinds,
}

/// What both sides have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Conflict {
    /// Where.
    pub path: GuestPath,
    /// In which way.
    pub why: Why,
    /// The name of the second version, if there are two.
    pub beside: Option<GuestPath>,
}

/// What a merge did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "there may be conflicts, and the base of the next merge is in it"]
#[non_exhaustive]
pub struct Merged {
    /// How many files, links and empty directories the target has got.
    pub written: u64,
    /// How many it has lost. They are in the trash.
    pub removed: u64,
    /// What both sides have changed.
    pub conflicts: Vec<Conflict>,
    /// Removals that the [`Guard`] has held back.
    pub held: Vec<GuestPath>,
    /// How often a name was free for a moment, since the file system cannot exchange.
    pub not_atomic: u64,
    /// What was refused or failed on either side, and why.
    pub left: Leftovers,
    /// The base of the next merge from the same source.
    pub base: Tree,
}

impl Merged {
    /// Whether the target has all changes of the source, and no second version of anything.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.held.is_empty() && self.left.is_empty()
    }

    /// What was refused or failed, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}

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
    let max_bytes = options.limits.file_bytes();
    let _lock = Flock::try_take(work, Path::new(LOCK), OPERATION)?;
    same_mount(target, work)?;
    let recovered = recover(work, trash, target, max_bytes)?;
    let (ours, theirs) = (Tree::take(target, options.limits)?, Tree::take(source, options.limits)?);
    let mut merged = Merged::default();
    merged.conflicts.extend(recovered.into_iter().filter_map(|(path, settled)| match settled {
        Settled::Beside(name) => Some(Conflict { path, why: Why::BothChanged, beside: Some(name) }),
        Settled::Back | Settled::AsPlanned => None,
    }));
    for side in [&ours, &theirs] {
        merged.left.absorb(side.left().clone());
    }
    let Plan { steps, conflicts, held, mut open } =
        plan(base, &ours, &theirs, options.on_conflict, options.guard);
    let planned =
        conflicts.iter().map(|(path, why)| Conflict { path: (*path).clone(), why: *why, beside: None });
    merged.conflicts.extend(planned);
    merged.held = held.into_iter().cloned().collect();
    if options.on_conflict == OnConflict::Fail && !conflicts.is_empty() {
        return Ok(Merged { base: base.clone(), ..merged });
    }
    let mut admitted: Vec<Step<'_>> = Vec::with_capacity(steps.len());
    for step in steps {
        match admit(step.path) {
            Ok(()) => admitted.push(step),
            Err(error) if open.insert(step.path) => merged.left.add(step.path, error),
            Err(_) => {}
        }
    }
    admitted.retain(|step| !open.contains(step.path));
    let places = Places { theirs: source, ours: target, work, trash };
    let undone = match admitted.is_empty() {
        true => Vec::new(),
        false => {
            let mut applying = Applying::new(places, max_bytes, merged)?;
            applying.run(admitted, |above| {
                theirs.state(above) == State::Absent || theirs.leaves.contains_key(above)
            })?;
            merged = applying.merged;
            applying.undone
        }
    };
    open.extend(undone.iter());
    merged.base = next_base(base, &theirs, &open);
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
