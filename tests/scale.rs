//! Removal of trees that are too deep or too wide for others, with what it costs beside them.
//!
//! Runs only when asked to, since it makes millions of directories: `BENEATH_SCALE=1 cargo test --release --test scale`.
//! A fraction makes smaller trees: `BENEATH_SCALE=0.01`. Each remover works in a process of its own with 1,024
//! descriptors, on a fresh tree of the same shape. The others may fail, and how is part of the table; this crate
//! must succeed within 64 descriptors and 64 MiB.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use beneath::{Budget, Policy, ResolverChoice, Root, ambient_authority};
use beneath_kit::env::SCALE;
use beneath_kit::rig::{self, Rig, Row, file_system};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::{Resource, Rlimit, setrlimit};

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
    match remove(who, Path::new(place)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy)]
enum Shape {
    Deep(u32),
    Wide(u32),
}

impl Shape {
    fn build(self, place: &Path) -> io::Result<()> {
        let top = place.join(TOP);
        fs::create_dir(&top)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir: OwnedFd = openat(CWD, &top, flags, Mode::empty())?;
        match self {
            Self::Deep(levels) => {
                for _ in 0..levels {
                    mkdirat(&dir, c"d", Mode::RWXU)?;
                    dir = openat(&dir, c"d", flags, Mode::empty())?;
                }
            }
            Self::Wide(entries) => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                for entry in 0..entries {
                    openat(&dir, format!("entry-{entry}"), flags, Mode::RUSR)?;
                }
            }
        }
        Ok(())
    }

    fn name(self) -> String {
        match self {
            Self::Deep(levels) => format!("{levels} levels"),
            Self::Wide(entries) => format!("{entries} entries"),
        }
    }
}

const REMOVERS: &[&str] = &["beneath (openat2)", "beneath (walk)", "std", "cap-std", "pathrs", "rm -rf"];

fn run(rig: &mut Rig, scale: f64) -> io::Result<()> {
    let of = |full: f64| (full * scale).max(1.0) as u32;
    let memory = PathBuf::from("/dev/shm");
    let memory = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let trees = [
        (memory.clone(), Shape::Deep(of(1e6))),
        (memory, Shape::Wide(of(1e6))),
        (std::env::temp_dir(), Shape::Deep(of(1e5))),
    ];
    for (ground, shape) in trees {
        for who in REMOVERS {
            let place = tempfile::Builder::new().prefix("beneath-scale-").tempdir_in(&ground)?;
            shape.build(place.path())?;
            let cost = watch(who, place.path())?;
            rig.add(cost.row(who, shape, &ground));
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
    fn row(&self, who: &str, shape: Shape, ground: &Path) -> Row {
        let cheap = self.descriptors <= MOST_DESCRIPTORS && self.memory_kib <= MOST_MEMORY_KIB;
        let good = !who.starts_with("beneath") || (cheap && self.outcome == "removed");
        Row {
            cells: vec![
                shape.name(),
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
    fn observe(&mut self, child: &Child) {
        let about = PathBuf::from(format!("/proc/{}", child.id()));
        if let Ok(open) = fs::read_dir(about.join("fd")) {
            self.descriptors = self.descriptors.max(open.count());
        }
        let status = fs::read_to_string(about.join("status")).unwrap_or_default();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        self.memory_kib = self.memory_kib.max(peak.unwrap_or(0));
    }
}

fn last_line(mut output: File) -> io::Result<String> {
    use std::io::{Read as _, Seek as _};
    output.rewind()?;
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    Ok(text.lines().last().unwrap_or_default().chars().take(120).collect())
}

fn remove(who: &str, place: &Path) -> io::Result<()> {
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) })?;
    match who {
        "beneath (openat2)" => remove_beneath(place, ResolverChoice::Openat2),
        "beneath (walk)" => remove_beneath(place, ResolverChoice::Walk),
        "std" => fs::remove_dir_all(place.join(TOP)),
        "cap-std" => {
            cap_std::fs::Dir::open_ambient_dir(place, cap_std::ambient_authority())?.remove_dir_all(TOP)
        }
        "pathrs" => pathrs::Root::open(place)
            .and_then(|root| root.remove_all(TOP))
            .map_err(|error| io::Error::other(one_line(&error))),
        // Takes the place of this process, so that it is the one observed. Returns only on failure.
        _ => Err(Command::new("rm").arg("-rf").arg(place.join(TOP)).exec()),
    }
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
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    format!("{cause}").lines().next().unwrap_or_default().to_owned()
}
