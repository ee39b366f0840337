//! One bad row costs one row.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use beneath::mailbox::{
    AckStatus, Delivered, GuestStatus, Inbound, MailboxConfig, Retries, Standing, Verdict,
};
use beneath::{ErrorKind, MessageId};

use crate::support::{Stage, contents, cpu_time, ids, number, refused, texts};

/// A table that takes anything.
const LOOSE: &str = "CREATE TABLE messages_out (id, seq, kind, content, in_reply_to, channel, platform, thread, deliver_after);
    INSERT INTO messages_out (id, seq, kind, content) VALUES ('first', 1, 'chat', 'good');
    INSERT INTO messages_out (id, seq, kind, content) VALUES ('last', 9223, 'chat', 'good');";

#[test]
fn a_row_that_is_not_as_it_should_be_is_refused_by_itself() {
    use ErrorKind::{AlreadyExists, InvalidData, TooLarge};
    let long = "x".repeat(600);
    // The columns id, seq, kind, content and others; what the row is refused as.
    let cases: &[(&str, &str, &str, ErrorKind)] = &[
        ("an id of bytes", "x'6161', 3, 'chat', 'c'", "", InvalidData),
        ("an id of nothing", "NULL, 3, 'chat', 'c'", "", InvalidData),
        ("an id of a number", "7, 3, 'chat', 'c'", "", InvalidData),
        ("an id that is no UTF-8", "CAST(x'ff' AS TEXT), 3, 'chat', 'c'", "", InvalidData),
        ("a long id", "hex(zeroblob(300)), 3, 'chat', 'c'", "", InvalidData),
        ("no number", "'bad', NULL, 'chat', 'c'", "bad", InvalidData),
        ("an even number", "'bad', 2, 'chat', 'c'", "bad", InvalidData),
        ("zero", "'bad', 0, 'chat', 'c'", "bad", InvalidData),
        ("a negative number", "'bad', -1, 'chat', 'c'", "bad", InvalidData),
        ("a number of text", "'bad', '3', 'chat', 'c'", "bad", InvalidData),
        ("a real number", "'bad', 3.0, 'chat', 'c'", "bad", InvalidData),
        ("the last number but one", "'bad', 9223372036854775805, 'chat', 'c'", "bad", InvalidData),
        ("the last number", "'bad', 9223372036854775807, 'chat', 'c'", "bad", InvalidData),
        ("content of bytes", "'bad', 3, 'chat', x'00'", "bad", InvalidData),
        ("no content", "'bad', 3, 'chat', NULL", "bad", InvalidData),
        ("no kind", "'bad', 3, NULL, 'c'", "bad", InvalidData),
        ("content that is no UTF-8", "'bad', 3, 'chat', CAST(x'ff' AS TEXT)", "bad", InvalidData),
        ("much content", "'bad', 3, 'chat', hex(zeroblob(1048576))", "bad", TooLarge),
        ("a long kind", "'bad', 3, hex(zeroblob(1000)), 'c'", "bad", TooLarge),
        ("an id that was used", "'first', 3, 'chat', 'other'", "first", AlreadyExists),
        ("an id that looks as another's directory", "'FIRST', 4, 'chat', 'other'", "FIRST", InvalidData),
    ];
    assert!(long.len() > 512);
    for (what, values, subject, kind) in cases {
        let stage = Stage::new();
        stage.plant(&format!("{LOOSE} INSERT INTO messages_out (id, seq, kind, content) VALUES ({values})"));
        let taken = stage.take();
        assert_eq!(ids(&taken), ["first", "last"], "{what}");
        assert_eq!(refused(taken.refused()), [((*subject).to_owned(), *kind)], "{what}");
        assert_eq!(contents(&taken), ["good", "good"], "{what}");
        // And each time again, also if nothing has changed.
        for message in &taken.messages {
            stage.mark(message, Delivered::Done);
        }
        for _ in 0..2 {
            let taken = stage.take();
            assert!(taken.messages.is_empty() && taken.refused.total == 1, "{what}");
        }
    }
}

#[test]
fn a_message_may_be_as_large_as_the_config_says() {
    let config = MailboxConfig::default().with_image_bytes(64 << 20).with_content_bytes(20 << 20);
    let stage = Stage::with_config(config);
    stage.send(1, "small", "x");
    stage.send(3, "large", &"x".repeat(19 << 20));
    stage.send(5, "too large", &"x".repeat((20 << 20) + 1));
    let taken = stage.take();
    assert_eq!(ids(&taken), ["small"], "one that is larger than all that comes at once comes alone");
    assert_eq!(refused(taken.refused()), [("too large".to_owned(), ErrorKind::TooLarge)]);
    stage.mark(&taken.messages[0], Delivered::Done);
    assert_eq!(stage.take().messages[0].content.len(), 19 << 20);
}

