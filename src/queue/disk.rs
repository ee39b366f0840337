//! The states of a request on disk, and the steps between them.
//!
//! Problem: a host that dies between handling a request and answering it handles it again after the next start. A guest that
//! replaces `requests` or `responses` by a link has the host read, delete or overwrite elsewhere.
//!
//! Defence: each state is a name, and each step is one rename that replaces nothing, one new file that appears whole, or one
//! unlink. `queue`, `requests` and `responses` are looked up anew for each use, beneath the guest's handle, without links.
//!
//! ```text
//! guest/queue/requests/<id>.json     submitted
//!  host/queue/<id>.claimed           taken, nobody has begun
//!  host/queue/<id>.started           begun; or <id>.refused, which is answered without a handler
//!  host/queue/<id>.answer            answered
//! guest/queue/responses/<id>.json    published
//! ```
//!
//! Where a request cannot be moved to the host's side it is [copied](copy). Beside these, `<id>.body` is the body of a request,
//! and `<id>.out` that of an answer.
//!
//! What remains: a guest that holds a claimed file open can still write to it, so it is read once.

mod body;
mod copy;

pub(super) use copy::Recopied;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::QueueConfig;
use super::id::RequestId;
use crate::error::{Error, ErrorKind, Result};
use crate::root::{ContainedFile, Durability, Ensured, Entries, HardLinks, Links, Metadata, Root};
use crate::session::Session;

pub(super) const OPERATION: &str = "queue";
pub(super) const QUEUE: &str = "queue";
pub(super) const REQUESTS: &str = "requests";
pub(super) const RESPONSES: &str = "responses";
pub(super) const JSON: &str = ".json";
pub(super) const BODY: &str = ".body";

/// A state of a request on the host's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Step {
    /// Copied, and perhaps still in the guest's directory too.
    Copy,
    Claimed,
    Started,
    /// To be answered without a handler.
    Refused,
    Answer,
    /// Handled or about to be, and perhaps still in the guest's directory, from which the host may not remove it.
    Done,
    /// The body of the request.
    Body,
    /// The body of the answer.
    Out,
}

impl Step {
    pub(super) const ALL: [Self; 8] = [
        Self::Copy,
        Self::Claimed,
        Self::Started,
        Self::Refused,
        Self::Answer,
        Self::Done,
        Self::Body,
        Self::Out,
    ];

    const fn suffix(self) -> &'static str {
        match self {
            Self::Copy => ".copy",
            Self::Claimed => ".claimed",
            Self::Started => ".started",
            Self::Refused => ".refused",
            Self::Answer => ".answer",
            Self::Done => ".done",
            Self::Body => BODY,
            Self::Out => ".out",
        }
    }

    pub(super) fn of(self, id: &RequestId) -> String {
        id.file(self.suffix())
    }

    /// What a name on the host's side is.
    pub(super) fn parse(name: &std::ffi::OsStr) -> Option<(RequestId, Self)> {
        Self::ALL.into_iter().find_map(|step| Some((RequestId::of_file(name, step.suffix())?, step)))
    }
}

/// What came of an attempt to take a request.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is claimed.
    Claimed,
    /// It was not there any more, or another worker has it.
    Gone,
    /// Another one of its id is claimed; the newcomer was removed.
    Duplicate,
    /// It was handled, and the host may not remove it.
    Handled,
}

/// Whether there is a body in a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    No,
    Perhaps,
}

/// What came of an attempt to publish an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    Now,
    /// Something had its name.
    Already,
}

/// The two sides of a queue.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) session: Session,
    /// What the guest's side is looked up from.
    pub(super) guest: Arc<Root>,
    /// Whether that itself has `requests` and `responses`, and the guest cannot replace it.
    is_apart: bool,
    /// `host/queue`. What is written here has the mode and owner that the guest's side has.
    pub(super) host: Root,
    /// The same, for steps that need no sync.
    unsynced: Root,
}

impl Disk {
    pub(super) fn new(session: &Session, apart: Option<Root>) -> Result<Self> {
        session.alive()?;
        let is_apart = apart.is_some();
        let root = match apart {
            Some(root) => root,
            None => session.guest().try_clone()?,
        };
        let guest = root.policy();
        let made = session.host().ensure_and_descend(QUEUE)?.0;
        let durability = match (made.policy().durability(), guest.durability()) {
            (Durability::Full, _) | (_, Durability::Full) => Durability::Full,
            (Durability::File, _) | (_, Durability::File) => Durability::File,
            _ => Durability::None,
        };
        // A file that was moved here has no other name, or it is refused by its count: no guest can unlink the name it has here.
        let policy = made.policy().clone().with_access(guest.access()).with_hard_links(HardLinks::Allow);
        let policy = policy.with_links(Links::Refuse).with_durability(durability);
        let unsynced = made.try_clone()?.with_policy(policy.clone().with_durability(Durability::None));
        let (session, guest, host) = (session.clone(), Arc::new(root), made.with_policy(policy));
        let disk = Self { session, guest, is_apart, host, unsynced };
        for part in [REQUESTS, RESPONSES] {
            match disk.ensure(part) {
                Ok(_) => {}
                // The guest has replaced it. Each use is refused, and it can be repaired.
                Err(error) if is_replaced(&error) => crate::session::refused("open queue", &error),
                Err(error) => return Err(error),
            }
        }
        Ok(disk)
    }

