//! A database file that a guest can reach.
//!
//! **Never open such a database in place**, neither by path, nor through `/proc/self/fd`, nor with `SQLITE_OPEN_NOFOLLOW`.
//!
//! Problem: SQLite trusts what is beside a database. A journal that the guest has planted is played back when the host
//! merely reads: it overwrites pages of the database, and most versions of SQLite then delete the file that the end of the
//! journal names, wherever on the host it is. A FIFO in place of the journal makes the host wait without end. A link in
//! place of the database leads to another session's. SQLite turns every path into an absolute one and opens that, so
//! that a handle protects nothing, and whatever was checked may be swapped before the opening.
//!
//! Defence: read the bytes through the session's handle and give SQLite an image in memory, [`Session::read_db`], or a copy that
//! no guest can reach and that has nothing beside it, [`Session::copy_db`]. To know what a guest has prepared, look at the file and at everything SQLite
//! would open beside it, without following links, and say what is not as it should be; move what does not belong there
//! to the host's side. The database is never opened.
//!
//! What remains: a copy may be taken in the middle of the guest's transaction, and its content is the guest's: check its
//! integrity, and expect any schema. Keep a database that the host must trust on the host's side.

mod image;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstatfs;

pub use image::{DbImage, DbStamp};

use super::event;
use super::handle::Session;
use super::handle::located::Held;
use super::handle::parts::{Part, STAGING, STATE};
use super::handle::resolve::Spelled;
use super::handle::rules::Act;
use super::limited::LimitedFile;
use super::sweep::{Sweep, Swept};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SessionId};
use crate::root::{Metadata, Root};

const OPERATION: &str = "verify database";
/// How every SQLite 3 file begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
pub(super) const QUARANTINE: &str = "quarantine";

/// A file that SQLite opens beside a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Sibling {
    /// The rollback journal.
    Journal,
    /// The write-ahead log.
    Wal,
    /// The index of the write-ahead log.
    Shm,
}

impl Sibling {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Journal, Self::Wal, Self::Shm];

    /// What follows the database's own name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Journal => "-journal",
            Self::Wal => "-wal",
            Self::Shm => "-shm",
        }
    }

    fn path(self, database: &Path) -> PathBuf {
        let mut name = OsString::from(database);
        name.push(self.suffix());
        name.into()
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum DbFault {
    /// It cannot be used, for this reason: a link, not a regular file, several names.
    Refused(Error),
    /// It belongs to this user, who is not the expected one.
    ForeignOwner(u32),
    /// It does not begin as a database does.
    NotDatabase,
    /// SQLite would play it back on opening: write into the database, and delete the file that a journal may name.
    Hot,
}

impl DbFault {
    fn into_error(self, subject: PathBuf) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::ForeignOwner(_) => Error::new(OPERATION, subject, ErrorKind::Denied),
            Self::NotDatabase | Self::Hot => Error::new(OPERATION, subject, ErrorKind::InvalidData),
        }
    }
}

/// Whether SQLite's write-ahead log works on a file system. It needs memory that all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum WalSafety {
    /// A local file system.
    Safe,
    /// A network or pass-through file system (NFS, SMB, 9p, FUSE and with it virtiofs): use a rollback journal.
    Unsafe,
    /// A file system that this crate does not know.
    Unknown,
}

/// What [`Session::verify_db`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "the database may be unsound"]
#[non_exhaustive]
pub struct DbReport {
    /// What is wrong with the database itself.
    pub database: Option<DbFault>,
    /// The siblings that are there, and what is wrong with each.
    pub siblings: Vec<(Sibling, Option<DbFault>)>,
    /// Whether the write-ahead log works here.
    pub wal: WalSafety,
}

