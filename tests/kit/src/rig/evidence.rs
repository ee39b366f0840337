//! A table with its origin: which code, kernel, file system, seed, day and command it comes from.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Rig;
use crate::env;

/// Where a figure comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    pub commit: String,
    pub kernel: String,
    pub processor: String,
    pub file_system: String,
    pub date: String,
    pub command: String,
}

impl Origin {
    /// The origin of what this process measures at `place`.
    pub fn of(place: &Path) -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            commit: commit(),
            kernel: format!("Linux {} on {}", release.trim(), std::env::consts::ARCH),
            processor: processor(),
            file_system: file_system(place),
            date: output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_else(|| "unknown".into()),
            command: command(),
        }
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let name = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    format!("{} x {name}", std::thread::available_parallelism().map_or(1, usize::from))
}

/// Whether cargo runs this as a bench, whose rows have their own file systems and which draws no numbers.
pub(super) fn is_bench() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> String {
    let here = env!("CARGO_MANIFEST_DIR");
    let Some(commit) = output("git", &["-C", here, "rev-parse", "HEAD"]) else { return "unknown".into() };
    match output("git", &["-C", here, "status", "--porcelain"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}, dirty"),
    }
}

/// The program without its path and hash, its arguments, and the variables that were set.
fn command() -> String {
    let mut words: Vec<String> = env::VARIABLES
        .iter()
        .filter_map(|variable| Some(format!("{}={}", variable.name, variable.text()?)))
        .collect();
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let program = Path::new(&program).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    words.push(if is_bench() {
        format!("cargo bench --bench {name}")
    } else {
        format!("cargo test --test {name}")
    });
    let arguments: Vec<String> = arguments.filter(|argument| argument != "--bench").collect();
    if !arguments.is_empty() {
        words.push(format!("-- {}", arguments.join(" ")));
    }
    if !cfg!(debug_assertions) && !is_bench() {
        words.push("(release)".into());
    }
    words.join(" ")
}

/// The name of the file system at a path.
pub fn file_system(place: &Path) -> String {
    match rustix::fs::statfs(place).map(|stat| stat.f_type) {
        Ok(0xEF53) => "ext4".into(),
        Ok(0x0102_1994) => "tmpfs".into(),
        Ok(0x5846_5342) => "xfs".into(),
        Ok(0x9123_683E) => "btrfs".into(),
        Ok(0x794C_7630) => "overlayfs".into(),
        Ok(other) => format!("{other:#x}"),
        Err(error) => format!("unknown: {error}"),
    }
}

impl Rig {
    /// Writes the table; the path, or none where there is no place for it.
    pub(super) fn write_evidence(&self, failures: &[String], result: &str) -> io::Result<Option<PathBuf>> {
        let titles: Vec<&str> = self.columns.iter().map(|column| column.0).collect();
        let mut table = Table::new(self.name, &titles);
        for row in &self.rows {
            match &row.skipped {
                Some(why) => table.row(&[row.cells.join(" "), format!("skipped: {why}")]),
                None => table.row(&row.cells),
            }
        }
        self.notes.iter().chain(failures).for_each(|line| table.note(line));
        table.write(&self.place, self.seed, result)
    }
}

/// A table that becomes evidence.
#[derive(Debug)]
pub struct Table {
    name: &'static str,
    text: String,
}

impl Table {
    pub fn new(name: &'static str, titles: &[&str]) -> Self {
        Self { name, text: format!("| {} |\n|{}\n", titles.join(" | "), "---|".repeat(titles.len())) }
    }

    pub fn row(&mut self, cells: &[String]) {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    /// A line under the table.
    pub fn note(&mut self, line: &str) {
        let _ = writeln!(self.text, "\n{line}");
    }

    /// Writes it with its origin; the path, or none where there is no place for it.
    pub fn write(&self, place: &Path, seed: u64, result: &str) -> io::Result<Option<PathBuf>> {
        let Some(dir) = env::EVIDENCE.value().map(PathBuf::from).or_else(default_dir) else {
            return Ok(None);
        };
        fs::create_dir_all(&dir)?;
        let path = dir.join(format!("{}.md", self.name));
        let Origin { commit, kernel, processor, file_system, date, command } = Origin::of(place);
        let on = match is_bench() {
            true => format!("| processor | {processor} |"),
            false => format!("| file system | {file_system} |\n| seed | {seed} |"),
        };
        let (name, table) = (self.name, &self.text);
        let text = format!(
            "# {name}\n\nWritten by `{name}`; do not edit.\n\n| | |\n|---|---|\n\
             | commit | {commit} |\n| kernel | {kernel} |\n{on}\n\
             | date | {date} |\n| command | `{command}` |\n| result | {result} |\n\n{table}"
        );
        fs::write(&path, text)?;
        Ok(Some(path))
    }
}

/// `evidence` in the directory that cargo builds in.
fn default_dir() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let tagged = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    // Cargo tags only a directory that it has made itself; this program is in `<target>/<profile>/deps`.
    Some(tagged.or_else(|| program.ancestors().nth(3))?.join("evidence"))
}
