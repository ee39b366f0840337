//! Watch a guest attack: first a host that checks a path and then uses it, then one that uses `beneath`.
//!
//! `cargo run --release --example attack_lab` takes about twenty seconds; a number after it sets the calls per attack.
//! The guest is a process of its own that does nothing but exchange, link, rename and chmod. The same rig, with more
//! detail, is `cargo test --test race`.
//!
//! Ends with status 1 if anything escaped from `beneath`, and with 2 if the naive host was not caught at some attack: without
//! an escape by the naive host, the attack did not work, and the zero of `beneath` proves nothing.

#![allow(clippy::indexing_slicing)]

mod out;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use beneath_kit::race::{self, Bout, Contender, Tally, Volume};
use indicatif::{ProgressBar, ProgressStyle};
use out::{is_closed_pipe, out};

/// Where the guest's random numbers begin.
const SEED: u64 = 1;
const CALLS: u64 = 24_000;
const LEGEND: &str = "\
naive    a host that checks a path with lstat and realpath, then uses the path
beneath  a host that uses this crate, with openat2 and with the walk
calls    how often the host read, wrote, renamed, listed or removed
refused  calls that ended with an error instead
escapes  calls that read, changed or removed something outside of the directory
skipped  attacks that cannot be made on this machine, and why";

fn main() -> ExitCode {
    let bouts = race::bouts();
    if let Some(ended) = race::play_part(&bouts) {
        return ended;
    }
    match watch(&bouts) {
        Ok(Verdict::Held) => ExitCode::SUCCESS,
        Ok(Verdict::Escaped) => ExitCode::FAILURE,
        Ok(Verdict::Void) => ExitCode::from(2),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What the attacks have shown, the worst last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Nothing escaped from `beneath`, and the naive host was caught at every attack.
    Held,
    /// The naive host was not caught at some attack.
    Void,
    Escaped,
}

/// Runs every attack on both hosts.
fn watch(bouts: &[Bout]) -> io::Result<Verdict> {
    let calls = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(CALLS);
    let mut lines = Vec::new();
    let mut verdict = Verdict::Held;
    for bouts in bouts.chunk_by(|one, next| one.kind == next.kind) {
        let name = bouts[0].kind;
        if let Some(why) = bouts.iter().find_map(race::obstacle) {
            lines.push(format!("{name:<14}  skipped: {why}"));
            continue;
        }
        let bar = progress_bar(name);
        let mut naive = Tally::default();
        let mut safe = Tally::default();
        for bout in bouts {
            naive.add(run(bout, Contender::Control, calls / 16, &bar)?);
            for contender in bout.contenders() {
                safe.add(run(bout, contender, calls / 2, &bar)?);
            }
        }
        let (shown, text) = match (safe.escapes + safe.wrong, naive.escapes) {
            (0, 0) => (Verdict::Void, "void: naive was not caught".into()),
            (0, caught) => (Verdict::Held, format!("naive: {caught} escapes, beneath: none")),
            _ => (Verdict::Escaped, "beneath FAILED".into()),
        };
        verdict = verdict.max(shown);
        bar.finish_with_message(text);
        for story in &safe.stories {
            eprintln!("{name}: {story}");
        }
        lines.push(format!(
            "{name:<14} {:>9} {:>9} {:>8}    {:>9} {:>9} {:>8}",
            naive.calls, naive.refused, naive.escapes, safe.calls, safe.refused, safe.escapes
        ));
    }
    out(format!("{LEGEND}\n\n"))?;
    out("                     --------- naive ---------     -------- beneath --------")?;
    out("attack             calls   refused  escapes        calls   refused  escapes")?;
    lines.iter().try_for_each(out)?;
    out(match verdict {
        Verdict::Held => "\nNothing escaped from beneath, and the naive host was caught at every attack.",
        Verdict::Void => "\nVoid: at some attack the naive host was not caught. Try more calls.",
        Verdict::Escaped => "\nFAILED: beneath escaped, or a call ended in a way that no attack explains.",
    })?;
    Ok(verdict)
}

fn run(bout: &Bout, contender: Contender, calls: u64, bar: &ProgressBar) -> io::Result<Tally> {
    let volume = Volume { calls: calls.div_ceil(bout.shares), patience: Duration::from_secs(5), share: 50 };
    bar.set_length(volume.calls);
    bar.set_message(format!("{} {}", contender.name(), bout.verb));
    race::race(bout, contender, volume, SEED, |tally| bar.set_position(tally.calls))
}

fn progress_bar(name: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(1).with_prefix(name);
    // The template is a constant; if it were wrong, the plain style would do.
    if let Ok(style) = ProgressStyle::with_template("{prefix:<14} [{bar:16}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
