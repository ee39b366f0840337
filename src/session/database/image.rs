//! The bytes of a database that the guest writes.
//!
//! Problem: SQLite cannot be given a file in guest reach. Opening it plays back whatever journal is beside it, and with that
//! writes and deletes where the guest wants. A plain read has no side effect, but one that runs beside a writer mixes two
//! transactions.
//!
//! Defence: read as SQLite's own readers do, and do nothing else. A shared lock on the whole file makes an honest writer wait;
//! while one is at work the lock is refused. A hot journal or a log means that the file alone is not the database. Both are
//! looked for before and after the read, and so are length, times and the change counter, so that a writer whose locks do not
//! reach the host, as across the border of a virtual machine, is noticed too. Nothing is written or made.
//!
//! What remains: a guest that keeps no locks and no journal can hand over any bytes. They are untrusted in any case: give them
//! to SQLite as an image in memory, never as a file in guest reach.
//!
//! A lock of this kind ends when the process closes *any* descriptor of the file. Two threads that read one database at a time
//! take each other's lock away, and the checks after the read are what is left.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use super::{Inspected, MAGIC, Sibling, inspect, is_hot};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{ContainedFile, Glance, Moment, Root};
use crate::session::handle::Session;
use crate::session::handle::resolve::Spelled;

const OPERATION: &str = "read database";
const HEADER: usize = 100;
/// How often a database is tried that somebody writes to, and how long to wait in between.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(2);

/// What shows that a database has changed.
#[derive(Clone, Debug)]
pub struct DbStamp {
    seen: Glance,
    counter: u32,
    /// Whether every later change shows in what was seen.
    settled: bool,
}

impl PartialEq for DbStamp {
    fn eq(&self, other: &Self) -> bool {
        (&self.seen, self.counter) == (&other.seen, other.counter)
    }
}

impl Eq for DbStamp {}

impl DbStamp {
    /// SQLite's own count of the transactions that have changed the database. The guest can write any number there.
    #[must_use]
    pub fn change_counter(&self) -> u32 {
        self.counter
    }

    /// How long the file was.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.seen.len
    }

    /// Whether the file was empty: a database without tables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.len == 0
    }
}

/// A database as it was at one moment, in memory. Its content is the guest's.
#[derive(Clone, PartialEq, Eq)]
pub struct DbImage {
    bytes: Vec<u8>,
    stamp: DbStamp,
}

impl DbImage {
    /// The whole file, for `sqlite3_deserialize`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The whole file.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What [`Session::db_changed`] compares with.
    #[must_use]
    pub fn stamp(&self) -> &DbStamp {
        &self.stamp
    }
}

impl std::fmt::Debug for DbImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DbImage").field("stamp", &self.stamp).finish_non_exhaustive()
    }
}

impl Session {
    /// The bytes of a database that the guest writes, as of one moment if the guest keeps SQLite's locks or its journal.
    ///
    /// This is how a host reads such a database: give the bytes to SQLite as an image in memory (`sqlite3_deserialize`). There is
    /// no path, so no journal is played back, and no link and no FIFO is opened. Nothing is written. `path` is as
    /// [`resolve`](Self::resolve) reads it, and no link is followed. Only databases with a rollback journal can be read; a
    /// write-ahead log is refused. An empty file is a database without tables.
    ///
    /// While it reads, an honest writer gets `SQLITE_BUSY` and waits by its busy timeout.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if a writer holds it, or it changed while it was read, three times in a row;
    /// [`InvalidData`](ErrorKind::InvalidData) for what is no database, or has a hot journal (the guest died in a transaction; its own
    /// next open recovers that), a write-ahead log, or a length that is not its pages';
    /// [`TooLarge`](ErrorKind::TooLarge); [`Denied`](ErrorKind::Denied) and [`InvalidPath`](ErrorKind::InvalidPath) as
    /// [`verify_db`](Self::verify_db); and those of [`Root::open_contained`] for the database and for what is beside it.
    ///
    /// # Races
    /// A guest that keeps neither locks nor journal can make the image any mixture. Check its integrity before use.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::ErrorKind;
    ///
    /// let workspace = session.workspace();
    /// workspace.write_exclusive("out.db", "")?;
    /// let image = session.read_db("out.db", 1 << 20)?;
    /// assert!(image.as_bytes().is_empty() && !session.db_changed("out.db", image.stamp())?);
    ///
    /// workspace.write_exclusive("out.db-journal", "planted")?;
    /// assert_eq!(session.read_db("out.db", 1 << 20).unwrap_err().kind(), ErrorKind::InvalidData);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_db<'p>(&self, path: impl Into<Spelled<'p>>, max_bytes: u64) -> Result<DbImage> {
        let (part, path) = self.database(path)?;
        let (root, path) = self.at(part, path)?;
        let mut tried = 0;
        loop {
            match read_once(root, &path, max_bytes) {
                Err(error) if error.kind() == ErrorKind::Busy && tried < TRIES => {
                    tried += 1;
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Whether a database is another one than it was: one look at its name, and within two seconds of a change also one open and
    /// 100 bytes.
    ///
    /// # Errors
    /// Those of [`Root::open_contained`], and [`Denied`](ErrorKind::Denied) and [`InvalidPath`](ErrorKind::InvalidPath) as
    /// [`verify_db`](Self::verify_db).
    ///
    /// # Races
    /// A change that is under way may be reported before [`read_db`](Self::read_db) can read it. A guest can put back the times and
    /// the counter that it has changed, but not the time of that. What it writes through a mapping, which SQLite does not, may not
    /// show before it writes otherwise; [`read_db`](Self::read_db) reads it all the same.
    pub fn db_changed<'p>(&self, path: impl Into<Spelled<'p>>, last: &DbStamp) -> Result<bool> {
        self.db_is(path, &mut last.clone()).map(|same| !same)
    }

    /// Whether a database is the one that it was. If that was found by opening it, the next look need not.
    pub(crate) fn db_is<'p>(&self, path: impl Into<Spelled<'p>>, last: &mut DbStamp) -> Result<bool> {
        let (part, path) = self.database(path)?;
        let (root, path) = self.at(part, path)?;
        if root.glance(&path)? != last.seen {
            return Ok(false);
        }
        if last.settled {
            return Ok(true);
        }
        let mut file = root.open_contained(&path)?;
        let start = header(&mut file, &path)?;
        let now = stamp(root, &file, &path, &start)?;
        let same = now == *last;
        if same {
            *last = now;
        }
        Ok(same)
    }
}

fn read_once(root: &Root, path: &Path, max_bytes: u64) -> Result<DbImage> {
    let refuse = |kind, why: &'static str| Error::new(OPERATION, path, kind).with_detail(why);
    let mut file = root.open_contained(path)?;
    match fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockShared) {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::ACCESS | Errno::INTR) => {
            return Err(refuse(ErrorKind::Busy, "is held by a writer"));
        }
        // Where there are no locks the checks after the read must do.
        Err(_) => {}
    }
    let start = header(&mut file, path)?;
    let before = stamp(root, &file, path, &start)?;
    if before.len() > max_bytes {
        return Err(Error::new(OPERATION, path, ErrorKind::TooLarge));
    }
    check_header(&start, before.len()).map_err(|why| refuse(ErrorKind::InvalidData, why))?;
    check_siblings(root, path)?;
    rewind(&mut file, path)?;
    let bytes = file.read_to_limit(max_bytes)?;
    check_siblings(root, path)?;
    let start = header(&mut file, path)?;
    if stamp(root, &file, path, &start)? != before || bytes.len() as u64 != before.len() {
        return Err(refuse(ErrorKind::Busy, "has changed while it was read"));
    }
    Ok(DbImage { bytes, stamp: before })
}

