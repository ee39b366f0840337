//! A mailbox whose host dies.

use std::fs;
use std::path::Path;
use std::time::Duration;

use beneath::mailbox::{Delivered, Earlier, Inbound, Mailbox, MailboxConfig, Retries, Routing};
use beneath::{
    MessageId, MountPoint, ResolverChoice, Root, Session, Sessions, SessionsConfig, ambient_authority,
};
use beneath_kit::Contender;
use rusqlite::{Connection, OpenFlags};

use crate::host::*;
use crate::judge::*;
use crate::works::{COLLECT, ONE, Work};

const MESSAGES: [&str; 3] = ["a", "b", "c"];

fn sharing(dir: &Path, resolver: ResolverChoice) -> Sessions {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    let config = SessionsConfig::default().with_resolver(resolver);
    Sessions::new(root, config.with_share(MountPoint::new("/share").unwrap()))
}

fn mail_session(dir: &Path, resolver: ResolverChoice) -> Session {
    sharing(dir, resolver).create(&id("s")).unwrap().0
}

fn mailbox(dir: &Path, resolver: ResolverChoice) -> Mailbox {
    let config = MailboxConfig::default().with_retries(Retries::new(5, Duration::ZERO));
    Mailbox::open_with(&mail_session(dir, resolver), config).unwrap()
}

/// An earlier host has made the mailbox, and the guest has sent three messages.
fn prepare(dir: &Path) {
    drop(mailbox(dir, ResolverChoice::Auto));
    let guest = Connection::open(dir.join("s/guest/outbound.db")).unwrap();
    for (seq, id) in [1, 3, 5].into_iter().zip(MESSAGES) {
        let sql = "INSERT INTO messages_out (id, seq, kind, content) VALUES (?1, ?2, 'chat', ?1)";
        guest.execute(sql, (id, seq)).unwrap();
    }
    fs::create_dir(dir.join("s/sent")).unwrap();
}

/// The other side of the wire: it has each message that was sent, as often as it was.
fn send(dir: &Path, id: &str) {
    let count = sent(dir, id) + 1;
    fs::write(dir.join("s/sent").join(format!("{id}-{count}")), "").unwrap();
}

fn sent(dir: &Path, id: &str) -> usize {
    names(&dir.join("s/sent")).iter().filter(|name| name.starts_with(&format!("{id}-"))).count()
}

/// What a host does with a message that a host before it may have sent.
#[derive(Clone, Copy, PartialEq)]
enum Doubt {
    /// Sends it; the receiver knows messages by their keys, and takes each once.
    Send,
    /// Gives it up.
    GiveUp,
}

/// The loop of the documentation. The receiver has a message once it has its file.
fn send_all(dir: &Path, mailbox: &Mailbox, doubt: Doubt) {
    let lock = mailbox.session().lock_within(Duration::from_secs(60)).unwrap();
    let taken = mailbox.take(&lock, 16).unwrap();
    assert!(taken.is_complete());
    for message in &taken.messages {
        if doubt == Doubt::GiveUp && matches!(message.earlier, Earlier::Unfinished(_)) {
            mailbox.mark(message, Delivered::Failed).unwrap();
            continue;
        }
        mailbox.mark(message, Delivered::Trying).unwrap();
        if doubt == Doubt::GiveUp || sent(dir, &message.raw_id) == 0 {
            send(dir, &message.raw_id);
        }
        mailbox.mark(message, Delivered::Done).unwrap();
    }
}

