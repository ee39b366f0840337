//! Which sessions and groups there are. An entry that cannot be read is reported, and the others are listed.

use std::path::Path;

use super::{NEW, REMOVED, Sessions};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{SafeName, SessionId};
use crate::report::Leftovers;
use crate::session::event;
use crate::session::handle::marker::{Kind, kind_of};

/// What [`Sessions::survey`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "sessions may be missing from the list"]
#[non_exhaustive]
pub struct Survey {
    /// The ids of all sessions, sorted; those of groups are not among them.
    pub sessions: Vec<SessionId>,
    /// The names of all groups, sorted.
    pub groups: Vec<SafeName>,
    /// Directories that could not be read, and why.
    pub refused: Leftovers,
    /// What interrupted calls have left.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) remains: Vec<String>,
}

impl Survey {
    /// Whether every session and group is in the report.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty()
    }

    /// The directories that could not be read, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }

    fn refuse(&mut self, error: Error, name: &str) {
        event::refused("list sessions", &error);
        self.refused.add(name, error);
    }

    fn add(&mut self, kind: Kind, name: &str) -> Result<()> {
        match kind {
            Kind::Session => self.sessions.push(SessionId::from_component(name)?),
            Kind::Group => self.groups.push(SafeName::new(name)?),
            Kind::Doomed => self.remains.push(name.to_owned()),
            Kind::Namesake => {
                let error = Error::new("list sessions", name, ErrorKind::InvalidData);
                return Err(error.with_detail(kind.reason()));
            }
            Kind::Unmarked | Kind::Nothing => {}
        }
        Ok(())
    }
}

impl Sessions {
    /// Lists sessions and groups, and what could not be read.
    ///
    /// Refused are directories that this process may not enter, and those whose marker is damaged
    /// ([`InvalidData`](ErrorKind::InvalidData)), of a later format ([`Unsupported`](ErrorKind::Unsupported)) or made for
    /// another name (`InvalidData`, too), as after a rename by hand, and one that comes and goes while it is looked at
    /// ([`Busy`](ErrorKind::Busy)). A directory without a marker is neither, and is left out.
    ///
    /// # Errors
    /// The kinds of every resolution of the directory itself.
    ///
    /// # Races
    /// It is no snapshot. Sessions that are made or removed meanwhile may or may not be listed.
    ///
    /// ```
    /// # use beneath::{Root, SessionId, Sessions, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path();
    /// # let sessions = Sessions::new(Root::open_ambient(path, ambient_authority())?, Default::default());
    /// sessions.create(&SessionId::new("42"))?;
    /// std::fs::create_dir(path.join("lost+found"))?;
    ///
    /// let survey = sessions.survey()?;
    /// assert_eq!(survey.sessions, [SessionId::new("42")]);
    /// assert!(survey.groups.is_empty() && survey.is_complete());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn survey(&self) -> Result<Survey> {
        let mut survey = Survey::default();
        for entry in self.root.list(".")? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => match error.subject().and_then(|name| name.to_str()).map(str::to_owned) {
                    Some(name) if !name.is_empty() => {
                        survey.refuse(error, &name);
                        continue;
                    }
                    // The directory itself cannot be read any further.
                    _ => return Err(error),
                },
            };
            let (true, Some(name)) = (entry.metadata().is_dir(), entry.file_name().to_str()) else {
                continue;
            };
            if name.starts_with(NEW) || name.starts_with(REMOVED) {
                survey.remains.push(name.to_owned());
            } else if SafeName::new(name).is_ok()
                && let Err(error) = kind_of(&self.root, name).and_then(|kind| survey.add(kind, name))
            {
                survey.refuse(error, name);
            }
        }
        survey.sessions.sort_unstable();
        survey.groups.sort_unstable();
        Ok(survey)
    }

    /// The ids of all sessions, sorted; those of groups are not among them. What could not be read is missing: see
    /// [`survey`](Self::survey).
    ///
    /// # Errors
    /// The kinds of every resolution of the directory itself.
    pub fn list(&self) -> Result<Vec<SessionId>> {
        self.survey().map(|survey| survey.sessions)
    }

    /// The names of all groups, sorted. What could not be read is missing: see [`survey`](Self::survey).
    ///
    /// # Errors
    /// The kinds of every resolution of the directory itself.
    pub fn groups(&self) -> Result<Vec<SafeName>> {
        self.survey().map(|survey| survey.groups)
    }
}
