use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::time::Duration;

use beneath::session::{Attachment, Outcome};
use beneath::{ErrorKind, MessageId};

use crate::support::{Stage, fifo, kinds, names, small, with_each_resolver};

fn id() -> MessageId {
    MessageId::new("42")
}

#[test]
fn saves_bytes_and_streams_under_derived_names() {
    with_each_resolver(|stage| {
        let delivery = stage.session.inbox().deliver(
            &id(),
            [
                Attachment::from_bytes("a").with_name("notes.txt"),
                Attachment::from_reader(io::repeat(7).take(200_000)).with_mime("image/png"),
                Attachment::from_bytes("c").with_name("../../../../tmp/evil.png"),
                Attachment::from_bytes("").with_kind("voice"),
            ],
        );
        assert!(delivery.is_complete(), "{delivery:?}");
        assert_eq!(
            names(&stage.guest("inbox/42")),
            ["attachment-1.png", "attachment-3.ogg", "notes.txt", "tmp_evil.png"]
        );
        assert_eq!(fs::read(stage.guest("inbox/42/attachment-1.png")).unwrap(), [7; 200_000]);
        for file in delivery.files() {
            assert!(stage.session.inbox().resolve_guest_path(&file.guest_path).is_ok());
        }
    });
}

#[test]
fn limits_are_per_file_per_message_and_per_count() {
    let stage = Stage::with_config(small());
    let (large, fitting) = (vec![1; 101], vec![2; 90]);
    let delivery = stage.session.inbox().deliver(
        &id(),
        [
            Attachment::from_bytes(&large).with_name("large"),
            Attachment::from_reader(io::repeat(1)).with_name("endless"),
            Attachment::from_bytes(&fitting).with_name("one"),
            Attachment::from_reader(&fitting[..]).with_name("two"),
            Attachment::from_bytes("x").with_name("fifth"),
        ],
    );
    let refused = [ErrorKind::TooLarge, ErrorKind::TooLarge, ErrorKind::TooMany];
    assert_eq!(kinds(delivery.refused()), refused);
    assert_eq!(names(&stage.guest("inbox/42")), ["one", "two"]);

    let three = [&fitting, &fitting, &fitting].map(Attachment::from_bytes);
    let delivery = stage.session.inbox().deliver(&MessageId::new("43"), three);
    assert_eq!(kinds(delivery.refused()), [ErrorKind::TooLarge], "the message's limit");
}

#[test]
fn a_wrong_size_or_a_broken_stream_leaves_nothing() {
    with_each_resolver(|stage| {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the line went dead"))
            }
        }
        let delivery = stage.session.inbox().deliver(
            &id(),
            [
                Attachment::from_bytes("abc").with_declared_size(4),
                Attachment::from_reader(&b"abc"[..]).with_declared_size(2),
                Attachment::from_reader(b"abc".chain(Broken)),
            ],
        );
        let refused = [ErrorKind::InvalidData, ErrorKind::InvalidData, ErrorKind::Io];
        assert_eq!(kinds(delivery.refused()), refused);
        assert_eq!(names(&stage.guest("inbox")), [""; 0], "not even the directory");
    });
}

#[test]
fn a_retry_finds_what_the_first_try_saved() {
    with_each_resolver(|stage| {
        let attachments = || {
            [
                Attachment::from_bytes("same").with_name("a.txt"),
                Attachment::from_bytes("same").with_name("a.txt"),
                Attachment::from_reader(&b"stream"[..]).with_name("a.txt"),
                Attachment::from_bytes("").with_name("empty"),
            ]
        };
        let inbox = stage.session.inbox();
        let first = inbox.deliver(&id(), attachments());
        assert!(first.outcomes().iter().all(|outcome| matches!(outcome, Outcome::Saved(_))));
        let second = inbox.deliver(&id(), attachments());
        assert!(second.outcomes().iter().all(|outcome| matches!(outcome, Outcome::AlreadySaved(_))));
        let paths = |delivery: &beneath::session::Delivery| {
            delivery.files().map(|file| file.guest_path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&first), paths(&second));
        assert_eq!(names(&stage.guest("inbox/42")), ["a-2.txt", "a-3.txt", "a.txt", "empty"]);

        fs::write(stage.guest("inbox/42/a.txt"), "edit").unwrap();
        let third = inbox.deliver(&id(), [Attachment::from_bytes("same").with_name("a.txt")]);
        assert!(
            matches!(&third.outcomes()[0], Outcome::AlreadySaved(file) if file.name.as_str() == "a-2.txt")
        );
    });
}

