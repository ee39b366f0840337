//! The README's table and its plot, made from `docs/evidence/ratios.md` and from nothing else.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{OURS, RAW};

/// How a person makes them.
pub const COMMAND: &str = "cargo bench --bench ratios -- --readme";

const BEGIN: &str = "<!-- ratios: written by `cargo bench --bench ratios -- --readme` -->\n";
const END: &str = "<!-- /ratios -->";
/// Works that are in the evidence only.
const LEFT_OUT: &[&str] = &["depth 1", "depth 8"];

/// A row of the evidence.
struct Figure<'e> {
    work: &'e str,
    place: &'e str,
    way: &'e str,
    of_plain: f64,
}

/// One work at one place, the plain way first.
type Group<'e> = Vec<Figure<'e>>;

fn groups(evidence: &str) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for line in evidence.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [work, place, way, _, _, of_plain, ..] = cells[..] else { continue };
        // The head of the table has words there.
        let Ok(of_plain) = of_plain.parse() else { continue };
        let figure = Figure { work, place, way, of_plain };
        match groups.last_mut() {
            Some(group) if (group[0].work, group[0].place) == (work, place) => group.push(figure),
            _ => groups.push(vec![figure]),
        }
    }
    // Memory once, with the mount that guests should have.
    let has_nodev = groups.iter().any(|group| group[0].place == "tmpfs nodev");
    let is_kept = |group: &Group<'_>| {
        !(LEFT_OUT.iter().any(|word| group[0].work.ends_with(word)) || has_nodev && group[0].place == "tmpfs")
    };
    groups.retain(is_kept);
    // By works: what a reader compares is one work on two file systems.
    let order: Vec<&str> = groups.iter().map(|group| group[0].work).collect();
    groups.sort_by_key(|group| order.iter().position(|work| *work == group[0].work));
    groups
}

/// A line of the table at the head of the evidence.
fn origin<'e>(evidence: &'e str, name: &str) -> &'e str {
    let start = format!("| {name} | ");
    evidence.lines().find_map(|line| line.strip_prefix(&start)?.strip_suffix(" |")).unwrap_or("unknown")
}

/// What the README says.
pub fn block(evidence: &str) -> String {
    let of = |name| origin(evidence, name);
    let commit = of("commit").chars().take_while(char::is_ascii_hexdigit).take(7).collect::<String>();
    let changed = if of("commit").ends_with("dirty") { " with changes" } else { "" };
    let mut text = format!(
        "Measured at commit {commit}{changed} on {}: {}, {}.\n\n| work | file system | raw | beneath | others |\n|---|---|--:|--:|---|\n",
        of("date"),
        of("kernel"),
        of("processor"),
    );
    for group in groups(evidence) {
        let ratio = |way: &str| {
            let found = group.iter().find(|figure| figure.way == way);
            found.map_or_else(String::new, |figure| format!("{:.2}", figure.of_plain))
        };
        let others = group[1..].iter().filter(|figure| ![RAW, OURS].contains(&figure.way));
        let others: Vec<String> = others
            .map(|figure| format!("{} {:.2}", figure.way.replace(", ", " "), figure.of_plain))
            .collect();
        let Figure { work, place, .. } = group[0];
        let (raw, ours) = (ratio(RAW), ratio(OURS));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {work} | {place} | {raw} | {ours} | {} |", others.join(", "));
    }
    text + "\n![the same figures as a plot](docs/ratios.svg)\n"
}

/// The scale of the plot, in powers of two.
const LOW: f64 = -2.0;
const HIGH: f64 = 4.0;
const LEFT: f64 = 300.0;
const WIDTH: f64 = 480.0;
const STEP: f64 = 18.0;
const TOP: f64 = 48.0;

/// The same as a picture: a mark for each way, on a scale of powers of two.
pub fn plot(evidence: &str) -> String {
    let groups = groups(evidence);
    let x = |ratio: f64| LEFT + (ratio.log2().clamp(LOW, HIGH) - LOW) / (HIGH - LOW) * WIDTH;
    let bottom = TOP + STEP * groups.len() as f64;
    let (width, height) = (LEFT + WIDTH + 20.0, bottom + 24.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"16\">time relative to the plain way (1): less is faster; hover a mark for its name</text>\n"
    );
    for (at, mark) in [(0.0, RAW), (90.0, OURS), (180.0, "others")] {
        svg.push_str(&circle(LEFT + 6.0 + at, 30.0, mark, mark));
        let _ = writeln!(svg, "<text x=\"{}\" y=\"34\">{mark}</text>", LEFT + 16.0 + at);
    }
    for power in LOW as i32..=HIGH as i32 {
        let ratio = f64::from(power).exp2();
        let (at, colour) = (x(ratio), if power == 0 { "#000" } else { "#ccc" });
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"{colour}\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{ratio}</text>",
            bottom + 16.0
        );
    }
    for (number, group) in groups.iter().enumerate() {
        let y = TOP + STEP * (number as f64 + 0.5);
        let Figure { work, place, .. } = group[0];
        let (right, down) = (LEFT - 10.0, y + 4.0);
        let _ = writeln!(svg, "<text x=\"{right}\" y=\"{down}\" text-anchor=\"end\">{work} ({place})</text>");
        // This crate is drawn last, on top of the others.
        let rank = |figure: &&Figure<'_>| {
            [RAW, OURS].iter().position(|way| *way == figure.way).map_or(0, |at| at + 1)
        };
        let mut figures: Vec<&Figure<'_>> = group[1..].iter().collect();
        figures.sort_by_key(rank);
        for Figure { way, of_plain, .. } in figures {
            svg.push_str(&circle(x(*of_plain), y, way, &format!("{way}: {of_plain:.2}")));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn circle(x: f64, y: f64, way: &str, title: &str) -> String {
    let (radius, fill, line) = match way {
        RAW => (5, "none", "#000"),
        OURS => (4, "#c2410c", "#c2410c"),
        _ => (3, "#9ca3af", "#9ca3af"),
    };
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{line}\"><title>{title}</title></circle>\n"
    )
}

/// The README and the plot as they must be according to the evidence.
pub fn made() -> io::Result<[(PathBuf, String); 2]> {
    let top = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let evidence = fs::read_to_string(top.join("docs/evidence/ratios.md"))?;
    let path = top.join("README.md");
    let readme = fs::read_to_string(&path)?;
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        return Err(io::Error::other(format!("README.md has no {} ... {END}", BEGIN.trim())));
    };
    let readme = format!("{before}{BEGIN}{}{END}{after}", block(&evidence));
    Ok([(path, readme), (top.join("docs/ratios.svg"), plot(&evidence))])
}

/// Writes them.
pub fn write() -> ExitCode {
    let written = made().and_then(|files| files.iter().try_for_each(|(path, text)| fs::write(path, text)));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("nothing written: {error}");
            ExitCode::FAILURE
        }
    }
}
