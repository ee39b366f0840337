//! A database that the guest writes is read as bytes, and as those of one transaction.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::session::Sibling;
use beneath::{ErrorKind, ResolverChoice};
use beneath_kit::{env, skip};

use crate::hot_journal::{make_database, open_in_place, planted};
use crate::support::{Stage, fifo, with_each_resolver};

const MOST: u64 = 1 << 20;

/// A header of SQLite's and one page.
fn database() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    bytes[16..18].copy_from_slice(&4096_u16.to_be_bytes());
    bytes[18..20].copy_from_slice(&[1, 1]);
    for at in [24, 28, 92] {
        bytes[at..at + 4].copy_from_slice(&1_u32.to_be_bytes());
    }
    bytes
}

#[test]
fn reads_the_bytes_and_changes_nothing() {
    with_each_resolver(|stage| {
        fs::write(stage.guest("out.db"), database()).unwrap();
        fs::write(stage.guest("out.db-journal"), [0; 28]).unwrap();
        fs::write(stage.guest("out.db-wal"), "").unwrap();
        let before = beneath_kit::Snapshot::take(&stage.sessions_path());
        let image = stage.session.read_db("/session/out.db", MOST).unwrap();
        assert_eq!((image.as_bytes(), image.stamp().change_counter()), (&database()[..], 1));
        assert!(!stage.session.db_changed("/session/out.db", image.stamp()).unwrap());
        assert!(beneath_kit::Snapshot::take(&stage.sessions_path()) == before);
    });
}

