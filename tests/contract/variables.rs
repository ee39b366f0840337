//! Every environment variable is in one table, and the table is in the documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use beneath_kit::env::{OF_CHILDREN, VARIABLES};
use beneath_kit::skip;

/// The variables of this project that are named in the sources beneath a directory.
fn named_in(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        let skipped = ["target", "corpus"].iter().any(|name| path.ends_with(name));
        for entry in fs::read_dir(path).into_iter().flatten().flatten().filter(|_| !skipped) {
            named_in(&entry.path(), found);
        }
        return;
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    for (at, _) in text.match_indices("BENEATH_") {
        let name = |c: char| c.is_ascii_uppercase() || c == '_';
        found.insert(text[at..].chars().take_while(|c| name(*c)).collect());
    }
}

#[test]
fn every_variable_that_the_sources_name_is_in_the_table() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = BTreeSet::new();
    for dir in ["tests", "benches", "examples", "fuzz", ".ci"] {
        named_in(&top.join(dir), &mut named);
    }
    assert!(named.contains("BENEATH_SEED"), "the sources were not read: {named:?}");
    for name in named.iter().filter(|name| *name != "BENEATH_") {
        let of_children =
            OF_CHILDREN.iter().any(|known| name == known || known.ends_with('_') && name.starts_with(known));
        let known = VARIABLES.iter().any(|variable| variable.name == *name);
        assert!(
            known || of_children,
            "{name} is neither in VARIABLES nor in OF_CHILDREN (tests/kit/src/env.rs)"
        );
    }
}

#[test]
fn every_variable_is_explained_where_developers_look() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/HACKING.md");
    let Ok(text) = fs::read_to_string(path) else { return skip("there is no docs/HACKING.md yet") };
    let rows =
        VARIABLES.iter().map(|known| format!("| `{}` | {} | {} |", known.name, known.meaning, known.default));
    let missing: Vec<String> = rows.filter(|row| !text.contains(row)).collect();
    assert!(
        missing.is_empty(),
        "docs/HACKING.md lacks these rows of its table of variables:\n{}",
        missing.join("\n")
    );
}
