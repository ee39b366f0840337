//! Whether anything takes more time per item where there are more items: `cargo bench --bench scaling --features artifacts`.
//!
//! Each work is done at a hundredth, a tenth and all of its full size, in turns, each time in a process of its own, which says
//! how long the work took, how long it was on a processor, and how much memory and how many descriptors it had meanwhile. A work
//! fails if an item of the largest takes more than [`FACTOR`] times as long on a processor as one of the smallest, which a busy machine
//! changes little, or if it holds more than [`DESCRIPTORS`]. The control looks for each of its items among all, and must be caught.
//! `BENEATH_SCALING` makes all sizes smaller. Words after `--` choose works by their titles.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for people"
)]

use std::collections::HashSet;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use beneath::session::{Attachment, Disposition};
use beneath::{Budget, MessageId, Root, Session, SessionId, Sessions, WalkLimits, ambient_authority};
use beneath_kit::rig::{self, Rig, Row};
use beneath_kit::{Ends, bench, child, env};
use rustix::time::{ClockId, clock_gettime};

/// What a memory that is too small for its caches may cost, and no square.
const FACTOR: f64 = 3.0;
/// So many descriptors may be open, however many items there are: a quarter of what a process usually has.
const DESCRIPTORS: usize = 256;
/// How often each size is measured; the least time counts.
const ROUNDS: usize = 3;
/// Fewer items are no size: what a work costs besides is shared among too few.
const LEAST: usize = 100;
const CONTROL: &str = "control: look for each";

/// What is left to do once all is there.
type Ready = Box<dyn FnOnce()>;

