//! Waiting for a change, instead of asking again and again.
//!
//! Problem: a service that polls a thousand outboxes is slow and busy at the same time. The kernel can report changes, but a
//! guest that replaces the directory by a link makes a naive host watch a directory outside, one that creates without end fills
//! the queue of events for all, and what changes between looking and waiting is lost.
//!
//! Defence: an event is only a hint to look; names in events are never used. Directories are watched by handle, looked up
//! beneath the guest's each time. A watch ends with its first event and is armed anew before the next look: what
//! changes before the look is seen by it, and what changes after it is an event. A guest that creates 100,000 files queues two
//! events, and one that does not stop causes [a hundred](Watch::PAUSE) looks a second. All sessions of a service share one
//! [`Watcher`], which is one descriptor. Whatever goes wrong with the events, a timer ends each wait.
//!
//! | | events, and a timer of | the timer alone |
//! |---|---|---|
//! | a file system of this kernel | 1 s | |
//! | a network file system, FUSE, virtiofs, 9p, overlay | 100 ms, later up to 1 s | |
//! | no inotify, no `/proc`, no watch left (`fs.inotify.max_user_watches`), a directory that the host may not read | | 100 ms, later up to 1 s |
//!
//! What remains: a watch sees its own directory and the entries in it, not what is further down: watch the directory that
//! matters, or rely on the timer. A guest that exchanges the directory in the moment between its lookup and the watch has its
//! own changes seen up to a second later.

mod place;
mod table;
mod wait;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, init, remove_watch};
use rustix::io::Errno;

use self::place::Place;
use self::table::{Table, Token};
use super::handle::Session;
use super::handle::parts::Part;
use super::handle::resolve::Spelled;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{Changes, Root};

pub use wait::{Armed, Wake, Watch};

const OPERATION: &str = "watch";

/// How much of the queue is read at a time.
const BUFFER: usize = 4096;
/// As many events fit into it, of 272 bytes at most. If the kernel returns fewer, it has no more.
const BATCH: usize = BUFFER / 272;

/// Where a service waits for changes: one for all its sessions.
///
/// A clone is the same watcher. It holds one descriptor, whatever the number of its watches; the kernel gives a user 128 such
/// descriptors (`fs.inotify.max_user_instances`), so do not make one for each session.
///
/// Threads wait by [`Watch::wait_for`]; one of those that wait reads the events for all. Async code waits by
/// [`Watch::changed`]; then a thread has to [dispatch](Self::dispatch_within) the events, or a task has to call
/// [`dispatch`](Self::dispatch) when [the descriptor](Self::try_clone_fd) is readable. Nothing here depends on a runtime.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// use std::time::{Duration, Instant};
/// use beneath::session::{Part, Watcher};
///
/// let watcher = Watcher::new();
/// let outbox = session.outbox();
/// let mut watch = watcher.watch(&session, Part::Outbox);
/// # let guest = session.clone();
/// # std::thread::spawn(move || guest.guest().ensure_dir("outbox/42"));
/// let messages = watch.wait_for(Instant::now() + Duration::from_secs(30), || {
///     let messages = outbox.messages()?.entries;
///     Ok::<_, beneath::Error>((!messages.is_empty()).then_some(messages))
/// })?;
/// assert_eq!(messages.unwrap()[0].as_str(), "42");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inotify: Result<OwnedFd>,
    table: Mutex<Table>,
    /// Rings when something has fired, and when the thread that reads for all has stopped.
    bell: Condvar,
}

impl Default for Watcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Watcher {
    /// Makes a watcher. Where the kernel has no inotify, or none left for this user, it works by the timer alone and
    /// [reports](Self::failure) that.
    #[must_use]
    pub fn new() -> Self {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|errno| {
            let error = Error::without_subject(OPERATION, errno);
            match errno {
                Errno::MFILE => error.with_detail("no inotify instance or descriptor is left for this user"),
                _ => error,
            }
        });
        let shared = Shared { inotify, table: Mutex::default(), bell: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Why there are no events and each wait ends by the timer; none if there are.
    ///
    /// ```
    /// let watcher = beneath::session::Watcher::new();
    /// if let Some(reason) = watcher.failure() {
    ///     eprintln!("no events, each wait ends by the timer: {reason}");
    /// }
    /// ```
    #[must_use]
    pub fn failure(&self) -> Option<&Error> {
        self.shared.inotify.as_ref().err()
    }

    /// Watches a part of a session. Nothing is asked of the kernel until the watch is [armed](Watch::arm).
    #[must_use]
    pub fn watch(&self, session: &Session, part: Part) -> Watch {
        Watch::new(self.clone(), Place::Part(session.clone(), part, GuestPath::top()))
    }

    /// Watches a directory of a session, in any spelling that [`Session::resolve`] reads.
    ///
    /// # Errors
    /// Those of [`Session::resolve`]. The directory need not exist.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let watcher = beneath::session::Watcher::new();
    /// let watch = watcher.watch_path(&session, "/session/workspace/logs")?;
    /// assert!(watcher.watch_path(&session, "/etc").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch_path<'p>(&self, session: &Session, path: impl Into<Spelled<'p>>) -> Result<Watch> {
        let (part, path) = session.resolve(path)?;
        Ok(Watch::new(self.clone(), Place::Part(session.clone(), part, path)))
    }

