//! Runs one race: starts the guest, calls the host's operation again and again, and judges every call.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use beneath::Resolver;

use crate::attacks;
use crate::canary::Canary;
use crate::controls::Control;
#[cfg(feature = "session")]
use crate::plan::Operation;
use crate::plan::{Contender, Ground, Scenario};
#[cfg(feature = "session")]
use crate::session::{self, Call};
use crate::stage::{Stage, disk, ground};
use crate::victims::{Outcome, Victim};

/// Of all calls, the share that must succeed and the share that must be refused for a race to count: one in ten.
const SHARE: u64 = 10;
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
pub(crate) struct Volume {
    pub(crate) calls: u64,
    /// How long to go on beyond that, if the race has not shown both of its sides or the control was not caught yet.
    pub(crate) patience: Duration,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) ok: u64,
    pub(crate) refused: u64,
    pub(crate) escapes: u64,
    pub(crate) wrong: u64,
    /// The first few escapes and wrongs, in words.
    pub(crate) stories: Vec<String>,
}

impl Tally {
    fn count(&mut self, outcome: Outcome) {
        self.calls += 1;
        let story = match outcome {
            Outcome::Ok => {
                self.ok += 1;
                return;
            }
            Outcome::Refused => {
                self.refused += 1;
                return;
            }
            Outcome::Escaped(story) => {
                self.escapes += 1;
                story
            }
            Outcome::Wrong(story) => {
                self.wrong += 1;
                story
            }
        };
        if self.stories.len() < 3 {
            self.stories.push(story);
        }
    }

    /// Whether enough calls went either way for the race to have taken place.
    pub(crate) fn two_sided(&self, scenario: Scenario) -> bool {
        self.ok * SHARE >= self.calls
            && (self.refused * SHARE >= self.calls || scenario.never_refused().is_some())
    }

    fn shown(&self, scenario: Scenario, contender: Contender) -> bool {
        match contender {
            Contender::Beneath(_) => self.two_sided(scenario),
            Contender::Control => self.escapes > 0,
        }
    }

    fn to_lines(&self) -> String {
        let counts = format!("{} {} {} {} {}", self.calls, self.ok, self.refused, self.escapes, self.wrong);
        std::iter::once(&counts).chain(&self.stories).map(|line| format!("{line}\n")).collect()
    }

    fn from_lines(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut counts = lines.next()?.split(' ').map(str::parse);
        let mut next = || counts.next()?.ok();
        Some(Self {
            calls: next()?,
            ok: next()?,
            refused: next()?,
            escapes: next()?,
            wrong: next()?,
            stories: lines.map(str::to_owned).collect(),
        })
    }
}

/// Plays the part that the arguments name, if this process was started to be one of the others.
pub(crate) fn play_part() -> Option<io::Result<()>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["attacker", name, verb, stage, pause] => {
            let scenario = Scenario::find(name, verb)?;
            Some(attacks::attack(scenario, std::path::Path::new(stage), pause.parse().ok()?))
        }
        ["host", name, verb, contender, calls, patience] => {
            let scenario = Scenario::find(name, verb)?;
            let contender = Contender::ALL.into_iter().find(|known| known.name() == contender)?;
            let volume = Volume {
                calls: calls.parse().ok()?,
                patience: Duration::from_millis(patience.parse().ok()?),
            };
            Some(race_here(scenario, contender, volume, |_| {}).map(|tally| print!("{}", tally.to_lines())))
        }
        ["idle"] => Some(Ok(())),
        _ => None,
    }
}

/// Why a scenario cannot be run here, if it cannot.
pub(crate) fn obstacle(scenario: Scenario) -> Option<String> {
    #[cfg(feature = "session")]
    if scenario.operation == Operation::Session(Call::InPlace)
        && !matches!(session::stage::elsewhere(&ground()), Ok(Some(_)))
    {
        return Some("there is no second file system for the host's side".into());
    }
    let device = |path: std::path::PathBuf| fs::metadata(path).map(|found| found.dev()).ok();
    if scenario.ground() == Ground::Disk && device(disk()) == device(ground()) {
        return Some("temporary files are on the same file system as the others".into());
    }
    if !needs_another_user(scenario) {
        return None;
    }
    match as_nobody().arg("idle").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("a program run as nobody ended with {}", output.status)),
        Err(error) => Some(format!("no program can be run as nobody: {error}")),
    }
}

fn needs_another_user(scenario: Scenario) -> bool {
    scenario.needs_plain_user() && rustix::process::geteuid().is_root()
}

