//! WalkLimits hold for a message, however many calls bring it and whatever the sender's files do meanwhile.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::session::{Attachment, MessageLimits, Outcome, SessionsConfig};
use beneath::{ErrorKind, MessageId, ResolverChoice, SessionId};

use crate::support::{Stage, kinds, names, small};

fn id() -> MessageId {
    MessageId::new("42")
}

#[derive(Clone, Copy, Debug)]
enum How {
    Bytes,
    Reader,
}

/// A file of `length` bytes, each of them the last letter of its name.
fn content(name: &str, length: usize) -> Vec<u8> {
    vec![name.as_bytes()[name.len() - 1]; length]
}

/// Delivers one file of a message in a call of its own; what it was refused for, if it was.
fn send(stage: &Stage, how: How, name: &str, length: usize) -> Option<ErrorKind> {
    let bytes = content(name, length);
    let attachment = match how {
        How::Bytes => Attachment::from_bytes(&bytes),
        How::Reader => Attachment::from_reader(&bytes[..]),
    };
    let delivery = stage.session.inbox().deliver(&id(), [attachment.with_name(name)]);
    assert_eq!(delivery.outcomes().len(), 1);
    delivery.refusals().next().map(beneath::Error::kind)
}

#[test]
fn calls_with_one_id_share_the_limits_of_the_message() {
    for how in [How::Bytes, How::Reader] {
        let stage = Stage::with_config(small());
        assert_eq!(send(&stage, how, "a", 90), None);
        assert_eq!(send(&stage, how, "b", 90), None);
        assert_eq!(send(&stage, how, "c", 90), Some(ErrorKind::TooLarge), "{how:?}: 270 bytes of 250");
        assert_eq!(send(&stage, how, "d", 70), None, "{how:?}: 250 bytes of 250");
        assert_eq!(send(&stage, how, "e", 1), Some(ErrorKind::TooLarge), "{how:?}: 251 bytes of 250");
        assert_eq!(send(&stage, how, "f", 0), None);
        assert_eq!(send(&stage, how, "g", 0), Some(ErrorKind::TooMany), "{how:?}: five files of four");
        assert_eq!(names(&stage.guest("inbox/42")), ["a", "b", "d", "f"]);
    }
}

#[test]
fn a_message_at_its_limits_is_found_when_it_is_delivered_again() {
    for how in [How::Bytes, How::Reader] {
        let stage = Stage::with_config(small());
        let first = content("a", 100);
        let second = content("b", 100);
        let third = content("c", 50);
        let attachments = || {
            // Two have one name, so that one of them gets a number.
            [(&first, "same"), (&second, "same"), (&third, "third"), (&first, "fourth")].map(
                |(bytes, name)| {
                    let attachment = match how {
                        How::Bytes => Attachment::from_bytes(bytes),
                        How::Reader => Attachment::from_reader(&bytes[..]),
                    };
                    attachment.with_name(name)
                },
            )
        };
        let delivery = stage.session.inbox().deliver(&id(), attachments());
        assert_eq!(kinds(delivery.refusals()), [ErrorKind::TooLarge]);
        let delivery = stage.session.inbox().deliver(&id(), attachments());
        let again = |outcome: &Outcome| matches!(outcome, Outcome::AlreadySaved(_));
        assert!(delivery.outcomes()[..3].iter().all(again), "{how:?}: {delivery:?}");
        assert_eq!(kinds(delivery.refusals()), [ErrorKind::TooLarge]);
        let numbered = delivery.outcomes()[1].file().unwrap();
        assert_eq!((numbered.name.as_str(), numbered.bytes), ("same-2", 100));
        assert_eq!(names(&stage.guest("inbox/42")), ["same", "same-2", "third"]);
        let rolled_back = delivery.rollback();
        assert_eq!(rolled_back.removed, 0, "what an earlier try saved stays");
    }
}

