//! What all requests share, and how they leave the async threads.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use beneath::session::{MessageLimits, Watch, Watcher};
use beneath::{Root, Sessions, SessionsConfig, ambient_authority};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;

/// An upload keeps a thread for as long as its client sends, so only half of the threads are for uploads.
const UPLOADS: usize = 32;

/// How long an upload may wait for its turn.
const TURN: Duration = Duration::from_secs(10);

/// The largest upload, and the largest file of a message that is given out. Files of the workspace are given out at any size.
const FILE_BYTES: u64 = 64 << 30;

/// The service. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Host {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sessions: Sessions,
    watcher: Watcher,
    uploads: Semaphore,
    stopping: watch::Sender<bool>,
}

impl Host {
    /// Serves the sessions in `directory`, which no guest may reach.
    ///
    /// # Errors
    /// Those of [`Root::open_ambient`].
    pub fn open(directory: &OsStr) -> beneath::Result<Self> {
        let limits = MessageLimits::default().with_file_bytes(FILE_BYTES).with_message_bytes(FILE_BYTES);
        let config = SessionsConfig::default().with_inbox(limits).with_outbox(limits);
        let root = Root::open_ambient(directory, ambient_authority())?;
        let (sessions, watcher) = (Sessions::new(root, config), Watcher::new());
        let events = watcher.clone();
        std::thread::spawn(move || dispatch(&events));
        let (uploads, stopping) = (Semaphore::new(UPLOADS), watch::Sender::new(false));
        Ok(Self { shared: Arc::new(Shared { sessions, watcher, uploads, stopping }) })
    }

    /// Ends what waits; requests that work go on.
    pub fn stop(&self) {
        self.shared.stopping.send_replace(true);
    }

    /// Returns once the service is [stopping](Self::stop).
    pub async fn stopped(&self) {
        // It fails only without a sender, and this is one.
        let _ = self.shared.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    pub(crate) fn watcher(&self) -> &Watcher {
        &self.shared.watcher
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        FILE_BYTES
    }

    /// The right to upload, for which others may have to end.
    pub(crate) async fn upload_permit(&self) -> Result<SemaphorePermit<'_>, Failure> {
        match timeout(TURN, self.shared.uploads.acquire()).await {
            Ok(permit) => permit.map_err(Failure::internal),
            Err(_) => Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "there are too many uploads")),
        }
    }

    /// Looks at once and after each change, until it is enough, `patience` is over, or the service stops. The last look is the
    /// answer.
    pub(crate) async fn wait_for<T: Send + 'static>(
        &self,
        mut watch: Watch,
        patience: Duration,
        mut look: impl FnMut() -> Result<T, Failure> + Send + 'static,
        is_enough: impl Fn(&T) -> bool,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + patience;
        let mut stopping = self.shared.stopping.subscribe();
        loop {
            let is_last = *stopping.borrow() || Instant::now() >= deadline;
            let found;
            (found, watch, look) = blocking(move || {
                watch.arm()?;
                Ok((look()?, watch, look))
            })
            .await?;
            if is_last || is_enough(&found) {
                return Ok(found);
            }
            let due = deadline.min(Instant::now() + watch.interval());
            tokio::select! {
                () = watch.changed() => sleep(watch.rest()).await,
                () = tokio::time::sleep_until(due) => {}
                _ = stopping.changed() => {}
            }
        }
    }
}

/// Runs a call that blocks, on a thread that may.
///
/// If the future is dropped, the call goes on to its end and its result is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(Failure::internal)?
}

/// Wakes the requests that wait, for as long as the process lives. Without it they wake by their timers.
fn dispatch(watcher: &Watcher) {
    loop {
        watcher.dispatch_within(Duration::from_secs(1));
    }
}
