//! How long a store that answers nothing is asked for more.
//!
//! Problem: a store that is gone must not be asked for each of many thousand objects, with all attempts and pauses. The call would
//! keep the session locked for hours.
//!
//! Defence: when no call has had an answer for as long as two may take with all their attempts, those that follow are not made.
//!
//! What remains: a store that answers one call now and then is asked for everything.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::store::Retry;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;

/// What is known of a store during one call.
#[derive(Debug)]
pub(crate) struct Patience {
    whole: Duration,
    /// When the first call has failed since the last that had an answer.
    since: Mutex<Option<Instant>>,
}

impl Patience {
    pub(crate) fn of(retry: Retry) -> Self {
        Self { whole: retry.whole().saturating_mul(2), since: Mutex::new(None) }
    }

    /// The result of `call`, which is about `path`.
    pub(crate) async fn call<T>(&self, path: &GuestPath, call: impl Future<Output = Result<T>>) -> Result<T> {
        if self.since().is_some_and(|since| since.elapsed() > self.whole) {
            return Err(Error::new("ask for", path, ErrorKind::Io).with_detail("the store does not respond"));
        }
        let result = call.await;
        let mut since = self.since();
        *since = match &result {
            Err(error) if error.kind() == ErrorKind::Io => since.or_else(|| Some(Instant::now())),
            _ => None,
        };
        drop(since);
        result
    }

    fn since(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
