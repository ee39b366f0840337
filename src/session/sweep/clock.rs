//! How long nothing happened, by clocks that cannot be stepped.
//!
//! Problem: the kernel stamps a change with the wall clock. When that clock is set two days ahead, or comes up wrong after a
//! boot, everything looks two days older, and a sweep by age removes sessions that are in use.
//!
//! Defence: age is the time that the host has *watched*. A file `.clock` beside the sessions keeps a counter that only goes on
//! by what both clocks agree on: the boot clock, which nobody sets, and the wall clock. When they disagree by more than
//! [`TOLERANCE`], the wall clock was stepped: the record then keeps where, and times from either side of the step are
//! counted on their own side. Between two boots only the time since the boot counts. A time that fits several sides
//! counts as the latest of them, and one that may be from before or after the step as the later. "Now" is the time that the
//! file system gives the record itself, so a server with another clock does no harm.
//!
//! What remains: while the machine was off, or before the first session or sweep, nothing was watched, so nothing gets older.
//! [`SweepClock::Wall`](crate::session::SweepClock::Wall) is for those who trust the clock. Every
//! error of this kind keeps a session longer, none removes it sooner.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::error::{ErrorKind, Result};
use crate::root::{Metadata, Root};

pub(in crate::session) const FILE: &str = ".clock";
/// What is stamped to see what time it is; it goes at once.
const NOW: &str = ".clock-now";
const FIRST_LINE: &str = "beneath clock 1";
const MOST_BYTES: u64 = 64 << 10;
/// How many steps of the wall clock, and boots, are remembered. What is older than all of them is as old as the oldest.
const MOST_STEPS: usize = 256;
/// Times on disk may be whole seconds.
const TOLERANCE: u64 = 2_000_000_000;

/// Ages, all as of one moment.
#[derive(Debug)]
pub(in crate::session) struct Ages(Record);

impl Ages {
    /// By the wall clock as it is now.
    pub(in crate::session) fn by_wall_clock() -> Self {
        Self(Record::trusting(nanos(SystemTime::now()), boot_clock()))
    }

    /// By the wall clock as it was when this process first asked, and the time that has passed since.
    pub(in crate::session) fn of_process() -> Self {
        static SEEN: Mutex<Option<Record>> = Mutex::new(None);
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, boot) = (nanos(SystemTime::now()), boot_clock());
        let record = match seen.take() {
            Some(record) => record.advanced(wall, boot),
            None => Record::trusting(wall, boot),
        };
        Self(seen.insert(record).clone())
    }

    /// By the time watched in `root`; the record there is brought up to date, or why it was not.
    pub(in crate::session) fn watched(root: &Root) -> (Self, Result<()>) {
        // The file system says what time it is only by stamping something; not the record, whose time says when it was true.
        let now = root.replace(NOW, "").and_then(|()| root.metadata(NOW)).map(|file| nanos(file.changed()));
        let _ = root.remove_file(NOW);
        let (now, boot) = (now.unwrap_or_else(|_| nanos(SystemTime::now())), boot_clock());
        let record = match Record::load(root) {
            Some(record) => record.advanced(now, boot),
            None => Record::new(now, boot),
        };
        // On a full disk the old record stays: it counts the same time from further back.
        let kept = root.replace(FILE, record.text());
        (Self(record), kept)
    }

    /// How long ago the kernel saw the entry change. A guest can set any modification time, but not this one.
    pub(in crate::session) fn of(&self, entry: &Metadata) -> Duration {
        Duration::from_nanos(self.0.age(nanos(entry.changed())))
    }
}

/// Begins to watch, unless that was done already.
pub(in crate::session) fn begin(root: &Root) {
    if root.metadata(FILE).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        // Without it ages begin with the first sweep.
        let _ = Ages::watched(root);
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Goes on while the machine sleeps, and nobody can set it.
fn boot_clock() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, rest) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Where a stretch begins on which the wall clock was not stepped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
    wall: u64,
    watched: u64,
    /// The step came at some moment of the time before, so that this much earlier it may have shown the new time already.
    gap: u64,
}

/// What is known of the clocks, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    wall: u64,
    boot: u64,
    watched: u64,
    /// The oldest first, which begins where the record does.
    first: Stretch,
    later: Vec<Stretch>,
}

impl Record {
    fn new(wall: u64, boot: u64) -> Self {
        Self { wall, boot, watched: 0, first: Stretch { wall, ..Stretch::default() }, later: Vec::new() }
    }

    /// A record that has watched since 1970.
    fn trusting(wall: u64, boot: u64) -> Self {
        Self { wall, boot, watched: wall, ..Self::default() }
    }

