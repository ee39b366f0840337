//! Ending all sessions that nobody has used for a while.
//!
//! Problem: a sweep must not remove a session in use. A guest writes deep in its tree, where a look at the top sees nothing; a
//! host without descriptors sees nothing anywhere; a worker takes up its work between the look and the removal.
//!
//! Defence: everything that the guest's side contains counts, up to a bound; what could not be looked at is left and reported. The
//! age is asked once more when the lock is held.
//!
//! What remains: what a guest does after that goes with the session.

use std::path::Path;
use std::time::Duration;

use super::{NEW, REMOVED, Sessions};
use crate::error::{ErrorKind, Result};
use crate::name::SessionId;
use crate::root::{Metadata, WalkLimits};
use crate::session::handle::config::SweepClock;
use crate::session::handle::parts::{CLAIMED, GUEST, HOST, Part, STATE};
use crate::session::sweep::Swept;
use crate::session::sweep::clock::{self, Ages};

/// How many entries, and levels, of the guest's side are looked at for the latest change.
const LOOKED_AT: u64 = 1_000_000;
const LOOKED_INTO: u32 = 64;

impl Sessions {
    /// Removes every session in which nothing happened for `older_than`, and what interrupted calls have left.
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
    /// machine off, sessions go when they have been idle for `older_than` without that week, unless the config says
    /// [`SweepClock::Wall`]. The record of it is `.clock`, and sweeping often keeps it exact.
    ///
    /// # Errors
    /// The kinds of every resolution of the directory itself. What happens to one session is reported in [`Swept`], and so is
    /// a directory that cannot be read.
    ///
    /// # Races
    /// The age is asked once more when the lock is held, so whoever takes the [lock](crate::Session::try_lock) around its
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
    pub fn sweep(&self, older_than: Duration) -> Result<Swept> {
        self.sweep_if(older_than, |_| Ok(true))
    }

    /// As [`sweep`](Self::sweep), but of the sessions that are old enough only those go to which `may` agrees once the session's lock
    /// is held. The others are [kept](Swept::kept), and those of which `may` fails are [left](Swept::left).
    ///
    /// # Errors
    /// As [`sweep`](Self::sweep).
    ///
    /// # Races
    /// As [`sweep`](Self::sweep) and [`remove_if`](Self::remove_if).
    ///
    /// ```
    /// # use beneath::{Root, SessionId, Sessions, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(dir.path(), ambient_authority())?, Default::default());
    /// # for id in ["1", "2"] { sessions.create(&SessionId::new(id))?; }
    /// use std::time::Duration;
    ///
    /// let swept = sessions.sweep_if(Duration::ZERO, |id| Ok(id.as_str() != "2"))?;
    /// assert_eq!((swept.removed, swept.kept), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep_if(
        &self,
        older_than: Duration,
        mut may: impl FnMut(&SessionId) -> Result<bool>,
    ) -> Result<Swept> {
        if self.config.sweep_clock() == SweepClock::Wall {
            return self.sweep_by(&Ages::by_wall_clock(), older_than, &mut may);
        }
        let (ages, kept) = Ages::watched(&self.root);
        let mut swept = self.sweep_by(&ages, older_than, &mut may)?;
        if let Err(error) = kept {
            // Without the record nothing gets older, and so nothing goes.
            swept.record(Path::new(clock::FILE), Err(error));
        }
        Ok(swept)
    }

    fn sweep_by(
        &self,
        ages: &Ages,
        older_than: Duration,
        may: &mut dyn FnMut(&SessionId) -> Result<bool>,
    ) -> Result<Swept> {
        let survey = self.survey()?;
        let mut swept = Swept { left: survey.refused, ..Swept::default() };
        for name in survey.remains {
            // A session that is being made right now is young.
            let young = || match self.root.metadata(&name) {
                Ok(entry) => ages.of(&entry) < older_than,
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
            let used = |host: &[&str]| self.used_within(&id, host, |entry| ages.of(entry) < older_than);
            let mut refused = None;
            let mut agreed = || may(&id).inspect_err(|error| refused = Some(error.clone()));
            let outcome = match used(&[CLAIMED, STATE]) {
                Ok(true) => Ok(None),
                // Making the lock file has changed the directory of states. Whoever is asked may take long.
                Ok(false) => self.retire(&id, || Ok(agreed()? && !used(&[CLAIMED])?)),
                Err(error) => Err(error),
            };
            if let Some(error) = refused {
                swept.left.add(id.as_str(), error);
                continue;
            }
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
        // What is mounted at a place is not beneath the guest's directory to a walk.
        let places = Part::ALL.iter().filter(|_| self.config.places().is_some());
        for top in places.map(|part| guest.join(part)).chain([guest.clone()]) {
            if self.is_used_beneath(id, &top, &young)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_used_beneath(
        &self,
        id: &SessionId,
        top: &Path,
        young: &impl Fn(&Metadata) -> bool,
    ) -> Result<bool> {
        let limits = WalkLimits::default().with_entries(LOOKED_AT).with_depth(LOOKED_INTO);
        let policy = self.config.host_policy().with_mounts(self.config.mounts());
        let inside = self.root.descend(top).map(|top| top.with_policy(policy));
        let walk = match inside.and_then(|top| top.walk(".", limits)) {
            Ok(walk) => walk,
            // A guest that has closed its directory would otherwise keep it without end.
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
