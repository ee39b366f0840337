//! What all handles of a queue share, and how a request ends.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::config::QueueConfig;
use super::disk::{Disk, OPERATION, Published, Side, Step};
use super::envelope::{Body, BodyPlace, Response};
use super::hold::{Hold, Unlocked};
use super::id::RequestId;
use super::ledger::Ledger;
use super::refusal::Refusal;
use super::slots::{Slot, Slots};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Entries, Root};

/// What became of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an answer may not have reached the guest"]
#[non_exhaustive]
pub enum Answered {
    /// The guest has it.
    Published,
    /// It is on the host's side, and could not be published for this reason. The next [`poll`](super::Queue::poll) tries again.
    Saved(Error),
    /// There was an answer already, or the guest has put something of its own in its place.
    Already,
    /// It was larger than the limit, so the guest is answered 502, outcome [`Done`](super::Outcome::Done).
    TooLarge,
}

/// An answer that could not be published yet.
#[derive(Debug)]
struct Unpublished {
    rest: Rest,
    /// What keeps others from answering what could not even be saved.
    _hold: Option<Hold>,
    /// Whether a thread is at it.
    is_tried: bool,
    _slot: Slot,
}

/// What is left to do before an answer can be published.
#[derive(Clone, Debug)]
struct Rest {
    /// The answer, if it could not even be saved. Once it is, another worker may publish it.
    unsaved: Option<Arc<[u8]>>,
    /// The state that the answer ends, if it has not. Once it has, that name may be another request's.
    from: Option<Step>,
}

/// What a request that ends leaves on the host's side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remains {
    pub(super) from: Step,
    pub(super) body: Side,
    /// The body of an answer that an interrupted attempt has left.
    pub(super) out: Side,
}

impl Remains {
    /// All that there may be.
    pub(super) fn any(from: Step) -> Self {
        Self { from, body: Side::Perhaps, out: Side::Perhaps }
    }
}

/// An answer on its way to the disk.
struct Prepared {
    json: Vec<u8>,
    out: Side,
    /// Whether another answer has taken its place.
    too_large: bool,
}