/// Runs a race, in this process or, where root would spoil it, in one that is not root. `watch` is told now and then.
pub(crate) fn race(
    scenario: Scenario,
    contender: Contender,
    volume: Volume,
    watch: impl FnMut(&Tally),
) -> io::Result<Tally> {
    if !needs_another_user(scenario) {
        return race_here(scenario, contender, volume, watch);
    }
    let output = as_nobody()
        .args(["host", scenario.name, scenario.verb(), contender.name()])
        .args([volume.calls.to_string(), volume.patience.as_millis().to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    Tally::from_lines(&told).ok_or_else(|| io::Error::other(format!("the unprivileged host said {told:?}")))
}

fn race_here(
    scenario: Scenario,
    contender: Contender,
    volume: Volume,
    mut watch: impl FnMut(&Tally),
) -> io::Result<Tally> {
    let stage = Stage::build(scenario)?;
    let shared = scenario.shares_a_file().then_some("a/b/c/f");
    let mut canary = Canary::plant(stage.outside(), shared)?;
    let caller = Caller::new(scenario, contender, &stage)?;
    let mut usual = undisturbed(&caller, &stage, &canary);
    let guest = Guest::start(scenario, &stage, (usual * 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE))?;
    if shared.is_some() {
        // The guest's second name is part of the scene.
        canary.restore()?;
    }
    let watchdog = Watchdog::start(scenario, contender);
    let descriptors = open_descriptors()?;
    let mut tally = Tally::default();
    let mut deadline = None;
    loop {
        let start = Instant::now();
        stage.prepare();
        let mut outcome = caller.call(tally.calls, &canary);
        watchdog.tick();
        if stage.settle() == Some(false) && matches!(outcome, Outcome::Ok) {
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
            if tally.shown(scenario, contender) || Instant::now() >= deadline {
                break;
            }
        }
    }
    drop(guest);
    watch(&tally);
    if let Some(story) = canary.corrupted()? {
        tally.escapes += 1;
        tally.stories.push(story);
    }
    if open_descriptors()? > descriptors {
        tally.wrong += 1;
        tally.stories.push("descriptors have leaked".into());
    }
    Ok(tally)
}

/// What a call takes with the host's bookkeeping, as long as nobody interferes.
fn undisturbed(caller: &Caller, stage: &Stage, canary: &Canary) -> Duration {
    let mut times: [Duration; 9] = std::array::from_fn(|turn| {
        let start = Instant::now();
        stage.prepare();
        caller.call(turn as u64, canary);
        stage.settle();
        start.elapsed()
    });
    times.sort_unstable();
    times[times.len() / 2]
}

enum Caller {
    Victim(Box<Victim>),
    Control(Control),
}

impl Caller {
    fn new(scenario: Scenario, contender: Contender, stage: &Stage) -> io::Result<Self> {
        Ok(match contender {
            Contender::Beneath(resolver) => Self::Victim(Box::new(Victim::new(scenario, resolver, stage)?)),
            Contender::Control => Self::Control(Control::new(scenario, stage)?),
        })
    }

    fn call(&self, turn: u64, canary: &Canary) -> Outcome {
        match self {
            Self::Victim(victim) => victim.call(turn, canary),
            Self::Control(control) => control.call(turn, canary),
        }
    }
}

/// The attacking process. It ends with this value.
struct Guest(Child);

impl Guest {
    fn start(scenario: Scenario, stage: &Stage, pause: Duration) -> io::Result<Self> {
        let mut child = this_program()
            .args(["attacker", scenario.name, scenario.verb()])
            .arg(stage.path())
            .arg(pause.as_micros().to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let guest = Self(child);
        match &*line {
            "ready\n" => Ok(guest),
            _ => Err(io::Error::other("the attacker did not start")),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends the process when a call hangs, which is a failure that no count would show.
struct Watchdog(&'static AtomicU64);

impl Watchdog {
    const OVER: u64 = u64::MAX;

    fn start(scenario: Scenario, contender: Contender) -> Self {
        let ticks: &AtomicU64 = Box::leak(Box::default());
        std::thread::spawn(move || {
            let mut last = (ticks.load(Ordering::Relaxed), Instant::now());
            loop {
                std::thread::sleep(Duration::from_millis(50));
                match ticks.load(Ordering::Relaxed) {
                    Self::OVER => return,
                    now if now != last.0 => last = (now, Instant::now()),
                    _ if last.1.elapsed() < HANG => {}
                    _ => {
                        let (name, verb) = (scenario.name, scenario.verb());
                        eprintln!("{name} {verb} {}: a call hangs", contender.name());
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
fn this_program() -> Command {
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

/// Whether the kernel lets this process call openat2.
pub(crate) fn has_openat2() -> bool {
    let here = beneath::Root::open_ambient("/", beneath::ambient_authority());
    here.is_ok_and(|root| root.resolver() == Resolver::Openat2)
}
