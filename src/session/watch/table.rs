//! Which watches wait for which event.
//!
//! Problem: a watch may end before the caller that made it knows its number, two callers may share one, and a queue that is full
//! drops events.
//!
//! Defence: an event that belongs to nobody wakes those who are about to learn their number, and a full queue wakes all. So each
//! caller is woken at least once for each change.
//!
//! What remains: a caller may be woken for nothing.

use std::collections::{BTreeSet, HashMap};
use std::task::Waker;

/// Names a watch among all of one watcher.
pub(super) type Token = u64;

/// The number that the kernel gives a watch.
pub(super) type Number = i32;

#[derive(Debug, Default)]
pub(super) struct Table {
    last: Token,
    slots: HashMap<Token, Slot>,
    armed: HashMap<Number, BTreeSet<Token>>,
    /// Those who have asked the kernel and do not know the number yet.
    arming: BTreeSet<Token>,
    /// Whether a thread waits for the kernel on behalf of all.
    pub(super) is_driven: bool,
    /// How many threads wait for that thread.
    pub(super) listeners: usize,
}

#[derive(Debug, Default)]
struct Slot {
    number: Option<Number>,
    fired: bool,
    waker: Option<Waker>,
}

impl Table {
    pub(super) fn add(&mut self) -> Token {
        self.last += 1;
        self.slots.insert(self.last, Slot::default());
        self.last
    }

    /// Before the kernel is asked: from here on nothing is missed.
    pub(super) fn begin(&mut self, token: Token) {
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.fired = false;
            self.arming.insert(token);
        }
    }

    /// After the kernel has answered. Returns a watch that nobody uses any more.
    pub(super) fn armed(&mut self, token: Token, number: Option<Number>) -> Option<Number> {
        self.arming.remove(&token);
        let slot = self.slots.get_mut(&token)?;
        let before = std::mem::replace(&mut slot.number, number);
        if let Some(number) = number {
            self.armed.entry(number).or_default().insert(token);
        }
        before.filter(|before| Some(*before) != number && self.leave(*before, token))
    }

    /// Returns a watch that nobody uses any more.
    pub(super) fn remove(&mut self, token: Token) -> Option<Number> {
        self.arming.remove(&token);
        let number = self.slots.remove(&token)?.number?;
        self.leave(number, token).then_some(number)
    }

    /// Whether nobody else uses the watch.
    fn leave(&mut self, number: Number, token: Token) -> bool {
        let Some(users) = self.armed.get_mut(&number) else { return false };
        users.remove(&token);
        users.is_empty() && self.armed.remove(&number).is_some()
    }

    /// The watch has ended with an event.
    pub(super) fn ended(&mut self, number: Number, wake: &mut Vec<Waker>) {
        let users = self.armed.remove(&number).unwrap_or_else(|| self.arming.clone());
        self.fire(users, wake);
    }

    /// Events were dropped.
    pub(super) fn overflowed(&mut self, wake: &mut Vec<Waker>) {
        let all: Vec<Token> = self.slots.keys().copied().collect();
        self.fire(all, wake);
    }

    fn fire(&mut self, tokens: impl IntoIterator<Item = Token>, wake: &mut Vec<Waker>) {
        for token in tokens {
            if let Some(slot) = self.slots.get_mut(&token) {
                slot.fired = true;
                wake.extend(slot.waker.take());
            }
        }
    }

    /// Whether it has fired since it was armed; asked once.
    pub(super) fn take(&mut self, token: Token) -> bool {
        self.slots.get_mut(&token).is_some_and(|slot| std::mem::take(&mut slot.fired))
    }

    /// [`take`](Self::take), with somebody to wake if it has not.
    pub(super) fn take_or_wake(&mut self, token: Token, waker: &Waker) -> bool {
        let Some(slot) = self.slots.get_mut(&token) else { return true };
        let fired = std::mem::take(&mut slot.fired);
        slot.waker = (!fired).then(|| waker.clone());
        fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(table: &mut Table, number: Number) {
        table.ended(number, &mut Vec::new());
    }

    #[test]
    fn an_event_that_comes_before_the_number_is_known_is_not_lost() {
        let mut table = Table::default();
        let token = table.add();
        table.begin(token);
        ended(&mut table, 7);
        assert_eq!(table.armed(token, Some(7)), None);
        assert!(table.take(token));
        assert!(!table.take(token));
    }

    #[test]
    fn an_event_wakes_all_who_share_the_watch_and_nobody_else() {
        let mut table = Table::default();
        let [one, two, other] = [table.add(), table.add(), table.add()];
        for (token, number) in [(one, 1), (two, 1), (other, 2)] {
            table.begin(token);
            table.armed(token, Some(number));
        }
        ended(&mut table, 1);
        assert_eq!([one, two, other].map(|token| table.take(token)), [true, true, false]);
    }

    #[test]
    fn a_watch_is_given_up_with_its_last_user_only() {
        let mut table = Table::default();
        let [one, two] = [table.add(), table.add()];
        for token in [one, two] {
            table.begin(token);
            table.armed(token, Some(1));
        }
        assert_eq!(table.remove(one), None);
        assert_eq!(table.armed(two, Some(1)), None, "armed again while it has not ended");
        assert_eq!(table.armed(two, Some(3)), Some(1), "it is on another directory now");
        assert_eq!(table.remove(two), Some(3));
        assert_eq!(table.remove(two), None);
    }

    #[test]
    fn a_watch_that_has_ended_is_not_given_up_again() {
        let mut table = Table::default();
        let token = table.add();
        table.begin(token);
        table.armed(token, Some(1));
        ended(&mut table, 1);
        assert_eq!(table.remove(token), None);
    }

    #[test]
    fn a_full_queue_wakes_everybody() {
        let mut table = Table::default();
        let [armed, idle] = [table.add(), table.add()];
        table.begin(armed);
        table.armed(armed, Some(1));
        table.overflowed(&mut Vec::new());
        assert!(table.take(armed) && table.take(idle));
    }
}
