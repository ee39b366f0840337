//! Runs one bout: starts the guest, calls the host's operation again and again, and judges every call.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::guest::{self, Guest};
use super::stage::Stage;
use super::{Bout, Contender, Ground, Host, Outcome, Tally};
use crate::canary::Canary;

/// How often names and content of the canary are compared, in calls.
const CORRUPTION_CHECK: u64 = 4096;
/// A call that takes longer hangs.
const HANG: Duration = Duration::from_secs(20);
/// The guest's pauses are up to four times what a call takes, within these bounds.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A success that usually takes longer than this does so because the file system is slow.
const SLOW: Duration = Duration::from_micros(500);
/// Who the host is where it must not be root.
const NOBODY: u32 = 65534;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    pub calls: u64,
    /// How long to go on beyond that, if the race has not shown both of its sides or the control was not caught yet.
    pub patience: Duration,
    /// Of all calls, the share that must succeed and the share that must be refused for the race to count: one in so many.
    pub share: u64,
}

/// Plays the part that the arguments name, if this process was started to be one of the others.
pub fn play_part(bouts: &[Bout]) -> Option<ExitCode> {
    match part(bouts)? {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn part(bouts: &[Bout]) -> Option<io::Result<()>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let find = |kind: &str, verb: &str| bouts.iter().find(|bout| bout.kind == kind && bout.verb == verb);
    match *arguments {
        ["attacker", kind, verb, base, pause, seed] => {
            let (pause, seed) = (pause.parse().ok()?, seed.parse().ok()?);
            Some(guest::attack(find(kind, verb)?, Path::new(base), pause, seed))
        }
        ["host", kind, verb, contender, calls, patience, share, seed] => {
            let bout = find(kind, verb)?;
            let contender = Contender::ALL.into_iter().find(|known| known.name() == contender)?;
            let volume = Volume {
                calls: calls.parse().ok()?,
                patience: Duration::from_millis(patience.parse().ok()?),
                share: share.parse().ok()?,
            };
            let tally = race_here(bout, contender, volume, seed.parse().ok()?, |_| {});
            Some(tally.map(|tally| print!("{}", tally.to_lines())))
        }
        ["idle"] => Some(Ok(())),
        _ => None,
    }
}

/// Why a bout cannot be run here, if it cannot.
pub fn obstacle(bout: &Bout) -> Option<String> {
    if let Some(why) = bout.obstacle {
        return Some(why.into());
    }
    let device = |ground: Ground| fs::metadata(ground.path()).map(|found| found.dev()).ok();
    if bout.ground == Ground::Disk && device(Ground::Disk) == device(Ground::Usual) {
        return Some("temporary files are on the same file system as the others".into());
    }
    if !needs_another_user(bout) {
        return None;
    }
    match as_nobody().arg("idle").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("a program run as nobody ended with {}", output.status)),
        Err(error) => Some(format!("no program can be run as nobody: {error}")),
    }
}

fn needs_another_user(bout: &Bout) -> bool {
    bout.needs_plain_user && crate::is_root()
}

/// Runs a bout, in this process or, where root would spoil it, in one that is not root. `watch` is called now and then.
pub fn race(
    bout: &Bout,
    contender: Contender,
    volume: Volume,
    seed: u64,
    watch: impl FnMut(&Tally),
) -> io::Result<Tally> {
    if !needs_another_user(bout) {
        return race_here(bout, contender, volume, seed, watch);
    }
    let output = as_nobody()
        .args(["host", bout.kind, bout.verb, contender.name()])
        .args([volume.calls, volume.patience.as_millis() as u64, volume.share, seed].map(|n| n.to_string()))
        .stderr(Stdio::inherit())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    Tally::from_lines(&said).ok_or_else(|| io::Error::other(format!("the unprivileged host said {said:?}")))
}

