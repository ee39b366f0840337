//! What the host says on stderr.
//!
//! Problem: a guest has a directory called `x.json` made, and each look refuses it once more; a million such names are a million
//! lines.
//!
//! Defence: a line is said once a minute, and no more than a hundred different ones; the others are counted.

use std::collections::HashSet;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const MOST: usize = 100;

/// What was said in the last minute.
#[derive(Debug)]
pub(super) struct Said {
    since: Instant,
    lines: HashSet<String>,
    unsaid: u64,
}

impl Said {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), lines: HashSet::new(), unsaid: 0 }
    }

    /// Says what was refused, unless that was said.
    pub(super) fn refused<'a>(&mut self, refused: impl Iterator<Item = (&'a Path, &'a beneath::Error)>) {
        if self.since.elapsed() >= MINUTE {
            if self.unsaid > 0 {
                report("host", &format_args!("{} more were refused", self.unsaid));
            }
            *self = Self::new();
        }
        for (name, error) in refused {
            let line = line(&name.display(), error);
            if self.lines.contains(&line) {
                continue;
            }
            if self.lines.len() >= MOST {
                self.unsaid += 1;
                continue;
            }
            eprintln!("{line}");
            self.lines.insert(line);
        }
    }
}

/// Says what has become of one request, or of the host itself.
pub(super) fn report(name: &(impl Display + ?Sized), what: &(impl Display + ?Sized)) {
    eprintln!("{}", line(name, what));
}

/// A guest has chosen the name, so it is escaped; an error escapes what it shows.
fn line(name: &(impl Display + ?Sized), what: &(impl Display + ?Sized)) -> String {
    format!("bridge_host: {}: {what}", name.to_string().escape_debug())
}
