//! The collecting loop: whatever fails, and whatever the guest does meanwhile, nothing is lost and nothing sent twice.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;

use beneath::session::{Claim, Collection, Disposition, Ledger, Ticket};
use beneath::{Error, ErrorKind, MessageId, ResolverChoice, Root, Session, SessionId, ambient_authority};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::support::{Stage, names, with_each_resolver};
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{child, skip};

/// A service: what it has sent, and the record of it.
#[derive(Default)]
struct Service {
    sent: Vec<String>,
    ledger: HashSet<Ticket>,
}

impl Service {
    /// One turn, as the docs have it.
    fn turn(&mut self, session: &Session) -> beneath::Result<Collection<Error>> {
        let lock = session.try_lock()?;
        session.outbox().collect(&lock, &mut self.ledger, |claim| {
            self.sent.push(text(claim)?);
            Ok(Disposition::Done)
        })
    }
}

/// The content of the message's one declared file.
fn text(claim: &Claim) -> beneath::Result<String> {
    let collected = claim.read(["f"])?;
    Ok(collected.found().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect())
}

fn turn_with(
    session: &Session,
    ledger: &mut impl Ledger<Error>,
    send: impl FnMut(&Claim) -> beneath::Result<Disposition>,
) -> Collection<Error> {
    let lock = session.try_lock().unwrap();
    session.outbox().collect(&lock, ledger, send).unwrap()
}

fn nothing_is_left(stage: &Stage) -> bool {
    let places = [stage.guest("outbox"), stage.host("claimed"), stage.host("trash")];
    places.iter().all(|place| names(place).is_empty())
}

