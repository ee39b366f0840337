//! Deliver and collect beside a plain `std::fs` port of the same flow, taking turns at every message.
//!
//! 1,000 messages of three attachments of 16 KiB each by default; `BENEATH_BENCH_MESSAGES`, `BENEATH_BENCH_ROUNDS` and
//! `TMPDIR` change how many, how often and where. Prints lower quartiles and their ratio.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a program for people")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beneath::session::{Attachment, SessionsConfig};
use beneath::{MessageId, Root, Session, SessionId, Sessions, ambient_authority};

const NAMES: [&str; 3] = ["one.bin", "two.bin", "three.bin"];
const SIZE: usize = 16 * 1024;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The same flow by path: no checks, no atomic publishing, nothing but the work.
struct Plain {
    dir: PathBuf,
}

impl Plain {
    fn deliver(&self, id: &str, bytes: &[u8]) {
        let dir = self.dir.join("inbox").join(id);
        fs::create_dir_all(&dir).unwrap();
        for name in NAMES {
            let path = dir.join(name);
            let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap();
            file.write_all(bytes).unwrap();
        }
    }

    fn collect(&self, id: &str) -> usize {
        let dir = self.dir.join("outbox").join(id);
        let read = NAMES.iter().map(|name| fs::read(dir.join(name)).unwrap().len()).sum();
        fs::remove_dir_all(dir).unwrap();
        read
    }
}

/// The same flow as the studied system does it: look at every name, resolve it, compare, then use it.
struct Checking {
    plain: Plain,
}

impl Checking {
    fn deliver(&self, id: &str, bytes: &[u8]) {
        let inbox = self.plain.dir.join("inbox");
        let dir = inbox.join(id);
        for name in NAMES {
            if dir.exists() {
                assert!(fs::symlink_metadata(&dir).unwrap().is_dir());
            }
            fs::create_dir_all(&dir).unwrap();
            assert!(fs::canonicalize(&dir).unwrap().starts_with(fs::canonicalize(&inbox).unwrap()));
            let path = dir.join(name);
            let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap();
            file.write_all(bytes).unwrap();
        }
    }

    fn collect(&self, id: &str) -> usize {
        let outbox = self.plain.dir.join("outbox");
        let dir = outbox.join(id);
        assert!(fs::symlink_metadata(&dir).unwrap().is_dir());
        let mut read = 0;
        for name in NAMES {
            let path = dir.join(name);
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert!(fs::canonicalize(&path).unwrap().starts_with(fs::canonicalize(&dir).unwrap()));
            read += fs::read(path).unwrap().len();
        }
        assert!(fs::canonicalize(&dir).unwrap().starts_with(fs::canonicalize(&outbox).unwrap()));
        fs::remove_dir_all(dir).unwrap();
        read
    }
}

enum Way {
    Plain(Plain),
    Checking(Checking),
    Beneath(Box<Session>),
}

impl Way {
    fn deliver(&self, id: &str, bytes: &[u8]) {
        match self {
            Self::Plain(plain) => plain.deliver(id, bytes),
            Self::Checking(checking) => checking.deliver(id, bytes),
            Self::Beneath(session) => {
                let attachments = NAMES.map(|name| Attachment::from_bytes(bytes).with_name(name));
                assert!(session.inbox().deliver(&MessageId::new(id), attachments).is_complete());
            }
        }
    }

    fn collect(&self, id: &str) -> usize {
        match self {
            Self::Plain(plain) => plain.collect(id),
            Self::Checking(checking) => checking.collect(id),
            Self::Beneath(session) => {
                let claim = session.outbox().claim(&MessageId::new(id)).unwrap().unwrap();
                let collected = claim.read(NAMES).unwrap();
                let read = collected.found().map(|(_, bytes)| bytes.len()).sum();
                assert!(claim.clear().removed.is_complete());
                read
            }
        }
    }
}

/// A fresh place for one round, with the outbox filled.
fn place(kind: usize, ids: &[String], bytes: &[u8]) -> (tempfile::TempDir, Way) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let sessions = Sessions::new(root, SessionsConfig::default());
    let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
    let guest = dir.path().join("s/guest");
    for id in ids {
        let message = guest.join("outbox").join(id);
        fs::create_dir(&message).unwrap();
        for name in NAMES {
            fs::write(message.join(name), bytes).unwrap();
        }
    }
    let way = match kind {
        0 => Way::Plain(Plain { dir: guest }),
        1 => Way::Checking(Checking { plain: Plain { dir: guest } }),
        _ => Way::Beneath(Box::new(session)),
    };
    (dir, way)
}

/// On a shared machine every round sees some noise, and the quieter ones less of it.
fn lower_quartile(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 4].as_secs_f64() * 1000.0
}

fn file_system(path: &Path) -> String {
    format!("{:#x}", rustix::fs::statfs(path).unwrap().f_type)
}

fn main() {
    let (messages, rounds) = (number("BENEATH_BENCH_MESSAGES", 1000), number("BENEATH_BENCH_ROUNDS", 15));
    let ids: Vec<String> = (0..messages).map(|number| format!("msg-{number}")).collect();
    let bytes = vec![0x5a; SIZE];
    let mut times: [[Vec<Duration>; 2]; 3] = Default::default();
    for _ in 0..rounds {
        let places = [0, 1, 2].map(|kind| place(kind, &ids, &bytes));
        for job in [0, 1] {
            let mut spent = [Duration::ZERO; 3];
            for (number, id) in ids.iter().enumerate() {
                // The ways take turns at every message, each first, second and third, so that all see the same noise.
                for kind in (0..3).map(|kind| (kind + number) % 3) {
                    let way = &places[kind].1;
                    let start = Instant::now();
                    match job {
                        0 => way.deliver(id, &bytes),
                        _ => assert_eq!(way.collect(id), NAMES.len() * SIZE),
                    }
                    spent[kind] += start.elapsed();
                }
            }
            for kind in 0..3 {
                times[kind][job].push(spent[kind]);
            }
        }
    }
    let place = std::env::temp_dir();
    println!(
        "{messages} messages x 3 x 16 KiB, {rounds} rounds, file system {} at {}",
        file_system(&place),
        place.display()
    );
    for (job, name) in ["deliver", "collect + clear"].iter().enumerate() {
        let [plain, checking, ours] = [0, 1, 2].map(|kind| lower_quartile(&mut times[kind][job]));
        println!(
            "{name:16} std::fs {plain:8.1} ms   with checks {checking:8.1} ms   beneath {ours:8.1} ms   {:.2} of std::fs, {:.2} of std::fs with checks",
            ours / plain,
            ours / checking
        );
    }
}
