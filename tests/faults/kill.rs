//! The host dies at each call of a write: nothing, the old content or all of the new, never a part.

use std::collections::BTreeSet;

use beneath_kit::operations::Effect;
use beneath_kit::rig::Count;
use beneath_kit::scene::judge::Leniency;
use beneath_kit::scene::stage::{PATIENCE, Stage};
use beneath_kit::trace::Act;

use crate::has_temporary_names;

/// How many rounds may end without the call that they were to end at.
const SHORTER: usize = 8;

/// Plays rounds until the host has died at every call of one round.
///
/// How often a source is looked at until it rests depends on the clock, so the calls differ from round to round. A round that is
/// over before its call shows that the call is not needed: then its own calls are those to die at.
pub(crate) fn play_all(stage: &mut Stage) -> Count {
    let play = stage.play;
    let mut count = Count::default();
    let (mut calls, _) = stage.undisturbed(&|stop, _| *stop);
    // A temporary name exists where the file system makes it necessary, and to replace what is there.
    let nameless = play.scenario.effect != Effect::Replaces && !has_temporary_names(play.lack);
    let (mut died_at, mut shorter, mut leftovers) = (BTreeSet::new(), 0, 0);
    while let Some(stop) = calls.iter().find(|stop| !died_at.contains(&stop.which())).copied() {
        let mut made = Vec::new();
        let outcome = stage.round(
            PATIENCE,
            &mut |now, states| {
                if now.index == 0 {
                    states.look();
                }
                made.push(*now);
                if now.which() == stop.which() { Act::Kill } else { Act::Go }
            },
            &|| Leniency { leftovers: !nameless, ..Leniency::default() },
        );
        if !outcome.violations.is_empty() {
            count.violations.push(format!("at {stop}: {}", outcome.violations.join("; ")));
        }
        if outcome.report.is_some() {
            shorter += 1;
            calls = made;
            if shorter > SHORTER {
                count.broken.push(format!("{stop} was not reached"));
                break;
            }
            continue;
        }
        died_at.insert(stop.which());
        count.pairs += 1;
        leftovers += outcome.leftovers;
    }
    count.note = format!("{leftovers} temporary names left");
    count
}
