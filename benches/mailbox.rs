//! The mailbox beside plain SQLite, in turns: `cargo bench --features mailbox --bench mailbox`.
//!
//! Polls: `take` of a database that has not changed beside opening, querying and closing it. Changed: the same after the guest has
//! written. `put` beside a plain insert: open, insert, close. `BENEATH_BENCH_MESSAGES`, `BENEATH_BENCH_ROUNDS` and `TMPDIR` change how
//! many messages the database has, how often and where.
#![allow(missing_docs, clippy::unwrap_used, reason = "a program for people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use beneath::mailbox::{Delivered, Inbound, Mailbox, OUTBOUND_SCHEMA};
use beneath::session::SessionLock;
use beneath::{MessageId, MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
use beneath_kit::bench::{self, Ground, Line, OURS, Place, Watch, Ways};
use beneath_kit::env;
use rusqlite::{Connection, OpenFlags};

/// What a host does that opens the guest's database at every poll.
fn open_and_query(path: &Path) -> usize {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sql = "SELECT id, seq, kind, content FROM messages_out WHERE seq > ?1 ORDER BY seq LIMIT 16";
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.query([i64::MAX - 1]).unwrap();
    let mut count = 0;
    while rows.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// What a host does without this crate: open, number, insert, close.
fn plain_insert(path: &Path, id: &str) {
    let connection = Connection::open(path).unwrap();
    let sql = "INSERT INTO messages_in (seq, id, kind, content, created) \
               VALUES ((SELECT coalesce(max(seq), 0) + 2 FROM messages_in), ?1, 'chat', 'hello', 0)";
    connection.execute(sql, [id]).unwrap();
}

fn fill(path: &Path, rows: usize) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(OUTBOUND_SCHEMA).unwrap();
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
         INSERT INTO messages_out (id, seq, kind, content) SELECT 'm' || i, 2 * i + 1, 'chat', hex(zeroblob(100)) FROM n"
    );
    connection.execute_batch(&sql).unwrap();
}

fn sessions(ground: &Ground) -> Sessions {
    let root = Root::open_ambient(&ground.dir, ambient_authority()).unwrap();
    Sessions::new(root, SessionsConfig::default().with_share(MountPoint::new("/share").unwrap()))
}

/// A mailbox whose guest has said much, all of which was taken.
fn taken(ground: &Ground) -> (Mailbox, SessionLock, PathBuf) {
    let (session, _) = sessions(ground).create(&SessionId::new("s")).unwrap();
    let mailbox = Mailbox::open(&session).unwrap();
    let outbound = ground.dir.join("s/guest/outbound.db");
    fill(&outbound, env::BENCH_MESSAGES.number().unwrap_or(1000).max(2));
    let lock = session.try_lock().unwrap();
    loop {
        let taken = mailbox.take(&lock, 1000).unwrap();
        if taken.messages.is_empty() {
            return (mailbox, lock, outbound);
        }
        for message in &taken.messages {
            mailbox.mark(message, Delivered::Done).unwrap();
        }
    }
}

fn unchanged(ground: &Ground) -> Ways {
    let (mailbox, lock, outbound) = taken(ground);
    // A poll within two seconds of a change opens the database; a guest that says nothing is polled later.
    std::thread::sleep(Duration::from_millis(3100));
    Ok(vec![
        Line::many("rusqlite", ground, move || assert_eq!(open_and_query(&outbound), 0)),
        Line::many(OURS, ground, move || assert!(mailbox.take(&lock, 16).unwrap().messages.is_empty())),
    ])
}

fn changed(ground: &Ground) -> Ways {
    let (mailbox, lock, outbound) = taken(ground);
    let after_a_change = |name: &'static str, mut call: Box<dyn FnMut()>| {
        let (outbound, mut time) = (outbound.clone(), 0_i64);
        Line::new(name, move |watch: Watch| {
            // The guest writes, so that the next look must read all of it.
            let guest = Connection::open(&outbound).unwrap();
            time += 1;
            guest.execute("INSERT OR REPLACE INTO acks VALUES ('a', 'processing', ?1)", [time]).unwrap();
            drop(guest);
            watch.over(&mut call)
        })
    };
    let path = outbound.clone();
    Ok(vec![
        after_a_change("rusqlite", Box::new(move || assert_eq!(open_and_query(&path), 0))),
        after_a_change(OURS, Box::new(move || assert!(mailbox.take(&lock, 16).unwrap().messages.is_empty()))),
    ])
}

fn put(ground: &Ground) -> Ways {
    let sessions = sessions(ground);
    // Another mailbox's, so that the schema is the same.
    let [mailbox, _] = ["s", "plain"].map(|id| {
        let (session, _) = sessions.create(&SessionId::new(id)).unwrap();
        Mailbox::open(&session).unwrap()
    });
    let plain = ground.dir.join("plain/share/inbound.db");
    let putting = |name: &'static str, mut call: Box<dyn FnMut(&str)>| {
        let mut number = 0;
        Line::new(name, move |watch: Watch| {
            number += 1;
            watch.over(|| call(&format!("m{number}")))
        })
    };
    Ok(vec![
        putting("rusqlite", Box::new(move |id| plain_insert(&plain, id))),
        putting(
            OURS,
            Box::new(move |id| {
                drop(mailbox.put(Inbound::new(&MessageId::new(id), "chat", "hello")).unwrap())
            }),
        ),
    ])
}

fn main() -> ExitCode {
    let works: &[bench::Work] = &[("poll, unchanged", unchanged), ("poll, changed", changed), ("put", put)];
    bench::main("mailbox", Place::temporary, works)
}
