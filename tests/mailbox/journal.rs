//! What a guest plants beside its database.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use beneath::ErrorKind;
use beneath_kit::journal::hot_journal;
use beneath_kit::{skip, within};
use rusqlite::Connection;
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::support::{Stage, ids, refused};

const OUTBOUND: &str = "/session/outbound.db";

/// A file of the host's, and the guest's journal that names it.
fn planted(stage: &Stage) -> PathBuf {
    let canary = stage.path().join("important.txt");
    fs::write(&canary, "dear to the host").unwrap();
    fs::write(stage.guest("outbound.db-journal"), hot_journal(&[b'X'; 512], &canary)).unwrap();
    canary
}

/// What a host does that opens the database: none if there is no sqlite3.
fn open_in_place(database: &Path) -> Option<()> {
    Command::new("sqlite3").arg(database).arg("SELECT count(*) FROM messages_out").output().ok().map(drop)
}

#[test]
fn hot_journal_cannot_delete_a_host_file() {
    let stage = Stage::new();
    stage.send(1, "a", "x");
    let canary = planted(&stage);
    let taken = stage.take();
    assert!(taken.messages.is_empty());
    assert_eq!(refused(taken.refused()), [(OUTBOUND.to_owned(), ErrorKind::InvalidData)]);
    for error in [stage.mailbox.acks().unwrap_err(), stage.mailbox.settle().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
    assert!(!stage.mailbox.sweep(std::time::Duration::ZERO).unwrap().is_complete());
    assert!(canary.exists() && stage.guest("outbound.db-journal").exists(), "nothing was played back");

    // The control: the same by path.
    if open_in_place(&stage.guest("outbound.db")).is_none() {
        return skip("the control needs sqlite3");
    }
    match Command::new("sqlite3").arg("--version").output().map(|output| is_later(&output.stdout)) {
        Ok(true) => skip("this sqlite3 does not delete what a journal names"),
        _ => assert!(!canary.exists(), "the control does not delete the canary"),
    }
}

/// Whether this version of SQLite looks at the name before it deletes.
fn is_later(version: &[u8]) -> bool {
    let text = String::from_utf8_lossy(version);
    let mut parts = text.split([' ', '.']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(3), Some(54))
}

/// Its own next open mends it, and the host waits for that.
#[test]
fn a_guest_that_died_in_a_transaction_mends_its_database_itself() {
    let stage = Stage::new();
    stage.send(1, "a", "x");
    let before = fs::read(stage.guest("outbound.db")).unwrap();
    let guest = stage.outbound();
    guest.execute_batch("PRAGMA cache_spill = 1; PRAGMA cache_size = 1; BEGIN IMMEDIATE").unwrap();
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) \
                INSERT INTO messages_out (id, seq, kind, content) SELECT 'n' || i, 2 * i + 3, 'chat', hex(zeroblob(200)) FROM n";
    guest.execute_batch(many).unwrap();
    // Taken in the middle: what a kill would leave, and a copy of the journal has no lock.
    let (half, journal) = (
        fs::read(stage.guest("outbound.db")).unwrap(),
        fs::read(stage.guest("outbound.db-journal")).unwrap(),
    );
    assert!(half != before && journal[0] != 0);
    guest.execute_batch("ROLLBACK").unwrap();
    drop(guest);
    stage.plant_bytes(&half);
    fs::write(stage.guest("outbound.db-journal"), journal).unwrap();

    assert_eq!(refused(stage.take().refused()), [(OUTBOUND.to_owned(), ErrorKind::InvalidData)]);
    // The next guest opens it.
    assert_eq!(
        stage.outbound().query_row("SELECT count(*) FROM messages_out", (), |row| row.get::<_, i64>(0)),
        Ok(1)
    );
    assert_eq!(ids(&stage.take()), ["a"]);
}

