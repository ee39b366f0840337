//! What the host says on stderr.
//!
//! Problem: a guest has a directory called `x.json` made, and each look refuses it once more; a million requests that no route allows
//! are a million lines.
//!
//! Defence: a line is said once a minute, and no more than a hundred different ones; the others are counted. What a guest chose is
//! escaped.

use std::collections::HashSet;
use std::fmt::Display;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const MOST: usize = 100;

/// What was said in the last minute.
#[derive(Debug)]
pub(super) struct Said(Mutex<Minute>);

#[derive(Debug)]
struct Minute {
    since: Instant,
    lines: HashSet<String>,
    unsaid: u64,
}

impl Minute {
    fn new() -> Self {
        Self { since: Instant::now(), lines: HashSet::new(), unsaid: 0 }
    }
}

impl Said {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Minute::new()))
    }

    /// Says what has become of `name`. An error escapes what it shows.
    pub(super) fn say(&self, name: &(impl Display + ?Sized), what: &(impl Display + ?Sized)) {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if minute.since.elapsed() >= MINUTE {
            if minute.unsaid > 0 {
                eprintln!("bridge_host: and {} more in a minute", minute.unsaid);
            }
            *minute = Minute::new();
        }
        let line = format!("bridge_host: {}: {what}", name.to_string().escape_debug());
        if minute.lines.contains(&line) {
            return;
        }
        if minute.lines.len() >= MOST {
            minute.unsaid += 1;
            return;
        }
        eprintln!("{line}");
        minute.lines.insert(line);
    }

    /// Says what was refused.
    pub(super) fn refused<'a>(&self, refused: impl Iterator<Item = (&'a Path, &'a beneath::Error)>) {
        refused.for_each(|(name, error)| self.say(&name.display(), error));
    }
}
