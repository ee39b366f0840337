//! Every call of every primitive fails once in every way; the host is killed at each; disks and tables are full.
//!
//! Whatever happens, a primitive answers with a typed error or a correct success. It does not panic, leak a
//! descriptor, leave a name behind, tear a file or change its resolver. Controls that do must be caught, or the run
//! is void.
//!
//! `cargo test --test faults -- kill` runs the parts whose title contains `kill`.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod durability;
mod exhaustion;
mod kill;
mod matrix;
mod stage;
use std::process::ExitCode;
use std::time::Instant;

use beneath_kit::trace::Tracer;
use beneath_kit::trace::place::Places;
use beneath_kit::trace::scenario;

/// One row of the table.
#[derive(Debug, Default)]
struct Row {
    title: String,
    /// How many faults were tried.
    pairs: usize,
    /// How many of them ended in success all the same.
    succeeded: usize,
    violations: Vec<String>,
    note: String,
    /// A control is good if it has violations.
    control: bool,
}

impl Row {
    fn failed(&self) -> bool {
        self.violations.is_empty() == self.control
    }

    fn skipped(title: &str, reason: &str) -> Self {
        Self { title: title.to_owned(), note: format!("skipped: {reason}"), ..Self::default() }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(beneath_kit::trace::VICTIM) => {
            std::panic::set_hook(Box::new(|_| {}));
            beneath_kit::trace::serve(scenario::answer);
            return ExitCode::SUCCESS;
        }
        Some(exhaustion::CHILD) => return exhaustion::child(&arguments[1..]),
        _ => {}
    }
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen =
        |title: &str| filters.is_empty() || filters.iter().any(|filter| title.contains(filter.as_str()));
    let start = Instant::now();
    // First, while there is one thread: it may enter a mount namespace of its own.
    let places = Places::find();
    let mut rows = exhaustion::rows(&places, &chosen);
    match Tracer::start() {
        Err(reason) => println!("faults: tracing skipped: {reason}"),
        Ok(_) => {
            rows.extend(matrix::rows(&places, &chosen));
            rows.extend(kill::rows(&places, &chosen));
            rows.extend(durability::rows(&places, &chosen));
        }
    }
    println!("{:56} {:>7} {:>7} {:>10}  note", "part", "pairs", "ok", "violations");
    for row in &rows {
        println!(
            "{:56} {:>7} {:>7} {:>10}  {}",
            row.title,
            row.pairs,
            row.succeeded,
            row.violations.len(),
            row.note
        );
    }
    for row in rows.iter().filter(|row| row.failed()) {
        if row.control {
            println!("FAILED {}: was not caught", row.title);
        }
        for violation in row.violations.iter().take(12) {
            println!("FAILED {}: {violation}", row.title);
        }
    }
    let pairs: usize = rows.iter().map(|row| row.pairs).sum();
    println!("{pairs} faults in {:.1} s", start.elapsed().as_secs_f64());
    let failed = rows.iter().filter(|row| row.failed()).count();
    println!("{} passed, {failed} failed", rows.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
