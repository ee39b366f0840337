use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use beneath::session::{Claim, Collected, Disposition, Place, SessionsConfig};
use beneath::{Budget, Error, ErrorKind, MessageId, ResolverChoice, SessionId};

use crate::support::{Stage, fifo, names, small, with_each_resolver};

fn id() -> MessageId {
    MessageId::new("42")
}

fn found(collected: &Collected<Vec<u8>>) -> Vec<(&str, &[u8])> {
    collected.found().map(|(name, bytes)| (name.to_str().unwrap(), bytes.as_slice())).collect()
}

fn refused(collected: &Collected<Vec<u8>>) -> Vec<(&str, ErrorKind)> {
    collected.refused().map(|(name, error)| (name.to_str().unwrap(), error.kind())).collect()
}

#[test]
fn a_claim_takes_the_message_out_of_the_guests_reach() {
    with_each_resolver(|stage| {
        stage.send("42", &[("b", b"two"), ("a", b"one")]);
        let outbox = stage.session.outbox();
        assert_eq!(outbox.messages().unwrap().entries, [id()]);
        let claim = outbox.claim(&id()).unwrap().unwrap();
        assert_eq!(claim.place(), Place::Moved);
        assert!(!stage.guest("outbox/42").exists());
        assert!(outbox.claim(&id()).unwrap().is_none());

        let collected = claim.read(["b", "gone", "a", "b"]).unwrap();
        assert_eq!(found(&collected), [("b", b"two".as_slice()), ("a", b"one")]);
        assert_eq!(refused(&collected), [("gone", ErrorKind::NotFound)]);
        assert_eq!(collected.repeated, 1);
        assert!(claim.clear().is_complete());
        assert!(outbox.pending().unwrap().total == 0);
        assert_eq!(names(&stage.host("trash")), [""; 0]);
    });
}

#[test]
fn refuses_what_is_no_plain_file_and_reads_the_rest() {
    with_each_resolver(|stage| {
        stage.send("42", &[("good", b"good"), (".dotfile", b"dot"), ("shared", b"x")]);
        let dir = stage.guest("outbox/42");
        symlink(stage.home.path().join(".ssh/id_rsa"), dir.join("link")).unwrap();
        symlink("nowhere", dir.join("dangling")).unwrap();
        fifo(&dir.join("fifo"));
        fs::create_dir(dir.join("dir")).unwrap();
        fs::hard_link(dir.join("shared"), stage.guest("workspace/shared")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();

        let claim = stage.session.outbox().claim(&id()).unwrap().unwrap();
        let declared = [
            "link", "dangling", "fifo", "dir", "shared", "socket", "a/b", "", ".", "a\0", "../x", "..",
            "good", ".dotfile",
        ];
        let collected = claim.read(declared).unwrap();
        assert_eq!(found(&collected), [("good", b"good".as_slice()), (".dotfile", b"dot")]);
        let expected: Vec<(&str, ErrorKind)> = [
            ("link", ErrorKind::Symlink),
            ("dangling", ErrorKind::Symlink),
            ("fifo", ErrorKind::NotRegular),
            ("dir", ErrorKind::NotRegular),
            ("shared", ErrorKind::HardLinked),
            ("socket", ErrorKind::NotRegular),
        ]
        .into_iter()
        .chain(["a/b", "", ".", "a\0"].map(|name| (name, ErrorKind::InvalidName)))
        .chain(["../x", ".."].map(|name| (name, ErrorKind::Escape)))
        .collect();
        assert_eq!(refused(&collected), expected);

        let undeclared = claim.undeclared(["good", "link"]).unwrap();
        let shown: Vec<_> =
            undeclared.entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.refusal)).collect();
        assert_eq!(shown.len(), 6);
        assert!(shown.contains(&(".dotfile", None)));
        assert!(shown.contains(&("shared", Some(ErrorKind::HardLinked))));
        assert!(claim.clear().is_complete());
        assert!(stage.guest("workspace/shared").exists());
    });
}

#[test]
fn whatever_a_guest_calls_its_files_is_read_and_forwarded() {
    let odd: [&[u8]; 6] = [b"Q3: plan?.md", b"aux.rs", b"a\nb", b" a ", b"...", b"caf\xe9"];
    with_each_resolver(|stage| {
        stage.send("42", &[]);
        for name in odd {
            fs::write(stage.guest("outbox/42").join(OsStr::from_bytes(name)), name).unwrap();
        }
        let claim = stage.session.outbox().claim(&id()).unwrap().unwrap();
        let undeclared = claim.undeclared([""; 0]).unwrap().entries;
        assert!(undeclared.len() == odd.len() && undeclared.iter().all(|entry| entry.refusal.is_none()));
        let names = || undeclared.iter().map(|entry| &entry.name);
        let collected = claim.read(names()).unwrap();
        assert!(collected.is_complete(), "{collected:?}");
        assert!(collected.found().all(|(name, bytes)| name.as_bytes() == bytes));
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        let delivery = claim.forward(names(), &other.inbox(), &id()).unwrap();
        assert!(delivery.is_complete() && delivery.files().count() == odd.len(), "{delivery:?}");
        assert!(claim.clear().is_complete());
    });
}

