//! What a guest can do to a host that collects by path. Each test first shows the flaw in the naive port.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use beneath::session::{Attachment, MessageLimits, SessionsConfig};
use beneath::{Budget, ErrorKind, MessageId, ResolverChoice, SessionId};
use beneath_kit::watchdog::finishes;

use crate::naive::NaiveSession;
use crate::support::{SECRET, Stage, fifo, kinds, with_each_resolver};

fn naive() -> (Stage, NaiveSession) {
    let stage = Stage::new(ResolverChoice::Auto);
    let dir = stage.guest("");
    (stage, NaiveSession { dir })
}

#[test]
fn outbox_as_a_link_to_a_home_with_message_id_dot_ssh_reads_no_key() {
    let (stage, control) = naive();
    stage.replace_by_link("outbox", stage.home.path());
    let leaked = control.collect(".ssh", &["id_rsa"], || {});
    assert_eq!(leaked[0].1, SECRET, "the control mails the key");

    with_each_resolver(|stage| {
        stage.replace_by_link("outbox", stage.home.path());
        let outbox = stage.session.outbox();
        for raw in [".ssh", "diary.txt", "x"] {
            assert_eq!(outbox.claim(&MessageId::new(raw)).unwrap_err().kind(), ErrorKind::Symlink);
        }
        assert_eq!(outbox.messages().unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(outbox.sweep(Duration::ZERO).unwrap_err().kind(), ErrorKind::Symlink);
    });
}

#[test]
fn outbox_as_a_link_deletes_no_home() {
    let (stage, control) = naive();
    stage.replace_by_link("outbox", stage.home.path());
    control.clear(".ssh");
    assert!(!stage.home.path().join(".ssh").exists(), "the control deletes it");

    with_each_resolver(|stage| {
        stage.send("x", &[("f", b"x")]);
        let claim = stage.session.outbox().claim(&MessageId::new("x")).unwrap().unwrap();
        fs::create_dir(stage.home.path().join("x")).unwrap();
        stage.home.seal();
        stage.replace_by_link("outbox", stage.home.path());
        assert!(claim.clear().is_complete());
    });
}

#[test]
fn file_swapped_for_a_link_between_check_and_read() {
    let (stage, control) = naive();
    stage.send("42", &[("f", b"harmless")]);
    let swap = |stage: &Stage| {
        fs::remove_file(stage.guest("outbox/42/f")).unwrap();
        symlink(stage.home.path().join(".ssh/id_rsa"), stage.guest("outbox/42/f")).unwrap();
    };
    let leaked = control.collect("42", &["f"], || swap(&stage));
    assert_eq!(leaked[0].1, SECRET, "the control is led astray");

    with_each_resolver(|stage| {
        stage.send("42", &[("f", b"harmless")]);
        swap(stage);
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        let collected = claim.read(["f"]).unwrap();
        assert_eq!(kinds(collected.refused()), [ErrorKind::Symlink]);
        assert_eq!(claim.clear().files, 1);
    });
}

#[test]
fn fifo_in_the_outbox_hangs_nobody() {
    let (stage, control) = naive();
    stage.send("42", &[("f", b"harmless")]);
    let path = stage.guest("outbox/42/f");
    let ended = finishes(Duration::from_secs(1), {
        let path = path.clone();
        move || {
            control.collect("42", &["f"], || {
                fs::remove_file(&path).unwrap();
                fifo(&path);
            });
        }
    });
    assert!(ended.is_none(), "the control must hang");
    // Lets the control's thread go.
    drop(fs::File::options().read(true).write(true).open(&path));

    with_each_resolver(|stage| {
        stage.send("42", &[]);
        fifo(&stage.guest("outbox/42/f"));
        let start = Instant::now();
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        let collected = claim.read(["f"]).unwrap();
        assert_eq!(kinds(collected.refused()), [ErrorKind::NotRegular]);
        assert!(claim.clear().is_complete());
        assert!(start.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn one_name_declared_a_million_times_is_read_once() {
    let (stage, control) = naive();
    stage.send("42", &[("f", b"x")]);
    let reads = Cell::new(0);
    control.collect("42", &["f"; 1000], || reads.set(reads.get() + 1));
    assert_eq!(reads.get(), 1000, "the control reads each time");

    with_each_resolver(|stage| {
        stage.send("42", &[("f", b"x")]);
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        let collected = claim.read(std::iter::repeat_n("f", 1_000_000)).unwrap();
        assert_eq!((collected.files.len(), collected.repeated), (1, 999_999));
    });
}

#[test]
fn hard_link_to_a_host_file_is_not_read() {
    let (stage, control) = naive();
    stage.send("42", &[]);
    fs::hard_link(stage.home.path().join(".ssh/id_rsa"), stage.guest("outbox/42/f")).unwrap();
    assert_eq!(control.collect("42", &["f"], || {})[0].1, SECRET, "the control reads it");

    with_each_resolver(|stage| {
        stage.send("42", &[]);
        fs::hard_link(stage.home.path().join(".ssh/id_rsa"), stage.guest("outbox/42/f")).unwrap();
        stage.home.seal();
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        let collected = claim.read(["f"]).unwrap();
        assert_eq!(kinds(collected.refused()), [ErrorKind::HardLinked]);
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        let delivery = claim.forward(["f"], &other.inbox(), &MessageId::new("1")).unwrap();
        assert_eq!(kinds(delivery.refused()), [ErrorKind::HardLinked]);
    });
}

#[test]
fn a_sparse_giant_costs_nothing() {
    let limits = MessageLimits::default().with_file_bytes(10 << 20);
    let stage = Stage::with_config(SessionsConfig::default().with_outbox(limits));
    stage.send("42", &[("f", b"")]);
    fs::File::options().write(true).open(stage.guest("outbox/42/f")).unwrap().set_len(1 << 40).unwrap();
    let start = Instant::now();
    let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
    let collected = claim.read(["f"]).unwrap();
    assert_eq!(kinds(collected.refused()), [ErrorKind::TooLarge]);
    assert!(claim.clear().is_complete());
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn clearing_while_the_guest_refills_ends_and_touches_no_other_message() {
    for resolver in crate::support::RESOLVERS {
        let budget = Budget::default().with_time(Duration::from_millis(300));
        let config = SessionsConfig::default().with_budget(budget).with_resolver(resolver);
        let stage = Stage::with_config(config);
        stage.send("42", &[("f", b"x")]);
        stage.send("43", &[("f", b"other")]);
        // A guest that holds the directory open can go on creating in it wherever it is moved.
        let held = rustix::fs::open(
            stage.guest("outbox/42"),
            rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    number += 1;
                    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
                    let _ = rustix::fs::openat(&held, format!("n{number}"), flags, rustix::fs::Mode::RUSR);
                }
            });
            let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
            let start = Instant::now();
            let _ = claim.clear();
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
            assert!(stage.session.outbox().pending().unwrap().total == 0, "never given out again");
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(stage.session.outbox().claim(&MessageId::new("42")).unwrap().is_none());
        let other = stage.session.outbox().claim(&MessageId::new("43")).unwrap().unwrap();
        assert_eq!(other.read(["f"]).unwrap().found().count(), 1);
        let _ = stage.session.outbox().sweep(Duration::ZERO).unwrap();
        assert!(stage.home.is_untouched());
    }
}

#[test]
fn forwarding_follows_no_link_on_either_side() {
    with_each_resolver(|stage| {
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        let inbox = stage.sessions_path().join("other/guest/inbox");
        let forward = |name: &str| {
            stage.send("42", &[("f", b"file")]);
            let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
            let delivery = claim.forward(["f"], &other.inbox(), &MessageId::new(name)).unwrap();
            let _ = claim.clear();
            delivery
        };
        symlink(stage.home.path(), inbox.join("1")).unwrap();
        assert_eq!(kinds(forward("1").refused()), [ErrorKind::Symlink], "the message's directory");
        fs::create_dir(inbox.join("2")).unwrap();
        symlink(stage.home.path().join("diary.txt"), inbox.join("2/f")).unwrap();
        assert_eq!(forward("2").files().next().unwrap().name.as_str(), "f-2", "the file");
        fs::remove_dir_all(&inbox).unwrap();
        symlink(stage.home.path(), &inbox).unwrap();
        assert_eq!(kinds(forward("3").refused()), [ErrorKind::Symlink], "the inbox");
    });
}

#[test]
fn a_refused_attachment_is_reported_and_the_message_goes_on() {
    with_each_resolver(|stage| {
        let attachments = [
            Attachment::from_bytes("good").with_name("good"),
            Attachment::from_bytes("bad").with_declared_size(1),
            Attachment::from_bytes("also good").with_name("also"),
        ];
        let delivery = stage.session.inbox().deliver(&MessageId::new("1"), attachments);
        assert_eq!((delivery.files().count(), delivery.refused().count()), (2, 1));
    });
}
