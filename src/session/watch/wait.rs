//! One watch: arm, look, wait.

use std::future::poll_fn;
#[cfg(feature = "queue")]
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::place::Place;
use super::table::Token;
use super::{OPERATION, Watcher};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Changes, Root};

/// The timer where events are to be trusted, and the longest one elsewhere.
const LONG: Duration = Duration::from_secs(1);
/// The shortest one elsewhere.
const SHORT: Duration = Duration::from_millis(100);

/// How a watch will notice a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Armed {
    /// By an event, at the latest by the timer.
    Events,
    /// By the timer alone, for this reason.
    Timer(Error),
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wake {
    /// Something may have changed.
    Changed,
    /// Nothing was reported for so long that a look is due.
    Timer,
    /// The caller's time is over.
    Deadline,
}

/// One directory of a session that somebody waits for; made by [`Watcher::watch`].
///
/// [`wait_for`](Self::wait_for) does it all in the right order. Otherwise: [`arm`](Self::arm), look, [`wait`](Self::wait) or
/// [`changed`](Self::changed), and again. Look each time, whatever has ended the wait: the disk is the truth.
///
/// Dropping it ends the watch. Several may watch one directory.
#[derive(Debug)]
pub struct Watch {
    watcher: Watcher,
    token: Token,
    place: Place,
    armed: Armed,
    /// The timer, unless events are to be trusted.
    interval: Duration,
    trusted: bool,
    /// When the last change is to be looked at.
    look: Option<Instant>,
    /// Whether a change is likely to be what is waited for: the last one was, or only new names count.
    fruitful: bool,
    /// Whether a look after it was armed has left nothing, so that only an event or the timer is a reason for the next.
    settled: bool,
}

impl Watch {
    /// The shortest time between two looks that changes cause.
    pub const PAUSE: Duration = Duration::from_millis(10);

    pub(super) fn new(watcher: Watcher, place: Place) -> Self {
        let token = watcher.table().add();
        let error = Error::new(OPERATION, place.subject(), ErrorKind::NotFound).with_detail("is not armed");
        let armed = Armed::Timer(error);
        let fruitful = place.changes() != Changes::All;
        let (interval, trusted) = (SHORT, false);
        Self { watcher, token, place, armed, interval, trusted, look: None, fruitful, settled: false }
    }

    /// Calls `look` at once and after each change, until it finds something or it is `deadline`. None in the latter case.
    ///
    /// # Errors
    /// Those of [`arm`](Self::arm), and the first of `look`.
    ///
    /// # Races
    /// No change is lost: `look` is called after the kernel was asked for the next event. A guest can cause it to be called for
    /// nothing, at most once each [`PAUSE`](Self::PAUSE) and once for each time that it has found something.
    pub fn wait_for<T, E: From<Error>>(
        &mut self,
        deadline: Instant,
        mut look: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        self.start_over();
        loop {
            // Whatever ends the waits: a guest can end each of them by an event.
            let is_last = Instant::now() >= deadline;
            self.arm()?;
            if let found @ Some(_) = look()? {
                self.found();
                return Ok(found);
            }
            if is_last {
                return Ok(None);
            }
            let wake = self.wait(deadline);
            // Most likely it is there. If so, the next call asks for the next event, before it looks.
            if std::mem::take(&mut self.fruitful)
                && wake == Wake::Changed
                && let found @ Some(_) = look()?
            {
                self.found();
                return Ok(found);
            }
        }
    }

