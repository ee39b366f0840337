//! What a mailbox is allowed to do, and for how long.

use std::time::Duration;

use super::liveness::Patience;
use super::retries::Retries;

/// Limits and times of a [`Mailbox`](super::Mailbox).
///
/// ```
/// use std::time::Duration;
/// use beneath::mailbox::{MailboxConfig, Retries};
///
/// let config = MailboxConfig::default()
///     .with_busy(Duration::from_secs(1))
///     .with_retries(Retries::new(3, Duration::from_secs(1)));
/// assert_eq!(config.image_bytes(), 8 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailboxConfig {
    outbound: Option<String>,
    heartbeat: Option<String>,
    busy: Duration,
    read: Duration,
    image_bytes: u64,
    content_bytes: u64,
    rows: u64,
    retries: Retries,
    patience: Patience,
}

impl Default for MailboxConfig {
    fn default() -> Self {
        Self {
            outbound: None,
            heartbeat: None,
            busy: Duration::from_secs(5),
            read: Duration::from_secs(1),
            image_bytes: 8 << 20,
            content_bytes: 1 << 20,
            rows: 100_000,
            retries: Retries::default(),
            patience: Patience::default(),
        }
    }
}

impl MailboxConfig {
    /// Where the guest's database is, as [`Session::resolve`](crate::Session::resolve) reads it. By default it is `outbound.db` in the guest's
    /// directory; a session whose parts are [apart](crate::SessionsConfig::with_places) has none, so it must be said there.
    #[must_use]
    pub fn with_outbound(mut self, path: impl Into<String>) -> Self {
        self.outbound = Some(path.into());
        self
    }

    /// The file that the guest touches while it is alive, as [`Session::resolve`](crate::Session::resolve) reads it. By default it is
    /// `.heartbeat` in the guest's directory.
    #[must_use]
    pub fn with_heartbeat(mut self, path: impl Into<String>) -> Self {
        self.heartbeat = Some(path.into());
        self
    }

    /// How long a call waits for another host, or for a guest that reads. By default 5 s.
    #[must_use]
    pub fn with_busy(mut self, busy: Duration) -> Self {
        self.busy = busy;
        self
    }

    /// How long reading the guest's database may take. By default 1 s.
    #[must_use]
    pub fn with_read_time(mut self, read: Duration) -> Self {
        self.read = read;
        self
    }

    /// How large the guest's database may be. By default 8 MiB; about twice as much memory is needed to read it.
    #[must_use]
    pub fn with_image_bytes(mut self, bytes: u64) -> Self {
        self.image_bytes = bytes;
        self
    }

    /// How large the content of one message of the guest may be. By default 1 MiB.
    #[must_use]
    pub fn with_content_bytes(mut self, bytes: u64) -> Self {
        self.content_bytes = bytes;
        self
    }

    /// How many rows a table of the guest's database may have. By default 100,000.
    #[must_use]
    pub fn with_rows(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }

    /// How often messages are tried.
    #[must_use]
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// When a guest counts as stuck.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Where the guest's database is, if that was [said](Self::with_outbound).
    #[must_use]
    pub fn outbound(&self) -> Option<&str> {
        self.outbound.as_deref()
    }

    /// Where the heartbeat is, if that was [said](Self::with_heartbeat).
    #[must_use]
    pub fn heartbeat(&self) -> Option<&str> {
        self.heartbeat.as_deref()
    }

    /// See [`with_busy`](Self::with_busy).
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// See [`with_read_time`](Self::with_read_time).
    #[must_use]
    pub fn read_time(&self) -> Duration {
        self.read
    }

    /// See [`with_image_bytes`](Self::with_image_bytes).
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// See [`with_content_bytes`](Self::with_content_bytes).
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// See [`with_rows`](Self::with_rows).
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// See [`with_retries`](Self::with_retries).
    #[must_use]
    pub fn retries(&self) -> Retries {
        self.retries
    }

    /// See [`with_patience`](Self::with_patience).
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }
}
