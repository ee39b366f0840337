//! Where the host puts what the guest is to read.
//!
//! Problem: the guest replaces `inbox` or a message's directory by a link, takes the name beforehand, reads a file that
//! is half written, or makes one bad attachment fail a whole message.
//!
//! Defence: one lookup per message, beneath the guest's handle and without links; each file is published whole or
//! not at all, never over anything; a name that is taken gets a number. Each attachment has its own outcome.
//!
//! Left: once published, a file is the guest's.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::attachment::{Attachment, Content};
use super::clear::{remove_entry, sweep_part};
use super::delivery::{Delivery, Outcome, SavedFile};
use super::layout::Part;
use super::retire::Swept;
use super::{MessageLimits, Session, event};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{MessageId, SafeName, SafePath};
use crate::root::{ContainedFile, Ensured, NewFile, Removed, Root};

/// How many numbers a name is given before the attachment is refused.
const NAME_TRIES: u32 = 100;
/// How much of a stream is held at a time.
const CHUNK: usize = 64 * 1024;

const OPERATION: &str = "deliver";

/// The guest's inbox; see [`Session::inbox`].
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'s> {
    session: &'s Session,
}

impl Session {
    /// The directory in which the guest finds what it is sent.
    #[must_use]
    pub fn inbox(&self) -> Inbox<'_> {
        Inbox { session: self }
    }
}

impl<'s> Inbox<'s> {
    /// Writes the attachments of a message to `inbox/<message>`, and tells what became of each.
    ///
    /// Names are derived from what the sender said, repaired, and numbered when they are taken. The directory is made
    /// when the first attachment needs it. A delivery that is tried again finds the files of the first try by name and
    /// content and says [`Outcome::AlreadySaved`].
    ///
    /// Attachments past the limit for [files](MessageLimits::files) are counted and not tried; see
    /// [`Delivery::not_tried`].
    ///
    /// This never fails as a whole: whatever goes wrong with one attachment is its outcome, and the message can go
    /// on without it. Reasons are [`TooLarge`](ErrorKind::TooLarge) and [`TooMany`](ErrorKind::TooMany) for the limits,
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if the guest has replaced a
    /// directory, [`InvalidData`](ErrorKind::InvalidData) for content that is not what was said, and those of
    /// [`Root::write_exclusive`].
    ///
    /// # Races
    /// A guest sees each file whole or not at all. If it moves the message's directory meanwhile, the files go with it.
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
    /// assert_eq!(paths, ["inbox/42/notes.txt", "inbox/42/attachment-1.jpg"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deliver<'a>(
        &self,
        id: &MessageId,
        attachments: impl IntoIterator<Item = Attachment<'a>>,
    ) -> Delivery<'s> {
        let mut writer = Writer::new(self.session, id);
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
            // Nothing came of it; if the guest has used the directory meanwhile, it stays.
            writer.made_directory = self.session.guest().remove_dir(&writer.path).is_err();
        }
        let made_directory = writer.made_directory;
        Delivery { session: self.session, id: id.clone(), outcomes, not_tried, made_directory }
    }

    pub(super) fn limits(&self) -> MessageLimits {
        self.session.config().inbox()
    }

    /// Opens the file that a guest means by the path it was told.
    ///
    /// `raw` is what [`SavedFile::guest_path`] said, `inbox/<message>/<name>`, with blanks around it, a leading slash
    /// or the guest's mount point in front. Nothing else is tried.
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath) for any other form; those of
    /// [`Root::open_contained`].
    ///
    /// # Races
    /// As [`Root::open_contained`].
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
    /// let mut file = inbox.resolve_guest_path("/workspace/inbox/42/a.txt")?;
    /// assert_eq!(file.read_to_limit(1024)?, b"hello");
    /// assert!(inbox.resolve_guest_path("inbox/42/../../secret").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve_guest_path(&self, raw: &str) -> Result<ContainedFile> {
        const OPERATION: &str = "resolve guest path";
        let path = SafePath::from_guest(raw.trim(), &[self.session.config().mount_point()])?;
        let refuse = |why| Err(Error::new(OPERATION, raw, ErrorKind::InvalidPath).with_detail(why));
        let components: Vec<&str> = path.components().collect();
        let [inbox, id, name] = components.as_slice() else {
            return refuse("is not inbox/<message>/<name>");
        };
        if *inbox != Part::Inbox.name() {
            return refuse("is not in the inbox");
        }
        if MessageId::from_component(id).is_err() {
            return refuse("names no message");
        }
        if SafeName::new(name).is_err() {
            return refuse("names no attachment");
        }
        self.session.guest().open_contained(&path)
    }

    /// Removes all that was delivered for a message, and whatever else is in its directory.
    ///
    /// It is first moved out of the guest's reach where that is possible. If there is nothing, that is
    /// [complete](Removed::complete) too; a link or file in place of the directory is unlinked.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) if `inbox` itself was replaced, and the kinds of every resolution.
    ///
    /// # Races
    /// As [`Root::remove_tree_quarantined`].
    pub fn clear(&self, id: &MessageId) -> Result<Removed> {
        remove_entry(self.session, Part::Inbox, id.as_str().as_ref())
    }

    /// Removes every entry of the inbox that nobody has changed for `age`, by the kernel's clock.
    ///
    /// # Errors
    /// The kinds of every resolution of the inbox itself.
    ///
    /// # Races
    /// A message that is being delivered is young.
    pub fn clear_older_than(&self, age: Duration) -> Result<Swept> {
        sweep_part(self.session, Part::Inbox, age)
    }
}

