//! What the system that this replaces promises of its databases, and what it does not keep.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use beneath::mailbox::{
    Delivered, GuestStatus, Inbound, Mailbox, MailboxConfig, Origin, Post, Retries, Routing, SessionKey,
    SessionMode, Standing, resolve,
};
use beneath::session::Attachment;
use beneath::{Ensured, ErrorKind, MessageId};
use beneath_kit::snapshot::names;
use rusqlite::Connection;

use crate::support::{Stage, contents, ids, number, texts};

fn put(stage: &Stage, raw: &str) -> i64 {
    stage.mailbox.put(Inbound::new(&MessageId::new(raw), "chat", "x")).unwrap().seq.get()
}

/// A row of the table: what it is called, and the story that shows it.
type Row = (&'static str, fn(&mut Stage));

const ROWS: &[Row] = &[
    ("init: session directory, outbox and both databases with their tables", |stage| {
        assert!(stage.guest("outbox").is_dir() && stage.guest("inbox").is_dir());
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        assert_eq!(texts(&stage.inbound(), tables), ["delivered", "files_in", "messages_in", "routing"]);
        assert_eq!(texts(&stage.outbound(), tables), ["acks", "activity", "messages_out"]);
    }),
    ("init is idempotent, and keeps what is there", |stage| {
        put(stage, "a");
        stage.send(1, "b", "x");
        for _ in 0..3 {
            stage.reopen();
        }
        assert_eq!(number(&stage.inbound(), "SELECT count(*) FROM messages_in"), 1);
        assert_eq!(ids(&stage.take()), ["b"]);
    }),
    ("init walks through no link that was placed before", |stage| {
        let outside = stage.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::remove_dir(stage.guest("inbox")).unwrap();
        symlink(&outside, stage.guest("inbox")).unwrap();
        fs::remove_file(stage.guest("outbound.db")).unwrap();
        symlink(outside.join("made.db"), stage.guest("outbound.db")).unwrap();
        stage.reopen();
        let file = Attachment::from_bytes("bytes").with_name("a");
        let message = Inbound::new(&MessageId::new("m"), "chat", "x").with_attachments([file]);
        let put = stage.mailbox.put(message).unwrap();
        assert_eq!(put.refused().next().unwrap().1.kind(), ErrorKind::Symlink);
        assert!(names(&outside).is_empty());
        assert_eq!(texts(&stage.inbound(), "SELECT refused FROM files_in"), ["is a symbolic link"]);
    }),
    ("a message is stored although an attachment is bad", |stage| {
        let bad = Attachment::from_bytes("x").with_declared_size(9);
        let message = Inbound::new(&MessageId::new("m"), "chat", "kept").with_attachments([bad]);
        assert!(!stage.mailbox.put(message).unwrap().is_complete());
        assert_eq!(texts(&stage.inbound(), "SELECT content FROM messages_in"), ["kept"]);
    }),
    ("an unsafe message id is mapped, and nothing is outside of the inbox", |stage| {
        let file = Attachment::from_bytes("bytes").with_name("../../../../escape.txt");
        let message = Inbound::new(&MessageId::new("../../escape"), "chat", "x").with_attachments([file]);
        assert!(stage.mailbox.put(message).unwrap().is_complete());
        let found = names(&stage.guest("inbox"));
        assert!(found.len() == 1 && !found[0].contains('/') && !found[0].contains(".."), "{found:?}");
        assert_eq!(names(&stage.guest("inbox").join(&found[0])), ["escape.txt"]);
        assert_eq!(names(stage.path()), ["sessions"]);
    }),
    ("host numbers are even, those of the container odd", |stage| {
        assert_eq!([put(stage, "a"), put(stage, "b"), put(stage, "c")], [2, 4, 6]);
        stage.send(8, "even", "x");
        stage.send(9, "odd", "x");
        assert_eq!(ids(&stage.take()), ["odd"]);
        assert_eq!(put(stage, "d"), 10);
    }),
    ("rollback journal, never a log; closed after each operation", |stage| {
        put(stage, "a");
        assert_eq!(texts(&stage.inbound(), "PRAGMA journal_mode"), ["delete"]);
        assert_eq!(names(&stage.share(".")), ["inbound.db"]);
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let inbound = stage.share("inbound.db");
        let held = open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == inbound)).count();
        assert_eq!(held, 0);
    }),
    ("the host never writes the container's database", |stage| {
        stage.send(1, "a", "x");
        stage.ack("b", "completed", 1);
        let before = beneath_kit::Snapshot::take(&stage.guest("."));
        put(stage, "b");
        for message in &stage.take().messages {
            stage.mark(message, Delivered::Done);
        }
        assert_eq!(stage.mailbox.settle().unwrap().completed, 1);
        stage.mailbox.post(&Post::new(&MessageId::new("p"), "chat", "x")).unwrap();
        drop(stage.mailbox.sweep(Duration::ZERO).unwrap());
        stage.reopen();
        assert!(beneath_kit::Snapshot::take(&stage.guest(".")) == before);
    }),
    ("routing: one row, the last call counts; nothing if the session is gone", |stage| {
        assert_eq!(stage.mailbox.routing().unwrap(), None);
        for thread in ["t1", "t2"] {
            let routing = Routing::default().with_channel("chat").with_platform("room").with_thread(thread);
            stage.mailbox.set_routing(&routing).unwrap();
        }
        stage.reopen();
        assert_eq!(stage.mailbox.routing().unwrap().unwrap().thread(), Some("t2"));
        assert_eq!(
            texts(&stage.inbound(), "SELECT channel || platform || thread FROM routing"),
            ["chatroomt2"]
        );
        stage.mailbox.set_routing(&Routing::default()).unwrap();
        assert_eq!(stage.mailbox.routing().unwrap(), Some(Routing::default()));
        drop(stage.sessions.remove(&beneath::SessionId::new("s")).unwrap());
        let error = stage.mailbox.set_routing(&Routing::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }),
    ("direct outbound: a duplicate id is ignored, and the number has the host's parity", |stage| {
        stage.send(7, "g", "x");
        drop(stage.take());
        let post = |content| stage.mailbox.post(&Post::new(&MessageId::new("p"), "chat", content)).unwrap();
        assert_eq!([post("one"), post("two")], [Ensured::Created, Ensured::Existed]);
        let taken = stage.take();
        assert_eq!(contents(&taken), ["x", "one"]);
        assert_eq!((taken.messages[1].seq.get(), taken.messages[1].origin), (8, Origin::Host));
    }),
    ("container status: running sets the last activity", |stage| {
        for (status, active) in
            [(GuestStatus::Idle, false), (GuestStatus::Stopped, false), (GuestStatus::Running, true)]
        {
            stage.mailbox.set_status(status).unwrap();
            assert_eq!(stage.mailbox.status().unwrap(), status);
            assert_eq!(stage.mailbox.last_active().unwrap().is_some(), active);
        }
    }),
    ("a message write sets the last activity", |stage| {
        put(stage, "a");
        assert!(stage.mailbox.last_active().unwrap().is_some());
    }),
    ("delivered marks: a message goes out once, also through another host", |stage| {
        stage.send(1, "a", "x");
        let message = stage.take().messages.remove(0);
        stage.mark(&message, Delivered::Done);
        let other = Mailbox::open(&stage.session).unwrap();
        let lock = stage.session.try_lock().unwrap();
        assert!(other.take(&lock, 1).unwrap().messages.is_empty());
    }),
    ("two workers do not take one message: there is one lock", |stage| {
        let _one = stage.session.try_lock().unwrap();
        assert_eq!(stage.session.try_lock().unwrap_err().kind(), ErrorKind::Busy);
    }),
    ("attempts are kept, in memory no more", |stage| {
        let config = MailboxConfig::default().with_retries(Retries::new(3, Duration::ZERO));
        stage.send(1, "a", "x");
        for round in 1..=3 {
            let mailbox = Mailbox::open_with(&stage.session, config.clone()).unwrap();
            let lock = stage.session.try_lock().unwrap();
            let message = mailbox.take(&lock, 1).unwrap().messages.remove(0);
            let standing = mailbox.mark(&message, Delivered::Again).unwrap();
            assert_eq!(standing == Standing::Failed, round == 3);
        }
    }),
    ("sweep: acks are synced, and a stuck message is given out again, five times", |stage| {
        put(stage, "a");
        put(stage, "b");
        stage.ack("a", "completed", 1);
        stage.ack("b", "processing", 1);
        assert_eq!(stage.mailbox.settle().unwrap().completed, 1);
        assert_eq!(stage.mailbox.due(SystemTime::now()).unwrap(), 1);
        let standings: Vec<_> = (0..5).map(|_| stage.mailbox.retry(&MessageId::new("b")).unwrap()).collect();
        let tries: Vec<_> =
            standings.iter().map(|standing| matches!(standing, Standing::Pending { .. })).collect();
        assert_eq!(tries, [true, true, true, true, false]);
    }),
    ("a legacy database gets the columns that it lacks, twice is once", |stage| {
        // Version 1, as a program before this one left it.
        fs::remove_file(stage.share("inbound.db")).unwrap();
        let legacy = Connection::open(stage.share("inbound.db")).unwrap();
        let script = "CREATE TABLE messages_in (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, content TEXT NOT NULL, \
                channel TEXT, platform TEXT, thread TEXT, created INTEGER NOT NULL, status TEXT NOT NULL DEFAULT 'pending');
            CREATE TABLE files_in (seq INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT, path TEXT, bytes INTEGER, refused TEXT, \
                PRIMARY KEY (seq, position)) WITHOUT ROWID;
            CREATE TABLE routing (only INTEGER PRIMARY KEY CHECK (only = 1), channel TEXT, platform TEXT, thread TEXT);
            INSERT INTO messages_in (seq, id, kind, content, created) VALUES (40, 'old', 'chat', 'x', 1234);
            PRAGMA application_id = 1835100524; PRAGMA user_version = 1;";
        legacy.execute_batch(script).unwrap();
        drop(legacy);
        for _ in 0..2 {
            stage.reopen();
            let row = "SELECT id || tries || not_before || changed || status FROM messages_in";
            assert_eq!(texts(&stage.inbound(), row), ["old001234pending"]);
        }
        assert_eq!(put(stage, "new"), 42);
    }),
    ("operators reset a session by deleting its folder", |stage| {
        fs::remove_dir_all(stage.path().join("sessions/s")).unwrap();
        assert!(stage.mailbox.put(Inbound::new(&MessageId::new("m"), "chat", "x")).is_err());
        let (session, how) = stage.sessions.create(&beneath::SessionId::new("s")).unwrap();
        assert_eq!(how, Ensured::Created);
        let mailbox = Mailbox::open(&session).unwrap();
        assert_eq!(mailbox.put(Inbound::new(&MessageId::new("m"), "chat", "x")).unwrap().seq.get(), 2);
    }),
    ("a resolved session has a mailbox of its own", |stage| {
        let key = |thread| SessionKey::new("agents").in_group("room").with_thread(thread);
        let mailbox = |thread| {
            let (session, _) = resolve(&stage.sessions, &key(thread), SessionMode::PerThread).unwrap();
            Mailbox::open(&session).unwrap()
        };
        let put =
            |thread| mailbox(thread).put(Inbound::new(&MessageId::new("m"), "chat", thread)).unwrap().how;
        assert_eq!([put("t1"), put("t2"), put("t1")], [Ensured::Created, Ensured::Created, Ensured::Existed]);
    }),
];

#[test]
fn every_row_about_databases_resolution_routing_and_sweeps_holds() {
    for (what, story) in ROWS {
        println!("{what}");
        story(&mut Stage::new());
    }
}