fn race_here(
    bout: &Bout,
    contender: Contender,
    volume: Volume,
    seed: u64,
    mut watch: impl FnMut(&Tally),
) -> io::Result<Tally> {
    let stage = Stage::build(bout)?;
    let mut canary = Canary::pin(stage.outside(), bout.shared)?;
    let mut host = bout.script.host(contender, stage.path())?;
    let mut usual = undisturbed(&mut *host, &canary);
    let pause = (usual * 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let guest = Guest::start(bout, stage.path(), pause, seed)?;
    if bout.shared.is_some() {
        // The guest's second name is part of the scene.
        canary.restore()?;
    }
    let watchdog = Watchdog::start(bout, contender);
    let descriptors = open_descriptors()?;
    let mut tally = Tally::default();
    let mut deadline = None;
    loop {
        let start = Instant::now();
        host.prepare();
        let mut outcome = host.call(tally.calls, &canary);
        watchdog.tick();
        if host.settle() == Some(false) && matches!(outcome, Outcome::Ok) {
            outcome = Outcome::Escaped("succeeded, but not inside".into());
        }
        let mut noticed = canary.disturbed();
        if noticed.is_none() && tally.calls.is_multiple_of(CORRUPTION_CHECK) {
            noticed = canary.corrupted()?;
        }
        if let Some(story) = noticed {
            outcome = Outcome::Escaped(story);
            canary.restore()?;
        }
        match outcome {
            Outcome::Ok => usual = (usual * 7 + start.elapsed()) / 8,
            // A refusal costs next to nothing: without a rest there would be hundreds for each success.
            Outcome::Refused if usual > SLOW => std::thread::sleep(usual),
            _ => {}
        }
        tally.count(outcome);
        if tally.calls.is_multiple_of(64) {
            watch(&tally);
        }
        if tally.calls >= volume.calls {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + volume.patience);
            if tally.shown(bout, contender, volume.share) || Instant::now() >= deadline {
                break;
            }
        }
    }
    drop(guest);
    watch(&tally);
    if let Some(story) = canary.corrupted()? {
        tally.count(Outcome::Escaped(story));
    }
    if open_descriptors()? > descriptors {
        tally.count(Outcome::Wrong("descriptors have leaked".into()));
    }
    Ok(tally)
}

/// What a call takes with the host's bookkeeping, as long as nobody interferes.
fn undisturbed(host: &mut dyn Host, canary: &Canary) -> Duration {
    let mut times: [Duration; 9] = std::array::from_fn(|turn| {
        let start = Instant::now();
        host.prepare();
        host.call(turn as u64, canary);
        host.settle();
        start.elapsed()
    });
    times.sort_unstable();
    times[times.len() / 2]
}

/// Ends the process when a call hangs, which is a failure that no count would show.
struct Watchdog(&'static AtomicU64);

impl Watchdog {
    const OVER: u64 = u64::MAX;

    fn start(bout: &Bout, contender: Contender) -> Self {
        let ticks: &AtomicU64 = Box::leak(Box::default());
        let title = format!("{bout:?} {}", contender.name());
        std::thread::spawn(move || {
            let mut last = (ticks.load(Ordering::Relaxed), Instant::now());
            loop {
                std::thread::sleep(Duration::from_millis(50));
                match ticks.load(Ordering::Relaxed) {
                    Self::OVER => return,
                    now if now != last.0 => last = (now, Instant::now()),
                    _ if last.1.elapsed() < HANG => {}
                    _ => {
                        eprintln!("{title}: a call hangs");
                        std::process::exit(3);
                    }
                }
            }
        });
        Self(ticks)
    }

    fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(Self::OVER, Ordering::Relaxed);
    }
}

/// This program once more; by the kernel's own link, since another user may not be able to reach the path.
pub(super) fn this_program() -> Command {
    Command::new("/proc/self/exe")
}

fn as_nobody() -> Command {
    let mut program = this_program();
    program.uid(NOBODY).gid(NOBODY);
    program
}

fn open_descriptors() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}
