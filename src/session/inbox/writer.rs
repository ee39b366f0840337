//! One delivery under way.
//!
//! Problem: the guest fills, replaces or removes the message's directory between two attachments; a sender declares one size and
//! sends another; a delivery that is tried again must neither fail nor save everything twice.
//!
//! Defence: the directory is opened once and held. What is in it counts towards the limits, and bytes are counted as they are
//! read. A name that is taken is compared by content before the next number is tried.
//!
//! What remains: two deliveries with one id at the same time count apart.

use std::collections::HashSet;
use std::io::{Read, Write};

use sha2::{Digest as _, Sha256};

use super::attachment::{Attachment, Content};
#[cfg(feature = "json")]
use super::base64;
use super::delivery::{Outcome, SavedFile};
use super::inbound;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{MessageId, SafePath};
use crate::root::{Ensured, NewFile, Root};
use crate::session::handle::Session;
use crate::session::handle::config::MessageLimits;
use crate::session::handle::parts::Part;

pub(super) const OPERATION: &str = "deliver";
/// How many numbers a name is given before the attachment is refused.
const NAME_TRIES: u32 = 100;
/// How much of a stream is held at a time.
const CHUNK: usize = 64 * 1024;
const TOO_LARGE: &str = "the message is larger than the limit";

/// One delivery under way.
pub(super) struct Writer<'s> {
    session: &'s Session,
    id: MessageId,
    /// From the guest's directory, for reports.
    pub(super) path: String,
    limits: MessageLimits,
    room: Room,
    /// Whether the message had files before this delivery.
    begun: bool,
    dir: Option<Root>,
    pub(super) made_directory: bool,
    /// Names that are an attachment of this delivery already.
    used: HashSet<SafePath>,
}

/// What the message may still have.
struct Room {
    bytes: u64,
    files: u64,
}

/// What a file must hold to be the attachment itself.
enum Expected<'a> {
    Bytes(&'a [u8]),
    Digest { bytes: u64, sha256: [u8; 32] },
}

/// What is kept of a stream: the file, as long as there is room for it.
enum Kept {
    Written(Box<NewFile>),
    Digest(Sha256),
}

impl Kept {
    fn digest(self) -> Result<Sha256> {
        match self {
            Self::Written(file) => file.hash_all(),
            Self::Digest(digest) => Ok(digest),
        }
    }
}

impl<'s> Writer<'s> {
    pub(super) fn new(session: &'s Session, id: &MessageId) -> Self {
        let limits = session.config().inbox();
        Self {
            session,
            id: id.clone(),
            path: format!("{}/{id}", Part::Inbox.name()),
            limits,
            room: Room { bytes: limits.message_bytes(), files: limits.files() },
            begun: false,
            dir: None,
            made_directory: false,
            used: HashSet::new(),
        }
    }

    pub(super) fn save(&mut self, index: usize, attachment: Attachment<'_>) -> Result<Outcome> {
        let name = inbound::name(attachment.hint, index, self.session.config().dotfiles());
        match attachment.content {
            Content::Bytes(bytes) => self.save_bytes(name, bytes, attachment.declared),
            #[cfg(feature = "json")]
            Content::Base64(text) => {
                let forms = attachment.base64.unwrap_or(self.session.config().base64());
                self.admit(&name, base64::decoded_length(text, forms))?;
                let bytes =
                    base64::decode(text, forms).map_err(|why| refusal(&name, ErrorKind::InvalidData, why))?;
                self.save_bytes(name, &bytes, attachment.declared)
            }
            Content::Reader(reader) => self.save_stream(name, reader, attachment.declared),
            Content::Unavailable(error) => Err(error),
        }
    }

