//! A session's mailbox: where its databases are, and how they are opened.
//!
//! Problem: SQLite knows paths, and a session knows handles.
//!
//! Defence: the share and the host's side are directories that no guest can change, so the kernel is asked for their paths, and
//! before each use the path is compared with the handle. What the guest writes is never opened: see [`hostile`](super::hostile).
//!
//! What remains: a [sealed](crate::Sessions::sealed) session has no paths. Open the mailbox of a session of the same id that is not.

use std::fmt;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use rusqlite::{Connection, OptionalExtension as _};
use rustix::fs::{fstat, stat};

use super::config::MailboxConfig;
use super::hostile::{Image, Limits};
use super::schema::{INBOUND_SCHEMA, MAIL_SCHEMA, OUTBOUND_SCHEMA};
use super::sqlite::{self, INBOUND, MAIL, ensure_file, failed};
use super::{marks, routing};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::root::{self, Flock, Root};
use crate::session::{DbImage, DbStamp, Part, Session, SessionLock};

const OPERATION: &str = "open mailbox";
const OUTBOUND: &str = "outbound.db";
const HEARTBEAT: &str = ".heartbeat";
/// Where [`MAIL`] is, and its name there.
const STATE: &str = "state";
const MAIL_NAME: &str = "mail.db";
/// One `put` at a time: files and row of a message are one thing.
const LOCK: &str = "state/mail.lock";
const POLL: Duration = Duration::from_millis(2);
/// How long a copy for the guest waits for the guest.
const COPY: Duration = Duration::from_millis(50);

/// The messages of a session; see the [module](super).
///
/// A clone is cheap and shares what was opened. Several may be open on one session, in one process or in many.
#[derive(Clone)]
pub struct Mailbox {
    inner: Arc<Inner>,
}

struct Inner {
    session: Session,
    config: MailboxConfig,
    outbound: String,
    heartbeat: String,
    inbound: Mutex<PathBuf>,
    mail: Mutex<Connection>,
    /// `host/state`.
    state: Root,
    /// The largest number of the guest's messages so far.
    seen: AtomicI64,
    glance: Mutex<Glance>,
    /// Whether the guest lacks copies of what was recorded.
    behind: AtomicBool,
}

/// What the last look at the guest's database has shown.
#[derive(Debug, Default)]
pub(super) struct Glance {
    pub(super) stamp: Option<DbStamp>,
    pub(super) refused: Leftovers,
    /// When that was.
    pub(super) looked: i64,
    /// When the first of its messages is due that was not handed out; none if there is none.
    pub(super) due: Option<i64>,
    /// The version of the marks that this is true for; none if they have changed since.
    pub(super) marks: Option<Version>,
}

/// What shows that another process has changed the marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    seen: root::Glance,
    /// SQLite's own number, for when the last change is so young that the next could have its time.
    number: i64,
    settled: bool,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("session", &self.inner.session).finish_non_exhaustive()
    }
}

impl Mailbox {
    /// Opens the mailbox of a session, with the [default](MailboxConfig) limits. What it lacks is made: `inbound.db` in the share,
    /// `outbound.db` in the guest's directory, whole or not at all, and `mail.db` on the host's side. A transaction that a host has
    /// left when it died is rolled back.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a session that has no [share](Session::share) or is sealed, and for databases of a
    /// later version; [`InvalidData`](ErrorKind::InvalidData) for those of something else; [`NotFound`](ErrorKind::NotFound) if the session was
    /// removed; [`Busy`](ErrorKind::Busy), [`NoSpace`](ErrorKind::NoSpace), and the kinds of every resolution.
    pub fn open(session: &Session) -> Result<Self> {
        Self::open_with(session, MailboxConfig::default())
    }

