//! The host dies at each call of a write: nothing, the old content or all of the new, never a part.

use beneath_kit::operations::Effect;
use beneath_kit::rig::Count;
use beneath_kit::scene::judge::Leniency;
use beneath_kit::scene::stage::{PATIENCE, Stage};
use beneath_kit::trace::Act;

use crate::has_temporary_names;

/// How often a round is played again that has ended before its call.
const AGAIN: usize = 8;

pub(crate) fn play_all(stage: &mut Stage) -> Count {
    let play = stage.play;
    let mut count = Count::default();
    let (stops, _) = stage.undisturbed(&|stop, _| *stop);
    // A temporary name exists where the file system makes it necessary, and to replace what is there.
    let nameless = play.scenario.effect != Effect::Replaces && !has_temporary_names(play.lack);
    let mut leftovers = 0;
    for stop in &stops {
        let mut round = || {
            stage.round(
                PATIENCE,
                &mut |now, states| {
                    if now.index == 0 {
                        states.look();
                    }
                    if now.index == stop.index { Act::Kill } else { Act::Go }
                },
                &|| Leniency { leftovers: !nameless, ..Leniency::default() },
            )
        };
        let mut outcome = round();
        // How often a source is looked at until it rests depends on the clock, so a round may be shorter than the first.
        for _ in 0..AGAIN {
            if outcome.report.is_none() || !outcome.violations.is_empty() {
                break;
            }
            outcome = round();
        }
        count.pairs += 1;
        leftovers += outcome.leftovers;
        if outcome.report.is_some() {
            count.broken.push(format!("call {} was not reached", stop.index));
        }
        if !outcome.violations.is_empty() {
            let (index, name) = (stop.index, stop.call.name());
            count.violations.push(format!("at call {index} {name}: {}", outcome.violations.join("; ")));
        }
    }
    count.note = format!("{leftovers} temporary names left");
    count
}
