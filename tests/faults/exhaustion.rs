//! Nothing left: space, inodes, descriptors, file size, stack.
//!
//! Limits belong to a process, so each part runs in a child of its own, with nobody tracing it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use beneath::{Policy, Root, WalkLimits, ambient_authority};
use beneath_kit::rig::{Count, Rig, Row};
use beneath_kit::scene::judge::{Leniency, Round};
use beneath_kit::scene::place::{Places, memory, own_mounts};
use beneath_kit::scene::report::Around;
use beneath_kit::scene::scenario::{SCENARIOS, Scenario};
use beneath_kit::scene::victim::{Request, answer_around};
use beneath_kit::scene::{self, Scene};
use beneath_kit::snapshot::Contents;
use beneath_kit::{Contender, tree};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use rustix::mount::MountFlags;

/// The argument that makes the executable a child of this module.
pub(crate) const CHILD: &str = "--exhaust";

/// What is exhausted, and how.
type Part = (&'static str, fn(&Path) -> Result<Count, String>);

const PARTS: &[Part] = &[
    ("descriptors 3..64", few_descriptors),
    ("no space", |_| full_disk("size=1m,nr_inodes=1000", fill_space)),
    ("no inodes", |_| full_disk("size=8m,nr_inodes=200", fill_inodes)),
    ("file size limit", small_files),
    ("stack of 256 KiB", small_stack),
    ("deep tree on 256 KiB", deep_tree),
];

const STACK: usize = 256 * 1024;
const DEEP: u32 = 3000;

pub(crate) fn run(rig: &mut Rig, places: &Places) {
    for (part, _) in PARTS {
        let title = format!("exhaustion: {part}");
        if rig.wants(&title) {
            rig.add(ask_child(part, title, places));
        }
    }
}

fn ask_child(part: &str, title: String, places: &Places) -> Row {
    let dir = places.any_dir();
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args([CHILD, part])
        .arg(dir.path())
        .stderr(Stdio::inherit())
        .output()
        .expect("a child can be started");
    clear_deep(&dir.path().join("scene"));
    match serde_json::from_slice(&output.stdout) {
        Ok(Ok(found)) if output.status.success() => Count::row(found, title, false),
        Ok(Err::<_, String>(reason)) => Row::skipped(title, reason),
        other => {
            let violations = vec![format!("the child ended with {}: {other:?}", output.status)];
            Count { violations, ..Count::default() }.row(title, false)
        }
    }
}

/// Removes a tree that may be too deep for a clean-up that calls itself.
fn clear_deep(dir: &Path) {
    // What stays is in the way of whoever builds there next.
    let _ = Command::new("rm").arg("-rf").arg(dir).status();
}

pub(crate) fn child(arguments: &[String]) -> ExitCode {
    let [part, dir] = arguments else { return ExitCode::FAILURE };
    let Some((_, play)) = PARTS.iter().find(|(name, _)| name == part) else { return ExitCode::FAILURE };
    println!("{}", serde_json::to_string(&play(&Path::new(dir).join("scene"))).expect("a count is text"));
    ExitCode::SUCCESS
}

/// Runs every scenario with both resolvers inside `around`. A refusal must be of the expected kind.
fn run_all(count: &mut Count, base: &Path, expected: &str, what: &str, around: &Around<'_>) {
    for scenario in SCENARIOS.iter().filter(|scenario| !scenario.is_control()) {
        for &contender in scenario.contenders() {
            let (verdict, mut violations) = play(scenario, contender, base, around);
            if !["ok", "incomplete", expected].contains(&&*verdict) {
                violations.push(format!("ended with {verdict}"));
            }
            count.pairs += 1;
            count.succeeded += usize::from(verdict == "ok");
            if !violations.is_empty() {
                let (name, violations) = (scenario.name, violations.join("; "));
                count.violations.push(format!("{name} ({}) with {what}: {violations}", contender.name()));
            }
        }
    }
}

fn play(
    scenario: &Scenario,
    contender: Contender,
    base: &Path,
    around: &Around<'_>,
) -> (String, Vec<String>) {
    let scene = Scene::new(base, scenario.leaf).expect("the scene can be built");
    let source = scene.reset().expect("the scene can be built");
    let (before, outside) = (scene.inside_now(), scene.outside_now(Contents::Read));
    let request = Request { scenario: scenario.name.into(), contender, durable: false, base: base.into() };
    let report = answer_around(&request, around);
    let (end, outside_end) = (scene.inside_now(), scene.outside_now(Contents::Read));
    let (outside, leniency) = ([&outside, &outside_end], Leniency::default());
    let round = Round { scenario, source, seen: &[before], end: &end, outside, leniency };
    let violations = round.violations(Some(&report));
    // The canary differs by scenario.
    scene::clear(base).expect("the scene can be removed");
    (report.verdict(), violations)
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

fn few_descriptors(base: &Path) -> Result<Count, String> {
    let mut count = Count::default();
    let mut enough = None;
    for limit in 3..=64 {
        let (pairs, succeeded) = (count.pairs, count.succeeded);
        let around = limited(Resource::RLIMIT_NOFILE, limit);
        run_all(&mut count, base, "TooMany", &format!("{limit} descriptors"), &around);
        let all = count.succeeded - succeeded == count.pairs - pairs;
        enough = all.then(|| enough.unwrap_or(limit));
    }
    count.note = format!("all succeed from {} on", enough.unwrap_or(0));
    Ok(felt(count))
}

fn small_files(base: &Path) -> Result<Count, String> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().map_err(|error| error.to_string())?;
    let mut count = Count::default();
    for limit in [0, 1, 1000] {
        let around = limited(Resource::RLIMIT_FSIZE, limit);
        run_all(&mut count, base, "TooLarge", &format!("{limit} bytes"), &around);
    }
    Ok(felt(count))
}

/// A limit under which everything succeeds shows nothing.
fn felt(mut count: Count) -> Count {
    if count.succeeded == count.pairs {
        count.violations.push("the limit was never felt".into());
    }
    count
}

fn full_disk(options: &str, fill: fn(&Path) -> io::Result<()>) -> Result<Count, String> {
    let mounts = own_mounts().ok_or("needs the right to mount")?;
    let disk = memory(&mounts.path().join("disk"), MountFlags::empty(), options)
        .ok_or("needs the right to mount")?;
    let mut count = Count::default();
    let filler = disk.join("filler");
    run_all(&mut count, &disk.join("scene"), "NoSpace", "nothing left", &|part| {
        fs::create_dir(&filler).expect("not full yet");
        fill(&filler).expect_err("a full disk ends it");
        part();
        fs::remove_dir_all(&filler).expect("room again");
    });
    if let Err(error) = rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH) {
        count.violations.push(format!("the disk stays: {error}"));
    }
    count.note = format!("{} refused", count.pairs - count.succeeded);
    Ok(felt(count))
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

fn small_stack(base: &Path) -> Result<Count, String> {
    on_small_stack(base, |count, base| run_all(count, base, "ok", "a small stack", &|part| part()))
}

fn on_small_stack(base: &Path, part: fn(&mut Count, &Path)) -> Result<Count, String> {
    let mut count = Count::default();
    let panicked = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn_scoped(scope, || part(&mut count, base));
        thread.map(|thread| thread.join().is_err()).map_err(|error| error.to_string())
    })?;
    if panicked {
        count.violations.push("the thread panicked".into());
    }
    Ok(count)
}

fn deep_tree(base: &Path) -> Result<Count, String> {
    on_small_stack(base, |count, base| {
        for resolver in Contender::RESOLVERS.iter().map(|resolver| resolver.choice()) {
            fs::create_dir(base).expect("the scene can be built");
            drop(tree::deep(File::open(base).expect("it was made"), "d", DEEP));
            let policy = Policy::default().with_resolver(resolver);
            let root = Root::open_ambient(base, ambient_authority()).expect("opens").with_policy(policy);
            count.pairs += 2;
            let limits = WalkLimits::default().with_depth(u32::MAX);
            match root.walk("d", limits).map(|walk| walk.filter(Result::is_ok).count()) {
                Ok(entries) if entries + 1 >= DEEP as usize => count.succeeded += 1,
                // A bounded walk may stop, as long as it says so.
                Ok(_) => {}
                Err(error) => count.violations.push(format!("walk ({resolver:?}): {error}")),
            }
            match root.remove_tree_contained("d") {
                Ok(removed) if removed.is_complete() && !base.join("d").exists() => count.succeeded += 1,
                other => count.violations.push(format!("remove ({resolver:?}): {other:?}")),
            }
            clear_deep(base);
        }
        count.note = format!("{DEEP} levels");
    })
}