impl DbReport {
    /// Whether the database and its siblings were as they should be when they were looked at. This does not make it safe to open the
    /// database in place: see [`Session::verify_db`].
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.faults().next().is_none()
    }

    /// Whether the database and its siblings could be read. What was read may still be unsound, say a journal that is
    /// [`Hot`](DbFault::Hot): only [`is_sound`](Self::is_sound) is about that.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused().next().is_none()
    }

    /// The files that could not be read, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.faults().filter_map(|fault| match fault {
            DbFault::Refused(error) => Some((error.subject().unwrap_or(Path::new("")), error)),
            _ => None,
        })
    }

    fn faults(&self) -> impl Iterator<Item = &DbFault> {
        self.database.iter().chain(self.siblings.iter().filter_map(|(_, fault)| fault.as_ref()))
    }
}

impl Session {
    /// Checks a SQLite file on the guest's side and everything SQLite would open beside it.
    ///
    /// `path` is as [`resolve`](Self::resolve) reads it, and `owner` the user that all of them must belong to, if it matters.
    ///
    /// **Never open a database in place that a guest can reach, however sound it is.** The guest can plant a journal after
    /// this call, and SQLite then overwrites the database and deletes a host file that the journal names; a FIFO makes
    /// it hang, a link leads it elsewhere. Use what [`read_db`](Self::read_db) gives, or open what [`copy_db`](Self::copy_db) gives. The report is for people
    /// and for deciding what to do with a guest.
    ///
    /// A journal is [`Hot`](DbFault::Hot) if its first byte is not zero, which is SQLite's own rule: the rest of its header
    /// does not matter. A write-ahead log is hot unless it is empty.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no database, [`InvalidPath`](ErrorKind::InvalidPath) for a part of the session
    /// itself, [`Denied`](ErrorKind::Denied) for what the config's patterns keep from reads in the workspace, and the kinds of every
    /// resolution of the directories above it.
    ///
    /// # Races
    /// It was true during the call, and need not be true any more.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let guest_path = dir.path().join("s/guest");
    /// use beneath::session::{DbFault, Sibling};
    ///
    /// std::fs::write(guest_path.join("workspace/out.db"), b"SQLite format 3\0")?;
    /// assert!(session.verify_db("out.db", None)?.is_sound());
    ///
    /// std::fs::write(guest_path.join("workspace/out.db-journal"), b"planted")?;
    /// let report = session.verify_db("out.db", None)?;
    /// assert_eq!(report.siblings, [(Sibling::Journal, Some(DbFault::Hot))]);
    /// session.quarantine_sibling("out.db", Sibling::Journal)?;
    /// assert!(session.verify_db("out.db", None)?.is_sound());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify_db<'p>(&self, path: impl Into<Spelled<'p>>, owner: Option<u32>) -> Result<DbReport> {
        let (part, path) = self.database(path)?;
        // No link is followed: SQLite looks beside the file that a link leads to.
        let (root, path) = self.at(part, path)?;
        let database = match inspect(root, &path, owner)? {
            Inspected::Missing => return Err(Error::new(OPERATION, path, ErrorKind::NotFound)),
            // A file of length zero is a database without tables.
            Inspected::Plain(file, start) => {
                (!file.is_empty() && !start.starts_with(MAGIC)).then_some(DbFault::NotDatabase)
            }
            Inspected::Faulty(fault) => Some(fault),
        };
        let mut siblings = Vec::new();
        for sibling in Sibling::ALL {
            let fault = match inspect(root, &sibling.path(&path), owner)? {
                Inspected::Missing => continue,
                Inspected::Plain(file, start) => is_hot(sibling, &file, &start).then_some(DbFault::Hot),
                Inspected::Faulty(fault) => Some(fault),
            };
            if fault.is_some() {
                let error = Error::new(OPERATION, sibling.path(&path), ErrorKind::InvalidData);
                event::refused(OPERATION, &error);
            }
            siblings.push((sibling, fault));
        }
        Ok(DbReport { database, siblings, wal: wal_safety(root) })
    }

    /// The part that the database is in which a guest or a host means by `path`, and its path there, if it may be read.
    fn database<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<(Part, GuestPath)> {
        let path = path.into();
        let (part, within) = self.resolve(path.clone())?;
        if within.is_top() {
            return Err(Error::new("check path", path.subject(), ErrorKind::InvalidPath)
                .with_detail("is a part of the session itself"));
        }
        self.check_rules(part, &within, Act::Read).map(|()| (part, within))
    }

    /// The config's rules are about the workspace.
    fn check_rules(&self, part: Part, path: &GuestPath, act: Act) -> Result<()> {
        match part {
            Part::Workspace => self.config().rules().check(path, act),
            Part::Inbox | Part::Outbox | Part::Guest => Ok(()),
        }
    }

    /// Moves a sibling of a database to `host/state/quarantine` and returns its name there. A link is moved, not
    /// followed.
    ///
    /// This keeps evidence. It does not make the database safe to open in place, since the guest can plant the next one at
    /// once, and SQLite then deletes the host file that it names: never open it in place, use [`read_db`](Self::read_db).
    ///
    /// Where it cannot be moved, say because the host's side is on another mount, it is unlinked and the name is `None`.
    ///
    /// A journal that the guest itself left when it was killed in the middle of a transaction is hot as well. Without
    /// it the database holds half of that transaction, so prefer to let the guest recover its own files.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`NotRegular`](ErrorKind::NotRegular) if it is a directory on another mount,
    /// [`Denied`](ErrorKind::Denied) also for a sibling that the config's [read-only paths](crate::SessionsConfig::with_read_only) and
    /// patterns do not let the host's calls remove, and as [`verify_db`](Self::verify_db).
    ///
    /// # Races
    /// What is at the name at that moment is moved.
    pub fn quarantine_sibling<'p>(
        &self,
        database: impl Into<Spelled<'p>>,
        sibling: Sibling,
    ) -> Result<Option<PathBuf>> {
        let (part, database) = self.database(database)?;
        let path = GuestPath::new(sibling.path(database.as_path()))?;
        self.check_rules(part, &path, Act::Replace)?;
        let (guest, path) = self.at(part, path)?;
        let shelf = Path::new(STATE).join(QUARANTINE);
        self.host().ensure_dir(&shelf)?;
        let name = shelf.join(format!("{}{}", SessionId::generate()?, sibling.suffix()));
        match guest.rename_to(&path, self.host(), &name) {
            Ok(()) => Ok(Some(name)),
            Err(error) => match error.kind() {
                ErrorKind::CrossDevice | ErrorKind::Denied | ErrorKind::Unsupported => {
                    guest.remove_file(path).map(|()| None)
                }
                _ => Err(error),
            },
        }
    }

    /// Copies a database, without its siblings, to the host's side and returns where it is beneath
    /// [`host`](Self::host). What the guest does from then on does not matter to the copy.
    ///
    /// Never open the file itself in place: SQLite plays back the journal that a guest has planted beside it, and deletes the host file
    /// that it names. Where SQLite can take an image in memory, use [`read_db`](Self::read_db), which also knows of the guest's
    /// transactions. Where a file is needed, this is the way: the copy is in a directory of the host's alone, under a
    /// fresh name, with no journal beside it that SQLite could play back. What the guest had only in a journal or log is
    /// not in it, and its content is as untrusted as before.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge), [`InvalidPath`](ErrorKind::InvalidPath) and [`Denied`](ErrorKind::Denied) as
    /// [`verify_db`](Self::verify_db), and those of [`Root::open_contained`].
    ///
    /// # Races
    /// A guest that writes meanwhile can make the copy inconsistent: check its integrity before use.
    pub fn copy_db<'p>(&self, path: impl Into<Spelled<'p>>, max_bytes: u64) -> Result<PathBuf> {
        const OPERATION: &str = "copy database";
        let (root, path) = match self.database(path)? {
            (Part::Workspace, path) => self.at_to_read(&path)?,
            (part, path) => {
                let (root, path) = self.at(part, path)?;
                (Held::Session(root), GuestPath::new(path)?)
            }
        };
        let mut file = LimitedFile::new(OPERATION, root.open_contained(&path)?, &path, max_bytes)?;
        let name = Path::new(STAGING).join(format!("{}.db", SessionId::generate()?));
        let mut copy = self.host().new_file(&name)?;
        std::io::copy(&mut file, &mut copy).map_err(|error| Error::from_io(OPERATION, path, error))?;
        copy.commit()?;
        Ok(name)
    }

    /// Removes what [`copy_db`](Self::copy_db) and [`quarantine_sibling`](Self::quarantine_sibling) have put on the host's
    /// side and nobody has changed for `older_than`.
    ///
    /// Nothing else removes them while the session lasts. A copy that is only read looks unused: let `older_than` be longer than
    /// any copy is in use.
    ///
    /// # Errors
    /// The kinds of every resolution. What could not be removed is in [`Swept`].
    ///
    /// # Races
    /// A guest that holds a quarantined file open can keep it young by writing to it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use std::time::Duration;
    ///
    /// session.workspace().write_exclusive("out.db", "SQLite format 3\0")?;
    /// session.copy_db("out.db", 1 << 20)?;
    /// assert_eq!(session.sweep(Duration::from_secs(3600))?.kept, 1);
    /// assert_eq!(session.sweep(Duration::ZERO)?.removed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep(&self, older_than: Duration) -> Result<Swept> {
        let mut sweep = Sweep::new(self, older_than)?;
        for shelf in [PathBuf::from(STAGING), Path::new(STATE).join(QUARANTINE)] {
            sweep.host_directory(&shelf)?;
        }
        Ok(sweep.finish())
    }
}