#[test]
fn limits_hold_for_bytes_and_for_streams() {
    let stage = Stage::with_config(small());
    let (ninety, large) = ([7; 90], [7; 101]);
    let files: [(&str, &[u8]); 6] =
        [("a", &ninety), ("large", &large), ("b", &ninety), ("c", &ninety), ("d", b""), ("e", b"")];
    stage.send("42", &files);
    let claim = stage.session.outbox().claim(&id()).unwrap().unwrap();
    let names = files.map(|(name, _)| name);
    let collected = claim.read(names).unwrap();
    let expected = [
        ("large", ErrorKind::TooLarge),
        ("c", ErrorKind::TooLarge),
        ("d", ErrorKind::TooMany),
        ("e", ErrorKind::TooMany),
    ];
    assert_eq!(refused(&collected), expected);
    assert_eq!(claim.open(names).unwrap().refused().count(), 4);

    let mut opened = claim.open(["a"]).unwrap();
    let mut file = opened.files.remove(0).content.unwrap();
    let slot = stage.host("claimed").join(claim.ticket().as_str());
    let mut log = fs::File::options().append(true).open(slot.join("42/a")).unwrap();
    std::io::Write::write_all(&mut log, &[8; 500]).unwrap();
    let mut bytes = Vec::new();
    let error = file.read_to_end(&mut bytes).unwrap_err();
    assert_eq!(error.downcast::<beneath::Error>().unwrap().kind(), ErrorKind::TooLarge, "grown since");
    assert!(bytes.len() <= 100);
}

