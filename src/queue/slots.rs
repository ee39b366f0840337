//! How many requests are in flight.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long to wait for room at a time. What takes it may be an answer, which only the next look publishes.
const LOOK: Duration = Duration::from_secs(1);

/// Counts what is in flight.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<State>,
    most: usize,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// How many threads wait for room.
    waiting: usize,
}

/// A request in flight; dropping it makes room.
#[derive(Debug)]
pub(super) struct Slot(Arc<Slots>);

impl Slots {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), most, freed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn in_use(&self) -> usize {
        self.state().used
    }

    /// Takes a slot, if there is one left.
    pub(super) fn take(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.state();
        (state.used < self.most).then(|| {
            state.used += 1;
            Slot(Arc::clone(self))
        })
    }

    /// Counts what is in flight already, whatever the limit.
    pub(super) fn count(self: &Arc<Self>) -> Slot {
        self.state().used += 1;
        Slot(Arc::clone(self))
    }

    pub(super) fn is_full(&self) -> bool {
        self.in_use() >= self.most
    }

    /// Waits until there is room or a look is due, no longer than that.
    pub(super) fn wait(&self, patience: Duration) {
        let full = |state: &mut State| state.used >= self.most;
        let mut state = self.state();
        state.waiting += 1;
        // Either way the caller looks again.
        let waited = self.freed.wait_timeout_while(state, patience.min(LOOK), full);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.used = state.used.saturating_sub(1);
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.0.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_slot_is_free_again_when_it_is_dropped() {
        let slots = Slots::new(1);
        let one = slots.take().unwrap();
        assert!(slots.take().is_none());
        let forced = slots.count();
        drop(one);
        assert!(slots.take().is_none(), "what was counted past the limit counts");
        drop(forced);
        assert!(slots.take().is_some());
    }

    #[test]
    fn who_waits_for_room_is_woken_when_there_is_some() {
        let round = || {
            let slots = Slots::new(1);
            let one = slots.take().unwrap();
            let waiter = Arc::clone(&slots);
            let thread = std::thread::spawn(move || {
                let start = Instant::now();
                waiter.wait(Duration::MAX);
                assert!(!waiter.is_full());
                start.elapsed()
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(one);
            thread.join().unwrap()
        };
        // A stalled machine makes one of them late.
        assert!((0..5).any(|_| round() < LOOK));
    }
}