    /// Watches a directory beneath a root.
    #[cfg(feature = "queue")]
    pub(crate) fn watch_beneath(&self, session: Option<Session>, root: Arc<Root>, path: GuestPath) -> Watch {
        Watch::new(self.clone(), Place::Beneath(session, root, path))
    }

    /// Waits for events, no longer than `patience`, and wakes the watches that they belong to.
    ///
    /// Only for async code, which has a thread that does this again and again: [`Watch::wait`] does it itself.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let watcher = beneath::session::Watcher::new();
    ///
    /// std::thread::spawn(move || {
    ///     loop {
    ///         watcher.dispatch_within(Duration::from_secs(1));
    ///     }
    /// });
    /// ```
    pub fn dispatch_within(&self, patience: Duration) {
        drop(self.drive(self.table(), patience));
    }

    /// Wakes the watches whose events are there. Never waits.
    ///
    /// For async code whose runtime watches [the descriptor](Self::try_clone_fd). As long as a thread waits for events, this
    /// leaves them to that thread.
    pub fn dispatch(&self) {
        let table = self.table();
        if let (Ok(inotify), false) = (&self.shared.inotify, table.is_driven) {
            self.drain(inotify.as_fd(), table);
        }
    }

    /// A descriptor that is readable when there is something to [dispatch](Self::dispatch); none if there are
    /// [no events](Self::failure). Do not read from it.
    ///
    /// # Errors
    /// [`TooMany`](ErrorKind::TooMany) when no descriptor is left.
    pub fn try_clone_fd(&self) -> Result<Option<OwnedFd>> {
        let Ok(inotify) = &self.shared.inotify else { return Ok(None) };
        match inotify.try_clone() {
            Ok(fd) => Ok(Some(fd)),
            Err(error) => Err(Error::new(OPERATION, ".", ErrorKind::TooMany).with_source(error)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all events. In one go with what comes after it, so that nobody begins to wait for an event that was read here.
    fn drain(&self, inotify: BorrowedFd<'_>, mut table: MutexGuard<'_, Table>) {
        let mut wake = Vec::new();
        let mut buffer = [std::mem::MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut read = 0;
        loop {
            read += 1;
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    table.overflowed(&mut wake);
                }
                Ok(event) => table.ended(event.wd(), &mut wake),
                Err(Errno::INTR) => continue,
                // EAGAIN: the queue is empty. The timer covers whatever else it may be.
                Err(_) => break,
            }
            if reader.is_buffer_empty() && std::mem::take(&mut read) < BATCH {
                break;
            }
        }
        table.is_driven = false;
        let is_awaited = table.listeners > 0;
        drop(table);
        if is_awaited {
            self.shared.bell.notify_all();
        }
        wake.into_iter().for_each(std::task::Waker::wake);
    }

    /// Has the kernel report the next change of `dir`.
    fn arm(&self, token: Token, dir: &Root, changes: Changes) -> Result<(), Errno> {
        let Ok(inotify) = &self.shared.inotify else { return Err(Errno::NOSYS) };
        // Not under the lock: a guest that serves the file system may let the kernel wait here.
        let number = dir.watch_once(inotify.as_fd(), changes);
        self.release(self.table().armed(token, number.ok()));
        number.map(drop)
    }

    /// Ends a watch that nobody uses.
    fn release(&self, number: Option<table::Number>) {
        if let (Some(number), Ok(inotify)) = (number, &self.shared.inotify) {
            // It may have ended by itself. If somebody is getting the same watch right now, its end is an event to them.
            let _ = remove_watch(inotify, number);
        }
    }

    /// Waits until the watch has fired or the time has come; true if it has fired.
    fn wait(&self, token: Token, until: Instant) -> bool {
        let mut table = self.table();
        loop {
            if table.take(token) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            table = self.drive(table, left);
        }
    }

    /// Waits for events on behalf of all, or for the thread that does. It may end early.
    fn drive<'w>(&'w self, mut table: MutexGuard<'w, Table>, patience: Duration) -> MutexGuard<'w, Table> {
        match &self.shared.inotify {
            Ok(inotify) if !table.is_driven => {
                table.is_driven = true;
                drop(table);
                let mut ready = [PollFd::new(inotify, PollFlags::IN)];
                // A signal or a failure ends it early.
                let _ = poll(&mut ready, Timespec::try_from(patience).ok().as_ref());
                // It also rings the bell, so that another thread goes on with this if this one leaves.
                self.drain(inotify.as_fd(), self.table());
                self.table()
            }
            _ => {
                table.listeners += 1;
                let waited = self.shared.bell.wait_timeout(table, patience);
                table = waited.unwrap_or_else(PoisonError::into_inner).0;
                table.listeners -= 1;
                table
            }
        }
    }
}
