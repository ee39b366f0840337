//! The host dies at each call of a write: nothing, the old content or all of the new, never a part.

use beneath_kit::naive::TEARING;
use beneath_kit::operations::Effect;
use beneath_kit::rig::{Rig, Row};
use beneath_kit::scene::judge::Leniency;
use beneath_kit::scene::place::Places;
use beneath_kit::scene::stage::{PATIENCE, Stage};
use beneath_kit::trace::Act;

use crate::{Count, has_temporary_names};

pub(crate) fn rows(rig: &Rig, places: &Places) -> Vec<Row> {
    crate::rows(
        rig,
        places,
        "kill",
        |scenario| match scenario.is_control() {
            true => scenario.name == TEARING,
            false => matches!(scenario.effect, Effect::Creates | Effect::Replaces),
        },
        play_all,
    )
}

fn play_all(stage: &mut Stage) -> Count {
    let play = stage.play;
    let mut count = Count::default();
    let (stops, _) = stage.undisturbed(&|stop, _| *stop);
    // A temporary name exists where the file system makes it necessary, and to replace what is there.
    let nameless = play.scenario.effect == Effect::Creates && !has_temporary_names(play.lack);
    let mut leftovers = 0;
    for stop in &stops {
        let outcome = stage.round(
            PATIENCE,
            &mut |now, states| {
                if now.index == 0 {
                    states.look();
                }
                if now.index == stop.index { Act::Kill } else { Act::Go }
            },
            &|| Leniency { leftovers: !nameless, ..Leniency::default() },
        );
        count.pairs += 1;
        leftovers += outcome.leftovers;
        if outcome.report.is_some() {
            count.violations.push(format!("call {} was not reached", stop.index));
        }
        if !outcome.violations.is_empty() {
            let (index, name) = (stop.index, stop.call.name());
            count.violations.push(format!("at call {index} {name}: {}", outcome.violations.join("; ")));
        }
    }
    count.note = format!("{leftovers} temporary names left");
    count
}
