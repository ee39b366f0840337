//! Runs the resolution corpus: one small tree, one call and one verdict per line.
//!
//! `$ROOT` and `$OUT` in link texts mean absolute paths and missing parents are made. `expect` holds for the
//! default policy and `expect_follow` where links are followed; `either` takes any verdict of the matching `*_of`;
//! `survive` names what must still be there; a `*_hex` field wins over the plain one. `refused` is any kind but
//! `NotFound`, `AlreadyExists` and `Io`. Whatever the verdict, nothing outside changes and nothing blocks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use beneath::{ErrorKind, Links, Policy, ResolverChoice, Result, Root, WalkLimits};
use beneath_kit::watchdog::finishes;
use beneath_kit::{Arena, resolvers, skip, tree};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

/// Long enough for three thousand levels on a slow disk, far too short for a FIFO.
const PATIENCE: Duration = Duration::from_secs(20);

const CORPORA: [(&str, &str); 2] = [
    ("resolve_cases", include_str!("corpus/resolve_cases.jsonl")),
    ("resolve_more", include_str!("corpus/resolve_more.jsonl")),
];

fn cases() -> impl Iterator<Item = Value> {
    CORPORA.into_iter().flat_map(|(name, text)| {
        text.lines().enumerate().map(move |(line, text)| {
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}:{}: {error}", line + 1))
        })
    })
}

/// A field as bytes: its `_hex` twin if there is one.
fn bytes(object: &Value, field: &str) -> Option<PathBuf> {
    let raw = match object.get(format!("{field}_hex")) {
        Some(hex) => {
            let hex = hex.as_str().unwrap();
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        }
        None => object.get(field)?.as_str().unwrap().as_bytes().to_vec(),
    };
    Some(OsString::from_vec(raw).into())
}

/// Builds the case's tree; false if this user or file system cannot.
fn build(arena: &Arena, case: &Value) -> bool {
    for entry in case["tree"].as_array().unwrap() {
        let path = bytes(entry, "p").unwrap();
        match entry["t"].as_str().unwrap() {
            "file" => _ = arena.file(&path, "content"),
            "dir" if path.as_os_str().len() > 4000 => {
                // Deeper than one path can say: all levels of the corpus's deep trees have one name.
                let levels = path.components().count();
                let name = path.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
                let top = std::fs::File::open(arena.root()).unwrap();
                drop(tree::deep(top, &name, u32::try_from(levels).unwrap()));
            }
            "dir" => _ = arena.dir(&path),
            "fifo" => _ = arena.fifo(&path),
            "socket" => _ = arena.socket(&path),
            "hardlink" => _ = arena.hard_link(&path, arena.at(bytes(entry, "to").unwrap())),
            "symlink" => {
                let to = entry["to"].as_str().unwrap();
                let to = to.replace("$ROOT", arena.root().to_str().unwrap());
                _ = arena.link(&path, to.replace("$OUT", arena.outside().to_str().unwrap()));
            }
            "char" if !arena.device(&path, rustix::fs::FileType::CharacterDevice, 1, 5) => return false,
            "char" => {}
            other => panic!("unknown entry type {other}"),
        }
        if let Some(mode) = entry.get("mode") {
            arena.mode(&path, u32::from_str_radix(mode.as_str().unwrap(), 8).unwrap());
        }
    }
    true
}

fn act(root: &Root, case: &Value) -> Result<()> {
    let path = bytes(case, "path").unwrap();
    match case["op"].as_str().unwrap() {
        "read" => root.read_contained(path, 1 << 20).map(drop),
        "write_exclusive" => root.write_exclusive(path, "new"),
        "replace" => root.replace(path, "new"),
        "mkdir_all" => root.ensure_dir(path).map(drop),
        "list" => root.list(path)?.try_for_each(|entry| entry.map(drop)),
        "walk" => root.walk(path, WalkLimits::default())?.try_for_each(|entry| entry.map(drop)),
        "metadata" => root.metadata(path).map(drop),
        "descend" => root.descend(path).map(drop),
        "rename" => root.rename(path, bytes(case, "path2").unwrap()),
        "remove_file" => root.remove_file(path),
        "remove_tree" => {
            root.remove_tree_contained(path).map(|removed| assert!(removed.is_complete(), "{removed:?}"))
        }
        other => panic!("unknown operation {other}"),
    }
}