    fn save_bytes(&mut self, name: SafePath, bytes: &[u8], declared: Option<u64>) -> Result<Outcome> {
        let length = bytes.len() as u64;
        self.admit(&name, length)?;
        compare_sizes(&name, length, declared)?;
        self.directory()?;
        let expected = Expected::Bytes(bytes);
        if let Err(error) = self.check_room(&name, length) {
            return self.find(&name, &expected).ok_or(error);
        }
        if self.is_free(&name) {
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
        if self.is_free(&name) && holds(self.directory()?, &name, &expected) {
            return Ok(Outcome::AlreadySaved(self.recall(name, None, length)));
        }
        let mut file = self.directory()?.new_file(&name)?;
        file.write_all(bytes).map_err(|error| Error::from_io(OPERATION, &name, error))?;
        self.publish(file, name)
    }

    fn save_stream(
        &mut self,
        name: SafePath,
        mut reader: impl Read,
        declared: Option<u64>,
    ) -> Result<Outcome> {
        self.admit(&name, declared.unwrap_or_default())?;
        let mut kept = Kept::Written(Box::new(self.directory()?.new_file(&name)?));
        let mut bytes = 0;
        let mut buffer = vec![0; CHUNK];
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::from_io(OPERATION, &name, error)),
            };
            bytes += read as u64;
            self.admit(&name, bytes)?;
            match self.check_room(&name, bytes) {
                Ok(()) => {}
                // An earlier try may have saved it: to know that, its digest is enough.
                Err(_) if self.begun => kept = Kept::Digest(kept.digest()?),
                Err(error) => return Err(error),
            }
            let chunk = buffer.get(..read).unwrap_or_default();
            match &mut kept {
                Kept::Written(file) => {
                    file.write_all(chunk).map_err(|error| Error::from_io(OPERATION, &name, error))?;
                }
                Kept::Digest(digest) => digest.update(chunk),
            }
        }
        compare_sizes(&name, bytes, declared)?;
        match (self.check_room(&name, bytes), kept) {
            (Ok(()), Kept::Written(file)) => self.publish(*file, name),
            (Ok(()), Kept::Digest(_)) => Err(refusal(&name, ErrorKind::TooLarge, TOO_LARGE)),
            (Err(error), kept) => {
                let sha256 = kept.digest()?.finalize().into();
                self.find(&name, &Expected::Digest { bytes, sha256 }).ok_or(error)
            }
        }
    }

    /// Publishes the file under the first name that is free, unless one of them holds the same already.
    fn publish(&mut self, mut file: NewFile, wanted: SafePath) -> Result<Outcome> {
        let length = file.written();
        for number in 1..=NAME_TRIES {
            let name = inbound::numbered(&wanted, number);
            if !self.is_free(&name) {
                continue;
            }
            let taken = (number > 1).then(|| wanted.clone());
            match file.commit_as(&name) {
                Ok(()) => return Ok(Outcome::Saved(self.record(name, taken, length))),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            // One that may not be read is somebody else's.
            if self.directory()?.open_contained(&name).is_ok_and(|found| file.has_content_of(&found)) {
                return Ok(Outcome::AlreadySaved(self.recall(name, taken, length)));
            }
        }
        Err(refusal(&wanted, ErrorKind::TooMany, "all names like it are taken"))
    }

    /// Finds what an earlier try of the same delivery has saved, for which no room is needed.
    fn find(&mut self, wanted: &SafePath, expected: &Expected<'_>) -> Option<Outcome> {
        for number in 1..=NAME_TRIES {
            let name = inbound::numbered(wanted, number);
            if !self.is_free(&name) {
                continue;
            }
            let dir = self.directory().ok()?;
            if holds(dir, &name, expected) {
                let taken = (number > 1).then(|| wanted.clone());
                return Some(Outcome::AlreadySaved(self.recall(name, taken, expected.len())));
            }
            // The earlier try would have taken the first free one.
            if dir.metadata(&name).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                return None;
            }
        }
        None
    }

    /// A file that is new in the message.
    fn record(&mut self, name: SafePath, taken: Option<SafePath>, bytes: u64) -> SavedFile {
        self.room.bytes = self.room.bytes.saturating_sub(bytes);
        self.room.files = self.room.files.saturating_sub(1);
        self.recall(name, taken, bytes)
    }

    /// A file that was in the message before, and was counted then.
    fn recall(&mut self, name: SafePath, taken: Option<SafePath>, bytes: u64) -> SavedFile {
        self.used.insert(name.clone());
        let path = format!("{}/{name}", self.path);
        let config = self.session.config();
        let (mount, below) = match config.place(Part::Inbox) {
            Some(mount) => (mount, format!("{}/{name}", self.id)),
            None => (config.mount_point(), path.clone()),
        };
        let guest_path = format!("{}/{below}", mount.as_str().trim_end_matches('/'));
        SavedFile { guest_path, path, name, bytes, taken }
    }

    /// Whether a name may be tried: no attachment of this delivery has it, and it is not the service's own.
    fn is_free(&self, name: &SafePath) -> bool {
        !self.used.contains(name) && !self.session.config().is_reserved(name.as_str())
    }

    /// Checks a length that no message may have, before anything is written or looked up.
    fn admit(&self, name: &SafePath, length: u64) -> Result<()> {
        if length > self.limits.file_bytes() {
            return Err(refusal(name, ErrorKind::TooLarge, "is larger than the limit for a file"));
        }
        if length > self.limits.message_bytes() {
            return Err(refusal(name, ErrorKind::TooLarge, TOO_LARGE));
        }
        Ok(())
    }

    /// Checks what is left for this message.
    fn check_room(&self, name: &SafePath, length: u64) -> Result<()> {
        if self.room.files == 0 {
            return Err(refusal(name, ErrorKind::TooMany, "the message has as many files as the limit"));
        }
        if length > self.room.bytes {
            return Err(refusal(name, ErrorKind::TooLarge, TOO_LARGE));
        }
        Ok(())
    }

    /// The message's directory, looked up once and then held: no link can come between.
    fn directory(&mut self) -> Result<&Root> {
        if self.dir.is_none() {
            if self.session.config().is_reserved(self.id.as_str()) {
                let error = Error::new(OPERATION, &self.path, ErrorKind::InvalidName);
                return Err(error.with_detail("is reserved"));
            }
            let (root, path) = self.session.at(Part::Inbox, &self.id)?;
            let (dir, how) = root.ensure_and_descend(path)?;
            let first = !self.made_directory && self.used.is_empty();
            self.made_directory |= how == Ensured::Created;
            if how == Ensured::Existed && first {
                self.count(&dir)?;
            }
            self.dir = Some(dir);
        }
        match &self.dir {
            Some(dir) => Ok(dir),
            None => Err(Error::new(OPERATION, &self.path, ErrorKind::NotFound)),
        }
    }

    /// Takes what earlier deliveries have left off the room. A guest may have put any number of entries there: no more are
    /// looked at than a message may have.
    fn count(&mut self, dir: &Root) -> Result<()> {
        let most = usize::try_from(self.room.files).unwrap_or(usize::MAX);
        for entry in dir.list(".").map_err(|error| error.about(&self.path))?.take(most) {
            // One that the guest has removed meanwhile.
            let Ok(entry) = entry else { continue };
            let bytes = if entry.metadata().is_file() { entry.metadata().len() } else { 0 };
            self.room.bytes = self.room.bytes.saturating_sub(bytes);
            self.room.files = self.room.files.saturating_sub(1);
            self.begun = true;
        }
        Ok(())
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
fn holds(dir: &Root, name: &SafePath, expected: &Expected<'_>) -> bool {
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

fn compare_sizes(name: &SafePath, length: u64, declared: Option<u64>) -> Result<()> {
    match declared {
        Some(declared) if declared != length => {
            Err(refusal(name, ErrorKind::InvalidData, "is not of the size that was said"))
        }
        _ => Ok(()),
    }
}

fn refusal(name: &SafePath, kind: ErrorKind, why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(OPERATION, name, kind).with_detail(why)
}
