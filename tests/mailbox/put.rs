//! A message for the guest is files and a row, both or neither.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use beneath::mailbox::{Delivered, Inbound, Mailbox, MailboxConfig, Routing, Standing};
use beneath::session::{Attachment, Outcome};
use beneath::{Ensured, ErrorKind, MessageId};
use rusqlite::Connection;

use crate::support::{Stage, number, texts};

fn id(raw: &str) -> MessageId {
    MessageId::new(raw)
}

#[test]
fn the_guest_finds_the_row_and_the_files_that_it_names() {
    let stage = Stage::new();
    let from = Routing::default().with_channel("chat").with_platform("room").with_thread("t");
    let photo = Attachment::from_bytes("bytes").with_name("../../photo.png");
    let bad = Attachment::from_bytes("x").with_name("bad").with_declared_size(7);
    let message = Inbound::new(&id("m-1"), "chat", "hello").with_from(from).with_attachments([photo, bad]);
    let put = stage.mailbox.put(message).unwrap();
    assert_eq!((put.seq.get(), put.how, put.is_complete()), (2, Ensured::Created, false));
    assert_eq!(put.refused().map(|(_, error)| error.kind()).collect::<Vec<_>>(), [ErrorKind::InvalidData]);

    let inbound = stage.inbound();
    let row = "SELECT seq || id || kind || content || channel || platform || thread || status || tries FROM messages_in";
    assert_eq!(texts(&inbound, row), ["2m-1chathellochatroomtpending0"]);
    let paths = texts(&inbound, "SELECT coalesce(path, refused) FROM files_in ORDER BY position");
    assert_eq!(paths, ["/session/inbox/m-1/photo.png", "invalid content"]);
    assert_eq!(fs::read(stage.guest("inbox/m-1/photo.png")).unwrap(), b"bytes");
    assert_eq!(texts(&inbound, "PRAGMA journal_mode"), ["delete"]);
    assert!(!stage.share("inbound.db-journal").exists() && !stage.share("inbound.db-wal").exists());
}

#[test]
fn numbers_are_even_and_above_all_that_were_seen() {
    let mut stage = Stage::new();
    let put =
        |stage: &Stage, raw: &str| stage.mailbox.put(Inbound::new(&id(raw), "chat", "")).unwrap().seq.get();
    assert_eq!((put(&stage, "a"), put(&stage, "b")), (2, 4));
    stage.send(101, "x", "");
    assert_eq!(put(&stage, "c"), 6, "not seen yet");
    drop(stage.take());
    assert_eq!(put(&stage, "d"), 102);
    stage.reopen();
    assert_eq!(put(&stage, "e"), 104);
    // One that no guest may use does not count.
    stage.send(i64::MAX - 2, "y", "");
    assert!(!stage.take().is_complete());
    assert_eq!(put(&stage, "f"), 106);
    stage.send(i64::MAX / 2, "z", "");
    drop(stage.take());
    stage.reopen();
    assert_eq!(put(&stage, "g"), i64::MAX / 2 + 1);
    assert_eq!(put(&stage, "h"), i64::MAX / 2 + 3);
}

#[test]
fn the_last_number_is_the_last() {
    let stage = Stage::new();
    let put = |raw: &str| stage.mailbox.put(Inbound::new(&id(raw), "chat", "")).map(|put| put.seq.get());
    let host = Connection::open(stage.share("inbound.db")).unwrap();
    let sql = "INSERT INTO messages_in (seq, id, kind, content, created) VALUES (?1, 'far', 'chat', '', 0)";
    host.execute(sql, [i64::MAX - 5]).unwrap();
    assert_eq!(put("a").unwrap(), i64::MAX - 3);
    assert_eq!(put("b").unwrap(), i64::MAX - 1);
    assert_eq!(put("c").unwrap_err().kind(), ErrorKind::TooMany);
    let file = [Attachment::from_bytes("bytes").with_name("a")];
    let error = stage.mailbox.put(Inbound::new(&id("d"), "chat", "").with_attachments(file)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooMany);
    assert!(!stage.guest("inbox/d").exists());
    assert_eq!(put("a").unwrap(), i64::MAX - 3, "what is there is found");
}

