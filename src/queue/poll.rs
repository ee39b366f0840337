//! Taking what the guest has submitted.
//!
//! Problem: a guest makes a million names, and a host that lists and sorts them all does nothing else. One bad file ends a loop that
//! stops at the first error. Random ids sorted by name let the oldest starve.
//!
//! Defence: a poll looks at a bounded number of entries and the next one goes on where it stopped. Of those it has seen it takes the
//! oldest first, by the kernel's clock, a bounded number of them. Each entry has its own outcome, and only the loss of the session
//! or of the host's side is an error of the call.
//!
//! What remains: a guest that fills its queue with junk delays its own requests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::fstat;

use super::config::Overflow;
use super::disk::{BODY, JSON, OPERATION, REQUESTS, Step, Taken};
use super::id::RequestId;
use super::job::Job;
use super::load::{Known, Loaded, load};
use super::refusal::Refusal;
use super::shared::{Cursor, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::report::Leftovers;
use crate::root::{Entries, Metadata, Root};
use crate::session::{Watch, age};

/// What [`Queue::poll`](super::Queue::poll) found.
#[derive(Debug, Default)]
#[must_use = "it holds the requests"]
#[non_exhaustive]
pub struct Polled {
    /// Requests to be handled, oldest first.
    pub jobs: Vec<Job>,
    /// What was refused, by its name, and why: answered by the host itself, removed, or left.
    pub refused: Leftovers,
    /// How many of those got an answer.
    pub answered: u64,
    /// How many names are no request's. [`sweep`](super::Queue::sweep) removes those that are old.
    pub ignored: u64,
    /// How many answers were published that could not be published before.
    pub published: u64,
    /// Whether there is more to look at or to take.
    pub more: bool,
    /// Whether anything was taken, removed, answered or published. What the guest merely leaves in the way is reported each time, and
    /// must not keep a host busy.
    pub(super) changed: bool,
    /// Whether the next look goes on where this one has stopped.
    pub(super) goes_on: bool,
    /// Whether this one has begun where the directory begins.
    pub(super) from_start: bool,
}

impl Polled {
    /// Whether everything was looked at, and nothing refused.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && !self.more
    }

    /// What was refused, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }

    /// The same, and what the look before it has refused, which it went on from.
    pub(super) fn after(mut self, earlier: Self) -> Self {
        let mut refused = earlier.refused;
        refused.absorb(std::mem::take(&mut self.refused));
        Self { refused, ignored: earlier.ignored + self.ignored, ..self }
    }

    fn refuse(&mut self, subject: impl AsRef<Path>, error: Error) {
        crate::session::refused("poll", &error);
        self.refused.add(subject.as_ref(), error);
    }
}

/// A request in the guest's directory.
struct Seen {
    id: RequestId,
    changed: SystemTime,
    age: Duration,
}

/// What a poll does with the requests that it finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Take,
    /// The service stops: all are answered 503.
    Refuse,
}

/// Arms `watch`, if there is one, before it looks.
pub(super) fn poll(shared: &Arc<Shared>, mode: Mode, watch: Option<&mut Watch>) -> Result<Polled> {
    shared.disk.session.alive()?;
    let mut polled = Polled::default();
    let (published, failed) = shared.publish_saved();
    polled.published = published;
    polled.changed = published > 0;
    take_held(shared, &mut polled);
    for (id, error) in failed {
        polled.refuse(Step::Answer.of(&id), error);
    }
    let list = match open(shared, watch)? {
        Ok(list) => list,
        Err(error) => {
            // The guest has replaced it, or denies it. The next poll looks again.
            polled.refuse(REQUESTS, error);
            return Ok(polled);
        }
    };
    let mut cursor = cursor(shared, list, &mut polled);
    let (mut seen, ended) = look(shared, &mut cursor, &mut polled);
    seen.sort_by(|one, other| one.changed.cmp(&other.changed).then_with(|| one.id.cmp(&other.id)));
    let mut taken = 0;
    for request in seen {
        if taken >= shared.config.claims() {
            polled.more = true;
            break;
        }
        let requests = cursor.list.directory();
        taken += usize::from(take(shared, requests, &request, mode, &mut polled)?);
    }
    cursor.left |= polled.more;
    polled.more = cursor.left || !ended;
    polled.goes_on = !ended;
    if !ended && let Some(dir) = identity(cursor.list.directory()) {
        shared.keep_cursor(dir, cursor);
    }
    Ok(polled)
}

/// Opens the directory of requests, and has the kernel report what comes to it from now on. Nothing of it is read before that.
fn open(shared: &Shared, watch: Option<&mut Watch>) -> Result<Result<Entries<Root>>> {
    let mut opened = shared.disk.list(REQUESTS);
    let Some(watch) = watch else { return Ok(opened) };
    if opened.is_err() {
        // It is watched from further above. It may have come back, and got requests, before that.
        watch.arm()?;
        opened = shared.disk.list(REQUESTS);
    }
    if let Ok(list) = &opened {
        watch.arm_at(list.directory());
    }
    Ok(opened)
}

/// Where to look on: where the last poll has stopped, or at the beginning.
fn cursor(shared: &Shared, list: Entries<Root>, polled: &mut Polled) -> Cursor {
    match shared.take_cursor() {
        Some((dir, cursor)) if identity(list.directory()) == Some(dir) => cursor,
        _ => {
            polled.from_start = true;
            Cursor { list, left: false }
        }
    }
}

/// Device and inode.
fn identity(dir: &Root) -> Option<(u64, u64)> {
    let dir = fstat(dir).ok()?;
    // The types of the fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    let (device, inode) = (dir.st_dev as u64, dir.st_ino as u64);
    Some((device, inode))
}

