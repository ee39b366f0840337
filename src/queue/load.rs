//! Reading what was claimed.
//!
//! Problem: what was claimed may be a FIFO, a link, a file of any size, one with other names, or no envelope.
//!
//! Defence: it is opened by handle without waiting, judged, and read once, at most the limit. What somebody may wait for is answered
//! with a status and a reason. What nobody can wait for is removed.
//!
//! What remains: what was not a file gets no answer.

use std::sync::Arc;
use std::time::SystemTime;

use super::disk::{JSON, OPERATION, Step};
use super::envelope::{Body, BodyPlace, Malformed, Request};
use super::hold::Hold;
use super::id::RequestId;
use super::job::Job;
use super::refusal::Refusal;
use super::shared::Shared;
use super::slots::Slot;
use crate::error::{Error, ErrorKind, Result};
use crate::root::ContainedFile;
use crate::session::age;

/// What a state on the host's side is.
pub(super) enum Loaded {
    Job(Job),
    /// It was answered for this reason.
    Answered(Error),
    /// It is no request, and was removed or put back, for this reason.
    Discarded(Error),
    /// Another worker has it, or the guest has locked it.
    Held(Slot),
    /// It is not there any more.
    Gone,
}

/// What is known of a request before it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// When it was last changed before it was claimed.
    pub(super) changed: Option<SystemTime>,
    /// Why it is refused unread.
    pub(super) refusal: Option<Refusal>,
}

/// Reads the request in the state `from`, which is claimed, started or refused.
///
/// Whoever starts or answers it holds its lock: a refusal is a rename and an answer, and between the two another worker must not take
/// it for one that was interrupted.
pub(super) fn load(
    shared: &Arc<Shared>,
    id: &RequestId,
    from: Step,
    known: Known,
    slot: Slot,
) -> Result<Loaded> {
    let file = match shared.disk.open_step(id, from) {
        Ok(file) => file,
        Err(error) => return unreadable(shared, id, from, slot, error),
    };
    let changed = file.metadata().changed();
    // What was claimed just now was judged by the poll, and the claim has changed it.
    let may_have_waited = from == Step::Claimed && known.changed.is_none();
    let has_waited = may_have_waited && age(file.metadata()) >= shared.config.waiting_age();
    let Some(mut hold) = Hold::try_take(file, &shared.unlocked) else { return Ok(Loaded::Held(slot)) };
    // What is claimed need not be looked at again: only one worker starts or refuses it.
    if from != Step::Claimed && shared.disk.is_over(id, from, Some(hold.file().metadata()))? {
        return Ok(Loaded::Gone);
    }
    let judged = match known.refusal {
        Some(refusal) => Err(refusal),
        None if has_waited => Err(Refusal::Waited),
        None if from == Step::Refused => Err(Refusal::Lost),
        None => judge(shared, id, hold.file_mut())?,
    };
    match judged {
        Ok(request) => {
            let since = known.changed.unwrap_or(changed);
            Ok(Loaded::Job(Job::new(shared, request, since, slot, hold)))
        }
        Err(refusal) => answer(shared, id, from, refusal, slot, Some(hold)),
    }
}

fn unreadable(shared: &Arc<Shared>, id: &RequestId, from: Step, slot: Slot, error: Error) -> Result<Loaded> {
    use ErrorKind::{Busy, Denied, HardLinked, NotFound, NotRegular, Symlink};

    match error.kind() {
        NotFound => Ok(Loaded::Gone),
        Symlink | NotRegular if from == Step::Claimed => {
            shared.disk.give_back(id)?;
            Ok(Loaded::Discarded(error.again(OPERATION).about(id.file(JSON))))
        }
        Symlink | NotRegular | HardLinked | Denied | Busy => {
            // What cannot be opened cannot be locked.
            let lock = match shared.disk.lock() {
                Err(error) if error.kind() == Busy => return Ok(Loaded::Held(slot)),
                lock => lock?,
            };
            match from != Step::Claimed && shared.disk.is_over(id, from, None)? {
                true => Ok(Loaded::Gone),
                false => {
                    let refusal = Refusal::Malformed(Malformed::Unreadable);
                    answer(shared, id, from, refusal, slot, lock.map(Hold::from))
                }
            }
        }
        _ => Err(error),
    }
}

/// Answers what no handler sees, and keeps others from it until it is answered.
pub(super) fn answer(
    shared: &Arc<Shared>,
    id: &RequestId,
    from: Step,
    refusal: Refusal,
    slot: Slot,
    hold: Option<Hold>,
) -> Result<Loaded> {
    // What was started is never reported as if it had not been, and why a request was refused is not known any more.
    let refusal = match from {
        Step::Started => Refusal::Interrupted,
        Step::Refused => Refusal::Lost,
        _ => refusal,
    };
    let response = refusal.response();
    let answered = match from {
        Step::Claimed => shared.refuse(id, &response, slot, hold)?,
        _ => Some(shared.end(id, from, &response, slot, hold)?),
    };
    Ok(match answered {
        Some(_) => Loaded::Answered(refusal.error(OPERATION, &id.file(JSON))),
        None => Loaded::Gone,
    })
}

fn judge(shared: &Arc<Shared>, id: &RequestId, file: &mut ContainedFile) -> Result<Result<Request, Refusal>> {
    let config = &shared.config;
    if file.len_hint() > config.request_bytes() {
        return Ok(Err(Refusal::TooLarge));
    }
    let bytes = match file.read_to_limit(config.request_bytes()) {
        Err(error) if error.kind() == ErrorKind::TooLarge => return Ok(Err(Refusal::TooLarge)),
        read => read?,
    };
    let (mut request, place) = match Request::read(&bytes, id, config.envelope()) {
        Ok(read) => read,
        Err(malformed) => return Ok(Err(Refusal::Malformed(malformed))),
    };
    if shared.is_reused(id)? {
        return Ok(Err(Refusal::Reused));
    }
    match (place, config.request_file_bytes()) {
        (BodyPlace::Inside, _) => {}
        (BodyPlace::Beside, 0) => return Ok(Err(Refusal::NoBodyFiles)),
        (BodyPlace::Beside, most) => match shared.disk.claim_body(id, most) {
            Ok(body) => request.body = Body::File(body),
            Err(error) if error.kind() == ErrorKind::TooLarge => return Ok(Err(Refusal::TooLarge)),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => return Ok(Err(Refusal::Malformed(Malformed::BodyFile))),
        },
    }
    Ok(Ok(request))
}
