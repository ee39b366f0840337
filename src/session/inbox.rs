//! Where the host puts what the guest is to read.
//!
//! Problem: the guest replaces `inbox` or a message's directory by a link, takes the name beforehand, reads a file that
//! is half written, or makes one bad attachment fail a whole message.
//!
//! Defence: one lookup per message, beneath the guest's handle and without links; each file is published whole or
//! not at all, never over anything; a name that is taken gets a number. Each attachment has its own outcome.
//!
//! What remains: once published, a file is the guest's.

mod attachment;
#[cfg(feature = "json")]
mod base64;
mod delivery;
mod inbound;
#[cfg(feature = "json")]
mod message;
mod writer;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use self::writer::{OPERATION, Writer};
use super::event;
use super::handle::Session;
use super::handle::config::{Dotfiles, MessageLimits};
use super::handle::parts::Part;
use super::handle::resolve::Spelled;
use super::sweep::{Sweep, Swept, remove_entry};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{MessageId, SafeName, SafePath};
use crate::root::{ContainedFile, Removed};

pub use attachment::Attachment;
pub use delivery::{Delivery, Outcome, SavedFile};
#[cfg(feature = "json")]
pub use message::rewrite_message;

/// The guest's inbox; see [`Session::inbox`].
#[derive(Clone, Debug)]
pub struct Inbox {
    session: Session,
}

impl Session {
    /// The directory in which the guest finds what it is sent.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        Inbox { session: self.clone() }
    }
}