/// A title, the full size, and how so many items are made in a directory.
type Work = (&'static str, usize, fn(&Path, usize) -> Ready);

const ENTRIES: usize = 1_000_000;
const MESSAGES: usize = 10_000;
#[cfg(feature = "artifacts")]
const OBJECTS: usize = 100_000;

const WORKS: &[Work] = &[
    ("list", ENTRIES, |dir, count| {
        let root = filled(dir, count, count);
        Box::new(move || assert_eq!(root.list(".").unwrap().filter(Result::is_ok).count(), count))
    }),
    ("walk", ENTRIES, |dir, count| {
        let root = filled(dir, count, 100);
        let limits = WalkLimits::default().with_entries(u64::MAX);
        Box::new(move || {
            let files =
                root.walk(".", limits).unwrap().filter(|entry| entry.as_ref().unwrap().metadata().is_file());
            assert_eq!(files.count(), count);
        })
    }),
    ("remove, wide", ENTRIES, |dir, count| removal(dir, count, count)),
    ("remove, by hundreds", ENTRIES, |dir, count| removal(dir, count, 100)),
    ("Sessions::list", MESSAGES, |dir, count| {
        let sessions = sessions(dir, count);
        Box::new(move || assert_eq!(sessions.list().unwrap().len(), count))
    }),
    ("Sessions::sweep, all kept", MESSAGES, |dir, count| {
        let sessions = sessions(dir, count);
        Box::new(move || assert_eq!(sessions.sweep(Duration::from_secs(3600)).unwrap().kept, count as u64))
    }),
    ("Sessions::sweep, all go", MESSAGES, |dir, count| {
        let sessions = sessions(dir, count);
        Box::new(move || assert_eq!(sessions.sweep(Duration::ZERO).unwrap().removed, count as u64))
    }),
    ("Inbox::deliver", MESSAGES, |dir, count| {
        let session = session(dir);
        Box::new(move || {
            for number in 0..count {
                let id = MessageId::new(format!("m{number}"));
                let file = Attachment::from_bytes("x").with_name("f");
                assert!(session.inbox().deliver(&id, [file]).is_complete());
            }
        })
    }),
    ("Outbox::messages", MESSAGES, |dir, count| {
        let session = sending(dir, count);
        Box::new(move || assert_eq!(session.outbox().messages().unwrap().entries.len(), count))
    }),
    ("Outbox::pending", MESSAGES, |dir, count| {
        let session = sending(dir, count);
        for id in session.outbox().messages().unwrap().entries {
            drop(session.outbox().claim(&id).unwrap().unwrap());
        }
        Box::new(move || assert_eq!(session.outbox().pending().unwrap().total, count as u64))
    }),
    ("Outbox::collect", MESSAGES, |dir, count| {
        let session = sending(dir, count);
        Box::new(move || {
            let lock = session.try_lock().unwrap();
            let mut ledger = HashSet::new();
            let mut done = 0;
            while done < count as u64 {
                let turn = session.outbox().collect(&lock, &mut ledger, |claim| {
                    assert!(claim.read(["f"])?.is_complete());
                    Ok::<_, beneath::Error>(Disposition::Done)
                });
                let turn = turn.unwrap();
                assert!(turn.is_complete() && turn.done > 0, "{turn:?}");
                done += turn.done;
            }
        })
    }),
    #[cfg(feature = "artifacts")]
    ("Artifacts::restore", OBJECTS, objects::restore),
    #[cfg(feature = "artifacts")]
    ("Artifacts::mirror, unchanged", OBJECTS, objects::mirror),
    (CONTROL, MESSAGES, |_, count| {
        let items: Vec<usize> = (0..count).collect();
        Box::new(move || {
            for item in &items {
                assert_eq!(items.iter().filter(|other| black_box(*other) == item).count(), 1);
            }
        })
    }),
];

/// Files, so many to a directory.
fn filled(dir: &Path, count: usize, each: usize) -> Root {
    for first in (0..count).step_by(each) {
        let dir = if each == count { dir.to_owned() } else { dir.join(format!("d{first}")) };
        fs::create_dir_all(&dir).unwrap();
        for number in first..count.min(first + each) {
            drop(fs::File::create(dir.join(format!("f{number}"))).unwrap());
        }
    }
    Root::open_ambient(dir, ambient_authority()).unwrap()
}

fn removal(dir: &Path, count: usize, each: usize) -> Ready {
    filled(&dir.join("top"), count, each);
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    Box::new(move || {
        assert!(root.remove_tree_contained_within("top", Budget::unlimited()).unwrap().is_complete());
    })
}

fn sessions(dir: &Path, count: usize) -> Sessions {
    fs::create_dir_all(dir).unwrap();
    let sessions = Sessions::new(Root::open_ambient(dir, ambient_authority()).unwrap(), Default::default());
    (0..count).for_each(|number| drop(sessions.create(&SessionId::new(format!("s{number}"))).unwrap()));
    sessions
}

fn session(dir: &Path) -> Session {
    sessions(dir, 1).open(&SessionId::new("s0")).unwrap()
}

/// A session with messages of one file each in its outbox.
fn sending(dir: &Path, count: usize) -> Session {
    let session = session(dir);
    for number in 0..count {
        let message = dir.join(format!("s0/guest/outbox/m{number}"));
        fs::create_dir(&message).unwrap();
        fs::write(message.join("f"), "x").unwrap();
    }
    session
}

#[cfg(feature = "artifacts")]
mod objects {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use beneath::artifacts::object_store::memory::InMemory;
    use beneath::artifacts::{Artifacts, Prefix, Source, SyncOptions};
    use beneath::{Session, SessionId};
    use tokio::runtime::Runtime;

    use super::{Ready, filled, session};

    fn artifacts(source: &Source, session: &Session) -> Artifacts {
        Artifacts::new(source.clone(), Prefix::session(&SessionId::new("s")), session)
    }

    /// A workspace with files that a store in memory has too.
    fn mirrored(dir: &Path, count: usize) -> (Runtime, Source, Artifacts) {
        let runtime = Runtime::new().unwrap();
        let source = Source::memory(Arc::new(InMemory::new()));
        let artifacts = artifacts(&source, &session(&dir.join("one")));
        filled(&dir.join("one/s0/guest/workspace"), count, 100);
        let report = runtime.block_on(artifacts.mirror(&SyncOptions::default())).unwrap();
        assert!(report.is_complete() && report.uploaded == count as u64, "{report:?}");
        (runtime, source, artifacts)
    }

    pub(super) fn restore(dir: &Path, count: usize) -> Ready {
        let (runtime, source, _) = mirrored(dir, count);
        let artifacts = artifacts(&source, &session(&dir.join("two")));
        Box::new(move || assert!(runtime.block_on(artifacts.restore()).unwrap().is_complete()))
    }

    pub(super) fn mirror(dir: &Path, count: usize) -> Ready {
        let (runtime, _, artifacts) = mirrored(dir, count);
        // Until the files are older than the freshness of a stamp.
        std::thread::sleep(Duration::from_millis(200));
        Box::new(move || {
            let report = runtime.block_on(artifacts.mirror(&SyncOptions::default())).unwrap();
            assert!(report.is_complete() && report.uploaded == 0, "{report:?}");
        })
    }
}

/// What one process says.
#[derive(Clone, Copy, Default)]
struct Cost {
    nanoseconds: u64,
    /// Of those on a processor, all threads together.
    busy: u64,
    memory_kib: u64,
    descriptors: usize,
}

const ROLE: &str = "grown";

/// Does one work at one size, and prints its cost.
fn be_grown(arguments: &[String]) -> ExitCode {
    let [title, count, dir] = arguments else { return ExitCode::FAILURE };
    let Some((_, _, make)) = WORKS.iter().find(|(name, ..)| name == title) else { return ExitCode::FAILURE };
    let ready = make(Path::new(dir), count.parse().unwrap());
    // From here on the peak is that of the work.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let is_done = AtomicBool::new(false);
    let (taken, descriptors) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(child::open_descriptors());
                std::thread::sleep(Duration::from_millis(1));
            }
            most
        });
        let ends = Ends(&is_done);
        let (start, before) = (Instant::now(), busy());
        ready();
        let taken = (start.elapsed().as_nanos(), busy() - before);
        drop(ends);
        (taken, watch.join().unwrap())
    });
    println!("{} {} {} {descriptors}", taken.0, taken.1, child::peak_memory() / 1024);
    ExitCode::SUCCESS
}