/// One delivery under way.
struct Writer<'s> {
    session: &'s Session,
    path: String,
    limits: MessageLimits,
    /// How many bytes the message may still have.
    room: u64,
    dir: Option<Root>,
    made_directory: bool,
    /// Names that are an attachment of this delivery already.
    used: HashSet<SafeName>,
}

/// What a file must hold to be the attachment itself.
enum Expected<'a> {
    Bytes(&'a [u8]),
    Digest { bytes: u64, sha256: [u8; 32] },
}

impl<'s> Writer<'s> {
    fn new(session: &'s Session, id: &MessageId) -> Self {
        let limits = session.config().inbox();
        Self {
            session,
            path: format!("{}/{id}", Part::Inbox.name()),
            limits,
            room: limits.message_bytes(),
            dir: None,
            made_directory: false,
            used: HashSet::new(),
        }
    }

    fn save(&mut self, index: usize, attachment: Attachment<'_>) -> Result<Outcome> {
        let name = attachment.hint.to_name(index);
        match attachment.content {
            Content::Bytes(bytes) => self.save_bytes(name, bytes, attachment.declared),
            #[cfg(feature = "json")]
            Content::Base64(text) => {
                self.admit(&name, super::message::decoded_length(text))?;
                let bytes = super::message::decode(text)
                    .map_err(|why| refusal(&name, ErrorKind::InvalidData, why))?;
                self.save_bytes(name, &bytes, attachment.declared)
            }
            Content::Reader(reader) => self.save_stream(name, reader, attachment.declared),
            Content::Unavailable(error) => Err(error),
        }
    }

