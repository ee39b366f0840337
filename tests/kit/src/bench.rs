//! The frame of a bench: each work is done in several ways, which take turns, and every figure says where it is from.
//!
//! Problem: a figure misleads if the ways were not measured side by side, if nobody knows on which file system, if the noise is not
//! shown, or if the bare syscalls that a way is held against are others than its own.
//!
//! Defence: the ways of one work take turns, in another order each round. A row has its file system with the flags of the mount, the
//! lower quartile, and the range of the middle half relative to it. The calls of `raw` and `beneath` are counted by a tracer; a
//! difference without a reason fails, and so does a `raw` that is slower than `beneath` in three rounds of four. The table is
//! evidence like that of any [`rig`], with the commit, the kernel, the processor, the day and the command.
//!
//! What remains: on a busy machine the spread is wide. What threads and other processes call is not counted.

pub mod calls;
mod line;
mod place;
pub mod readme;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use line::{Line, OURS, RAW, Watch};
pub use place::{Ground, Place};

use crate::env;
use crate::rig::{self, Column, Row};
use crate::trace::{Tracer, VICTIM, be_victim};
use calls::{Asked, Stage};

const COLUMNS: &[Column] = &[
    ("work", 28),
    ("file system", 22),
    ("way", 24),
    ("µs", 12),
    ("spread", 8),
    ("of plain", 8),
    ("of raw", 8),
    ("calls", 24),
];

/// A stretch of rounds is no shorter than this for each round that is asked for, so that short works get more rounds.
const ROUND: Duration = Duration::from_millis(130);
/// In fewer rounds chance decides which of two is faster.
const JUDGED: usize = 8;
/// So much slower than `beneath` may `raw` be: the same calls from another place in memory.
const MARGIN: f64 = 1.03;

/// The ways of doing a work on a ground, the plain way first; or why it cannot be done there.
pub type Ways = Result<Vec<Line>, String>;

/// A work: its title, and its ways.
pub type Work = (&'static str, fn(&Ground) -> Ways);

/// Measures each work at each place, as the arguments and variables ask, and ends with the verdict.
pub fn main(name: &'static str, places: fn() -> Vec<Place>, works: &[Work]) -> ExitCode {
    let stage = Stage::default();
    let victim = |_: &[String]| be_victim(|asked: &Asked| stage.play(works, asked));
    rig::main(name, COLUMNS, &[(VICTIM, &victim)], |rig| {
        let mut tracer = Tracer::start();
        if let Err(why) = &tracer {
            rig.note(format!("The calls were not compared: {why}"));
        }
        let mut reasons = BTreeSet::new();
        for place in places() {
            for (title, ways) in works {
                if !rig.wants(title) {
                    continue;
                }
                let rows = match place.ground(title).and_then(|ground| ways(&ground)) {
                    Ok(lines) => rows(title, &place, lines, tracer.as_mut().ok(), &mut reasons),
                    Err(why) => vec![Row::skipped(format!("{title}, {}", place.name), why)],
                };
                rig.add_all(rows);
                place.clear();
            }
        }
        reasons.into_iter().for_each(|reason| rig.note(reason));
    })
}

/// The rows of a work that is done now.
fn rows(
    title: &str,
    place: &Place,
    mut lines: Vec<Line>,
    tracer: Option<&mut Tracer>,
    reasons: &mut BTreeSet<String>,
) -> Vec<Row> {
    let times = take_turns(&mut lines);
    let quartiles: Vec<(f64, f64)> = times.iter().map(|times| quartiles(times)).collect();
    let find = |name: &str| lines.iter().position(|line| line.name == name);
    let (raw, ours) = (find(RAW), find(OURS));
    let compared = raw.and(ours).and(tracer).map(|tracer| calls::compare(tracer, title, place));
    let row = |(position, line): (usize, &Line)| {
        let (time, spread) = quartiles[position];
        let of = |other: usize| format!("{:.2}", time / quartiles[other].0);
        let mut row = Row {
            cells: vec![
                title.to_owned(),
                place.name.clone(),
                line.name.to_owned(),
                format!("{:.2}", time * 1e6),
                format!("{:.0} %", spread * 100.0),
                of(0),
                raw.map_or_else(String::new, of),
                String::new(),
            ],
            ..Row::default()
        };
        if let (Some(raw), true) = (raw, Some(position) == ours) {
            row.failures.extend(slower(&times[raw], &times[position]));
            if let Some(compared) = &compared {
                let judged = compared.judge(line.besides);
                row.cells[COLUMNS.len() - 1] = judged.shown;
                row.failures.extend(judged.failures);
                row.details = judged.details;
                reasons.extend(judged.reasons.into_iter().map(|reason| format!("{title}: {reason}")));
            }
        }
        row
    };
    lines.iter().enumerate().map(row).collect()
}

/// The times of each line, in seconds and in the order of the rounds.
fn take_turns(lines: &mut [Line]) -> Vec<Vec<f64>> {
    let rounds: usize = env::BENCH_ROUNDS.number().unwrap_or(15);
    let patience = ROUND * u32::try_from(rounds).expect("no bench has so many rounds");
    let mut times = vec![Vec::with_capacity(rounds); lines.len()];
    // The first warms up.
    for line in &mut *lines {
        line.run(Watch::Clock);
    }
    let start = Instant::now();
    for round in 0.. {
        if round >= rounds && start.elapsed() >= patience {
            break;
        }
        // Each is first, second and so on, and comes after this neighbour as often as after that one.
        for step in 0..lines.len() {
            let step = if round % 2 == 0 { step } else { lines.len() - 1 - step };
            let turn = (step + round) % lines.len();
            times[turn].push(lines[turn].run(Watch::Clock).as_secs_f64());
        }
    }
    times
}

/// The lower quartile, since on a shared machine the quieter rounds see less of the noise; and the range of the middle half
/// relative to it.
fn quartiles(times: &[f64]) -> (f64, f64) {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let lower = sorted[sorted.len() / 4];
    (lower, (sorted[sorted.len() * 3 / 4] - lower) / lower)
}

/// What is wrong if the bare syscalls take longer than what does them and more. Two of one round see the same noise.
pub fn slower(raw: &[f64], ours: &[f64]) -> Option<String> {
    let ratios: Vec<f64> = raw.iter().zip(ours).map(|(raw, ours)| raw / ours).collect();
    let (ratio, _) = quartiles(&ratios);
    (ratios.len() >= JUDGED && ratio > MARGIN).then(|| {
        format!("raw takes {ratio:.2} of beneath or more in three rounds of four, so raw does other work")
    })
}

/// What the rows of a place say of it: the file system, and the flags of the mount that matter.
pub fn described(path: &Path) -> String {
    use rustix::fs::StatVfsMountFlags as Flags;
    let set = rustix::fs::statvfs(path).map_or(Flags::empty(), |stat| stat.f_flag);
    let names = [(Flags::NODEV, "nodev"), (Flags::NOATIME, "noatime"), (Flags::SYNCHRONOUS, "sync")];
    let flags = names.into_iter().filter(|(flag, _)| set.contains(*flag)).map(|(_, name)| name);
    std::iter::once(&*rig::file_system(path)).chain(flags).collect::<Vec<_>>().join(" ")
}
