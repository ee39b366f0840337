//! A database of the guest's, in memory.
//!
//! Problem: the schema of a database is a program. Views, triggers, generated columns and checks run when somebody reads; pages may
//! lead in circles; a value may claim to be of any size, and a table to be something else.
//!
//! Defence: the bytes are given to SQLite as an image, read-only, without a path. Before anything else is read, limits and a deadline
//! are set, and whatever the guest could have run is off. Then the schema is read as data: only ordinary tables and their
//! indices are allowed, and no generated columns; then the pages are checked. A statement may read the guest's tables and call
//! three functions, and nothing else. No index of the guest's is used for a scan. SQLite loads the statistics of `ANALYZE` with the
//! schema, before anybody can ask what it has, and makes room for as many samples as there are rows, times the columns of an index:
//! so that loading the schema is limited in steps, and a schema that needs more is refused.
//!
//! What remains: what is in the tables is the guest's.

use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, MAIN_DB, Params, Row};

use super::sqlite::failed;
use crate::error::{Error, ErrorKind, Result};

/// How long a value may be that is loaded, unless the config allows more content.
const LENGTH: i32 = 8 << 20;

/// What is set before the schema is read.
const LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 64 << 10),
    (Limit::SQLITE_LIMIT_COLUMN, 64),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 32),
    (Limit::SQLITE_LIMIT_PARSER_DEPTH, 64),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 4),
    (Limit::SQLITE_LIMIT_VDBE_OP, 250_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 8),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    // A single pattern can take for ever, in one call that no deadline interrupts.
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 8),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 16),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_TRIGGER_STEPS, 1),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    (Limit::SQLITE_LIMIT_SCHEMA, 64),
];

const SETTINGS: &[(DbConfig, bool)] = &[
    (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
    (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
    (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_CREATE, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_WRITE, false),
];

/// Checks of the guest's would run in `quick_check`, and nothing is to be put into a file.
const PRAGMAS: &str = "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA ignore_check_constraints = ON; \
                       PRAGMA temp_store = MEMORY; PRAGMA cache_size = -1024; PRAGMA query_only = ON;";

/// How many steps of SQLite's machine there are between two looks at the clock.
const STEPS: i32 = 1000;

/// How many such looks the schema is loaded in. The samples that SQLite itself takes, 24 for an index, need no more.
const SCHEMA_LOOKS: u32 = 32;

/// How long reading may take, and how much there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) rows: u64,
    pub(super) content_bytes: u64,
}

/// How long reading may take at the very most.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A database that can be read.
pub(super) struct Image {
    connection: Connection,
    tables: Vec<String>,
    deadline: Instant,
    rows: u64,
    operation: &'static str,
    subject: String,
}

impl Image {
    /// Opens the bytes of a database.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) if it is damaged, or has more than a mailbox's tables; [`TooMany`](ErrorKind::TooMany) if reading it
    /// takes too long.
    pub(super) fn open(operation: &'static str, subject: &str, bytes: &[u8], limits: Limits) -> Result<Self> {
        let deadline = Instant::now() + limits.time.min(LONGEST);
        let connection = prepared(bytes, deadline, limits.content_bytes)
            .map_err(|error| of_guest(operation, subject, &error))?;
        let mut image = Self {
            connection,
            tables: Vec::new(),
            deadline,
            rows: limits.rows,
            operation,
            subject: subject.to_owned(),
        };
        if !bytes.is_empty() {
            image.check()?;
        }
        Ok(image)
    }

    /// Whether there is such a table.
    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.iter().any(|name| name.eq_ignore_ascii_case(table))
    }

    /// Whether there is any table.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Runs `each` on every row.
    pub(super) fn for_each<E: From<Error>>(
        &self,
        sql: &str,
        mut each: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut statement = self.connection.prepare(sql).map_err(|error| self.fault(&error))?;
        let mut rows = statement.query(()).map_err(|error| self.fault(&error))?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(|error| self.fault(&error))? {
            count += 1;
            if count > self.rows {
                return Err(self.refuse(ErrorKind::TooMany, "has too many rows").into());
            }
            // What is done with a row counts as well.
            if Instant::now() >= self.deadline {
                return Err(self.late().into());
            }
            each(row)?;
        }
        Ok(())
    }

    /// What `read` makes of the first row, if there is one.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let row = || {
            let mut statement = self.connection.prepare(sql)?;
            let mut rows = statement.query(params)?;
            rows.next()?.map(read).transpose()
        };
        row().map_err(|error| self.fault(&error))
    }

    fn check(&mut self) -> Result<()> {
        let mut tables = Vec::new();
        self.for_each("SELECT type, name, rootpage, sql FROM sqlite_schema", |row| match Object::of(row) {
            Ok(Object::Table(name)) => {
                tables.push(name);
                Ok(())
            }
            Ok(Object::Index) => Ok(()),
            Ok(Object::Other) => Err(self.refuse(ErrorKind::InvalidData, "has more than tables and indices")),
            Err(error) => Err(self.fault(&error)),
        })?;
        for table in &tables {
            self.check_columns(table)?;
        }
        let sound = self.first("PRAGMA main.quick_check(1)", (), |row| row.get::<_, String>(0))?;
        if sound.as_deref() != Some("ok") {
            return Err(self.refuse(ErrorKind::InvalidData, "is damaged"));
        }
        self.tables = tables;
        Ok(())
    }

    fn check_columns(&self, table: &str) -> Result<()> {
        let (mut columns, mut generated) = (0, false);
        let look = |row: &Row<'_>| {
            columns += 1;
            generated |= row.get::<_, i64>(6)? != 0;
            Ok(())
        };
        match self.connection.pragma(Some("main"), "table_xinfo", table, look) {
            // The text of a table may name another one than its row does.
            Ok(()) if columns == 0 => Err(self.refuse(ErrorKind::InvalidData, "has a table of another name")),
            Ok(()) if generated => Err(self.refuse(ErrorKind::InvalidData, "has generated columns")),
            Ok(()) => Ok(()),
            Err(error) => Err(self.fault(&error)),
        }
    }

    fn fault(&self, error: &rusqlite::Error) -> Error {
        of_guest(self.operation, &self.subject, error)
    }

    pub(super) fn refuse(&self, kind: ErrorKind, why: &'static str) -> Error {
        Error::new(self.operation, &self.subject, kind).with_detail(why)
    }

    fn late(&self) -> Error {
        self.refuse(ErrorKind::TooMany, LATE)
    }
}

