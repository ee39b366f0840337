//! What an earlier host has left.
//!
//! Problem: a host that has died has left requests that it had taken, some of them begun and some answered.
//!
//! Defence: the names on the host's side say how far each came.
//!
//! | found | |
//! |---|---|
//! | `.copy` | the claim goes on, or is answered 503 if its source is gone |
//! | `.claimed` | handed out as [`Recovered::not_started`] |
//! | `.refused` | answered 503 |
//! | `.started` | handed out as [`Recovered::indeterminate`], to be answered 504 |
//! | `.answer`, with or without one of these | the answer counts: it is published, and the others go |
//!
//! Each is one of the steps that were interrupted, so a host that dies during the recovery leaves the same for the next. What another
//! worker has is locked, and is left alone.
//!
//! What remains: a guest that holds a lock on a request of its own keeps that one from being recovered, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::disk::{OPERATION, Recopied, Side, Step, Taken};
use super::hold::Hold;
use super::id::RequestId;
use super::job::{Job, Started};
use super::load::{Known, Loaded, answer, load};
use super::refusal::Refusal;
use super::shared::{Answered, Remains, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::report::Leftovers;

/// How many ids a recovery looks at.
const MOST: usize = 10_000;

/// What [`Queue::recover`](super::Queue::recover) found.
#[derive(Debug, Default)]
#[must_use = "it holds the requests"]
#[non_exhaustive]
pub struct Recovered {
    /// Claimed, and nobody has begun: handle them now.
    pub not_started: Vec<Job>,
    /// Begun, and nobody knows how far they came: answer each by [`Started::indeterminate`], or handle it again if that does no
    /// harm.
    pub indeterminate: Vec<Started>,
    /// How many answers were published.
    pub published: u64,
    /// How many requests other workers have, or the guest has locked. Those of the guest are found by a recovery after it has let go
    /// of them, so recover again while there are some.
    pub held: u64,
    /// What was refused, removed or could not be published, and why.
    pub refused: Leftovers,
    /// Whether there is more to recover.
    pub more: bool,
}

impl Recovered {
    /// Whether everything was recovered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && !self.more
    }

    /// What was refused, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }

    fn refuse(&mut self, subject: impl AsRef<Path>, error: Error) {
        crate::session::refused("recover", &error);
        self.refused.add(subject.as_ref(), error);
    }
}

pub(super) fn recover(shared: &Arc<Shared>) -> Result<Recovered> {
    shared.disk.session.alive()?;
    let mut recovered = Recovered::default();
    let mut found: BTreeMap<RequestId, BTreeSet<Step>> = BTreeMap::new();
    for state in shared.disk.states()? {
        let (id, step, _) = state?;
        if found.len() >= MOST && !found.contains_key(&id) {
            recovered.more = true;
            break;
        }
        found.entry(id).or_default().insert(step);
    }
    for (id, steps) in found {
        let subject = id.as_str().to_owned();
        if let Err(error) = recover_one(shared, id, &steps, &mut recovered) {
            recovered.refuse(subject, error);
        }
    }
    Ok(recovered)
}

fn recover_one(
    shared: &Arc<Shared>,
    id: RequestId,
    steps: &BTreeSet<Step>,
    recovered: &mut Recovered,
) -> Result<()> {
    // It waits in this process for the next poll.
    if shared.is_saved(&id) || shared.is_held(&id) {
        return Ok(());
    }
    if steps.contains(&Step::Answer) {
        return publish(shared, &id, recovered);
    }
    if steps.contains(&Step::Started) {
        return hand_out(shared, &id, Step::Started, recovered);
    }
    if steps.contains(&Step::Refused) {
        return hand_out(shared, &id, Step::Refused, recovered);
    }
    if steps.contains(&Step::Claimed) {
        return hand_out(shared, &id, Step::Claimed, recovered);
    }
    if steps.contains(&Step::Copy) {
        return match shared.disk.recover_copy(&id) {
            Ok(Recopied::Taken(Taken::Claimed)) => hand_out(shared, &id, Step::Claimed, recovered),
            Ok(Recopied::Taken(_)) => Ok(()),
            Ok(Recopied::Lost(lock)) => {
                let (slot, hold) = (shared.slots.count(), lock.map(Hold::from));
                let lost = answer(shared, &id, Step::Copy, Refusal::Lost, slot, hold)?;
                note(lost, &id, recovered);
                Ok(())
            }
            // Another worker copies.
            Err(error) if error.kind() == ErrorKind::Busy => {
                recovered.held += 1;
                Ok(())
            }
            Err(error) => Err(error),
        };
    }
    Ok(())
}

fn publish(shared: &Arc<Shared>, id: &RequestId, recovered: &mut Recovered) -> Result<()> {
    // Another worker may have published it, and the names may be those of another request by now.
    if !shared.disk.has(id, Step::Answer)? {
        return Ok(());
    }
    for step in [Step::Copy, Step::Claimed, Step::Refused] {
        shared.disk.forget(id, step)?;
    }
    match shared.finish(id, Remains::any(Step::Started), Side::Perhaps, shared.slots.count()) {
        Answered::Saved(error) => recovered.refuse(Step::Answer.of(id), error),
        _ => recovered.published += 1,
    }
    Ok(())
}

fn hand_out(shared: &Arc<Shared>, id: &RequestId, step: Step, recovered: &mut Recovered) -> Result<()> {
    match shared.disk.unlink_twins(id, step) {
        // Another worker has it, or what it is is found out below.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Symlink) => {}
        unlinked => unlinked?,
    }
    let loaded = load(shared, id, step, Known::default(), shared.slots.count())?;
    match (loaded, step) {
        (Loaded::Job(job), Step::Started) => {
            // Another one of its id, which cannot be started any more.
            shared.disk.forget(id, Step::Claimed)?;
            recovered.indeterminate.push(Started::recovered(job));
        }
        (Loaded::Job(job), _) => recovered.not_started.push(job),
        (other, _) => note(other, id, recovered),
    }
    Ok(())
}

fn note(loaded: Loaded, id: &RequestId, recovered: &mut Recovered) {
    match loaded {
        Loaded::Answered(error) | Loaded::Discarded(error) => recovered.refuse(id.as_str(), error),
        Loaded::Held(_) => recovered.held += 1,
        // Nothing more is to be done; another worker has done it.
        Loaded::Gone => {}
        Loaded::Job(_) => {
            let error = Error::new(OPERATION, id.as_str(), ErrorKind::Busy);
            recovered.refuse(id.as_str(), error);
        }
    }
}
