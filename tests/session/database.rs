use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use beneath::ErrorKind;
use beneath::session::{DbFault, Sibling, WalSafety};

use crate::support::{fifo, kinds, names, with_each_resolver};

const DATABASE: &[u8] = b"SQLite format 3\0 and pages";
const HOT: &[u8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7 pages to roll back";

#[test]
fn finds_every_fault_of_a_database_and_its_siblings() {
    with_each_resolver(|stage| {
        let check = |owner| stage.session.verify_db("a.db", owner).unwrap();
        let missing = stage.session.verify_db("a.db", None).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let path = stage.guest("workspace/a.db");
        fs::write(&path, DATABASE).unwrap();
        let report = check(None);
        assert!(report.is_sound());
        assert_ne!(report.wal, WalSafety::Unsafe);

        let foreign = check(Some(4711)).database;
        assert!(matches!(foreign, Some(DbFault::ForeignOwner(_))), "{foreign:?}");
        fs::write(stage.guest("workspace/a.db-journal"), HOT).unwrap();
        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/a.db-wal")).unwrap();
        fifo(&stage.guest("workspace/a.db-shm"));
        let report = check(None);
        assert_eq!(report.siblings[0], (Sibling::Journal, Some(DbFault::Hot)));
        let refused: Vec<_> = report.refused().map(|(path, error)| (path, error.kind())).collect();
        let (log, index) = (Path::new("workspace/a.db-wal"), Path::new("workspace/a.db-shm"));
        assert_eq!(refused, [(log, ErrorKind::Symlink), (index, ErrorKind::NotRegular)]);
        assert!(!report.is_sound() && !report.is_complete());
        for sibling in Sibling::ALL {
            let kept = stage.session.quarantine_sibling("/session/workspace/a.db", sibling).unwrap().unwrap();
            assert!(fs::symlink_metadata(stage.host(kept.to_str().unwrap())).is_ok());
        }
        assert!(check(None).is_sound());

        fs::write(stage.guest("workspace/a.db-journal"), [0; 28]).unwrap();
        assert!(check(None).is_sound(), "a wiped journal is cold");
        fs::write(stage.guest("workspace/a.db-wal"), [1]).unwrap();
        assert_eq!(check(None).siblings[1], (Sibling::Wal, Some(DbFault::Hot)));

        fs::write(&path, "something else").unwrap();
        assert_eq!(check(None).database, Some(DbFault::NotDatabase));
        fs::hard_link(&path, stage.guest("workspace/second")).unwrap();
        assert_eq!(kinds(check(None).refused()), [ErrorKind::HardLinked]);
        fs::remove_file(&path).unwrap();
        symlink(stage.home.path().join(".ssh/id_rsa"), &path).unwrap();
        assert_eq!(kinds(check(None).refused()), [ErrorKind::Symlink]);
    });
}

#[test]
fn copies_the_database_without_its_journal() {
    with_each_resolver(|stage| {
        fs::write(stage.guest("workspace/a.db"), DATABASE).unwrap();
        fs::write(stage.guest("workspace/a.db-journal"), HOT).unwrap();
        let copy = stage.session.copy_db("./a.db", 1024).unwrap();
        assert_eq!(stage.session.host().read_contained(&copy, 1024).unwrap(), DATABASE);
        let error = stage.session.copy_db("./a.db", 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    });
}

#[test]
fn copies_and_quarantined_siblings_are_swept_by_age() {
    with_each_resolver(|stage| {
        fs::write(stage.guest("out.db"), "SQLite format 3\0").unwrap();
        stage.session.copy_db("/session/out.db", 1000).unwrap();
        fs::write(stage.guest("out.db-journal"), "x").unwrap();
        stage.session.quarantine_sibling("/session/out.db", Sibling::Journal).unwrap();
        // A guest may have made the sibling a directory, or a link to what the host holds dear.
        fs::create_dir_all(stage.guest("out.db-wal/inner")).unwrap();
        stage.session.quarantine_sibling("/session/out.db", Sibling::Wal).unwrap();
        symlink(stage.home.path(), stage.guest("out.db-shm")).unwrap();
        stage.session.quarantine_sibling("/session/out.db", Sibling::Shm).unwrap();

        assert_eq!(stage.session.sweep(Duration::from_secs(3600)).unwrap().kept, 4);
        let swept = stage.session.sweep(Duration::ZERO).unwrap();
        assert_eq!((swept.removed, swept.left.total), (4, 0), "{swept:?}");
        assert_eq!(names(&stage.host("staging")), [""; 0]);
        assert_eq!(names(&stage.host("state/quarantine")), [""; 0]);
        assert!(stage.guest("out.db").exists());
    });
}