const LATE: &str = "takes too long to read";

/// What a row of the schema describes.
enum Object {
    Table(String),
    Index,
    Other,
}

impl Object {
    /// What SQLite makes of a row follows from its text, whatever its type says.
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        let text: Option<String> = row.get(3)?;
        let begins = |with: &str| {
            let start = text.as_ref().and_then(|text| text.get(..with.len()));
            start.is_some_and(|start| start.eq_ignore_ascii_case(with))
        };
        // Views, triggers and virtual tables have no pages.
        let has_pages = row.get::<_, i64>(2)? > 1;
        Ok(match kind.as_str() {
            "table" if has_pages && begins("CREATE TABLE ") => Self::Table(name),
            "index"
                if has_pages
                    && (text.is_none() || begins("CREATE INDEX ") || begins("CREATE UNIQUE INDEX ")) =>
            {
                Self::Index
            }
            _ => Self::Other,
        })
    }
}

/// A connection to the image in which nothing has been read yet.
fn prepared(bytes: &[u8], deadline: Instant, content_bytes: u64) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    if !bytes.is_empty() {
        connection.deserialize_read_exact(MAIN_DB, bytes, bytes.len(), true)?;
    }
    for (limit, most) in LIMITS {
        connection.set_limit(*limit, *most)?;
    }
    // A message that the config allows can be loaded.
    let length = i32::try_from(content_bytes).unwrap_or(i32::MAX).max(LENGTH);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, length)?;
    for (setting, value) in SETTINGS {
        connection.set_db_config(*setting, *value)?;
    }
    let mut looks = 0;
    let is_enough = move || {
        looks += 1;
        looks > SCHEMA_LOOKS || Instant::now() >= deadline
    };
    connection.progress_handler(STEPS, Some(is_enough))?;
    connection.execute_batch(PRAGMAS)?;
    connection.authorizer(Some(may))?;
    // Loads the schema, unless a pragma has.
    connection.prepare("SELECT name FROM sqlite_schema")?;
    connection.progress_handler(STEPS, Some(move || Instant::now() >= deadline))?;
    Ok(connection)
}

/// What a statement may do.
fn may(asked: AuthContext<'_>) -> Authorization {
    match asked.action {
        // A view or a trigger asks.
        _ if asked.accessor.is_some() => Authorization::Deny,
        AuthAction::Select | AuthAction::Read { .. } => Authorization::Allow,
        AuthAction::Function { function_name: "typeof" | "octet_length" | "coalesce" } => {
            Authorization::Allow
        }
        AuthAction::Pragma { pragma_name: "quick_check" | "table_xinfo", .. } => Authorization::Allow,
        _ => Authorization::Deny,
    }
}

/// The error for what a guest's database does to SQLite: it is the guest's fault, unless memory is short.
fn of_guest(operation: &'static str, subject: &str, error: &rusqlite::Error) -> Error {
    let refused = failed(operation, subject, error);
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => refused.with_kind(ErrorKind::TooMany).with_detail(LATE),
        Some(ErrorCode::OutOfMemory | ErrorCode::TooBig) => refused,
        _ => refused.with_kind(ErrorKind::InvalidData),
    }
}
