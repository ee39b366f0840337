//! One budget of objects on their way and of calls, for all who share a source.
//!
//! Problem: two hundred sessions that are restored at once, sixteen objects each, are thousands of connections and files. A
//! process that has no descriptor left fails in all its sessions, and elsewhere too.
//!
//! Defence: a set number of objects may be on their way, each with one request at a time, and a set number of calls may have
//! their directories open. Who comes later waits for a turn, before any deadline begins. All sources of the process share one budget,
//! so that a host may open one for each session; one that is given a budget of its own shares it with its clones.
//!
//! What remains: a store that does not answer keeps a turn for as long as the retries allow, and others wait for it. Each source that
//! was opened by itself keeps connections open for a while that are not in use.

use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Leave to have something open, given back when it is dropped.
pub(crate) type Leave = Option<OwnedSemaphorePermit>;

/// Objects on their way at a time, unless a source says otherwise.
const OBJECTS: usize = 64;
/// Calls that have the directories of a session open at a time, unless a source says otherwise.
const CALLS: usize = 16;

/// How much may be open at a time.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    objects: Arc<Semaphore>,
    calls: Arc<Semaphore>,
}

impl Budget {
    /// That of all sources that have none of their own.
    pub(super) fn of_process() -> Self {
        static BUDGET: LazyLock<Budget> = LazyLock::new(|| Budget::new(OBJECTS, CALLS));
        BUDGET.clone()
    }

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
