//! Each call fails once with each errno, or does only part of what it was asked.

use std::cell::{Cell, RefCell};

use beneath_kit::Contender;
use beneath_kit::env;
use beneath_kit::rig::{Count, Dice};
use beneath_kit::scene::judge::Leniency;
use beneath_kit::scene::report::Report;
use beneath_kit::scene::stage::{Outcome, PATIENCE, Stage};
use beneath_kit::trace::calls::Call;
use beneath_kit::trace::{Act, Stop};
use nix::errno::Errno;
use nix::libc;

const ERRNOS: &[Errno] = {
    use Errno::*;
    &[
        EINTR, EAGAIN, EACCES, EPERM, ENOENT, EEXIST, ELOOP, EXDEV, ENOSPC, EDQUOT, EIO, EMFILE, ENFILE,
        ENOMEM, EROFS, ENOSYS,
    ]
};

/// How often a round is played until the fault meets its call.
const TRIES: usize = 8;
/// How many faults of a row are played, unless all are.
const SAMPLE: usize = 12;

/// The faults that make sense for a call. A `close` that is not made would leak by our own doing, and limits are the
/// scenario's own.
fn faults(call: &Call) -> Vec<Act> {
    if call.is_any(&[libc::SYS_close, libc::SYS_prlimit64]) {
        return Vec::new();
    }
    let mut faults: Vec<Act> = ERRNOS.iter().map(|&errno| Act::Fail(errno)).collect();
    if call.is_any(&[libc::SYS_read, libc::SYS_write, libc::SYS_pread64, libc::SYS_pwrite64]) {
        let asked = call.arguments[2];
        faults
            .extend([1, asked / 2].into_iter().filter(|&count| 0 < count && count < asked).map(Act::Shorten));
    }
    faults
}

pub(crate) fn play_all(stage: &mut Stage) -> Count {
    let play = stage.play;
    let mut count = Count::default();
    let (stops, undisturbed) = stage.undisturbed(&|stop, _| *stop);
    let Some(expected) = undisturbed.report.filter(|report| report.verdict() == "ok") else {
        count.broken.push(format!("fails undisturbed: {:?}", undisturbed.violations));
        return count;
    };
    count.broken.extend(undisturbed.violations);
    let met = stops.iter().filter(|stop| play.lack.denies(stop).is_none());
    let all: Vec<(&Stop, Act)> =
        met.flat_map(|stop| faults(&stop.call).into_iter().map(move |fault| (stop, fault))).collect();
    count.note = format!("of {} at {} calls", all.len(), stops.len());
    for (stop, fault) in chosen(all, play.scenario.is_control()) {
        count.pairs += 1;
        let Some(Met { outcome, call, strayed }) = (0..TRIES).find_map(|_| meet(stage, stop, fault)) else {
            count.broken.push(format!("{stop} was never met, {fault:?}"));
            continue;
        };
        let mut violations = outcome.violations;
        if strayed {
            violations.push("the other resolver was used".into());
        }
        if let Some(report) = &outcome.report {
            count.succeeded += usize::from(report.verdict() == "ok");
            violations.extend(wrong_answer(report, &expected, fault));
            if must_fail(&stop.call, fault) && report.succeeded() {
                violations.push("success although a sync failed".into());
            }
        }
        if !violations.is_empty() {
            count.violations.push(format!("{stop}, {call}, {fault:?}: {}", violations.join("; ")));
        }
    }
    count
}

/// Those of a row that are played: all of a full run, all that must fail, and a sample of the others.
fn chosen(all: Vec<(&Stop, Act)>, is_control: bool) -> Vec<(&Stop, Act)> {
    if env::FULL.is_set() || is_control {
        return all;
    }
    let (mut chosen, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(stop, fault)| must_fail(&stop.call, *fault));
    let sample = env::SAMPLE.number().unwrap_or(SAMPLE);
    chosen.extend(Dice::new(env::SEED.number().unwrap_or(1)).sample(others, sample));
    chosen
}

/// A round in which the fault met its call.
struct Met {
    outcome: Outcome,
    call: String,
    strayed: bool,
}

/// Plays a round with the fault at that call; none if it was not made.
fn meet(stage: &mut Stage, stop: &Stop, fault: Act) -> Option<Met> {
    let play = stage.play;
    let (published, strayed) = (Cell::new(false), Cell::new(false));
    let call = RefCell::new(None);
    let outcome = stage.round(
        PATIENCE,
        &mut |now, states| {
            if now.index == 0 {
                states.look();
            }
            strayed.set(strayed.get() || uses_other_resolver(play.contender, now));
            if now.which() != stop.which() {
                return Act::Go;
            }
            published.set(play.scenario.is_published(states.scene));
            call.replace(Some(now.describe()));
            fault
        },
        &|| leniency(&stop.call, fault, published.get()),
    );
    Some(Met { outcome, call: call.take()?, strayed: strayed.get() })
}

/// Whether a name of the tree is looked up in the other resolver's way.
fn uses_other_resolver(contender: Contender, stop: &Stop) -> bool {
    match contender {
        // The probe asks for an empty path.
        Contender::Walk => stop.call.is(libc::SYS_openat2) && !stop.text(1).is_empty(),
        _ => {
            stop.call.is(libc::SYS_openat)
                && ["g", "p", "leaf", "sib", "sub", "deep", "deeper"].contains(&&*stop.text(1))
        }
    }
}

fn must_fail(call: &Call, fault: Act) -> bool {
    // An interrupted sync is begun again.
    call.is_any(&[libc::SYS_fsync, libc::SYS_fdatasync]) && fault != Act::Fail(Errno::EINTR)
}

fn leniency(call: &Call, fault: Act, published: bool) -> Leniency {
    let removes = call.is(libc::SYS_unlinkat);
    Leniency {
        // Once the name is there, an error can only mean that the rest was not done.
        late_error: published,
        // If the one call that removes a temporary name is refused, nothing can remove it.
        leftovers: removes,
        said_gone: fault == Act::Fail(Errno::ENOENT),
        io_error: true,
        ..Leniency::default()
    }
}

/// A success must return what an undisturbed run returns. Entries that the kernel says are gone may be missing.
fn wrong_answer(report: &Report, expected: &Report, fault: Act) -> Option<String> {
    if !report.succeeded() {
        return None;
    }
    if report.data != expected.data {
        return Some(format!("read {:?} bytes", report.data.iter().map(String::len).sum::<usize>()));
    }
    let names: Vec<&String> = report.entries.iter().map(|(path, _)| path).collect();
    let all: Vec<&String> = expected.entries.iter().map(|(path, _)| path).collect();
    let gone = matches!(fault, Act::Fail(Errno::ENOENT));
    let right = names == all || (gone && names.iter().all(|name| all.contains(name)));
    (!right).then(|| format!("returned {names:?}"))
}