#[test]
fn sends_each_message_once_oldest_first() {
    with_each_resolver(|stage| {
        for (name, text) in [("b", "one"), ("a", "two"), ("c", "three")] {
            stage.send(name, &[("f", text.as_bytes())]);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut service = Service::default();
        let report = service.turn(&stage.session).unwrap();
        assert_eq!(service.sent, ["one", "two", "three"]);
        assert!(report.is_complete() && report.done == 3, "{report:?}");
        let report = service.turn(&stage.session).unwrap();
        assert!(report.is_complete() && report.done == 0, "{report:?}");
        assert!(nothing_is_left(stage));
    });
}

/// The host dies after a claim, and the guest sends the id again before the next turn.
#[test]
fn an_id_used_again_while_the_first_message_is_pending_blocks_nobody() {
    with_each_resolver(|stage| {
        stage.send("42", &[("f", b"first")]);
        drop(stage.session.outbox().claim(&MessageId::new("42")).unwrap());
        stage.send("42", &[("f", b"second")]);
        let mut service = Service::default();
        let report = service.turn(&stage.session).unwrap();
        assert_eq!(service.sent, ["first", "second"]);
        assert!(report.is_complete(), "{report:?}");
        assert!(nothing_is_left(stage));
    });
}

/// The same, but the first was sent and recorded before the host died: the second must not be taken for it.
#[test]
fn a_message_that_was_recorded_is_removed_and_its_id_can_be_used_again() {
    with_each_resolver(|stage| {
        stage.send("42", &[("f", b"first")]);
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        let mut service = Service::default();
        service.ledger.insert(claim.ticket().clone());
        drop(claim);
        stage.send("42", &[("f", b"second")]);
        let report = service.turn(&stage.session).unwrap();
        assert_eq!((report.repeated, report.done), (1, 1), "{report:?}");
        assert_eq!(service.sent, ["second"]);
        assert!(nothing_is_left(stage));
    });
}

#[test]
fn one_message_that_fails_does_not_keep_the_others() {
    with_each_resolver(|stage| {
        let mut service = Service::default();
        for name in ["a", "bad", "c"] {
            stage.send(name, &[("f", name.as_bytes())]);
        }
        let failing = |claim: &Claim| match claim.id().as_str() {
            "bad" => Err(text_of_a_missing_host_file(stage)),
            _ => Ok(Disposition::Done),
        };
        let report = turn_with(&stage.session, &mut service.ledger, failing);
        assert_eq!((report.done, report.failed_total), (2, 1), "{report:?}");
        let ticket = report.failed[0].ticket.clone().unwrap();
        assert_eq!(report.failed[0].id, Some(MessageId::new("bad")));
        for attempt in 2..4 {
            let report = turn_with(&stage.session, &mut service.ledger, |claim| {
                assert_eq!((claim.ticket(), claim.attempts()), (&ticket, attempt));
                Err(text_of_a_missing_host_file(stage))
            });
            assert_eq!((report.done, report.failed_total), (0, 1), "{report:?}");
        }
        let report = service.turn(&stage.session).unwrap();
        assert_eq!((report.done, service.sent.as_slice()), (1, &["bad".to_owned()][..]));
        assert!(nothing_is_left(stage));
    });
}

/// Some error of the service's own.
fn text_of_a_missing_host_file(stage: &Stage) -> Error {
    stage.session.host().read_contained("missing", 1).unwrap_err()
}

#[test]
fn the_service_can_keep_release_and_stop() {
    with_each_resolver(|stage| {
        let mut ledger = HashSet::new();
        for name in ["keep", "release"] {
            stage.send(name, &[("f", name.as_bytes())]);
        }
        let report = turn_with(&stage.session, &mut ledger, |claim| match claim.id().as_str() {
            "keep" => Ok(Disposition::Keep),
            _ => Ok(Disposition::Release),
        });
        assert_eq!((report.kept, report.released, report.done), (1, 1, 0), "{report:?}");
        assert!(!report.is_complete());
        assert_eq!(names(&stage.guest("outbox")), ["release"]);
        assert_eq!(stage.session.outbox().pending().unwrap().entries[0].id().as_str(), "keep");

        let mut seen = 0;
        let report = turn_with(&stage.session, &mut ledger, |_| {
            seen += 1;
            Ok(Disposition::Stop)
        });
        assert_eq!((seen, report.kept, report.truncated), (1, 1, true), "{report:?}");
        assert_eq!(names(&stage.guest("outbox")), ["release"], "not even claimed");
        assert!(ledger.is_empty());
    });
}

#[test]
fn a_released_message_whose_id_was_used_again_stays_pending() {
    with_each_resolver(|stage| {
        stage.send("42", &[("f", b"first")]);
        let report = turn_with(&stage.session, &mut HashSet::new(), |_| {
            stage.send("42", &[("f", b"second")]);
            Ok(Disposition::Release)
        });
        assert_eq!((report.released, report.failed_total), (0, 1), "{report:?}");
        assert_eq!(report.failed[0].error.kind(), ErrorKind::AlreadyExists);
        let mut service = Service::default();
        assert!(service.turn(&stage.session).unwrap().is_complete());
        assert_eq!(service.sent, ["first", "second"]);
    });
}

/// A ledger that fails when it is to record.
struct Forgetful(bool);

impl Ledger<Error> for Forgetful {
    fn contains(&mut self, _: &Ticket) -> Result<bool, Error> {
        Ok(false)
    }

    fn record(&mut self, _: &Ticket) -> Result<(), Error> {
        if self.0 { "no ticket".parse::<Ticket>().map(drop) } else { Ok(()) }
    }
}

#[test]
fn what_could_not_be_recorded_is_not_removed() {
    with_each_resolver(|stage| {
        stage.send("42", &[("f", b"x")]);
        let report = turn_with(&stage.session, &mut Forgetful(true), |_| Ok(Disposition::Done));
        assert_eq!((report.done, report.failed_total), (0, 1), "{report:?}");
        assert_eq!(stage.session.outbox().pending().unwrap().entries.len(), 1);
        let report = turn_with(&stage.session, &mut Forgetful(false), |_| Ok(Disposition::Done));
        assert!(report.is_complete() && report.done == 1, "{report:?}");
    });
}

#[test]
fn only_the_sessions_own_lock_will_do() {
    let stage = Stage::new(ResolverChoice::Auto);
    let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
    stage.send("42", &[("f", b"x")]);
    let _own = stage.session.try_lock().unwrap();
    let lock = other.try_lock().unwrap();
    let collected =
        stage.session.outbox().collect(&lock, &mut HashSet::new(), |_| Ok::<_, Error>(Disposition::Done));
    assert_eq!(collected.unwrap_err().kind(), ErrorKind::Busy);
    assert!(stage.guest("outbox/42/f").exists());
}

#[test]
fn what_is_no_message_is_reported_and_a_closed_outbox_keeps_nothing_that_is_pending() {
    with_each_resolver(|stage| {
        stage.send("42", &[("f", b"x")]);
        fs::write(stage.guest("outbox/file"), "").unwrap();
        symlink(stage.home.path(), stage.guest("outbox/link")).unwrap();
        let mut service = Service::default();
        let report = service.turn(&stage.session).unwrap();
        let mut kinds: Vec<ErrorKind> = report.refused.iter().map(|(_, error)| error.kind()).collect();
        kinds.sort_by_key(|kind| format!("{kind:?}"));
        assert_eq!(kinds, [ErrorKind::NotDirectory, ErrorKind::Symlink]);
        assert_eq!((report.done, report.refused.total), (1, 2));

        stage.send("43", &[("f", b"pending")]);
        drop(stage.session.outbox().claim(&MessageId::new("43")).unwrap());
        stage.replace_by_link("outbox", stage.home.path());
        let report = service.turn(&stage.session).unwrap();
        assert_eq!((report.done, report.failed_total), (1, 1), "{report:?}");
        assert_eq!(report.failed[0].error.kind(), ErrorKind::Symlink);
        assert_eq!(service.sent, ["x", "pending"]);
    });
}

/// What a crash in the middle of a claim leaves, now or with the code of old.
#[test]
fn empty_and_strange_entries_among_the_claims_block_nobody() {
    with_each_resolver(|stage| {
        let ticket = "20260101T000000250Z-00000000000000000000000000000000";
        stage.send("42", &[("f", b"real")]);
        for name in ["42", ticket, &format!("{ticket}.2"), &format!("{ticket}.x")] {
            fs::create_dir(stage.host("claimed").join(name)).unwrap();
        }
        let linked = ticket.replace("2026", "2027");
        fs::create_dir(stage.host("claimed").join(&linked)).unwrap();
        symlink(stage.home.path(), stage.host("claimed").join(&linked).join("43")).unwrap();
        let mut service = Service::default();
        let report = service.turn(&stage.session).unwrap();
        assert!(report.is_complete() && report.done == 1, "{report:?}");
        assert_eq!(service.sent, ["real"]);
        assert!(service.turn(&stage.session).unwrap().is_complete());
        let _ = stage.session.outbox().sweep(std::time::Duration::ZERO).unwrap();
        assert!(nothing_is_left(stage));
    });
}

/// Leaves `free` descriptors while `work` runs.
fn with_descriptors<T>(free: usize, work: impl FnOnce() -> T) -> T {
    let held: Vec<_> = (0..16).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    // Numbers below the limit may be free too.
    let highest = rustix::fs::openat(CWD, "/dev/null", OFlags::CLOEXEC, Mode::empty()).unwrap();
    let count = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&highest)).unwrap();
    let before = getrlimit(Resource::Nofile);
    drop((highest, held));
    let mut limit = before;
    limit.current = Some(count);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut filled: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    filled.truncate(filled.len() - free);
    let outcome = work();
    drop(filled);
    setrlimit(Resource::Nofile, before).unwrap();
    outcome
}

