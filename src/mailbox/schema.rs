//! The tables, and how a database of an earlier version becomes one of this.
//!
//! Problem: databases outlive the program that made them, and a host may die while it changes one.
//!
//! Defence: a database has the number of its version. Each step to the next version is one transaction, with the number in it, so
//! that a database is of one version or of the other. A database of a later version is not touched.
//!
//! What remains: there is no way back to an earlier version.

use rusqlite::Connection;

use super::sqlite::{failed, in_transaction};
use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "open mailbox";

/// Says that a database is a mailbox's: `mail`.
const APPLICATION: i64 = 0x6d61_696c;

/// The tables of `outbound.db`, which the guest writes. It may be run again at any time.
///
/// Times are milliseconds since 1970. `seq` is odd, positive, at most [`Seq::GUEST_MAX`](super::Seq::GUEST_MAX), and larger than any
/// before it and than any `seq` of `messages_in`. The status of an ack is `processing`, `completed` or `failed`. `activity` has what the
/// guest is doing, and for how long (milliseconds) it may take.
pub const OUTBOUND_SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS messages_out (
    id TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    content TEXT NOT NULL,
    in_reply_to TEXT,
    channel TEXT,
    platform TEXT,
    thread TEXT,
    deliver_after INTEGER
);
CREATE TABLE IF NOT EXISTS acks (
    id TEXT NOT NULL PRIMARY KEY,
    status TEXT NOT NULL,
    changed INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS activity (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    tool TEXT,
    timeout INTEGER
);
";

/// A kind of database, as the steps from each version to the next.
pub(super) struct Schema {
    subject: &'static str,
    steps: &'static [&'static str],
}

/// What the host gives to the guest.
pub(super) const INBOUND_SCHEMA: Schema = Schema {
    subject: super::sqlite::INBOUND,
    steps: &[
        "CREATE TABLE messages_in (
             seq INTEGER PRIMARY KEY,
             id TEXT NOT NULL UNIQUE,
             kind TEXT NOT NULL,
             content TEXT NOT NULL,
             channel TEXT,
             platform TEXT,
             thread TEXT,
             created INTEGER NOT NULL,
             status TEXT NOT NULL DEFAULT 'pending'
         );
         CREATE TABLE files_in (
             seq INTEGER NOT NULL,
             position INTEGER NOT NULL,
             name TEXT,
             path TEXT,
             bytes INTEGER,
             refused TEXT,
             PRIMARY KEY (seq, position)
         ) WITHOUT ROWID;
         CREATE TABLE routing (
             only INTEGER PRIMARY KEY CHECK (only = 1), channel TEXT, platform TEXT, thread TEXT
         );",
        // Tries of a message, and what became of the guest's own.
        "ALTER TABLE messages_in ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE messages_in ADD COLUMN not_before INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE messages_in ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
         UPDATE messages_in SET changed = created;
         CREATE TABLE delivered (id TEXT NOT NULL PRIMARY KEY, outcome TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;",
    ],
};