    /// The root that the guest's side is looked up from, and the path of `part` from there.
    pub(super) fn at(&self, part: &str) -> (&Root, PathBuf) {
        match self.is_apart {
            true => (&self.guest, part.into()),
            false => (&self.guest, Path::new(QUEUE).join(part)),
        }
    }

    fn ensure(&self, part: &str) -> Result<Ensured> {
        let (root, path) = self.at(part);
        root.ensure_dir(path)
    }

    /// Opens `requests` or `responses` as it is now, and makes it if it is missing.
    pub(super) fn open(&self, part: &str) -> Result<Root> {
        self.or_make(part, |root, path| root.descend(path))
    }

    /// The same, to be listed too.
    pub(super) fn list(&self, part: &str) -> Result<Entries<Root>> {
        self.or_make(part, |root, path| root.descend_and_list(path))
    }

    fn or_make<T>(&self, part: &str, open: impl Fn(&Root, &Path) -> Result<T>) -> Result<T> {
        let (root, path) = self.at(part);
        match open(root, &path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.ensure(part)?;
                open(root, &path)
            }
            opened => opened,
        }
    }

    /// Puts a directory back in place of whatever else is there.
    pub(super) fn repair(&self) -> Result<()> {
        self.session.alive()?;
        let (root, _) = self.at(REQUESTS);
        let whole = (!self.is_apart).then_some(PathBuf::from(QUEUE));
        let parts = [REQUESTS, RESPONSES].map(|part| self.at(part).1);
        for path in whole.into_iter().chain(parts) {
            match root.ensure_dir(&path) {
                Err(error) if is_replaced(&error) => {
                    root.remove_file(&path)?;
                    root.ensure_dir(&path)?;
                }
                ensured => drop(ensured?),
            }
        }
        Ok(())
    }

    /// Takes a request out of the guest's reach.
    pub(super) fn claim(&self, requests: &Root, id: &RequestId, config: &QueueConfig) -> Result<Taken> {
        let name = id.file(JSON);
        match requests.rename_to(&name, &self.unsynced, Step::Claimed.of(id)) {
            Ok(()) => Ok(Taken::Claimed),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(Taken::Gone),
                ErrorKind::AlreadyExists => {
                    self.discard(requests, &name)?;
                    Ok(Taken::Duplicate)
                }
                ErrorKind::CrossDevice | ErrorKind::Denied | ErrorKind::ReadOnly | ErrorKind::Unsupported => {
                    self.claim_copy(requests, id, config.request_bytes())
                }
                _ => Err(error),
            },
        }
    }

    /// Removes an entry of the guest's side, unless it is gone.
    pub(super) fn discard(&self, dir: &Root, name: &str) -> Result<()> {
        match dir.remove_file(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the name that an interrupted step has left, in a file system that can move only by a second name.
    pub(super) fn unlink_twins(&self, id: &RequestId, step: Step) -> Result<()> {
        let moved = self.host.metadata(step.of(id))?;
        if !moved.is_file() || moved.nlink() < 2 {
            return Ok(());
        }
        let is_twin = |other: Metadata| (other.dev(), other.ino()) == (moved.dev(), moved.ino());
        let before = match step {
            Step::Claimed => Step::Copy,
            _ => Step::Claimed,
        };
        if self.host.metadata(before.of(id)).is_ok_and(is_twin) {
            self.forget(id, before)?;
        }
        let source = match step {
            Step::Claimed => id.file(JSON),
            Step::Body => id.file(BODY),
            _ => return Ok(()),
        };
        let requests = self.open(REQUESTS)?;
        match requests.metadata(&source).is_ok_and(is_twin) {
            true => self.discard(&requests, &source),
            false => Ok(()),
        }
    }

    /// Opens what was claimed or started.
    ///
    /// # Errors
    /// `HardLinked` if it has another name, which the guest made before it was moved here or the host's own crash has left.
    pub(super) fn open_step(&self, id: &RequestId, step: Step) -> Result<ContainedFile> {
        let name = step.of(id);
        let file = self.host.open_contained(&name)?;
        match file.metadata().nlink() {
            0 | 1 => Ok(file),
            _ => Err(Error::new("read", name, ErrorKind::HardLinked)),
        }
    }

    /// From claimed to started. From here on a crash leaves the outcome open.
    ///
    /// # Errors
    /// `AlreadyExists` if one of its id is being handled, `NotFound` if another worker has it.
    pub(super) fn start(&self, id: &RequestId) -> Result<()> {
        self.unsynced.rename(Step::Claimed.of(id), Step::Started.of(id))?;
        self.host.sync_dir(".").inspect_err(|_| self.unstart(id))
    }

    /// From started back to claimed, if nothing has begun yet.
    pub(super) fn unstart(&self, id: &RequestId) {
        // If this fails too, the next recovery finds it started, and says so.
        let _ = self.unsynced.rename(Step::Started.of(id), Step::Claimed.of(id));
    }

    /// From claimed to refused: nobody starts it any more. False if somebody else has started or refused it, or another one of its
    /// id is being handled; that one then goes.
    pub(super) fn turn_down(&self, id: &RequestId) -> Result<bool> {
        // Otherwise the client of the running request would read that it was not started.
        if self.has(id, Step::Started)? {
            return self.forget(id, Step::Claimed).map(|()| false);
        }
        match self.unsynced.rename(Step::Claimed.of(id), Step::Refused.of(id)) {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(false),
                // Another one of its id is about to be answered.
                ErrorKind::AlreadyExists => self.forget(id, Step::Claimed).map(|()| false),
                _ => Err(error),
            },
        }
    }

    /// Removes a state, if it is there.
    pub(super) fn forget(&self, id: &RequestId, step: Step) -> Result<()> {
        let name = step.of(id);
        match self.discard(&self.host, &name) {
            // A directory, which the guest has put in place of a request between the look and the claim.
            Err(error) if error.kind() == ErrorKind::NotRegular => self.throw_away(&name),
            removed => removed,
        }
    }

    /// Moves what may be a whole tree to where it is swept.
    fn throw_away(&self, name: &str) -> Result<()> {
        let unguessable = RequestId::generate()?;
        self.unsynced.rename_to(name, self.session.trash()?, unguessable.as_str())
    }

    /// Whether somebody else has answered what was opened as started or refused, before it was locked here.
    ///
    /// Others publish answers without that lock. They end the state first, so the answer is looked for first: if there is none and
    /// the state is there, there was none.
    pub(super) fn is_over(&self, id: &RequestId, step: Step, opened: Option<&Metadata>) -> Result<bool> {
        if self.has(id, Step::Answer)? {
            return Ok(true);
        }
        let Some(opened) = opened else { return Ok(!self.has(id, step)?) };
        match self.host.metadata(step.of(id)) {
            Ok(now) => Ok((now.dev(), now.ino()) != (opened.dev(), opened.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has(&self, id: &RequestId, step: Step) -> Result<bool> {
        self.host.try_exists(step.of(id))
    }

    /// Saves an answer; false if there is one already.
    pub(super) fn save(&self, id: &RequestId, json: &[u8]) -> Result<bool> {
        match self.host.write_exclusive(Step::Answer.of(id), json) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives an answer to the guest, its body first if it may have one in a file.
    pub(super) fn publish(&self, id: &RequestId, body: Side) -> Result<Published> {
        let responses = self.open(RESPONSES)?;
        // The answer is durable where it is, and is published again if a power cut undoes the move.
        let policy = responses.policy().clone().with_durability(Durability::None);
        let responses = responses.with_policy(policy);
        if body == Side::Perhaps {
            // What has the name is what an interrupted attempt has published, or what the guest has put there for itself.
            self.hand_over(id, Step::Out, &responses, &id.file(BODY))?;
        }
        self.hand_over(id, Step::Answer, &responses, &id.file(JSON))
    }

    fn hand_over(&self, id: &RequestId, step: Step, responses: &Root, name: &str) -> Result<Published> {
        let own = step.of(id);
        let Err(error) = self.unsynced.rename_to(&own, responses, name) else { return Ok(Published::Now) };
        match error.kind() {
            // Another worker has published it, or there is no body.
            ErrorKind::NotFound if !self.host.try_exists(&own)? => Ok(Published::Now),
            ErrorKind::AlreadyExists => {
                self.forget(id, step)?;
                Ok(Published::Already)
            }
            _ if is_unmovable(&error) => self.hand_copy(id, step, responses, name),
            _ => Err(error),
        }
    }

    /// Puts back what was taken and is no file, or at least out of the way.
    pub(super) fn give_back(&self, id: &RequestId) -> Result<()> {
        let claimed = Step::Claimed.of(id);
        match self.host.remove_file(&claimed) {
            // A directory, which the guest has put there after the look.
            Err(error) if error.kind() == ErrorKind::NotRegular => {
                let back = self
                    .open(REQUESTS)
                    .and_then(|requests| self.unsynced.rename_to(&claimed, &requests, id.file(JSON)));
                back.or_else(|_| self.throw_away(&claimed))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The states on the host's side.
    pub(super) fn states(&self) -> Result<impl Iterator<Item = Result<(RequestId, Step, Metadata)>>> {
        let entries = self.host.list(".")?;
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) => {
                let (id, step) = Step::parse(entry.file_name())?;
                Some(Ok((id, step, entry.metadata().clone())))
            }
            Err(error) => Some(Err(error)),
        }))
    }
}

/// Whether something else is in place of a directory.
pub(super) fn is_replaced(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Symlink | ErrorKind::NotDirectory)
}

/// Whether what cannot be moved between the two sides may be copied.
fn is_unmovable(error: &Error) -> bool {
    use ErrorKind::{CrossDevice, Denied, ReadOnly, Unsupported};

    matches!(error.kind(), CrossDevice | Denied | ReadOnly | Unsupported)
}
