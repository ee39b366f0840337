//! The schema of a guest's database is a program, and none of it runs.

use std::time::Duration;

use beneath::ErrorKind;
use beneath_kit::child;
use rusqlite::Connection;

use crate::support::{Stage, cpu_time, database, ids, refused};

/// How long reading may take, by the config's default, and what the clock's steps may add.
const MOST_TIME: Duration = Duration::from_millis(1200);
/// How much memory it may take.
const MOST_MEMORY: u64 = 32 << 20;

const GOOD: &str = "CREATE TABLE messages_out (id TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL UNIQUE, kind TEXT NOT NULL, \
    content TEXT NOT NULL, in_reply_to TEXT, channel TEXT, platform TEXT, thread TEXT, deliver_after INTEGER);
    INSERT INTO messages_out (id, seq, kind, content) VALUES ('a', 1, 'chat', 'x');";
const COLUMNS: &str = "id, seq, kind, content, in_reply_to, channel, platform, thread, deliver_after";
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
const VALUES: &str = "'a' AS id, 1 AS seq, 'chat' AS kind, 'x' AS content, NULL AS in_reply_to, NULL AS channel, \
    NULL AS platform, NULL AS thread, NULL AS deliver_after";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// The one message is read.
    Read,
    Refused(ErrorKind),
}

