//! What became of the messages that were taken.
//!
//! Problem: a host that dies while it sends must neither forget the message nor send it for ever.
//!
//! Defence: each message has one row, which only grows older: so many tries, then done or failed. What follows from an outcome is
//! decided by a function that looks at the row alone.
//!
//! What remains: a host that dies after sending and before recording it does not know that it has sent.

use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, Row, Statement};

use super::retries::{Retries, Standing, from_millis, to_millis};

/// What became of a message that was taken; see [`Mailbox::mark`](super::Mailbox::mark).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivered {
    /// It is about to be sent. This counts as a try, whatever happens to the host.
    Trying,
    /// It was sent.
    Done,
    /// It could not be sent for now.
    Again,
    /// It can never be sent.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A try was begun and its end is not known.
    Trying,
    /// The last try has failed.
    Again,
    Done,
    Failed,
}

impl State {
    const ALL: [Self; 4] = [Self::Trying, Self::Again, Self::Done, Self::Failed];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Trying => "trying",
            Self::Again => "again",
            Self::Done => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// The row of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the message, which another one of its id has not.
    pub(super) seq: i64,
    pub(super) state: State,
    pub(super) tries: u32,
    pub(super) not_before: i64,
}

impl Mark {
    /// The row of a message that was not tried yet.
    pub(super) fn new(seq: i64) -> Self {
        Self { seq, state: State::Again, tries: 0, not_before: 0 }
    }

    /// What the row becomes.
    pub(super) fn after(self, outcome: Delivered, retries: &Retries, now: i64) -> Self {
        let mark = self;
        let wait = |tries| retries.wait_after(tries).map(|wait| now.saturating_add(millis(wait)));
        match (mark.state, outcome) {
            // What was sent stays so, and what has failed was perhaps sent after all.
            (State::Done, _) | (_, Delivered::Done) => Self { state: State::Done, ..mark },
            (State::Failed, _) | (_, Delivered::Failed) => Self { state: State::Failed, ..mark },
            (_, Delivered::Trying) => {
                let tries = mark.tries.saturating_add(1);
                Self { state: State::Trying, tries, not_before: wait(tries).unwrap_or(now), ..mark }
            }
            (state, Delivered::Again) => {
                let tries = mark.tries.saturating_add(u32::from(state != State::Trying));
                match wait(tries) {
                    Some(not_before) => Self { state: State::Again, tries, not_before, ..mark },
                    None => Self { state: State::Failed, tries, not_before: now, ..mark },
                }
            }
        }
    }

    pub(super) fn is_final(&self) -> bool {
        matches!(self.state, State::Done | State::Failed)
    }

    /// Whether a host has died in the last try that there is.
    pub(super) fn is_spent(&self, retries: &Retries) -> bool {
        self.state == State::Trying && retries.wait_after(self.tries).is_none()
    }

    /// When it is due. A time that no pause leads to comes from a clock that was set back, and does not count.
    pub(super) fn due(&self, retries: &Retries, now: i64) -> i64 {
        let latest = now.saturating_add(millis(retries.longest()));
        if self.not_before > latest { now } else { self.not_before }
    }

    pub(super) fn standing(&self) -> Standing {
        match self.state {
            State::Done => Standing::Done,
            State::Failed => Standing::Failed,
            State::Trying | State::Again => {
                Standing::Pending { tries: self.tries, not_before: from_millis(self.not_before) }
            }
        }
    }
}

pub(super) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The rows, to be found by key.
pub(super) struct Marks<'c>(Statement<'c>);

impl<'c> Marks<'c> {
    pub(super) fn of(mail: &'c Connection) -> rusqlite::Result<Self> {
        mail.prepare("SELECT state, tries, not_before, seq FROM marks WHERE key = ?1").map(Self)
    }

    pub(super) fn find(&mut self, key: &str) -> rusqlite::Result<Option<Mark>> {
        let read = |row: &Row<'_>| {
            let name = row.get_ref(0)?.as_str()?;
            let state = State::ALL.into_iter().find(|state| state.name() == name);
            // A state that a later version has added is none that may be sent again.
            let state = state.unwrap_or(State::Failed);
            Ok(Mark { seq: row.get(3)?, state, tries: row.get(1)?, not_before: row.get(2)? })
        };
        self.0.query_row([key], read).optional()
    }
}

