//! Ending sessions: one by id, or all that nobody has used for a while.

use std::path::Path;
use std::time::Duration;

use super::claim::gone;
use super::clock::{self, Ages};
use super::home::Identity;
use super::layout::{CLAIMED, GUEST, HOST, Part, STATE, TRASH};
use super::lock::{SessionLock, lock};
use super::marker::{Kind, kind_of, mark_doomed};
use super::sessions::{NEW, REMOVED};
use super::{Sessions, event};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SessionId;
use crate::report::Leftovers;
use crate::root::{Metadata, Removed, Root, WalkLimits};

/// How many entries, and levels, of the guest's side are looked at for the latest change.
const LOOKED_AT: u64 = 1_000_000;
const LOOKED_INTO: u32 = 64;

/// What a sweep did.
#[derive(Clone, Debug, Default)]
#[must_use = "a sweep may leave something behind"]
#[non_exhaustive]
pub struct Swept {
    /// How many sessions, messages or remains are gone.
    pub removed: u64,
    /// How many were too young.
    pub kept: u64,
    /// Whether the budget's time was over before everything was looked at.
    pub out_of_time: bool,
    /// What should have gone and did not, and why.
    pub left: Leftovers,
}

impl Swept {
    pub(super) fn record(&mut self, path: &Path, outcome: Result<Removed>) {
        match outcome {
            Ok(removed) if removed.is_complete() => self.removed += 1,
            Ok(removed) => {
                let first = removed.left.first.into_iter().next().map(|left| left.error);
                self.leave(path, first.unwrap_or_else(|| Error::new("sweep", path, ErrorKind::Busy)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.leave(path, error),
        }
    }

    fn leave(&mut self, path: &Path, error: Error) {
        self.left.add(path, error);
    }
}

/// How long ago the kernel saw the entry change. A guest can set any modification time, but not this one. A wall clock
/// that is set while this process runs makes nothing older.
pub(super) fn age(entry: &Metadata) -> Duration {
    Ages::of_process().of(entry)
}

impl Sessions {
    /// Removes the session `id` with all it holds.
    ///
    /// The session first loses its name, so nobody opens it half removed and the id is free at once. Then the guest's
    /// directory is moved into `host/trash` and removed there, within the config's budget, and the rest after it.
    /// If a guest keeps creating, or a part may not be removed or is mounted, the report is not
    /// [complete](Removed::complete) and the next [`sweep`](Self::sweep) tries again. Handles of the session that are still
    /// open are [dead](super::Session) from then on.
    ///
    /// A session that cannot be renamed, as one in a lower layer of an overlay, is marked as being removed and goes where it
    /// is. Its id is free once all of it is gone; until then this call, and each sweep, goes on with it.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if somebody holds the session's lock, or it is itself a mount point;
    /// [`NotFound`](ErrorKind::NotFound), also if `id` is a [group](Self::group) or anything else but a session;
    /// [`InvalidData`](ErrorKind::InvalidData) or [`Unsupported`](ErrorKind::Unsupported) if its marker is damaged or of a later
    /// format; and the kinds of every resolution. Where there is no `flock`, nobody holds a lock.
    ///
    /// # Races
    /// A guest that still runs keeps whatever it holds open, and may slow the removal until its budget is spent.
    /// Nothing outside the session is touched.
    pub fn remove(&self, id: &SessionId) -> Result<Removed> {
        self.retire(id, || Ok(true)).map(Option::unwrap_or_default)
    }

    /// Removes a session if it is `due` once its lock is held.
    fn retire(&self, id: &SessionId, due: impl FnOnce() -> Result<bool>) -> Result<Option<Removed>> {
        let refuse = |why| Err(Error::new("remove session", id, ErrorKind::NotFound).with_detail(why));
        match kind_of(&self.root, id.as_str())? {
            Kind::Session => {}
            Kind::Doomed => return self.destroy_in_place(id.as_str()).map(Some),
            Kind::Group | Kind::Unmarked => return refuse("is not a session"),
            kind => return refuse(kind.reason()),
        }
        let dir = self.root.descend(id)?;
        let lock = self.lock_to_remove(&dir).map_err(|error| error.about(id))?;
        if !due()? {
            return Ok(None);
        }
        // Somebody may have removed it before the lock was held, and made it anew.
        if Identity::of(&dir).ok() != Identity::at(&self.root, id).ok() {
            return refuse("was removed");
        }
        let doomed = format!("{REMOVED}{}", SessionId::generate()?);
        let in_place = match self.root.rename(id, &doomed) {
            Ok(()) => false,
            // A directory of a lower layer.
            Err(error) if error.kind() == ErrorKind::CrossDevice => true,
            Err(error) => return Err(error),
        };
        if in_place {
            mark_doomed(&self.root, id.as_str())?;
        }
        // Nobody can lock it any more. FUSE keeps files that are unlinked while they are open, and their directory with them.
        drop(lock);
        let removed = if in_place { self.destroy_in_place(id.as_str()) } else { self.destroy(&doomed) };
        match removed {
            // A sweep was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(gone())),
            removed => removed.map(Some),
        }
    }

    /// The session's lock, or none where nobody can hold one.
    fn lock_to_remove(&self, dir: &Root) -> Result<Option<SessionLock>> {
        let host = match dir.descend(HOST) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            host => host?.with_policy(self.config.host_policy()),
        };
        match lock(&host) {
            // A session that lacks its state directory, or its lock file for want of space, can still go, and so can one where
            // there are no locks. Nobody holds a lock that is not there.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NoSpace | ErrorKind::Unsupported
                ) =>
            {
                Ok(None)
            }
            lock => lock.map(Some),
        }
    }

    /// Removes a session that could not be renamed. The marker goes last, since it says that the rest is to go.
    fn destroy_in_place(&self, name: &str) -> Result<Removed> {
        let budget = self.config.budget();
        let mut parts = Removed::all();
        for part in [GUEST, HOST] {
            match self.root.remove_tree_contained_within(Path::new(name).join(part), budget) {
                Ok(removed) => add(&mut parts, removed),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if parts.is_complete() {
            add(&mut parts, self.root.remove_tree_contained_within(name, budget)?);
        }
        event::left_behind("remove session", &parts);
        Ok(parts)
    }

    fn destroy(&self, name: &str) -> Result<Removed> {
        let budget = self.config.budget();
        let guest = match self.doomed(name) {
            Ok((dir, trash)) => dir.remove_tree_quarantined(GUEST, &trash, budget).unwrap_or_default(),
            // It was made or removed only in part; what there is goes with the rest.
            Err(_) => Removed::default(),
        };
        let mut removed = self.root.remove_tree_contained_within(name, budget)?;
        removed.files += guest.files;
        removed.directories += guest.directories;
        event::left_behind("remove session", &removed);
        Ok(removed)
    }

    fn doomed(&self, name: &str) -> Result<(Root, Root)> {
        let dir = self.root.descend(name)?;
        let trash = dir.descend(HOST)?.descend(TRASH)?;
        Ok((dir, trash))
    }

    /// Removes every session in which nothing happened for `idle`, and what interrupted calls have left.
    ///
    /// A session's age is that of the latest change the kernel saw to its directories and to anything the guest's side
    /// holds; setting file times back does not make it older, nor setting them forward younger than that moment. No more
    /// than a million entries and 64 levels of the guest's side are looked at; a session with more entries of which none is
    /// young is left, as [`TooMany`](ErrorKind::TooMany), and so is one that the host could not look at for want of
    /// descriptors or memory. What a host without privileges may not enter counts as old. A session whose lock is held is
    /// left, as [`Busy`](ErrorKind::Busy).
    ///
    /// Only time counts that the host has watched: from the first session or sweep in this directory on, while the machine was
    /// up. A wall clock that is set ahead, or comes up wrong after a boot, makes no session older. After a week with the
    /// machine off, sessions go when they have been idle for `idle` without that week; see
    /// [`sweep_by_wall_clock`](Self::sweep_by_wall_clock). The record of it is `.clock`, and sweeping often keeps it exact.
    ///
    /// # Errors
    /// The kinds of every resolution of the directory itself. What happens to one session is reported in [`Swept`], and so is
    /// a directory that cannot be read.
    ///
    /// # Races
    /// The age is asked once more when the lock is held, so whoever takes the [lock](super::Session::try_lock) around its
    /// work loses none of it. What a guest does after that goes with the session.
    ///
    /// ```
    /// # use beneath::{Root, SessionId, Sessions, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(dir.path(), ambient_authority())?, Default::default());
    /// # sessions.create(&SessionId::new("s"))?;
    /// use std::time::Duration;
    ///
    /// assert_eq!(sessions.sweep(Duration::from_secs(3600))?.kept, 1);
    /// assert_eq!(sessions.sweep(Duration::ZERO)?.removed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep(&self, idle: Duration) -> Result<Swept> {
        let (ages, kept) = Ages::watched(&self.root);
        let mut swept = self.sweep_by(&ages, idle)?;
        if let Err(error) = kept {
            // Without the record nothing gets older, and so nothing goes.
            swept.record(Path::new(clock::FILE), Err(error));
        }
        Ok(swept)
    }

    /// [`sweep`](Self::sweep), with ages that the wall clock shows now, time without power included.
    ///
    /// For machines that are off most of the time, or after a long pause. A clock that is wrong removes sessions in use.
    ///
    /// # Errors
    /// Those of [`sweep`](Self::sweep).
    ///
    /// # Races
    /// Those of [`sweep`](Self::sweep).
    ///
    /// ```
    /// # use beneath::{Root, SessionId, Sessions, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(dir.path(), ambient_authority())?, Default::default());
    /// # sessions.create(&SessionId::new("s"))?;
    /// assert_eq!(sessions.sweep_by_wall_clock(std::time::Duration::from_secs(3600))?.kept, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep_by_wall_clock(&self, idle: Duration) -> Result<Swept> {
        self.sweep_by(&Ages::by_wall_clock(), idle)
    }

    fn sweep_by(&self, ages: &Ages, idle: Duration) -> Result<Swept> {
        let survey = self.survey()?;
        let mut swept = Swept { left: survey.refused, ..Swept::default() };
        for name in survey.remains {
            // A session that is being made right now is young.
            let young = || match self.root.metadata(&name) {
                Ok(entry) => ages.of(&entry) < idle,
                // It cannot be seen just now.
                Err(error) => error.is_transient(),
            };
            if name.starts_with(REMOVED) || name.starts_with(NEW) && !young() {
                swept.record(Path::new(&name), self.destroy(&name));
            } else if !name.starts_with(NEW) {
                swept.record(Path::new(&name), self.destroy_in_place(&name));
            }
        }
        for id in survey.sessions {
            let used = |host: &[&str]| self.used_within(&id, host, |entry| ages.of(entry) < idle);
            let outcome = match used(&[CLAIMED, STATE]) {
                Ok(true) => Ok(None),
                // Making the lock file has changed the directory of states.
                Ok(false) => self.retire(&id, || used(&[CLAIMED]).map(|used| !used)),
                Err(error) => Err(error),
            };
            match outcome.transpose() {
                Some(removed) => swept.record(id.as_ref(), removed),
                None => swept.kept += 1,
            }
        }
        Ok(swept)
    }

    /// Whether anything that both sides use is `young`, or any of these directories of the host's.
    fn used_within(&self, id: &SessionId, host: &[&str], young: impl Fn(&Metadata) -> bool) -> Result<bool> {
        if young(&self.root.metadata(id)?) {
            return Ok(true);
        }
        let guest = Path::new(id.as_str()).join(GUEST);
        let parts = Part::ALL.iter().map(|part| guest.join(part));
        let others = host.iter().map(|part| [id.as_str(), HOST, *part].iter().collect());
        for path in parts.chain(others).chain([guest.clone()]) {
            match self.root.metadata(path) {
                Ok(entry) if young(&entry) => return Ok(true),
                // A host that lacks descriptors or memory sees nothing, which is no reason to remove anything.
                Err(error) if error.is_transient() => return Err(error),
                // What the guest has replaced says nothing.
                _ => {}
            }
        }
        let limits = WalkLimits::default().with_entries(LOOKED_AT).with_depth(LOOKED_INTO);
        let inside = self.root.descend(guest).map(|guest| guest.with_policy(self.config.host_policy()));
        let walk = match inside.and_then(|guest| guest.walk(".", limits)) {
            Ok(walk) => walk,
            // A guest that has closed its directory would otherwise keep it for ever.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let mut seen: u64 = 0;
        for entry in walk {
            seen += 1;
            match entry {
                Ok(entry) if young(entry.metadata()) => return Ok(true),
                // What was not looked at may be young.
                Err(error) if error.is_transient() || seen > LOOKED_AT => return Err(error.about(id)),
                _ => {}
            }
        }
        Ok(false)
    }
}

fn add(sum: &mut Removed, part: Removed) {
    sum.files += part.files;
    sum.directories += part.directories;
    sum.complete &= part.complete;
    sum.left.absorb(part.left);
}
