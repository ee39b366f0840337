//! The smallest history that still goes wrong.

use crate::history::{Act, Compares, History, Step, Versions};

/// Leaves out whatever can be left out while `fails` says that it still goes wrong.
pub(crate) fn shrink(mut history: History, mut fails: impl FnMut(&History) -> bool) -> History {
    loop {
        let before = history.clone();
        // From the end: what comes later depends on what comes before.
        for position in (0..history.steps.len()).rev() {
            let mut less = history.clone();
            less.steps.remove(position);
            keep_if(&mut history, less, &mut fails);
        }
        for position in (0..history.steps.len()).rev() {
            let mut choice = 0;
            while let Some(act) = simpler(&history.steps[position].act, choice) {
                let mut less = history.clone();
                less.steps[position] = Step { act, ..less.steps[position].clone() };
                // What is left out once moves the next one to its place.
                choice += usize::from(!keep_if(&mut history, less, &mut fails));
            }
        }
        let plain = History { versions: Versions::Content, ..history.clone() };
        keep_if(&mut history, plain, &mut fails);
        let plain = History { compares: Compares::InOneStep, ..history.clone() };
        keep_if(&mut history, plain, &mut fails);
        let plain = History { settles: false, ..history.clone() };
        keep_if(&mut history, plain, &mut fails);
        if history == before {
            return history;
        }
    }
}

fn keep_if(history: &mut History, less: History, fails: &mut impl FnMut(&History) -> bool) -> bool {
    let smaller = less != *history && fails(&less);
    if smaller {
        *history = less;
    }
    smaller
}

/// The `choice`th way to make an act simpler.
fn simpler(act: &Act, choice: usize) -> Option<Act> {
    match act {
        Act::Edit { host, edits } if edits.len() > 1 && choice < edits.len() => {
            let mut edits = edits.clone();
            edits.remove(choice);
            Some(Act::Edit { host: *host, edits })
        }
        Act::Calls(calls) => {
            let mut ways = Vec::new();
            for position in 0..calls.meanwhile.len() {
                let mut less = calls.clone();
                less.meanwhile.remove(position);
                ways.push(less);
            }
            for position in 0..calls.calls.len() {
                if calls.calls.len() > 1 {
                    let mut less = calls.clone();
                    less.calls.remove(position);
                    ways.push(less);
                }
                let mut less = calls.clone();
                less.calls[position].ends = None;
                ways.push(less.clone());
                let mut less = calls.clone();
                let call = &mut less.calls[position];
                (call.hash, call.prefer_remote, call.concurrency) = (false, false, 1);
                ways.push(less);
            }
            let mut less = calls.clone();
            less.rough = false;
            ways.push(less);
            let mut less = calls.clone();
            less.stale = false;
            ways.push(less);
            ways.retain(|way| way != calls);
            ways.into_iter().nth(choice).map(Act::Calls)
        }
        _ => None,
    }
}
