//! Doing what was planned, while a guest works on the same files.
//!
//! Problem: between the look and the change the guest writes. `if unchanged { replace }` destroys that version without notice.
//!
//! Defence: exchange, then look. The new version is complete in a slot on the host's side; one rename exchanges it with what
//! has the name. Then what came out is hashed. If it is what was planned it goes to the trash, otherwise it is put beside, and
//! there is a conflict. A removal is a rename to a slot, and what was not expected goes back.
//!
//! What remains: where the file system cannot exchange, the name is free for a moment; the report counts that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::beside::Whose;
use super::journal::{SLOTS, Second, Settled, Slot, discard, gives_way, put_beside, reachable, write};
use super::leaf::Leaf;
use super::plan::{Act, Keep, Step};
use super::report::{Conflict, Merged, Why};
use super::whole::{Staged, Wholes};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{HardLinks, Rename, Root};

const OPERATION: &str = "merge";

/// The four directories of a merge.
#[derive(Clone, Copy)]
pub(crate) struct Places<'p> {
    pub(crate) theirs: Theirs<'p>,
    pub(crate) ours: &'p Root,
    pub(crate) work: &'p Root,
    pub(crate) trash: &'p Root,
}

/// Where theirs is, and how it is brought here.
#[derive(Clone, Copy)]
pub(crate) enum Theirs<'p> {
    /// A tree that somebody works on: copied, and compared with what was planned.
    Copied(&'p Root),
    /// The host's own copy, which nobody else has: moved.
    #[cfg_attr(
        not(feature = "artifacts"),
        expect(dead_code, reason = "only what comes from a store is the host's own")
    )]
    Moved(Staged<'p>),
}

impl<'p> Theirs<'p> {
    fn root(self) -> &'p Root {
        match self {
            Self::Copied(root) => root,
            Self::Moved(staged) => staged.root,
        }
    }
}

/// A merge under way.
pub(super) struct Applying<'p> {
    places: Places<'p>,
    slots: Root,
    /// The paths of all steps.
    touched: BTreeSet<GuestPath>,
    pub(super) merged: Merged,
    /// By path, those that were planned and those that the guest has brought about.
    conflicts: BTreeMap<GuestPath, Conflict>,
    /// Paths whose step was not done. The base keeps what it has of them.
    pub(super) undone: BTreeSet<GuestPath>,
    /// Whether a slot holds something that could not be put anywhere.
    unsettled: bool,
    /// The directory in which something has arrived last: its path, theirs and ours.
    open: Option<(GuestPath, Root, Root)>,
    wholes: Wholes,
}

/// Where something is that arrives.
#[derive(Clone, Copy)]
enum From<'s> {
    Slot(&'s Slot),
    /// At its path in theirs, which is moved.
    Theirs,
}

/// A step, and the slot it uses.
type Job<'t> = (Step<'t>, Option<Slot>);