/// A script that makes a database, and what comes of it.
fn corpus() -> Vec<(&'static str, String, Expected)> {
    let invalid = Expected::Refused(ErrorKind::InvalidData);
    let many = Expected::Refused(ErrorKind::TooMany);
    let schema =
        |change: &str| format!("PRAGMA writable_schema = ON; {change}; PRAGMA writable_schema = OFF;");
    let count = |count: usize, what: &dyn Fn(usize) -> String| (0..count).map(what).collect::<String>();
    vec![
        ("good", GOOD.to_owned(), Expected::Read),
        ("with other tables and indices", format!("{GOOD} CREATE TABLE t(x, y); CREATE INDEX i ON t(x); INSERT INTO t VALUES (1, 2);"), Expected::Read),
        ("strict", GOOD.replace(");\n", ") STRICT;\n"), Expected::Read),
        ("without rowid", GOOD.replace(");\n", ") WITHOUT ROWID;\n"), Expected::Read),
        ("UTF-16", format!("PRAGMA encoding = 'UTF-16le'; {GOOD}"), Expected::Read),
        ("small pages", format!("PRAGMA page_size = 512; {GOOD}"), Expected::Read),
        ("large pages", format!("PRAGMA page_size = 65536; {GOOD}"), Expected::Read),
        ("analyzed", format!("{GOOD} ANALYZE;"), Expected::Read),
        (
            "statistics of many samples",
            format!(
                "PRAGMA page_size = 65536; {GOOD} CREATE TABLE t ({} x); CREATE INDEX i ON t ({} x); INSERT INTO t(x) VALUES (1); ANALYZE;
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) INSERT INTO sqlite_stat4 SELECT 't', 'i', '1', '0', '0', x'' FROM n;",
                count(60, &|n| format!("c{n}, ")),
                count(60, &|n| format!("c{n}, "))
            ),
            Expected::Read,
        ),
        (
            "statistics of large samples",
            format!(
                "PRAGMA page_size = 65536; {GOOD} CREATE TABLE t ({} x); CREATE INDEX i ON t ({} x); INSERT INTO t(x) VALUES (1); ANALYZE;
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) INSERT INTO sqlite_stat4 SELECT 't', 'i', '1', '0', '0', zeroblob(8000) FROM n;",
                count(60, &|n| format!("c{n}, ")),
                count(60, &|n| format!("c{n}, "))
            ),
            Expected::Read,
        ),
        ("auto vacuum", format!("PRAGMA auto_vacuum = FULL; {GOOD} CREATE TABLE t(x); INSERT INTO t VALUES (zeroblob(50000)); DELETE FROM t;"), Expected::Read),
        ("a view as the table", format!("CREATE VIEW messages_out AS SELECT {VALUES};"), invalid),
        ("an endless view as the table", format!("CREATE VIEW messages_out AS {ENDLESS} SELECT {VALUES} FROM n WHERE i < 0;"), invalid),
        ("a view beside the table", format!("{GOOD} CREATE VIEW v AS SELECT 1;"), invalid),
        ("a trigger", format!("{GOOD} CREATE TRIGGER t AFTER INSERT ON messages_out BEGIN DELETE FROM messages_out; END;"), invalid),
        ("a virtual table as the table", format!("CREATE VIRTUAL TABLE messages_out USING fts5({COLUMNS});"), invalid),
        ("an rtree", format!("{GOOD} CREATE VIRTUAL TABLE r USING rtree(i, a, b);"), invalid),
        (
            "a generated column",
            GOOD.replace("deliver_after INTEGER", "deliver_after INTEGER, g AS (hex(zeroblob(1000000)))"),
            invalid,
        ),
        (
            "a generated column that must not be null",
            GOOD.replace("deliver_after INTEGER", "deliver_after INTEGER, g AS (length(hex(zeroblob(3000000)))) VIRTUAL NOT NULL"),
            invalid,
        ),
        (
            "a generated column of another table",
            format!("{GOOD} CREATE TABLE t (x, g AS (hex(zeroblob(3000000))) VIRTUAL NOT NULL); INSERT INTO t(x) VALUES (1);"),
            invalid,
        ),
        ("a stored column", GOOD.replace("deliver_after INTEGER", "deliver_after INTEGER, g AS (seq) STORED"), invalid),
        (
            "a check that takes long",
            format!(
                "PRAGMA ignore_check_constraints = ON; {} WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
                 INSERT INTO t SELECT i FROM n;",
                format_args!("{GOOD} CREATE TABLE t(x CHECK (length(hex(randomblob(2000000))) > 1));")
            ),
            Expected::Read,
        ),
        (
            "a check with a pattern that takes for ever",
            format!(
                "PRAGMA ignore_check_constraints = ON; {GOOD} CREATE TABLE t(x CHECK (x LIKE '{}b')); INSERT INTO t VALUES ('{}');",
                "%a".repeat(20),
                "a".repeat(10_000)
            ),
            Expected::Read,
        ),
        (
            "an index over a function",
            format!("{GOOD} CREATE INDEX i ON messages_out(hex(content || zeroblob(100000)));"),
            Expected::Read,
        ),
        ("an index with a condition", format!("{GOOD} CREATE INDEX i ON messages_out(seq) WHERE seq > 5;"), Expected::Read),
        ("an unknown collation", schema(&format!("{GOOD} UPDATE sqlite_schema SET sql = replace(sql, 'kind TEXT', 'kind TEXT COLLATE odd') WHERE name = 'messages_out'")), Expected::Read),
        ("too few columns", "CREATE TABLE messages_out (id, seq);".to_owned(), invalid),
        ("another table only", "CREATE TABLE t(x);".to_owned(), invalid),
        (
            "too many columns",
            format!("{GOOD} CREATE TABLE t ({} x);", count(100, &|n| format!("c{n}, "))),
            invalid,
        ),
        ("too many tables", format!("{GOOD} {}", count(100, &|n| format!("CREATE TABLE t{n}(x);"))), invalid),
        (
            "a deep expression",
            format!("{GOOD} CREATE TABLE t(x CHECK ({}1{}));", "(1 + ".repeat(200), ")".repeat(200)),
            invalid,
        ),
        (
            "a long text",
            format!("{GOOD} CREATE TABLE t(x DEFAULT '{}');", "y".repeat(100_000)),
            invalid,
        ),
        (
            "a view that says it is a table",
            schema(&format!("CREATE VIEW messages_out AS {ENDLESS} SELECT {VALUES} FROM n; UPDATE sqlite_schema SET type = 'table', rootpage = 2")),
            invalid,
        ),
        (
            "a view that says it is an index",
            schema(&format!("{GOOD} CREATE VIEW v AS SELECT 1; UPDATE sqlite_schema SET type = 'index', rootpage = 2 WHERE name = 'v'")),
            invalid,
        ),
        (
            "a table under another name",
            schema(&format!("{GOOD} CREATE TABLE t(x); UPDATE sqlite_schema SET name = 'u' WHERE name = 't'")),
            invalid,
        ),
        (
            "two tables in one place",
            schema(&format!("{GOOD} CREATE TABLE t(x); UPDATE sqlite_schema SET rootpage = 2 WHERE name = 't'")),
            invalid,
        ),
        (
            "a table beyond the end",
            schema(&format!("{GOOD} UPDATE sqlite_schema SET rootpage = 9999 WHERE name = 'messages_out'")),
            invalid,
        ),
        ("a text that is no SQL", schema(&format!("{GOOD} UPDATE sqlite_schema SET sql = 'CREATE TABLE (((' WHERE name = 'messages_out'")), invalid),
        ("pages that nothing leads to", schema(&format!("{GOOD} CREATE INDEX i ON messages_out(kind); DELETE FROM sqlite_schema WHERE name = 'i'")), invalid),
        (
            "too many rows",
            format!(
                "PRAGMA page_size = 65536; {GOOD} CREATE TABLE s(x); DROP TABLE messages_out; CREATE TABLE messages_out ({COLUMNS});
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) INSERT INTO messages_out (seq) SELECT NULL FROM n;"
            ),
            many,
        ),
    ]
}

