//! What the documents name is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The words in backquotes of the last column of each row.
fn shown_by(document: &str) -> Vec<(&str, Vec<&str>)> {
    let rows = document.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| {
        let column = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        (row, column.split('`').skip(1).step_by(2).collect())
    })
    .collect()
}

#[test]
fn every_test_that_a_document_names_is_in_the_sources() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut functions = BTreeSet::new();
    let files: Vec<PathBuf> = ["tests", "src"].iter().flat_map(|dir| sources(&top.join(dir))).collect();
    for file in &files {
        let text = fs::read_to_string(file).unwrap_or_default();
        let named = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        functions.extend(named.map(str::to_owned));
    }
    for name in ["docs/upstream.md", "docs/attacks.md"] {
        let document = fs::read_to_string(top.join(name)).unwrap();
        let rows = shown_by(&document);
        assert!(rows.len() > 10, "{name} was not read");
        for (row, words) in rows {
            let is_test = |word: &&&str| {
                word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
                    && word.matches('_').count() > 1
            };
            for test in words.iter().filter(is_test) {
                assert!(functions.contains(*test), "{name}: there is no test {test}");
            }
            let file = |word: &&&str| word.ends_with(".rs") || word.starts_with("tests/");
            for file in words.iter().filter(file) {
                let found = top.join(file).exists() || files.iter().any(|path| path.ends_with(file));
                assert!(found, "{name}: there is no file {file}");
            }
            let stays = row.contains("| Stays: ");
            assert!(
                !words.is_empty() || stays || name != "docs/upstream.md",
                "{name}: nothing shows {row:.60}"
            );
        }
    }
}
