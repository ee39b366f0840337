//! How often a store is asked, and how long it is waited for.

use std::time::Duration;

use crate::artifacts::progress::{Event, Progress};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;

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

    /// The result of `call`, made again while it fails for reasons that may pass. Each attempt may take `limit`.
    pub(crate) async fn run<T, C: Future<Output = Result<T>>>(
        &self,
        progress: &Progress,
        path: &SafePath,
        limit: Duration,
        mut call: impl FnMut() -> C,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            let silent = || Error::new("ask for", path, ErrorKind::Io).with_detail("the store is silent");
            let error = match tokio::time::timeout(limit, call()).await.unwrap_or_else(|_| Err(silent())) {
                Err(error) if error.kind() == ErrorKind::Io => error,
                result => return result,
            };
            self.wait(progress, path, &mut attempt, 0, error).await?;
        }
    }

    /// Waits before the next attempt, and tells of it; gives `error` back if that was the last. The bytes that were
    /// `moved` in vain are taken back.
    pub(crate) async fn wait(
        &self,
        progress: &Progress,
        path: &SafePath,
        attempt: &mut u32,
        moved: u64,
        error: Error,
    ) -> Result<()> {
        let Some(delay) = self.pause(*attempt) else { return Err(error) };
        progress.tell(&Event::Retried { path, attempt: *attempt, moved, delay, error: &error });
        tokio::time::sleep(delay).await;
        *attempt += 1;
        Ok(())
    }

    /// The pause after the failure of `attempt`, counted from 1; none if it was the last.
    pub(crate) fn pause(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let doubled = self.first.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
        Some(doubled.min(self.longest))
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
