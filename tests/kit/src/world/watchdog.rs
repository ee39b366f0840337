//! Nothing a guest plants may make a call hang.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What a call that must not block may take at the very most, on a machine busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `body` on its own thread; none if it is still running after `patience`.
///
/// A body that hangs keeps its thread until the process ends, or until the caller ends what it waits for.
pub fn finishes<T: Send + 'static>(
    patience: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let _ = sender.send(body());
    };
    let worker = crate::thread_of_this_test().spawn(work).unwrap();
    match receiver.recv_timeout(patience) {
        Ok(value) => {
            worker.join().unwrap();
            Some(value)
        }
        Err(mpsc::RecvTimeoutError::Timeout) => None,
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
    }
}

/// Runs `body` and panics if it does not come back.
#[track_caller]
pub fn within<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    match finishes(PATIENCE, body) {
        Some(value) => value,
        None => panic!("{what}: still running after {PATIENCE:?}"),
    }
}

/// The shortest of three runs, so that a busy machine is not mistaken for a slow call.
pub fn best_of_three<T>(mut body: impl FnMut() -> T) -> (T, Duration) {
    let mut run = || {
        let start = Instant::now();
        (body(), start.elapsed())
    };
    let mut best = run();
    for next in [run(), run()] {
        if next.1 < best.1 {
            best = next;
        }
    }
    best
}
