//! The outcome of a delivery, and how to take it back.

use std::path::Path;

use crate::error::{Error, ErrorKind};
use crate::name::{MessageId, SafePath};
use crate::root::Removed;
use crate::session::event;
use crate::session::handle::Session;
use crate::session::handle::parts::Part;

/// The outcome for one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Outcome {
    /// It is in the inbox now.
    Saved(SavedFile),
    /// It was in the inbox already, with the same content: an earlier try of the same delivery saved it.
    AlreadySaved(SavedFile),
    /// It is not in the inbox, for this reason.
    Refused(Error),
}

/// Where an attachment is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SavedFile {
    /// Its name, derived from what the sender said: one component, that starts with a dot only if the config
    /// [keeps](crate::session::Dotfiles::Keep) the dot.
    pub name: SafePath,
    /// Its path for the host, `inbox/<message>/<name>`, from [the guest's directory](Session::guest).
    pub path: String,
    /// Its path for the guest, `<mount point>/inbox/<message>/<name>`, or `<mount point of the inbox>/<message>/<name>`; what
    /// [`Inbox::resolve_guest_path`](super::Inbox::resolve_guest_path) reads.
    pub guest_path: String,
    /// How long it is.
    pub bytes: u64,
    /// The name it was meant to have, if something else has that name.
    pub taken: Option<SafePath>,
}

impl Outcome {
    /// Where the file is, unless it was refused.
    #[must_use]
    pub fn file(&self) -> Option<&SavedFile> {
        match self {
            Self::Saved(file) | Self::AlreadySaved(file) => Some(file),
            Self::Refused(_) => None,
        }
    }

    /// Why it was refused, if it was.
    #[must_use]
    pub fn refusal(&self) -> Option<&Error> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Saved(_) | Self::AlreadySaved(_) => None,
        }
    }
}

/// The outcome for each attachment of a message; see [`Inbox::deliver`](super::Inbox::deliver).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "attachments may have been refused"]
pub struct Delivery {
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) session: Session,
    pub(super) id: MessageId,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) not_tried: u64,
    /// Whether this delivery made the message's directory.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) made_directory: bool,
}

impl PartialEq for Delivery {
    /// Whether the outcomes are the same; the session does not matter.
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.outcomes, self.not_tried) == (&other.id, &other.outcomes, other.not_tried)
    }
}

impl Eq for Delivery {}

impl Delivery {
    /// The message.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// One outcome for each attachment, in the order they were given.
    ///
    /// Those past the limit for [files](crate::session::MessageLimits::files) share one, the last: a refusal of the kind
    /// [`TooMany`](ErrorKind::TooMany) that counts them.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The outcomes of [`outcomes`](Self::outcomes), for whoever keeps them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::{MessageId, session::Attachment};
    ///
    /// let delivery = session.inbox().deliver(&MessageId::new("42"), [Attachment::from_bytes("hello")]);
    /// assert_eq!(delivery.into_outcomes().len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_outcomes(self) -> Vec<Outcome> {
        self.outcomes
    }

    /// How many attachments were past the limit for [files](crate::session::MessageLimits::files) and not tried.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// use beneath::session::{Attachment, MessageLimits, SessionsConfig};
    /// use beneath::{ErrorKind, MessageId, SessionId, Sessions};
    ///
    /// let config = SessionsConfig::default().with_inbox(MessageLimits::default().with_files(2));
    /// let sessions = Sessions::new(root, config);
    /// let (session, _) = sessions.create(&SessionId::new("s"))?;
    /// let attachments = (0..1000).map(|_| Attachment::from_bytes("x"));
    /// let delivery = session.inbox().deliver(&MessageId::new("42"), attachments);
    /// assert_eq!((delivery.files().count(), delivery.not_tried()), (2, 998));
    /// assert_eq!(delivery.refused().map(|(_, error)| error.kind()).collect::<Vec<_>>(), [ErrorKind::TooMany]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn not_tried(&self) -> u64 {
        self.not_tried
    }

    /// The files that are in the inbox.
    pub fn files(&self) -> impl Iterator<Item = &SavedFile> {
        self.outcomes.iter().filter_map(Outcome::file)
    }

    /// Which attachments are not, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        let refusals = self.outcomes.iter().filter_map(Outcome::refusal);
        refusals.map(|error| (error.subject().unwrap_or(Path::new("")), error))
    }

    /// Whether every attachment is in the inbox.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused().next().is_none()
    }

    /// Removes what this delivery wrote, because the message's own record could not be stored.
    ///
    /// Files that an earlier delivery saved stay.
    ///
    /// # Races
    /// The removal goes by name, so a file that the guest has put at one of the names goes instead.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::{MessageId, session::Attachment};
    ///
    /// let delivery = session.inbox().deliver(&MessageId::new("42"), [Attachment::from_bytes("hello")]);
    /// assert!(session.guest().metadata("inbox/42/attachment-0").is_ok());
    /// assert_eq!(delivery.rollback().files, 1);
    /// assert!(session.guest().metadata("inbox/42").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rollback(self) -> Removed {
        let mut removed = Removed::all();
        let directory: &Path = self.id.as_ref();
        for outcome in self.outcomes {
            let Outcome::Saved(file) = outcome else { continue };
            let (root, path) = self.session.located(Part::Inbox, &directory.join(&file.name));
            match root.remove_file(path) {
                Ok(()) => removed.files += 1,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    event::refused("roll back", &error);
                    removed.left.add(file.name.as_str(), error);
                    removed.complete = false;
                }
            }
        }
        if self.made_directory {
            let (root, path) = self.session.located(Part::Inbox, directory);
            match root.remove_dir(path) {
                Ok(()) => removed.directories += 1,
                // It is gone, or something else is in it by now.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotEmpty) => {}
                // What stays in it is reported.
                Err(_) if !removed.complete => {}
                Err(error) => {
                    event::refused("roll back", &error);
                    removed.left.add("", error);
                    removed.complete = false;
                }
            }
        }
        removed
    }
}