#[test]
fn what_only_looks_saved_is_not_believed() {
    with_each_resolver(|stage| {
        fs::create_dir(stage.guest("inbox/42")).unwrap();
        fs::write(stage.home.path().join("same.txt"), "same").unwrap();
        symlink(stage.home.path().join("same.txt"), stage.guest("inbox/42/a.txt")).unwrap();
        fs::hard_link(stage.home.path().join("same.txt"), stage.guest("inbox/42/a-2.txt")).unwrap();
        stage.home.seal();
        fifo(&stage.guest("inbox/42/a-3.txt"));
        fs::create_dir(stage.guest("inbox/42/a-4.txt")).unwrap();
        let attachment = Attachment::from_bytes("same").with_name("a.txt");
        let delivery = stage.session.inbox().deliver(&id(), [attachment]);
        let Outcome::Saved(file) = &delivery.outcomes()[0] else { panic!("{delivery:?}") };
        assert_eq!(file.name.as_str(), "a-5.txt");
        assert_eq!(file.taken.as_ref().unwrap().as_str(), "a.txt");
    });
}

#[test]
fn a_guest_that_takes_every_name_has_the_attachment_refused() {
    with_each_resolver(|stage| {
        fs::create_dir(stage.guest("inbox/42")).unwrap();
        fs::write(stage.guest("inbox/42/a.txt"), "").unwrap();
        for number in 2..200 {
            fs::write(stage.guest(&format!("inbox/42/a-{number}.txt")), "").unwrap();
        }
        let attachment = Attachment::from_bytes("mine").with_name("a.txt");
        let delivery = stage.session.inbox().deliver(&id(), [attachment]);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::TooMany]);
    });
}

#[test]
fn rollback_removes_what_this_delivery_wrote_and_no_more() {
    with_each_resolver(|stage| {
        let inbox = stage.session.inbox();
        let first = inbox.deliver(&id(), [Attachment::from_bytes("1").with_name("a")]);
        assert!(first.is_complete());
        let second = inbox.deliver(
            &id(),
            [Attachment::from_bytes("1").with_name("a"), Attachment::from_bytes("2").with_name("b")],
        );
        let rolled = second.rollback();
        assert_eq!((rolled.files, rolled.left.total), (1, 0));
        assert_eq!(names(&stage.guest("inbox/42")), ["a"]);
        assert_eq!(first.rollback().files, 1);
        assert_eq!(names(&stage.guest("inbox")), [""; 0]);
    });
}

#[test]
fn rollback_does_not_follow_a_replaced_inbox() {
    with_each_resolver(|stage| {
        let delivery = stage.session.inbox().deliver(&id(), [Attachment::from_bytes("1").with_name("a")]);
        fs::create_dir(stage.home.path().join("42")).unwrap();
        fs::write(stage.home.path().join("42/a"), "precious").unwrap();
        stage.home.seal();
        stage.replace_by_link("inbox", stage.home.path());
        let rolled = delivery.rollback();
        assert_eq!((rolled.files, rolled.left.total), (0, 1));
        assert_eq!(rolled.left.first[0].error.kind(), ErrorKind::Symlink);
    });
}

