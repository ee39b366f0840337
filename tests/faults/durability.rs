//! With full durability the content is on disk before its name, and the name before the answer.

use beneath::Durability;
use beneath_kit::operations::Effect;
use beneath_kit::rig::{Rig, Row};
use beneath_kit::scene::place::Places;
use beneath_kit::scene::stage::Stage;
use beneath_kit::trace::calls::Call;
use nix::libc;

use crate::Count;

const WRITES: &[libc::c_long] = &[libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev];
const SYNCS: &[libc::c_long] = &[libc::SYS_fsync, libc::SYS_fdatasync];
const PUBLISHES: &[libc::c_long] =
    &[libc::SYS_linkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_mkdirat];

pub(crate) fn rows(rig: &Rig, places: &Places) -> Vec<Row> {
    crate::rows(
        rig,
        places,
        "durability",
        |scenario| {
            let named = matches!(
                scenario.effect,
                Effect::Creates
                    | Effect::Replaces
                    | Effect::MovesAway
                    | Effect::MovesHere
                    | Effect::MakesDirectories
            );
            named && !scenario.is_control()
        },
        judge,
    )
}

fn judge(stage: &mut Stage) -> Count {
    let scenario = stage.play.scenario;
    let mut count = Count { pairs: 1, ..Count::default() };
    let (calls, outcome) = stage.undisturbed(&|stop, _| stop.call);
    count.succeeded = usize::from(outcome.verdict() == "ok");
    let writes = matches!(scenario.effect, Effect::Creates | Effect::Replaces);
    let directories = if scenario.moves().is_some() { 2 } else { 1 };
    count.violations.extend(order(&calls, writes, directories).err());

    // Without it nothing is synced: the caller has not asked for the wait.
    stage.play.durability = Durability::None;
    let (calls, _) = stage.undisturbed(&|stop, _| stop.call);
    if calls.iter().any(|call| call.is_any(SYNCS)) {
        count.violations.push("syncs without being asked to".into());
    }
    let note = if writes { "write, sync file, publish, sync directory" } else { "publish, sync directories" };
    count.note = note.into();
    count
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
