//! Ending one session.
//!
//! Problem: a guest still creates while the host removes, another host opens what is half removed, and the host may die at any
//! step.
//!
//! Defence: the session loses its name in one step, under its lock, before anything is deleted. Then the guest's side is moved to
//! where no guest can name it, and removed within the budget.
//!
//! What remains: what could not be removed is reported, has no id any more, and is left to the next sweep.

use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;

use super::{REMOVED, Sessions};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SessionId;
use crate::root::{Budget, Removed, Root};
use crate::session::event;
use crate::session::handle::identity::Identity;
use crate::session::handle::lock::{SessionLock, lock};
use crate::session::handle::marker::{Kind, kind_of, look_at, mark_doomed};
use crate::session::handle::parts::{GUEST, HOST, Part, SHARE, TRASH};

impl Sessions {
    /// Removes the session `id` with all it holds.
    ///
    /// The session first loses its name, so nobody opens it half removed and the id is free at once. Then the guest's
    /// directory is moved into `host/trash` and removed there, within the config's budget, and the rest after it.
    /// If a guest keeps creating, or a part may not be removed or is mounted, the report is not
    /// [complete](Removed::is_complete) and the next [`sweep`](Self::sweep) tries again. Handles of the session that are still
    /// open are [dead](crate::Session) from then on.
    ///
    /// A session that cannot be renamed, as one in a lower layer of an overlay, is marked as being removed and goes where it
    /// is. Its id is free once all of it is gone; until then this call, and each sweep, goes on with it.
    ///
    /// Where the config has [places](crate::SessionsConfig::with_places) and something is mounted at one of them, the host gave that
    /// directory. It is emptied and stays: the report is not complete until it is unmounted, and the next sweep removes the rest.
    ///
    /// If there is no such session, because it was removed before or never made, the report is complete and has counted nothing.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if somebody holds the session's lock, it comes and goes, or it is itself a mount point;
    /// [`NotFound`](ErrorKind::NotFound) if `id` is a [group](Self::group) or anything else but a session;
    /// [`InvalidData`](ErrorKind::InvalidData) or [`Unsupported`](ErrorKind::Unsupported) if its marker is damaged or of a later
    /// format; [`Unsupported`](ErrorKind::Unsupported) if the sessions are sealed and something is mounted in this one;
    /// and the kinds of every resolution. Where there is no `flock`, nobody holds a lock.
    ///
    /// # Races
    /// A guest that still runs keeps whatever it holds open, and may slow the removal until its budget is spent.
    /// Nothing outside the session is touched.
    ///
    /// ```
    /// # use beneath::{Root, SessionId, Sessions, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(dir.path(), ambient_authority())?, Default::default());
    /// let (id, _) = sessions.create_generated()?;
    /// assert!(sessions.remove(&id)?.directories > 0);
    /// let again = sessions.remove(&id)?;
    /// assert!(again.is_complete() && again.directories == 0, "it was gone already");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, id: &SessionId) -> Result<Removed> {
        self.remove_if(id, || Ok(true)).map(Option::unwrap_or_default)
    }

    /// As [`remove`](Self::remove), if `may` agrees once the session's lock is held; none if it does not. It is how a session stays
    /// while something of it is nowhere else, as `Artifacts::unsent` knows.
    ///
    /// `may` is not asked for a session that is gone, nor for one of which a part is removed already.
    ///
    /// # Errors
    /// As [`remove`](Self::remove), and those of `may`. Nothing is removed then.
    ///
    /// # Races
    /// What a guest that still runs does after `may` has looked goes with the session: stop it first.
    ///
    /// ```
    /// # use beneath::{Root, SessionId, Sessions, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(dir.path(), ambient_authority())?, Default::default());
    /// let (id, session) = sessions.create_generated()?;
    /// session.workspace().write_exclusive("report.txt", "done")?;
    /// let is_read = || Ok(!session.workspace().exists("report.txt")?);
    /// assert!(sessions.remove_if(&id, is_read)?.is_none());
    /// session.workspace().remove_file("report.txt")?;
    /// assert!(sessions.remove_if(&id, is_read)?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_if(&self, id: &SessionId, may: impl FnOnce() -> Result<bool>) -> Result<Option<Removed>> {
        let mut failed = false;
        let error = match self.retire(id, || may().inspect_err(|_| failed = true)) {
            Err(error) if error.kind() == ErrorKind::NotFound && !failed => error,
            retired => return retired,
        };
        match kind_of(&self.root, id.as_str())? {
            // There was none, or somebody else has removed it meanwhile.
            Kind::Nothing => Ok(Some(Removed::all())),
            Kind::Session | Kind::Doomed => {
                Err(error.with_kind(ErrorKind::Busy).with_detail("comes and goes"))
            }
            Kind::Group | Kind::Namesake | Kind::Unmarked => Err(error),
        }
    }

    /// Removes a session if it is `due` once its lock is held.
    pub(super) fn retire(
        &self,
        id: &SessionId,
        due: impl FnOnce() -> Result<bool>,
    ) -> Result<Option<Removed>> {
        let refuse = |why| Err(Error::new("remove session", id, ErrorKind::NotFound).with_detail(why));
        let dir = match look_at(&self.root, id.as_str())? {
            (Kind::Session, Some(dir)) => dir,
            (Kind::Doomed, _) => return self.destroy_in_place(id.as_str()).map(Some),
            (Kind::Group | Kind::Unmarked, _) => return refuse("is not a session"),
            (kind, _) => return refuse(kind.reason()),
        };
        self.refuse_mounted("remove session", id.as_str())?;
        let lock = self.lock_to_remove(&dir).map_err(|error| error.about(id))?;
        if !due()? {
            return Ok(None);
        }
        // Somebody may have removed it before the lock was held, and made it anew.
        let unknown = |errno| Error::from_errno("remove session", id, errno);
        match Identity::at(&self.root, id.as_str()) {
            Ok(now) if now == Identity::of(&dir).map_err(unknown)? => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(Some(Removed::all())),
            Err(errno) => return Err(unknown(errno)),
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
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(Removed::all())),
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
    pub(super) fn destroy_in_place(&self, name: &str) -> Result<Removed> {
        let budget = self.config.budget();
        let mut parts = Removed::all();
        for part in [GUEST, SHARE, HOST] {
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

    pub(super) fn destroy(&self, name: &str) -> Result<Removed> {
        let budget = self.config.budget();
        let given = self.empty_given(name);
        let guest = match self.doomed(name) {
            Ok((dir, trash)) => dir.remove_tree_quarantined(GUEST, &trash, budget).unwrap_or_default(),
            // It was made or removed only in part; what there is goes with the rest.
            Err(_) => Removed::default(),
        };
        let mut removed = self.root.remove_tree_contained_within(name, budget)?;
        removed.files += guest.files + given.files;
        removed.directories += guest.directories + given.directories;
        removed.complete &= given.complete;
        removed.left.absorb(given.left);
        event::left_behind("remove session", &removed);
        Ok(removed)
    }

    /// Empties the places that the host has mounted.
    fn empty_given(&self, name: &str) -> Removed {
        let mut removed = Removed::all();
        let policy = self.config.host_policy();
        for part in Part::ALL.into_iter().filter(|_| self.config.places().is_some()) {
            let emptied = self.root.descend(Path::new(name).join(GUEST)).and_then(|guest| {
                let place = guest.descend(part)?.with_policy(policy.clone());
                match guest.with_policy(policy.clone()).descend(part) {
                    Err(error) if error.kind() == ErrorKind::CrossDevice => {
                        empty(&place, self.config.budget())
                    }
                    // It goes with the rest.
                    _ => Ok(Removed::all()),
                }
            });
            match emptied {
                Ok(emptied) => add(&mut removed, emptied),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => leave(&mut removed, part.as_ref(), error),
            }
        }
        removed
    }

    fn doomed(&self, name: &str) -> Result<(Root, Root)> {
        let dir = self.root.descend(name)?;
        let trash = dir.descend(HOST)?.descend(TRASH)?;
        Ok((dir, trash))
    }
}

/// Removes all that a directory contains.
fn empty(dir: &Root, budget: Budget) -> Result<Removed> {
    let mut removed = Removed::all();
    let start = Instant::now();
    for entry in dir.list(".")? {
        let entry = entry?;
        // A guest that still runs can make entries as fast as they are removed.
        let budget = match budget.time().checked_sub(start.elapsed()) {
            Some(left) if !left.is_zero() => budget.with_time(left),
            _ => {
                let error = Error::new("remove session", entry.path(), ErrorKind::Busy);
                leave(&mut removed, entry.path(), error.with_detail("the time of the budget is over"));
                break;
            }
        };
        let gone = match entry.metadata().is_dir() {
            true => dir.remove_tree_contained_within(entry.path(), budget),
            false => dir.remove_file(entry.path()).map(|()| Removed { files: 1, ..Removed::all() }),
        };
        match gone {
            Ok(gone) => add(&mut removed, gone),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => leave(&mut removed, entry.path(), error),
        }
    }
    Ok(removed)
}

fn leave(removed: &mut Removed, path: &Path, error: Error) {
    removed.complete = false;
    removed.left.add(path, error);
}

fn add(sum: &mut Removed, part: Removed) {
    sum.files += part.files;
    sum.directories += part.directories;
    sum.complete &= part.complete;
    sum.left.absorb(part.left);
}