#[test]
fn ids_that_are_paths_are_mapped_and_their_files_stay_in_the_outbox() {
    let stage = Stage::new();
    let raws = ["../../.ssh", ".ssh", "/etc", "a/b", "spaces/AAA/messages/B.B", "", "m\0x", "con"];
    for (number, raw) in (0..).zip(raws) {
        stage.send(2 * number + 1, raw, "c");
    }
    let taken = stage.take();
    assert_eq!(ids(&taken), raws);
    for message in &taken.messages {
        assert!(!message.id.as_str().contains('/') && !message.id.as_str().starts_with('.'));
        assert!(stage.session.outbox().claim(&message.id).unwrap().is_none());
        stage.mark(message, Delivered::Done);
    }
    assert!(stage.take().messages.is_empty());
    assert_eq!(number(&stage.inbound(), "SELECT count(*) FROM delivered"), 8);
}

#[test]
fn many_bad_rows_are_counted_and_keep_nothing_back() {
    let stage = Stage::new();
    stage.plant(&format!(
        "{LOOSE} WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO messages_out (id, seq, kind, content) SELECT 'even' || i, 2 * i, 'chat', 'x' FROM n"
    ));
    let taken = stage.take();
    assert_eq!(ids(&taken), ["first", "last"]);
    assert_eq!((taken.refused.total, taken.refused.first.len()), (20_000, 1000));
}

#[test]
fn more_messages_than_can_be_sorted_come_by_and_by() {
    let stage = Stage::new();
    stage.plant(&format!(
        "{LOOSE} WITH RECURSIVE n(i) AS (SELECT 15000 UNION ALL SELECT i - 1 FROM n WHERE i > 1)
         INSERT INTO messages_out (id, seq, kind, content) SELECT 'm' || i, 10000 + 2 * i + 1, 'chat', 'x' FROM n"
    ));
    let taken = stage.take_up_to(3);
    assert_eq!((ids(&taken), taken.more), (vec!["first", "last", "m1"], true));
    let rest = stage.take_up_to(20_000);
    assert_eq!((rest.messages.len(), rest.more), (10_000, true));
}

#[test]
fn acks_are_read_and_settled_once() {
    let stage = Stage::new();
    let put = |raw: &str| stage.mailbox.put(Inbound::new(&MessageId::new(raw), "chat", "")).unwrap();
    for raw in ["a", "b", "c"] {
        assert!(put(raw).is_complete());
    }
    for (id, status) in [("a", "completed"), ("b", "failed"), ("c", "processing"), ("d", "completed")] {
        stage.ack(id, status, 1000);
    }
    stage.ack("e", "dancing", 1000);
    stage.ack("../x", "completed", 1000);
    let acks = stage.mailbox.acks().unwrap();
    let found: Vec<_> = acks.acks.iter().map(|ack| (ack.id.as_str(), ack.status)).collect();
    use AckStatus::{Completed, Failed, Processing};
    assert_eq!(found, [("a", Completed), ("b", Failed), ("c", Processing), ("d", Completed)]);
    assert!(acks.acks.iter().all(|ack| ack.changed == UNIX_EPOCH + Duration::from_secs(1)));
    let kinds = [("e".to_owned(), ErrorKind::InvalidData), (String::new(), ErrorKind::InvalidName)];
    assert_eq!(refused(acks.refused()), kinds);

    assert_eq!(stage.mailbox.due(SystemTime::now()).unwrap(), 3);
    let settled = stage.mailbox.settle().unwrap();
    assert_eq!((settled.completed, settled.failed, settled.refused.total), (1, 1, 2));
    let statuses = texts(&stage.inbound(), "SELECT id || ' ' || status FROM messages_in ORDER BY seq");
    assert_eq!(statuses, ["a completed", "b failed", "c pending"]);
    let again = stage.mailbox.settle().unwrap();
    assert_eq!((again.completed, again.failed), (0, 0));
    // What is settled stays so, whatever the guest says later.
    stage.ack("a", "failed", 2000);
    assert_eq!(stage.mailbox.settle().unwrap().failed, 0);
    assert_eq!(stage.mailbox.due(SystemTime::now()).unwrap(), 1);
}

