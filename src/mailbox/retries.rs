//! How often a message is tried, and when again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a message is tried, and how long to wait in between: by default five times, and 5, 10, 20 and 40 s.
///
/// ```
/// use std::time::Duration;
/// use beneath::mailbox::Retries;
///
/// let waits: Vec<_> = (1..=5).map(|tries| Retries::default().wait_after(tries)).collect();
/// let seconds = |count| Some(Duration::from_secs(count));
/// assert_eq!(waits, [seconds(5), seconds(10), seconds(20), seconds(40), None]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    tries: u32,
    first: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self::new(5, Duration::from_secs(5))
    }
}

impl Retries {
    /// At most `tries` tries, with a pause of `first` after the first and twice the pause after each one more.
    #[must_use]
    pub const fn new(tries: u32, first: Duration) -> Self {
        Self { tries, first }
    }

    /// How long to wait after so many tries have failed; none if that was the last.
    #[must_use]
    pub fn wait_after(&self, tries: u32) -> Option<Duration> {
        let factor = 2_u32.saturating_pow(tries.saturating_sub(1));
        (tries < self.tries).then(|| self.first.saturating_mul(factor))
    }

    /// The longest pause there is.
    pub(super) fn longest(&self) -> Duration {
        self.wait_after(self.tries.saturating_sub(1)).unwrap_or_default()
    }
}

/// Where a message is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Standing {
    /// It has been tried so often, and is tried again, not before this time.
    Pending {
        /// How many tries there were.
        tries: u32,
        /// When it is due.
        not_before: SystemTime,
    },
    /// It has arrived.
    Done,
    /// It is not tried any more.
    Failed,
}

/// Milliseconds since 1970, as the databases have them.
pub(super) fn to_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    i64::try_from(since).unwrap_or(i64::MAX)
}

/// The time that a database has; what is before 1970 or out of range counts as the nearest.
pub(super) fn from_millis(millis: i64) -> SystemTime {
    let since = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_overflows() {
        let retries = Retries::new(u32::MAX, Duration::MAX);
        assert_eq!(retries.wait_after(u32::MAX - 1), Some(Duration::MAX));
        assert_eq!(Retries::new(0, Duration::MAX).wait_after(0), None);
        assert_eq!(Retries::new(1, Duration::MAX).longest(), Duration::MAX);
        assert_eq!((to_millis(from_millis(i64::MAX)), to_millis(from_millis(-1))), (i64::MAX, 0));
    }
}
