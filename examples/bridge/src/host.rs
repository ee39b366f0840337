//! The host: takes requests out of the queue, and answers each of them once.
//!
//! | what becomes of a request | status | outcome |
//! |---|---|---|
//! | no route allows it | 403 | not started |
//! | the service stops before its turn | 503 | not started |
//! | the handler answers | its own | done |
//! | the handler exceeds its deadline, panics, or is cut off by the stop | 504 | indeterminate |
//! | the host dies after the start | 504, by the next host | indeterminate |
//! | the host dies before the start | handled by the next host | |

mod said;
mod work;

use std::sync::Arc;
use std::time::Duration;

use beneath::queue::policy::{HeaderRules, Routes};
use beneath::queue::{Job, Queue, Started};
use beneath::session::{Watch, Watcher};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{Issues, blocking};
use said::Said;
use work::{Stop, interrupted, work};

/// How long a look for requests takes at most; so long does the loop not notice that it should stop.
const LOOK: Duration = Duration::from_millis(200);

/// How often the queue is swept, and what was dropped is recovered.
const SWEEP: Duration = Duration::from_secs(60);

/// What a host allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a handler may take.
    pub deadline: Duration,
    /// How long it may still answer after it was asked to stop.
    pub grace: Duration,
    /// How long the service handles requests after it was asked to stop.
    pub drain: Duration,
    /// How many handlers run at a time.
    pub handlers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            drain: Duration::from_secs(2),
            handlers: 8,
        }
    }
}

/// What all requests share.
#[derive(Debug)]
struct Service {
    issues: Arc<Issues>,
    routes: Routes,
    headers: HeaderRules,
    turns: Semaphore,
    limits: Limits,
    said: Said,
    /// The largest body in the envelope of an answer.
    body_bytes: u64,
}

/// Serves a queue until `stop` is done, and then drains it.
///
/// # Errors
/// Those of the queue: the session was removed, or the host's own side fails.
pub async fn serve(
    queue: Queue,
    issues: Issues,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> beneath::Result<()> {
    let service = Arc::new(Service {
        issues: Arc::new(issues),
        routes: Issues::routes()?,
        headers: HeaderRules::default(),
        turns: Semaphore::new(limits.handlers),
        limits,
        said: Said::new(),
        body_bytes: queue.config().response_bytes(),
    });
    let (stopping, stopped) = watch::channel(None);
    let mut works = Works { service, stop: stopped, tasks: JoinSet::new() };
    let watcher = Watcher::new();
    if let Some(reason) = watcher.failure() {
        works.service.said.say("no events, each wait ends by a timer", reason);
    }
    let mut watch = queue.watch(&watcher)?;
    let mut due = Instant::now();
    tokio::pin!(stop);
    loop {
        if Instant::now() >= due {
            due = Instant::now() + SWEEP;
            works.keep(&queue).await?;
        }
        let next = works.next(queue.clone(), watch);
        tokio::pin!(next);
        let mut is_last = false;
        let looked = tokio::select! {
            looked = &mut next => looked,
            () = &mut stop => {
                is_last = true;
                stopping.send_replace(Some(Instant::now() + limits.drain));
                // What it takes must not be lost.
                next.await
            }
        };
        let jobs;
        (jobs, watch) = looked?;
        jobs.into_iter().for_each(|job| works.begin(job));
        if is_last {
            return works.drain(queue, limits.drain).await;
        }
    }
}

/// The requests that are being handled.
struct Works {
    service: Arc<Service>,
    stop: Stop,
    tasks: JoinSet<()>,
}

impl Works {
    fn begin(&mut self, job: Job) {
        // Those that have ended are forgotten here, so that they do not pile up.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(work(Arc::clone(&self.service), job, self.stop.clone()));
    }

    /// Waits a short time for requests.
    fn next(
        &self,
        queue: Queue,
        mut watch: Watch,
    ) -> impl Future<Output = beneath::Result<(Vec<Job>, Watch)>> + use<> {
        let service = Arc::clone(&self.service);
        let look = move || {
            let polled = queue.next(&mut watch, std::time::Instant::now() + LOOK)?;
            service.said.refused(polled.refused());
            Ok((polled.jobs, watch))
        };
        async {
            blocking(look).await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
        }
    }

    /// Recovers what an earlier host has left, or an answer that could not be saved, and sweeps.
    async fn keep(&mut self, queue: &Queue) -> beneath::Result<()> {
        let (own, service) = (queue.clone(), Arc::clone(&self.service));
        let kept = blocking(move || {
            let recovered = own.recover()?;
            service.said.refused(recovered.refused());
            let swept = own.sweep()?;
            service.said.refused(swept.refused());
            Ok::<_, beneath::Error>((recovered.not_started, recovered.indeterminate))
        });
        let (jobs, open): (Vec<Job>, Vec<Started>) = match kept.await {
            Ok(kept) => kept?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        open.into_iter()
            .for_each(|started| drop(self.tasks.spawn(interrupted(Arc::clone(&self.service), started))));
        jobs.into_iter().for_each(|job| self.begin(job));
        Ok(())
    }

    /// Handles what is there until the time is over, and refuses the rest. What was started by then is cut off and answered.
    async fn drain(mut self, queue: Queue, patience: Duration) -> beneath::Result<()> {
        let (jobs, mut arrived) = mpsc::unbounded_channel();
        let draining = tokio::task::spawn_blocking(move || {
            // It fails if nobody receives any more, and then the job is recovered by the next host.
            queue.drain(patience, |job| drop(jobs.send(job)))
        });
        while let Some(job) = arrived.recv().await {
            self.begin(job);
        }
        let drained = match draining.await {
            Ok(drained) => drained?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        self.service.said.refused(drained.refused());
        while self.tasks.join_next().await.is_some() {}
        Ok(())
    }
}