#[test]
fn hostile_schemas_are_refused_in_time_and_memory() {
    child::run("schemas::hostile_schemas_are_refused_in_time_and_memory", || {
        let databases: Vec<_> = corpus()
            .into_iter()
            .map(|(what, script, expected)| (what, database(&script), expected))
            .collect();
        for (what, bytes, expected) in databases {
            let stage = Stage::new();
            stage.plant_bytes(&bytes);
            // The peak is set back to what is in use.
            std::fs::write("/proc/self/clear_refs", "5").unwrap();
            let (before, start) = (child::peak_memory(), cpu_time());
            let taken = stage.take();
            let (took, memory) = (cpu_time() - start, child::peak_memory().saturating_sub(before));
            println!("{what}: {took:?}, {} KiB of {} KiB", memory / 1024, bytes.len() / 1024);
            assert!(took < MOST_TIME && memory < MOST_MEMORY, "{what}: {took:?}, {memory} bytes");
            let found = match refused(taken.refused()).as_slice() {
                [] if ids(&taken) == ["a"] => Expected::Read,
                [(_, kind)] if taken.messages.is_empty() => Expected::Refused(*kind),
                other => panic!("{what}: {other:?} and {:?}", ids(&taken)),
            };
            assert_eq!(found, expected, "{what}: {:?}", taken.refused);
            assert!(!stage.guest("outbound.db-journal").exists());
        }
    });
}

/// The database that takes longest to read: as large as may be, and full.
#[test]
fn the_largest_database_is_read_in_time_and_memory() {
    child::run("schemas::the_largest_database_is_read_in_time_and_memory", || {
        let rows = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 3700)";
        let bytes = database(&format!(
            "{GOOD} {rows} INSERT INTO messages_out (id, seq, kind, content) SELECT 'm' || i, 2 * i + 1, 'chat', hex(zeroblob(1000)) FROM n;"
        ));
        assert!(bytes.len() > (7 << 20) && bytes.len() <= (8 << 20), "{}", bytes.len());
        let stage = Stage::new();
        stage.plant_bytes(&bytes);
        drop(bytes);
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let (before, start) = (child::peak_memory(), cpu_time());
        let taken = stage.take_up_to(10_000);
        let (took, memory) = (cpu_time() - start, child::peak_memory().saturating_sub(before));
        println!("8 MiB: {} messages, {took:?}, {} KiB", taken.messages.len(), memory / 1024);
        assert!(taken.messages.len() > 1000 && taken.more && taken.refused.is_empty(), "{:?}", taken.refused);
        assert!(took < 3 * MOST_TIME && memory < MOST_MEMORY, "{took:?}, {memory} bytes");
    });
}

/// What a host does that opens the database: the guest's program runs until somebody stops it.
#[test]
fn the_control_runs_the_program_of_the_guest() {
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    let script = format!("CREATE VIEW messages_out AS {ENDLESS} SELECT {VALUES} FROM n WHERE i < 0;");
    std::fs::write(dir.path().join("outbound.db"), database(&script)).unwrap();
    let mut naive = Connection::open(dir.path().join("outbound.db")).unwrap();
    let mut looks = 0;
    let stop = move || {
        looks += 1;
        looks > 1000
    };
    naive.progress_handler(1000, Some(stop)).unwrap();
    let error =
        naive.query_row("SELECT content FROM messages_out", (), |row| row.get::<_, String>(0)).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::OperationInterrupted));
}

/// A deadline ends what no limit does.
#[test]
fn reading_ends_with_the_time_that_is_set_and_is_not_tried_at_once_again() {
    let config = beneath::mailbox::MailboxConfig::default().with_read_time(Duration::ZERO);
    let stage = Stage::with_config(config);
    stage.send(1, "a", "x");
    assert_eq!(refused(stage.take().refused()), [("/session/outbound.db".to_owned(), ErrorKind::TooMany)]);
    // A writer holds it, so a second read would say so.
    let guest = stage.outbound();
    guest.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(refused(stage.take().refused()), [("/session/outbound.db".to_owned(), ErrorKind::TooMany)]);
}