#[test]
fn a_host_without_descriptors_loses_nothing() {
    child::run("collect::a_host_without_descriptors_loses_nothing", || {
        for resolver in crate::support::RESOLVERS {
            let mut failures = 0;
            for (free, was_pending) in (0..14).flat_map(|free| [(free, false), (free, true)]) {
                let stage = Stage::new(resolver);
                stage.send("42", &[("f", b"only once")]);
                if was_pending {
                    drop(stage.session.outbox().claim(&MessageId::new("42")).unwrap());
                }
                let mut service = Service::default();
                let starved = with_descriptors(free, || service.turn(&stage.session));
                let failed = starved.as_ref().map_or(true, |report| report.failed_total > 0);
                failures += usize::from(failed);
                assert_eq!(failed, service.sent.is_empty(), "{free} free: {starved:?}");
                assert_eq!(failed, service.ledger.is_empty(), "{free} free: {starved:?}");
                assert!(free > 0 || failed);
                assert!(free < 13 || !failed, "{free} free: {starved:?}");

                let report = service.turn(&stage.session).unwrap();
                assert!(report.is_complete(), "{free} free: {starved:?}, then {report:?}");
                assert_eq!(service.sent, ["only once"], "{free} free, pending {was_pending}");
                assert!(names(&stage.guest("outbox")).is_empty() && names(&stage.host("claimed")).is_empty());
            }
            assert!(failures > 2, "{failures} turns were starved");
        }
    });
}

