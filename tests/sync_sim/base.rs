//! The base that a host keeps, read and changed from outside.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::disk::{Name, at};

const FORMAT: &str = "beneath base 4";

/// What the base says that something is.
#[derive(Debug)]
pub(crate) enum Leaf {
    /// By its hash.
    File(String),
    Link(Vec<u8>),
    Directory,
}

/// A line of the base.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) path: Name,
    pub(crate) leaf: Leaf,
    /// None if the base has no version of it.
    pub(crate) etag: Option<String>,
}

/// What the base says of a file.
pub(crate) fn line(content: &[u8], execute: bool) -> String {
    format!("{} {} {}", if execute { "x" } else { "f" }, content.len(), hash(content))
}

/// The hash of a content, as the base has it.
pub(crate) fn hash(content: &[u8]) -> String {
    hex(Sha256::digest(content))
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Name {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The bases in the state of a host: one for each bucket that it has seen.
fn bases(host: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(host.join("state/artifacts")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().path());
    names.filter(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b"base-")).collect()
}

/// Whether a line is about a path.
fn is_file(line: &str) -> bool {
    line.split(' ').count() == 9
}

/// Everything that the bases of a host say.
pub(crate) fn read(host: &Path) -> Vec<Known> {
    let mut all = Vec::new();
    for path in bases(host) {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with(FORMAT), "the base has another format: {text}");
        for line in text.lines().filter(|line| is_file(line)) {
            let words: Vec<&str> = line.split(' ').collect();
            let etag = (words[4] != "-").then(|| words[4].to_owned());
            let leaf = match words[1] {
                "l" => Leaf::Link(unhex(words[3])),
                "d" => Leaf::Directory,
                _ => Leaf::File(words[3].to_owned()),
            };
            all.push(Known { path: unhex(words[0]), leaf, etag });
        }
    }
    all
}

/// Gives the files that `chosen` says the stamp that they have now, as if they had been looked at long after they were
/// written; returns how many. `chosen` is given the path, what the base says of it, and whether
/// there is a stamp already.
pub(crate) fn stamp(host: &Path, workspace: &Path, chosen: impl Fn(&[u8], &str, bool) -> bool) -> usize {
    let mut count = 0;
    for base in bases(host) {
        let text = fs::read_to_string(&base).unwrap();
        let body = text.trim_end().rsplit_once('\n').unwrap().0;
        let mut lines: Vec<String> = Vec::new();
        for line in body.lines() {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            if is_file(line) {
                let path = unhex(&words[0]);
                let found = fs::symlink_metadata(at(workspace, &path)).ok().filter(fs::Metadata::is_file);
                if let Some(found) = found.filter(|_| chosen(&path, &words[1..4].join(" "), words[8] != "-"))
                {
                    let time =
                        |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
                    let (modified, changed) =
                        (time(found.mtime(), found.mtime_nsec()), time(found.ctime(), found.ctime_nsec()));
                    count += 1;
                    words[8] =
                        format!("{}:{}:{}:{modified}:{changed}", found.dev(), found.ino(), found.len());
                }
            }
            lines.push(words.join(" "));
        }
        let body = lines.join("\n") + "\n";
        let sum = hex(Sha256::digest(&body));
        fs::write(base, format!("{body}{sum}\n")).unwrap();
    }
    count
}
