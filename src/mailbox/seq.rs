//! The numbers of messages: even from the host, odd from the guest.
//!
//! Problem: two writers number messages on one line without asking each other, and one of them may write any number.
//!
//! Defence: the parity says whose a number is, so no two are equal. A guest's number counts only if it is odd, positive and no more
//! than half of what there is; the other half is the host's, so that no guest can use up the numbers.
//!
//! What remains: the guest decides the order of its own messages.

use std::fmt;

/// The number of a message. Those of the host are even, those of the guest odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Seq(i64);

impl Seq {
    /// The largest number that a guest may use.
    pub const GUEST_MAX: i64 = i64::MAX / 2;

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// A number that the host has given.
    pub(super) const fn of_host(number: i64) -> Self {
        Self(number)
    }

    /// The number of a guest's message, if a guest may use it.
    pub(super) fn of_guest(number: i64) -> Option<Self> {
        let allowed = (1..=Self::GUEST_MAX).contains(&number) && number % 2 == 1;
        allowed.then_some(Self(number))
    }

    /// The next number of the host after all that were used; none if there is none.
    pub(super) fn next_of_host(used: i64) -> Option<Self> {
        let used = used.max(0);
        used.checked_add(2 - used % 2).map(Self)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_numbers_even_and_above_all() {
        let cases =
            [(i64::MIN, 2), (-1, 2), (0, 2), (1, 2), (2, 4), (3, 4), (Seq::GUEST_MAX, Seq::GUEST_MAX + 1)];
        for (used, next) in cases {
            assert_eq!(Seq::next_of_host(used).map(Seq::get), Some(next), "{used}");
        }
        assert_eq!(Seq::next_of_host(i64::MAX - 1), None);
        assert_eq!(Seq::next_of_host(i64::MAX), None);
    }

    #[test]
    fn a_guest_numbers_odd_and_leaves_the_upper_half() {
        let cases = [
            (1, true),
            (3, true),
            (Seq::GUEST_MAX, true),
            (0, false),
            (2, false),
            (-1, false),
            (i64::MIN, false),
            (Seq::GUEST_MAX + 2, false),
            (i64::MAX - 2, false),
            (i64::MAX, false),
        ];
        for (number, allowed) in cases {
            assert_eq!(Seq::of_guest(number).is_some(), allowed, "{number}");
        }
    }
}
