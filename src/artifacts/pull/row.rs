//! Whether the store is still there, after many objects in a row have failed.
//!
//! Problem: a store that is gone must not be asked for each of a million objects, with all attempts and pauses. A block of
//! objects that cannot be read, next to each other in the listing, looks the same.
//!
//! Defence: after some failures in a row each object has one attempt, and the store is asked for the beginning of its listing,
//! again each time the row has doubled. If it does not answer that, or nothing has arrived for as long as two calls may take with
//! all their attempts, it is gone. An object that arrives ends the row.
//!
//! What remains: a store that answers its listing and fails every object at once is asked once for each of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use futures_util::StreamExt as _;

use crate::artifacts::client::Client;
use crate::artifacts::key::Prefix;
use crate::artifacts::store::{is_transient, within};
use crate::error::{Error, ErrorKind};

/// Failures in a row before the store is asked whether it is there.
const MANY: u32 = 32;

/// The failures since the last object that arrived.
#[derive(Debug, Default)]
pub(super) struct Row {
    failures: AtomicU32,
    /// When the first of them failed that may succeed later.
    since: Mutex<Option<Instant>>,
    asked: tokio::sync::Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    /// How many had failed then.
    at: u32,
    gone: bool,
}

impl Row {
    /// An object has arrived.
    pub(super) fn end(&self) {
        if self.failures.swap(0, Ordering::Relaxed) > 0 {
            *self.since() = None;
        }
    }

    /// An object has failed; only what may be the fault of the store counts.
    pub(super) fn add(&self, error: &Error) {
        if is_transient(error) {
            self.since().get_or_insert_with(Instant::now);
        } else if error.kind() != ErrorKind::Denied {
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether so many have failed that an object is worth one attempt only.
    pub(super) fn is_long(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= MANY
    }

    /// Whether the store does not respond any more.
    pub(super) async fn is_last(&self, client: &Client, prefix: &Prefix) -> bool {
        if !self.is_long() {
            return false;
        }
        let patience = client.retry.whole().saturating_mul(2);
        if self.since().is_some_and(|since| since.elapsed() > patience) {
            return true;
        }
        let mut asked = self.asked.lock().await;
        let failures = self.failures.load(Ordering::Relaxed);
        // After an object that has arrived, the row is a new one.
        let is_new = failures < asked.at || failures >= asked.at.saturating_mul(2);
        if !asked.gone && failures >= MANY && is_new {
            let once = client.retry.with_attempts(1);
            let mut listing = client.source.backend().list(prefix.as_str(), once);
            let first = async { listing.next().await.transpose() };
            asked.gone = within(once.whole(), "list", prefix.as_str(), first).await.is_err();
            asked.at = failures;
        }
        asked.gone
    }

    fn since(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
