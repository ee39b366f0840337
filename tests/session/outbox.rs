use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use beneath::session::{Claim, Collected, Place, SessionsConfig};
use beneath::{
    Access, Budget, Durability, ErrorKind, MessageId, Policy, ResolverChoice, Root, Session, SessionId,
    ambient_authority,
};

use crate::support::{Stage, fifo, names, small, with_each_resolver};

fn id() -> MessageId {
    MessageId::new("42")
}

fn found(collected: &Collected<Vec<u8>>) -> Vec<(&str, &[u8])> {
    collected.found().map(|(name, bytes)| (name, bytes.as_slice())).collect()
}

fn refused(collected: &Collected<Vec<u8>>) -> Vec<(&str, ErrorKind)> {
    collected.refusals().map(|(name, error)| (name, error.kind())).collect()
}

#[test]
fn a_claim_takes_the_message_out_of_the_guests_reach() {
    with_each_resolver(|stage| {
        stage.send("42", &[("b", b"two"), ("a", b"one")]);
        let outbox = stage.session.outbox();
        assert_eq!(outbox.messages().unwrap().ids, [id()]);
        let claim = outbox.claim(&id()).unwrap().unwrap();
        assert_eq!(claim.place(), Place::Moved);
        assert!(!stage.guest("outbox/42").exists());
        assert!(outbox.claim(&id()).unwrap().is_none());

        let collected = claim.read(["b", "gone", "a", "b"]).unwrap();
        assert_eq!(found(&collected), [("b", b"two".as_slice()), ("a", b"one")]);
        assert_eq!(refused(&collected), [("gone", ErrorKind::NotFound)]);
        assert_eq!(collected.repeated, 1);
        assert!(claim.clear().removed.complete);
        assert!(outbox.pending().unwrap().is_empty());
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
            "link", "dangling", "fifo", "dir", "shared", "socket", "../x", "a/b", "", ".", "..", "a\0",
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
        .chain(["../x", "a/b", "", ".", "..", "a\0"].map(|name| (name, ErrorKind::InvalidName)))
        .collect();
        assert_eq!(refused(&collected), expected);

        let undeclared = claim.undeclared(["good", "link"]).unwrap();
        let shown: Vec<_> =
            undeclared.entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.refusal)).collect();
        assert_eq!(shown.len(), 6);
        assert!(shown.contains(&(".dotfile", None)));
        assert!(shown.contains(&("shared", Some(ErrorKind::HardLinked))));
        assert!(claim.clear().removed.complete);
        assert!(stage.guest("workspace/shared").exists());
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
    assert_eq!(claim.open(names).unwrap().refusals().count(), 4);

    let mut opened = claim.open(["a"]).unwrap();
    let mut file = opened.files.remove(0).content.unwrap();
    let mut log = fs::File::options().append(true).open(stage.host("claimed/42/a")).unwrap();
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
        let pending = again.outbox().pending().unwrap();
        let ids: Vec<&str> = pending.iter().map(|claim| claim.id().as_str()).collect();
        assert_eq!(ids, ["b", "a", "c"]);
        assert_eq!(found(&pending[1].read(["f"]).unwrap()), [("f", b"a".as_slice())]);
        stage.send("a", &[("f", b"again")]);
        let error = outbox.claim(&MessageId::new("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(error.to_string(), r#"rename "outbox/a": is claimed already"#);
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
        assert!(outbox.pending().unwrap().is_empty());

        let claim = outbox.claim(&id()).unwrap().unwrap();
        stage.send("42", &[("f", b"refilled")]);
        assert_eq!(claim.release().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(outbox.pending().unwrap().len(), 1, "not lost");
        stage.replace_by_link("outbox", stage.home.path());
        let claim = outbox.pending().unwrap().remove(0);
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
        assert_eq!((messages.ids.len(), messages.refused_total), (0, 3));
        assert!(outbox.pending().unwrap().is_empty());
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
        let forward = |claim: &Claim<'_>| {
            let delivery = claim.forward(declared, &other.inbox(), &MessageId::new("a2a:1")).unwrap();
            let files: Vec<String> = delivery.files().map(|file| file.name.to_string()).collect();
            let kinds: Vec<ErrorKind> = delivery.refusals().map(beneath::Error::kind).collect();
            (files, kinds)
        };
        let expected = (
            vec!["a.txt".to_owned(), "_.env".to_owned()],
            vec![ErrorKind::Symlink, ErrorKind::NotFound, ErrorKind::InvalidName],
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
        assert_eq!((swept.removed, swept.left_total), (3, 0), "{swept:?}");
        assert!(outbox.pending().unwrap().is_empty());
    });
}

/// A guest can make any number of messages, each of which would have a budget of its own.
#[test]
fn a_sweep_begins_nothing_once_its_time_is_over() {
    let stage = Stage::new(ResolverChoice::Auto);
    stage.send("left", &[("f", b"x")]);
    fs::create_dir(stage.host("trash/remains")).unwrap();
    let budget = Budget::default().with_time(Duration::ZERO);
    let session = stage
        .sessions
        .open(&SessionId::new("s"))
        .unwrap()
        .with_config(SessionsConfig::default().with_budget(budget));
    let swept = session.outbox().sweep(Duration::ZERO).unwrap();
    assert_eq!((swept.removed, swept.kept), (0, 2), "{swept:?}");
    assert!(stage.guest("outbox/left/f").exists());
}

/// A session whose two sides are on different mounts.
fn across_mounts() -> Option<(tempfile::TempDir, tempfile::TempDir, Session)> {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").ok()?);
    let open = |path| Root::open_ambient(path, ambient_authority()).unwrap();
    let guest = open(here.path()).with_policy(Policy::default().with_access(Access::shared()));
    let session = Session::from_roots(guest, open(there.path())).unwrap();
    session.repair().unwrap();
    session.outbox().claim(&MessageId::new("none")).unwrap();
    Some((here, there, session))
}

#[test]
fn reads_in_place_where_the_host_side_is_on_another_mount() {
    let Some((guest, _host, session)) = across_mounts() else {
        println!("skipped: needs a second file system at /dev/shm");
        return;
    };
    fs::create_dir(guest.path().join("outbox/42")).unwrap();
    fs::write(guest.path().join("outbox/42/a"), "one").unwrap();
    symlink("/etc/passwd", guest.path().join("outbox/42/b")).unwrap();
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    if claim.place() == Place::Moved {
        println!("skipped: /dev/shm is on the same mount as the temporary directory");
        return;
    }
    assert_eq!(claim.place(), Place::InPlace(ErrorKind::CrossDevice));
    let collected = claim.read(["a", "b"]).unwrap();
    assert_eq!(found(&collected), [("a", b"one".as_slice())]);
    assert_eq!(refused(&collected), [("b", ErrorKind::Symlink)]);
    assert!(claim.clear().removed.complete);
    assert!(session.outbox().claim(&id()).unwrap().is_none());
    assert!(!guest.path().join("outbox/42").exists());
}

/// As user 65534, who may not move a directory of root's with mode 0755.
#[test]
fn reads_in_place_where_an_unprivileged_host_may_not_move() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to have a guest of another user");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let output = std::process::Command::new(exe)
        .args(["--exact", "outbox::unprivileged_child", "--nocapture"])
        .env("BENEATH_TEST_UNPRIVILEGED", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn unprivileged_child() {
    if std::env::var_os("BENEATH_TEST_UNPRIVILEGED").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, mode) in
        [("guest", 0o777), ("guest/outbox", 0o777), ("guest/outbox/42", 0o755), ("host", 0o777)]
    {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(dir.path().join("guest/outbox/42/a"), "one").unwrap();
    // All threads share these in one process image, so this one stops being root for good.
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_gid(rustix::process::Gid::from_raw(65534)).unwrap();
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();

    let open = |name| Root::open_ambient(dir.path().join(name), ambient_authority()).unwrap();
    let session = Session::from_roots(open("guest"), open("host")).unwrap();
    let outbox = session.outbox();
    let claim = outbox.claim(&id()).unwrap().unwrap();
    assert_eq!(claim.place(), Place::InPlace(ErrorKind::Denied));
    assert_eq!(found(&claim.read(["a"]).unwrap()), [("a", b"one".as_slice())]);
    let cleared = claim.clear();
    assert!(!cleared.removed.complete, "it may not even remove it");
    assert!(outbox.claim(&id()).unwrap().is_none(), "and yet it is not given out again");
    assert!(dir.path().join("guest/outbox/42/a").exists());
    // The directory is root's: leave its removal to the parent's temporary directory sweep.
    std::mem::forget(dir);
}

/// As user 65534, who may move the message but not read, and so not sync, the directory it comes from.
#[test]
fn a_message_that_moved_before_the_sync_failed_is_claimed() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to have a guest of another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, mode) in
        [("guest", 0o777), ("guest/outbox", 0o733), ("guest/outbox/42", 0o777), ("host", 0o777)]
    {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(dir.path().join("guest/outbox/42/a"), "one").unwrap();
    let exe = std::env::current_exe().unwrap();
    let output = std::process::Command::new(exe)
        .args(["--exact", "outbox::unsyncable_child", "--nocapture"])
        .env("BENEATH_TEST_UNSYNCABLE", dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn unsyncable_child() {
    let Some(dir) = std::env::var_os("BENEATH_TEST_UNSYNCABLE").map(std::path::PathBuf::from) else {
        return;
    };
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_gid(rustix::process::Gid::from_raw(65534)).unwrap();
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
    let open = |name| Root::open_ambient(dir.join(name), ambient_authority()).unwrap();
    let host = open("host").with_policy(Policy::default().with_durability(Durability::Full));
    let session = Session::from_roots(open("guest"), host).unwrap();
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    assert_eq!(found(&claim.read(["a"]).unwrap()), [("a", b"one".as_slice())]);
}

/// A session that reads in place and is allowed to remove nothing, so that what it clears stays.
fn clears_nothing() -> Option<(tempfile::TempDir, tempfile::TempDir, Session)> {
    let (guest, host, session) = across_mounts()?;
    fs::create_dir(guest.path().join("outbox/probe")).unwrap();
    let place = session.outbox().claim(&MessageId::new("probe")).unwrap().unwrap().place();
    if place == Place::Moved {
        return None;
    }
    let config = SessionsConfig::default().with_budget(Budget::default().with_entries(0));
    Some((guest, host, session.with_config(config)))
}

#[test]
fn a_new_message_with_the_inode_of_a_cleared_one_is_given() {
    use std::os::unix::fs::MetadataExt;

    let Some((guest, _host, session)) = clears_nothing() else {
        println!("skipped: needs a second file system at /dev/shm");
        return;
    };
    let message = guest.path().join("outbox/42");
    let send = || {
        fs::create_dir(&message).unwrap();
        fs::write(message.join("a"), "one").unwrap();
        fs::symlink_metadata(&message).unwrap().ino()
    };
    for _ in 0..50 {
        let first = send();
        let claim = session.outbox().claim(&id()).unwrap().unwrap();
        assert!(!claim.clear().removed.complete);
        assert!(session.outbox().claim(&id()).unwrap().is_none(), "it was cleared");
        fs::remove_dir_all(&message).unwrap();
        let reused = send() == first;
        let claim = session.outbox().claim(&id()).unwrap().unwrap();
        assert_eq!(found(&claim.read(["a"]).unwrap()), [("a", b"one".as_slice())]);
        fs::remove_dir_all(&message).unwrap();
        if reused {
            return;
        }
    }
    println!("skipped: this file system does not reuse inode numbers at once");
}

#[test]
fn clearing_in_place_spares_a_message_put_in_its_place() {
    let Some((guest, _host, session)) = across_mounts() else {
        println!("skipped: needs a second file system at /dev/shm");
        return;
    };
    let message = guest.path().join("outbox/42");
    fs::create_dir(&message).unwrap();
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    if claim.place() == Place::Moved {
        println!("skipped: /dev/shm is on the same mount as the temporary directory");
        return;
    }
    fs::rename(&message, guest.path().join("outbox/old")).unwrap();
    fs::create_dir(&message).unwrap();
    fs::write(message.join("a"), "new").unwrap();
    claim.clear();
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    assert_eq!(found(&claim.read(["a"]).unwrap()), [("a", b"new".as_slice())]);
}

#[test]
fn sweeps_the_marks_of_messages_that_are_gone() {
    let Some((guest, host, session)) = clears_nothing() else {
        println!("skipped: needs a second file system at /dev/shm");
        return;
    };
    for name in ["gone", "other", "stays"] {
        fs::create_dir(guest.path().join("outbox").join(name)).unwrap();
        fs::write(guest.path().join("outbox").join(name).join("a"), "x").unwrap();
        session.outbox().claim(&MessageId::new(name)).unwrap().unwrap().clear();
    }
    let marks = host.path().join("state/cleared");
    assert_eq!(names(&marks), ["gone", "other", "stays"]);
    fs::remove_dir_all(guest.path().join("outbox/gone")).unwrap();
    fs::rename(guest.path().join("outbox/other"), guest.path().join("outbox/moved")).unwrap();
    fs::create_dir(guest.path().join("outbox/other")).unwrap();
    assert_eq!(session.outbox().sweep(Duration::from_secs(3600)).unwrap().left_total, 0);
    assert_eq!(names(&marks), ["stays"]);
    assert!(session.outbox().claim(&MessageId::new("stays")).unwrap().is_none());
    assert!(guest.path().join("outbox/other").exists());
}