    /// The record as of a later moment.
    fn advanced(mut self, wall: u64, boot: u64) -> Self {
        // A smaller number is another boot; a larger one may be, too, and then this is less than what passed.
        let up = if boot >= self.boot { boot - self.boot } else { boot };
        // Two machines that share the directory have been up for different times.
        let shown = wall.saturating_sub(self.wall);
        let passed = if up <= shown.saturating_add(TOLERANCE) { up } else { shown };
        self.watched = self.watched.saturating_add(passed);
        (self.wall, self.boot) = (wall, boot);
        let last = self.later.last().unwrap_or(&self.first);
        let expected = last.wall.saturating_add(self.watched.saturating_sub(last.watched));
        if wall.abs_diff(expected) > TOLERANCE {
            self.later.push(Stretch { wall, watched: self.watched, gap: up });
        }
        if self.later.len() >= MOST_STEPS {
            self.first = self.later.remove(0);
        }
        self
    }

    /// How much was watched since the wall clock showed `changed`: the least that fits.
    fn age(&self, changed: u64) -> u64 {
        let ends = self.later.iter().map(|next| next.watched).chain([self.watched]);
        let stretches = [&self.first].into_iter().chain(&self.later);
        let latest = stretches
            .zip(ends)
            .filter(|(stretch, _)| stretch.wall.saturating_sub(stretch.gap) <= changed)
            .map(|(stretch, end)| {
                stretch.watched.saturating_add(changed.saturating_sub(stretch.wall)).min(end)
            })
            .max();
        self.watched.saturating_sub(latest.unwrap_or(self.first.watched))
    }

    fn load(root: &Root) -> Option<Self> {
        let content = root.read_contained(FILE, MOST_BYTES).ok()?;
        let wall = nanos(root.metadata(FILE).ok()?.changed());
        Self::parse(&String::from_utf8(content).ok()?, wall)
    }

