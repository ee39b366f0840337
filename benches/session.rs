//! Deliver and collect beside a plain `std::fs` port of the same flow, in turns: `cargo bench --bench session`.
//!
//! A round has 100 messages of three attachments of 16 KiB each by default, and the times are of one message.
//! `BENEATH_BENCH_MESSAGES`, `BENEATH_BENCH_ROUNDS` and `TMPDIR` change how many, how often and where.
#![allow(missing_docs, clippy::unwrap_used, reason = "a program for people")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use beneath::session::{Attachment, SessionsConfig};
use beneath::{MessageId, Root, Session, SessionId, Sessions, ambient_authority};
use beneath_kit::bench::{self, Ground, Line, OURS, Place, Ways};
use beneath_kit::env;

const NAMES: [&str; 3] = ["one.bin", "two.bin", "three.bin"];
const SIZE: usize = 16 * 1024;

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
                assert!(claim.clear().is_complete());
                read
            }
        }
    }
}

type Kind = fn(PathBuf, Session) -> Way;

const WAYS: [(&str, Kind); 3] = [
    ("std", |dir, _| Way::Plain(Plain { dir })),
    ("std, with checks", |dir, _| Way::Checking(Checking { plain: Plain { dir } })),
    (OURS, |_, session| Way::Beneath(Box::new(session))),
];

/// Each way does `work` with every message of a fresh place, where `fill` has prepared each.
fn ways(ground: &Ground, fill: fn(&Path, &[u8]), work: fn(&Way, &str, &[u8])) -> Ways {
    let count = env::BENCH_MESSAGES.number().unwrap_or(100_u32);
    let line = |(name, kind): (&'static str, Kind)| {
        let ground = ground.dir.clone();
        Line::new(name, move |watch| {
            let dir = tempfile::tempdir_in(&ground).unwrap();
            let (way, bytes) = (place(dir.path(), kind), [0x5a; SIZE]);
            let ids: Vec<String> = (0..count).map(|number| format!("msg-{number}")).collect();
            ids.iter().for_each(|id| fill(&dir.path().join("s/guest/outbox").join(id), &bytes));
            watch.over(|| ids.iter().for_each(|id| work(&way, id, &bytes))) / count
        })
    };
    Ok(WAYS.into_iter().map(line).collect())
}

fn place(dir: &Path, kind: Kind) -> Way {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    let (session, _) = Sessions::new(root, SessionsConfig::default()).create(&SessionId::new("s")).unwrap();
    kind(dir.join("s/guest"), session)
}

fn send(message: &Path, bytes: &[u8]) {
    fs::create_dir(message).unwrap();
    NAMES.iter().for_each(|name| fs::write(message.join(name), bytes).unwrap());
}

fn main() -> ExitCode {
    bench::main(
        "session",
        Place::temporary,
        &[
            ("deliver", |ground| ways(ground, |_, _| {}, Way::deliver)),
            ("collect + clear", |ground| {
                ways(ground, send, |way, id, _| assert_eq!(way.collect(id), NAMES.len() * SIZE))
            }),
        ],
    )
}
