//! How often a store is asked, and how long it is waited for.
//!
//! Problem: a store may fail for a moment, answer with endless silence, or send one byte a minute.
//!
//! Defence: one loop makes every call again. Each attempt has a limit, and the pauses grow.
//!
//! What remains: a caller waits for as long as attempts, pauses and limits allow together.

use std::path::Path;
use std::time::Duration;

use super::error::is_transient;
use crate::artifacts::progress::{Event, Progress};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;

/// How often a transient failure of the store is tried again, and how long the store may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    first: Duration,
    longest: Duration,
    silence: Duration,
}

impl Default for Retry {
    /// Four attempts, 100 ms after the first failure and doubling up to 5 s; 30 s of silence.
    fn default() -> Self {
        Self {
            attempts: 4,
            first: Duration::from_millis(100),
            longest: Duration::from_secs(5),
            silence: Duration::from_secs(30),
        }
    }
}

impl Retry {
    /// Makes at most `attempts` attempts; 0 counts as 1.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Pauses for `first` after the first failure, doubled after each further one, up to `longest`.
    #[must_use]
    pub fn with_pause(mut self, first: Duration, longest: Duration) -> Self {
        (self.first, self.longest) = (first, longest);
        self
    }

    /// Gives an attempt up when the store sends nothing for `silence`, or when a whole object takes longer than
    /// that and 16 KiB a second together.
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// The longest that an object of `bytes` bytes may take.
    pub(crate) fn deadline(&self, bytes: u64) -> Duration {
        self.silence.saturating_add(Duration::from_secs(bytes >> 14))
    }

    /// The longest that one call may take with all its attempts, if each may take as long as the silence.
    pub(crate) fn whole(&self) -> Duration {
        self.silence.saturating_add(self.longest).saturating_mul(self.attempts)
    }

    /// Calls about `path`, whose failed attempts are reported to `progress`.
    pub(crate) fn about<'a>(self, progress: &'a Progress, path: &'a GuestPath) -> Calls<'a> {
        let subject = path.as_path();
        Calls { listener: Some((progress, path)), ..self.of("ask for", subject) }
    }

    /// Calls of `operation` on `subject`, whose failed attempts are not reported.
    pub(super) fn of<'a>(self, operation: &'static str, subject: &'a Path) -> Calls<'a> {
        Calls {
            retry: self,
            operation,
            subject,
            listener: None,
            limit: None,
            passes: |error| error.kind() == ErrorKind::Io,
            take_back: &|| 0,
        }
    }

    /// The pause after the failure of `attempt`, counted from 1; none if it was the last.
    fn pause(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let doubled = self.first.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
        Some(doubled.min(self.longest))
    }
}

/// How one call to the store is made again: the one loop of this module.
pub(crate) struct Calls<'a> {
    retry: Retry,
    operation: &'static str,
    subject: &'a Path,
    listener: Option<(&'a Progress, &'a GuestPath)>,
    limit: Option<Duration>,
    passes: fn(&Error) -> bool,
    take_back: &'a (dyn Fn() -> u64 + Sync),
}

impl<'a> Calls<'a> {
    /// Gives each attempt no more than `limit`.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Calls again also when the object has changed meanwhile.
    pub(crate) fn also_when_changed(self) -> Self {
        Self { passes: is_transient, ..self }
    }

    /// Asks `lost` before each further attempt how many bytes the last one has moved in vain.
    pub(crate) fn losing(self, lost: &'a (dyn Fn() -> u64 + Sync)) -> Self {
        Self { take_back: lost, ..self }
    }

    /// The result of `call`, made again while it fails for reasons that may pass. It is given the number of the attempt,
    /// counted from 1.
    pub(crate) async fn run<T, C: Future<Output = Result<T>>>(
        self,
        mut call: impl FnMut(u32) -> C,
    ) -> Result<T> {
        let limit = self.limit.unwrap_or(Duration::MAX);
        let mut attempt = 1;
        loop {
            let error = match within(limit, self.operation, self.subject, call(attempt)).await {
                Err(error) if (self.passes)(&error) => error,
                done => return done,
            };
            let Some(delay) = self.retry.pause(attempt) else { return Err(error) };
            let moved = (self.take_back)();
            if let Some((progress, path)) = self.listener {
                progress.report(&Event::Retried { path, attempt, moved, delay, error: &error });
            }
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
    }
}

/// The result of `work`, or a failure that is worth another attempt when it takes longer than `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    operation: &'static str,
    subject: impl AsRef<Path>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(operation, subject, ErrorKind::Io).with_detail("the store is silent")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let retry = Retry::default()
            .with_attempts(6)
            .with_pause(Duration::from_millis(100), Duration::from_millis(500));
        let pauses: Vec<_> = (1..=6).map(|n| retry.pause(n).map(|pause| pause.as_millis())).collect();
        assert_eq!(pauses, [Some(100), Some(200), Some(400), Some(500), Some(500), None]);
        assert_eq!(Retry::default().with_attempts(u32::MAX).pause(40), Some(Duration::from_secs(5)));
    }
}
