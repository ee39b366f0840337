//! Removal of trees that are too deep or too wide for others, with what it costs beside them.
//!
//! Runs only when asked to, since it makes millions of directories: `BENEATH_SCALE=1 cargo test --release --test scale`.
//! A fraction makes smaller trees: `BENEATH_SCALE=0.01`. Each remover works in a process of its own with 1,024
//! descriptors, on a fresh tree of the same shape. The others may fail, and how is part of the table; this crate
//! must succeed within 64 descriptors and 64 MiB.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use beneath::{Budget, Policy, ResolverChoice, Root, ambient_authority};
use beneath_kit::env::SCALE;
use beneath_kit::rig::{self, Rig, Row, file_system};
use beneath_kit::{child, tree};

const DESCRIPTORS: u64 = 1024;
const MOST_DESCRIPTORS: usize = 64;
const MOST_MEMORY_KIB: u64 = 64 * 1024;
/// After this long a remover is taken to hang.
const PATIENCE: Duration = Duration::from_secs(900);
const TOP: &str = "doomed";

fn main() -> ExitCode {
    let columns = &[
        ("tree", 15),
        ("file system", 11),
        ("remover", 18),
        ("seconds", 8),
        ("descriptors", 11),
        ("memory KiB", 10),
        ("outcome", 30),
    ];
    rig::main("scale", columns, &[("remover", &be_remover)], |rig| match SCALE.number() {
        None => rig.add(Row::skipped(
            "all",
            "set BENEATH_SCALE=1 to remove trees a million levels deep and a million entries wide",
        )),
        Some(scale) => {
            if let Err(error) = run(rig, scale) {
                rig.fail(format!("the rig broke: {error}"));
            }
        }
    })
}

