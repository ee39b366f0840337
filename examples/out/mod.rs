//! How the examples print: at most 80 columns, and quietly done when nobody reads any more.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write as _};

const COLUMNS: usize = 80;

/// Prints lines, and continues what is too long for one under its second word.
///
/// # Errors
/// Those of writing to stdout. `println!` would panic instead, for instance under `| head`.
pub(crate) fn out(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    text.to_string().lines().flat_map(wrapped).try_for_each(|line| writeln!(stdout, "{line}"))?;
    stdout.flush()
}

/// Whether a program ends because nobody reads its output any more, which is no failure of its own.
pub(crate) fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn wrapped(line: &str) -> Vec<String> {
    let words = line.trim_start();
    let margin = line.chars().count() - words.chars().count();
    // A line that begins with a word and a gap is a row of a table: it goes on in the second column.
    let hang = match words.split_once("  ") {
        Some((first, rest)) if !first.contains(' ') => {
            line.chars().count() - rest.trim_start().chars().count()
        }
        _ => margin,
    };
    let mut lines = vec![String::new()];
    for word in line.split_inclusive([' ', ',']) {
        let fits = |line: &&mut String| {
            line.trim().is_empty() || line.chars().count() + word.trim_end().chars().count() <= COLUMNS
        };
        match lines.last_mut().filter(fits) {
            Some(line) => line.push_str(word),
            None => lines.push(format!("{:hang$}{word}", "")),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}