/// How many nanoseconds this process was on a processor.
fn busy() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// One work at one size in a process of its own.
fn measure(ground: &Path, title: &str, count: usize) -> Result<Cost, String> {
    let place = tempfile::Builder::new().prefix("beneath-scaling-").tempdir_in(ground).unwrap();
    let mut command = Command::new("/proc/self/exe");
    command.args([ROLE, title, &count.to_string()]).arg(place.path()).env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [nanoseconds, busy, memory_kib, descriptors] if output.status.success() => {
            Ok(Cost { nanoseconds, busy, memory_kib, descriptors: descriptors as usize })
        }
        _ => Err(format!("{count}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn main() -> ExitCode {
    let columns = &[
        ("work", 30),
        ("file system", 16),
        ("items", 8),
        ("ms", 10),
        ("busy ms", 10),
        ("µs each", 8),
        ("of least", 8),
        ("memory KiB", 10),
        ("descriptors", 11),
    ];
    rig::main("scaling", columns, &[(ROLE, &be_grown)], |rig| {
        let memory = PathBuf::from("/dev/shm");
        let ground = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let part: f64 = env::SCALING.number().unwrap_or(1.0);
        for (title, full, _) in WORKS {
            if rig.wants(title) {
                let full = *full as f64 * part;
                let mut sizes = [0.01, 0.1, 1.0].map(|part| (full * part) as usize).to_vec();
                sizes.retain(|size| *size >= LEAST);
                add(rig, &ground, title, &sizes);
            }
        }
        rig.note(format!(
            "An item of the largest size may take {FACTOR} times as long as one of the smallest, and {DESCRIPTORS} descriptors may be open."
        ));
    })
}

/// Measures a work at its sizes, and adds a row for each.
fn add(rig: &mut Rig, ground: &Path, title: &str, sizes: &[usize]) {
    let mut costs = vec![Cost { nanoseconds: u64::MAX, busy: u64::MAX, ..Cost::default() }; sizes.len()];
    for _ in 0..ROUNDS {
        for (size, cost) in sizes.iter().zip(&mut costs) {
            match measure(ground, title, *size) {
                Ok(now) => {
                    cost.nanoseconds = cost.nanoseconds.min(now.nanoseconds);
                    cost.busy = cost.busy.min(now.busy);
                    cost.memory_kib = cost.memory_kib.max(now.memory_kib);
                    cost.descriptors = cost.descriptors.max(now.descriptors);
                }
                Err(why) => return rig.fail(format!("{title}: {why}")),
            }
        }
    }
    let each = |at: usize| costs[at].busy as f64 / sizes[at] as f64;
    for (at, cost) in costs.iter().enumerate() {
        let growth = each(at) / each(0);
        let mut row = Row {
            cells: vec![
                title.to_owned(),
                bench::described(ground),
                sizes[at].to_string(),
                format!("{:.2}", cost.nanoseconds as f64 / 1e6),
                format!("{:.2}", cost.busy as f64 / 1e6),
                format!("{:.2}", each(at) / 1000.0),
                format!("{growth:.2}"),
                cost.memory_kib.to_string(),
                cost.descriptors.to_string(),
            ],
            ..Row::default()
        };
        if at == costs.len() - 1 {
            let slower = (growth > FACTOR)
                .then(|| format!("an item takes {growth:.1} times as long as one of the smallest"));
            row.judge(title == CONTROL, slower.into_iter().collect());
            if cost.descriptors > DESCRIPTORS {
                row.failures.push(format!("{} descriptors were open", cost.descriptors));
            }
        }
        rig.add(row);
    }
}