    /// Asks the kernel for the next change, and says how it will be noticed. Look only after this.
    ///
    /// The directory is looked up anew. If there is none, or the guest has put a link or a file in its place, the nearest directory
    /// above it is watched until there is one again.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) once the session was removed. If events are not to be had, that is
    /// [`Armed::Timer`].
    ///
    /// # Races
    /// What changes after this returns is an event. The kernel watches the directory that was found, wherever the guest moves it, and
    /// none outside.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use std::time::{Duration, Instant};
    /// use beneath::session::{Armed, Part, Wake, Watcher};
    ///
    /// let mut watch = Watcher::new().watch(&session, Part::Workspace);
    /// if let Armed::Timer(reason) = watch.arm()? {
    ///     eprintln!("no events: {reason}");
    /// }
    /// assert!(!session.workspace().exists("result.json")?);
    /// session.workspace().write_exclusive("result.json", "{}")?; // by the guest, at any moment
    /// assert_ne!(watch.wait(Instant::now() + Duration::from_secs(30)), Wake::Deadline);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn arm(&mut self) -> Result<&Armed> {
        self.place.alive()?;
        self.watcher.table().begin(self.token);
        match self.place.nearest() {
            Ok(dir) => self.place_at(&dir),
            Err(error) => {
                // The kernel is not asked after all.
                let unused = self.watcher.table().armed(self.token, None);
                self.watcher.release(unused);
                self.note_armed(Err(error.again(OPERATION)));
            }
        }
        Ok(&self.armed)
    }

    /// The same for a directory that the caller has opened, and is about to look at.
    #[cfg(feature = "queue")]
    pub(crate) fn arm_at(&mut self, dir: &Root) {
        self.watcher.table().begin(self.token);
        self.place_at(dir);
    }

    fn place_at(&mut self, dir: &Root) {
        let placed = match self.watcher.arm(self.token, dir, self.place.changes()) {
            Ok(()) => Ok(dir.has_local_changes_only()),
            Err(errno) => Err(self.watcher.failure().cloned().unwrap_or_else(|| self.explained(errno))),
        };
        self.note_armed(placed);
    }

    /// Whether the events are to be trusted, or why there are none.
    fn note_armed(&mut self, placed: Result<bool>) {
        let (armed, trusted) = match placed {
            Ok(trusted) => (Armed::Events, trusted),
            Err(error) => (Armed::Timer(error), false),
        };
        if !trusted && self.trusted {
            self.interval = SHORT;
        }
        (self.armed, self.trusted, self.settled) = (armed, trusted, false);
    }

    /// The kernel's words for some of these are about files.
    fn explained(&self, errno: Errno) -> Error {
        let error = Error::from_errno(OPERATION, self.place.subject(), errno);
        match errno {
            Errno::NOSPC => error
                .with_kind(ErrorKind::TooMany)
                .with_detail("no watch is left for this user (fs.inotify.max_user_watches)"),
            Errno::NOSYS => error.with_detail("needs /proc, which is missing here"),
            _ => error,
        }
    }

    /// How changes are noticed, as of the last [`arm`](Self::arm).
    #[must_use]
    pub fn armed(&self) -> &Armed {
        &self.armed
    }

    /// Blocks until something may have changed since the watch was armed, but not beyond the timer and `deadline`.
    ///
    /// # Races
    /// A guest that makes changes without end does not end this more often than once each [`PAUSE`](Self::PAUSE).
    pub fn wait(&mut self, deadline: Instant) -> Wake {
        self.settled = false;
        let due = Instant::now() + self.interval();
        if self.watcher.wait(self.token, due.min(deadline)) {
            self.note_change();
            std::thread::sleep(self.rest());
            return Wake::Changed;
        }
        if due < deadline { Wake::Timer } else { Wake::Deadline }
    }

    /// Waits until something may have changed since the watch was armed, for async code of any runtime.
    ///
    /// Without an event it never ends: put a timeout of [`interval`](Self::interval) around it. A thread or a task has to
    /// [dispatch](Watcher::dispatch_within) the events. After it has ended, wait for [`rest`](Self::rest). It may be dropped at any
    /// time, and nothing is lost.
    pub async fn changed(&mut self) {
        self.settled = false;
        let (watcher, token) = (&self.watcher, self.token);
        poll_fn(|context| match watcher.table().take_or_wake(token, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        self.note_change();
    }

    /// How long to wait until the next look, if nothing is reported. Where events are not to be trusted it grows each time
    /// that this is asked.
    pub fn interval(&mut self) -> Duration {
        if self.trusted {
            return LONG;
        }
        let interval = self.interval;
        self.interval = (interval * 2).min(LONG);
        interval
    }

    /// How long to wait before the change is looked at, so that a guest which makes changes without end causes no more than one look
    /// each [`PAUSE`](Self::PAUSE). Nothing if the change before was long ago.
    #[must_use]
    pub fn rest(&self) -> Duration {
        self.look.map_or(Duration::ZERO, |look| look.saturating_duration_since(Instant::now()))
    }

    /// Says that the last look has found something: the next change is looked at without a [pause](Self::PAUSE), since it was no
    /// look for nothing. [`wait_for`](Self::wait_for) does it itself.
    pub fn found(&mut self) {
        (self.look, self.fruitful) = (None, true);
    }

    /// A new wait, with the shortest timer first.
    pub(crate) fn start_over(&mut self) {
        self.interval = SHORT;
    }

    /// Notes that a look at the directory beneath `root`, after the watch was [armed](Self::arm_at) there, has left nothing. Where
    /// every change is an event, and for no other directory than that of the watch.
    #[cfg(feature = "queue")]
    pub(crate) fn settle(&mut self, root: &Arc<Root>) {
        self.settled = self.trusted && self.place.is_beneath(root);
    }

    /// Whether there is nothing to look at beneath `root` before the next event; asked once.
    #[cfg(feature = "queue")]
    pub(crate) fn take_settled(&mut self, root: &Arc<Root>) -> bool {
        std::mem::take(&mut self.settled) && self.place.is_beneath(root)
    }

    fn note_change(&mut self) {
        let now = Instant::now();
        self.look = Some(self.look.map_or(now, |last| now.max(last + Self::PAUSE)));
        self.interval = SHORT;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let unused = self.watcher.table().remove(self.token);
        self.watcher.release(unused);
    }
}