#[test]
fn a_message_that_is_put_again_is_there_once() {
    let mut stage = Stage::new();
    let put = |stage: &Stage, content| {
        let file = Attachment::from_bytes("bytes").with_name("a");
        stage.mailbox.put(Inbound::new(&id("m"), "chat", content).with_attachments([file])).unwrap()
    };
    let first = put(&stage, "one");
    fs::remove_file(stage.guest("inbox/m/a")).unwrap();
    stage.reopen();
    let second = put(&stage, "two");
    assert_eq!((second.seq, second.how, second.delivery), (first.seq, Ensured::Existed, None));
    assert!(!stage.guest("inbox/m/a").exists(), "what the guest has removed stays so");
    assert_eq!(texts(&stage.inbound(), "SELECT content FROM messages_in"), ["one"]);
}

#[test]
fn files_of_an_earlier_try_are_found_again() {
    let stage = Stage::new();
    let file = || Attachment::from_bytes("bytes").with_name("a");
    assert!(stage.session.inbox().deliver(&id("m"), [file()]).is_complete());
    let put = stage.mailbox.put(Inbound::new(&id("m"), "chat", "").with_attachments([file()])).unwrap();
    assert!(matches!(put.delivery.unwrap().outcomes(), [Outcome::AlreadySaved(_)]));
    assert_eq!(number(&stage.inbound(), "SELECT count(*) FROM messages_in"), 1);
}

