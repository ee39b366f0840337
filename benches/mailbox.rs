//! The mailbox beside plain SQLite, taking turns at every operation.
//!
//! Polls: `take` of a database that has not changed beside opening, querying and closing it. Changed: the same after the guest has
//! written. `put` beside a plain insert: open, insert, close. `BENEATH_BENCH_MESSAGES`, `BENEATH_BENCH_ROUNDS` and `TMPDIR` change how
//! many, how often and where. Prints lower quartiles and their ratio.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a program for people")]

use std::path::Path;
use std::time::{Duration, Instant};

use beneath::mailbox::{Delivered, Inbound, Mailbox, OUTBOUND_SCHEMA};
use beneath::{MessageId, MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
use rusqlite::{Connection, OpenFlags};

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// On a shared machine every round sees some noise, and the quieter ones less of it.
fn lower_quartile(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 4].as_secs_f64() * 1e6
}

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

fn main() {
    let (messages, rounds) = (number("BENEATH_BENCH_MESSAGES", 1000), number("BENEATH_BENCH_ROUNDS", 15));
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let config = SessionsConfig::default().with_share(MountPoint::new("/share").unwrap());
    let sessions = Sessions::new(root, config);
    let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
    let mailbox = Mailbox::open(&session).unwrap();
    let outbound = dir.path().join("s/guest/outbound.db");
    fill(&outbound, messages.max(2));
    let lock = session.try_lock().unwrap();
    loop {
        let taken = mailbox.take(&lock, 1000).unwrap();
        if taken.messages.is_empty() {
            break;
        }
        for message in &taken.messages {
            mailbox.mark(message, Delivered::Done).unwrap();
        }
    }

    // Another mailbox's, so that the schema is the same.
    let (other, _) = sessions.create(&SessionId::new("plain")).unwrap();
    drop(Mailbox::open(&other).unwrap());
    let plain = dir.path().join("plain/share/inbound.db");

    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let mut times: [[Vec<Duration>; 2]; 3] = Default::default();
    // A poll within two seconds of a change opens the database; a guest that says nothing is polled later.
    std::thread::sleep(Duration::from_millis(3100));
    for round in 0..rounds * 100 {
        for who in (0..2).map(|who| (who + round) % 2) {
            let took = match who {
                0 => time(&mut || assert_eq!(open_and_query(&outbound), 0)),
                _ => time(&mut || assert!(mailbox.take(&lock, 16).unwrap().messages.is_empty())),
            };
            times[0][who].push(took);
        }
    }
    for round in 0..rounds * 10 {
        // The guest writes, so that the next look must read all of it.
        let guest = Connection::open(&outbound).unwrap();
        guest.execute("INSERT OR REPLACE INTO acks VALUES ('a', 'processing', ?1)", [round as i64]).unwrap();
        drop(guest);
        times[1][0].push(time(&mut || assert_eq!(open_and_query(&outbound), 0)));
        times[1][1].push(time(&mut || assert!(mailbox.take(&lock, 16).unwrap().messages.is_empty())));
    }
    for round in 0..rounds * 50 {
        let id = format!("m{round}");
        for who in (0..2).map(|who| (who + round) % 2) {
            let took = match who {
                0 => time(&mut || plain_insert(&plain, &id)),
                _ => time(&mut || {
                    drop(mailbox.put(Inbound::new(&MessageId::new(&id), "chat", "hello")).unwrap());
                }),
            };
            times[2][who].push(took);
        }
    }
    let place = rustix::fs::statfs(dir.path()).unwrap().f_type;
    let size = std::fs::metadata(&outbound).unwrap().len() / 1024;
    println!(
        "{messages} messages, database of {size} KiB, {rounds} rounds, file system {place:#x} at {}",
        dir.path().display()
    );
    for (name, [peer, ours]) in ["poll, unchanged", "poll, changed", "put"].iter().zip(&mut times) {
        let (peer, ours) = (lower_quartile(peer), lower_quartile(ours));
        println!("{name:16} rusqlite {peer:9.1} us   beneath {ours:9.1} us   {:.3}", ours / peer);
    }
}
