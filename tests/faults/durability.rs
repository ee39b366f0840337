//! With full durability the content is on disk before its name, and the name before the answer.

use beneath_kit::rig::Count;
use beneath_kit::scene::stage::Stage;
use beneath_kit::trace::calls::Call;
use nix::libc;

/// The calls that fill a file, and which argument it is.
const WRITES: &[(libc::c_long, usize)] =
    &[(libc::SYS_write, 0), (libc::SYS_pwrite64, 0), (libc::SYS_writev, 0), (libc::SYS_copy_file_range, 2)];
const SYNCS: &[libc::c_long] = &[libc::SYS_fsync, libc::SYS_fdatasync];
const PUBLISHES: &[libc::c_long] =
    &[libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_mkdirat];

pub(crate) fn judge(stage: &mut Stage) -> Count {
    let scenario = stage.play.scenario;
    let mut count = Count { pairs: 1, ..Count::default() };
    let (calls, outcome) = stage.undisturbed(&|stop, _| (!stop.is_barrier()).then_some(stop.call));
    let calls: Vec<Call> = calls.into_iter().flatten().collect();
    count.succeeded = usize::from(outcome.verdict() == "ok");
    let writes = scenario.effect.writes();
    let directories = if scenario.effect.moves() { 2 } else { 1 };
    count.violations.extend(order(&calls, writes, directories).err());

    // Without it nothing is synced: the caller has not asked for the wait.
    stage.play.durable = false;
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
        let filled = |call: &Call| {
            let write = WRITES.iter().find(|(number, _)| call.is(*number));
            write.map(|(_, argument)| call.arguments[*argument])
        };
        let mut fills = calls.iter().enumerate().filter_map(|(at, call)| Some((at, filled(call)?)));
        let (written, file) = fills.next_back().ok_or("never written")?;
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