fn verdict(outcome: &Result<()>) -> &'static str {
    match outcome.as_ref().map_err(|error| error.kind()) {
        Ok(()) => "ok",
        Err(ErrorKind::NotFound) => "notfound",
        Err(ErrorKind::AlreadyExists) => "exists",
        Err(ErrorKind::Io) => "io",
        Err(_) => "refused",
    }
}

fn run(case: &Value, links: Links, choice: ResolverChoice) {
    let id = case["id"].as_str().unwrap();
    // Once on the disk's file system, otherwise in memory.
    let on_disk = (links, choice) == (Links::Refuse, ResolverChoice::Openat2);
    let arena = if on_disk { Arena::new() } else { Arena::quick() };
    if !build(&arena, case) {
        return skip(&format!("{id}: needs privileges"));
    }
    let root = arena.open(Policy::default().with_links(links).with_resolver(choice));
    let cannot_follow = links == Links::FollowBeneath && root.resolver() == beneath::Resolver::Walk;
    let shared = case.clone();
    let outcome = finishes(PATIENCE, move || act(&root, &shared)).unwrap_or_else(|| panic!("{id}: blocked"));
    let label = format!("{id} with {choice:?} and {links:?}: {outcome:?}");
    if cannot_follow {
        let kind = outcome.unwrap_err().kind();
        assert!(
            matches!(kind, ErrorKind::Unsupported | ErrorKind::InvalidPath | ErrorKind::Escape),
            "{label}"
        );
        return;
    }
    let field = match links {
        Links::Refuse => "expect",
        _ => "expect_follow",
    };
    let got = verdict(&outcome);
    match case[field].as_str().unwrap() {
        "either" => {
            let of = case[format!("{field}_of")].as_array().unwrap();
            assert!(of.iter().any(|one| one == got), "{label}: not one of {of:?}");
        }
        expected => assert_eq!(got, expected, "{label}"),
    }
    if let Some(exact) = case.get("kind").filter(|_| links == Links::Refuse) {
        let kind = outcome.as_ref().map_err(|error| error.kind());
        assert_eq!(format!("{:?}", kind.unwrap_err()), exact.as_str().unwrap(), "{label}");
    }
    for name in case.get("survive").into_iter().flat_map(|names| names.as_array().unwrap()) {
        assert!(arena.has(name.as_str().unwrap()), "{label}: {name} is gone");
    }
    if got == "ok" && case["op"] == "remove_tree" && links == Links::Refuse {
        assert!(!arena.has(bytes(case, "path").unwrap()), "{label}: still there");
    }
    arena.verify();
}

fn run_all(links: Links) {
    // The usual limit, whatever this machine allows.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(1024), maximum }).unwrap();
    let (mut count, mut failed) = (0, Vec::new());
    for choice in resolvers() {
        for case in cases() {
            // One wrong case must not hide the next.
            if std::panic::catch_unwind(|| run(&case, links, choice)).is_err() {
                failed.push(format!("{choice:?} {}", case["id"]));
            }
            count += 1;
        }
    }
    assert!(failed.is_empty(), "of {count} cases failed: {failed:#?}");
    assert!(count > 2 * 200, "only {count} cases");
}

#[test]
fn refusing_links() {
    run_all(Links::Refuse);
}

#[test]
fn following_links_beneath() {
    run_all(Links::FollowBeneath);
}

#[test]
fn ids_are_unique() {
    let mut seen = std::collections::BTreeSet::new();
    for case in cases() {
        assert!(seen.insert(case["id"].as_str().unwrap().to_owned()), "{} twice", case["id"]);
    }
}

#[test]
fn corpus_passes_where_the_kernel_has_no_openat2() {
    beneath_kit::seccomp::rerun_without_openat2(Errno::NOSYS, &["corpus_passes_where"]);
}

#[test]
fn corpus_passes_where_a_profile_forbids_openat2() {
    beneath_kit::seccomp::rerun_without_openat2(Errno::PERM, &["corpus_passes_where"]);
}