    /// The moment itself is the time of the file.
    fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n{} {}\n", self.boot, self.watched);
        for stretch in [&self.first].into_iter().chain(&self.later) {
            text += &format!("{} {} {}\n", stretch.wall, stretch.watched, stretch.gap);
        }
        text
    }

    fn parse(text: &str, wall: u64) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let mut numbers =
            lines.map(|line| line.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>());
        let [boot, watched] = numbers.next()??[..] else { return None };
        let stretches: Option<Vec<Stretch>> = numbers
            .map(|line| match line?[..] {
                [wall, watched, gap] => Some(Stretch { wall, watched, gap }),
                _ => None,
            })
            .collect();
        let (first, later) = stretches?.split_first().map(|(first, later)| (*first, later.to_vec()))?;
        Some(Self { wall, boot, watched, first, later })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const HOUR: u64 = 3600 * SECOND;
    const DAY: u64 = 24 * HOUR;
    /// When the record begins, and how long the machine is up by then.
    const START: u64 = 20_000 * DAY;
    const UP: u64 = 5 * DAY;

    fn begun() -> Record {
        Record::new(START, UP)
    }

    /// What was used after the step and before anybody noticed it is as young as it looks.
    #[test]
    fn a_clock_that_is_set_back_makes_nothing_older() {
        let mut record = begun();
        for hour in 1..=20 * 24 {
            record = record.advanced(START + hour * HOUR, UP + hour * HOUR);
        }
        let (now, up) = (START + 20 * DAY - 2 * DAY, UP + 20 * DAY);
        let record = record.advanced(now + HOUR, up + HOUR);
        for minutes in [0, 10, 59] {
            assert!(record.age(now + minutes * 60 * SECOND) <= HOUR, "{minutes}");
        }
        let later = record.advanced(now + 25 * HOUR, up + 25 * HOUR);
        assert_eq!(later.age(now + HOUR), 24 * HOUR, "and gets older as time passes");
    }

    #[test]
    fn ages_are_those_of_the_wall_clock_while_nobody_sets_it() {
        let mut record = begun();
        for hour in 1..=100 {
            record = record.advanced(START + hour * HOUR, UP + hour * HOUR);
        }
        for age in [0, SECOND, HOUR, 99 * HOUR] {
            assert_eq!(record.age(START + 100 * HOUR - age), age);
        }
        assert_eq!(record.age(START + 200 * HOUR), 0, "a time to come is no age");
        assert_eq!(record.later, [], "and nothing has to be remembered");
    }

    #[test]
    fn coarse_times_on_disk_add_up_to_no_step() {
        let mut record = begun();
        for minute in 1..=100_000 {
            let passed = minute * 60 * SECOND;
            record = record.advanced((START + passed) / SECOND * SECOND, UP + passed + minute % 7);
        }
        assert_eq!(record.later, []);
        assert!(record.age(START).abs_diff(100_000 * 60 * SECOND) < SECOND);
    }

    #[test]
    fn a_clock_set_ahead_makes_nothing_older() {
        let used = START + 10 * HOUR;
        let before = begun().advanced(used, UP + 10 * HOUR);
        let ahead = before.clone().advanced(used + 2 * DAY + HOUR, UP + 11 * HOUR);
        assert_eq!(ahead.age(used), HOUR);
        // Also by the sweeps after that, and for what was used since.
        let later = ahead.advanced(used + 2 * DAY + 5 * HOUR, UP + 15 * HOUR);
        assert_eq!(later.age(used), 5 * HOUR);
        assert_eq!(later.age(used + 2 * DAY + 4 * HOUR), HOUR);
        // What happened between the last sweep and the step counts from the sweep that saw it.
        assert_eq!(later.age(used + HOUR / 2), 4 * HOUR + HOUR / 2);
        assert_eq!(later.age(used + DAY), 4 * HOUR);
    }

    #[test]
    fn a_process_that_trusted_the_clock_notices_when_it_is_set() {
        let (now, used) = (START, START - HOUR);
        let started = Record::trusting(now, UP);
        assert_eq!(started.age(used), HOUR);
        let ahead = started.advanced(now + 2 * DAY, UP + HOUR);
        assert_eq!((ahead.age(used), ahead.age(now)), (2 * HOUR, HOUR));
        let back = ahead.advanced(now + 2 * HOUR, UP + 2 * HOUR);
        assert!(back.age(used) >= 2 * HOUR && back.age(used) <= 3 * HOUR);
    }

    #[test]
    fn a_clock_set_back_and_put_right_makes_nothing_older() {
        let record = begun().advanced(START - 30 * DAY, UP + HOUR).advanced(START + 2 * HOUR, UP + 2 * HOUR);
        assert!(record.age(START) <= 2 * HOUR);
        assert!(record.age(START + HOUR) <= HOUR);
        assert!(record.age(START - 30 * DAY) <= 2 * HOUR);
        let much_later = record.advanced(START + 9 * DAY, UP + 9 * DAY);
        assert!(much_later.age(START + HOUR) >= 8 * DAY, "it ages from then on");
    }

    #[test]
    fn a_machine_that_was_off_has_watched_nothing() {
        let record = begun().advanced(START + DAY, UP + DAY);
        // A week later, up for ten minutes; whether the week is true nobody knows.
        let up = record.advanced(START + 8 * DAY, HOUR / 6);
        assert_eq!(up.age(START + DAY), HOUR / 6);
        assert_eq!(up.age(START), DAY + HOUR / 6);
        let next = up.advanced(START + 9 * DAY, HOUR / 6 + DAY);
        assert_eq!(next.age(START + DAY), DAY + HOUR / 6);
    }

    #[test]
    fn where_each_boot_begins_in_1970_ages_count_from_the_last_boot_at_least() {
        let mut record = begun();
        for set in [3 * HOUR, 30 * HOUR, 50 * HOUR] {
            // It comes up in 1970, is set a minute later, and stays up for an hour.
            record = record.advanced(0, SECOND).advanced(START + set, 60 * SECOND);
            assert!(record.age(START) <= 2 * HOUR);
            record = record.advanced(START + set + HOUR, HOUR + 60 * SECOND);
            assert!(record.age(START) >= HOUR);
        }
    }

    #[test]
    fn machines_that_share_a_directory_count_no_time_twice() {
        let mut record = begun();
        for minute in 1..=60 {
            let up = if minute % 2 == 0 { UP } else { 300 * DAY };
            record = record.advanced(START + minute * 60 * SECOND, up + minute * 60 * SECOND);
        }
        assert_eq!(record.age(START), HOUR);
    }

    #[test]
    fn what_is_older_than_the_record_is_as_old_as_the_record() {
        let record = begun().advanced(START + HOUR, UP + HOUR);
        assert_eq!(record.age(0), HOUR);
        assert_eq!(begun().age(START - 400 * DAY), 0, "nobody has watched it yet");
    }

    #[test]
    fn steps_without_end_take_no_room_without_end() {
        let mut record = begun();
        for step in 1..2000 {
            record = record.advanced(START + step * DAY, UP + step * SECOND);
        }
        assert!(record.later.len() < MOST_STEPS && record.text().len() < 16 << 10);
        assert!(record.age(START) >= 250 * SECOND);
    }

    #[test]
    fn a_record_is_read_as_it_was_written_or_not_at_all() {
        let record = begun().advanced(START + 3 * DAY, UP + HOUR).advanced(START + 4 * DAY, HOUR);
        assert_eq!(Record::parse(&record.text(), record.wall), Some(record));
        for bad in
            ["", "beneath clock 2\n1 2\n3 4\n", "beneath clock 1\n1 2\n", "beneath clock 1\n1 x\n3 4\n"]
        {
            assert_eq!(Record::parse(bad, START), None, "{bad:?}");
        }
    }
}