/// Where a poll has stopped to look.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) list: Entries<Root>,
    /// Whether requests that were seen since the beginning of the directory were left there.
    pub(super) left: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) disk: Disk,
    pub(super) config: QueueConfig,
    pub(super) slots: Arc<Slots>,
    /// With the device and inode of the directory, which no other has while the list holds it open.
    cursor: Mutex<Option<((u64, u64), Cursor)>>,
    unpublished: Mutex<BTreeMap<RequestId, Unpublished>>,
    /// Claimed here, and locked by somebody else or not to be read.
    held: Mutex<BTreeMap<RequestId, Slot>>,
    pub(super) unlocked: Unlocked,
    ledger: Option<Ledger>,
    progress: Mutex<Instant>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(disk: Disk, config: QueueConfig) -> Result<Self> {
        let ledger = match config.ledger() {
            0 => None,
            most => Some(Ledger::open(&disk.host, most)?),
        };
        Ok(Self {
            disk,
            config,
            slots: Slots::new(config.in_flight()),
            cursor: Mutex::default(),
            unpublished: Mutex::default(),
            held: Mutex::default(),
            unlocked: Unlocked::default(),
            ledger,
            progress: Mutex::new(Instant::now()),
        })
    }

    /// Something was taken or answered just now.
    pub(super) fn note_progress(&self) {
        *locked(&self.progress) = Instant::now();
    }

    pub(super) fn last_progress(&self) -> Instant {
        *locked(&self.progress)
    }

    /// Takes the place where the last poll has stopped.
    pub(super) fn take_cursor(&self) -> Option<((u64, u64), Cursor)> {
        locked(&self.cursor).take()
    }

    pub(super) fn keep_cursor(&self, dir: (u64, u64), cursor: Cursor) {
        *locked(&self.cursor) = Some((dir, cursor));
    }

    /// Whether the id was answered before, as far as the ledger knows.
    pub(super) fn is_reused(&self, id: &RequestId) -> Result<bool> {
        self.ledger.as_ref().map_or(Ok(false), |ledger| ledger.contains(&self.disk.host, id))
    }

    /// Answers a request: saves the answer, ends its state, publishes.
    ///
    /// # Errors
    /// If the answer could not be saved; then the request is in the same state as before.
    pub(super) fn answer(
        &self,
        id: &RequestId,
        remains: Remains,
        response: &Response,
        body: Option<&mut dyn Read>,
        slot: Slot,
    ) -> Result<Answered, (Error, Slot)> {
        let Prepared { json, out, too_large } = match self.prepare(id, remains, response, body) {
            Ok(prepared) => prepared,
            Err(error) => return Err((error, slot)),
        };
        let is_new = match self.disk.save(id, &json) {
            Ok(is_new) => is_new,
            Err(error) => return Err((error, slot)),
        };
        self.note_progress();
        // The answer that is there may have another body.
        let out = if is_new { out } else { Side::Perhaps };
        let answered = self.finish(id, remains, out, slot);
        Ok(match is_new {
            false => Answered::Already,
            true if too_large => Answered::TooLarge,
            true => answered,
        })
    }

    /// Answers a claimed request without a handler; none if somebody else has it.
    ///
    /// # Errors
    /// If the answer could not be saved. The next poll tries again.
    pub(super) fn refuse(
        &self,
        id: &RequestId,
        response: &Response,
        slot: Slot,
        hold: Option<Hold>,
    ) -> Result<Option<Answered>> {
        match self.disk.turn_down(id)? {
            true => self.end(id, Step::Refused, response, slot, hold).map(Some),
            false => Ok(None),
        }
    }

    /// Answers a request that no handler has; what fails is tried again by the next poll.
    ///
    /// # Errors
    /// If the answer could not be saved.
    pub(super) fn end(
        &self,
        id: &RequestId,
        from: Step,
        response: &Response,
        slot: Slot,
        hold: Option<Hold>,
    ) -> Result<Answered> {
        self.answer(id, Remains::any(from), response, None, slot).map_err(|(error, slot)| {
            let rest = Rest { unsaved: Some(response.to_json(id).into()), from: Some(from) };
            self.keep(id, Unpublished { rest, _hold: hold, is_tried: false, _slot: slot });
            error
        })
    }

    fn keep(&self, id: &RequestId, unpublished: Unpublished) {
        let before = locked(&self.unpublished).insert(id.clone(), unpublished);
        // Not under the lock: it rings.
        drop(before);
    }

    /// The envelope of an answer, its body saved if it is a file.
    fn prepare(
        &self,
        id: &RequestId,
        remains: Remains,
        response: &Response,
        body: Option<&mut dyn Read>,
    ) -> Result<Prepared> {
        response.check(self.config.envelope()).map_err(|malformed| {
            Error::new(OPERATION, id.as_str(), ErrorKind::InvalidData).with_detail(malformed.to_string())
        })?;
        let most = self.config.response_file_bytes();
        let place = match (&response.body, body) {
            (_, Some(reader)) => self.save_body(id, reader, most),
            (Body::File(file), None) => self.save_body(id, file.reader(), most),
            (inside, None) => match inside.as_bytes().map_or(0, <[u8]>::len) as u64 {
                length if length <= self.config.response_bytes() => Ok(BodyPlace::Inside),
                _ => Err(Error::new(OPERATION, id.as_str(), ErrorKind::TooLarge)),
            },
        };
        match place {
            Ok(BodyPlace::Beside) => {
                let json = response.write(id, BodyPlace::Beside);
                Ok(Prepared { json, out: Side::Perhaps, too_large: false })
            }
            Ok(BodyPlace::Inside) => {
                if remains.out == Side::Perhaps {
                    self.disk.forget(id, Step::Out)?;
                }
                let json = response.write(id, BodyPlace::Inside);
                Ok(Prepared { json, out: Side::No, too_large: false })
            }
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                self.disk.forget(id, Step::Out)?;
                let json = Refusal::AnswerTooLarge.response().to_json(id);
                Ok(Prepared { json, out: Side::No, too_large: true })
            }
            Err(error) => Err(error),
        }
    }

    fn save_body(&self, id: &RequestId, reader: impl Read, most: u64) -> Result<BodyPlace> {
        self.disk.save_body(id, reader, most).map(|()| BodyPlace::Beside)
    }

    /// Ends the state that an answer is for, and publishes it; what fails is tried again by the next poll.
    pub(super) fn finish(&self, id: &RequestId, remains: Remains, out: Side, slot: Slot) -> Answered {
        let ended = self.end_state(id, remains);
        let rest = Rest { unsaved: None, from: ended.is_err().then_some(remains.from) };
        match ended.and_then(|()| self.disk.publish(id, out)) {
            Ok(Published::Now) => Answered::Published,
            Ok(Published::Already) => Answered::Already,
            Err(error) => {
                crate::session::refused("publish", &error);
                self.keep(id, Unpublished { rest, _hold: None, is_tried: false, _slot: slot });
                Answered::Saved(error)
            }
        }
    }

    /// Ends the state of a request whose answer is saved.
    fn end_state(&self, id: &RequestId, remains: Remains) -> Result<()> {
        // Before the state ends: from then on the id can be started again.
        if let Some(ledger) = &self.ledger {
            ledger.record(&self.disk.host, id)?;
        }
        self.disk.forget(id, remains.from)?;
        match remains.body {
            Side::Perhaps => self.disk.forget(id, Step::Body),
            Side::No => Ok(()),
        }
    }

    /// Tries once more to publish what could not be published; how many were, and why the others were not.
    pub(super) fn publish_saved(&self) -> (u64, Vec<(RequestId, Error)>) {
        let waiting: Vec<RequestId> = locked(&self.unpublished).keys().cloned().collect();
        let (mut published, mut failed) = (0, Vec::new());
        for id in waiting {
            let Some(rest) = self.try_saved(&id) else { continue };
            match self.go_on(&id, rest) {
                Ok(()) => {
                    published += 1;
                    self.note_progress();
                    self.drop_saved(&id);
                }
                Err(error) => {
                    self.note(&id, |waiting| waiting.is_tried = false);
                    failed.push((id, error));
                }
            }
        }
        (published, failed)
    }

    /// What is to be published, unless another thread is at it or has done it: the guest may have fetched the answer by then, and
    /// would find it once more.
    fn try_saved(&self, id: &RequestId) -> Option<Rest> {
        let mut unpublished = locked(&self.unpublished);
        let waiting = unpublished.get_mut(id)?;
        let is_free = !std::mem::replace(&mut waiting.is_tried, true);
        is_free.then(|| waiting.rest.clone())
    }

    /// Does what is left of saving, ending and publishing, each once.
    fn go_on(&self, id: &RequestId, rest: Rest) -> Result<()> {
        if let Some(json) = rest.unsaved {
            self.disk.save(id, &json)?;
            self.note(id, |waiting| waiting.rest.unsaved = None);
        }
        if let Some(from) = rest.from {
            self.end_state(id, Remains::any(from))?;
            self.note(id, |waiting| waiting.rest.from = None);
        }
        self.disk.publish(id, Side::Perhaps).map(drop)
    }

    fn note(&self, id: &RequestId, change: impl FnOnce(&mut Unpublished)) {
        if let Some(waiting) = locked(&self.unpublished).get_mut(id) {
            change(waiting);
        }
    }

    /// Notes that what was claimed here cannot be had yet.
    pub(super) fn keep_held(&self, id: &RequestId, slot: Slot) {
        let before = locked(&self.held).insert(id.clone(), slot);
        // Not under the lock: it rings.
        drop(before);
    }

    pub(super) fn take_held(&self) -> BTreeMap<RequestId, Slot> {
        std::mem::take(&mut *locked(&self.held))
    }

    pub(super) fn is_held(&self, id: &RequestId) -> bool {
        locked(&self.held).contains_key(id)
    }

    /// Whether nothing waits for the next poll but what the guest submits.
    pub(super) fn is_settled(&self) -> bool {
        locked(&self.unpublished).is_empty()
            && locked(&self.held).is_empty()
            && locked(&self.cursor).is_none()
    }

    /// Whether an answer to this id waits to be published.
    pub(super) fn is_saved(&self, id: &RequestId) -> bool {
        locked(&self.unpublished).contains_key(id)
    }

    /// Whether as many answers wait to be published as may be in flight.
    pub(super) fn is_backed_up(&self) -> bool {
        locked(&self.unpublished).len() >= self.config.in_flight()
    }

    /// Nothing more is to be done about this answer.
    pub(super) fn drop_saved(&self, id: &RequestId) {
        let dropped = locked(&self.unpublished).remove(id);
        // Not under the lock: it rings.
        drop(dropped);
    }
}
