//! With full durability the content is on disk before its name, and the name before the answer.

use beneath::Durability;
use nix::libc;

use crate::Row;
use crate::stage::{Play, Stage};
use beneath_kit::trace::calls::Call;
use beneath_kit::trace::in_parallel;
use beneath_kit::trace::place::Places;
use beneath_kit::trace::scenario::Effect;

const WRITES: &[libc::c_long] = &[libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev];
const SYNCS: &[libc::c_long] = &[libc::SYS_fsync, libc::SYS_fdatasync];
const PUBLISHES: &[libc::c_long] =
    &[libc::SYS_linkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_mkdirat];

pub(crate) fn rows(places: &Places, chosen: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let mut plays = Play::all(|scenario| {
        matches!(
            scenario.effect,
            Effect::Creates | Effect::Replaces | Effect::Moves(..) | Effect::MakesDirectories
        )
    });
    plays.retain(|play| chosen(&play.title("durability")));
    in_parallel(plays, |play| judge(Stage::new(play, places.any_dir())))
}

fn judge(mut stage: Stage) -> Row {
    let play = stage.play.clone();
    let mut row = Row { title: play.title("durability"), pairs: 1, ..Row::default() };
    let (stops, outcome) = stage.undisturbed();
    row.succeeded = usize::from(outcome.report.is_some_and(|report| report.verdict() == "ok"));
    let calls: Vec<Call> = stops.iter().map(|stop| stop.call).collect();
    let writes = matches!(play.effect, Effect::Creates | Effect::Replaces);
    let directories = if matches!(play.effect, Effect::Moves(..)) { 2 } else { 1 };
    row.violations.extend(order(&calls, writes, directories).err());

    // Without it nothing is synced: the caller has not asked for the wait.
    stage.play.durability = Durability::None;
    let (stops, _) = stage.undisturbed();
    if stops.iter().any(|stop| stop.call.is_any(SYNCS)) {
        row.violations.push("syncs without being asked to".into());
    }
    row.note = "write, sync file, publish, sync directory".into();
    if !writes {
        row.note = "publish, sync directories".into();
    }
    row
}

fn order(calls: &[Call], writes: bool, directories: usize) -> Result<(), String> {
    let last = |numbers: &[libc::c_long]| calls.iter().rposition(|call| call.is_any(numbers));
    let published = last(PUBLISHES).ok_or("never published")?;
    if writes {
        let written = last(WRITES).ok_or("never written")?;
        let file = calls[written].arguments[0];
        let first = calls.iter().position(|call| call.is_any(PUBLISHES)).ok_or("never published")?;
        let synced = calls
            .iter()
            .position(|call| call.is_any(SYNCS) && call.arguments[0] == file)
            .ok_or("the file is never synced")?;
        if !(written < synced && synced < first) {
            return Err(format!("written at {written}, synced at {synced}, published at {first}"));
        }
    }
    let after = calls.iter().skip(published).filter(|call| call.is_any(SYNCS)).count();
    if after < directories {
        return Err(format!("{after} of {directories} directories synced after the name appeared"));
    }
    Ok(())
}
