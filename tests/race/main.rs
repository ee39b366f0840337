//! Every operation against a guest that changes the tree meanwhile, beside a control that must be caught.
//!
//! `BENEATH_RACE_OPS=1000000` sets the calls per kind and resolver, shared among the kind's operations;
//! `BENEATH_RACE_KIND=link` runs only the kinds whose name contains the text; `BENEATH_RACE_DIR` chooses where.
//!
//! A row fails on an escape, on an outcome the attack cannot explain, on a control that was not caught, and when the
//! race did not take place: fewer than a tenth of the calls succeeded or fewer than a tenth were refused.

#![allow(clippy::indexing_slicing)]

mod attacks;
mod canary;
mod controls;
mod plan;
mod rig;
#[cfg(feature = "session")]
mod session;
mod stage;
mod table;
mod victims;

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use beneath::Resolver;
use plan::{Contender, Scenario};
use rig::Volume;
use table::Row;

/// Calls per kind and resolver when nothing else is asked for.
const QUICK: u64 = 8_000;
/// The same for sessions, whose calls are several operations each.
const QUICK_SESSION: u64 = 2_000;

fn main() -> ExitCode {
    if let Some(played) = rig::play_part() {
        return match played {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the rig broke: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<usize> {
    let wanted = std::env::var("BENEATH_RACE_KIND").unwrap_or_default();
    let asked = std::env::var("BENEATH_RACE_OPS").ok().and_then(|text| text.parse().ok());
    let scenarios: Vec<Scenario> =
        Scenario::all().filter(|scenario| scenario.name.contains(&wanted)).collect();
    let start = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    println!("{}", Row::HEADER);
    for &scenario in &scenarios {
        if let Some(why) = rig::obstacle(scenario) {
            println!("{:<17} {:<11} skipped: {why}", scenario.name, scenario.verb());
            continue;
        }
        for row in rows(scenario, asked)? {
            println!("{}", row.line());
            match row.faults().is_empty() {
                true => passed += 1,
                false => failed += 1,
            }
        }
    }
    print!("\n{}", table::notes(&scenarios));
    println!("\n{passed} passed, {failed} failed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(failed)
}

/// The control runs once, and stands beside both resolvers.
fn rows(scenario: Scenario, asked: Option<u64>) -> io::Result<Vec<Row>> {
    let quick = if scenario.name.starts_with("session-") { QUICK_SESSION } else { QUICK };
    let calls = asked.unwrap_or(quick).div_ceil(scenario.shares);
    let victim = Volume { calls, patience: Duration::from_secs(5) };
    // A naive call takes several times as long, and a tenth of the volume tells its rate well enough.
    let naive = match asked {
        Some(_) => Volume { calls: calls.div_ceil(10), ..victim },
        None => Volume { calls: 1, ..victim },
    };
    let demanded = if asked.is_some() { 100 } else { 0 };
    let control = rig::race(scenario, Contender::Control, naive, |_| {})?;
    let mut rows = Vec::new();
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let contender = Contender::Beneath(resolver);
        let missing = resolver == Resolver::Openat2 && !rig::has_openat2();
        if missing || scenario.excludes(contender).is_some() {
            continue;
        }
        let tally = rig::race(scenario, contender, victim, |_| {})?;
        rows.push(Row { scenario, contender, tally, control: control.clone(), demanded });
    }
    Ok(rows)
}
