//! Ending sessions: one by id, or all that nobody has used for a while.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::claim::gone;
use super::layout::{CLAIMED, GUEST, HOST, Part, STATE, TRASH};
use super::lock::lock;
use super::sessions::{NEW, REMOVED};
use super::{Sessions, event};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SessionId;
use crate::root::{Left, Limits, Metadata, Removed, Root};

/// How many leftovers a report tells by name.
const TOLD: usize = 32;
/// How many entries, and levels, of the guest's side are looked at for the latest change.
const LOOKED_AT: u64 = 10_000;
const LOOKED_INTO: u32 = 16;

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
    /// What should have gone and did not, and why; no more than the first few.
    pub left: Vec<Left>,
    /// How many should have gone and did not.
    pub left_total: u64,
}

impl Swept {
    pub(super) fn record(&mut self, path: &Path, outcome: Result<Removed>) {
        match outcome {
            Ok(removed) if removed.complete => self.removed += 1,
            Ok(removed) => {
                let kind = removed.left.first().map_or(ErrorKind::Busy, |left| left.kind);
                self.leave(path, kind);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.leave(path, error.kind()),
        }
    }

    fn leave(&mut self, path: &Path, kind: ErrorKind) {
        self.left_total += 1;
        if self.left.len() < TOLD {
            self.left.push(Left { path: path.to_path_buf(), kind });
        }
    }
}

/// How long ago the kernel saw the entry change. A guest can set any modification time, but not this one.
pub(super) fn age(entry: &Metadata) -> Duration {
    SystemTime::now().duration_since(entry.changed()).unwrap_or_default()
}

impl Sessions {
    /// Removes the session `id` with all it holds.
    ///
    /// The session first loses its name, so nobody opens it half removed and the id is free at once. Then the guest's
    /// directory is moved into `host/trash` and removed there, within the config's budget, and the rest after it.
    /// If a guest keeps creating, or a part may not be removed, the report is not
    /// [complete](Removed::complete) and the next [`sweep`](Self::sweep) tries again.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if somebody holds the session's lock, [`NotFound`](ErrorKind::NotFound), also if `id` is
    /// a [group](Self::group), and the kinds of every resolution.
    ///
    /// # Races
    /// A guest that still runs keeps whatever it holds open, and may slow the removal until its budget is spent.
    /// Nothing outside the session is touched.
    pub fn remove(&self, id: &SessionId) -> Result<Removed> {
        self.retire(id, || Ok(true)).map(Option::unwrap_or_default)
    }

    /// Removes a session if it is `due` once its lock is held.
    fn retire(&self, id: &SessionId, due: impl FnOnce() -> Result<bool>) -> Result<Option<Removed>> {
        let dir = self.root.descend(id)?;
        if !self.is_session(id.as_ref())? {
            return Err(Error::new("remove session", id, ErrorKind::NotFound).with_detail("is not a session"));
        }
        let host = dir.descend(HOST);
        let _lock = match host {
            Ok(host) => match lock(&host.with_policy(self.config.host_policy())) {
                Ok(lock) => Some(lock),
                // A session that lacks its state directory, or its lock file for want of space, can still go. Nobody
                // holds a lock that is not there.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NoSpace) => None,
                Err(error) => return Err(error.about(id)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error.about(id)),
        };
        if !due()? {
            return Ok(None);
        }
        let doomed = format!("{REMOVED}{}", SessionId::generate()?);
        self.root.rename(id, &doomed)?;
        match self.destroy(&doomed) {
            // A sweep was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(gone())),
            removed => removed.map(Some),
        }
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
    /// than 10,000 entries and 16 levels of the guest's side are looked at: of a larger session, what was seen and the
    /// directories of the layout count. A session whose lock is held is left, as [`Busy`](ErrorKind::Busy).
    ///
    /// # Errors
    /// The kinds of every resolution of the directory itself. What happens to one session is told in [`Swept`].
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
        let mut swept = Swept::default();
        let mut remains = Vec::new();
        self.each_directory(|name| {
            if name.starts_with(REMOVED) || name.starts_with(NEW) {
                remains.push(name.to_owned());
            }
            Ok(())
        })?;
        for name in remains {
            // A session that is being made right now is young.
            let young = self.root.metadata(&name).is_ok_and(|entry| age(&entry) < idle);
            if name.starts_with(REMOVED) || !young {
                swept.record(Path::new(&name), self.destroy(&name));
            }
        }
        for id in self.list()? {
            let outcome = match self.used_within(&id, idle, &[CLAIMED, STATE]) {
                Ok(true) => Ok(None),
                // Making the lock file has changed the directory of states.
                Ok(false) => self.retire(&id, || self.used_within(&id, idle, &[CLAIMED]).map(|used| !used)),
                Err(error) => Err(error),
            };
            match outcome.transpose() {
                Some(removed) => swept.record(id.as_ref(), removed),
                None => swept.kept += 1,
            }
        }
        Ok(swept)
    }

    /// Whether anything that both sides use has changed since `idle` ago, or any of these directories of the host's.
    fn used_within(&self, id: &SessionId, idle: Duration, host: &[&str]) -> Result<bool> {
        let young = |entry: &Metadata| age(entry) < idle;
        if young(&self.root.metadata(id)?) {
            return Ok(true);
        }
        let guest = Path::new(id.as_str()).join(GUEST);
        let parts = Part::ALL.iter().map(|part| guest.join(part));
        let others = host.iter().map(|part| [id.as_str(), HOST, *part].iter().collect());
        for path in parts.chain(others).chain([guest.clone()]) {
            // What the guest has replaced says nothing.
            if self.root.metadata(path).is_ok_and(|entry| young(&entry)) {
                return Ok(true);
            }
        }
        let limits = Limits::default().with_entries(LOOKED_AT).with_depth(LOOKED_INTO);
        match self.root.walk(guest, limits) {
            Ok(walk) => Ok(walk.filter_map(Result::ok).any(|entry| young(entry.metadata()))),
            // A guest that has closed its directory would otherwise keep it for ever.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