impl<'p> Applying<'p> {
    /// Makes the directory of the slots. What is staged there gets the modes and the owner of `ours`.
    pub(super) fn new(places: Places<'p>, merged: Merged, conflicts: Vec<Conflict>) -> Result<Self> {
        places.work.ensure_dir(SLOTS)?;
        // What came out is only compared, so it may have other names.
        let policy = places.work.policy().clone().with_access(places.ours.policy().access());
        let policy = policy.with_hard_links(HardLinks::Allow);
        let slots = places.work.descend(SLOTS)?.with_policy(policy);
        let conflicts = conflicts.into_iter().map(|conflict| (conflict.path.clone(), conflict)).collect();
        let (touched, undone) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self {
            places,
            slots,
            touched,
            merged,
            conflicts,
            undone,
            unsettled: false,
            open: None,
            wholes: Wholes::default(),
        })
    }

    /// Does all `steps`.
    pub(super) fn run(&mut self, steps: Vec<Step<'_>>, prune: impl Fn(&GuestPath) -> bool) -> Result<()> {
        self.touched = steps.iter().map(|step| step.path.clone()).collect();
        let plain = steps.iter().filter(|step| self.is_plain(step)).map(|step| step.path.clone());
        self.wholes = Wholes::new(plain.collect());
        let jobs = self.stage(steps);
        let slots: Vec<Slot> = jobs.iter().filter_map(|(_, slot)| slot.clone()).collect();
        if !slots.is_empty() {
            write(&self.slots, &slots)?;
        }
        for (step, slot) in &jobs {
            if self.undone.contains(step.path) {
                continue;
            }
            if let Err(error) = self.step(step, slot.as_ref()) {
                self.fail(step.path, error);
            } else if matches!(step.act, Act::Remove(_) | Act::Aside(_) | Act::RemoveDirectory) {
                self.prune(step.path, &prune);
            }
        }
        self.merged.conflicts.extend(std::mem::take(&mut self.conflicts).into_values());
        match self.unsettled {
            // The next merge tries again.
            true => Ok(()),
            false => discard(self.places.work, self.places.trash),
        }
    }

    fn fail(&mut self, path: &GuestPath, error: Error) {
        self.merged.left.add(path, error);
        self.undone.insert(path.clone());
    }

    /// Whether a step takes nothing out, and nobody else has what it brings. It needs no slot, and no place in the journal: what has
    /// not arrived when the host dies is still in theirs.
    fn is_plain(&self, step: &Step<'_>) -> bool {
        matches!((self.places.theirs, &step.act), (Theirs::Moved(_), Act::Put { over: None, .. }))
    }

    /// Brings what arrives to its slot. What has changed there since it was looked at is not done.
    fn stage<'t>(&mut self, steps: Vec<Step<'t>>) -> Vec<Job<'t>> {
        let mut jobs = Vec::with_capacity(steps.len());
        for (number, step) in steps.into_iter().enumerate() {
            let keep = match step.act {
                Act::Put { keep, .. } => keep,
                _ => Keep::InTrash,
            };
            let (leaving, arriving) = (step.leaving(), step.arriving());
            let slot = (!self.is_plain(&step) && (leaving.is_some() || arriving.is_some()))
                .then(|| Slot::new(number, step.path, leaving, arriving, keep));
            let staged = match (&slot, arriving) {
                (Some(slot), Some(leaf)) => self.bring(step.path, leaf, &slot.name()),
                _ => Ok(()),
            };
            match staged {
                Ok(()) => jobs.push((step, slot)),
                Err(error) => self.fail(step.path, error),
            }
        }
        jobs
    }

    fn bring(&self, path: &GuestPath, leaf: &Leaf, slot: &Path) -> Result<()> {
        let changed =
            || Error::new(OPERATION, path, ErrorKind::Busy).with_detail("changes while it is merged");
        let theirs = match self.places.theirs {
            Theirs::Copied(root) => root,
            Theirs::Moved(staged) => return staged.root.rename_to(path, &self.slots, slot),
        };
        match leaf {
            Leaf::File { bytes, .. } => match theirs.copy_to(path, &self.slots, slot, *bytes) {
                Err(error) if matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::NotFound) => {
                    return Err(changed());
                }
                copied => drop(copied?),
            },
            Leaf::Link { .. } => leaf.make(&self.slots, slot)?,
            Leaf::Directory => {}
        }
        match Leaf::at(&self.slots, slot, leaf.size())? {
            Some(staged) if staged == *leaf => Ok(()),
            _ => Err(changed()),
        }
    }

    fn step(&mut self, step: &Step<'_>, slot: Option<&Slot>) -> Result<()> {
        let Places { ours, .. } = self.places;
        match (&step.act, slot) {
            (Act::Remove(_), Some(slot)) => self.remove(slot),
            (Act::Aside(leaf), _) => self.aside(step.path, leaf),
            (Act::RemoveDirectory, _) => match ours.remove_dir(step.path) {
                // Somebody uses it.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound) || gives_way(&error) => Ok(()),
                removed => removed,
            },
            (Act::MakeDirectory, _) => match ours.ensure_dir(step.path) {
                Ok(_) => {
                    self.merged.written += 1;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            (Act::Put { theirs, over, .. }, Some(slot)) => self.put(slot, theirs, over.is_some()),
            (Act::Put { theirs, .. }, None) => self.place(step.path, theirs),
            (Act::PutBeside(theirs), Some(slot)) => self.beside(From::Slot(slot), step.path, theirs, None),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, slot: &Slot) -> Result<()> {
        match self.places.ours.rename_to(&slot.path, &self.slots, slot.name()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            moved => moved?,
        }
        match self.settle(slot)? {
            Settled::AsPlanned => {
                self.merged.removed += 1;
                Ok(())
            }
            settled => {
                self.conflict(&slot.path, Why::DeletedThere, name_of(settled));
                Ok(())
            }
        }
    }

    fn aside(&mut self, path: &GuestPath, leaf: &Leaf) -> Result<()> {
        let ours = self.places.ours;
        // It must go from here, also if the same content has a name beside.
        let second = Second { whose: Whose::Ours, leaf: Some(leaf.clone()), shared: &|_| false };
        match put_beside(ours, path.as_path(), ours, path, &second) {
            Ok(name) => {
                self.named(path, name);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn put(&mut self, slot: &Slot, theirs: &Leaf, over: bool) -> Result<()> {
        let ours = self.places.ours;
        let exchanged = match over {
            true => self.slots.rename_with(slot.name(), ours, &slot.path, Rename::Exchange),
            false => Err(Error::new(OPERATION, &slot.path, ErrorKind::NotFound)),
        };
        let arrived = match exchanged {
            Ok(()) => {
                self.merged.written += 1;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                match ours.rename_to(&slot.path, &self.slots, slot.out()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => self.merged.not_atomic += 1,
                }
                self.arrive(From::Slot(slot), &slot.path, theirs)
            }
            // There is nothing to exchange, or no directory for it.
            Err(error) if gives_way(&error) => self.arrive(From::Slot(slot), &slot.path, theirs),
            Err(error) => return Err(error),
        };
        // Also if theirs could not arrive: then what came out goes back.
        match self.settle(slot)? {
            Settled::AsPlanned | Settled::Back => {}
            Settled::Beside(name) => self.conflict(&slot.path, Why::BothChanged, Some(name)),
        }
        arrived
    }

    /// Brings what nobody else has to a name that was free.
    ///
    /// The two directories stay open for the next one. If the guest moves its directory away, what arrives is where it would be had
    /// it come before the move.
    fn place(&mut self, path: &GuestPath, theirs: &Leaf) -> Result<()> {
        let parent = path.parent().unwrap_or_default();
        if self.open.as_ref().is_none_or(|(open, ..)| *open != parent) {
            if let Theirs::Moved(staged) = self.places.theirs
                && self.wholes.bring(staged, self.places.ours, path)
            {
                self.merged.written += 1;
                return Ok(());
            }
            self.open = self.enter(path, parent, theirs)?;
        }
        let name = path.file_name().unwrap_or_default();
        let moved = self.open.as_ref().map(|(_, from, to)| from.rename_to(name, to, name));
        if let Some(Ok(())) = moved {
            self.merged.written += 1;
            return Ok(());
        }
        // The name is taken, or the way to it is.
        self.open = None;
        self.arrive(From::Theirs, path, theirs)
    }

    /// The directory of `path`, on both sides; none where the guest has something else.
    fn enter(
        &self,
        path: &GuestPath,
        parent: GuestPath,
        leaf: &Leaf,
    ) -> Result<Option<(GuestPath, Root, Root)>> {
        let ours = self.places.ours;
        if reachable(ours, path, Whose::Theirs, &leaf.tag())? != *path {
            return Ok(None);
        }
        let from = self.places.theirs.root().descend(&parent)?;
        Ok(ours.descend(&parent).ok().map(|to| (parent, from, to)))
    }

    /// Moves what arrives from where it is.
    fn bring_to(&self, from: From<'_>, path: &GuestPath, to: &GuestPath) -> Result<()> {
        let (root, name) = self.origin(from, path);
        root.rename_to(name, self.places.ours, to)
    }

    fn origin(&self, from: From<'_>, path: &GuestPath) -> (&Root, PathBuf) {
        match from {
            From::Slot(slot) => (&self.slots, slot.name()),
            From::Theirs => (self.places.theirs.root(), path.as_path().to_path_buf()),
        }
    }

    /// Gives theirs its name, if that is free, and one beside if it is not.
    fn arrive(&mut self, from: From<'_>, meant: &GuestPath, theirs: &Leaf) -> Result<()> {
        let ours = self.places.ours;
        let path = reachable(ours, meant, Whose::Theirs, &theirs.tag())?;
        match self.bring_to(from, meant, &path) {
            Ok(()) if path == *meant => {
                self.merged.written += 1;
                Ok(())
            }
            Ok(()) => {
                self.conflict(meant, Why::Kinds, Some(path));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // The guest has made the very same change; or case is folded, and it is another name.
                if Leaf::at(ours, path.as_path(), theirs.size())
                    .is_ok_and(|found| found.as_ref() == Some(theirs))
                    && is_listed(ours, &path)
                {
                    if path != *meant {
                        self.conflict(meant, Why::Kinds, Some(path));
                    }
                    return Ok(());
                }
                self.beside(from, meant, theirs, Some(Why::BothChanged))
            }
            Err(error) => Err(error),
        }
    }

    fn beside(&mut self, from: From<'_>, path: &GuestPath, theirs: &Leaf, why: Option<Why>) -> Result<()> {
        let shared = |name: &GuestPath| !self.touched.contains(name);
        let second = Second { whose: Whose::Theirs, leaf: Some(theirs.clone()), shared: &shared };
        let (root, name) = self.origin(from, path);
        let name = put_beside(root, &name, self.places.ours, path, &second)?;
        match why {
            Some(why) => self.conflict(path, why, Some(name)),
            None => self.named(path, name),
        }
        Ok(())
    }

    fn settle(&mut self, slot: &Slot) -> Result<Settled> {
        let settled = slot.settle(&self.slots, self.places.ours);
        self.unsettled |= settled.is_err();
        settled
    }

    fn conflict(&mut self, path: &GuestPath, why: Why, beside: Option<GuestPath>) {
        let known = self.conflicts.entry(path.clone());
        let conflict = known.or_insert_with(|| Conflict { path: path.clone(), why, beside: None });
        conflict.beside = beside.or(conflict.beside.take());
    }

    /// Says where the second version of a planned conflict is.
    fn named(&mut self, path: &GuestPath, name: GuestPath) {
        self.conflict(path, Why::BothChanged, Some(name));
    }

    /// Removes the directories above `path` that theirs does not have either, as far as they are empty.
    fn prune(&self, path: &GuestPath, prune: impl Fn(&GuestPath) -> bool) {
        let above = std::iter::successors(path.parent(), GuestPath::parent);
        for directory in above.take_while(|above| !above.is_top() && prune(above)) {
            // It is not empty, or gone. Both are fine.
            if self.places.ours.remove_dir(&directory).is_err() {
                break;
            }
        }
    }
}

/// Whether the entry at `path` has that very name.
fn is_listed(root: &Root, path: &GuestPath) -> bool {
    let parent = path.parent().unwrap_or_default();
    let entries = if parent.is_top() { root.list(".") } else { root.list(&parent) };
    entries.is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| Some(entry.file_name()) == path.file_name()))
    })
}

fn name_of(settled: Settled) -> Option<GuestPath> {
    match settled {
        Settled::Beside(name) => Some(name),
        Settled::Back | Settled::AsPlanned => None,
    }
}
