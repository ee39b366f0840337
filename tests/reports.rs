//! Every report has one shape, wherever it is: whoever reads one can read all.
//!
//! Read from the source. A report is a public struct with a field of `Leftovers`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use quote::ToTokens as _;
use syn::{Attribute, Fields, Item, Type, Visibility};

/// What is looked at, and lists what was not seen.
const NO_REPORTS: &[&str] = &["Tree", "Snapshot", "Listing"];
/// Those with requests in them, which nobody can have twice.
const WITH_JOBS: &[&str] = &["Polled", "Recovered"];

#[derive(Default)]
struct Report {
    must_use: bool,
    derives: BTreeSet<String>,
    functions: BTreeSet<String>,
}

fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

fn is_named(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

fn derives(attributes: &[Attribute]) -> BTreeSet<String> {
    let text: String = attributes.iter().map(|one| one.to_token_stream().to_string()).collect();
    ["Clone", "Debug", "PartialEq", "Serialize"]
        .into_iter()
        .filter(|one| text.contains(one))
        .map(String::from)
        .collect()
}

/// By name, with what is said of it in its own file.
fn reports() -> BTreeMap<String, Report> {
    let mut paths = Vec::new();
    files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut paths);
    let mut all: BTreeMap<String, Report> = BTreeMap::new();
    let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in paths {
        for item in syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap().items {
            match item {
                Item::Struct(one) if matches!(one.vis, Visibility::Public(_)) => {
                    let Fields::Named(fields) = &one.fields else { continue };
                    if fields.named.iter().any(|field| is_named(&field.ty, "Leftovers")) {
                        let report = all.entry(one.ident.to_string()).or_default();
                        report.must_use = one.attrs.iter().any(|one| one.path().is_ident("must_use"));
                        report.derives = derives(&one.attrs);
                    }
                }
                Item::Impl(one) if one.trait_.is_none() => {
                    let Type::Path(ty) = &*one.self_ty else { continue };
                    let name = ty.path.segments.last().unwrap().ident.to_string();
                    functions.entry(name).or_default().extend(one.items.into_iter().filter_map(|item| {
                        match item {
                            syn::ImplItem::Fn(function) => Some(function.sig.ident.to_string()),
                            _ => None,
                        }
                    }));
                }
                _ => {}
            }
        }
    }
    all.retain(|name, _| !NO_REPORTS.contains(&name.as_str()));
    for (name, report) in &mut all {
        report.functions = functions.remove(name).unwrap_or_default();
    }
    all
}

#[test]
fn every_report_says_whether_it_is_complete_and_what_was_refused() {
    let all = reports();
    assert!(all.len() > 15, "{:?}", all.keys());
    let mut wrong = Vec::new();
    for (name, report) in all {
        let missing: Vec<&str> =
            ["is_complete", "refused"].into_iter().filter(|one| !report.functions.contains(*one)).collect();
        let underived: Vec<&str> = ["Clone", "Debug", "PartialEq", "Serialize"]
            .into_iter()
            .filter(|one| !report.derives.contains(*one) && !WITH_JOBS.contains(&name.as_str()))
            .collect();
        if !report.must_use || !missing.is_empty() || !underived.is_empty() {
            wrong.push(format!("{name}: must_use {}, no {missing:?}, not {underived:?}", report.must_use));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
