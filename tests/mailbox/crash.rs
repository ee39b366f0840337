//! What the next host completes. The kills themselves are rows of `tests/session_kill`.

use beneath::MessageId;
use beneath::mailbox::{Delivered, Inbound, Mailbox, Routing};
use rusqlite::Connection;

use crate::support::{Stage, number, texts};

#[test]
fn the_guests_copies_are_completed_by_the_next_open() {
    let mut stage = Stage::new();
    stage.send(1, "a", "");
    let message = stage.take().messages.remove(0);
    stage.mark(&message, Delivered::Done);
    stage.mailbox.set_routing(&Routing::default().with_channel("new")).unwrap();
    // The host has died before the copies.
    let inbound = Connection::open(stage.share("inbound.db")).unwrap();
    inbound.execute_batch("DELETE FROM delivered; UPDATE routing SET channel = 'old'").unwrap();
    drop(inbound);
    stage.reopen();
    assert_eq!(texts(&stage.inbound(), "SELECT id || outcome FROM delivered"), ["adelivered"]);
    assert_eq!(texts(&stage.inbound(), "SELECT channel FROM routing"), ["new"]);
}

/// The guest sees a read-only mount, so it cannot roll back; the host does.
#[test]
fn a_journal_of_a_host_that_died_is_rolled_back_by_the_next_open() {
    let stage = Stage::new();
    let put = |stage: &Stage, raw: &str| {
        stage.mailbox.put(Inbound::new(&MessageId::new(raw), "chat", "x")).unwrap()
    };
    assert!(put(&stage, "a").is_complete());
    let host = Connection::open(stage.share("inbound.db")).unwrap();
    host.execute_batch("PRAGMA cache_spill = 1; PRAGMA cache_size = 1; BEGIN IMMEDIATE").unwrap();
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) \
                INSERT INTO messages_in (seq, id, kind, content, created) SELECT 2 * i + 2, 'n' || i, 'chat', hex(zeroblob(200)), 1 FROM n";
    host.execute_batch(many).unwrap();
    let (half, journal) =
        ["inbound.db", "inbound.db-journal"].map(|name| std::fs::read(stage.share(name)).unwrap()).into();
    host.execute_batch("ROLLBACK").unwrap();
    drop(host);
    std::fs::write(stage.share("inbound.db"), half).unwrap();
    std::fs::write(stage.share("inbound.db-journal"), journal).unwrap();

    let mailbox = Mailbox::open(&stage.session).unwrap();
    assert!(!stage.share("inbound.db-journal").exists());
    assert_eq!(number(&stage.inbound(), "SELECT count(*) FROM messages_in"), 1);
    assert_eq!(mailbox.put(Inbound::new(&MessageId::new("b"), "chat", "x")).unwrap().seq.get(), 4);
}

#[test]
fn an_empty_file_that_a_host_left_becomes_a_database() {
    let stage = Stage::new();
    for path in [stage.share("inbound.db"), stage.path().join("sessions/s/host/state/mail.db")] {
        std::fs::write(path, "").unwrap();
    }
    let mailbox = Mailbox::open(&stage.session).unwrap();
    assert_eq!(mailbox.put(Inbound::new(&MessageId::new("b"), "chat", "x")).unwrap().seq.get(), 2);
}
