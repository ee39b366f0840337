//! What became of a delivery, and how to take it back.

use crate::error::{Error, ErrorKind};
use crate::name::{MessageId, SafeName};
use crate::session::event;
use crate::session::handle::Session;
use crate::session::handle::parts::Part;

/// What became of one attachment.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It is in the inbox now.
    Saved(SavedFile),
    /// It was in the inbox already, with the same content: an earlier try of the same delivery had got so far.
    AlreadySaved(SavedFile),
    /// It is not in the inbox, for this reason.
    Refused(Error),
}

/// Where an attachment is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedFile {
    /// Its name, derived from what the sender said.
    pub name: SafeName,
    /// Its path as the guest may be told, `inbox/<message>/<name>`, relative to the guest's directory.
    pub guest_path: String,
    /// How long it is.
    pub bytes: u64,
    /// The name it would have, had that not been taken by something else.
    pub taken: Option<SafeName>,
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

/// What became of a message's attachments; see [`Inbox::deliver`](super::Inbox::deliver).
#[derive(Debug)]
#[must_use = "attachments may have been refused"]
pub struct Delivery {
    pub(super) session: Session,
    pub(super) id: MessageId,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) not_tried: u64,
    /// Whether this delivery made the message's directory.
    pub(super) made_directory: bool,
}

/// What [`Delivery::rollback`] did.
#[derive(Debug, Default)]
#[must_use = "files may have stayed"]
#[non_exhaustive]
pub struct RolledBack {
    /// How many files are gone.
    pub removed: u64,
    /// What stayed, and why.
    pub left: Vec<(SafeName, Error)>,
}

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
    /// assert_eq!(delivery.refusals().map(|error| error.kind()).collect::<Vec<_>>(), [ErrorKind::TooMany]);
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

    /// Why the others are not.
    pub fn refusals(&self) -> impl Iterator<Item = &Error> {
        self.outcomes.iter().filter_map(Outcome::refusal)
    }

    /// Whether every attachment is in the inbox.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refusals().next().is_none()
    }

    /// Removes what this delivery wrote, because the message's own record could not be stored.
    ///
    /// Files that an earlier delivery had saved stay.
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
    /// assert_eq!(delivery.rollback().removed, 1);
    /// assert!(session.guest().metadata("inbox/42").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rollback(self) -> RolledBack {
        let mut report = RolledBack::default();
        for outcome in self.outcomes {
            let Outcome::Saved(file) = outcome else { continue };
            match self.session.guest().remove_file(&file.guest_path) {
                Ok(()) => report.removed += 1,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    event::refused("roll back", &error);
                    report.left.push((file.name, error));
                }
            }
        }
        if self.made_directory {
            // It stays only if something else is in it by now.
            let _ = self.session.guest().remove_dir(format!("{}/{}", Part::Inbox.name(), self.id));
        }
        report
    }
}