/// What is at a name.
enum Inspected {
    Missing,
    Faulty(DbFault),
    /// A regular file with one name, and how it begins.
    Plain(Box<Metadata>, Vec<u8>),
}

fn inspect(root: &Root, path: &Path, owner: Option<u32>) -> Result<Inspected> {
    use std::io::Read as _;
    let file = match root.open_contained(path) {
        Ok(file) => file,
        Err(error) => match error.kind() {
            ErrorKind::NotFound => return Ok(Inspected::Missing),
            ErrorKind::Symlink | ErrorKind::NotRegular | ErrorKind::HardLinked => {
                return Ok(Inspected::Faulty(DbFault::Refused(error)));
            }
            _ => return Err(error),
        },
    };
    let metadata = file.metadata().clone();
    if owner.is_some_and(|uid| uid != metadata.uid()) {
        return Ok(Inspected::Faulty(DbFault::ForeignOwner(metadata.uid())));
    }
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64)
        .read_to_end(&mut start)
        .map_err(|error| Error::new(OPERATION, path, ErrorKind::Io).with_source(error))?;
    Ok(Inspected::Plain(Box::new(metadata), start))
}

/// SQLite plays back a journal whose first byte is not zero, whatever the rest of its header is, and a log that holds
/// anything. The index alone changes nothing.
fn is_hot(sibling: Sibling, file: &Metadata, start: &[u8]) -> bool {
    match sibling {
        Sibling::Journal => start.first().is_some_and(|first| *first != 0),
        Sibling::Wal => !file.is_empty(),
        Sibling::Shm => false,
    }
}

/// By the magic number of the file system that the guest's directory is on.
fn wal_safety(root: &Root) -> WalSafety {
    // It is 32 bits long, whatever the type of the field.
    match fstatfs(root.as_fd()).map(|fs| fs.f_type as u32) {
        Ok(
            0xef53 // ext2, ext3, ext4
            | 0x5846_5342 // XFS
            | 0x9123_683e // btrfs
            | 0x0102_1994 // tmpfs
            | 0xf2f5_2010 // F2FS
            | 0x2fc1_2fc1 // ZFS
            | 0xca45_1a4e // bcachefs
            | 0x794c_7630, // overlayfs
        ) => WalSafety::Safe,
        Ok(
            0x6969 // NFS
            | 0x0102_1997 // 9p
            | 0x6573_5546 // FUSE, virtiofs
            | 0xff53_4d42 // CIFS
            | 0xfe53_4d42 // SMB2
            | 0x517b // SMB
            | 0x00c3_6400 // Ceph
            | 0x5346_414f // AFS
            | 0x7375_7245 // Coda
            | 0x786f_4256 // VirtualBox shared folders
            | 0xbacb_acbc, // VMware shared folders
        ) => WalSafety::Unsafe,
        _ => WalSafety::Unknown,
    }
}
