//! One budget of objects on their way and of calls, for all who share a source.
//!
//! Problem: two hundred sessions that are restored at once, sixteen objects each, are thousands of connections and files. A
//! process that has no descriptor left fails in all its sessions, and elsewhere too.
//!
//! Defence: a source lets a set number of objects be on their way, each with one request at a time, and a set number of calls have
//! their directories open. Who comes later waits for a turn, before any deadline begins.
//!
//! What remains: each source that is opened has a budget of its own, which its clones share. A store that does not answer keeps a
//! turn for as long as the retries allow.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Leave to have something open, given back when it is dropped.
pub(crate) type Leave = Option<OwnedSemaphorePermit>;

/// How much may be open at a time.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    objects: Arc<Semaphore>,
    calls: Arc<Semaphore>,
}

impl Budget {
    pub(super) fn new(objects: usize, calls: usize) -> Self {
        let semaphore = |most: usize| Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Self { objects: semaphore(objects), calls: semaphore(calls) }
    }

    pub(super) async fn call(&self) -> Leave {
        leave(&self.calls).await
    }

    pub(super) async fn object(&self) -> Leave {
        leave(&self.objects).await
    }
}

/// None only if the semaphore were closed, which nobody does.
async fn leave(semaphore: &Arc<Semaphore>) -> Leave {
    Arc::clone(semaphore).acquire_owned().await.ok()
}
