//! A journal beside a database makes SQLite delete any file of the host, so no such database is sound.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use beneath::ResolverChoice;
use beneath::session::{DbFault, Sibling};
use beneath_kit::journal::hot_journal;
use beneath_kit::skip;
use proptest::prelude::*;

use crate::support::{Stage, with_each_resolver};

/// What the host does without this crate.
pub(crate) fn open_in_place(database: &Path) -> Option<()> {
    Command::new("sqlite3").arg(database).arg("select count(*) from t").output().ok().map(drop)
}

pub(crate) fn make_database(path: &Path) -> Option<()> {
    let made = Command::new("sqlite3").arg(path).arg("create table t(x); insert into t values(1)").output();
    made.ok().filter(|output| output.status.success()).map(drop)
}

/// A database with a planted journal, and the host file that the journal names.
pub(crate) fn planted(stage: &Stage, start: &[u8]) -> (PathBuf, PathBuf) {
    let (database, canary) = (stage.guest("out.db"), stage.sessions_path().with_file_name("important.txt"));
    fs::write(&canary, "dear to the host").unwrap();
    fs::write(stage.guest("out.db-journal"), hot_journal(start, &canary)).unwrap();
    (database, canary)
}

#[test]
fn a_journal_without_the_magic_that_deletes_a_host_file_is_hot() {
    let stage = Stage::new(ResolverChoice::Auto);
    let made = make_database(&stage.guest("out.db"));
    let (database, canary) = planted(&stage, &[b'X'; 512]);
    if made.and_then(|()| open_in_place(&database)).is_none() {
        skip("the control needs sqlite3");
    } else if canary.exists() {
        skip("this sqlite3 does not delete what a journal names");
    }

    with_each_resolver(|stage| {
        fs::write(stage.guest("out.db"), b"SQLite format 3\0 and pages").unwrap();
        let (_, canary) = planted(stage, &[b'X'; 512]);
        let report = stage.session.verify_db("/session/out.db", None).unwrap();
        assert_eq!(report.siblings, [(Sibling::Journal, Some(DbFault::Hot))]);
        assert!(!report.is_sound());

        let copy = stage.session.copy_db("/session/out.db", 1 << 20).unwrap();
        let copy = stage.host(copy.to_str().unwrap());
        assert!(!copy.with_extension("db-journal").exists());
        open_in_place(&copy);
        assert!(canary.exists(), "the copy has no journal");
        assert!(stage.guest("out.db-journal").exists(), "nothing was changed on the guest's side");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// SQLite plays back a journal whose first byte is not zero, whatever the rest of its header is.
    #[test]
    fn what_sqlite_plays_back_is_never_sound(
        first in prop_oneof![Just(0_u8), Just(0xd9), any::<u8>()],
        mut start in proptest::collection::vec(any::<u8>(), 512),
    ) {
        start[0] = first;
        let stage = Stage::new(ResolverChoice::Auto);
        let real = make_database(&stage.guest("out.db")).is_some();
        if !real {
            fs::write(stage.guest("out.db"), b"SQLite format 3\0 and pages").unwrap();
        }
        let (database, canary) = planted(&stage, &start);
        let sound = stage.session.verify_db("/session/out.db", None).unwrap().is_sound();
        prop_assert_eq!(sound, first == 0);
        if real {
            open_in_place(&database);
            prop_assert!(!sound || canary.exists(), "sound, and sqlite3 deleted a host file");
        }
    }

    #[test]
    fn only_an_empty_or_wiped_journal_and_an_empty_log_are_cold(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let stage = Stage::new(ResolverChoice::Auto);
        fs::write(stage.guest("out.db"), b"SQLite format 3\0 and pages").unwrap();
        for (sibling, cold) in [
            (Sibling::Journal, bytes.first().is_none_or(|first| *first == 0)),
            (Sibling::Wal, bytes.is_empty()),
            (Sibling::Shm, true),
        ] {
            let path = stage.guest(&format!("out.db{}", sibling.suffix()));
            fs::write(&path, &bytes).unwrap();
            let report = stage.session.verify_db("/session/out.db", None).unwrap();
            prop_assert_eq!(report.is_sound(), cold, "{:?} {:?}", sibling, bytes);
            fs::remove_file(&path).unwrap();
        }
    }
}
