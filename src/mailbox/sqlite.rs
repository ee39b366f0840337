//! SQLite for databases of the host's own, and what its errors mean.
//!
//! Problem: SQLite opens by path, makes files beside it, and puts the path into its messages.
//!
//! Defence: only files in directories that no guest can change are opened, never through a link, and never to be made: the file
//! is there already, with the mode that it is to have. An error has a kind and SQLite's own words for the code, and neither a path
//! nor a text from a database.
//!
//! What remains: whoever can rename the directories above can lead the path elsewhere; that is the host alone.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use crate::error::{Error, ErrorKind, Result};
use crate::root::{Durability, Root};

/// In the share.
pub(super) const INBOUND: &str = "inbound.db";
/// On the host's side.
pub(super) const MAIL: &str = "state/mail.db";

/// The error of this crate for one of SQLite's.
pub(super) fn failed(operation: &'static str, subject: impl AsRef<Path>, error: &rusqlite::Error) -> Error {
    let Some(failure) = error.sqlite_error() else {
        // A value of another type than the schema says.
        return Error::new(operation, subject, ErrorKind::InvalidData);
    };
    let kind = match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => ErrorKind::Busy,
        ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::SchemaChanged
        | ErrorCode::TypeMismatch => ErrorKind::InvalidData,
        ErrorCode::DiskFull => ErrorKind::NoSpace,
        ErrorCode::ReadOnly => ErrorKind::ReadOnly,
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => ErrorKind::Denied,
        ErrorCode::TooBig => ErrorKind::TooLarge,
        ErrorCode::OutOfMemory => ErrorKind::TooMany,
        _ => ErrorKind::Io,
    };
    Error::new(operation, subject, kind).with_detail(ffi::code_to_str(failure.extended_code))
}

/// Makes an empty file for a database, if there is none.
pub(super) fn ensure_file(root: &Root, path: &Path) -> Result<()> {
    match root.write_exclusive(path, "") {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Opens a database of the host's own, which exists. It waits for others no longer than `busy`.
pub(super) fn open(
    path: &Path,
    subject: &'static str,
    busy: Duration,
    durability: Durability,
) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let opened = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(busy)?;
        if durability == Durability::Full {
            // Also the removal of the journal is durable, which is what ends a transaction.
            connection.execute_batch("PRAGMA synchronous = EXTRA")?;
        }
        Ok(connection)
    };
    opened().map_err(|error| failed("open database", subject, &error))
}

/// Runs `work` in one transaction, that has the right to write from its beginning. What fails changes nothing.
pub(super) fn in_transaction<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done = work(connection).and_then(|done| connection.execute_batch("COMMIT").map(|()| done));
    if done.is_err() && !connection.is_autocommit() {
        // What cannot be rolled back now is by whoever opens the database next.
        let _ = connection.execute_batch("ROLLBACK");
    }
    done
}

/// Runs `work` in one transaction that only reads.
pub(super) fn in_snapshot<T, E>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, E>,
) -> Result<T, E>
where
    E: From<rusqlite::Error>,
{
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    connection.execute_batch("BEGIN")?;
    let done = work(connection);
    connection.execute_batch("COMMIT")?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_has_a_path_or_a_text_from_a_database() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing.db");
        let error = open(&path, "x.db", Duration::ZERO, Durability::None).unwrap_err();
        assert!(!error.to_string().contains("missing"), "{error}");
        assert!(std::error::Error::source(&error).is_none());

        std::fs::write(&path, [b'x'; 4096]).unwrap();
        let error = open(&path, "x.db", Duration::ZERO, Durability::Full).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(error.to_string(), r#"open database "x.db": file is not a database"#);
        let connection = Connection::open_in_memory().unwrap();
        let error = failed("read", "x.db", &connection.execute_batch("SELECT * FROM secret").unwrap_err());
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn a_link_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::write(dir.join("real.db"), "").unwrap();
        std::os::unix::fs::symlink("real.db", dir.join("link.db")).unwrap();
        assert!(open(&dir.join("real.db"), "x", Duration::ZERO, Durability::None).is_ok());
        assert!(open(&dir.join("link.db"), "x", Duration::ZERO, Durability::None).is_err());
    }
}
