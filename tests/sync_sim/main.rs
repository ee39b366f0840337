//! Two hosts, one store that misbehaves, guests that edit, and crashes: whatever happens, no version is lost.
//!
//! The code is the real one, on real directories; the store, the clock and the order in which calls go on are scripted. What
//! happens (the workload) is decided first; what goes wrong in a step (the schedule) is drawn from a tape of that step. So a
//! history that fails shrinks: steps and faults are left out while it still fails, and the smallest one is printed.
//!
//! | file | job |
//! |---|---|
//! | `history` | what happens |
//! | `world`, `report` | plays it, and asks after each step |
//! | `rest` | what is asked when all faults have healed |
//! | `machine` | polls the calls, drops them, lets them die |
//! | `store`, `stage` | the store and its faults |
//! | `books` | the oracle: which loss is somebody's decision |
//! | `disk`, `base` | workspaces and the host's base, from outside |
//! | `found` | what was found in the product |
//! | `naive`, `without` | the controls: one engine, one rule left out |
//! | `shrink` | the smallest history that fails |
//!
//! `BENEATH_SEED` repeats a run, `BENEATH_HISTORIES` says how many histories it has, `BENEATH_HISTORIES_TWICE` how many of them are
//! played twice and compared, and `BENEATH_SIM_THREADS` how many are played at a time.
//!
//! What it does not show: a host that dies within one piece of file work (`session_kill` and the kills in `artifacts` do), power cuts, and
//! large objects in parts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod base;
mod books;
mod disk;
mod found;
mod history;
mod machine;
mod naive;
mod report;
mod rest;
mod shrink;
mod stage;
mod store;
mod tally;
mod tape;
mod without;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use beneath_kit::env;
use beneath_kit::rig::{Table, in_parallel, seed};
use history::History;
use machine::Machine;
use tally::Tally;
use without::Without;
use world::{Outcome, Rules, play};

#[test]
fn no_version_is_lost_and_complete_means_equal() {
    let count: u64 = env::HISTORIES.number().unwrap_or(300);
    let first = seed::of_properties() & 0xffff_ffff;
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let total = Mutex::new(Tally::default());
    let start = Instant::now();
    let failure = Mutex::new(None);
    let again = env::HISTORIES_TWICE.number().unwrap_or(count.min(60));
    let threads: usize = env::SIM_THREADS.number().unwrap_or(1);
    in_parallel((0..threads).collect(), |_| {
        let mut machine = Machine::default();
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= count || stop.load(Ordering::SeqCst) {
                return;
            }
            let history = History::of(first + number);
            let (outcome, problem) = examine(&mut machine, &history, number < again);
            if let Some(problem) = problem {
                stop.store(true, Ordering::SeqCst);
                let told = explain(&mut machine, history, number < again);
                *failure.lock().unwrap() = Some(format!("{problem}\n{told}"));
            }
            total.lock().unwrap().add(&outcome.tally);
            if number % 10_000 == 9_999 {
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "{} histories in {seconds:.0} s, {:.0} a second",
                    number + 1,
                    number as f64 / seconds
                );
            }
        }
    });
    if let Some(failure) = failure.into_inner().unwrap() {
        panic!("{failure}");
    }
    let seconds = start.elapsed().as_secs_f64();
    let result = format!("{count} histories in {seconds:.1} s, {:.0} a second", count as f64 / seconds);
    let total = total.into_inner().unwrap();
    println!("{result}\n{:?}", total.numbers());
    // A run in which nothing happens shows nothing.
    let Tally { complete, conflicts, faults, dropped, died, .. } = total;
    assert!(complete > count && conflicts > count / 2 && faults > count, "{total:?}");
    assert!(dropped > count / 8 && died > count / 16 && total.settled > count / 8, "{total:?}");
    if env::HISTORIES.is_set() {
        write_evidence(first, again.min(count), &total, &result);
    }
}

/// Writes the table of a long run, with what becomes of the controls.
fn write_evidence(seed: u64, again: u64, total: &Tally, result: &str) {
    let mut table = Table::new("sync_sim", &["what", "how many"]);
    table.row(&["histories played twice, and equal line by line".into(), again.to_string()]);
    for (what, number) in total.numbers() {
        table.row(&[what.into(), number.to_string()]);
    }
    table.row(&["violations".into(), "0".into()]);
    for (without, caught) in controls() {
        let what = format!("{} without {without:?}: caught in history", without.finding());
        table.row(&[what, caught.map_or("never".into(), |number| number.to_string())]);
    }
    match table.write(&beneath_kit::arena::ground(), seed, result) {
        Ok(Some(path)) => println!("evidence: {}", path.display()),
        other => println!("no evidence written: {other:?}"),
    }
}

/// Where two runs of one history part.
fn difference(one: &[String], two: &[String]) -> Option<String> {
    let position = (0..one.len().max(two.len())).find(|at| one.get(*at) != two.get(*at))?;
    let show = |told: &[String]| told.get(position).cloned().unwrap_or_default();
    Some(format!("two runs differ in line {position}:\n{}\n{}", show(one), show(two)))
}

/// What is wrong with a history, or with two runs of it.
fn examine(machine: &mut Machine, history: &History, twice: bool) -> (Outcome, Option<String>) {
    let outcome = play(machine, history, Rules::Product, twice);
    let mut problem = (!outcome.wrong.is_empty()).then(|| outcome.wrong.join("\n"));
    if twice && problem.is_none() {
        let second = play(machine, history, Rules::Product, true);
        problem = difference(&outcome.told, &second.told);
    }
    (outcome, problem)
}

/// The smallest history that still goes wrong, and how.
fn explain(machine: &mut Machine, history: History, twice: bool) -> String {
    let seed = history.seed;
    let small = shrink::shrink(history, |less| examine(machine, less, twice).1.is_some());
    let outcome = play(machine, &small, Rules::Product, true);
    format!("BENEATH_SEED={seed} fails; the smallest form of it:\n{small}\n{}", outcome.told.join("\n"))
}

/// How many histories are tried until a rule that is left out is noticed.
const TRIED: u64 = 2000;

/// The number of the history in which it is noticed that a rule is left out.
fn notice(without: Without) -> Option<u64> {
    let mut machine = Machine::default();
    let rules = Rules::Naive(Some(without));
    (1..=TRIED).find(|seed| !play(&mut machine, &History::of(*seed), rules, false).wrong.is_empty())
}

fn controls() -> Vec<(Without, Option<u64>)> {
    in_parallel(Without::ALL.to_vec(), |without| (without, notice(without)))
}

/// The engine of the test's own loses nothing either, and so what it loses without a rule shows that the oracle sees it.
#[test]
fn engine_passes_with_all_rules_and_is_caught_without_any_one() {
    let mut machine = Machine::default();
    let rules = Rules::Naive(None);
    let mut total = Tally::default();
    for seed in 1..=200 {
        let history = History::of(seed);
        let outcome = play(&mut machine, &history, rules, false);
        if !outcome.wrong.is_empty() {
            let small =
                shrink::shrink(history, |less| !play(&mut machine, less, rules, false).wrong.is_empty());
            let outcome = play(&mut machine, &small, rules, true);
            panic!("with all rules seed {seed} fails:\n{small}\n{}", outcome.told.join("\n"));
        }
        total.add(&outcome.tally);
    }
    println!("{:?}", total.numbers());
    for (without, caught) in controls() {
        println!("{:4} without {without:?}: caught in history {caught:?}", without.finding());
        assert!(caught.is_some(), "nobody notices that {without:?} is left out");
    }
}
