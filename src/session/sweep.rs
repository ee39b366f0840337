//! Removing what is old.
//!
//! Problem: a guest sets file times as it likes, makes more entries than anybody can look at, and puts links, files and trees of
//! any depth where messages are expected.
//!
//! Defence: age is the time since the kernel saw the last change, by a [`clock`] that nobody can step. One loop for all
//! places, bounded by the budget. A tree is first moved out of the guest's reach; anything else is unlinked.
//!
//! What remains: a guest keeps an entry young by changing it.

pub(super) mod clock;

use std::path::Path;
use std::time::{Duration, Instant};

use self::clock::Ages;
use super::event;
use super::handle::Session;
use super::handle::parts::{CLAIMED, Part, TRASH};
use crate::error::{Error, ErrorKind, Result};
use crate::report::Leftovers;
use crate::root::{Budget, Entry, Metadata, Removed, Root};
use crate::tree::{KEPT, is_displaced};

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a sweep may leave something behind"]
#[non_exhaustive]
pub struct Swept {
    /// How many sessions, messages or remains are gone.
    pub removed: u64,
    /// How many were too young, or were to stay.
    pub kept: u64,
    /// Whether the budget's time was over before everything was looked at.
    pub out_of_time: bool,
    /// What should have gone and did not, and why.
    pub left: Leftovers,
}

impl Swept {
    /// Whether everything that was old enough is gone, and everything was looked at.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && !self.out_of_time
    }

    /// What should have gone and did not, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }

    pub(super) fn record(&mut self, path: &Path, outcome: Result<Removed>) {
        match outcome {
            Ok(removed) if removed.is_complete() => self.removed += 1,
            Ok(removed) => self.left.add(path, reason(removed, "sweep", path)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.left.add(path, error),
        }
    }
}

/// Why a removal is not complete.
pub(super) fn reason(removed: Removed, operation: &'static str, subject: &Path) -> Error {
    let first = removed.left.first.into_iter().next();
    first.map_or_else(|| Error::new(operation, subject, ErrorKind::Busy), |left| left.error)
}

/// How long ago the kernel saw the entry change. A guest can set any modification time, but not this one. A wall clock
/// that is set while this process runs makes nothing older.
pub(crate) fn age(entry: &Metadata) -> Duration {
    Ages::of_process().of(entry)
}

/// One sweep under way. A guest can make any number of entries, so even looking at them ends when the time of the config's
/// budget is over.
pub(super) struct Sweep<'s> {
    session: &'s Session,
    older_than: Duration,
    start: Instant,
    swept: Swept,
}

impl<'s> Sweep<'s> {
    pub(super) fn new(session: &'s Session, older_than: Duration) -> Result<Self> {
        session.alive()?;
        Ok(Self { session, older_than, start: Instant::now(), swept: Swept::default() })
    }

    /// Sweeps a part of the guest's side.
    pub(super) fn part(&mut self, part: Part) -> Result<()> {
        let session = self.session;
        let remove = |entry: &Entry, budget| remove_entry_within(session, part, entry.path(), budget);
        let (root, path) = session.at(part, ".")?;
        self.directory(root, &path, remove)
    }

    /// Sweeps a directory of the host's side.
    pub(super) fn host_directory(&mut self, path: &Path) -> Result<()> {
        let host = self.session.host();
        let remove = |entry: &Entry, budget| match entry.metadata().is_dir() {
            true => host.remove_tree_contained_within(path.join(entry.path()), budget),
            false => host.remove_file(path.join(entry.path())).map(|()| Removed::all()),
        };
        self.directory(host, path, remove)
    }

    /// Sweeps the claims. Each leaves them in one step, so that a sweep which is cut short leaves no half of a message pending.
    pub(super) fn claims(&mut self) -> Result<()> {
        let host = self.session.host();
        let trash = host.ensure_and_descend(TRASH)?.0;
        self.directory(host, Path::new(CLAIMED), |entry, budget| {
            let path = Path::new(CLAIMED).join(entry.path());
            match entry.metadata().is_dir() {
                true => host.remove_tree_quarantined(path, &trash, budget),
                false => host.remove_file(path).map(|()| Removed::all()),
            }
        })
    }

    /// Removes the old entries of a directory with `remove`. A directory that is not there has none.
    pub(super) fn directory(
        &mut self,
        root: &Root,
        path: &Path,
        remove: impl Fn(&Entry, Budget) -> Result<Removed>,
    ) -> Result<()> {
        let entries = match root.list(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let Some(budget) = self.budget_left() else {
                self.swept.out_of_time = true;
                return Ok(());
            };
            let entry = entry?;
            // Somebody may still miss what a merge has displaced.
            let is_displaced = path == Path::new(TRASH) && is_displaced(entry.file_name());
            let least = if is_displaced { self.older_than.max(KEPT) } else { self.older_than };
            if age(entry.metadata()) < least {
                self.swept.kept += 1;
            } else {
                let removed = remove(&entry, budget);
                let whole = if path == Path::new(".") { entry.into_path() } else { path.join(entry.path()) };
                self.swept.record(&whole, removed);
            }
        }
        Ok(())
    }

    /// What is left for the next removal; `None` if the time is over.
    fn budget_left(&self) -> Option<Budget> {
        let budget = self.session.config().budget();
        let left = budget.time().checked_sub(self.start.elapsed())?;
        (!left.is_zero()).then(|| budget.with_time(left))
    }

    pub(super) fn finish(self) -> Swept {
        self.swept
    }
}

/// Removes one entry of a part, whatever it is.
pub(super) fn remove_entry(session: &Session, part: Part, name: &Path) -> Result<Removed> {
    remove_entry_within(session, part, name, session.config().budget())
}

fn remove_entry_within(session: &Session, part: Part, name: &Path, budget: Budget) -> Result<Removed> {
    let (root, path) = session.located(part, name);
    let trash = session.host().ensure_and_descend(TRASH)?.0;
    let removed = match root.remove_tree_quarantined(&path, &trash, budget) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Removed::all()),
        // Either the entry or the part itself is a link; the second is refused again.
        Err(error) if matches!(error.kind(), ErrorKind::Symlink | ErrorKind::NotDirectory) => {
            root.remove_file(&path).map(|()| Removed { files: 1, ..Removed::all() })
        }
        result => result,
    }?;
    event::left_behind("clear", &removed);
    Ok(removed)
}
