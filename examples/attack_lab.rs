//! Watch a guest attack: first a host that checks a path and then uses it, then one that uses `beneath`.
//!
//! `cargo run --release --example attack_lab` takes about twenty seconds; a number after it sets the calls per attack.
//! The guest is a process of its own that does nothing but exchange, link, rename and chmod. The same rig, with more
//! detail, is `cargo test --test race`.
//!
//! Ends with a failure if anything escaped from `beneath`, or if the naive host was not caught at an attack: a rig that
//! catches nobody proves nothing.

#![allow(clippy::indexing_slicing)]

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use beneath_kit::race::{self, Bout, Contender, Tally, Volume};
use indicatif::{ProgressBar, ProgressStyle};

/// How the guest's random numbers begin.
const SEED: u64 = 0x9E37_79B9;
const CALLS: u64 = 24_000;

fn main() -> ExitCode {
    let bouts = race::bouts();
    if let Some(ended) = race::play_part(&bouts) {
        return ended;
    }
    match watch(&bouts) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every attack on both hosts. Says whether `beneath` held and the naive host did not.
fn watch(bouts: &[Bout]) -> io::Result<bool> {
    let calls = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(CALLS);
    let mut lines = Vec::new();
    let mut held = true;
    for bouts in bouts.chunk_by(|one, next| one.kind == next.kind) {
        let name = bouts[0].kind;
        if let Some(why) = bouts.iter().find_map(race::obstacle) {
            lines.push(format!("{name:<14} skipped: {why}"));
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
        let clean = safe.escapes == 0 && safe.wrong == 0;
        held &= clean && naive.escapes > 0;
        bar.finish_with_message(match (clean, naive.escapes) {
            (false, _) => "beneath FAILED".into(),
            (true, 0) => "the naive host was not caught: this attack proves nothing".into(),
            (true, caught) => format!("naive escaped {caught} times, beneath held"),
        });
        for story in &safe.stories {
            eprintln!("{name}: {story}");
        }
        lines.push(format!(
            "{name:<14} {:>9} {:>9} {:>8}    {:>9} {:>9} {:>8}",
            naive.calls, naive.refused, naive.escapes, safe.calls, safe.refused, safe.escapes
        ));
    }
    println!("\n               naive: check, then use           beneath");
    println!("attack             calls   refused  escapes        calls   refused  escapes");
    lines.iter().for_each(|line| println!("{line}"));
    println!("\n{}", if held { "nothing escaped from beneath" } else { "FAILED" });
    Ok(held)
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
    if let Ok(style) = ProgressStyle::with_template("{prefix:<14} [{bar:30}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
