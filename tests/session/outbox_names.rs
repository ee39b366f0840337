//! Messages by the names that guests give them, and how often they were tried.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;

use beneath::session::{Disposition, MessageLimits, SessionsConfig, Ticket};
use beneath::{Error, ErrorKind, MessageId, Session};

use crate::support::{Stage, kinds, names, with_each_resolver};

fn send(stage: &Stage, name: impl AsRef<OsStr>, content: &str) {
    let dir = stage.guest("outbox").join(name.as_ref());
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a"), content).unwrap();
}

/// The content of each message that a turn hands out, and its attempt.
fn collect(session: &Session, how: Disposition) -> Vec<(String, u32)> {
    let mut sent = Vec::new();
    let lock = session.try_lock().unwrap();
    let mut ledger: HashSet<Ticket> = HashSet::new();
    let report = session.outbox().collect(&lock, &mut ledger, |claim| {
        let content = claim.read(["a"])?.files.remove(0).content?;
        sent.push((String::from_utf8(content).unwrap(), claim.attempts()));
        Ok::<_, Error>(how)
    });
    assert_eq!(report.unwrap().failed_total, 0);
    sent
}

#[test]
fn a_message_is_found_by_the_name_that_the_guest_chose_itself() {
    with_each_resolver(|stage| {
        let (outbox, id) = (stage.session.outbox(), MessageId::new("msg:agent-1"));
        send(stage, "msg:agent-1", "raw");
        assert_eq!(outbox.messages().unwrap().entries, std::slice::from_ref(&id));
        let claim = outbox.claim(&id).unwrap().unwrap();
        assert_eq!((claim.id(), claim.directory_name()), (&id, OsStr::new("msg:agent-1")));
        assert_eq!(outbox.pending().unwrap().entries[0].id(), &id);
        claim.release().unwrap();
        assert_eq!(names(&stage.guest("outbox")), ["msg:agent-1"], "it gets its own name back");

        drop(outbox.claim(&id).unwrap().unwrap());
        let lock = stage.session.try_lock().unwrap();
        let claim = outbox.claim_pending(&lock, &id).unwrap().unwrap();
        assert_eq!(claim.read(["/session/outbox/msg:agent-1/a"]).unwrap().found().count(), 1);
        assert!(claim.clear().is_complete());
        assert!(outbox.claim(&id).unwrap().is_none());
        assert!(outbox.claim_pending(&lock, &id).unwrap().is_none());
    });
}

#[test]
fn of_two_directories_with_one_id_both_are_claimed_the_hosts_name_first() {
    with_each_resolver(|stage| {
        let (outbox, id) = (stage.session.outbox(), MessageId::new("msg:agent-1"));
        send(stage, "msg:agent-1", "raw");
        send(stage, id.as_str(), "encoded");
        assert_eq!(outbox.messages().unwrap().entries, [id.clone(), id.clone()]);
        for content in ["encoded", "raw"] {
            let claim = outbox.claim(&id).unwrap().unwrap();
            assert_eq!(claim.read(["a"]).unwrap().found().next().unwrap().1, content.as_bytes());
        }
        assert!(outbox.claim(&id).unwrap().is_none());
        assert_eq!(outbox.pending().unwrap().entries.len(), 2);
        for claim in outbox.pending().unwrap().entries {
            claim.release().unwrap();
        }
        assert_eq!(names(&stage.guest("outbox")).len(), 2, "each has its own name");
        let mut sent = collect(&stage.session, Disposition::Done);
        sent.sort();
        assert_eq!(sent, [("encoded".into(), 1), ("raw".into(), 1)]);
        assert!(names(&stage.guest("outbox")).is_empty() && names(&stage.host("claimed")).is_empty());
    });
}

