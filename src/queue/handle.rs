//! A queue of one session, on the host's side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::QueueConfig;
use super::disk::{Disk, REQUESTS};
use super::drain::{Drained, drain};
use super::job::Job;
use super::poll::{Mode, Polled, poll};
use super::ready::{Ready, read_ready};
use super::recover::{Recovered, recover};
use super::shared::Shared;
use super::sweep::sweep;
use crate::error::Result;
use crate::name::GuestPath;
use crate::root::Root;
use crate::session::{Session, Swept, Watch, Watcher};

/// How long it rests between two looks at a directory that is longer than one look, if there was nothing to take.
const BEHIND: Duration = Duration::from_millis(50);

/// The requests of one session; see [`Session::queue`].
///
/// A clone is the same queue, and moves to another thread. Several workers, also of different processes, may serve one: renames decide
/// who gets which request, and a request in progress is locked. Each process counts its own requests in flight.
#[derive(Clone, Debug)]
pub struct Queue {
    shared: Arc<Shared>,
}

impl Session {
    /// The requests that the guest puts into `queue/requests` of its directory. Makes what is missing.
    ///
    /// Answers go to `queue/responses`, with the modes and owner of the guest's side. In a session with [places](Session::from_places) the
    /// directory is that of the workspace, which is seldom meant; see [`queue_at`](Self::queue_at).
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) once the session was removed, [`Denied`](crate::ErrorKind::Denied),
    /// [`NoSpace`](crate::ErrorKind::NoSpace) and the kinds of every resolution. That the guest has put something else in place of
    /// `queue`, `requests` or `responses` is no error here: each use is refused until [`Queue::repair`].
    pub fn queue(&self, config: QueueConfig) -> Result<Queue> {
        Queue::new(self, None, config)
    }

    /// The same where the guest sees `directory` by a mount of its own and nothing above it, as in a session with
    /// [places](Session::from_places). Its `requests` and `responses` are the queue's.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # std::fs::create_dir(dir.path().join("apart"))?;
    /// # let directory = beneath::Root::open_ambient(dir.path().join("apart"), beneath::ambient_authority())?;
    /// let queue = session.queue_at(directory, Default::default())?;
    /// assert!(queue.poll()?.is_complete());
    /// # assert!(dir.path().join("apart/requests").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_at(&self, directory: Root, config: QueueConfig) -> Result<Queue> {
        Queue::new(self, Some(directory), config)
    }
}

impl Queue {
    fn new(session: &Session, apart: Option<Root>, config: QueueConfig) -> Result<Self> {
        let disk = Disk::new(session, apart)?;
        Ok(Self { shared: Arc::new(Shared::new(disk, config)?) })
    }

    /// The config in force.
    #[must_use]
    pub fn config(&self) -> &QueueConfig {
        &self.shared.config
    }