fn be_remover(arguments: &[String]) -> ExitCode {
    let [who, place] = arguments else { return ExitCode::FAILURE };
    let Some((_, remove)) = REMOVERS.iter().find(|(name, _)| name == who) else { return ExitCode::FAILURE };
    child::limit_descriptors(DESCRIPTORS);
    match remove(Path::new(place)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What the size of a tree counts, and how such a tree is built in its top directory.
type Shape = (&'static str, fn(File, u32));

const DEEP: Shape = ("levels", |top, levels| drop(tree::deep(top, "d", levels)));
const WIDE: Shape = ("entries", |top, entries| tree::wide(top, entries));

type Remover = (&'static str, fn(&Path) -> io::Result<()>);

const REMOVERS: &[Remover] = &[
    ("beneath (openat2)", |place| remove_beneath(place, ResolverChoice::Openat2)),
    ("beneath (walk)", |place| remove_beneath(place, ResolverChoice::Walk)),
    ("std", |place| fs::remove_dir_all(place.join(TOP))),
    ("cap-std", |place| {
        cap_std::fs::Dir::open_ambient_dir(place, cap_std::ambient_authority())?.remove_dir_all(TOP)
    }),
    ("pathrs", |place| {
        let removed = pathrs::Root::open(place).and_then(|root| root.remove_all(TOP));
        removed.map_err(|error| io::Error::other(one_line(&error)))
    }),
    // Takes the place of this process, so that it is the one observed. Returns only on failure.
    ("rm -rf", |place| Err(Command::new("rm").arg("-rf").arg(place.join(TOP)).exec())),
];

fn run(rig: &mut Rig, scale: f64) -> io::Result<()> {
    let memory = PathBuf::from("/dev/shm");
    let memory = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let trees = [(&memory, DEEP, 1e6), (&memory, WIDE, 1e6), (&std::env::temp_dir(), DEEP, 1e5)];
    for (ground, (counted, build), full) in trees {
        let size = (full * scale).max(1.0) as u32;
        for (who, _) in REMOVERS {
            let place = tempfile::Builder::new().prefix("beneath-scale-").tempdir_in(ground)?;
            let top = place.path().join(TOP);
            fs::create_dir(&top)?;
            build(File::open(top)?, size);
            let cost = watch(who, place.path())?;
            rig.add(cost.row(who, format!("{size} {counted}"), ground));
            sweep(place.path())?;
        }
    }
    Ok(())
}

/// Takes away what a remover left, since the temporary directory's own remover would fail in the same way.
fn sweep(place: &Path) -> io::Result<()> {
    let root = Root::open_ambient(place, ambient_authority())?;
    let names: Vec<PathBuf> = root.list(".")?.filter_map(|entry| Some(entry.ok()?.into_path())).collect();
    for name in names {
        let swept = root.remove_tree_contained_within(name, Budget::unlimited())?;
        if !swept.is_complete() {
            return Err(io::Error::other(format!("{:?} stayed", swept.left)));
        }
    }
    Ok(())
}

struct Cost {
    seconds: f64,
    descriptors: usize,
    memory_kib: u64,
    outcome: String,
}

/// Runs one remover in its own process and looks at it every millisecond.
fn watch(who: &str, place: &Path) -> io::Result<Cost> {
    let mut command = Command::new("/proc/self/exe");
    let output = tempfile::tempfile()?;
    command.args(["remover", who]).arg(place).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let start = Instant::now();
    let mut child = command.spawn()?;
    let mut cost = Cost { seconds: 0.0, descriptors: 0, memory_kib: 0, outcome: String::new() };
    let status = loop {
        cost.observe(&child);
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    cost.seconds = start.elapsed().as_secs_f64();
    let gone = !place.join(TOP).exists();
    cost.outcome = match status {
        None => format!("not done after {} s", PATIENCE.as_secs()),
        Some(status) if status.success() && gone => "removed".into(),
        Some(status) if status.success() => "says it removed the tree, which is still there".into(),
        Some(status) => format!("failed ({status}): {}", last_line(output)?),
    };
    Ok(cost)
}

impl Cost {
    /// This crate must succeed cheaply; how the others fail is part of the table.
    fn row(&self, who: &str, tree: String, ground: &Path) -> Row {
        let cheap = self.descriptors <= MOST_DESCRIPTORS && self.memory_kib <= MOST_MEMORY_KIB;
        let good = !who.starts_with("beneath") || (cheap && self.outcome == "removed");
        Row {
            cells: vec![
                tree,
                file_system(ground),
                who.to_owned(),
                format!("{:.1}", self.seconds),
                self.descriptors.to_string(),
                self.memory_kib.to_string(),
                self.outcome.clone(),
            ],
            failures: if good { Vec::new() } else { vec![format!("{who} {}", self.outcome)] },
            ..Row::default()
        }
    }

    /// The child may have ended by now, or may just be starting.
    fn observe(&mut self, remover: &Child) {
        if let Ok(open) = fs::read_dir(format!("/proc/{}/fd", remover.id())) {
            self.descriptors = self.descriptors.max(open.count());
        }
        self.memory_kib = self.memory_kib.max(child::peak_memory_of(remover.id()).unwrap_or(0) / 1024);
    }
}

fn last_line(mut output: File) -> io::Result<String> {
    use std::io::{Read as _, Seek as _};
    output.rewind()?;
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    Ok(text.lines().last().unwrap_or_default().chars().take(120).collect())
}

fn remove_beneath(place: &Path, resolver: ResolverChoice) -> io::Result<()> {
    let root = Root::open_ambient(place, ambient_authority())?
        .with_policy(Policy::default().with_resolver(resolver));
    let removed = root.remove_tree_contained_within(TOP, Budget::unlimited())?;
    match removed.is_complete() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} entries left", removed.left.total))),
    }
}

fn one_line(error: &dyn std::error::Error) -> String {
    let cause = std::iter::successors(Some(error), |error| error.source()).last();
    cause.map_or(String::new(), |cause| cause.to_string().lines().next().unwrap_or_default().to_owned())
}