/// What the host must remember.
pub(super) const MAIL_SCHEMA: Schema = Schema {
    subject: super::sqlite::MAIL,
    steps: &["CREATE TABLE marks (
             key TEXT NOT NULL PRIMARY KEY,
             raw TEXT,
             seq INTEGER NOT NULL,
             state TEXT NOT NULL,
             tries INTEGER NOT NULL,
             not_before INTEGER NOT NULL,
             changed INTEGER NOT NULL
         ) WITHOUT ROWID;
         CREATE TABLE posted (
             seq INTEGER PRIMARY KEY,
             id TEXT NOT NULL UNIQUE,
             kind TEXT NOT NULL,
             content TEXT NOT NULL,
             channel TEXT,
             platform TEXT,
             thread TEXT
         );
         CREATE TABLE routing (
             only INTEGER PRIMARY KEY CHECK (only = 1), channel TEXT, platform TEXT, thread TEXT
         );
         CREATE TABLE state (name TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID;"],
};

impl Schema {
    /// Makes the tables, or what they lack.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the database is of a later version, [`InvalidData`](ErrorKind::InvalidData) if it is
    /// something else.
    pub(super) fn migrate(&self, connection: &Connection) -> Result<()> {
        let refuse = |kind, why| Err(Error::new(OPERATION, self.subject, kind).with_detail(why));
        let latest = self.steps.len();
        match self.version(connection)? {
            Some(version) if version == latest => return Ok(()),
            Some(version) if version > latest => {
                return refuse(ErrorKind::Unsupported, "is of a later version");
            }
            Some(_) => {}
            None => return refuse(ErrorKind::InvalidData, "is not a database of a mailbox"),
        }
        // Whatever an earlier program left the file in; a log could not be read by the guest.
        let mode = connection.query_row("PRAGMA journal_mode = DELETE", (), |row| row.get::<_, String>(0));
        mode.map_err(|error| self.failed(&error))?;
        for _ in 0..latest {
            in_transaction(connection, |connection| self.step(connection))
                .map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// One step, unless another host has done the last meanwhile.
    fn step(&self, connection: &Connection) -> rusqlite::Result<()> {
        let version = pragma(connection, "user_version")?;
        let Some(sql) = usize::try_from(version).ok().and_then(|version| self.steps.get(version)) else {
            return Ok(());
        };
        connection.execute_batch(sql)?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", version + 1)
    }

    /// The version; none if it is no database of a mailbox. A database without tables is of version 0.
    fn version(&self, connection: &Connection) -> Result<Option<usize>> {
        let read = || {
            let tables: i64 =
                connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
            let (application, version) =
                (pragma(connection, "application_id")?, pragma(connection, "user_version")?);
            Ok(match (application, tables) {
                (0, 0) if version == 0 => Some(0),
                (APPLICATION, _) => usize::try_from(version).ok(),
                _ => None,
            })
        };
        read().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &rusqlite::Error) -> Error {
        failed(OPERATION, self.subject, error)
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(connection: &Connection, sql: &str) -> Vec<(i64, i64)> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_database_of_an_earlier_version_gets_what_it_lacks_once() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(INBOUND_SCHEMA.steps[0]).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        let sql =
            "INSERT INTO messages_in (seq, id, kind, content, created) VALUES (2, 'a', 'chat', 'x', 77)";
        connection.execute_batch(sql).unwrap();
        for _ in 0..2 {
            INBOUND_SCHEMA.migrate(&connection).unwrap();
            assert_eq!(rows(&connection, "SELECT tries, changed FROM messages_in"), [(0, 77)]);
            assert_eq!(pragma(&connection, "user_version").unwrap(), 2);
        }
    }

    #[test]
    fn every_version_leads_to_the_same_tables() {
        for schema in [INBOUND_SCHEMA, MAIL_SCHEMA] {
            let whole = Connection::open_in_memory().unwrap();
            schema.migrate(&whole).unwrap();
            let names = |connection: &Connection| {
                let sql = "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema ORDER BY name)";
                connection.query_row(sql, (), |row| row.get::<_, String>(0)).unwrap()
            };
            for version in 1..=schema.steps.len() {
                let partly = Connection::open_in_memory().unwrap();
                for _ in 0..version {
                    schema.step(&partly).unwrap();
                }
                schema.migrate(&partly).unwrap();
                assert_eq!(names(&partly), names(&whole));
            }
        }
    }

    #[test]
    fn what_is_later_or_something_else_is_left_alone() {
        let later = Connection::open_in_memory().unwrap();
        INBOUND_SCHEMA.migrate(&later).unwrap();
        later.pragma_update(None, "user_version", 3).unwrap();
        assert_eq!(INBOUND_SCHEMA.migrate(&later).unwrap_err().kind(), ErrorKind::Unsupported);

        let foreign = Connection::open_in_memory().unwrap();
        foreign.execute_batch("CREATE TABLE t(x)").unwrap();
        assert_eq!(MAIL_SCHEMA.migrate(&foreign).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(pragma(&foreign, "application_id").unwrap(), 0);
    }
}