    /// Opens the mailbox of a session with other limits.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Escape`](ErrorKind::Escape) or [`InvalidPath`](ErrorKind::InvalidPath) for a path in the config that is
    /// not in the session.
    pub fn open_with(session: &Session, config: MailboxConfig) -> Result<Self> {
        session.alive()?;
        let share = share(session)?;
        ensure_file(share, Path::new(INBOUND))?;
        ensure_file(session.host(), Path::new(MAIL))?;
        let path = |root: &Root| root.ambient_path(ambient_authority());
        let inbound_path = path(share)?.join(INBOUND);
        let inbound = sqlite::open(&inbound_path, INBOUND, config.busy(), share.policy().durability())?;
        INBOUND_SCHEMA.migrate(&inbound)?;
        let durability = session.host().policy().durability();
        let mail = sqlite::open(&path(session.host())?.join(MAIL), MAIL, config.busy(), durability)?;
        MAIL_SCHEMA.migrate(&mail)?;
        // A guest that holds a lock on it keeps nobody from opening.
        let behind = repair(&mail, &inbound).is_err();
        let seen = "SELECT value FROM state WHERE name = 'seen'";
        let seen: Option<i64> = mail
            .query_row(seen, (), |row| row.get(0))
            .optional()
            .map_err(|error| failed(OPERATION, MAIL, &error))?;
        let in_guest = |given: Option<&str>, name: &str| match given {
            Some(path) => Ok(path.to_owned()),
            None => {
                let path = session.guest_path(Part::Guest, &GuestPath::new(name)?)?;
                Ok::<_, Error>(path.to_string_lossy().into_owned())
            }
        };
        let outbound = in_guest(config.outbound(), OUTBOUND)?;
        let heartbeat = in_guest(config.heartbeat(), HEARTBEAT)?;
        make_outbound(session, &outbound)?;
        Ok(Self {
            inner: Arc::new(Inner {
                session: session.clone(),
                config,
                outbound,
                heartbeat,
                inbound: Mutex::new(inbound_path),
                mail: Mutex::new(mail),
                state: session.host().descend(STATE)?,
                seen: AtomicI64::new(seen.unwrap_or(0)),
                glance: Mutex::default(),
                behind: AtomicBool::new(behind),
            }),
        })
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.inner.session
    }

    /// The config in force.
    #[must_use]
    pub fn config(&self) -> &MailboxConfig {
        &self.inner.config
    }

    pub(super) fn alive(&self) -> Result<()> {
        self.session().alive()
    }

    pub(super) fn heartbeat(&self) -> &str {
        &self.inner.heartbeat
    }

    pub(super) fn outbound(&self) -> &str {
        &self.inner.outbound
    }

    /// The host's own database.
    pub(super) fn mail(&self) -> MutexGuard<'_, Connection> {
        // What a thread that has panicked left open is rolled back by the next transaction.
        self.inner.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn glance(&self) -> MutexGuard<'_, Glance> {
        self.inner.glance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next [`take`](Self::take) look at all of it.
    pub(super) fn look_again(&self) {
        self.glance().marks = None;
    }

    /// The version of the marks as they are now.
    pub(super) fn version(&self, mail: &Connection) -> Result<Version> {
        let moment = root::Moment::now();
        let seen = self.inner.state.glance(Path::new(MAIL_NAME))?;
        let settled = moment.settles(&seen, &self.inner.state);
        let number = mail.query_row("PRAGMA data_version", (), |row| row.get(0));
        let number = number.map_err(|error| failed("look at marks", MAIL, &error))?;
        Ok(Version { seen, number, settled })
    }

    /// Whether the marks are those of that version. If SQLite was asked, the next look need not.
    pub(super) fn is_version(&self, last: &mut Version) -> Result<bool> {
        if last.settled {
            return Ok(self.inner.state.glance(Path::new(MAIL_NAME))? == last.seen);
        }
        let now = self.version(&self.mail())?;
        let same = now.number == last.number;
        if same {
            *last = now;
        }
        Ok(same)
    }

    /// Checks that this is the lock of the session.
    pub(super) fn check_lock(&self, lock: &SessionLock) -> Result<()> {
        lock.must_be_in(&self.inner.state)
    }

    pub(super) fn seen(&self) -> i64 {
        self.inner.seen.load(Ordering::Relaxed)
    }

    pub(super) fn has_seen(&self, seq: i64) {
        self.inner.seen.fetch_max(seq, Ordering::Relaxed);
    }

    /// Opens what the guest reads, for one operation.
    pub(super) fn open_inbound(&self) -> Result<Connection> {
        self.open_inbound_within(self.config().busy())
    }

    fn open_inbound_within(&self, busy: Duration) -> Result<Connection> {
        let share = share(self.session())?;
        let open = |path: &Path| sqlite::open(path, INBOUND, busy, share.policy().durability());
        let mut path = self.inner.inbound.lock().unwrap_or_else(PoisonError::into_inner);
        if leads_to(&path, share)
            && let Ok(inbound) = open(&path)
        {
            return Ok(inbound);
        }
        // The directory was moved. A link that leads there from where it was is not followed.
        *path = share.ambient_path(ambient_authority())?.join(INBOUND);
        open(&path)
    }