/// The requests among the next entries, and whether these were the last; what became of the others is reported.
fn look(shared: &Shared, cursor: &mut Cursor, polled: &mut Polled) -> (Vec<Seen>, bool) {
    let mut seen = Vec::new();
    for _ in 0..shared.config.entries() {
        let entry = match cursor.list.next() {
            None => return (seen, true),
            Some(Ok(entry)) => entry,
            Some(Err(error)) => {
                polled.refuse(REQUESTS, error);
                continue;
            }
        };
        let (name, metadata) = (entry.file_name(), entry.metadata());
        match RequestId::of_file(name, JSON) {
            Some(id) if metadata.is_file() => {
                seen.push(Seen { id, changed: metadata.changed(), age: age(metadata) });
            }
            Some(_) => remove_other(cursor.list.directory(), entry.path(), metadata, polled),
            None if RequestId::of_file(name, BODY).is_some() => {}
            None => polled.ignored += 1,
        }
    }
    (seen, false)
}

/// A link, FIFO, socket or device with a request's name goes; a directory stays.
fn remove_other(requests: &Root, name: &Path, metadata: &Metadata, polled: &mut Polled) {
    let kind = if metadata.is_symlink() { ErrorKind::Symlink } else { ErrorKind::NotRegular };
    let found = Error::new(OPERATION, name, kind);
    let error = match metadata.is_dir() {
        true => found,
        false => match requests.remove_file(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => error,
            _ => {
                polled.changed = true;
                found
            }
        },
    };
    polled.refuse(name, error);
}

/// Takes a request, and says whether it counts as taken.
fn take(
    shared: &Arc<Shared>,
    requests: &Root,
    request: &Seen,
    mode: Mode,
    polled: &mut Polled,
) -> Result<bool> {
    let (id, config) = (&request.id, &shared.config);
    let name = || id.file(JSON);
    let expired = request.age >= config.waiting_age();
    let slot = shared.slots.take();
    let refusal = match (mode, expired, &slot) {
        // What is refused past the limit would stay on the host's side, too.
        (_, _, None) if shared.is_backed_up() => {
            polled.more = true;
            return Ok(false);
        }
        (Mode::Refuse, ..) => Some(Refusal::Stopping),
        (_, true, _) => Some(Refusal::Waited),
        (_, _, None) if config.overflow() == Overflow::Reject => Some(Refusal::Overflow),
        (_, _, None) => {
            polled.more = true;
            return Ok(false);
        }
        _ => None,
    };
    let slot = slot.unwrap_or_else(|| shared.slots.count());
    // Its answer is the one that waits.
    if shared.is_saved(id) {
        match shared.disk.discard(requests, &name()) {
            Ok(()) => polled.changed = true,
            Err(error) => polled.refuse(name(), error),
        }
        polled.refuse(name(), duplicate(&name()));
        return Ok(true);
    }
    match shared.disk.claim(requests, id, config) {
        Ok(Taken::Claimed) => {}
        Ok(Taken::Gone) => return Ok(false),
        Ok(Taken::Duplicate) => {
            polled.changed = true;
            polled.refuse(name(), duplicate(&name()));
            return Ok(true);
        }
        Ok(Taken::Handled) => {
            let error = Error::new(OPERATION, name(), ErrorKind::AlreadyExists);
            polled.refuse(name(), error.with_detail("was handled, and the host may not remove it"));
            return Ok(false);
        }
        // Another worker copies.
        Err(error) if error.kind() == ErrorKind::Busy => {
            polled.more = true;
            return Ok(false);
        }
        Err(error) => {
            polled.refuse(name(), error);
            return Ok(true);
        }
    }
    shared.note_progress();
    let known = Known { changed: Some(request.changed), refusal };
    let loaded = load(shared, id, Step::Claimed, known, slot);
    polled.changed = true;
    note(shared, id, loaded, polled);
    Ok(true)
}

fn note(shared: &Shared, id: &RequestId, loaded: Result<Loaded>, polled: &mut Polled) {
    let name = || id.file(JSON);
    match loaded {
        Ok(Loaded::Job(job)) => {
            polled.changed = true;
            polled.jobs.push(job);
        }
        Ok(Loaded::Answered(error)) => {
            polled.changed = true;
            polled.answered += 1;
            polled.refuse(name(), error);
        }
        Ok(Loaded::Held(slot)) => {
            let error = Error::new(OPERATION, name(), ErrorKind::Busy);
            polled.refuse(name(), error.with_detail("is locked by another worker or by the guest"));
            shared.keep_held(id, slot);
        }
        Ok(Loaded::Discarded(error)) => polled.refuse(name(), error),
        Err(error) => {
            polled.refuse(name(), error);
            // It is claimed, or its answer waits to be saved: no other poll finds it.
            if !shared.is_saved(id) {
                shared.keep_held(id, shared.slots.count());
            }
        }
        Ok(Loaded::Gone) => {}
    }
}

/// Tries once more to take what was locked, or could not be read. It counts as in flight: a guest that locks its own requests fills its own queue.
fn take_held(shared: &Arc<Shared>, polled: &mut Polled) {
    for (id, slot) in shared.take_held() {
        let loaded = load(shared, &id, Step::Claimed, Known::default(), slot);
        note(shared, &id, loaded, polled);
    }
}

fn duplicate(name: &str) -> Error {
    Error::new(OPERATION, name, ErrorKind::AlreadyExists)
        .with_detail("its id is in use; the newcomer was removed")
}