#[test]
fn a_message_that_ends_every_guest_is_given_to_five() {
    let stage =
        Stage::with_config(MailboxConfig::default().with_retries(Retries::new(5, Duration::from_secs(5))));
    let id = MessageId::new("m");
    assert!(stage.mailbox.put(Inbound::new(&id, "chat", "")).unwrap().is_complete());
    for (tries, pause) in [(1, 5), (2, 10), (3, 20), (4, 40)] {
        let before = SystemTime::now();
        match stage.mailbox.retry(&id).unwrap() {
            Standing::Pending { tries: found, not_before } => {
                let waits = not_before.duration_since(before).unwrap();
                assert_eq!(found, tries);
                assert!(waits.as_millis() + 1 >= pause * 1000, "{tries}: {waits:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(stage.mailbox.due(SystemTime::now()).unwrap(), 0);
        assert_eq!(stage.mailbox.due(SystemTime::now() + Duration::from_secs(60)).unwrap(), 1);
    }
    for _ in 0..2 {
        assert_eq!(stage.mailbox.retry(&id).unwrap(), Standing::Failed);
    }
    assert_eq!(stage.mailbox.due(SystemTime::now() + Duration::from_secs(600)).unwrap(), 0);
    assert_eq!(stage.mailbox.retry(&MessageId::new("other")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_guest_that_hangs_is_found_by_what_it_left() {
    let stage = Stage::new();
    let now = SystemTime::now();
    let ago = |seconds: u64| {
        let then = now - Duration::from_secs(seconds);
        then.duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
    };
    let activity = |tool: Option<&str>, timeout: i64| {
        let sql = "INSERT OR REPLACE INTO activity (only, tool, timeout) VALUES (1, ?1, ?2)";
        stage.outbound().execute(sql, (tool, timeout)).unwrap();
    };
    let stuck = || stage.mailbox.stuck(now).unwrap();
    assert_eq!(stuck(), Verdict::Working);
    stage.ack("a", "processing", ago(30));
    assert_eq!(stuck(), Verdict::Working);
    stage.ack("a", "processing", ago(90));
    assert!(matches!(stuck(), Verdict::Stuck(id, _) if id.as_str() == "a"));
    activity(Some("build"), 600_000);
    assert_eq!(stuck(), Verdict::Working);
    activity(None, 600_000);
    assert!(matches!(stuck(), Verdict::Stuck(..)), "no tool runs");
    // A heartbeat since.
    std::fs::write(stage.guest(".heartbeat"), "").unwrap();
    assert_eq!(stuck(), Verdict::Working);
    // One in the future is one of now; a FIFO or link is none.
    std::fs::remove_file(stage.guest(".heartbeat")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", stage.guest(".heartbeat")).unwrap();
    assert_eq!(stage.mailbox.stuck(now).unwrap_err().kind(), ErrorKind::Symlink);
    std::fs::remove_file(stage.guest(".heartbeat")).unwrap();
    // Claims of the future, and a tool that takes for ever.
    stage.ack("a", "processing", i64::MAX);
    activity(Some("build"), i64::MAX);
    assert_eq!(stuck(), Verdict::Working);
    // A database that cannot be read is no verdict.
    stage.plant_bytes(b"no database");
    assert_eq!(stage.mailbox.stuck(now).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn the_status_of_the_guest_is_kept() {
    let mut stage = Stage::new();
    assert_eq!(stage.mailbox.status().unwrap(), GuestStatus::Stopped);
    assert_eq!(stage.mailbox.last_active().unwrap(), None);
    stage.mailbox.set_status(GuestStatus::Idle).unwrap();
    assert_eq!(stage.mailbox.last_active().unwrap(), None);
    stage.mailbox.set_status(GuestStatus::Running).unwrap();
    let active = stage.mailbox.last_active().unwrap().unwrap();
    stage.mailbox.set_status(GuestStatus::Stopped).unwrap();
    stage.reopen();
    assert_eq!(stage.mailbox.status().unwrap(), GuestStatus::Stopped);
    assert_eq!(stage.mailbox.last_active().unwrap(), Some(active));
    std::thread::sleep(Duration::from_millis(2));
    assert!(stage.mailbox.put(Inbound::new(&MessageId::new("m"), "chat", "")).unwrap().is_complete());
    assert!(stage.mailbox.last_active().unwrap().unwrap() > active, "a message counts");
}

/// Acks of messages that nobody has put cost about what reading them costs.
#[test]
fn many_acks_of_nothing_are_settled_in_time() {
    let stage = Stage::new();
    assert!(stage.mailbox.put(Inbound::new(&MessageId::new("m7"), "chat", "")).unwrap().is_complete());
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99000) \
                INSERT INTO acks SELECT 'm' || i, 'completed', 1 FROM n";
    stage.outbound().execute_batch(many).unwrap();
    let start = cpu_time();
    assert_eq!(stage.mailbox.acks().unwrap().acks.len(), 99_000);
    let (reading, start) = (cpu_time() - start, cpu_time());
    assert_eq!(stage.mailbox.settle().unwrap().completed, 1);
    let settling = cpu_time() - start;
    assert!(settling < 5 * reading, "{settling:?}, and reading took {reading:?}");
}
