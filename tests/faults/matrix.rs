//! Each call fails once with each errno, or does only part of what it was asked.

use std::cell::Cell;

use beneath::ResolverChoice;
use nix::errno::Errno;
use nix::libc;

use crate::Row;
use crate::stage::{Play, Stage};
use beneath_kit::trace::calls::Call;
use beneath_kit::trace::judge::Leniency;
use beneath_kit::trace::naive::CONTROLS;
use beneath_kit::trace::place::Places;
use beneath_kit::trace::scenario::{Effect, Report};
use beneath_kit::trace::{Act, Stop, in_parallel};

const ERRNOS: &[Errno] = &[
    Errno::EINTR,
    Errno::EAGAIN,
    Errno::EACCES,
    Errno::EPERM,
    Errno::ENOENT,
    Errno::EEXIST,
    Errno::ELOOP,
    Errno::EXDEV,
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::EIO,
    Errno::EMFILE,
    Errno::ENFILE,
    Errno::ENOMEM,
    Errno::EROFS,
    Errno::ENOSYS,
];

pub(crate) fn rows(places: &Places, chosen: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let mut plays = Play::all(|_| true);
    plays.extend(CONTROLS.iter().filter(|control| !control.checks_first).map(Play::control));
    plays.retain(|play| chosen(&play.title("errno")));
    in_parallel(plays, |play| play_all(Stage::new(play, places.any_dir())))
}

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

fn play_all(mut stage: Stage) -> Row {
    let play = stage.play.clone();
    let mut row = Row { title: play.title("errno"), control: play.control, ..Row::default() };
    let (stops, undisturbed) = stage.undisturbed();
    let Some(expected) = undisturbed.report.filter(|report| report.verdict() == "ok") else {
        row.violations.push(format!("fails undisturbed: {:?}", undisturbed.violations));
        return row;
    };
    row.violations.extend(undisturbed.violations);
    for stop in &stops {
        for fault in faults(&stop.call) {
            if play.lack.denies(stop).is_some() {
                continue;
            }
            let scene = stage.scene();
            let published = Cell::new(false);
            let strayed = Cell::new(false);
            let description = Cell::new(String::new());
            let outcome = stage.round(
                &mut |now| {
                    if uses_other_resolver(play.resolver, now) {
                        strayed.set(true);
                    }
                    if now.index != stop.index {
                        return Act::Go;
                    }
                    published.set(Stage::published(&scene));
                    description.set(now.describe());
                    fault
                },
                &|| leniency(&stop.call, fault, published.get(), play.effect),
            );
            row.pairs += 1;
            let mut violations = outcome.violations;
            if strayed.get() {
                violations.push("the other resolver was used".into());
            }
            if let Some(report) = &outcome.report {
                row.succeeded += usize::from(report.verdict() == "ok");
                violations.extend(wrong_answer(report, &expected, fault));
                if must_fail(&stop.call, fault) && report.result.is_ok() {
                    violations.push("success although a sync failed".into());
                }
            }
            if !violations.is_empty() {
                let (index, call) = (stop.index, description.take());
                row.violations.push(format!("call {index} {call}, {fault:?}: {}", violations.join("; ")));
            }
        }
    }
    row.note = format!("{} calls", stops.len());
    row
}

/// Whether a name of the tree is looked up in the other resolver's way.
fn uses_other_resolver(resolver: ResolverChoice, stop: &Stop) -> bool {
    match resolver {
        // The probe asks for an empty path.
        ResolverChoice::Walk => stop.call.is(libc::SYS_openat2) && !stop.text(1).is_empty(),
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

fn leniency(call: &Call, fault: Act, published: bool, effect: Effect) -> Leniency {
    let removes = call.is(libc::SYS_unlinkat);
    Leniency {
        // Once the name is there, an error can only tell that the rest was not done.
        late_error: published,
        // If the one call that removes a temporary name is refused, nothing can remove it.
        leftovers: removes,
        told_gone: fault == Act::Fail(Errno::ENOENT) && matches!(effect, Effect::RemovesTree(_)),
        io_error: true,
        ..Leniency::default()
    }
}

/// A success must tell what an undisturbed run tells. Entries that the kernel says are gone may be missing.
fn wrong_answer(report: &Report, expected: &Report, fault: Act) -> Option<String> {
    let (Ok(told), Ok(expected)) = (&report.result, &expected.result) else { return None };
    if told.data != expected.data {
        return Some(format!("read {:?} bytes", told.data.as_ref().map(String::len)));
    }
    let names: Vec<&String> = told.entries.iter().map(|(path, _)| path).collect();
    let all: Vec<&String> = expected.entries.iter().map(|(path, _)| path).collect();
    let gone = matches!(fault, Act::Fail(Errno::ENOENT));
    let right = names == all || (gone && names.iter().all(|name| all.contains(name)));
    (!right).then(|| format!("told {names:?}"))
}