    /// Takes what the guest has submitted, oldest first by the kernel's clock, and publishes answers that could not be published
    /// before. Bounded by the [config](QueueConfig). Never waits.
    ///
    /// What no handler needs to see is answered at once: 400 for an envelope that is none, 413, 415, 409 and 503. Links, FIFOs and
    /// the like with the name of a request are removed, and directories are left.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) once the session was removed, and the kinds of the host's own side. Whatever the
    /// guest does is in [`Polled::refused`], a link in place of `requests` included.
    ///
    /// # Races
    /// Of two polls one gets a request. The guest may exchange a request until it is taken, and never after.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// session.guest().write_exclusive("queue/requests/a.json", "{")?; // by the guest
    /// let polled = queue.poll()?;
    /// assert_eq!((polled.jobs.len(), polled.answered), (0, 1));
    /// for (name, error) in polled.refused() {
    ///     eprintln!("{}: {error}", name.display());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&self) -> Result<Polled> {
        poll(&self.shared, Mode::Take, None)
    }

    /// Finds what an earlier host has left when it died, or a thread that has dropped a [`Job`] or a
    /// [`Started`](super::Started). Call it before the first [`poll`](Self::poll), and then whenever something was dropped.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// # Races
    /// What other workers have is left to them, where the file system has locks. Without locks a request that another process, or another
    /// queue made for the same session, handles is reported as indeterminate; it is not handled again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// use beneath::queue::{Job, Response};
    ///
    /// fn handle(job: Job) -> beneath::Result<()> {
    ///     let _ = job.start()?.answer(&Response::new(200))?;
    ///     Ok(())
    /// }
    ///
    /// let recovered = queue.recover()?;
    /// recovered.not_started.into_iter().try_for_each(handle)?;
    /// for started in recovered.indeterminate {
    ///     let _ = started.indeterminate("the host was restarted")?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recover(&self) -> Result<Recovered> {
        recover(&self.shared)
    }

    /// Handles what is there, no longer than `patience`, and then answers the rest 503, not started.
    ///
    /// `handle` gets each request in turn, and is not interrupted.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// # Races
    /// A guest that goes on submitting is refused until as many entries were looked at as the directory had, and a bound; see
    /// [`Drained::more`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// # let shared = beneath::Root::open_ambient(dir.path().join("s/guest/queue"), beneath::ambient_authority())?;
    /// # let client = beneath::queue::Client::new(shared, Default::default());
    /// use std::time::Duration;
    /// use beneath::queue::{Request, Response};
    ///
    /// let mut ticket = client.submit(&Request::new("GET", "/")?)?;
    /// let drained = queue.drain(Duration::ZERO, |job| drop(job))?;
    /// assert_eq!((drained.handled, drained.answered), (0, 1));
    /// assert_eq!(ticket.try_fetch()?.unwrap().status, 503);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, patience: Duration, handle: impl FnMut(Job)) -> Result<Drained> {
        drain(&self.shared, patience, handle)
    }

    /// Removes answers that nobody has fetched, names that are no request's, and what interrupted calls have left, each by its age
    /// or number in the [config](QueueConfig).
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// # Races
    /// The time is the kernel's, which no guest can set.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// let swept = queue.sweep()?;
    /// assert!(swept.is_complete() && swept.removed == 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep(&self) -> Result<Swept> {
        sweep(&self.shared)
    }

    /// Puts `queue`, `requests` and `responses` back if the guest has replaced them; what is in their place is unlinked.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied) and the kinds of every resolution.
    ///
    /// # Races
    /// The guest may replace them again at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// session.guest().remove_dir("queue/requests")?; // by the guest
    /// session.guest().symlink("/etc", "queue/requests")?;
    /// assert!(!queue.poll()?.is_complete());
    /// queue.repair()?;
    /// assert!(queue.poll()?.is_complete());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn repair(&self) -> Result<()> {
        self.shared.disk.repair()
    }

    /// Watches for requests; one [`Watcher`] serves all queues of a service.
    ///
    /// # Errors
    /// [`TooMany`](crate::ErrorKind::TooMany) when no descriptor is left.
    pub fn watch(&self, watcher: &Watcher) -> Result<Watch> {
        let disk = &self.shared.disk;
        let (root, path) = (Arc::clone(&disk.guest), GuestPath::new(disk.at(REQUESTS).1)?);
        Ok(watcher.watch_beneath(Some(disk.session.clone()), root, path))
    }

    /// Waits for requests, no longer than until `deadline`, and [takes](Self::poll) them. What the guest leaves in the way, such as a
    /// directory with the name of a request, ends no wait: it is refused by each look. If there are no requests by then, the report is
    /// that of the last look at all that there is.
    ///
    /// # Errors
    /// As [`poll`](Self::poll) and [`Watch::arm`].
    ///
    /// # Races
    /// No request is missed: the kernel is asked for the next event before the directory is looked at, and if that look has left
    /// nothing, the next call waits for the event. A guest that makes changes without end causes a hundred looks a second, and one
    /// with a directory full of junk twenty. That the session was removed, or `queue` itself replaced, while nobody looked is noticed
    /// within a second.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use std::time::{Duration, Instant};
    /// use beneath::session::Watcher;
    ///
    /// let watcher = Watcher::new();
    /// let queue = session.queue(Default::default())?;
    /// let mut watch = queue.watch(&watcher)?;
    /// let polled = queue.next(&mut watch, Instant::now() + Duration::from_millis(10))?;
    /// assert!(polled.jobs.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next(&self, watch: &mut Watch, deadline: Instant) -> Result<Polled> {
        let (shared, guest) = (&self.shared, &self.shared.disk.guest);
        watch.start_over();
        // The last look has left nothing, and what came since is an event.
        if watch.take_settled(guest) && shared.is_settled() {
            watch.wait(deadline);
        }
        let mut last = Polled::default();
        loop {
            // Whatever ends the waits: a guest can end each of them by an event.
            let is_last = Instant::now() >= deadline;
            // What has come to the part that was looked at, since it was armed, is an event that is not to be forgotten.
            let armed = if last.goes_on { None } else { Some(&mut *watch) };
            let polled = poll(shared, Mode::Take, armed)?;
            let polled = if last.goes_on { polled.after(last) } else { polled };
            if polled.changed || polled.more {
                watch.found();
            }
            if polled.changed || is_last {
                if polled.is_complete() && polled.from_start {
                    watch.settle(guest);
                }
                return Ok(polled);
            }
            last = polled;
            let left = deadline.saturating_duration_since(Instant::now());
            match (last.more, shared.slots.is_full()) {
                (false, _) => drop(watch.wait(deadline)),
                // No event comes when there is room again.
                (true, true) => shared.slots.wait(left),
                // Not by the watch, which a guest can wake.
                (true, false) => std::thread::sleep(BEHIND.min(left)),
            }
        }
    }

    /// When something was last taken, started or answered, for a watchdog.
    #[must_use]
    pub fn last_progress(&self) -> Instant {
        self.shared.last_progress()
    }

    /// How many requests this process has in flight, answers that wait to be published included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.slots.in_use()
    }

    /// What the guest's server says about itself; none if it says nothing. It is text that a guest wrote.
    ///
    /// # Errors
    /// [`InvalidData`](crate::ErrorKind::InvalidData) if it is not what [`Client::announce`](super::Client::announce) writes, and the
    /// kinds of [`Root::read_contained`].
    pub fn ready(&self) -> Result<Option<Ready>> {
        read_ready(&self.shared.disk)
    }
}