    fn save_bytes(&mut self, name: SafeName, bytes: &[u8], declared: Option<u64>) -> Result<Outcome> {
        let length = bytes.len() as u64;
        self.admit(&name, length)?;
        compare_sizes(&name, length, declared)?;
        if !self.used.contains(&name) {
            let written = match self.directory()?.write_exclusive(&name, bytes) {
                // The guest has removed the directory since it was opened.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.dir = None;
                    self.directory()?.write_exclusive(&name, bytes)
                }
                written => written,
            };
            match written {
                Ok(()) => return Ok(Outcome::Saved(self.record(name, None, length))),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        if !self.used.contains(&name) && holds(self.directory()?, &name, &Expected::Bytes(bytes)) {
            return Ok(Outcome::AlreadySaved(self.record(name, None, length)));
        }
        let mut file = self.directory()?.new_file(&name)?;
        file.write_all(bytes).map_err(|error| written_error(error, &name))?;
        self.publish(file, name, Expected::Bytes(bytes))
    }

    fn save_stream(
        &mut self,
        name: SafeName,
        mut reader: impl Read,
        declared: Option<u64>,
    ) -> Result<Outcome> {
        if let Some(declared) = declared {
            self.admit(&name, declared)?;
        }
        let limit = self.limits.file_bytes().min(self.room);
        let mut file = self.directory()?.new_file(&name)?.with_limit(limit);
        let mut digest = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(refusal(&name, ErrorKind::Io, "reading it failed").with_source(error));
                }
            };
            let chunk = buffer.get(..read).unwrap_or_default();
            digest.update(chunk);
            file.write_all(chunk).map_err(|error| written_error(error, &name))?;
        }
        let bytes = file.written();
        compare_sizes(&name, bytes, declared)?;
        self.publish(file, name, Expected::Digest { bytes, sha256: digest.finalize().into() })
    }

    /// Publishes the file under the first name that is free, unless one of them holds the same already.
    fn publish(&mut self, mut file: NewFile, wanted: SafeName, expected: Expected<'_>) -> Result<Outcome> {
        for number in 1..=NAME_TRIES {
            let name = wanted.numbered(number);
            if self.used.contains(&name) {
                continue;
            }
            let taken = (number > 1).then(|| wanted.clone());
            match file.commit_as(&name) {
                Ok(()) => return Ok(Outcome::Saved(self.record(name, taken, expected.len()))),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            if holds(self.directory()?, &name, &expected) {
                return Ok(Outcome::AlreadySaved(self.record(name, taken, expected.len())));
            }
        }
        Err(refusal(&wanted, ErrorKind::TooMany, "all names like it are taken"))
    }

    fn record(&mut self, name: SafeName, taken: Option<SafeName>, bytes: u64) -> SavedFile {
        self.room = self.room.saturating_sub(bytes);
        self.used.insert(name.clone());
        SavedFile { guest_path: format!("{}/{name}", self.path), name, bytes, taken }
    }

    /// Checks a length before anything is written.
    fn admit(&self, name: &SafeName, length: u64) -> Result<()> {
        if length > self.limits.file_bytes() {
            return Err(refusal(name, ErrorKind::TooLarge, "is larger than the limit for a file"));
        }
        if length > self.room {
            return Err(refusal(name, ErrorKind::TooLarge, "the message is larger than the limit"));
        }
        Ok(())
    }

    /// The message's directory, looked up once and then held: no link can come between.
    fn directory(&mut self) -> Result<&Root> {
        if self.dir.is_none() {
            let (dir, how) = self.session.guest().ensure_and_descend(&self.path)?;
            self.made_directory |= how == Ensured::Created;
            self.dir = Some(dir);
        }
        match &self.dir {
            Some(dir) => Ok(dir),
            None => Err(Error::new(OPERATION, &self.path, ErrorKind::NotFound)),
        }
    }
}

impl Expected<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Digest { bytes, .. } => *bytes,
        }
    }
}

/// Whether the entry is a plain file with that content. One that may not be read is somebody else's.
fn holds(dir: &Root, name: &SafeName, expected: &Expected<'_>) -> bool {
    let Ok(file) = dir.open_contained(name) else { return false };
    if file.len_hint() != expected.len() {
        return false;
    }
    let mut file = file.take(expected.len().saturating_add(1));
    let mut buffer = vec![0; CHUNK];
    let mut digest = Sha256::new();
    let mut seen: usize = 0;
    loop {
        let Ok(read) = file.read(&mut buffer) else { return false };
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else { break };
        match expected {
            Expected::Bytes(bytes) if bytes.get(seen..seen + read) != Some(chunk) => return false,
            Expected::Bytes(_) => {}
            Expected::Digest { .. } => digest.update(chunk),
        }
        seen += read;
    }
    match expected {
        Expected::Bytes(bytes) => seen == bytes.len(),
        Expected::Digest { sha256, .. } => digest.finalize().as_slice() == sha256,
    }
}

fn refused(error: Error) -> Outcome {
    event::refused(OPERATION, &error);
    Outcome::Refused(error)
}

fn compare_sizes(name: &SafeName, length: u64, declared: Option<u64>) -> Result<()> {
    match declared {
        Some(declared) if declared != length => {
            Err(refusal(name, ErrorKind::InvalidData, "is not of the size that was said"))
        }
        _ => Ok(()),
    }
}

fn refusal(name: &SafeName, kind: ErrorKind, why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(OPERATION, name, kind).with_detail(why)
}

/// What a failed write to a new file means; it carries this crate's own error.
fn written_error(error: std::io::Error, name: &SafeName) -> Error {
    match error.downcast::<Error>() {
        Ok(own) if own.kind() == ErrorKind::TooLarge => {
            refusal(name, ErrorKind::TooLarge, "is larger than the limit")
        }
        Ok(own) => own,
        Err(other) => refusal(name, ErrorKind::Io, "writing it failed").with_source(other),
    }
}
