//! Messages that cannot be moved to the host's side: they get another name in the outbox and are read there.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use beneath::session::{Claim, Disposition, Failed, Place, SessionsConfig, Ticket};
use beneath::{
    Access, Budget, Durability, Error, ErrorKind, MessageId, Policy, Root, Session, ambient_authority,
};
use tempfile::TempDir;

use crate::support::{GUEST, HOST, as_user, names, own};
use beneath_kit::{is_root, skip};

fn id() -> MessageId {
    MessageId::new("42")
}

fn content(claim: &Claim) -> Vec<u8> {
    let collected = claim.read(["a"]).unwrap();
    let (_, bytes) = collected.found().next().unwrap();
    bytes.clone()
}

fn send(guest: &Path, bytes: &str) {
    fs::create_dir(guest.join("outbox/42")).unwrap();
    fs::write(guest.join("outbox/42/a"), bytes).unwrap();
}

fn session_over(guest: &Path, host: &Path) -> Session {
    let open = |path| Root::open_ambient(path, ambient_authority()).unwrap();
    let guest = open(guest).with_policy(Policy::default().with_access(Access::shared()));
    let session = Session::from_roots(guest, open(host)).unwrap();
    let _ = session.repair().unwrap();
    session
}

/// A session whose two sides are on different mounts.
fn across_mounts() -> Option<(TempDir, TempDir, Session)> {
    let (guest, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm"));
    let Ok(host) = host else {
        skip("needs a second file system at /dev/shm");
        return None;
    };
    let session = session_over(guest.path(), host.path());
    send(guest.path(), "probe");
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    if claim.place() == Place::Moved {
        skip("/dev/shm is on the same mount as the temporary directory");
        return None;
    }
    assert!(claim.clear().is_complete());
    Some((guest, host, session))
}

#[test]
fn reads_in_place_where_the_host_side_is_on_another_mount() {
    let Some((guest, host, session)) = across_mounts() else { return };
    send(guest.path(), "one");
    symlink("/etc/passwd", guest.path().join("outbox/42/b")).unwrap();
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    assert_eq!(claim.place(), Place::InPlace(ErrorKind::CrossDevice));
    assert_eq!(names(&guest.path().join("outbox")), [format!(".beneath-{}", claim.ticket())]);
    let messages = session.outbox().messages().unwrap();
    assert_eq!((messages.entries.len(), messages.refused.total), (0, 0), "the host's own name is no message");
    assert!(session.outbox().claim(&id()).unwrap().is_none(), "it is this claim's alone");

    let collected = claim.read(["a", "b"]).unwrap();
    let refused: Vec<_> = collected.refused().map(|(name, error)| (name, error.kind())).collect();
    assert_eq!(
        (content(&claim).as_slice(), refused),
        (b"one".as_slice(), vec![(Path::new("b"), ErrorKind::Symlink)])
    );
    assert!(claim.clear().is_complete());
    assert!(session.outbox().claim(&id()).unwrap().is_none());
    for dir in [guest.path().join("outbox"), host.path().join("claimed"), host.path().join("trash")] {
        assert_eq!(names(&dir), [""; 0], "{}", dir.display());
    }
}

#[test]
fn what_stays_of_a_cleared_message_is_reported_and_known_as_the_hosts() {
    let Some((guest, host, session)) = across_mounts() else { return };
    for (files, entries, in_outbox) in [(50, 10, 1), (0, 1, 0)] {
        let budget = Budget::default().with_entries(entries);
        let session = session.clone().with_config(SessionsConfig::default().with_budget(budget));
        fs::create_dir(guest.path().join("outbox/42")).unwrap();
        (0..files).for_each(|file| fs::write(guest.path().join(format!("outbox/42/{file}")), "x").unwrap());
        let claim = session.outbox().claim(&id()).unwrap().unwrap();
        let ticket = claim.ticket().clone();
        assert!(!claim.clear().is_complete(), "{files} files");
        assert_eq!(names(&guest.path().join("outbox")).len(), in_outbox);
        assert!(names(&host.path().join("trash")).contains(&ticket.to_string()));
        let messages = session.outbox().messages().unwrap();
        assert_eq!((messages.entries.len(), messages.refused.total), (0, 0), "it is the host's");
        assert!(session.outbox().pending().unwrap().total == 0);
        fs::remove_dir_all(guest.path().join(format!("outbox/.beneath-{ticket}"))).ok();
    }
}

#[test]
fn a_claim_in_place_survives_a_crash_with_its_ticket_and_can_be_released() {
    let Some((guest, host, session)) = across_mounts() else { return };
    send(guest.path(), "first");
    let ticket = session.outbox().claim(&id()).unwrap().unwrap().ticket().clone();
    send(guest.path(), "second");
    let pending = session.outbox().pending().unwrap().entries.remove(0);
    assert_eq!(
        (pending.ticket(), pending.id(), content(&pending).as_slice()),
        (&ticket, &id(), &b"first"[..])
    );
    assert_eq!(pending.place(), Place::InPlace(ErrorKind::CrossDevice));
    assert_eq!(pending.release().unwrap_err().kind(), ErrorKind::AlreadyExists, "the second is not replaced");

    let second = session.outbox().claim(&id()).unwrap().unwrap();
    assert_eq!(content(&second), b"second");
    let _ = second.clear();
    session.outbox().pending().unwrap().entries.remove(0).release().unwrap();
    assert_eq!(fs::read(guest.path().join("outbox/42/a")).unwrap(), b"first");
    assert!(session.outbox().pending().unwrap().total == 0);
    assert_eq!(names(&host.path().join("claimed")), [""; 0]);
}

/// The guest sees the host's name for the message.
#[test]
fn a_guest_that_takes_its_message_away_confuses_nobody() {
    let Some((guest, host, session)) = across_mounts() else { return };
    let outbox = guest.path().join("outbox");
    send(guest.path(), "taken back");
    let first = session.outbox().claim(&id()).unwrap().unwrap().ticket().clone();
    fs::rename(outbox.join(format!(".beneath-{first}")), outbox.join("42")).unwrap();
    assert!(session.outbox().pending().unwrap().total == 0);
    let second = session.outbox().claim(&id()).unwrap().unwrap();
    assert_ne!(second.ticket(), &first);
    assert_eq!(content(&second), b"taken back");
    let _ = second.clear();

    send(guest.path(), "exchanged");
    let third = session.outbox().claim(&id()).unwrap().unwrap();
    let aside = outbox.join(format!(".beneath-{}", third.ticket()));
    fs::remove_dir_all(&aside).unwrap();
    symlink("/etc", &aside).unwrap();
    assert!(session.outbox().pending().unwrap().total == 0);
    assert!(third.clear().is_complete(), "the link itself");
    assert!(Path::new("/etc/passwd").exists());

    fs::create_dir(outbox.join(".beneath-20260101T000000250Z-00000000000000000000000000000000")).unwrap();
    assert!(session.outbox().pending().unwrap().total == 0, "a ticket that the host never gave");
    assert_eq!(session.outbox().messages().unwrap().refused.total, 1, "and it is reported");
    let _ = session.outbox().sweep(Duration::ZERO).unwrap();
    assert_eq!(names(&host.path().join("claimed")), [""; 0], "notes without a message are swept");
    assert_eq!(names(&outbox), [""; 0]);
}

/// As after a restart, with a file system of its own for the outbox that is mounted later than the service starts.
#[test]
fn a_message_whose_outbox_is_not_there_is_reported_and_stays_pending() {
    let Some((guest, host, session)) = across_mounts() else { return };
    let (outbox, away) = (guest.path().join("outbox"), guest.path().join("away"));
    send(guest.path(), "kept");
    let ticket = session.outbox().claim(&id()).unwrap().unwrap().ticket().clone();
    fs::rename(&outbox, &away).unwrap();
    let look = |what: &str| {
        let pending = session.outbox().pending().unwrap();
        let refused: Vec<_> = pending.refused().map(|(ticket, error)| (ticket, error.kind())).collect();
        assert_eq!(refused, [(Path::new(ticket.as_str()), ErrorKind::Busy)], "{what}");
        assert_eq!((pending.entries.len(), pending.total), (0, 1), "{what}");
        let lock = session.try_lock().unwrap();
        let report = session.outbox().collect(&lock, &mut HashSet::new(), |_| panic!("{what}")).unwrap();
        let failed: Vec<_> = report.failed.iter().map(|failed: &Failed<Error>| &failed.ticket).collect();
        assert!(failed.contains(&&Some(ticket.clone())), "{what}");
        assert_eq!(names(&host.path().join("claimed")).len(), 1, "{what}");
    };
    look("no outbox");
    fs::create_dir(&outbox).unwrap();
    look("another directory");
    fs::remove_dir(&outbox).unwrap();
    symlink(&away, &outbox).unwrap();
    look("a link to it");
    fs::remove_file(&outbox).unwrap();
    fs::rename(&away, &outbox).unwrap();
    let pending = session.outbox().pending().unwrap().entries.remove(0);
    assert_eq!((pending.ticket(), content(&pending).as_slice()), (&ticket, &b"kept"[..]));
}

/// A guest's file in place of a message, and a note that a crash or a power cut has cut off.
#[test]
fn a_file_that_is_no_note_of_the_hosts_is_no_claim() {
    let Some((_guest, host, session)) = across_mounts() else { return };
    for text in ["", "Cross", "CrossDevice", "Strange 1 2", &"x".repeat(200)] {
        let slot = host.path().join("claimed/20260101T000000250Z-00000000000000000000000000000000");
        fs::create_dir(&slot).unwrap();
        fs::write(slot.join("42"), text).unwrap();
        let pending = session.outbox().pending().unwrap();
        assert!(pending.total == 0 && pending.is_complete(), "{text:?}: {pending:?}");
        fs::remove_dir_all(slot).unwrap();
    }
}

#[test]
fn clearing_in_place_spares_a_new_message_of_the_same_id() {
    let Some((guest, _host, session)) = across_mounts() else { return };
    send(guest.path(), "old");
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    send(guest.path(), "new");
    assert!(claim.clear().is_complete());
    assert_eq!(content(&session.outbox().claim(&id()).unwrap().unwrap()), b"new");
}

/// Sends one id many times, with a host that removes what it clears and one that may remove nothing.
fn sent_often_is_given_as_often(guest: &Path, host: &Path, times: u32) {
    for budget in [Budget::default(), Budget::default().with_entries(0)] {
        let session = session_over(guest, host).with_config(SessionsConfig::default().with_budget(budget));
        let mut tickets = HashSet::new();
        for number in 0..times {
            send(guest, &number.to_string());
            let Some(claim) = session.outbox().claim(&id()).unwrap() else {
                panic!("message {number} was taken for a cleared one");
            };
            assert_eq!(content(&claim), number.to_string().as_bytes());
            assert!(tickets.insert(claim.ticket().clone()));
            let _ = claim.clear();
            assert!(session.outbox().claim(&id()).unwrap().is_none(), "it was cleared");
        }
        assert!(session.outbox().pending().unwrap().total == 0);
    }
}

#[test]
fn one_id_used_again_and_again_is_a_new_message_each_time() {
    let Some((guest, host, _)) = across_mounts() else { return };
    sent_often_is_given_as_often(guest.path(), host.path(), 50);
}

/// An ext3 with inodes of 128 bytes knows no time of birth, and of other times only the second; and it gives an inode number
/// again at once.
#[test]
fn coarse_clocks_and_reused_inodes_lose_no_message() {
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    fs::create_dir(&mount).unwrap();
    let ran = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !is_root()
        || !ran(Command::new("mkfs.ext3").args(["-q", "-I", "128", "-F"]).arg(&image))
        || !ran(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount))
    {
        return skip("needs root, mkfs.ext3 and a loop device");
    }
    let guest = mount.join("guest");
    fs::create_dir(&guest).unwrap();
    let host = tempfile::tempdir().unwrap();
    let outcome = std::panic::catch_unwind(|| sent_often_is_given_as_often(&guest, host.path(), 250));
    assert!(ran(Command::new("umount").arg(&mount)));
    outcome.unwrap();
}

