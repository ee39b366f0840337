//! Two hosts, one store that misbehaves, guests that edit, and crashes: whatever happens, no version is lost.
//!
//! The code is the real one, on real directories; the store is scripted. What happens (the workload) and what goes wrong (the
//! schedule) are drawn from two tapes of one seed, so that a history can be repeated with the same edits and other faults.
//! The oracle is survival, not agreement: every version that a guest has written is in a workspace, in the store or in a
//! trash, unless a guest has overwritten or deleted it where it saw it, or an accident has destroyed its only copy.
//!
//! `BENEATH_SEED` repeats a run, `BENEATH_HISTORIES` says how many histories it has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod naive;
mod store;
mod world;

use std::time::Instant;

use beneath_kit::{env, rig::seed};
use world::{Rules, World};

/// Steps of one history.
const STEPS: u32 = 40;

/// Plays one history; what it had to say, or what was lost.
fn history(seed: u64, rules: Rules) -> Result<world::Tally, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed, rules);
        world.begin().await;
        for step in 0..STEPS {
            world.step(step).await.map_err(|what| format!("seed {seed}, {what}\n{}", world.told()))?;
        }
        world.settle().await.map_err(|what| format!("seed {seed}, at the end: {what}\n{}", world.told()))?;
        Ok(world.tally())
    })
}

#[test]
fn no_version_is_lost_and_complete_means_equal() {
    let count = env::HISTORIES.number().unwrap_or(60);
    let (first, start) = (seed::of_properties() & 0xffff_ffff, Instant::now());
    let mut total = world::Tally::default();
    for seed in (first..).take(count) {
        total.add(history(seed, Rules::Beneath).unwrap_or_else(|what| panic!("{what}")));
    }
    println!("{count} histories in {:?}: {total:?}", start.elapsed());
    // A run in which nothing happens shows nothing.
    let count = count as u64;
    assert!(total.faults > count && total.crashes > count / 8, "{total:?}");
    assert!(total.conflicts > count / 4 && total.complete > count && total.deleted > count / 4, "{total:?}");
}

/// The order of those who list, copy what differs over what is there, and delete what the other side lacks.
#[test]
fn copying_over_is_caught_by_the_same_oracle() {
    let lost = (1..=40).filter(|seed| history(*seed, Rules::CopyOver).is_err()).count();
    println!("copying over: caught in {lost} of 40 histories");
    assert!(lost >= 30, "the control must be caught: {lost} of 40");
}