#[test]
fn clears_a_message_whatever_became_of_it() {
    with_each_resolver(|stage| {
        let inbox = stage.session.inbox();
        assert!(inbox.clear(&id()).unwrap().is_complete(), "nothing there");
        let delivery = inbox.deliver(&id(), [Attachment::from_bytes("1")]);
        assert!(delivery.is_complete());
        fs::create_dir_all(stage.guest("inbox/42/more/and/more")).unwrap();
        assert!(inbox.clear(&id()).unwrap().is_complete());
        symlink(stage.home.path(), stage.guest("inbox/42")).unwrap();
        assert!(inbox.clear(&id()).unwrap().is_complete(), "the link goes");
        assert_eq!(names(&stage.guest("inbox")), [""; 0]);
        assert_eq!(names(&stage.host("trash")), [""; 0]);
        stage.replace_by_link("inbox", stage.home.path());
        assert_eq!(inbox.clear(&MessageId::new(".ssh")).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(inbox.clear(&MessageId::new("diary.txt")).unwrap_err().kind(), ErrorKind::Symlink);
    });
}

#[test]
fn clears_by_the_kernels_age_not_the_guests() {
    with_each_resolver(|stage| {
        let inbox = stage.session.inbox();
        for name in ["1", "2"] {
            let delivery = inbox.deliver(&MessageId::new(name), [Attachment::from_bytes("x")]);
            assert!(delivery.is_complete());
        }
        let file = fs::File::open(stage.guest("inbox/1")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let swept = inbox.sweep(Duration::from_secs(60)).unwrap();
        assert_eq!((swept.removed, swept.kept), (0, 2));
        let swept = inbox.sweep(Duration::ZERO).unwrap();
        assert_eq!((swept.removed, swept.left.total), (2, 0));
    });
}

#[test]
fn resolves_exactly_the_paths_of_a_delivery() {
    with_each_resolver(|stage| {
        let inbox = stage.session.inbox();
        let odd = MessageId::new("spaces/AAA/messages/B.B");
        let delivery = inbox.deliver(&odd, [Attachment::from_bytes("hi").with_name("a b.txt")]);
        let file = delivery.files().next().unwrap();
        let path = &file.guest_path;
        assert_eq!(path, &format!("/session/{}", file.path));
        for text in [path.clone(), format!("  {path}\n"), format!("/{path}"), path.replace('/', "//")] {
            assert_eq!(
                inbox.resolve_guest_path(&text).unwrap().read_to_limit(10).unwrap(),
                b"hi",
                "{text:?}"
            );
        }
        for bad in [
            "",
            "/session/inbox",
            "/session/inbox/42",
            "/session/inbox/42/a/b",
            "/session/outbox/42/a",
            "/session/workspace/42/a",
            "/session/inbox/../a",
            "/session/inbox/./a",
            "/session/Inbox/42/a",
            "/session/inbox/42/.env",
            "/session/inbox/spaces:AAA/a",
            "inbox/42/a",
            "/etc/passwd",
            "/sessionX/inbox/42/a",
            "/session/../inbox/42/a",
            "/inbox/42/a",
        ] {
            let error = inbox.resolve_guest_path(bad).unwrap_err();
            let leaves =
                bad.starts_with('/') && (!bad.starts_with("/session/") || bad.contains("/session/.."));
            let kind = if leaves { ErrorKind::Escape } else { ErrorKind::InvalidPath };
            assert_eq!(error.kind(), kind, "{bad:?}");
        }
        assert_eq!(
            inbox.resolve_guest_path("/session/inbox/42/gone").unwrap_err().kind(),
            ErrorKind::NotFound
        );
        fs::create_dir(stage.guest("inbox/42")).unwrap();
        symlink(stage.home.path().join("diary.txt"), stage.guest("inbox/42/link")).unwrap();
        assert_eq!(
            inbox.resolve_guest_path("/session/inbox/42/link").unwrap_err().kind(),
            ErrorKind::Symlink
        );
    });
}

#[test]
fn recovers_when_the_guest_removes_the_directory_in_the_middle() {
    with_each_resolver(|stage| {
        let directory = stage.guest("inbox/42");
        let attachments = ["one", "two"].into_iter().map(|name| {
            if name == "two" {
                fs::remove_dir_all(&directory).unwrap();
            }
            Attachment::from_bytes("x").with_name(name)
        });
        let delivery = stage.session.inbox().deliver(&id(), attachments);
        assert!(delivery.is_complete());
        assert_eq!(names(&directory), ["two"]);
    });
}
