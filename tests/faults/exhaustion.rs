//! Nothing left: space, inodes, descriptors, file size, stack.
//!
//! WalkLimits belong to a process, so each part runs in a child of its own, with nobody tracing it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use beneath::{Durability, Links, Policy, ResolverChoice, Root, WalkLimits, ambient_authority};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::mount::MountFlags;
use serde_json::{Value, json};

use crate::Row;
use crate::trace::judge::{Leniency, Round};
use crate::trace::place::{Places, memory, own_mounts};
use crate::trace::scenario::{Report, Request, SCENARIOS, Scenario, answer_around};
use crate::trace::scene::{self, Contents, Scene};

/// The argument that makes the executable a child of this module.
pub(crate) const CHILD: &str = "--exhaust";

const PARTS: &[&str] = &[
    "descriptors 3..64",
    "no space",
    "no inodes",
    "file size limit",
    "stack of 256 KiB",
    "deep tree on 256 KiB",
];

const STACK: usize = 256 * 1024;
const DEEP: usize = 3000;

pub(crate) fn rows(places: &Places, chosen: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let wanted = PARTS.iter().filter(|part| chosen(&title(part)));
    wanted.map(|part| ask_child(part, places)).collect()
}

fn title(part: &str) -> String {
    format!("exhaustion: {part}")
}

fn ask_child(part: &str, places: &Places) -> Row {
    let dir = places.any_dir();
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args([CHILD, part])
        .arg(dir.path())
        .stderr(Stdio::inherit())
        .output()
        .expect("a child can be started");
    // A deep tree is more than the directory's own clean-up can take.
    let _ = Command::new("rm").arg("-rf").arg(dir.path().join("scene")).status();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if let Some(reason) = told["skipped"].as_str() {
        return Row::skipped(&title(part), reason);
    }
    let mut row = Row { title: title(part), ..Row::default() };
    if !output.status.success() {
        row.violations.push(format!("the child ended with {}", output.status));
    }
    let count = |key: &str| usize::try_from(told[key].as_u64().unwrap_or(0)).unwrap_or(0);
    row.pairs = count("pairs");
    row.succeeded = count("ok");
    row.note = told["note"].as_str().unwrap_or_default().to_owned();
    let found = told["violations"].as_array().into_iter().flatten();
    row.violations.extend(found.map(|violation| violation.as_str().unwrap_or_default().to_owned()));
    row
}

pub(crate) fn child(arguments: &[String]) -> ExitCode {
    let [part, dir] = arguments else { return ExitCode::FAILURE };
    let dir = Path::new(dir);
    let told = match part.as_str() {
        "descriptors 3..64" => few_descriptors(dir),
        "no space" => full_disk("size=1m,nr_inodes=1000", fill_space),
        "no inodes" => full_disk("size=8m,nr_inodes=200", fill_inodes),
        "file size limit" => small_files(dir),
        "stack of 256 KiB" => small_stack(dir.to_path_buf()),
        "deep tree on 256 KiB" => deep_tree(dir.to_path_buf()),
        _ => Err("unknown part".into()),
    };
    println!("{}", told.unwrap_or_else(|reason| json!({ "skipped": reason })));
    ExitCode::SUCCESS
}

/// What the runs of one part came to.
#[derive(Default)]
struct Tally {
    pairs: u64,
    ok: u64,
    violations: Vec<String>,
}

impl Tally {
    fn told(&self, note: &str) -> Value {
        json!({ "pairs": self.pairs, "ok": self.ok, "violations": self.violations, "note": note })
    }

    /// Runs every scenario with both resolvers inside `around`. A refusal must be of the expected kind.
    fn run_all(&mut self, base: &Path, expected: &str, what: &str, around: &dyn Fn(&mut dyn FnMut())) {
        for scenario in SCENARIOS {
            for resolver in [ResolverChoice::Openat2, ResolverChoice::Walk] {
                if scenario.links == Links::FollowBeneath && resolver == ResolverChoice::Walk {
                    continue;
                }
                self.run(scenario, resolver, base, expected, what, around);
            }
        }
    }

    fn run(
        &mut self,
        scenario: &Scenario,
        resolver: ResolverChoice,
        base: &Path,
        expected: &str,
        what: &str,
        around: &dyn Fn(&mut dyn FnMut()),
    ) {
        let scene = Scene::new(base, scenario.leaf).expect("the scene can be built");
        let source = scene.reset().expect("the scene can be built");
        let (before, outside) = (scene.inside_now(), scene.outside_now(Contents::Read));
        let request =
            Request { scenario: scenario.name, base, resolver, durability: Durability::None }.line();
        let report = Report::parse(&answer_around(&request, around));
        let (end, outside_end) = (scene.inside_now(), scene.outside_now(Contents::Read));
        let round = Round {
            effect: scenario.effect,
            source,
            earlier: vec![&before],
            attacked: &before,
            end: &end,
            outside_before: &outside,
            outside_end: &outside_end,
            leniency: Leniency::default(),
        };
        let mut violations = round.violations(Some(&report));
        let verdict = report.verdict();
        if !["ok", "incomplete", expected].contains(&&*verdict) {
            violations.push(format!("{:?}", report.result));
        }
        self.pairs += 1;
        self.ok += u64::from(verdict == "ok");
        if !violations.is_empty() {
            let name = scenario.name;
            self.violations.push(format!("{name} ({resolver:?}) with {what}: {}", violations.join("; ")));
        }
        // The canary differs by scenario.
        scene::clear(base).expect("the scene can be removed");
    }
}

