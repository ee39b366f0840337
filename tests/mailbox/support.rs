//! A session with a mailbox, and its guest.

use std::fs;
use std::path::{Path, PathBuf};

use beneath::mailbox::{Delivered, Mailbox, MailboxConfig, Outbound, Standing, Taken};
use beneath::{
    Error, ErrorKind, MountPoint, Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority,
};
use rusqlite::Connection;

pub(crate) struct Stage {
    dir: tempfile::TempDir,
    pub(crate) sessions: Sessions,
    pub(crate) session: Session,
    pub(crate) mailbox: Mailbox,
}

pub(crate) fn sharing() -> SessionsConfig {
    SessionsConfig::default().with_share(MountPoint::new("/share").unwrap())
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with_config(MailboxConfig::default())
    }

    pub(crate) fn with_config(config: MailboxConfig) -> Self {
        let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
        fs::create_dir(dir.path().join("sessions")).unwrap();
        let root = Root::open_ambient(dir.path().join("sessions"), ambient_authority()).unwrap();
        let sessions = Sessions::new(root, sharing());
        let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
        let mailbox = Mailbox::open_with(&session, config).unwrap();
        Self { dir, sessions, session, mailbox }
    }

    /// What a host does that takes over.
    pub(crate) fn reopen(&mut self) {
        let config = self.mailbox.config().clone();
        self.mailbox = Mailbox::open_with(&self.session, config).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn guest(&self, path: &str) -> PathBuf {
        self.dir.path().join("sessions/s/guest").join(path)
    }

    pub(crate) fn share(&self, path: &str) -> PathBuf {
        self.dir.path().join("sessions/s/share").join(path)
    }

    /// The guest's own SQLite, on its own database.
    pub(crate) fn outbound(&self) -> Connection {
        Connection::open(self.guest("outbound.db")).unwrap()
    }

    /// What the guest sees of what the host has written.
    pub(crate) fn inbound(&self) -> Connection {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        Connection::open_with_flags(self.share("inbound.db"), flags).unwrap()
    }

    /// The guest sends.
    pub(crate) fn send(&self, seq: i64, id: &str, content: &str) {
        let sql = "INSERT INTO messages_out (id, seq, kind, content) VALUES (?1, ?2, 'chat', ?3)";
        self.outbound().execute(sql, (id, seq, content)).unwrap();
    }

    /// The guest says what it does with a message.
    pub(crate) fn ack(&self, id: &str, status: &str, changed: i64) {
        let sql = "INSERT OR REPLACE INTO acks (id, status, changed) VALUES (?1, ?2, ?3)";
        self.outbound().execute(sql, (id, status, changed)).unwrap();
    }

    pub(crate) fn take(&self) -> Taken {
        self.take_up_to(100)
    }

    pub(crate) fn take_up_to(&self, max: usize) -> Taken {
        let lock = self.session.try_lock().unwrap();
        self.mailbox.take(&lock, max).unwrap()
    }

    pub(crate) fn mark(&self, message: &Outbound, outcome: Delivered) -> Standing {
        self.mailbox.mark(message, outcome).unwrap()
    }

    /// Replaces the guest's database by one that a script makes.
    pub(crate) fn plant(&self, script: &str) {
        self.plant_bytes(&database(script));
    }

    pub(crate) fn plant_bytes(&self, bytes: &[u8]) {
        // In place, as a guest that writes: the inode is the same.
        fs::write(self.guest("outbound.db"), bytes).unwrap();
    }
}

/// The bytes of a database that a script makes.
pub(crate) fn database(script: &str) -> Vec<u8> {
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    let path = dir.path().join("made.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA recursive_triggers = OFF").unwrap();
    connection.execute_batch(script).unwrap();
    drop(connection);
    fs::read(&path).unwrap()
}

pub(crate) fn ids(taken: &Taken) -> Vec<&str> {
    taken.messages.iter().map(|message| message.raw_id.as_str()).collect()
}

pub(crate) fn contents(taken: &Taken) -> Vec<&str> {
    taken.messages.iter().map(|message| message.content.as_str()).collect()
}

/// What was refused, and why.
pub(crate) fn refused<'a>(refused: impl Iterator<Item = (&'a Path, &'a Error)>) -> Vec<(String, ErrorKind)> {
    refused.map(|(subject, error)| (subject.display().to_string(), error.kind())).collect()
}

/// One number from the guest's eye.
pub(crate) fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, (), |row| row.get(0)).unwrap()
}

pub(crate) fn texts(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// What this thread has used of the processor, so that a busy machine is not mistaken for a slow call.
pub(crate) fn cpu_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