#[test]
fn forwarding_without_descriptors_is_an_error_and_not_an_outcome() {
    child::run("collect::forwarding_without_descriptors_is_an_error_and_not_an_outcome", || {
        let stage = Stage::new(ResolverChoice::Auto);
        let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
        stage.send("42", &[("f", b"x"), ("g", b"y")]);
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        let to = MessageId::new("7");
        let mut failures = 0;
        for free in 0..12 {
            match with_descriptors(free, || claim.forward(["f", "g", "gone"], &other.inbox(), &to)) {
                Ok(delivery) => assert_eq!((delivery.files().count(), delivery.refused().count()), (2, 1)),
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    failures += 1;
                }
            }
        }
        assert!((1..12).contains(&failures), "{failures}");
        let delivery = claim.forward(["f", "g", "gone"], &other.inbox(), &to).unwrap();
        assert_eq!((delivery.files().count(), delivery.refused().count()), (2, 1));
        let arrived = names(&stage.sessions_path().join("other/guest/inbox/7"));
        assert!(["f", "g"].iter().all(|name| arrived.contains(&(*name).to_owned())), "{arrived:?}");
    });
}

/// As on NFS, ZFS and some FUSE file systems.
#[test]
fn works_where_names_cannot_be_reserved() {
    denied(&[Denial::RenameNoReplace(Errno::INVAL)], || {
        let stage = Stage::new(ResolverChoice::Auto);
        stage.send("42", &[("f", b"first")]);
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        stage.send("42", &[("f", b"second")]);
        assert_eq!(claim.release().unwrap_err().kind(), ErrorKind::AlreadyExists);
        let mut service = Service::default();
        assert!(service.turn(&stage.session).unwrap().is_complete());
        assert_eq!(service.sent, ["first", "second"]);
        assert!(nothing_is_left(&stage));
    });
}

/// More messages than one process may have descriptors.
#[test]
fn a_thousand_messages_take_a_handful_of_descriptors() {
    child::run("collect::a_thousand_messages_take_a_handful_of_descriptors", || {
        let stage = Stage::new(ResolverChoice::Auto);
        for number in 0..1000 {
            stage.send(&format!("m{number}"), &[("f", b"x")]);
            if number < 300 {
                drop(stage.session.outbox().claim(&MessageId::new(format!("m{number}"))).unwrap());
            }
        }
        child::limit_descriptors(64);
        let mut service = Service::default();
        let report = service.turn(&stage.session).unwrap();
        assert!(report.is_complete() && report.done == 1000, "{report:?}");
        assert_eq!(service.sent.len(), 1000);
    });
}

/// Four workers claim one id, while a fifth looks for what is pending and tidies empty claims away.
#[test]
fn of_concurrent_claims_exactly_one_succeeds() {
    let stage = Stage::new(ResolverChoice::Auto);
    one_of_four_claims(&stage.session, |id| stage.send(id, &[("f", b"x")]));
    let guest = tempfile::tempdir().unwrap();
    let Ok(host) = tempfile::tempdir_in("/dev/shm") else { return skip("needs /dev/shm") };
    let open = |path| Root::open_ambient(path, ambient_authority()).unwrap();
    let session = Session::from_roots(open(guest.path()), open(host.path())).unwrap();
    one_of_four_claims(&session, |id| fs::create_dir_all(guest.path().join("outbox").join(id)).unwrap());
}

fn one_of_four_claims(session: &Session, send: impl Fn(&str)) {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(session.outbox().pending().unwrap().is_complete());
            }
        });
        // Also if a round fails.
        let _ends = Ends(&over);
        for round in 0..100 {
            let id = MessageId::new(format!("m{round}"));
            send(id.as_str());
            let claims = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| match session.outbox().claim(&id) {
                        Ok(Some(claim)) => {
                            claims.fetch_add(1, Ordering::Relaxed);
                            let _ = claim.clear();
                        }
                        Ok(None) => {}
                        Err(error) => panic!("{error}"),
                    });
                }
            });
            assert_eq!(claims.into_inner(), 1, "round {round}");
        }
    });
    assert!(session.outbox().pending().unwrap().total == 0);
}
