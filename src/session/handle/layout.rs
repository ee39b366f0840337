//! Where things are in a session, and what to do when the guest has replaced them.
//!
//! Problem: `inbox`, `outbox` and `workspace` are entries of a directory that the guest may write to. It can rename
//! them away and put a link to a host directory, a file or nothing in their place.
//!
//! Defence: only the handles of `guest` and `host` are trusted. The three are looked up as components, without
//! following links, on each use. [`Session::verify`] reports what is there now, [`Session::repair`] puts the directories back.
//!
//! Parts that are [apart](Session::from_places) are handles, and the guest cannot replace them.
//!
//! What remains: a guest may replace them again after the repair. The next use is refused again.

use std::path::Path;

use super::Session;
use super::parts::{Part, SHARE};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Ensured, Execute, FileType};
use crate::session::event;

/// What is at a [`Part`]'s name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum PartState {
    /// A real directory.
    Sound,
    /// Nothing.
    Missing,
    /// Something else: a link, a file, a FIFO.
    Replaced(FileType),
    /// It could not be looked at, for this reason.
    Unreadable(Error),
}

/// What [`Session::verify`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a part may have been replaced"]
#[non_exhaustive]
pub struct Layout {
    /// The state of each part, in the order of [`Part::ALL`].
    pub parts: [(Part, PartState); 3],
    /// The state of the [share](Session::share); none if the session is to have none.
    pub share: Option<PartState>,
}

impl Layout {
    /// Whether every part, and the share if there is to be one, is a real directory.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let mut states = self.parts.iter().map(|(_, state)| state).chain(&self.share);
        states.all(|state| *state == PartState::Sound)
    }

    /// The parts that are not.
    pub fn unsound(&self) -> impl Iterator<Item = (Part, &PartState)> {
        self.parts.iter().filter(|(_, state)| *state != PartState::Sound).map(|(part, state)| (*part, state))
    }

    /// Whether every part could be looked at. This says nothing about what was found: a link in place of a part is seen as
    /// well as a directory, and only [`is_sound`](Self::is_sound) is about that.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused().next().is_none()
    }

    /// The parts that could not be looked at, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        let parts = self.parts.iter().map(|(part, state)| (part.as_ref(), state));
        let share = self.share.iter().map(|state| (Path::new(SHARE), state));
        parts.chain(share).filter_map(|(part, state)| match state {
            PartState::Unreadable(error) => Some((part, error)),
            _ => None,
        })
    }
}

impl Session {
    /// Reports which parts of the guest's side the guest has removed or replaced.
    ///
    /// No other call needs this: each refuses what is not a real directory. It is for logs and for people.
    ///
    /// # Races
    /// It was true during the call.
    ///
    /// ```
    /// use beneath::session::{Part, PartState};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let guest_path = dir.path().join("s/guest");
    /// std::fs::remove_dir(guest_path.join("inbox"))?;
    /// std::os::unix::fs::symlink("/etc", guest_path.join("inbox"))?;
    ///
    /// let layout = session.verify();
    /// let (part, state) = layout.unsound().next().unwrap();
    /// assert_eq!((part, state), (Part::Inbox, &PartState::Replaced(beneath::FileType::Symlink)));
    /// let _found = session.repair()?;
    /// assert!(session.verify().is_sound());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(&self) -> Layout {
        let parts = Part::ALL.map(|part| (part, self.state_of(part)));
        Layout { parts, share: self.state_of_share() }
    }

    fn state_of(&self, part: Part) -> PartState {
        let (root, path) = match self.at(part, ".") {
            Ok(located) => located,
            Err(error) => return PartState::Unreadable(error),
        };
        match root.metadata(path) {
            // A directory that is held has no name once somebody has removed it.
            Ok(entry) if entry.is_dir() && entry.nlink() == 0 => PartState::Missing,
            Ok(entry) if entry.is_dir() => PartState::Sound,
            Ok(entry) => PartState::Replaced(entry.file_type()),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => PartState::Missing,
                ErrorKind::Symlink => PartState::Replaced(FileType::Symlink),
                _ => PartState::Unreadable(error),
            },
        }
    }

    /// Puts back every part that is missing or replaced, re-applies the mode and owner of the others, and returns what
    /// was found before.
    ///
    /// What is in place of a directory is unlinked; a link is never followed. A directory of [its own](Self::from_places) that
    /// somebody has removed cannot be put back, nor can the [share](Self::share): [`Sessions::create`](crate::Sessions::create) makes
    /// that anew.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for that one,
    /// [`Busy`](ErrorKind::Busy) if the guest keeps replacing, [`Denied`](ErrorKind::Denied), and the kinds of every
    /// resolution. The other parts are repaired all the same.
    ///
    /// # Races
    /// The guest may replace them again at once.
    pub fn repair(&self) -> Result<Layout> {
        self.alive()?;
        let found = self.verify();
        let mut first_failure = None;
        for (part, state) in &found.parts {
            if let Err(error) = self.repair_part(*part, state) {
                event::refused("repair", &error);
                first_failure = first_failure.or(Some(error));
            }
        }
        if found.share == Some(PartState::Missing) {
            let error = Error::new("repair", SHARE, ErrorKind::NotFound);
            first_failure = first_failure.or(Some(error));
        }
        first_failure.map_or(Ok(found), Err)
    }

    fn repair_part(&self, part: Part, state: &PartState) -> Result<()> {
        if let Some(root) = self.apart(part) {
            return match state {
                PartState::Missing => Err(Error::new("repair", part, ErrorKind::NotFound)),
                _ => root.set_access(".", root.policy().access(), Execute::Clear).map(drop),
            };
        }
        if let PartState::Replaced(file_type) = state {
            event::replaced(part.name(), *file_type);
            match self.guest().remove_file(part) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.guest().ensure_dir(part)? == Ensured::Existed {
            self.guest().set_access(part, self.guest().policy().access(), Execute::Clear)?;
        }
        Ok(())
    }
}