    /// Writes a copy of what the host has recorded to where the guest reads. A guest that holds a lock on it has no copy for now, and
    /// keeps nobody waiting: the copy is completed later.
    pub(super) fn copy_to_guest(&self, write: impl FnOnce(&Connection) -> rusqlite::Result<()>) {
        self.copy_within(self.config().busy().min(COPY), write);
    }

    fn copy_within(&self, busy: Duration, write: impl FnOnce(&Connection) -> rusqlite::Result<()>) {
        let inbound = self.open_inbound_within(busy);
        if !inbound.is_ok_and(|inbound| write(&inbound).is_ok()) {
            self.inner.behind.store(true, Ordering::Relaxed);
        }
    }

    /// Completes the copies, if some could not be written. It waits for no guest: the caller will retry.
    pub(super) fn catch_up(&self) {
        if self.inner.behind.swap(false, Ordering::Relaxed) {
            self.copy_within(Duration::ZERO, |inbound| repair(&self.mail(), inbound));
        }
    }

    /// What the guest writes, as an image that was checked; none if there is no such database.
    pub(super) fn read_outbound(&self, operation: &'static str) -> Result<Option<Image>> {
        let Some(image) = self.outbound_bytes()? else { return Ok(None) };
        self.open_image(operation, &image).map(Some)
    }

    /// The bytes of what the guest writes.
    pub(super) fn outbound_bytes(&self) -> Result<Option<DbImage>> {
        match self.session().read_db(self.outbound(), self.config().image_bytes()) {
            Ok(image) => Ok(Some(image)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Unless it is the session that is gone.
                self.alive().map(|()| None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn open_image(&self, operation: &'static str, image: &DbImage) -> Result<Image> {
        let config = self.config();
        let limits =
            Limits { time: config.read_time(), rows: config.rows(), content_bytes: config.content_bytes() };
        Image::open(operation, OUTBOUND, image.as_bytes(), limits)
    }

    /// The right to put a message, waiting for it no longer than the config says.
    pub(super) fn lock_puts(&self) -> Result<Flock> {
        let start = Instant::now();
        loop {
            match Flock::try_take(self.session().host(), Path::new(LOCK), "put message") {
                Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < self.config().busy() => {
                    std::thread::sleep(POLL);
                }
                taken => return taken,
            }
        }
    }
}

fn share(session: &Session) -> Result<&Root> {
    session.share().ok_or_else(|| {
        Error::new(OPERATION, INBOUND, ErrorKind::Unsupported).with_detail("the session has no share")
    })
}

/// Whether a file's path is one in that directory.
fn leads_to(path: &Path, directory: &Root) -> bool {
    match (path.parent().map(stat), fstat(directory.as_fd())) {
        (Some(Ok(found)), Ok(held)) => (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino),
        _ => false,
    }
}

/// Writes to `inbound.db` what a host that died has only noted.
fn repair(mail: &Connection, inbound: &Connection) -> rusqlite::Result<()> {
    sqlite::in_transaction(inbound, |inbound| {
        routing::copy(mail, inbound)?;
        let missing = marks::unpublished(mail, inbound)?;
        missing.iter().try_for_each(|(raw, outcome, changed)| marks::publish(inbound, raw, outcome, *changed))
    })
}

/// Gives the guest an empty database, unless there is something at its name.
fn make_outbound(session: &Session, path: &str) -> Result<()> {
    let (part, within) = session.resolve(path)?;
    let (root, path) = session.at(part, &within)?;
    match root.metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // Whatever it is, reading it is refused or not.
        _ => return Ok(()),
    }
    let image = empty_outbound().map_err(|error| failed(OPERATION, OUTBOUND, &error))?;
    match root.write_exclusive(&path, image) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // The guest has removed or replaced the directory that it is to be in; that is its own loss.
        Err(error) if part != Part::Guest && error.kind() == ErrorKind::NotFound => Ok(()),
        made => made,
    }
}

fn empty_outbound() -> rusqlite::Result<Vec<u8>> {
    let mut connection = Connection::open_in_memory()?;
    connection.execute_batch(OUTBOUND_SCHEMA)?;
    Ok(connection.serialize(rusqlite::MAIN_DB)?.to_vec())
}
