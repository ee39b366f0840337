//! What the guest sends is taken in order, and marked.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use beneath::mailbox::{
    Delivered, Earlier, Mailbox, MailboxConfig, Origin, Post, Retries, Routing, Standing,
};
use beneath::{ErrorKind, MessageId, SessionId};

use crate::support::{Stage, contents, ids, refused, texts};

fn millis(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// No pause between tries.
fn at_once(tries: u32) -> Stage {
    Stage::with_config(MailboxConfig::default().with_retries(Retries::new(tries, Duration::ZERO)))
}

#[test]
fn messages_come_by_their_numbers_until_they_are_marked() {
    let stage = Stage::new();
    for (seq, id) in [(5, "c"), (1, "b"), (3, "a")] {
        stage.send(seq, id, &format!("content of {id}"));
    }
    let taken = stage.take();
    assert_eq!(ids(&taken), ["b", "a", "c"]);
    assert!(taken.is_complete() && taken.messages.iter().all(|message| message.earlier == Earlier::Never));
    assert_eq!(ids(&stage.take()), ["b", "a", "c"], "what is not marked is taken again");

    assert_eq!(stage.mark(&taken.messages[1], Delivered::Done), Standing::Done);
    assert_eq!(ids(&stage.take()), ["b", "c"]);
    let two = stage.take_up_to(1);
    assert_eq!((ids(&two), two.more), (vec!["b"], true));
    stage.mark(&taken.messages[0], Delivered::Failed);
    stage.mark(&taken.messages[2], Delivered::Done);
    assert!(stage.take().messages.is_empty());
    let told = texts(&stage.inbound(), "SELECT id || ' ' || outcome FROM delivered ORDER BY id");
    assert_eq!(told, ["a delivered", "b failed", "c delivered"]);
}

#[test]
fn a_failure_for_now_waits_and_the_last_one_is_final() {
    let stage = Stage::new();
    stage.send(1, "a", "");
    let taken = stage.take();
    let before = SystemTime::now();
    let Standing::Pending { tries: 1, not_before } = stage.mark(&taken.messages[0], Delivered::Again) else {
        panic!("it is pending")
    };
    let pause = not_before.duration_since(before).unwrap();
    assert!(pause > Duration::from_secs(4) && pause < Duration::from_secs(60), "{pause:?}");
    assert!(stage.take().messages.is_empty(), "not yet");

    let stage = at_once(3);
    stage.send(1, "a", "");
    for tries in 1..=2 {
        let taken = stage.take();
        let earlier = if tries == 1 { Earlier::Never } else { Earlier::Failed(tries - 1) };
        assert_eq!(taken.messages[0].earlier, earlier);
        assert!(matches!(stage.mark(&taken.messages[0], Delivered::Again), Standing::Pending { .. }));
    }
    let taken = stage.take();
    assert_eq!(stage.mark(&taken.messages[0], Delivered::Again), Standing::Failed);
    assert!(stage.take().messages.is_empty());
}

#[test]
fn a_try_that_never_ended_is_told_and_the_last_one_is_given_up() {
    let mut stage = at_once(2);
    stage.send(1, "a", "");
    let taken = stage.take();
    stage.mark(&taken.messages[0], Delivered::Trying);
    // The host dies.
    stage.reopen();
    let taken = stage.take();
    assert_eq!(taken.messages[0].earlier, Earlier::Unfinished(1));
    stage.mark(&taken.messages[0], Delivered::Trying);
    stage.reopen();
    let taken = stage.take();
    assert!(taken.messages.is_empty());
    assert_eq!(refused(taken.refused()), [("a".to_owned(), ErrorKind::TooMany)]);
    assert_eq!(texts(&stage.inbound(), "SELECT outcome FROM delivered"), ["failed"]);
    stage.reopen();
    assert!(stage.take().is_complete(), "it is reported once and recorded");
}

#[test]
fn what_was_sent_is_never_sent_again() {
    let stage = at_once(5);
    stage.send(1, "a", "");
    let taken = stage.take();
    stage.mark(&taken.messages[0], Delivered::Done);
    for outcome in [Delivered::Trying, Delivered::Again, Delivered::Failed] {
        assert_eq!(stage.mark(&taken.messages[0], outcome), Standing::Done);
    }
    assert!(stage.take().messages.is_empty());
}

#[test]
fn a_message_that_is_put_off_waits_and_one_put_off_for_ever_is_refused() {
    let stage = Stage::new();
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now();
    for (seq, id, after) in [
        (1, "past", millis(now - hour)),
        (3, "later", millis(now + hour)),
        (5, "never", i64::MAX),
        (7, "old", i64::MIN),
    ] {
        stage.send(seq, id, "");
        let sql = "UPDATE messages_out SET deliver_after = ?1 WHERE id = ?2";
        stage.outbound().execute(sql, (after, id)).unwrap();
    }
    let taken = stage.take();
    assert_eq!(ids(&taken), ["past", "old"]);
    assert_eq!(refused(taken.refused()), [("never".to_owned(), ErrorKind::InvalidData)]);
}

#[test]
fn the_lock_must_be_that_of_the_session() {
    let stage = Stage::new();
    drop(stage.session.try_lock().unwrap());
    let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
    let lock = other.try_lock().unwrap();
    assert_eq!(stage.mailbox.take(&lock, 1).unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn the_host_posts_beside_the_guest_and_no_guest_can_keep_it_back() {
    let mut stage = Stage::new();
    // The guest uses the id first, and has it marked.
    stage.send(1, "notice", "from the guest");
    let taken = stage.take();
    stage.mark(&taken.messages[0], Delivered::Done);
    let to = Routing::default().with_channel("chat");
    let post = Post::new(&MessageId::new("notice"), "chat", "from the host").with_to(to.clone());
    assert_eq!(stage.mailbox.post(&post).unwrap(), beneath::Ensured::Created);
    assert_eq!(stage.mailbox.post(&post).unwrap(), beneath::Ensured::Existed);
    stage.send(3, "b", "b");
    let taken = stage.take();
    assert_eq!(contents(&taken), ["from the host", "b"]);
    let posted = &taken.messages[0];
    assert_eq!((posted.origin, posted.seq.get(), &posted.to), (Origin::Host, 2, &to));
    assert_ne!(posted.key(), "guest:notice");

    // It is handed out also where the guest's database cannot be read.
    stage.plant_bytes(b"no database");
    stage.reopen();
    let taken = stage.take();
    assert_eq!(contents(&taken), ["from the host"]);
    assert_eq!(refused(taken.refused()), [("/session/outbound.db".to_owned(), ErrorKind::InvalidData)]);
    stage.mark(&taken.messages[0], Delivered::Done);
    assert!(stage.take().messages.is_empty());
    assert!(texts(&stage.inbound(), "SELECT outcome FROM delivered WHERE id <> 'notice'").is_empty());
}

#[test]
fn a_database_that_has_not_changed_is_not_read_and_one_that_has_is() {
    let stage = Stage::new();
    stage.send(1, "a", "");
    let taken = stage.take();
    stage.mark(&taken.messages[0], Delivered::Done);
    assert!(stage.take().messages.is_empty());
    // While a writer holds it no read gets through, so an answer without a refusal was none.
    let guest = stage.outbound();
    guest.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(stage.take().is_complete());
    guest
        .execute_batch("INSERT INTO messages_out (id, seq, kind, content) VALUES ('b', 3, 'chat', '')")
        .unwrap();
    guest.execute_batch("COMMIT").unwrap();
    assert_eq!(ids(&stage.take()), ["b"]);
    // Another host marks it.
    let other = Mailbox::open(&stage.session).unwrap();
    let message = stage.take().messages.remove(0);
    other.mark(&message, Delivered::Done).unwrap();
    assert!(stage.take().messages.is_empty());
    // Another host posts.
    other.post(&Post::new(&MessageId::new("p"), "chat", "posted")).unwrap();
    assert_eq!(contents(&stage.take()), ["posted"]);
}

#[test]
fn a_pause_that_is_over_is_noticed_although_nothing_has_changed() {
    let pause = Duration::from_millis(50);
    let stage = Stage::with_config(MailboxConfig::default().with_retries(Retries::new(5, pause)));
    stage.send(1, "a", "");
    let taken = stage.take();
    stage.mark(&taken.messages[0], Delivered::Again);
    let patience = Duration::from_secs(60);
    beneath_kit::child::wait_until("the second try", patience, || !stage.take().messages.is_empty());
}

#[test]
fn much_content_comes_in_parts() {
    let stage = Stage::new();
    let content = "x".repeat(1 << 20);
    for number in 0..7 {
        stage.send(2 * number + 1, &format!("m{number}"), &content);
    }
    let (mut rounds, mut total) = (0, 0);
    loop {
        let taken = stage.take();
        if taken.messages.is_empty() {
            break;
        }
        assert!(taken.messages.len() <= 4 && taken.more == (total + taken.messages.len() < 7));
        for message in &taken.messages {
            stage.mark(message, Delivered::Done);
        }
        (rounds, total) = (rounds + 1, total + taken.messages.len());
    }
    assert_eq!((rounds, total), (2, 7));
}

#[test]
fn a_sweep_removes_what_is_done_and_no_mark_whose_message_is_there() {
    let mut stage = Stage::new();
    for id in ["one", "two"] {
        let put = stage.mailbox.put(beneath::mailbox::Inbound::new(&MessageId::new(id), "chat", "")).unwrap();
        stage.ack(id, "completed", 1);
        assert!(put.is_complete());
    }
    assert_eq!(stage.mailbox.settle().unwrap().completed, 2);
    stage.mailbox.post(&Post::new(&MessageId::new("p"), "chat", "")).unwrap();
    for (seq, id) in [(1, "stays"), (3, "goes")] {
        stage.send(seq, id, "");
    }
    for message in &stage.take().messages {
        stage.mark(message, Delivered::Done);
    }
    stage.outbound().execute("DELETE FROM messages_out WHERE id = 'goes'", ()).unwrap();
    assert_eq!(stage.mailbox.sweep(Duration::from_secs(3600)).unwrap(), Default::default());

    let swept = stage.mailbox.sweep(Duration::ZERO).unwrap();
    // The number that was given last stays.
    assert_eq!((swept.messages, swept.marks, swept.is_complete()), (1, 2, true));
    stage.reopen();
    assert!(stage.take().messages.is_empty(), "nothing is sent again");
    assert_eq!(texts(&stage.inbound(), "SELECT id FROM delivered"), ["stays"]);
    let put =
        stage.mailbox.put(beneath::mailbox::Inbound::new(&MessageId::new("three"), "chat", "")).unwrap();
    assert_eq!(put.seq.get(), 6);

    // Where it cannot be seen what the guest still has, marks stay.
    stage.plant_bytes(b"no database");
    let swept = stage.mailbox.sweep(Duration::ZERO).unwrap();
    assert_eq!((swept.marks, swept.is_complete()), (0, false));
}

/// A guest that hides its messages for a while does not have them sent again.
#[test]
fn a_sweep_keeps_the_marks_of_messages_that_are_hidden() {
    for hidden in [None, Some(Vec::new()), Some(crate::support::database("CREATE TABLE t(x)"))] {
        let stage = Stage::new();
        stage.mailbox.post(&Post::new(&MessageId::new("p"), "chat", "")).unwrap();
        stage.send(1, "a", "");
        for message in &stage.take().messages {
            stage.mark(message, Delivered::Done);
        }
        std::fs::rename(stage.guest("outbound.db"), stage.guest("kept.db")).unwrap();
        if let Some(bytes) = &hidden {
            stage.plant_bytes(bytes);
        }
        let swept = stage.mailbox.sweep(Duration::ZERO).unwrap();
        // That of the host's own message goes.
        assert_eq!((swept.marks, swept.is_complete()), (1, false), "{hidden:?}");
        std::fs::rename(stage.guest("kept.db"), stage.guest("outbound.db")).unwrap();
        assert!(stage.take().messages.is_empty(), "{hidden:?}");
        assert!(stage.mailbox.sweep(Duration::ZERO).unwrap().is_complete());
    }
}

/// An error of the host's own database is no fault of the guest's, and its messages do not wait for it.
#[test]
fn what_the_host_cannot_write_is_no_refusal_of_the_guests_database() {
    let stage = Stage::with_config(MailboxConfig::default().with_busy(Duration::from_millis(20)));
    stage.send(1, "a", "");
    let other = rusqlite::Connection::open(stage.path().join("sessions/s/host/state/mail.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let lock = stage.session.try_lock().unwrap();
    assert_eq!(stage.mailbox.take(&lock, 1).unwrap_err().kind(), ErrorKind::Busy);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(ids(&stage.mailbox.take(&lock, 1).unwrap()), ["a"]);
}
