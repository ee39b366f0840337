//! What the simulation has found in the product, each as the history that failed.

use crate::history::{
    Act, Call, Calls, Compares, Content, Edit, End, History, Saved, Step, Versions, Which, call,
};
use crate::machine::Machine;
use crate::world::{Rules, play};

fn write(host: usize, path: &'static [u8], number: u64) -> Act {
    let content = Content::Own(number);
    Act::Edit { host, edits: vec![Edit::Write { path, content, saved: Saved::InPlace }] }
}

fn alone(call: Call) -> Act {
    Act::Calls(Calls { calls: vec![call], meanwhile: Vec::new(), rough: false, stale: false })
}

/// Plays the acts, and lets the hosts come to rest.
fn passes(acts: Vec<Act>) {
    passes_with(0, acts);
}

/// The same with the faults of `seed`.
fn passes_with(seed: u64, acts: Vec<Act>) {
    passes_on(Compares::InOneStep, seed, acts);
}

/// The same on another kind of store.
fn passes_on(compares: Compares, seed: u64, acts: Vec<Act>) {
    let steps = acts.into_iter().enumerate().map(|(n, act)| Step { number: n as u64, act }).collect();
    let versions = Versions::Content;
    let history = History { seed, versions, compares, steps, settles: true };
    let outcome = play(&mut Machine::default(), &history, Rules::Product, true);
    if beneath_kit::env::VERBOSE.is_set() {
        println!("{history}\n{}", outcome.told.join("\n"));
    }
    assert!(outcome.wrong.is_empty(), "{history}\n{}", outcome.told.join("\n"));
}

/// The host took the second version that it had put for a file of its own, which somebody had deleted.
#[test]
fn second_version_in_the_store_outlives_the_host_that_put_it() {
    for point in 1..=16 {
        for end in [End::Dropped, End::Died] {
            let cut = Call { ends: Some((point, end)), ..call(0, Which::Mirror) };
            let acts = vec![
                write(1, b"t/b/c", 1),
                alone(call(1, Which::Mirror)),
                write(0, b"t", 2),
                write(0, b"d/b", 3),
                alone(cut),
                alone(call(0, Which::Mirror)),
            ];
            passes(acts);
        }
    }
}

/// What a pull that was cut off had fetched was taken for the object, since an old listing still showed that version.
#[test]
fn what_was_fetched_before_a_mirror_does_not_replace_what_it_put() {
    for point in 1..=16 {
        let cut = Call { ends: Some((point, End::Died)), ..call(1, Which::Restore) };
        let stale =
            Calls { calls: vec![call(1, Which::Sync)], meanwhile: Vec::new(), rough: false, stale: true };
        let acts = vec![
            write(0, b"a", 1),
            write(0, b"d/b", 2),
            alone(call(0, Which::Mirror)),
            alone(call(1, Which::Restore)),
            alone(cut),
            write(1, b"a", 3),
            Act::Edit { host: 1, edits: vec![Edit::Delete(b"d/b")] },
            alone(call(1, Which::Mirror)),
            Act::Calls(stale),
        ];
        passes(acts);
    }
}

/// A directory was moved to where another host had put a file that could not be read. Its content was not sent, and was deleted.
#[test]
fn what_has_moved_to_where_nothing_can_be_put_stays_in_the_store() {
    for seed in 0..60 {
        let rough =
            Calls { calls: vec![call(0, Which::Mirror)], meanwhile: Vec::new(), rough: true, stale: false };
        let acts = vec![
            write(0, b"t/b/c", 1),
            write(1, b"t-1", 2),
            alone(call(0, Which::Sync)),
            alone(call(1, Which::Mirror)),
            Act::Edit { host: 0, edits: vec![Edit::RenameTree(b"t", b"t-1")] },
            Act::Calls(rough),
        ];
        passes_with(seed, acts);
    }
}

/// A listing that never comes kept the trial of what the store can do waiting for ever.
#[test]
fn trial_of_a_store_that_is_silent_ends() {
    for seed in 0..150 {
        let rough =
            Calls { calls: vec![call(0, Which::Sync)], meanwhile: Vec::new(), rough: true, stale: false };
        let link = Act::Edit { host: 0, edits: vec![Edit::Link(b"a", b"nowhere")] };
        passes_on(Compares::Ignored, seed, vec![link, Act::Calls(rough)]);
    }
}

/// The store had a file and the marker of a directory at one path. The file was refused, and yet the directory took its place.
#[test]
fn file_that_is_also_a_directory_in_the_store_stays_here() {
    let stale = Calls { calls: vec![call(0, Which::Sync)], meanwhile: Vec::new(), rough: false, stale: true };
    let acts = vec![
        write(1, b"a", 1),
        alone(call(1, Which::Mirror)),
        alone(call(1, Which::Plan)),
        Act::Edit { host: 1, edits: vec![Edit::Directory(b"t-1")] },
        alone(call(1, Which::Mirror)),
        write(0, b"t-1", 2),
        Act::Calls(stale),
        alone(call(0, Which::Sync)),
    ];
    passes(acts);
}

/// A file that also got the bit to execute was not known to be the one that had moved.
#[test]
fn what_has_moved_and_can_be_executed_stays_in_the_store_until_it_is_sent() {
    for seed in 0..60 {
        let rough =
            Calls { calls: vec![call(1, Which::Sync)], meanwhile: Vec::new(), rough: true, stale: false };
        let acts = vec![
            write(0, b"A", 1),
            write(0, b"a", 2),
            write(0, b"d/b", 3),
            alone(call(0, Which::Mirror)),
            alone(call(1, Which::Restore)),
            Act::Edit { host: 1, edits: vec![Edit::Execute(b"A"), Edit::Rename(b"A", b"t-1")] },
            Act::Calls(rough),
        ];
        passes_with(seed, acts);
    }
}

/// An old listing had a directory where the store has a file by now: the file was removed here, and nobody had asked for it.
#[test]
fn file_is_asked_for_also_where_a_directory_is_listed() {
    let stale = Calls { calls: vec![call(1, Which::Sync)], meanwhile: Vec::new(), rough: false, stale: true };
    let acts = vec![
        write(0, b"t/a", 1),
        alone(call(0, Which::Mirror)),
        alone(call(1, Which::Restore)),
        Act::Edit { host: 1, edits: vec![Edit::RemoveTree(b"t")] },
        write(1, b"t", 2),
        alone(call(1, Which::Sync)),
        Act::Calls(stale),
    ];
    passes(acts);
}

/// The same with an empty directory, which is listed by itself.
#[test]
fn file_is_asked_for_also_where_the_marker_of_a_directory_is_listed() {
    let stale = Calls { calls: vec![call(1, Which::Pull)], meanwhile: Vec::new(), rough: false, stale: true };
    let acts = vec![
        Act::Edit { host: 0, edits: vec![Edit::Directory(b"t")] },
        alone(call(0, Which::Mirror)),
        Act::Edit { host: 0, edits: vec![Edit::RemoveTree(b"t")] },
        write(0, b"t", 1),
        alone(call(0, Which::Sync)),
        alone(call(1, Which::Sync)),
        Act::Calls(stale),
    ];
    passes(acts);
}
