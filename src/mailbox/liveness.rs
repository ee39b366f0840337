//! Whether a guest hangs.
//!
//! Problem: a guest that hangs keeps its message, and one that works for an hour must not be killed.
//!
//! Defence: three signs are weighed, by a function that looks at nothing else: how old the heartbeat is, how long each message
//! is being processed, and how long the tool that runs now was said to take.
//!
//! What remains: all three are the guest's. One that lies is not found out here; it only keeps its own session busy, and no declared
//! time counts beyond a [limit](Patience::with_longest).

use std::time::Duration;

use crate::name::MessageId;

/// How long a guest may be silent.
///
/// By default 30 min without a heartbeat, 60 s with a message and no heartbeat since, or as long as the tool that runs may take, up
/// to 4 h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    silence: Duration,
    claim: Duration,
    longest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self { silence: minutes(30), claim: minutes(1), longest: minutes(240) }
    }
}

/// What there is to see of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Signs {
    /// How long ago it gave its last heartbeat; none if it gave none yet.
    pub heartbeat: Option<Duration>,
    /// The messages it is processing, and how long each.
    pub claims: Vec<(MessageId, Duration)>,
    /// How long the tool that runs now may take, by its own account.
    pub declared: Option<Duration>,
}

/// What the signs say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing is wrong.
    Working,
    /// There was no heartbeat for this long.
    Silent(Duration),
    /// This message is being processed for this long, and there was no heartbeat since it began.
    Stuck(MessageId, Duration),
}

impl Patience {
    /// How long a guest may give no heartbeat.
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// How long a message may be processed without a heartbeat.
    #[must_use]
    pub fn with_claim(mut self, claim: Duration) -> Self {
        self.claim = claim;
        self
    }

    /// How long a tool may take at the most, whatever the guest says.
    #[must_use]
    pub fn with_longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// What the signs say. Nothing else is looked at.
    ///
    /// ```
    /// use std::time::Duration;
    /// use beneath::mailbox::{Patience, Signs, Verdict};
    ///
    /// let hour = Duration::from_secs(3600);
    /// let mut signs = Signs { heartbeat: Some(hour), ..Signs::default() };
    /// assert_eq!(Patience::default().judge(&signs), Verdict::Silent(hour));
    /// signs.declared = Some(2 * hour);
    /// assert_eq!(Patience::default().judge(&signs), Verdict::Working);
    /// ```
    #[must_use]
    pub fn judge(&self, signs: &Signs) -> Verdict {
        let declared = signs.declared.unwrap_or_default().min(self.longest);
        if let Some(age) = signs.heartbeat.filter(|age| *age > self.silence.max(declared)) {
            return Verdict::Silent(age);
        }
        let silent_since = |age: Duration| signs.heartbeat.is_none_or(|heartbeat| heartbeat >= age);
        let stuck = |(_, age): &&(MessageId, Duration)| *age > self.claim.max(declared) && silent_since(*age);
        // Of several the oldest.
        match signs.claims.iter().filter(stuck).max_by_key(|(_, age)| *age) {
            Some((id, age)) => Verdict::Stuck(id.clone(), *age),
            None => Verdict::Working,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_weighed() {
        let seconds = Duration::from_secs;
        let id = |name: &str| MessageId::new(name);
        let stuck = |name: &str, age| Verdict::Stuck(id(name), seconds(age));
        // The heartbeat, the claims, the declared time of a tool.
        type Case = (&'static str, Option<u64>, &'static [(&'static str, u64)], Option<u64>, Verdict);
        let cases: Vec<Case> = vec![
            ("nothing yet", None, &[], None, Verdict::Working),
            ("fresh", Some(0), &[], None, Verdict::Working),
            ("at the ceiling", Some(1800), &[], None, Verdict::Working),
            ("above the ceiling", Some(1801), &[], None, Verdict::Silent(seconds(1801))),
            ("a tool that takes longer", Some(1801), &[], Some(3600), Verdict::Working),
            ("longer than the tool", Some(3601), &[], Some(3600), Verdict::Silent(seconds(3601))),
            ("a tool that takes less", Some(1801), &[], Some(1), Verdict::Silent(seconds(1801))),
            (
                "a tool that takes for ever",
                Some(14_401),
                &[],
                Some(u64::MAX),
                Verdict::Silent(seconds(14_401)),
            ),
            ("a young claim", Some(60), &[("a", 60)], None, Verdict::Working),
            ("an old claim, silent since", Some(61), &[("a", 61)], None, stuck("a", 61)),
            ("an old claim, heartbeat since", Some(60), &[("a", 61)], None, Verdict::Working),
            ("an old claim, never a heartbeat", None, &[("a", 61)], None, stuck("a", 61)),
            ("an old claim, a tool", Some(61), &[("a", 61)], Some(600), Verdict::Working),
            ("the oldest of several", Some(900), &[("a", 70), ("b", 80), ("c", 5)], None, stuck("b", 80)),
            ("both", Some(1801), &[("a", 1801)], None, Verdict::Silent(seconds(1801))),
        ];
        for (what, heartbeat, claims, declared, expected) in cases {
            let signs = Signs {
                heartbeat: heartbeat.map(seconds),
                claims: claims.iter().map(|(name, age)| (id(name), seconds(*age))).collect(),
                declared: declared.map(seconds),
            };
            assert_eq!(Patience::default().judge(&signs), expected, "{what}");
        }
    }
}
