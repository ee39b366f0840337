//! Runs one bout: starts the guest, calls the host's operation again and again, and judges every call.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::guest::{self, Guest};
use super::stage::temporary;
use super::{Bout, Contender, Ground, Host, Outcome, Tally};
use crate::canary::Canary;
use crate::child::open_descriptors;
use crate::scene::clear;

/// How often names and content of the canary are compared, in calls.
const CORRUPTION_CHECK: u64 = 4096;
/// Among 64 calls that take longer there is one that hangs.
const HANG: Duration = Duration::from_secs(20);
/// The guest's pauses are up to four times what a call takes, within these bounds.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A success that usually takes longer than this does so because the file system is slow.
const SLOW: Duration = Duration::from_micros(500);
/// Who the host is where it must not be root.
const NOBODY: u32 = 65534;

/// How much is run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Volume {
    pub calls: u64,
    /// How long to go on beyond that, if the race has not shown both of its sides or the control was not caught yet.
    pub patience: Duration,
    /// Of all calls, the share that must succeed and the share that must be refused for the race to count: one in so many.
    pub share: u64,
}

/// What another process of this program is started to be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Part {
    /// The guest, whose pauses take up to so many microseconds.
    Guest { base: PathBuf, pause: u64, seed: u64 },
    /// The host, as a user that is bound by modes.
    Host { contender: Contender, volume: Volume, seed: u64 },
    /// Nothing; it shows whether such a process can be started.
    Idle,
}

/// The argument before a part and its bout.
const PART: &str = "--part";

impl Part {
    fn play(self, bout: &Bout) -> io::Result<()> {
        match self {
            Self::Guest { base, pause, seed } => guest::attack(bout, &base, pause, seed),
            Self::Host { contender, volume, seed } => {
                let tally = race_here(bout, contender, volume, seed, |_| {})?;
                println!("{}", serde_json::to_string(&tally)?);
                Ok(())
            }
            Self::Idle => Ok(()),
        }
    }

    /// This program once more; by the kernel's own link, since another user may not be able to reach the path.
    pub(super) fn command(&self, bout: &Bout) -> io::Result<Command> {
        let mut program = Command::new("/proc/self/exe");
        program.args([PART, &serde_json::to_string(self)?, bout.kind, bout.verb]);
        Ok(program)
    }

    fn as_nobody(&self, bout: &Bout) -> io::Result<Command> {
        let mut program = self.command(bout)?;
        program.uid(NOBODY).gid(NOBODY);
        Ok(program)
    }
}

/// Plays the part that the arguments name, if this process was started to be one of the others.
pub fn play_part(bouts: &[Bout]) -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, part, kind, verb] = &*arguments else { return None };
    let bout = bouts.iter().find(|bout| first == PART && bout.kind == kind && bout.verb == verb)?;
    let played = serde_json::from_str(part).map_err(io::Error::from).and_then(|part: Part| part.play(bout));
    if let Err(error) = &played {
        eprintln!("{error}");
    }
    Some(if played.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    match Part::Idle.as_nobody(bout).and_then(|mut program| program.output()) {
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
    let part = Part::Host { contender, volume, seed };
    let output = part.as_nobody(bout)?.stderr(Stdio::inherit()).output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn race_here(
    bout: &Bout,
    contender: Contender,
    volume: Volume,
    seed: u64,
    mut watch: impl FnMut(&Tally),
) -> io::Result<Tally> {
    let stage = temporary(&bout.ground.path())?;
    bout.script.build(stage.path())?;
    let mut canary = Canary::pin(stage.path().join("outside"), bout.shared)?;
    let mut host = bout.script.host(contender, stage.path())?;
    let mut usual = undisturbed(&mut *host, &canary);
    let pause = (usual * 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let guest = Guest::start(bout, stage.path(), pause, seed)?;
    if bout.shared.is_some() {
        // The guest's second name is part of the scene.
        canary.restore()?;
    }
    let ended = watchdog(format!("{bout:?} {}", contender.name()));
    let open = open_descriptors();
    let mut tally = Tally::default();
    let mut deadline = None;
    loop {
        let start = Instant::now();
        host.prepare();
        let mut outcome = host.call(tally.calls, &canary);
        if host.settle() == Some(false) && matches!(outcome, Outcome::Ok) {
            outcome = Outcome::Escaped("succeeded, but not inside".into());
        }
        let mut noticed = canary.disturbed();
        if noticed.is_none() && tally.calls.is_multiple_of(CORRUPTION_CHECK) {
            noticed = canary.corrupted();
        }
        if let Some(story) = noticed {
            outcome = Outcome::Escaped(story);
            canary.restore()?;
        }
        match outcome {
            Outcome::Ok => usual = (usual * 7 + start.elapsed()) / 8,
            // A refusal costs next to nothing: without a rest there would be hundreds for each success.
            Outcome::Refused if usual > SLOW || tally.ok * volume.share < tally.calls * 2 => {
                std::thread::sleep(usual);
            }
            _ => {}
        }
        tally.count(outcome);
        if tally.calls.is_multiple_of(64) {
            watch(&tally);
            // Not at every call: it wakes a thread, which would change the race.
            let _ = ended.send(());
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
    if let Some(story) = canary.corrupted() {
        tally.count(Outcome::Escaped(story));
    }
    if open_descriptors() > open {
        tally.count(Outcome::Wrong("descriptors have leaked".into()));
    }
    // What the guest has closed, the temporary directory's own removal does not open up.
    clear(&stage.path().join("root"))?;
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

/// Ends the process when no call has ended for a while, which is a failure that no count would show.
fn watchdog(title: String) -> mpsc::Sender<()> {
    let (sender, ticks) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            match ticks.recv_timeout(HANG) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("{title}: a call hangs");
                    std::process::exit(3);
                }
            }
        }
    });
    sender
}