#[test]
fn what_the_guest_puts_there_counts_and_what_it_removes_does_not() {
    let stage = Stage::with_config(small());
    fs::create_dir(stage.guest("inbox/42")).unwrap();
    // A hole as large as the file system takes.
    fs::File::create(stage.guest("inbox/42/hole")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(send(&stage, How::Bytes, "a", 1), Some(ErrorKind::TooLarge));
    assert_eq!(send(&stage, How::Reader, "a", 1), Some(ErrorKind::TooLarge));
    fs::remove_file(stage.guest("inbox/42/hole")).unwrap();
    assert_eq!(send(&stage, How::Bytes, "a", 1), None);
    for entry in 0..5_000 {
        fs::create_dir(stage.guest(&format!("inbox/42/{entry}"))).unwrap();
    }
    assert_eq!(send(&stage, How::Bytes, "b", 1), Some(ErrorKind::TooMany));
    assert_eq!(send(&stage, How::Bytes, "a", 1), None, "an earlier try of the same");
    fs::remove_dir_all(stage.guest("inbox/42")).unwrap();
    assert_eq!(send(&stage, How::Bytes, "b", 1), None);
    assert_eq!(names(&stage.guest("inbox/42")), ["b"]);
}

#[test]
fn a_stream_past_the_room_is_not_written() {
    let stage = Stage::with_config(small());
    for name in ["a", "b"] {
        assert_eq!(send(&stage, How::Reader, name, 100), None);
    }
    let endless = Attachment::from_reader(std::io::repeat(7)).with_name("endless");
    let delivery = stage.session.inbox().deliver(&id(), [endless]);
    assert_eq!(kinds(delivery.refusals()), [ErrorKind::TooLarge]);
    assert_eq!(names(&stage.guest("inbox/42")), ["a", "b"]);
}

/// The sizes at the moment of opening say nothing: the guest lets its files grow while they are read.
#[test]
fn forwarding_counts_what_is_read_and_not_what_was_promised() {
    const FILES: usize = 32;
    const GROWN: u64 = 256 << 10;
    let most = MessageLimits::default().with_message_bytes(1 << 20);
    let stage = Stage::with_config(SessionsConfig::default().with_outbox(most));
    let (to, _) = stage.sessions.create(&SessionId::new("to")).unwrap();
    let declared: Vec<String> = (0..FILES).map(|number| format!("f{number}")).collect();
    for round in 0..20 {
        let sent = format!("r{round}");
        stage.send(&sent, &declared.iter().map(|name| (name.as_str(), &b""[..])).collect::<Vec<_>>());
        let files: Vec<fs::File> = declared
            .iter()
            .map(|name| {
                fs::File::options().write(true).open(stage.guest("outbox").join(&sent).join(name)).unwrap()
            })
            .collect();
        let message = MessageId::new(&sent);
        let claim = stage.session.outbox().claim(&message).unwrap().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for files in files.chunks(FILES / 2) {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        for file in files {
                            file.set_len(0).unwrap();
                            file.set_len(GROWN).unwrap();
                        }
                    }
                });
            }
            let delivery = claim.forward(&declared, &to.inbox(), &message).unwrap();
            done.store(true, Ordering::Relaxed);
            let delivered: u64 = delivery.files().map(|file| file.bytes).sum();
            assert!(delivered <= 1 << 20, "{delivered} bytes were forwarded under a limit of 1 MiB");
            assert!(delivery.refusals().all(|error| error.kind() == ErrorKind::TooLarge), "{delivery:?}");
        });
        claim.clear();
    }
}

#[test]
fn forwarding_a_message_that_fits_loses_nothing() {
    let limits = MessageLimits::default().with_message_bytes(200).with_file_bytes(100);
    let stage =
        Stage::with_config(SessionsConfig::default().with_outbox(limits).with_resolver(ResolverChoice::Auto));
    let (to, _) = stage.sessions.create(&SessionId::new("to")).unwrap();
    stage.send("7", &[("a", &[1; 100]), ("b", &[2; 100]), ("c", &[3; 1])]);
    let claim = stage.session.outbox().claim(&MessageId::new("7")).unwrap().unwrap();
    let delivery = claim.forward(["a", "b", "c"], &to.inbox(), &MessageId::new("7")).unwrap();
    assert_eq!(delivery.files().map(|file| file.bytes).collect::<Vec<_>>(), [100, 100]);
    assert_eq!(kinds(delivery.refusals()), [ErrorKind::TooLarge], "201 bytes of 200");
    claim.clear();
}