/// What the guest sees of what the host has written.
fn inbound(dir: &Path) -> Connection {
    Connection::open_with_flags(dir.join("s/share/inbound.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn texts(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// The next host takes over, twice.
fn judge_send(dir: &Path, resolver: ResolverChoice, doubt: Doubt) -> Verdict {
    let before: Vec<usize> = MESSAGES.iter().map(|id| sent(dir, id)).collect();
    for _ in 0..2 {
        send_all(dir, &mailbox(dir, resolver), doubt);
    }
    let outcomes = texts(&inbound(dir), "SELECT outcome FROM delivered ORDER BY id");
    for ((id, before), outcome) in MESSAGES.iter().zip(before).zip(&outcomes) {
        match (doubt, sent(dir, id), outcome.as_str()) {
            (_, 1, "delivered") => {}
            // In doubt it is given up and that is said, whether it was sent or not.
            (Doubt::GiveUp, count, "failed") if count == before && count <= 1 => {}
            (_, count, outcome) => return Err(format!("{id} was sent {count} times, and is {outcome}")),
        }
    }
    match (outcomes.len(), outcomes.iter().filter(|outcome| *outcome == "failed").count()) {
        (3, 0 | 1) => sound(dir),
        other => Err(format!("{other:?} of 3 messages are settled")),
    }
}

/// Every database is whole, and none has a journal left.
fn sound(dir: &Path) -> Verdict {
    for path in ["s/share/inbound.db", "s/host/state/mail.db", "s/guest/outbound.db"] {
        let checked = texts(&Connection::open(dir.join(path)).unwrap(), "PRAGMA integrity_check");
        if checked != ["ok"] || dir.join(format!("{path}-journal")).exists() {
            return Err(format!("{path}: {checked:?}"));
        }
    }
    Ok(())
}

fn message() -> Inbound<'static> {
    static ID: std::sync::LazyLock<MessageId> = std::sync::LazyLock::new(|| MessageId::new("42"));
    Inbound::new(&ID, "chat", "hello").with_attachments(attachments())
}

/// A row names its files, and they are there, whole.
fn rows_have_their_files(dir: &Path, connection: &Connection) -> Verdict {
    let rows = texts(connection, "SELECT id FROM messages_in");
    let files = texts(connection, "SELECT path FROM files_in ORDER BY position");
    no_torn_file(&dir.join("s/guest/inbox/42"))?;
    let there = |path: &&String| dir.join("s/guest").join(path.trim_start_matches("/session/")).exists();
    match (rows.len(), files.iter().filter(there).count()) {
        (0, 0) | (1, 2) => Ok(()),
        other => Err(format!("{other:?} messages and files")),
    }
}

fn judge_put(dir: &Path, resolver: ResolverChoice) -> Verdict {
    let mailbox = mailbox(dir, resolver);
    rows_have_their_files(dir, &inbound(dir))?;
    for _ in 0..2 {
        let put = mailbox.put(message()).map_err(text)?;
        if put.seq.get() != 2 || !put.is_complete() {
            return Err(format!("{put:?}"));
        }
        rows_have_their_files(dir, &inbound(dir))?;
    }
    match (
        names(&dir.join("s/guest/inbox/42")).len(),
        texts(&inbound(dir), "SELECT id FROM messages_in").len(),
    ) {
        (2, 1) => sound(dir),
        other => Err(format!("{other:?} files and messages")),
    }
}

/// All is sent, and the guest has removed the first: its mark may go, and no other.
fn judge_sweep(dir: &Path, resolver: ResolverChoice) -> Verdict {
    let mailbox = mailbox(dir, resolver);
    send_all(dir, &mailbox, Doubt::Send);
    for _ in 0..2 {
        let swept = mailbox.sweep(Duration::ZERO).map_err(text)?;
        if !swept.is_complete() {
            return Err(format!("{swept:?}"));
        }
        send_all(dir, &mailbox, Doubt::GiveUp);
    }
    let copies = texts(&inbound(dir), "SELECT id || ' ' || outcome FROM delivered ORDER BY id");
    match MESSAGES.map(|id| sent(dir, id)) {
        [1, 1, 1] if copies == ["b delivered", "c delivered"] => sound(dir),
        sent => Err(format!("sent {sent:?} times, and {copies:?}")),
    }
}

fn routing(thread: &str) -> Routing {
    Routing::default().with_channel("chat").with_thread(thread)
}

/// The host and the guest have the same, the one before or the new one.
fn judge_routing(dir: &Path, resolver: ResolverChoice) -> Verdict {
    let mailbox = mailbox(dir, resolver);
    let kept = mailbox.routing().map_err(text)?;
    let copy = texts(&inbound(dir), "SELECT thread FROM routing");
    match copy.as_slice() {
        [thread] if kept == Some(routing(thread)) && ["old", "new"].contains(&thread.as_str()) => {}
        copy => return Err(format!("{kept:?}, and the guest has {copy:?}")),
    }
    // A journal that had not begun is in nobody's way, and goes with the next.
    mailbox.set_routing(&routing("next")).map_err(text)?;
    match texts(&inbound(dir), "SELECT thread FROM routing").as_slice() {
        [thread] if thread == "next" => sound(dir),
        copy => Err(format!("the guest has {copy:?}")),
    }
}

pub(crate) const MAIL: &[Work] = &[
    Work {
        name: "mailbox: put",
        least: 30,
        prepare: |dir| drop(mailbox(dir, ResolverChoice::Auto)),
        work: |dir, resolver| {
            let mailbox = mailbox(dir, resolver);
            Box::new(move || assert!(mailbox.put(message()).unwrap().is_complete()))
        },
        judge: judge_put,
        ..COLLECT
    },
    Work {
        name: "mailbox: take, send, mark",
        least: 60,
        prepare,
        work: |dir, resolver| {
            let (mailbox, dir) = (mailbox(dir, resolver), dir.to_path_buf());
            Box::new(move || send_all(&dir, &mailbox, Doubt::Send))
        },
        judge: |dir, resolver| judge_send(dir, resolver, Doubt::Send),
        ..COLLECT
    },
    Work {
        name: "mailbox: at most once",
        least: 60,
        prepare,
        work: |dir, resolver| {
            let (mailbox, dir) = (mailbox(dir, resolver), dir.to_path_buf());
            Box::new(move || send_all(&dir, &mailbox, Doubt::GiveUp))
        },
        judge: |dir, resolver| judge_send(dir, resolver, Doubt::GiveUp),
        ..ONE
    },
    Work {
        name: "mailbox: open",
        least: 30,
        prepare: |dir| drop(mail_session(dir, ResolverChoice::Auto)),
        work: |dir, resolver| {
            let session = mail_session(dir, resolver);
            Box::new(move || drop(Mailbox::open(&session).unwrap()))
        },
        judge: judge_put,
        ..COLLECT
    },
    Work {
        name: "mailbox: sweep",
        least: 20,
        prepare: |dir| {
            prepare(dir);
            send_all(dir, &mailbox(dir, ResolverChoice::Auto), Doubt::Send);
            let guest = Connection::open(dir.join("s/guest/outbound.db")).unwrap();
            guest.execute_batch("DELETE FROM messages_out WHERE id = 'a'").unwrap();
        },
        work: |dir, resolver| {
            let mailbox = mailbox(dir, resolver);
            Box::new(move || assert_eq!(mailbox.sweep(Duration::ZERO).unwrap().marks, 1))
        },
        judge: judge_sweep,
        ..COLLECT
    },
    Work {
        name: "mailbox: routing",
        least: 20,
        prepare: |dir| mailbox(dir, ResolverChoice::Auto).set_routing(&routing("old")).unwrap(),
        work: |dir, resolver| {
            let mailbox = mailbox(dir, resolver);
            Box::new(move || mailbox.set_routing(&routing("new")).unwrap())
        },
        judge: judge_routing,
        ..COLLECT
    },
    // The row first, then the files.
    Work {
        name: "control: mailbox put",
        contenders: &[Contender::Control],
        prepare: |dir| drop(mailbox(dir, ResolverChoice::Auto)),
        work: |dir, resolver| {
            let (session, path) = (mail_session(dir, resolver), dir.join("s/share/inbound.db"));
            Box::new(move || {
                let inbound = Connection::open(path).unwrap();
                let sql = "INSERT INTO messages_in (seq, id, kind, content, created) VALUES (2, '42', 'chat', 'hello', 0); \
                           INSERT INTO files_in (seq, position, path) VALUES (2, 0, '/session/inbox/42/one.bin'), \
                           (2, 1, '/session/inbox/42/two.bin')";
                inbound.execute_batch(sql).unwrap();
                assert!(session.inbox().deliver(&MessageId::new("42"), attachments()).is_complete());
            })
        },
        judge: |dir, resolver| {
            drop(mailbox(dir, resolver));
            rows_have_their_files(dir, &inbound(dir))
        },
        ..ONE
    },
    // Marked, then sent.
    Work {
        name: "control: mailbox send",
        contenders: &[Contender::Control],
        prepare,
        work: |dir, resolver| {
            let (mailbox, dir) = (mailbox(dir, resolver), dir.to_path_buf());
            Box::new(move || {
                let lock = mailbox.session().try_lock().unwrap();
                for message in mailbox.take(&lock, 16).unwrap().messages {
                    mailbox.mark(&message, Delivered::Done).unwrap();
                    send(&dir, &message.raw_id);
                }
            })
        },
        judge: |dir, resolver| judge_send(dir, resolver, Doubt::Send),
        ..ONE
    },
];
