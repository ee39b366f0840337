//! A guest that replaces a file as fast as it can while the host merges.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use beneath::tree::{Guard, MergeOptions, Tree, TreeLimits};

use crate::support::*;

const ROUNDS: usize = 300;

/// Writes version after version, each under the name in one step, and returns how many.
fn guest(ours: &Path, stop: &AtomicBool) -> usize {
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        let next = ours.join(".next");
        fs::write(&next, format!("guest {written}")).unwrap();
        if fs::rename(&next, ours.join("a")).is_ok() {
            written += 1;
        }
    }
    written
}

/// Every version of the guest that had its name while the host changed something: what came out must be found again.
fn all_words(yard: &Yard) -> BTreeSet<String> {
    yard.words("ours").into_values().chain(yard.words("trash").into_values()).collect()
}

/// What became of the guest's versions.
#[derive(Default)]
struct Tally {
    /// Nowhere any more, though the guest did not replace them.
    lost: usize,
    /// Displaced by the host, or refused to it.
    met: usize,
}

fn yard() -> Yard {
    Yard::new(&words(&[("a", "file:0")]), &words(&[("a", "file:0")]), &words(&[("a", "file:theirs")]))
}

/// Lets one version of the guest come at a moment of the host's call, at all moments in turn, until `enough`.
fn play(host: impl Fn(&Yard), enough: impl Fn(&Tally) -> bool) -> Tally {
    let mut tally = Tally::default();
    for round in 0..ROUNDS * 20 {
        if round >= ROUNDS && enough(&tally) {
            break;
        }
        let quiet = yard();
        let start = Instant::now();
        host(&quiet);
        let delay = start.elapsed().mul_f64((round % ROUNDS) as f64 / ROUNDS as f64);
        let (yard, begun) = (yard(), Barrier::new(2));
        std::thread::scope(|scope| {
            let ours = yard.path("ours");
            let begun = &begun;
            let writer = scope.spawn(move || {
                fs::write(ours.join(".next"), "guest").unwrap();
                begun.wait();
                let start = Instant::now();
                while start.elapsed() < delay {
                    std::hint::spin_loop();
                }
                fs::rename(ours.join(".next"), ours.join("a")).unwrap();
            });
            begun.wait();
            host(&yard);
            writer.join().unwrap();
        });
        let (ours, words) = (yard.words("ours"), all_words(&yard));
        tally.lost += usize::from(!words.contains("file:guest"));
        tally.met += usize::from(ours.len() > 1 && words.contains("file:guest"));
    }
    tally
}

#[test]
fn a_version_that_comes_meanwhile_is_never_lost() {
    let tally = play(|yard| drop(yard.try_merge().unwrap()), |tally| tally.met > 0);
    assert_eq!(tally.lost, 0);
    assert!(tally.met > 0, "no version came during the call");
}

/// As those do it who look first and then replace.
#[test]
fn a_check_before_the_rename_loses_versions() {
    let check_then_rename = |yard: &Yard| {
        let ours = Tree::take(&yard.root("ours"), TreeLimits::default()).unwrap();
        let staged = yard.path("work").join("staged");
        fs::copy(yard.path("theirs").join("a"), &staged).unwrap();
        let seen = ours.iter().find(|(path, _)| path.as_bytes() == b"a");
        if seen == yard.base.iter().next() {
            fs::rename(staged, yard.path("ours").join("a")).unwrap();
        }
    };
    assert!(play(check_then_rename, |tally| tally.lost > 0).lost > 0, "the control was not caught");
}

#[test]
fn a_guest_that_never_rests_loses_nothing_that_the_host_displaced() {
    let mut yard = yard();
    yard.options = MergeOptions::default().with_guard(Guard::Off);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ours, stop) = (yard.path("ours"), &stop);
        let writer = scope.spawn(move || guest(&ours, stop));
        for round in 0..200 {
            fs::write(yard.path("theirs").join("a"), format!("theirs {round}")).unwrap();
            let merged = yard.merge();
            // Whatever was displaced without having been seen has a name beside.
            for conflict in merged.conflicts.iter().filter_map(|conflict| conflict.beside.as_ref()) {
                assert!(yard.path("ours").join(conflict).exists(), "{conflict}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
    });
}
