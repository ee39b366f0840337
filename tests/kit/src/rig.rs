//! The frame of a program that plays many rounds and ends in a table: arguments, filter, seed, table, verdict, evidence.

mod count;
mod evidence;
mod parallel;
pub mod seed;

use std::process::ExitCode;
use std::time::Instant;

pub use count::Count;
pub use evidence::{Origin, Table, file_system};
pub use parallel::in_parallel;

use crate::env;

/// A column: its title and width. Numbers are written to the right, and so are the titles of narrow columns.
pub type Column = (&'static str, usize);

/// The width of a column of numbers at the most.
const NUMBER: usize = 8;

/// One row of a table.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub cells: Vec<String>,
    /// What is wrong with it, if anything is.
    pub failures: Vec<String>,
    /// What only a verbose run prints.
    pub details: Vec<String>,
    /// Why it was not run.
    pub skipped: Option<String>,
}

impl Row {
    /// A row that could not be run.
    pub fn skipped(title: impl Into<String>, why: impl Into<String>) -> Self {
        Self { cells: vec![title.into()], skipped: Some(why.into()), ..Self::default() }
    }

    /// A row of texts and numbers.
    pub fn of<const T: usize>(texts: [&str; T], numbers: &[usize]) -> Self {
        let cells = texts.map(str::to_owned).into_iter().chain(numbers.iter().map(usize::to_string));
        Self { cells: cells.collect(), ..Self::default() }
    }

    /// What was found is a failure; but a control must be found out.
    pub fn judge(&mut self, is_control: bool, found: Vec<String>) {
        if is_control {
            self.failures.extend(found.is_empty().then(|| "was not caught".to_owned()));
            self.details.extend(found);
        } else {
            self.failures.extend(found);
        }
    }
}

/// A role that the program plays if its first argument is this: the process under attack, or a guest.
pub type Role<'a> = (&'a str, &'a dyn Fn(&[String]) -> ExitCode);

/// A run.
#[derive(Debug)]
pub struct Rig {
    name: &'static str,
    columns: &'static [Column],
    filters: Vec<String>,
    pub seed: u64,
    start: Instant,
    /// What was used to make files in, for the evidence.
    pub place: std::path::PathBuf,
    rows: Vec<Row>,
    failures: Vec<String>,
    notes: Vec<String>,
}

/// Plays the role that the arguments name, or runs the rig and ends with its verdict.
pub fn main(
    name: &'static str,
    columns: &'static [Column],
    roles: &[Role<'_>],
    body: impl FnOnce(&mut Rig),
) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let role = roles.iter().find(|(role, _)| arguments.first().is_some_and(|first| first == role));
    if let Some((_, play)) = role {
        return play(&arguments[1..]);
    }
    let mut rig = Rig::new(name, columns, arguments);
    body(&mut rig);
    rig.finish()
}

impl Rig {
    fn new(name: &'static str, columns: &'static [Column], arguments: Vec<String>) -> Self {
        let filters = arguments.into_iter().filter(|argument| !argument.starts_with('-')).collect();
        let seed = env::SEED.number().unwrap_or(1);
        if !evidence::is_bench() {
            println!("{name}: seed {seed} ({} chooses another)", env::SEED.name);
        }
        let rig = Self {
            name,
            columns,
            filters,
            seed,
            start: Instant::now(),
            place: std::env::temp_dir(),
            rows: Vec::new(),
            failures: Vec::new(),
            notes: Vec::new(),
        };
        println!("{}", rig.line(&columns.iter().map(|column| column.0.to_owned()).collect::<Vec<_>>()));
        rig
    }

    /// Whether a row with this title is asked for.
    pub fn wants(&self, title: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| title.contains(filter.as_str()))
    }

    /// Adds a row and prints it.
    pub fn add(&mut self, row: Row) {
        match &row.skipped {
            Some(why) => println!("{}: skipped: {why}", row.cells.join(" ")),
            None => println!("{}", self.line(&row.cells)),
        }
        if env::VERBOSE.is_set() {
            row.details.iter().for_each(|detail| println!("  {detail}"));
        }
        self.rows.push(row);
    }

    pub fn add_all(&mut self, rows: impl IntoIterator<Item = Row>) {
        rows.into_iter().for_each(|row| self.add(row));
    }

    /// A failure that belongs to no row.
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    /// A line under the table.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (position, (cell, (_, width))) in cells.iter().zip(self.columns).enumerate() {
            let text = cell.parse::<f64>().is_err() && (position == 0 || *width > NUMBER);
            line.push_str(&if text { format!("{cell:<width$} ") } else { format!("{cell:>width$} ") });
        }
        line.trim_end().to_owned()
    }

    fn finish(self) -> ExitCode {
        let mut failures: Vec<String> = Vec::new();
        for row in &self.rows {
            let title = row.cells.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
            failures.extend(row.failures.iter().map(|failure| format!("{title}: {failure}")));
        }
        failures.extend(self.failures.iter().cloned());
        let nothing = self.rows.is_empty() && self.failures.is_empty();
        if nothing && self.filters.is_empty() {
            failures.push("nothing was run".into());
        }
        failures.iter().take(60).for_each(|failure| println!("FAILED {failure}"));
        self.notes.iter().for_each(|note| println!("{note}"));
        // A test's name, given to all of `cargo test`, is a filter here too, so this is no failure.
        if nothing && !self.filters.is_empty() {
            println!("nothing was run: no row contains {}", self.filters.join(" or "));
        }
        let broken = self.rows.iter().filter(|row| !row.failures.is_empty()).count();
        let run = self.rows.iter().filter(|row| row.skipped.is_none()).count();
        let (passed, skipped) = (run - broken, self.rows.len() - run);
        let failed = broken + usize::from(nothing && self.filters.is_empty()) + self.failures.len();
        let seconds = self.start.elapsed().as_secs_f64();
        let result = format!("{passed} passed, {failed} failed, {skipped} skipped in {seconds:.1} s");
        println!("{result}");
        if run > 0 && (self.filters.is_empty() || env::EVIDENCE.is_set()) {
            match self.write_evidence(&failures, &result) {
                Ok(Some(path)) => println!("evidence: {}", path.display()),
                Ok(None) => println!("no evidence written: the directory that cargo builds in is not known"),
                // A read-only checkout is no reason to fail.
                Err(error) => println!("no evidence written: {error}"),
            }
        }
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// A small generator of random numbers (xorshift).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Spread, since seeds are small numbers; zero would stay zero.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub fn pick<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// So many of the choices, each as likely as any other, in their order.
    pub fn sample<T>(&mut self, choices: Vec<T>, count: usize) -> Vec<T> {
        let mut left = choices.len() as u64;
        let mut wanted = count as u64;
        let keep = |_: &T| {
            let kept = wanted > 0 && self.below(left) < wanted;
            wanted -= u64::from(kept);
            left -= 1;
            kept
        };
        choices.into_iter().filter(keep).collect()
    }
}
