//! Stopping without losing anybody's request.
//!
//! Problem: a service that stops between the removal of a request and its answer leaves somebody waiting, and one that handles
//! whatever comes never stops.
//!
//! Defence: until the patience is over requests are handled; after that each is claimed, answered 503 as not started, and only then
//! removed. What could not be answered stays where it is, and is reported.
//!
//! What remains: a guest that submits after that waits for the next start. So does a guest whose answers cannot be published,
//! once as many of them wait as may be in flight.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::Job;
use super::poll::{Mode, Polled, poll};
use super::refusal::Refusal;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::report::Leftovers;

/// How many polls the refusal of the rest takes at most.
const PASSES: usize = 1024;

/// What [`Queue::drain`](super::Queue::drain) did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "something may be left"]
#[non_exhaustive]
pub struct Drained {
    /// How many requests were handed to the handler.
    pub handled: u64,
    /// How many were answered by the host itself, 503 most of them.
    pub answered: u64,
    /// What was refused or left, and why.
    pub refused: Leftovers,
    /// Whether the guest submitted more than could be looked at.
    pub more: bool,
}

impl Drained {
    /// Whether every request that could be answered was answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.more
    }

    /// What was refused or left, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }

    fn add(&mut self, polled: Polled) -> Vec<Job> {
        let Polled { jobs, refused, answered, more, .. } = polled;
        self.answered += answered;
        self.refused.absorb(refused);
        self.more = more;
        jobs
    }

    fn refuse(&mut self, job: Job) {
        let subject = job.id().as_str().to_owned();
        match job.refuse_with(&Refusal::Stopping.response()) {
            Ok(_) => self.answered += 1,
            Err(error) => self.refused.add(subject, error),
        }
    }
}

pub(super) fn drain(
    shared: &Arc<Shared>,
    patience: Duration,
    mut handle: impl FnMut(Job),
) -> Result<Drained> {
    let start = Instant::now();
    let mut drained = Drained::default();
    while start.elapsed() < patience {
        let jobs = drained.add(poll(shared, Mode::Take, None)?);
        let none = jobs.is_empty();
        for job in jobs {
            match start.elapsed() < patience {
                true => {
                    handle(job);
                    drained.handled += 1;
                }
                false => drained.refuse(job),
            }
        }
        if none && !drained.more {
            return Ok(drained);
        }
        // All slots are taken by others; they need the time.
        if none && shared.slots.is_full() {
            shared.slots.wait(patience.saturating_sub(start.elapsed()));
        }
    }
    for _ in 0..PASSES {
        let polled = poll(shared, Mode::Refuse, None)?;
        let idle = polled.answered == 0;
        // What it takes it refuses; these were locked, and are not any more.
        drained.add(polled).into_iter().for_each(|job| drained.refuse(job));
        // What is backed up is published by nobody as long as the guest denies it.
        if idle && (!drained.more || shared.is_backed_up()) {
            break;
        }
    }
    Ok(drained)
}