impl Inbox {
    /// Writes the attachments of a message to `inbox/<message>`, and reports the outcome of each.
    ///
    /// Names are derived from what the sender said, repaired, and numbered when they are taken. The directory is made
    /// when the first attachment needs it. A delivery that is tried again finds the files of the first try by name and
    /// content and says [`Outcome::AlreadySaved`].
    ///
    /// The limits are those of the message: what earlier calls with this id have left in its directory counts, and what an
    /// earlier try of the same delivery has saved does not count again. The directory is the guest's, so it decides
    /// what is there: by removing files it makes room for more, and by filling the directory it has further deliveries of
    /// that one message refused. A file counts with its size, a hole in it included; anything else counts as one entry of
    /// no size. No more entries are looked at than a message may have.
    ///
    /// Attachments past the limit for [files](MessageLimits::files) are counted and not tried; see
    /// [`Delivery::not_tried`].
    ///
    /// This never fails as a whole: whatever goes wrong with one attachment is its outcome, and the message can go
    /// on without it. Reasons are [`TooLarge`](ErrorKind::TooLarge) and [`TooMany`](ErrorKind::TooMany) for the limits,
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if the guest has replaced a
    /// directory, [`InvalidData`](ErrorKind::InvalidData) for content that is not what was said, and those of
    /// [`Root::write_exclusive`](crate::Root::write_exclusive).
    ///
    /// # Races
    /// A guest sees each file whole or not at all. If it moves the message's directory meanwhile, the files go with it. Two
    /// calls with one id at the same time count apart, so that each may use all the room there was.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::MessageId;
    /// use beneath::session::Attachment;
    ///
    /// let delivery = session.inbox().deliver(
    ///     &MessageId::new("42"),
    ///     [
    ///         Attachment::from_bytes("one").with_name("../../notes.txt"),
    ///         Attachment::from_bytes("two").with_kind("photo"),
    ///     ],
    /// );
    /// let paths: Vec<_> = delivery.files().map(|file| file.guest_path.as_str()).collect();
    /// assert_eq!(paths, ["/session/inbox/42/notes.txt", "/session/inbox/42/attachment-1.jpg"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deliver<'a>(
        &self,
        id: &MessageId,
        attachments: impl IntoIterator<Item = Attachment<'a>>,
    ) -> Delivery {
        let mut writer = Writer::new(&self.session, id);
        let most = usize::try_from(self.limits().files()).unwrap_or(usize::MAX);
        let mut attachments = attachments.into_iter();
        let mut outcomes: Vec<Outcome> = attachments
            .by_ref()
            .take(most)
            .enumerate()
            .map(|(index, attachment)| writer.save(index, attachment).unwrap_or_else(refused))
            .collect();
        let not_tried = attachments.count() as u64;
        if not_tried > 0 {
            let why = format!("{not_tried} attachments more than the limit of {most}");
            let error = Error::new(OPERATION, &writer.path, ErrorKind::TooMany).with_detail(why);
            outcomes.push(refused(error));
        }
        if writer.made_directory && !outcomes.iter().any(|outcome| outcome.file().is_some()) {
            // Nothing was saved; if the guest has used the directory meanwhile, it stays.
            let (root, path) = self.session.located(Part::Inbox, id.as_ref());
            writer.made_directory = root.remove_dir(path).is_err();
        }
        let made_directory = writer.made_directory;
        Delivery { session: self.session.clone(), id: id.clone(), outcomes, not_tried, made_directory }
    }

    pub(super) fn limits(&self) -> MessageLimits {
        self.session.config().inbox()
    }

    /// Opens the file that a guest names by a path from a delivery.
    ///
    /// `path` is what [`SavedFile::guest_path`](super::SavedFile::guest_path) said, in any spelling that [`Session::resolve`] reads.
    /// Nothing else is tried.
    ///
    /// # Errors
    /// [`Escape`](ErrorKind::Escape) for a path that would leave, [`InvalidPath`](ErrorKind::InvalidPath) for any other form; those of
    /// [`Root::open_contained`](crate::Root::open_contained).
    ///
    /// # Races
    /// As [`Root::open_contained`](crate::Root::open_contained).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # use beneath::{MessageId, session::Attachment};
    /// let inbox = session.inbox();
    /// # let _ =
    /// inbox.deliver(&MessageId::new("42"), [Attachment::from_bytes("hello").with_name("a.txt")]);
    /// let mut file = inbox.resolve_guest_path("/session/inbox/42/a.txt")?;
    /// assert_eq!(file.read_to_limit(1024)?, b"hello");
    /// assert!(inbox.resolve_guest_path("/session/inbox/42/../../secret").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve_guest_path<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<ContainedFile> {
        const OPERATION: &str = "resolve guest path";
        let spelled = path.into();
        let refuse =
            |why| Err(Error::new(OPERATION, spelled.subject(), ErrorKind::InvalidPath).with_detail(why));
        let (part, path) = self.session.resolve(spelled.clone())?;
        if part != Part::Inbox {
            return refuse("is not in the inbox");
        }
        let components: Vec<&[u8]> = path.components().map(OsStr::as_bytes).collect();
        let [id, name] = components.as_slice() else {
            return refuse("is not <message>/<name> in the inbox");
        };
        if !str::from_utf8(id).is_ok_and(|id| MessageId::from_component(id).is_ok()) {
            return refuse("names no message");
        }
        if !is_attachment(name, self.session.config().dotfiles()) {
            return refuse("names no attachment");
        }
        let (root, path) = self.session.at(part, &path)?;
        root.open_contained(path)
    }

    /// Removes all that was delivered for a message, and whatever else is in its directory.
    ///
    /// It is first moved out of the guest's reach where that is possible. If there is nothing, that is
    /// [complete](Removed::is_complete) too; a link or file in place of the directory is unlinked.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) if `inbox` itself was replaced, and the kinds of every resolution.
    ///
    /// # Races
    /// As [`Root::remove_tree_quarantined`](crate::Root::remove_tree_quarantined).
    pub fn clear(&self, id: &MessageId) -> Result<Removed> {
        self.session.alive()?;
        remove_entry(&self.session, Part::Inbox, id.as_str().as_ref())
    }

    /// Removes every entry of the inbox that nobody has changed for `older_than`, by the kernel's clock.
    ///
    /// # Errors
    /// The kinds of every resolution of the inbox itself.
    ///
    /// # Races
    /// A message that is being delivered is young.
    pub fn sweep(&self, older_than: Duration) -> Result<Swept> {
        let mut sweep = Sweep::new(&self.session, older_than)?;
        sweep.part(Part::Inbox)?;
        Ok(sweep.finish())
    }
}

/// Whether a delivery gives such a name.
fn is_attachment(name: &[u8], dotfiles: Dotfiles) -> bool {
    match dotfiles {
        Dotfiles::Show => SafeName::new(name).is_ok(),
        Dotfiles::Keep => SafePath::try_from(name).is_ok(),
    }
}

fn refused(error: Error) -> Outcome {
    event::refused(OPERATION, &error);
    Outcome::Refused(error)
}
