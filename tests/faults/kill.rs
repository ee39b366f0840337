//! The host dies at each call of a write: nothing, the old content or all of the new, never a part.

use crate::Row;
use crate::stage::{Play, Stage};
use beneath_kit::trace::judge::Leniency;
use beneath_kit::trace::lack::Lack;
use beneath_kit::trace::naive::CONTROLS;
use beneath_kit::trace::place::Places;
use beneath_kit::trace::scenario::Effect;
use beneath_kit::trace::{Act, in_parallel};

pub(crate) fn rows(places: &Places, chosen: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let mut plays = Play::all(|scenario| matches!(scenario.effect, Effect::Creates | Effect::Replaces));
    let tearing = |name: &str| name == "control: tear";
    plays.extend(CONTROLS.iter().filter(|control| tearing(control.name)).map(Play::control));
    plays.retain(|play| chosen(&play.title("kill")));
    in_parallel(plays, |play| play_all(Stage::new(play, places.any_dir())))
}

fn play_all(mut stage: Stage) -> Row {
    let play = stage.play.clone();
    let mut row = Row { title: play.title("kill"), control: play.control, ..Row::default() };
    let (stops, _) = stage.undisturbed();
    // A temporary name exists where the file system makes it necessary, and to replace what is there.
    let nameless =
        play.effect == Effect::Creates && ![Lack::UnnamedFiles, Lack::HardLinks].contains(&play.lack);
    let leniency = || Leniency { leftovers: !nameless, ..Leniency::default() };
    let mut leftovers = 0;
    for stop in &stops {
        let outcome =
            stage.round(&mut |now| if now.index == stop.index { Act::Kill } else { Act::Go }, &leniency);
        row.pairs += 1;
        leftovers += outcome.leftovers;
        if outcome.report.is_some() {
            row.violations.push(format!("call {} was not reached", stop.index));
        }
        if !outcome.violations.is_empty() {
            let (index, name) = (stop.index, stop.call.name());
            row.violations.push(format!("at call {index} {name}: {}", outcome.violations.join("; ")));
        }
    }
    row.note = format!("{leftovers} temporary names left");
    row
}
