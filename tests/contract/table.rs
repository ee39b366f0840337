//! The table of operations is complete: each public function of `Root` that takes a path is in a row.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use beneath_kit::operations::{NOT_OPERATIONS, OPERATIONS};
use syn::visit::Visit;

/// The public functions of a type, by the sources.
fn public_functions(of: &str) -> BTreeSet<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&src).into_iter().map(|file| fs::read_to_string(file).unwrap());
    let mut found = Found { of, functions: BTreeSet::new() };
    files.for_each(|text| found.visit_file(&syn::parse_file(&text).unwrap()));
    found.functions
}

struct Found<'a> {
    of: &'a str,
    functions: BTreeSet<String>,
}

impl<'a> Visit<'a> for Found<'_> {
    fn visit_item_impl(&mut self, block: &'a syn::ItemImpl) {
        let syn::Type::Path(of) = &*block.self_ty else { return };
        if of.path.segments.last().is_none_or(|last| last.ident != self.of) {
            return;
        }
        for item in &block.items {
            if let syn::ImplItem::Fn(function) = item
                && matches!(function.vis, syn::Visibility::Public(_))
            {
                self.functions.insert(function.sig.ident.to_string());
            }
        }
    }
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