/// Runs the part with the limit in force, and only the part.
fn limited(resource: Resource, limit: u64) -> impl Fn(&mut dyn FnMut()) {
    move |part| {
        let (soft, hard) = getrlimit(resource).expect("a limit can be read");
        setrlimit(resource, limit, hard).expect("a limit can be lowered");
        part();
        setrlimit(resource, soft, hard).expect("and raised again");
    }
}

fn few_descriptors(dir: &Path) -> Result<Value, String> {
    let mut tally = Tally::default();
    let mut enough = None;
    for limit in 3..=64 {
        let (ok, pairs) = (tally.ok, tally.pairs);
        let around = limited(Resource::RLIMIT_NOFILE, limit);
        tally.run_all(&dir.join("scene"), "TooMany", &format!("{limit} descriptors"), &around);
        if tally.ok - ok == tally.pairs - pairs {
            enough = enough.or(Some(limit));
        } else {
            enough = None;
        }
    }
    if tally.ok == tally.pairs {
        tally.violations.push("no limit was ever felt".into());
    }
    Ok(tally.told(&format!("all succeed from {} on", enough.unwrap_or(0))))
}

fn small_files(dir: &Path) -> Result<Value, String> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().map_err(|error| error.to_string())?;
    let mut tally = Tally::default();
    for limit in [0, 1, 1000] {
        let around = limited(Resource::RLIMIT_FSIZE, limit);
        tally.run_all(&dir.join("scene"), "TooLarge", &format!("{limit} bytes"), &around);
    }
    if tally.ok == tally.pairs {
        tally.violations.push("the limit was not felt".into());
    }
    Ok(tally.told(""))
}

fn full_disk(options: &str, fill: fn(&Path) -> io::Result<()>) -> Result<Value, String> {
    let mounts = own_mounts().ok_or("needs the right to mount")?;
    let disk = memory(&mounts.path().join("disk"), MountFlags::empty(), options)
        .ok_or("needs the right to mount")?;
    let mut tally = Tally::default();
    let filler = disk.join("filler");
    tally.run_all(&disk.join("scene"), "NoSpace", "nothing left", &|part| {
        fs::create_dir(&filler).expect("not full yet");
        fill(&filler).expect_err("a full disk ends it");
        part();
        fs::remove_dir_all(&filler).expect("room again");
    });
    let refused = tally.pairs - tally.ok;
    if refused == 0 {
        tally.violations.push("the disk was never full".into());
    }
    rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).map_err(|error| error.to_string())?;
    Ok(tally.told(&format!("{refused} refused")))
}

fn fill_space(dir: &Path) -> io::Result<()> {
    let mut file = File::create(dir.join("big"))?;
    loop {
        file.write_all(&[b'x'; 4096])?;
    }
}

fn fill_inodes(dir: &Path) -> io::Result<()> {
    for number in 0.. {
        File::create(dir.join(format!("{number}")))?;
    }
    Ok(())
}

fn small_stack(dir: PathBuf) -> Result<Value, String> {
    on_small_stack(move || {
        let mut tally = Tally::default();
        tally.run_all(&dir.join("scene"), "ok", "a small stack", &|part| part());
        tally.told("")
    })
}

fn on_small_stack(part: impl FnOnce() -> Value + Send + 'static) -> Result<Value, String> {
    let thread = thread::Builder::new().stack_size(STACK).spawn(part).map_err(|error| error.to_string())?;
    thread.join().map_err(|_| "the thread panicked".to_owned())
}

fn deep_tree(dir: PathBuf) -> Result<Value, String> {
    on_small_stack(move || {
        let mut tally = Tally::default();
        for resolver in [ResolverChoice::Openat2, ResolverChoice::Walk] {
            let base = dir.join("scene");
            fs::create_dir(&base).expect("the scene can be built");
            build_deep(&base).expect("a deep tree can be built");
            let policy = Policy::default().with_resolver(resolver);
            let root = Root::open_ambient(&base, ambient_authority()).expect("opens").with_policy(policy);
            tally.pairs += 2;
            let limits = WalkLimits::default().with_depth(u32::MAX);
            match root.walk("d", limits).map(|walk| walk.filter(Result::is_ok).count()) {
                Ok(entries) if entries + 1 >= DEEP => tally.ok += 1,
                // A bounded walk may stop, as long as it says so.
                Ok(_) => {}
                Err(error) => tally.violations.push(format!("walk ({resolver:?}): {error}")),
            }
            match root.remove_tree_contained("d") {
                Ok(removed) if removed.is_complete() && !base.join("d").exists() => tally.ok += 1,
                other => tally.violations.push(format!("remove ({resolver:?}): {other:?}")),
            }
            fs::remove_dir(&base).expect("the scene is empty");
        }
        tally.told(&format!("{DEEP} levels"))
    })
}

fn build_deep(base: &Path) -> io::Result<()> {
    let mut dir = openat(CWD, base, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    for _ in 0..DEEP {
        mkdirat(&dir, "d", Mode::RWXU)?;
        dir = openat(&dir, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    }
    Ok(())
}