/// The guest can lock what it can read. It hurts itself alone.
#[test]
fn a_guest_that_holds_a_lock_gets_no_message_and_no_files() {
    let busy = Duration::from_millis(100);
    let stage = Stage::with_config(MailboxConfig::default().with_busy(busy));
    let guest = stage.inbound();
    guest.execute_batch("BEGIN; SELECT count(*) FROM messages_in").unwrap();
    let file = || [Attachment::from_bytes("bytes").with_name("a")];
    let start = Instant::now();
    let error = stage.mailbox.put(Inbound::new(&id("m"), "chat", "x").with_attachments(file())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(start.elapsed() >= busy && error.is_transient());
    assert!(!stage.guest("inbox/m").exists(), "the files are taken back");
    guest.execute_batch("COMMIT").unwrap();
    assert!(stage.mailbox.put(Inbound::new(&id("m"), "chat", "x").with_attachments(file())).is_ok());
}

/// Nor does it keep back what it sends itself.
#[test]
fn a_guest_that_holds_a_lock_keeps_no_mark_back() {
    let stage = Stage::new();
    for (seq, raw) in [(1, "a"), (3, "b")] {
        stage.send(seq, raw, "x");
    }
    let guest = stage.inbound();
    guest.execute_batch("BEGIN; SELECT count(*) FROM messages_in").unwrap();
    let routing = Routing::default().with_channel("chat");
    stage.mailbox.set_routing(&routing).unwrap();
    for message in &stage.take().messages {
        assert_eq!(stage.mailbox.mark(message, Delivered::Done).unwrap(), Standing::Done);
    }
    assert!(stage.take().messages.is_empty());
    assert_eq!(number(&guest, "SELECT count(*) FROM delivered"), 0);
    guest.execute_batch("COMMIT").unwrap();
    // The copies are completed once that is possible, at the latest when there is something to do.
    stage.send(5, "c", "x");
    drop(stage.take());
    assert_eq!(texts(&guest, "SELECT id FROM delivered ORDER BY id"), ["a", "b"]);
    assert_eq!(texts(&guest, "SELECT channel FROM routing"), ["chat"]);
}

/// A guest that reads for long misses nothing, although it sends nothing more.
#[test]
fn a_copy_that_waited_for_the_guest_is_written_by_the_next_look() {
    let stage = Stage::new();
    stage.send(1, "a", "x");
    let guest = stage.inbound();
    guest.execute_batch("BEGIN; SELECT count(*) FROM messages_in").unwrap();
    for message in &stage.take().messages {
        assert_eq!(stage.mailbox.mark(message, Delivered::Done).unwrap(), Standing::Done);
    }
    // Looked at in vain, and from here on nothing changes.
    for _ in 0..2 {
        assert!(stage.take().is_complete());
    }
    assert_eq!(number(&guest, "SELECT count(*) FROM delivered"), 0);
    guest.execute_batch("COMMIT").unwrap();
    assert!(stage.take().is_complete());
    assert_eq!(texts(&guest, "SELECT id FROM delivered"), ["a"]);
}

#[test]
fn the_guest_finds_the_routing_that_was_set_last_also_by_two_hosts_at_once() {
    let stage = Stage::new();
    let other = Mailbox::open(&stage.session).unwrap();
    let hosts = [&stage.mailbox, &other];
    for round in 0..200 {
        std::thread::scope(|scope| {
            for (number, host) in hosts.into_iter().enumerate() {
                let routing = Routing::default().with_thread(format!("{number} in {round}"));
                scope.spawn(move || host.set_routing(&routing).unwrap());
            }
        });
        // A copy that one kept the other from writing.
        let lock = stage.session.try_lock().unwrap();
        for host in hosts {
            assert!(host.take(&lock, 1).unwrap().is_complete());
        }
        let kept = stage.mailbox.routing().unwrap().unwrap();
        assert_eq!(texts(&stage.inbound(), "SELECT thread FROM routing"), [kept.thread().unwrap()]);
    }
}

#[test]
fn a_row_that_cannot_be_written_takes_its_files_along() {
    let stage = Stage::new();
    let sql = "ALTER TABLE files_in RENAME TO elsewhere";
    Connection::open(stage.share("inbound.db")).unwrap().execute_batch(sql).unwrap();
    let file = [Attachment::from_bytes("bytes").with_name("a")];
    let error = stage.mailbox.put(Inbound::new(&id("m"), "chat", "x").with_attachments(file)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(!stage.guest("inbox/m").exists());
    assert_eq!(number(&stage.inbound(), "SELECT count(*) FROM messages_in"), 0);
}

#[test]
fn one_id_that_many_put_at_once_is_one_message_with_its_files() {
    let stage = Stage::new();
    let hows = std::thread::scope(|scope| {
        let put = |number: usize| {
            let mailbox = Mailbox::open(&stage.session).unwrap();
            let files = ["a", "b", "c"].map(|name| Attachment::from_bytes(name).with_name(name));
            let id = id(&format!("m{}", number % 3));
            mailbox.put(Inbound::new(&id, "chat", "x").with_attachments(files)).unwrap().how
        };
        let threads: Vec<_> = (0..12).map(|number| scope.spawn(move || put(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(hows.iter().filter(|how| **how == Ensured::Created).count(), 3);
    let inbound = stage.inbound();
    assert_eq!(number(&inbound, "SELECT count(*) FROM messages_in"), 3);
    for path in texts(&inbound, "SELECT path FROM files_in") {
        assert!(stage.guest(path.strip_prefix("/session/").unwrap()).exists(), "{path}");
    }
    assert_eq!(number(&inbound, "SELECT count(*) FROM files_in"), 9);
}

#[test]
fn a_removed_session_takes_no_message() {
    let stage = Stage::new();
    assert!(stage.sessions.remove(&beneath::SessionId::new("s")).unwrap().is_complete());
    let error = stage.mailbox.put(Inbound::new(&id("m"), "chat", "")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(stage.mailbox.set_routing(&Routing::default()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(stage.mailbox.due(SystemTime::now()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_session_of_places_says_where_the_guests_database_is() {
    use beneath::session::Parts;
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    let open = |name: &str| {
        fs::create_dir(dir.path().join(name)).unwrap();
        beneath::Root::open_ambient(dir.path().join(name), beneath::ambient_authority()).unwrap()
    };
    let mount = |path: &str| beneath::MountPoint::new(path).unwrap();
    let places = Parts { inbox: mount("/in"), outbox: mount("/out"), workspace: mount("/work") };
    let roots = Parts { inbox: open("in"), outbox: open("out"), workspace: open("work") };
    let session = beneath::Session::from_places(roots, open("host"))
        .unwrap()
        .with_config(beneath::SessionsConfig::default().with_places(places))
        .with_share(open("share"));
    assert_eq!(Mailbox::open(&session).unwrap_err().kind(), ErrorKind::Escape);
    let config =
        MailboxConfig::default().with_outbound("/work/.outbound.db").with_heartbeat("/work/.heartbeat");
    let mailbox = Mailbox::open_with(&session, config).unwrap();
    let file = Attachment::from_bytes("bytes").with_name("a");
    assert!(mailbox.put(Inbound::new(&id("m"), "chat", "").with_attachments([file])).unwrap().is_complete());
    let guest = Connection::open(dir.path().join("work/.outbound.db")).unwrap();
    let sql = "INSERT INTO messages_out (id, seq, kind, content) VALUES ('a', 1, 'chat', 'x')";
    guest.execute_batch(sql).unwrap();
    let lock = session.try_lock().unwrap();
    assert_eq!(mailbox.take(&lock, 1).unwrap().messages.len(), 1);
    assert!(dir.path().join("in/m/a").exists());
    assert_eq!(mailbox.stuck(SystemTime::now()).unwrap(), beneath::mailbox::Verdict::Working);
}

/// Also if there is something to complete.
#[test]
fn a_guest_that_holds_a_lock_keeps_no_host_from_opening() {
    let config = MailboxConfig::default().with_busy(Duration::from_millis(50));
    let mut stage = Stage::with_config(config);
    stage.send(1, "a", "x");
    let guest = stage.inbound();
    guest.execute_batch("BEGIN; SELECT count(*) FROM messages_in").unwrap();
    for message in &stage.take().messages {
        stage.mark(message, Delivered::Done);
    }
    stage.reopen();
    guest.execute_batch("COMMIT").unwrap();
    drop(stage.take());
    assert_eq!(texts(&guest, "SELECT id FROM delivered"), ["a"]);
}

#[test]
fn a_session_without_a_share_has_no_mailbox() {
    let stage = Stage::new();
    let root = beneath::Root::open_ambient(stage.path(), beneath::ambient_authority()).unwrap();
    let plain = beneath::Sessions::new(root, Default::default());
    let (session, _) = plain.create(&beneath::SessionId::new("plain")).unwrap();
    assert_eq!(Mailbox::open(&session).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn what_is_in_the_place_of_a_database_of_the_host_is_refused() {
    let stage = Stage::new();
    let open = || Mailbox::open(&stage.session).map(drop).map_err(|error| error.kind());
    fs::write(stage.share("inbound.db"), "no database at all").unwrap();
    assert_eq!(open(), Err(ErrorKind::InvalidData));
    fs::remove_file(stage.share("inbound.db")).unwrap();
    Connection::open(stage.share("inbound.db")).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    assert_eq!(open(), Err(ErrorKind::InvalidData));
    fs::remove_file(stage.share("inbound.db")).unwrap();
    assert_eq!(open(), Ok(()));
    let later = Connection::open(stage.share("inbound.db")).unwrap();
    later.pragma_update(None, "user_version", 99).unwrap();
    assert_eq!(open(), Err(ErrorKind::Unsupported));
}

#[test]
fn the_session_may_be_moved_while_its_mailbox_is_open() {
    let stage = Stage::new();
    fs::rename(stage.path().join("sessions"), stage.path().join("moved")).unwrap();
    assert_eq!(stage.mailbox.put(Inbound::new(&id("m"), "chat", "")).unwrap().seq.get(), 2);
    assert!(!stage.path().join("sessions").exists());
    // A link to where it went, from where it was, is not the way to it.
    std::os::unix::fs::symlink("moved", stage.path().join("sessions")).unwrap();
    assert_eq!(stage.mailbox.put(Inbound::new(&id("n"), "chat", "")).unwrap().seq.get(), 4);
    fs::rename(stage.path().join("moved"), stage.path().join("again")).unwrap();
    fs::remove_file(stage.path().join("sessions")).unwrap();
    std::os::unix::fs::symlink("again", stage.path().join("moved")).unwrap();
    assert_eq!(stage.mailbox.put(Inbound::new(&id("o"), "chat", "")).unwrap().seq.get(), 6);
}

#[test]
fn a_mailbox_moves_to_other_threads() {
    fn moves<T: Send + Sync + Clone + 'static>(_: &T) {}
    moves(&Stage::new().mailbox);
}
