//! What a reader found who tried to lose a version.

use std::fs;

use beneath::tree::{Guard, MergeOptions, OnConflict, Tree, TreeLimits};
use sha2::{Digest as _, Sha256};

use crate::support::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
fn tag(text: &str) -> String {
    hex(&Sha256::digest(text)[..4])
}

#[test]
fn what_is_held_is_not_forgotten_where_its_directory_became_a_file() {
    let base = words(&[("d/a", "file:1"), ("d/b", "file:2")]);
    let mut yard = Yard::new(&base, &base, &words(&[("d", "file:theirs")]));
    let merged = yard.merge();
    assert_eq!(merged.held.len(), 2, "{merged:?}");
    let second = yard.merge();
    assert!(!second.is_complete(), "complete, but ours is {:?}", yard.words("ours"));
}

#[test]
fn a_name_that_the_merge_changes_is_no_second_name_for_ours() {
    let name = format!("a.ours-{}", tag("1"));
    let mut yard = Yard::new(
        &words(&[("a", "file:0"), (&name, "file:1")]),
        &words(&[("a", "file:1"), (&name, "file:1")]),
        &words(&[("a", "file:2"), (&name, "file:evil")]),
    );
    yard.options = MergeOptions::default().with_on_conflict(OnConflict::TakeSource);
    let merged = yard.merge();
    let ours = yard.words("ours");
    assert!(ours.values().any(|w| w == "file:1"), "ours' version is gone: {ours:?} {:?}", merged.conflicts);
}

#[test]
fn a_name_that_the_merge_changes_is_no_second_name_for_theirs() {
    let name = format!("a.theirs-{}", tag("2"));
    let mut yard = Yard::new(
        &words(&[("a", "file:0"), (&name, "file:2")]),
        &words(&[("a", "file:1"), (&name, "file:2")]),
        &words(&[("a", "file:2"), (&name, "file:other")]),
    );
    let merged = yard.merge();
    let ours = yard.words("ours");
    assert!(ours.values().any(|w| w == "file:2"), "theirs' version is gone: {ours:?} {:?}", merged.conflicts);
}

#[test]
fn a_path_without_room_for_a_second_name_does_not_stop_later_merges() {
    let mut yard = Yard::new(&words(&[]), &words(&[]), &words(&[]));
    let parts: Vec<String> = (0..15).map(|_| "x".repeat(255)).chain(["y".repeat(250)]).collect();
    let dir = parts.join("/");
    let path = format!("{dir}/a");
    for (side, text) in [("base", "0"), ("ours", "1"), ("theirs", "2")] {
        let root = yard.root(side);
        root.ensure_dir(&dir).unwrap();
        root.write_exclusive(&path, text).unwrap();
    }
    yard.base = Tree::take(&yard.root("base"), TreeLimits::default()).unwrap();
    assert!(yard.base.is_complete());
    yard.options = MergeOptions::default().with_on_conflict(OnConflict::TakeSource);
    let _ = yard.merge();
    let again = yard.try_merge();
    assert!(again.is_ok(), "every later merge fails: {:?}", again.unwrap_err().kind());
}

/// The state that a host leaves which dies after the exchange.
fn crash(yard: &Yard, lines: &[String], slots: &[(&str, &str)]) {
    let dir = yard.path("work").join("merge");
    fs::create_dir(&dir).unwrap();
    let mut text = String::from("beneath merge 1\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    let sum = hex(&Sha256::digest(&text));
    fs::write(dir.join("journal"), format!("{text}{sum}\n")).unwrap();
    for (name, content) in slots {
        fs::write(dir.join(name), content).unwrap();
    }
}
fn leaf(text: &str) -> String {
    format!("f {} {}", text.len(), hex(&Sha256::digest(text)))
}

#[test]
fn what_the_recovery_put_beside_is_reported() {
    let mut yard =
        Yard::new(&words(&[("a", "file:0")]), &words(&[("a", "file:guest2")]), &words(&[("a", "file:2")]));
    crash(&yard, &[format!("0 trash {} {} {}", hex(b"a"), leaf("0"), leaf("2"))], &[("0", "unseen")]);
    let merged = yard.merge();
    let ours = yard.words("ours");
    let place = ours.iter().find(|(_, w)| *w == "file:unseen").map(|(p, _)| p.clone()).unwrap();
    assert!(
        merged.conflicts.iter().any(|c| c.beside.as_ref().is_some_and(|b| b.as_str() == Some(&place))),
        "{place} is not in {:?}",
        merged.conflicts
    );
}

#[test]
fn names_that_the_guest_has_taken_do_not_stop_later_merges() {
    let mut yard = Yard::new(
        &words(&[("a", "file:0")]),
        &words(&[("a", "file:2"), ("b", "file:0")]),
        &words(&[("a", "file:2"), ("b", "file:new")]),
    );
    crash(&yard, &[format!("0 trash {} {} {}", hex(b"a"), leaf("0"), leaf("2"))], &[("0", "unseen")]);
    for n in 0..100 {
        let mark = if n == 0 { String::new() } else { format!("-{n}") };
        fs::write(yard.path("ours").join(format!("a.ours-{}{mark}", tag("unseen"))), "taken").unwrap();
    }
    yard.options = MergeOptions::default();
    let again = yard.try_merge();
    assert!(again.is_ok(), "every later merge fails: {:?}", again.unwrap_err().kind());
}

#[test]
fn what_the_depth_cuts_off_is_not_complete() {
    let mut yard = Yard::new(&words(&[]), &words(&[]), &words(&[("a/b/c/d", "file:1")]));
    yard.options = MergeOptions::default().with_limits(TreeLimits::default().with_depth(1));
    let merged = yard.merge();
    assert!(!merged.is_complete(), "{merged:?}");
}

#[test]
fn a_recovery_within_smaller_limits_makes_no_copies() {
    let mut yard = Yard::new(
        &words(&[("a", "file:0")]),
        &words(&[("a", "file:0")]),
        &words(&[("a", "file:theirs long")]),
    );
    crash(
        &yard,
        &[format!("0 trash {} {} {}", hex(b"a"), leaf("0"), leaf("theirs long"))],
        &[("0", "theirs long")],
    );
    yard.options = MergeOptions::default().with_limits(TreeLimits::default().with_file_bytes(4));
    let merged = yard.merge();
    assert_eq!(yard.words("ours").len(), 1, "{:?} {merged:?}", yard.words("ours"));
}

#[test]
fn what_was_held_is_taken_once_the_guard_is_off() {
    let base = words(&[("d/a", "file:1"), ("d/b", "file:2")]);
    let mut yard = Yard::new(&base, &base, &words(&[("d", "file:theirs")]));
    let _ = yard.merge();
    yard.options = MergeOptions::default().with_guard(Guard::Off);
    let _ = yard.merge();
    assert_eq!(
        yard.words("ours").get("d").map(String::as_str),
        Some("file:theirs"),
        "{:?}",
        yard.words("ours")
    );
}