/// Writes the row of a message; `raw` is the id that the guest gave, if it was the guest.
pub(super) fn write(
    mail: &Connection,
    key: &str,
    raw: Option<&str>,
    mark: &Mark,
    now: SystemTime,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO marks (key, raw, seq, state, tries, not_before, changed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = (key, raw, mark.seq, mark.state.name(), mark.tries, mark.not_before, to_millis(now));
    mail.execute(sql, values).map(drop)
}

/// Writes what became of a message to where the guest reads.
pub(super) fn publish(inbound: &Connection, raw: &str, outcome: &str, changed: i64) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO delivered (id, outcome, at) VALUES (?1, ?2, ?3)";
    inbound.execute(sql, (raw, outcome, changed)).map(drop)
}

/// What the guest has no copy of, because the host has died: ids, outcomes and times.
pub(super) fn unpublished(
    mail: &Connection,
    inbound: &Connection,
) -> rusqlite::Result<Vec<(String, String, i64)>> {
    let mut known = inbound.prepare("SELECT outcome FROM delivered WHERE id = ?1")?;
    let mut marks = mail.prepare(
        "SELECT raw, state, changed FROM marks WHERE raw IS NOT NULL AND state IN ('delivered', 'failed')",
    )?;
    let mut rows = marks.query(())?;
    let mut missing = Vec::new();
    while let Some(row) = rows.next()? {
        let (raw, outcome, changed): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let copy: Option<String> = known.query_row([&raw], |row| row.get(0)).optional()?;
        if copy.as_deref() != Some(outcome.as_str()) {
            missing.push((raw, outcome, changed));
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    const OUTCOMES: [Delivered; 4] =
        [Delivered::Trying, Delivered::Done, Delivered::Again, Delivered::Failed];

    #[test]
    fn five_tries_with_growing_pauses_and_then_it_has_failed() {
        let retries = Retries::default();
        for outcomes in [&[Delivered::Again][..], &[Delivered::Trying, Delivered::Again][..]] {
            let (mut mark, mut pauses) = (Mark::new(1), Vec::new());
            while !mark.is_final() {
                for outcome in outcomes {
                    mark = mark.after(*outcome, &retries, 1000);
                }
                pauses.extend((!mark.is_final()).then_some(mark.not_before - 1000));
            }
            assert_eq!((mark.state, mark.tries), (State::Failed, 5), "{outcomes:?}");
            assert_eq!(pauses, [5000, 10_000, 20_000, 40_000], "{outcomes:?}");
        }
    }

    /// Every sequence of up to seven outcomes.
    #[test]
    fn a_row_only_grows_older() {
        let retries = Retries::new(3, Duration::from_secs(1));
        let (mut open, mut ends): (Vec<Mark>, BTreeSet<&str>) = (vec![Mark::new(1)], BTreeSet::new());
        for _ in 0..7 {
            let mut next = Vec::new();
            for before in &open {
                for outcome in OUTCOMES {
                    let after = before.after(outcome, &retries, 0);
                    assert!(after.tries >= before.tries && after.tries - before.tries <= 1);
                    assert!(!before.is_final() || after.is_final(), "{before:?} {outcome:?} {after:?}");
                    assert!(before.state != State::Done || after.state == State::Done);
                    assert!(outcome != Delivered::Done || after.state == State::Done);
                    // A host that dies in every try ends too.
                    assert!(after.tries <= 3 || outcome == Delivered::Trying || after.is_final());
                    ends.extend(after.is_final().then(|| after.state.name()));
                    if !next.contains(&after) {
                        next.push(after);
                    }
                }
            }
            open = next;
        }
        assert_eq!(ends.into_iter().collect::<Vec<_>>(), ["delivered", "failed"]);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_nothing() {
        let retries = Retries::default();
        let mark = Mark { tries: 1, not_before: 1_000_000, ..Mark::new(1) };
        assert_eq!(mark.due(&retries, 999_000), 1_000_000);
        assert_eq!(mark.due(&retries, 5000), 5000);
    }

    #[test]
    fn the_last_try_that_never_ended_is_spent() {
        let retries = Retries::new(2, Duration::ZERO);
        let first = Mark::new(1).after(Delivered::Trying, &retries, 0);
        let second = first.after(Delivered::Trying, &retries, 0);
        assert_eq!((first.is_spent(&retries), second.is_spent(&retries)), (false, true));
    }
}
