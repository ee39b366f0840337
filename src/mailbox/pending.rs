//! Which of the messages that are due are handed out.
//!
//! Problem: there may be any number of them, in any order, of any size.
//!
//! Defence: only those with the smallest numbers are kept, within a limit on their number and on their bytes. Once one was left out,
//! nothing after it comes before it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::outbound::{Origin, Outbound};
use super::seq::Seq;

/// How much content is handed out at once, but for one message that is larger.
const BYTES: usize = 4 << 20;

/// Messages that are due: those with the smallest numbers, as many as are handed out at once.
#[derive(Default)]
pub(super) struct Pending {
    heap: BinaryHeap<Candidate>,
    most: usize,
    bytes: usize,
    /// The first of those that are not handed out. Nothing after it is.
    end: Option<Candidate>,
}

struct Candidate(Outbound);

impl Candidate {
    fn order(&self) -> (Seq, &str, bool) {
        (self.0.seq, &self.0.raw_id, self.0.origin == Origin::Guest)
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Pending {
    pub(super) fn of_at_most(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn add(&mut self, message: Outbound) {
        let candidate = Candidate(message);
        if self.end.as_ref().is_some_and(|end| candidate >= *end) {
            return;
        }
        self.bytes += candidate.0.content.len();
        self.heap.push(candidate);
        while self.heap.len() > self.most || (self.bytes > BYTES && self.heap.len() > 1) {
            let Some(mut last) = self.heap.pop() else { break };
            self.bytes -= last.0.content.len();
            last.0.content = String::new();
            self.end = Some(last);
        }
    }

    /// Those that are handed out, by their numbers, and whether there are more.
    pub(super) fn into_sorted(self) -> (impl Iterator<Item = Outbound>, bool) {
        let Self { heap, end, .. } = self;
        (heap.into_sorted_vec().into_iter().map(|Candidate(message)| message), end.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::outbound::Earlier;
    use crate::mailbox::routing::Routing;
    use crate::name::MessageId;

    fn message(seq: i64, bytes: usize) -> Outbound {
        Outbound {
            id: MessageId::new("m"),
            raw_id: "m".into(),
            seq: Seq::of_host(seq),
            origin: Origin::Host,
            kind: String::new(),
            content: "x".repeat(bytes),
            in_reply_to: None,
            to: Routing::default(),
            earlier: Earlier::Never,
        }
    }

    /// In every order of adding, what is handed out is the beginning of all of them.
    #[test]
    fn what_is_handed_out_is_a_beginning() {
        let sizes = [BYTES / 2, 10, BYTES, BYTES / 3, 1, 0];
        let mut order = [0, 1, 2, 3, 4, 5];
        for round in 0..720 {
            // The permutation of that number.
            let mut rest: Vec<usize> = (0..6).collect();
            let mut code = round;
            for (place, slot) in order.iter_mut().enumerate() {
                let left = 6 - place;
                *slot = rest.remove(code % left);
                code /= left;
            }
            for most in [0, 1, 3, 6] {
                let mut pending = Pending::of_at_most(most);
                for number in order {
                    pending.add(message(number as i64, sizes[number]));
                }
                let (kept, more) = pending.into_sorted();
                let kept: Vec<i64> = kept.map(|message| message.seq.get()).collect();
                assert_eq!(kept, (0..kept.len() as i64).collect::<Vec<_>>(), "{order:?}");
                assert_eq!(more, kept.len() < 6, "{order:?}");
                assert!(kept.len() <= most && (most == 0 || !kept.is_empty()));
            }
        }
    }
}