#[test]
fn a_change_is_seen_by_counter_length_time_and_inode() {
    let stage = Stage::new(ResolverChoice::Auto);
    let path = stage.guest("out.db");
    type Case = (&'static str, fn(&Path));
    let cases: [Case; 4] = [
        ("counter", |path| {
            let mut bytes = database();
            bytes[27] = 2;
            bytes[95] = 2;
            fs::write(path, bytes).unwrap();
        }),
        ("length", |path| fs::write(path, [database(), vec![0; 4096]].concat()).unwrap()),
        ("time", |path| {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        }),
        ("inode", |path| {
            fs::write(path.with_extension("new"), database()).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
    ];
    for (what, change) in cases {
        fs::write(&path, database()).unwrap();
        let image = stage.session.read_db("/session/out.db", MOST).unwrap();
        change(&path);
        assert!(stage.session.db_changed("/session/out.db", image.stamp()).unwrap(), "{what}");
    }
}

/// Within one tick of the clock, and after it was long enough at rest not to be opened for the question.
#[test]
fn a_change_right_after_a_look_is_seen() {
    let stage = Stage::new(ResolverChoice::Auto);
    let path = stage.guest("out.db");
    let mut bytes = database();
    for round in 0..300_u32 {
        for at in [24, 92] {
            bytes[at..at + 4].copy_from_slice(&round.to_be_bytes());
        }
        let before = stage.session.read_db("/session/out.db", MOST);
        fs::write(&path, &bytes).unwrap();
        if let Ok(before) = before {
            assert!(stage.session.db_changed("/session/out.db", before.stamp()).unwrap(), "round {round}");
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(3100));
    let image = stage.session.read_db("/session/out.db", MOST).unwrap();
    for _ in 0..3 {
        assert!(!stage.session.db_changed("/session/out.db", image.stamp()).unwrap());
    }
    fs::write(&path, &bytes).unwrap();
    assert!(stage.session.db_changed("/session/out.db", image.stamp()).unwrap());
    fs::remove_file(&path).unwrap();
    let gone = stage.session.db_changed("/session/out.db", image.stamp()).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[test]
fn refuses_what_is_no_whole_database() {
    let edit = |at: usize, bytes: &[u8]| {
        let mut database = database();
        database[at..at + bytes.len()].copy_from_slice(bytes);
        database
    };
    let cases = [
        ("magic", edit(0, b"sqlite"), ErrorKind::InvalidData),
        ("page size 0", edit(16, &[0, 0]), ErrorKind::InvalidData),
        ("page size 256", edit(16, &256_u16.to_be_bytes()), ErrorKind::InvalidData),
        ("page size 3000", edit(16, &3000_u16.to_be_bytes()), ErrorKind::InvalidData),
        ("page size 65536", edit(16, &[0, 1]), ErrorKind::InvalidData),
        ("write-ahead log", edit(18, &[2, 2]), ErrorKind::InvalidData),
        ("one page too few", edit(28, &2_u32.to_be_bytes()), ErrorKind::InvalidData),
        ("half a page", [database(), vec![0; 100]].concat(), ErrorKind::InvalidData),
        ("cut header", database()[..50].to_vec(), ErrorKind::InvalidData),
        ("too long", vec![0; MOST as usize + 1], ErrorKind::TooLarge),
    ];
    with_each_resolver(|stage| {
        for (what, bytes, kind) in &cases {
            fs::write(stage.guest("out.db"), bytes).unwrap();
            assert_eq!(stage.session.read_db("/session/out.db", MOST).unwrap_err().kind(), *kind, "{what}");
        }
        // Ten tebibytes that take no space.
        fs::File::create(stage.guest("out.db")).unwrap().set_len(10 << 40).unwrap();
        assert_eq!(stage.session.read_db("/session/out.db", MOST).unwrap_err().kind(), ErrorKind::TooLarge);
    });
}

#[test]
fn refuses_what_is_planted_beside_it() {
    with_each_resolver(|stage| {
        let read = || stage.session.read_db("/session/out.db", MOST).map(drop).map_err(|error| error.kind());
        fs::write(stage.guest("out.db"), database()).unwrap();
        for (sibling, hot) in [(Sibling::Journal, "x"), (Sibling::Wal, "\0")] {
            let path = stage.guest(&format!("out.db{}", sibling.suffix()));
            fs::write(&path, hot).unwrap();
            assert_eq!(read(), Err(ErrorKind::InvalidData), "{sibling:?}");
            fs::remove_file(&path).unwrap();
            symlink(stage.home.path().join("diary.txt"), &path).unwrap();
            assert_eq!(read(), Err(ErrorKind::Symlink), "{sibling:?}");
            fs::remove_file(&path).unwrap();
            assert_eq!(read(), Ok(()), "{sibling:?}");
        }
    });
}

#[test]
fn fifo_journal_does_not_hang() {
    with_each_resolver(|stage| {
        if make_database(&stage.guest("out.db")).is_none() {
            fs::write(stage.guest("out.db"), database()).unwrap();
        }
        fifo(&stage.guest("out.db-journal"));
        let error = stage.session.read_db("/session/out.db", MOST).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotRegular);
        let image = stage.session.read_db("/session/out.db-journal", MOST).unwrap_err();
        assert_eq!(image.kind(), ErrorKind::NotRegular);
    });

    let stage = Stage::new(ResolverChoice::Auto);
    if make_database(&stage.guest("out.db")).is_none() {
        return skip("the control needs sqlite3");
    }
    fifo(&stage.guest("out.db-journal"));
    let open = Command::new("timeout")
        .args(["-s", "KILL", "1", "sqlite3"])
        .arg(stage.guest("out.db"))
        .arg("select count(*) from t")
        .output()
        .unwrap();
    assert!(!open.status.success(), "the control read the database: {open:?}");
}

#[test]
fn link_to_another_database_is_refused() {
    with_each_resolver(|stage| {
        let other = stage.home.path().with_file_name("other.db");
        let real = make_database(&other).is_some();
        if !real {
            fs::write(&other, database()).unwrap();
        }
        symlink(&other, stage.guest("out.db")).unwrap();
        let error = stage.session.read_db("/session/out.db", MOST).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Symlink);
        assert_eq!(
            fs::read(stage.guest("out.db")).unwrap(),
            fs::read(&other).unwrap(),
            "the control follows"
        );
        fs::remove_file(stage.guest("out.db")).unwrap();
        fs::hard_link(&other, stage.guest("out.db")).unwrap();
        let error = stage.session.read_db("/session/out.db", MOST).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HardLinked);
    });
}

#[test]
fn hot_journal_cannot_delete_a_host_file() {
    with_each_resolver(|stage| {
        if make_database(&stage.guest("out.db")).is_none() {
            fs::write(stage.guest("out.db"), database()).unwrap();
        }
        let (_, canary) = planted(stage, &[b'X'; 512]);
        let error = stage.session.read_db("/session/out.db", MOST).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(canary.exists() && stage.guest("out.db-journal").exists());
    });

    let stage = Stage::new(ResolverChoice::Auto);
    let made = make_database(&stage.guest("out.db"));
    let (database, canary) = planted(&stage, &[b'X'; 512]);
    if made.and_then(|()| open_in_place(&database)).is_none() {
        skip("the control needs sqlite3");
    } else if canary.exists() {
        skip("this sqlite3 does not delete what a journal names");
    }
}

/// A guest's own SQLite, which runs what it is given. It ends with this.
struct Writer(Child);

impl Writer {
    fn start(database: &Path) -> Option<Self> {
        let mut command = Command::new("sqlite3");
        command
            .arg("-batch")
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.spawn().ok().map(Self)
    }

    /// Fails once the process is gone.
    fn run(&mut self, sql: &str) -> std::io::Result<()> {
        self.0.stdin.as_mut().unwrap().write_all(sql.as_bytes())
    }

    /// Waits until all before it was run.
    fn wait(&mut self) {
        self.run("select 'done';\n").unwrap();
        let mut line = [0; 5];
        std::io::Read::read_exact(self.0.stdout.as_mut().unwrap(), &mut line).unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_writer_that_holds_the_database_makes_it_busy() {
    let stage = Stage::new(ResolverChoice::Auto);
    let read = || stage.session.read_db("/session/out.db", MOST).map(drop).map_err(|error| error.kind());
    if make_database(&stage.guest("out.db")).is_none() {
        return skip("it needs sqlite3");
    }
    let mut writer = Writer::start(&stage.guest("out.db")).unwrap();
    for (sql, expected) in [
        ("begin; select 0 where 0;\n", Ok(())),
        ("insert into t values(2);\n", Err(ErrorKind::Busy)),
        ("commit;\n", Ok(())),
        ("begin immediate;\n", Err(ErrorKind::Busy)),
        ("rollback;\n", Ok(())),
    ] {
        writer.run(sql).unwrap();
        writer.wait();
        assert_eq!(read(), expected, "{sql}");
    }
}

/// Some ten pages: enough to be met half way, and few enough that the writer is done soon.
const ROWS: usize = 40;

/// Which transactions an image is of: each row has the number of the one that wrote it.
fn transactions(image: &[u8]) -> Vec<&[u8]> {
    let at = (0..image.len().saturating_sub(12)).filter(|at| image[*at..].starts_with(b"MARK"));
    let mut found: Vec<_> = at.map(|at| &image[at + 4..at + 12]).collect();
    assert_eq!(found.len(), ROWS, "an image has all rows");
    found.dedup();
    found
}

#[test]
fn an_image_is_never_of_two_transactions() {
    let images: usize = if env::FULL.is_set() { 100_000 } else { 50 };
    let stage = Stage::new(ResolverChoice::Auto);
    let path = stage.guest("out.db");
    let Some(mut writer) = Writer::start(&path) else { return skip("it needs sqlite3") };
    let update =
        |number: usize| format!("update t set x = 'MARK' || printf('%08d', {number}) || substr(x, 13);\n");
    writer.run("pragma synchronous = off; pragma busy_timeout = 60000; create table t(x);\n").unwrap();
    let rows = format!("with recursive n(i) as (select 1 union all select i + 1 from n where i < {ROWS})");
    writer
        .run(&format!("{rows} insert into t select 'MARK00000000' || hex(zeroblob(450)) from n;\n"))
        .unwrap();
    // The answer to the timeout.
    let mut line = [0; 6];
    std::io::Read::read_exact(writer.0.stdout.as_mut().unwrap(), &mut line).unwrap();
    writer.wait();

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if done.load(Ordering::Relaxed) || writer.run(&update(number)).is_err() {
                    break;
                }
            }
        });
        let (mut read, mut busy, mut seen) = (0, 0_u64, std::collections::BTreeSet::new());
        while read < images {
            match stage.session.read_db("/session/out.db", MOST) {
                Ok(image) => {
                    let found = transactions(image.as_bytes());
                    assert_eq!(found.len(), 1, "image {read} is of two transactions");
                    seen.insert(found[0].to_vec());
                    read += 1;
                    if read % 10_000 == 0 {
                        println!("{read} images, {busy} busy");
                    }
                }
                // The journal of a transaction that began after the lock was refused or dropped.
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::InvalidData) => busy += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(seen.len() > 1, "the writer wrote nothing meanwhile");
        // The control: a plain read meets a transaction half way.
        let torn = (0..2_000_000).find(|_| {
            let image = fs::read(&path).unwrap();
            image.len() > ROWS * 900 && transactions(&image).len() > 1
        });
        done.store(true, Ordering::Relaxed);
        let torn = torn.expect("the control is torn");
        println!(
            "{read} images of {} transactions, none torn, {busy} busy; plain read {torn} is torn",
            seen.len()
        );
    });
}