#[test]
fn fifo_journal_does_not_hang() {
    let stage = Stage::new();
    stage.send(1, "a", "x");
    mkfifoat(CWD, stage.guest("outbound.db-journal"), Mode::from_raw_mode(0o666)).unwrap();
    let mailbox = stage.mailbox.clone();
    let session = stage.session.clone();
    let taken = within("take", move || mailbox.take(&session.try_lock().unwrap(), 1).unwrap());
    assert_eq!(refused(taken.refused()), [(OUTBOUND.to_owned(), ErrorKind::NotRegular)]);

    // The control hangs until it is ended.
    let open = Command::new("timeout")
        .args(["-s", "KILL", "1", "sqlite3"])
        .arg(stage.guest("outbound.db"))
        .arg("SELECT count(*) FROM messages_out")
        .stdin(Stdio::null())
        .output();
    match open {
        Ok(open) if open.status.code() == Some(127) => skip("the control needs sqlite3"),
        Ok(open) => assert!(!open.status.success(), "the control has read the database: {open:?}"),
        Err(_) => skip("the control needs timeout"),
    }
}

#[test]
fn link_to_another_database_is_refused() {
    let stage = Stage::new();
    let (other, _) = stage.sessions.create(&beneath::SessionId::new("other")).unwrap();
    let others = beneath::mailbox::Mailbox::open(&other).unwrap();
    let victim = stage.path().join("sessions/other/guest/outbound.db");
    fs::remove_file(stage.guest("outbound.db")).unwrap();
    symlink(&victim, stage.guest("outbound.db")).unwrap();
    assert_eq!(refused(stage.take().refused()), [(OUTBOUND.to_owned(), ErrorKind::Symlink)]);
    // Nor does opening the mailbox anew write through it.
    let before = fs::read(&victim).unwrap();
    drop(beneath::mailbox::Mailbox::open(&stage.session).unwrap());
    assert_eq!(fs::read(&victim).unwrap(), before);

    // The control: a host that writes by path writes into the other session.
    let sql = "INSERT INTO messages_out (id, seq, kind, content) VALUES ('injected', 1, 'chat', 'x')";
    Connection::open(stage.guest("outbound.db")).unwrap().execute_batch(sql).unwrap();
    let lock = other.try_lock().unwrap();
    assert_eq!(ids(&others.take(&lock, 1).unwrap()), ["injected"]);
    // A second name is refused too.
    fs::remove_file(stage.guest("outbound.db")).unwrap();
    fs::hard_link(&victim, stage.guest("outbound.db")).unwrap();
    assert_eq!(refused(stage.take().refused()), [(OUTBOUND.to_owned(), ErrorKind::HardLinked)]);
}

#[test]
fn what_is_no_database_is_refused_by_its_kind() {
    type Case = (&'static str, fn(&Path), ErrorKind);
    let cases: [Case; 7] = [
        ("a directory", |path| fs::create_dir(path).unwrap(), ErrorKind::NotRegular),
        ("a FIFO", |path| mkfifoat(CWD, path, Mode::from_raw_mode(0o666)).unwrap(), ErrorKind::NotRegular),
        ("a dangling link", |path| symlink("nowhere", path).unwrap(), ErrorKind::Symlink),
        ("text", |path| fs::write(path, "hello").unwrap(), ErrorKind::InvalidData),
        (
            "10 TiB of nothing",
            |path| fs::File::create(path).unwrap().set_len(10 << 40).unwrap(),
            ErrorKind::TooLarge,
        ),
        (
            "a log",
            |path| fs::write(path.with_file_name("outbound.db-wal"), "x").unwrap(),
            ErrorKind::InvalidData,
        ),
        (
            "a journal that is a link",
            |path| symlink("/etc/passwd", path.with_file_name("outbound.db-journal")).unwrap(),
            ErrorKind::Symlink,
        ),
    ];
    for (what, make, kind) in cases {
        let stage = Stage::new();
        if !what.starts_with("a log") && !what.starts_with("a journal") {
            fs::remove_file(stage.guest("outbound.db")).unwrap();
        }
        make(&stage.guest("outbound.db"));
        assert_eq!(refused(stage.take().refused()), [(OUTBOUND.to_owned(), kind)], "{what}");
    }
    // None at all, and an empty one, are databases without messages.
    let stage = Stage::new();
    fs::write(stage.guest("outbound.db"), "").unwrap();
    assert!(stage.take().is_complete());
    fs::remove_file(stage.guest("outbound.db")).unwrap();
    assert!(stage.take().is_complete());
}