#[test]
fn sweeps_what_was_cleared_in_place_and_stayed() {
    let Some((guest, host, session)) = across_mounts() else { return };
    let no_budget = SessionsConfig::default().with_budget(Budget::default().with_entries(0));
    let session = session.with_config(no_budget);
    send(guest.path(), "cleared");
    assert!(!session.outbox().claim(&id()).unwrap().unwrap().clear().is_complete());
    assert_eq!(names(&guest.path().join("outbox")).len(), 1);
    let session = session.with_config(SessionsConfig::default());
    let swept = session.outbox().sweep(Duration::ZERO).unwrap();
    assert_eq!(swept.left.total, 0, "{swept:?}");
    for dir in [guest.path().join("outbox"), host.path().join("trash")] {
        assert_eq!(names(&dir), [""; 0]);
    }
}

/// A host and a guest of different users who share a group, as the mode of each directory says.
fn two_users(outbox: u32, message: u32) -> Option<TempDir> {
    if !is_root() {
        skip("needs root, to have a guest of another user");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    own(dir.path(), HOST, 0o755);
    for (path, user, mode) in [
        ("guest", GUEST, 0o770),
        ("guest/outbox", GUEST, outbox),
        ("guest/outbox/42", GUEST, message),
        ("host", HOST, 0o700),
    ] {
        fs::create_dir(dir.path().join(path)).unwrap();
        own(&dir.path().join(path), user, mode);
    }
    fs::write(dir.path().join("guest/outbox/42/a"), "one").unwrap();
    own(&dir.path().join("guest/outbox/42/a"), GUEST, 0o640);
    Some(dir)
}

fn open(dir: &Path, durability: Durability) -> Session {
    let open = |name| Root::open_ambient(dir.join(name), ambient_authority()).unwrap();
    let policy = Policy::default().with_durability(durability);
    Session::from_roots(open("guest").with_policy(policy.clone()), open("host").with_policy(policy)).unwrap()
}

#[test]
fn reads_in_place_what_the_host_may_read_but_not_move() {
    let Some(dir) = two_users(0o770, 0o750) else { return };
    as_user(HOST, || {
        let session = open(dir.path(), Durability::None);
        let claim = session.outbox().claim(&id()).unwrap().unwrap();
        assert_eq!(claim.place(), Place::InPlace(ErrorKind::Denied));
        assert_eq!(content(&claim), b"one");
        assert!(!claim.clear().is_complete(), "it may not even remove it");
        assert!(session.outbox().claim(&id()).unwrap().is_none(), "and yet it is not given out again");
        assert!(session.outbox().pending().unwrap().total == 0);
    });
}

/// The guest's umask is 077, so the host can neither read nor move nor remove the message.
#[test]
fn what_the_host_may_not_even_enter_is_cleared_all_the_same() {
    let Some(dir) = two_users(0o770, 0o700) else { return };
    as_user(HOST, || {
        let session = open(dir.path(), Durability::None);
        let mut refused = Vec::new();
        let mut turn = || {
            let lock = session.try_lock().unwrap();
            let mut none: HashSet<Ticket> = HashSet::new();
            let collection = session.outbox().collect(&lock, &mut none, |claim| {
                refused.extend(claim.read(["a"])?.refused().map(|(_, error)| error.kind()));
                Ok::<_, Error>(Disposition::Done)
            });
            collection.unwrap()
        };
        let collection = turn();
        assert_eq!((collection.done, collection.left.total), (1, 1), "{collection:?}");
        let collection = turn();
        assert_eq!((collection.done, collection.failed_total), (0, 0), "{collection:?}");
        assert_eq!(refused, [ErrorKind::Denied], "reported once");
    });
    let left = names(&dir.path().join("guest/outbox"));
    assert!(left.len() == 1 && left[0].starts_with(".beneath-"), "{left:?}");
    assert!(dir.path().join("guest/outbox").join(&left[0]).join("a").exists());
}

#[test]
fn an_outbox_that_the_host_may_not_write_to_is_reported_and_loses_nothing() {
    let Some(dir) = two_users(0o750, 0o770) else { return };
    as_user(HOST, || {
        let session = open(dir.path(), Durability::None);
        assert_eq!(session.outbox().claim(&id()).unwrap_err().kind(), ErrorKind::Denied);
        assert!(session.outbox().pending().unwrap().total == 0);
        let lock = session.try_lock().unwrap();
        let mut none: HashSet<Ticket> = HashSet::new();
        let collection =
            session.outbox().collect(&lock, &mut none, |_| Ok::<_, Error>(Disposition::Done)).unwrap();
        assert_eq!((collection.done, collection.failed_total), (0, 1));
        assert_eq!(collection.failed[0].error.kind(), ErrorKind::Denied);
    });
    assert!(dir.path().join("guest/outbox/42/a").exists());
    assert_eq!(names(&dir.path().join("host/claimed")), [""; 0]);
}

/// The host may move the message but not read, and so not sync, the directory it comes from.
#[test]
fn an_outbox_that_cannot_be_synced_does_not_keep_its_messages() {
    let Some(dir) = two_users(0o730, 0o770) else { return };
    as_user(HOST, || {
        let session = open(dir.path(), Durability::Full);
        let claim = session.outbox().claim(&id()).unwrap().unwrap();
        assert_eq!(claim.place(), Place::Moved);
        assert_eq!(content(&claim), b"one");
    });
}

/// Worker B asks for an id that worker A has, while the guest keeps everybody out of its outbox.
#[test]
fn a_claim_that_failed_does_not_take_another_workers_message() {
    let Some(dir) = two_users(0o770, 0o770) else { return };
    as_user(HOST, || {
        let (a, b) = (open(dir.path(), Durability::None), open(dir.path(), Durability::None));
        let claim = a.outbox().claim(&id()).unwrap().unwrap();
        as_user(GUEST, || {
            let guest = dir.path().join("guest");
            fs::rename(guest.join("outbox"), guest.join("old")).unwrap();
            fs::create_dir(guest.join("outbox")).unwrap();
            own(&guest.join("outbox"), GUEST, 0o000);
        });
        assert_eq!(b.outbox().claim(&id()).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(content(&claim), b"one", "it is still worker A's");
        assert_eq!(names(&dir.path().join("host/claimed")), [claim.ticket().as_str()]);
        assert!(claim.clear().is_complete());
        assert!(b.outbox().pending().unwrap().total == 0);
    });
}
