//! The table of operations is complete: each public function of `Root` that takes a path is in a row.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use beneath_kit::operations::{NOT_OPERATIONS, OPERATIONS};

/// The public functions of a type, by the text of the sources.
fn public_functions(of: &str) -> BTreeSet<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    for file in sources(&src) {
        let text = fs::read_to_string(file).unwrap();
        let mut inside = false;
        for line in text.lines() {
            match line.trim_end() {
                line if line == format!("impl {of} {{") => inside = true,
                "}" => inside = false,
                line if inside => {
                    let function =
                        line.strip_prefix("    pub fn ").and_then(|rest| rest.split(['(', '<']).next());
                    found.extend(function.map(str::to_owned));
                }
                _ => {}
            }
        }
    }
    found
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn every_public_function_of_root_is_a_row_or_is_left_out_with_a_reason() {
    let in_table: BTreeSet<&str> = OPERATIONS.iter().filter_map(|row| row.name.split(", ").next()).collect();
    let left_out: BTreeSet<&str> = NOT_OPERATIONS.iter().map(|(name, _)| *name).collect();
    let public = public_functions("Root");
    assert!(public.contains("read_contained"), "the sources were not understood: {public:?}");
    for function in &public {
        assert!(
            in_table.contains(&**function) != left_out.contains(&**function),
            "Root::{function} is in OPERATIONS and in NOT_OPERATIONS, or in neither (tests/kit/src/operations.rs)"
        );
    }
    for known in in_table.iter().chain(&left_out) {
        assert!(public.contains(*known), "Root::{known} is in the table and not in the sources");
    }
}

#[test]
fn every_way_to_commit_is_a_row() {
    let commits = public_functions("NewFile");
    for function in commits.iter().filter(|function| function.starts_with("commit")) {
        assert!(OPERATIONS.iter().any(|row| row.calls(function)), "NewFile::{function} is in no row");
    }
    assert!(commits.contains("commit_as"), "the sources were not understood: {commits:?}");
}

#[test]
fn every_row_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = OPERATIONS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), OPERATIONS.len());
}