fn rewind(file: &mut ContainedFile, path: &Path) -> Result<()> {
    file.seek(SeekFrom::Start(0)).map(drop).map_err(|error| Error::from_io(OPERATION, path, error))
}

/// How the file begins; less if it is shorter.
fn header(file: &mut ContainedFile, path: &Path) -> Result<Vec<u8>> {
    rewind(file, path)?;
    let mut start = Vec::with_capacity(HEADER);
    match file.by_ref().take(HEADER as u64).read_to_end(&mut start) {
        Ok(_) => Ok(start),
        Err(error) => Err(Error::from_io(OPERATION, path, error)),
    }
}

fn stamp(root: &Root, file: &ContainedFile, path: &Path, start: &[u8]) -> Result<DbStamp> {
    let moment = Moment::now();
    match Glance::of(file) {
        Ok(seen) => {
            let counter = number(start, 24).unwrap_or_default();
            Ok(DbStamp { seen, counter, settled: moment.settles(&seen, root) })
        }
        Err(errno) => Err(Error::from_errno(OPERATION, path, errno)),
    }
}

/// Four bytes of a header, as SQLite writes numbers.
fn number(start: &[u8], at: usize) -> Option<u32> {
    let bytes = start.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// What SQLite itself would refuse, and what is not whole without its log.
fn check_header(start: &[u8], len: u64) -> Result<(), &'static str> {
    if len == 0 {
        return Ok(());
    }
    let (true, Some(&[high, low, write, read])) = (start.starts_with(MAGIC), start.get(16..20)) else {
        return Err("is not a database");
    };
    let size = match u64::from(u16::from_be_bytes([high, low])) {
        1 => 65536,
        size if size.is_power_of_two() && size >= 512 => size,
        _ => return Err("is not a database"),
    };
    if (write, read) != (1, 1) {
        return Err("needs a write-ahead log");
    }
    // Versions before 3.7 did not keep the number of pages; it counts if it is of the same transaction as the counter.
    let counted = (number(start, 24) == number(start, 92)).then(|| number(start, 28)).flatten();
    match counted.filter(|pages| *pages != 0) {
        Some(pages) if u64::from(pages) * size != len => Err("is not as long as its pages"),
        _ if !len.is_multiple_of(size) => Err("is not as long as its pages"),
        _ => Ok(()),
    }
}

/// A journal or log that holds anything belongs to the database. The index of a log alone changes nothing.
fn check_siblings(root: &Root, database: &Path) -> Result<()> {
    for (sibling, why) in [(Sibling::Journal, "has a hot journal"), (Sibling::Wal, "has a write-ahead log")] {
        match inspect(root, &sibling.path(database), None)? {
            Inspected::Missing => {}
            Inspected::Plain(file, start) if !is_hot(sibling, &file, &start) => {}
            Inspected::Plain(..) => {
                return Err(Error::new(OPERATION, database, ErrorKind::InvalidData).with_detail(why));
            }
            Inspected::Faulty(fault) => return Err(fault.into_error(sibling.path(database))),
        }
    }
    Ok(())
}