#[test]
fn claims_survive_a_crash_and_come_back_in_order() {
    with_each_resolver(|stage| {
        let outbox = stage.session.outbox();
        for name in ["b", "a", "c"] {
            stage.send(name, &[("f", name.as_bytes())]);
            drop(outbox.claim(&MessageId::new(name)).unwrap().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
        let again = stage.sessions.open(&SessionId::new("s")).unwrap();
        let pending = again.outbox().pending().unwrap().entries;
        let ids: Vec<&str> = pending.iter().map(|claim| claim.id().as_str()).collect();
        assert_eq!(ids, ["b", "a", "c"]);
        assert_eq!(found(&pending[1].read(["f"]).unwrap()), [("f", b"a".as_slice())]);
        stage.send("a", &[("f", b"again")]);
        let second = outbox.claim(&MessageId::new("a")).unwrap().unwrap();
        assert_eq!(second.id(), pending[1].id());
        assert_ne!(second.ticket(), pending[1].ticket(), "the same id, another message");
        assert_eq!(found(&second.read(["f"]).unwrap()), [("f", b"again".as_slice())]);
        assert_eq!(outbox.pending().unwrap().entries.len(), 4);
    });
}

#[test]
fn a_released_claim_is_the_guests_again() {
    with_each_resolver(|stage| {
        let outbox = stage.session.outbox();
        stage.send("42", &[("f", b"x")]);
        let claim = outbox.claim(&id()).unwrap().unwrap();
        fs::remove_dir(stage.guest("outbox")).unwrap();
        claim.release().unwrap();
        assert!(stage.guest("outbox/42/f").exists());
        assert!(outbox.pending().unwrap().total == 0);

        let claim = outbox.claim(&id()).unwrap().unwrap();
        stage.send("42", &[("f", b"refilled")]);
        assert_eq!(claim.release().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(outbox.pending().unwrap().entries.len(), 1, "not lost");
        stage.replace_by_link("outbox", stage.home.path());
        let claim = outbox.pending().unwrap().entries.remove(0);
        assert_eq!(claim.release().unwrap_err().kind(), ErrorKind::Symlink);
    });
}

#[test]
fn a_message_that_is_no_directory_is_refused_and_stays() {
    with_each_resolver(|stage| {
        let outbox = stage.session.outbox();
        symlink(stage.home.path(), stage.guest("outbox/link")).unwrap();
        fs::write(stage.guest("outbox/file"), "").unwrap();
        fifo(&stage.guest("outbox/fifo"));
        for (name, kind) in [
            ("link", ErrorKind::Symlink),
            ("file", ErrorKind::NotDirectory),
            ("fifo", ErrorKind::NotDirectory),
        ] {
            assert_eq!(outbox.claim(&MessageId::new(name)).unwrap_err().kind(), kind, "{name}");
            assert!(fs::symlink_metadata(stage.guest("outbox").join(name)).is_ok(), "{name}");
        }
        let messages = outbox.messages().unwrap();
        assert_eq!((messages.entries.len(), messages.refused.total), (0, 3));
        assert!(outbox.pending().unwrap().total == 0);
    });
}

#[test]
fn forwards_between_sessions_both_sides_contained() {
    with_each_resolver(|stage| {
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        stage.send("42", &[("a.txt", b"text"), (".env", b"x")]);
        symlink(stage.home.path().join(".ssh/id_rsa"), stage.guest("outbox/42/key")).unwrap();
        let claim = stage.session.outbox().claim(&id()).unwrap().unwrap();
        let declared = ["a.txt", "key", "missing", "a.txt", "../x", ".env"];
        let forward = |claim: &Claim| {
            let delivery = claim.forward(declared, &other.inbox(), &MessageId::new("a2a:1")).unwrap();
            let files: Vec<String> = delivery.files().map(|file| file.name.to_string()).collect();
            let kinds: Vec<ErrorKind> = delivery.refused().map(|(_, error)| error.kind()).collect();
            (files, kinds)
        };
        let expected = (
            vec!["a.txt".to_owned(), "_.env".to_owned()],
            vec![ErrorKind::Symlink, ErrorKind::NotFound, ErrorKind::Escape],
        );
        assert_eq!(forward(&claim), expected);
        assert_eq!(forward(&claim), expected, "and again, after a crash");
        assert!(stage.secret_is_nowhere());
        let dir = stage.sessions_path().join("other/guest/inbox");
        assert_eq!(names(&dir.join(MessageId::new("a2a:1").as_str())), ["_.env", "a.txt"]);
    });
}

#[test]
fn sweeps_what_nobody_asked_for() {
    with_each_resolver(|stage| {
        let outbox = stage.session.outbox();
        stage.send("left", &[("f", b"x")]);
        stage.send("claimed", &[("f", b"x")]);
        drop(outbox.claim(&MessageId::new("claimed")).unwrap());
        fs::create_dir(stage.host("trash/remains")).unwrap();
        assert_eq!(outbox.sweep(Duration::from_secs(60)).unwrap().kept, 3);
        let swept = outbox.sweep(Duration::ZERO).unwrap();
        assert_eq!((swept.removed, swept.left.total), (3, 0), "{swept:?}");
        assert!(outbox.pending().unwrap().total == 0);
    });
}

/// A guest can make any number of messages, each of which would have a budget of its own.
#[test]
fn a_sweep_looks_at_nothing_once_its_time_is_over() {
    let stage = Stage::new(ResolverChoice::Auto);
    for number in 0..1000 {
        fs::create_dir(stage.guest("outbox").join(number.to_string())).unwrap();
    }
    fs::create_dir(stage.host("trash/remains")).unwrap();
    let within = |time| {
        let budget = Budget::default().with_time(time);
        let config = SessionsConfig::default().with_budget(budget);
        let session = stage.sessions.open(&SessionId::new("s")).unwrap().with_config(config);
        session.outbox().sweep(Duration::from_secs(3600)).unwrap()
    };
    let swept = within(Duration::ZERO);
    assert_eq!((swept.removed, swept.kept, swept.out_of_time), (0, 0, true), "{swept:?}");
    assert!(stage.guest("outbox/999").exists());
    assert!(stage.host("trash/remains").exists());
    let swept = within(Duration::from_secs(300));
    assert_eq!((swept.removed, swept.kept, swept.out_of_time), (0, 1001, false), "{swept:?}");
}

/// Removing what is in one part leaves less time for the next, and the guest's part comes last.
#[test]
fn a_sweep_has_one_time_for_all_parts_and_a_flood_does_not_keep_the_trash() {
    let stage = Stage::new(ResolverChoice::Auto);
    let flood = 3000;
    for number in 0..flood {
        fs::create_dir(stage.guest("outbox").join(number.to_string())).unwrap();
    }
    fs::create_dir(stage.host("trash/remains")).unwrap();
    let budget = Budget::default().with_time(Duration::from_millis(2));
    let config = SessionsConfig::default().with_budget(budget);
    let session = stage.sessions.open(&SessionId::new("s")).unwrap().with_config(config);
    let mut turns = 0;
    while !names(&stage.guest("outbox")).is_empty() {
        let swept = session.outbox().sweep(Duration::ZERO).unwrap();
        turns += 1;
        assert!(swept.out_of_time || names(&stage.guest("outbox")).is_empty(), "{swept:?}");
        assert!(turns < 100_000, "it must come to an end");
    }
    assert!(!stage.host("trash/remains").exists());
    assert!(turns > 1, "the time was over before {flood} messages were removed");
}

/// The host gives names of this form to messages that it reads in place, and to nothing else.
#[test]
fn an_entry_that_a_guest_names_like_a_claim_is_reported() {
    with_each_resolver(|stage| {
        let name = ".beneath-20260101T000000250Z-00000000000000000000000000000000";
        stage.send(name, &[("a", b"a")]);
        stage.send("42", &[("a", b"a")]);
        let outbox = stage.session.outbox();
        let messages = outbox.messages().unwrap();
        assert_eq!(messages.entries, [id()]);
        let refused: Vec<_> = messages.refused().map(|(path, error)| (path, error.kind())).collect();
        assert_eq!(refused, [(Path::new(name), ErrorKind::InvalidName)]);

        let lock = stage.session.try_lock().unwrap();
        let report =
            outbox.collect(&lock, &mut HashSet::new(), |_| Ok::<_, Error>(Disposition::Done)).unwrap();
        assert_eq!((report.done, report.refused.total), (1, 1), "{report:?}");
        assert!(!report.is_complete());
        assert!(stage.guest("outbox").join(name).exists(), "nobody has touched it");
    });
}
