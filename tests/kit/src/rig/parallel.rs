//! Jobs on all CPUs, each thread on its own.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Plays the jobs on as many threads as there are CPUs, in no order, and gives the results in theirs.
///
/// A victim belongs to the thread that started it, so each job starts its own.
pub fn in_parallel<J: Send, R: Send>(jobs: Vec<J>, play: impl Fn(J) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(4);
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let results = Mutex::new(BTreeMap::new());
    let (queue, shared, play) = (&queue, &results, &play);
    thread::scope(|scope| {
        for worker in 0..threads {
            scope.spawn(move || {
                share_one_cpu(worker);
                loop {
                    let Some((number, job)) = queue.lock().expect("never poisoned").next() else { return };
                    let result = play(job);
                    shared.lock().expect("never poisoned").insert(number, result);
                }
            });
        }
    });
    results.into_inner().expect("never poisoned").into_values().collect()
}

/// Keeps this thread, and the victims it will start, on one CPU: tracer and victim take turns anyway.
fn share_one_cpu(number: usize) {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu) == Ok(true)).collect();
    let mut one = CpuSet::new();
    if let Some(&cpu) = cpus.get(number % cpus.len().max(1))
        && one.set(cpu).is_ok()
    {
        // Only for speed.
        let _ = sched_setaffinity(Pid::from_raw(0), &one);
    }
}