#[test]
fn whatever_a_guest_calls_its_message_is_listed_and_claimed() {
    let digest = "0".repeat(32);
    let long = "é".repeat(127);
    let odd: Vec<OsString> = [
        b"caf\xe9".as_slice(),
        b"a\nb",
        b" blank ",
        b"-rf",
        b"aux",
        b"Q3: plan?",
        b"\xe2\x80\xaeexe.txt",
        b"~root",
        format!("A.B~{digest}").as_bytes(),
        format!("x~{digest}").as_bytes(),
        long.as_bytes(),
    ]
    .map(|name| OsString::from_vec(name.to_owned()))
    .into();
    with_each_resolver(|stage| {
        for (number, name) in odd.iter().enumerate() {
            send(stage, name, &number.to_string());
        }
        let messages = stage.session.outbox().messages().unwrap();
        assert!(messages.is_complete(), "{messages:?}");
        let ids: HashSet<&MessageId> = messages.entries.iter().collect();
        assert_eq!(ids.len(), odd.len(), "each has an id of its own");
        for id in &messages.entries {
            let claim = stage.session.outbox().claim(id).unwrap().unwrap();
            assert_eq!(claim.id(), id);
            assert!(odd.iter().any(|name| name == claim.directory_name()));
            drop(claim);
        }
        for claim in stage.session.outbox().pending().unwrap().entries {
            claim.release().unwrap();
        }
        let back: HashSet<OsString> =
            fs::read_dir(stage.guest("outbox")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(back, odd.iter().cloned().collect());
        assert_eq!(collect(&stage.session, Disposition::Done).len(), odd.len());
    });
}

#[test]
fn what_starts_with_a_dot_is_no_message_yet() {
    with_each_resolver(|stage| {
        for name in [".42", ".beneath-42", "..."] {
            send(stage, name, "half written");
        }
        symlink(stage.home.path(), stage.guest("outbox/msg:link")).unwrap();
        fs::write(stage.guest("outbox/msg:file"), "").unwrap();
        let outbox = stage.session.outbox();
        let messages = outbox.messages().unwrap();
        assert!(messages.entries.is_empty());
        let mut refused = kinds(messages.refused());
        refused.sort_by_key(|kind| format!("{kind:?}"));
        let name = ErrorKind::InvalidName;
        assert_eq!(refused, [name, name, name, ErrorKind::NotDirectory, ErrorKind::Symlink]);
        assert!(outbox.claim(&MessageId::new(".42")).unwrap().is_none());
        assert_eq!(outbox.claim(&MessageId::new("msg:link")).unwrap_err().kind(), ErrorKind::Symlink);
        fs::rename(stage.guest("outbox/.42"), stage.guest("outbox/42")).unwrap();
        assert_eq!(collect(&stage.session, Disposition::Done).len(), 1);
    });
}

#[test]
fn attempts_survive_the_host_and_grow_each_time_a_claim_is_given_out() {
    with_each_resolver(|stage| {
        let id = MessageId::new("msg:agent-1");
        send(stage, "msg:agent-1", "x");
        assert_eq!(stage.session.outbox().claim(&id).unwrap().unwrap().attempts(), 1);
        // Each turn is another host's.
        let open = || stage.sessions.open(&beneath::SessionId::new("s")).unwrap();
        assert_eq!(collect(&open(), Disposition::Keep), [("x".into(), 2)]);
        let session = open();
        let lock = session.try_lock().unwrap();
        let given = session.outbox().claim_pending(&lock, &id).unwrap().unwrap();
        assert_eq!(given.attempts(), 3);
        drop((given, lock));
        assert_eq!(open().outbox().pending().unwrap().entries[0].attempts(), 3, "a look is no attempt");
        assert_eq!(collect(&open(), Disposition::Done), [("x".into(), 4)]);

        let other = stage.sessions.create(&beneath::SessionId::new("t")).unwrap().0;
        let foreign = other.try_lock().unwrap();
        let refused = open().outbox().claim_pending(&foreign, &id).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy);
    });
}

#[test]
fn of_several_pending_messages_with_one_id_the_oldest_is_given_out_first() {
    with_each_resolver(|stage| {
        let id = MessageId::new("42");
        for content in ["first", "second"] {
            send(stage, "42", content);
            drop(stage.session.outbox().claim(&id).unwrap().unwrap());
            // Claims are ordered by the millisecond.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let lock = stage.session.try_lock().unwrap();
        for content in ["first", "second"] {
            let claim = stage.session.outbox().claim_pending(&lock, &id).unwrap().unwrap();
            assert_eq!(claim.read(["a"]).unwrap().found().next().unwrap().1, content.as_bytes());
            assert!(claim.clear().is_complete());
        }
    });
}

#[test]
fn the_limit_stays_with_the_file_that_is_handed_on() {
    use std::io::{Read as _, Write as _};

    let limits = MessageLimits::default().with_file_bytes(10);
    let stage = Stage::with_config(SessionsConfig::default().with_outbox(limits));
    send(&stage, "42", "12345");
    let mut held = fs::File::options().append(true).open(stage.guest("outbox/42/a")).unwrap();
    let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
    let open = || claim.open(["a"]).unwrap().files.remove(0).content.unwrap();
    let (mut whole, bounded) = (open(), open());
    held.write_all(b"6789012345").unwrap();
    let error = whole.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.downcast::<Error>().unwrap().kind(), ErrorKind::TooLarge);
    let (file, left) = bounded.into_file();
    assert_eq!((left, file.metadata().unwrap().len()), (10, 15));
    let mut bytes = Vec::new();
    file.take(left).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"1234567890");
}

#[test]
fn a_claim_is_found_although_somebody_has_counted_another_attempt_meanwhile() {
    with_each_resolver(|stage| {
        let (outbox, id) = (stage.session.outbox(), MessageId::new("42"));
        let lock = stage.session.try_lock().unwrap();
        let counted = || drop(outbox.claim_pending(&lock, &id).unwrap().unwrap());

        send(stage, "42", "first");
        drop(outbox.claim(&id).unwrap());
        let pending = outbox.pending().unwrap().entries.remove(0);
        counted();
        assert_eq!(pending.read(["a"]).unwrap().found().count(), 1);
        pending.release().unwrap();
        assert_eq!(names(&stage.guest("outbox")), ["42"]);
        assert_eq!(names(&stage.host("claimed")).len(), 0);

        let claim = outbox.claim(&id).unwrap().unwrap();
        counted();
        let cleared = claim.clear();
        assert!(cleared.is_complete() && cleared.files == 1, "{cleared:?}");
        assert!(outbox.pending().unwrap().total == 0, "what is reported as cleared is not sent again");
    });
}

#[test]
fn a_reserved_id_is_refused_by_either_of_its_names() {
    with_each_resolver(|stage| {
        let config = SessionsConfig::default().with_reserved(["sys:admin"]);
        let session = stage.session.clone().with_config(config);
        let id = MessageId::new("sys:admin");
        for name in ["sys:admin", id.as_str()] {
            send(stage, name, "x");
            let listing = session.outbox().messages().unwrap();
            assert!(listing.entries.is_empty(), "{name}");
            assert_eq!(session.outbox().claim(&id).unwrap_err().kind(), ErrorKind::InvalidName, "{name}");
        }
        assert!(collect(&session, Disposition::Done).is_empty());
    });
}
