//! What a service relies on, case by case.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use beneath::tree::{Guard, MergeOptions, OnConflict, Tree, TreeLimits, Why};
use beneath::{ErrorKind, GuestPath};

use rustix::fs::{FlockOperation, flock};

use crate::support::*;

#[test]
fn changes_of_both_sides_come_together() {
    let base =
        words(&[("a", "file:1"), ("b", "file:1"), ("c", "file:1"), ("d/e", "file:1"), ("f", "file:1")]);
    let ours =
        words(&[("a", "file:ours"), ("b", "file:1"), ("c", "file:1"), ("d/e", "file:1"), ("f", "file:1")]);
    let theirs =
        words(&[("a", "file:1"), ("b", "exec:1"), ("c", "link:b"), ("new/dir", "dir"), ("f", "file:1")]);
    let mut yard = Yard::new(&base, &ours, &theirs);
    let merged = yard.merge();
    assert!(merged.is_complete(), "{merged:?}");
    assert_eq!((merged.written, merged.removed), (3, 1));
    let expected =
        words(&[("a", "file:ours"), ("b", "exec:1"), ("c", "link:b"), ("f", "file:1"), ("new/dir", "dir")]);
    assert_eq!(yard.words("ours"), expected);
    let trash: Vec<String> = yard.words("trash").into_values().filter(|word| word == "file:1").collect();
    assert_eq!(trash.len(), 3, "what was replaced or removed is in the trash");
}

#[test]
fn names_that_linux_allows_are_merged() {
    let mut yard =
        Yard::new(&words(&[]), &words(&[]), &words(&[("aux: 1?.txt", "file:1"), ("...", "file:2")]));
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9\n");
    fs::write(yard.path("theirs").join(odd), "3").unwrap();
    assert!(yard.merge().is_complete());
    assert_eq!(fs::read(yard.path("ours").join(odd)).unwrap(), b"3");
    fs::remove_file(yard.path("ours").join(odd)).unwrap();
    assert_eq!(yard.words("ours"), words(&[("aux: 1?.txt", "file:1"), ("...", "file:2")]));
}

#[test]
fn conflict_is_settled_once_and_comes_again_only_with_a_new_version() {
    let (base, ours) = (words(&[("a.txt", "file:0")]), words(&[("a.txt", "file:ours")]));
    let mut yard = Yard::new(&base, &ours, &words(&[("a.txt", "file:theirs")]));
    let first = yard.merge();
    assert_eq!(first.conflicts.len(), 1);
    assert_eq!(first.conflicts[0].why, Why::BothChanged);
    assert!(yard.merge().is_complete());
    assert_eq!(yard.words("ours").len(), 2);

    fs::write(yard.path("theirs").join("a.txt"), "theirs again").unwrap();
    assert_eq!(yard.merge().conflicts.len(), 1);
    let found: Vec<String> = yard.words("ours").into_values().collect();
    for version in ["file:ours", "file:theirs", "file:theirs again"] {
        assert!(found.iter().any(|word| word == version), "{version} in {found:?}");
    }
}

#[test]
fn a_run_with_the_old_base_makes_no_second_copy() {
    let mut yard =
        Yard::new(&words(&[("a", "file:0")]), &words(&[("a", "file:1")]), &words(&[("a", "file:2")]));
    let base = yard.base.clone();
    for _ in 0..3 {
        yard.base = base.clone();
        assert_eq!(yard.merge().conflicts.len(), 1);
        assert_eq!(yard.words("ours").len(), 2);
    }
}

#[test]
fn without_a_base_nothing_is_removed() {
    let mut yard =
        Yard::new(&words(&[]), &words(&[("a", "file:1"), ("b", "file:1")]), &words(&[("a", "file:2")]));
    let merged = yard.merge();
    assert_eq!((merged.removed, merged.conflicts.len()), (0, 1));
    assert_eq!(yard.words("ours").len(), 3);
}

#[test]
fn an_emptied_source_empties_nothing() {
    let all: Vec<(String, String)> =
        (0..30).map(|number| (number.to_string(), format!("file:{number}"))).collect();
    let all: Words = all.into_iter().collect();
    let mut yard = Yard::new(&all, &all, &words(&[]));
    let merged = yard.merge();
    assert_eq!((merged.held.len(), merged.removed), (30, 0));
    assert!(!merged.is_complete());
    assert_eq!(yard.words("ours"), all);

    // Still held: the base has not forgotten them.
    assert_eq!(yard.merge().held.len(), 30);
    yard.options = MergeOptions::default().with_guard(Guard::Off);
    assert_eq!(yard.merge().removed, 30);
    assert_eq!(yard.words("ours"), words(&[]));
}

#[test]
fn source_in_which_nothing_is_as_it_was_replaces_nothing_unapproved() {
    let tree = |text: &str, count: u32| {
        (0..count).map(|n| (n.to_string(), format!("file:{text}{n}"))).collect::<Words>()
    };
    let before = tree("", 20);
    let mut yard = Yard::new(&before, &before, &tree("encrypted", 20));
    let merged = yard.merge();
    assert_eq!((merged.written, merged.held.len(), merged.is_complete()), (0, 20, false), "{merged:?}");
    assert_eq!(yard.words("ours"), before);

    // What would be lost is another set if ours has changed, and the same whatever comes in its place.
    let approved = MergeOptions::default().with_guard(Guard::Approved(merged.approval.unwrap()));
    let mut edited = before.clone();
    edited.insert("7".into(), "file:edited".into());
    for (ours, held, written) in [(&edited, 19, 0), (&before, 0, 20)] {
        let mut yard = Yard::new(&before, ours, &tree("encrypted twice", 20));
        yard.options = approved;
        let merged = yard.merge();
        assert_eq!((merged.held.len(), merged.written), (held, written), "{merged:?}");
    }

    // An empty file is no sign that anything is as it was; one that has only moved is.
    let empty = |mut tree: Words| {
        tree.insert("empty".into(), "file:".into());
        tree
    };
    let mut yard = Yard::new(&empty(before.clone()), &empty(before.clone()), &empty(tree("encrypted", 20)));
    assert_eq!(yard.merge().held.len(), 20);
    let mut moved = tree("formatted", 20);
    moved.insert("moved".into(), "file:3".into());
    let mut yard = Yard::new(&before, &before, &moved);
    assert_eq!(yard.merge().written, 21);
    // So few can be somebody's work.
    let mut yard = Yard::new(&tree("", 19), &tree("", 19), &tree("formatted", 19));
    assert_eq!(yard.merge().written, 19);
}

#[test]
fn what_comes_meanwhile_does_not_end_a_hold() {
    let tree = |names: &str, text: &str| {
        (0..30).map(|n| (format!("{names}{n}"), format!("file:{text}{n}"))).collect::<Words>()
    };
    let mut note = tree("", "encrypted");
    note.insert("note".into(), "file:pay".into());
    // Encrypted in place, and under other names.
    for (theirs, written) in [(note, 1), (tree("encrypted-", "encrypted"), 30)] {
        let mut yard = Yard::new(&tree("", ""), &tree("", ""), &theirs);
        let merged = yard.merge();
        assert_eq!((merged.written, merged.held.len()), (written, 30), "{merged:?}");
        // The base may have been kept as text.
        yard.base = Tree::decode(merged.base.encode()).unwrap();
        let merged = yard.merge();
        assert_eq!((merged.written, merged.held.len()), (0, 30), "{merged:?}");
        yard.base = merged.base;
        yard.options = MergeOptions::default().with_guard(Guard::Approved(merged.approval.unwrap()));
        let merged = yard.merge();
        assert!(merged.is_complete() && merged.written + merged.removed == 30, "{merged:?}");
    }
}

#[test]
fn renamed_directory_is_no_mass_removal() {
    let tree = |top: &str| (0..30).map(|n| (format!("{top}/{n}"), format!("file:{n}"))).collect::<Words>();
    let mut yard = Yard::new(&tree("photos"), &tree("photos"), &tree("photos: rome"));
    let merged = yard.merge();
    assert!(merged.is_complete(), "{merged:?}");
    assert_eq!(yard.words("ours"), tree("photos: rome"));
}

#[test]
fn what_cannot_be_read_is_neither_removed_nor_replaced() {
    let base = words(&[("d/a", "file:1"), ("d/b", "file:1"), ("e", "file:1")]);
    let mut yard = Yard::new(&base, &base, &base);
    let make_unknown = |side: &str| {
        // A second name outside: nobody may say what it is.
        fs::hard_link(yard.path(side).join("d/b"), yard.path("work").join(format!("outside-{side}")))
            .unwrap();
    };
    make_unknown("theirs");
    fs::remove_file(yard.path("theirs").join("d/a")).unwrap();
    let merged = yard.merge();
    assert_eq!(merged.refused().count(), 1);
    assert!(!merged.is_complete());
    assert_eq!(yard.words("ours"), words(&[("d/b", "file:1"), ("e", "file:1")]));

    // It can be read again, and was changed meanwhile.
    fs::remove_file(yard.path("work").join("outside-theirs")).unwrap();
    fs::write(yard.path("theirs").join("d/b"), "2").unwrap();
    assert!(yard.merge().is_complete());
    assert_eq!(yard.words("ours")["d/b"], "file:2");
}

#[test]
fn a_tree_that_was_cut_short_removes_nothing() {
    let base: Words = (0..9).map(|number| (number.to_string(), format!("file:{number}"))).collect();
    let mut yard = Yard::new(&base, &base, &words(&[("0", "file:0"), ("1", "file:1"), ("2", "file:2")]));
    yard.options = MergeOptions::default().with_limits(TreeLimits::default().with_entries(2));
    let merged = yard.merge();
    assert_eq!(merged.removed, 0);
    assert!(!merged.is_complete());
    assert_eq!(yard.words("ours"), base);
}

#[test]
fn changed_files_stay_where_their_directory_became_a_file() {
    let (base, theirs) = (words(&[("d/a", "file:1"), ("d/b", "file:1")]), words(&[("d", "file:theirs")]));
    let mut yard = Yard::new(&base, &words(&[("d/a", "file:mine"), ("d/b", "file:1")]), &theirs);
    yard.options = MergeOptions::default().with_guard(Guard::Off);
    let merged = yard.merge();
    assert!(!merged.is_complete());
    let after = yard.words("ours");
    assert_eq!(after["d/a"], "file:mine");
    assert!(after.values().any(|word| word == "file:theirs"), "{after:?}");
}

#[test]
fn nothing_leaves_through_a_link_in_place_of_a_directory() {
    let mut yard = Yard::new(&words(&[]), &words(&[]), &words(&[("d/key", "file:theirs")]));
    let outside = yard.path("base");
    std::os::unix::fs::symlink(&outside, yard.path("ours").join("d")).unwrap();
    let merged = yard.merge();
    assert_eq!(merged.conflicts.len(), 1, "{merged:?}");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    let beside = merged.conflicts[0].beside.as_ref().unwrap();
    assert_eq!(fs::read_link(yard.path("ours").join(beside)).unwrap(), yard.path("base"));
    fs::remove_file(yard.path("ours").join(beside)).unwrap();
    assert_eq!(yard.words("ours"), words(&[("d/key", "file:theirs")]));
}

#[test]
fn one_merge_at_a_time() {
    let yard = Yard::new(&words(&[]), &words(&[]), &words(&[("a", "file:1")]));
    fs::write(yard.path("work").join("merge.lock"), "").unwrap();
    let lock = fs::File::open(yard.path("work").join("merge.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    assert_eq!(yard.try_merge().unwrap_err().kind(), ErrorKind::Busy);
    drop(lock);
    assert!(yard.try_merge().unwrap().is_complete());
}

#[test]
fn journal_of_another_version_stops_the_merge_and_is_kept() {
    let yard = Yard::new(&words(&[]), &words(&[]), &words(&[("a", "file:1")]));
    fs::create_dir(yard.path("work").join("merge")).unwrap();
    fs::write(yard.path("work").join("merge/journal"), "beneath merge 9\n").unwrap();
    fs::write(yard.path("work").join("merge/0"), "somebody's work").unwrap();
    assert_eq!(yard.try_merge().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(fs::read(yard.path("work").join("merge/0")).unwrap(), b"somebody's work");
}

#[test]
fn base_that_was_cut_or_changed_is_none() {
    let yard =
        Yard::new(&words(&[("a b", "file:1"), ("l", "link:\u{1}"), ("d", "dir")]), &words(&[]), &words(&[]));
    let text = yard.base.encode();
    assert_eq!(Tree::decode(&text).unwrap(), yard.base);
    for end in 0..text.len() {
        assert!(Tree::decode(&text[..end]).is_err(), "cut at {end}");
    }
    let changed = text.replacen("f 1", "f 2", 1);
    assert_ne!(changed, text);
    assert!(Tree::decode(changed).is_err());
}

#[test]
fn source_wins_the_name_and_destroys_nothing() {
    let mut yard =
        Yard::new(&words(&[("a", "file:0")]), &words(&[("a", "file:1")]), &words(&[("a", "file:2")]));
    yard.options = MergeOptions::default().with_on_conflict(OnConflict::TakeSource);
    let merged = yard.merge();
    let beside = merged.conflicts[0].beside.clone().unwrap();
    let after = yard.words("ours");
    assert_eq!((after["a"].as_str(), after[beside.as_str().unwrap()].as_str()), ("file:2", "file:1"));
    assert!(beside.starts_with(&GuestPath::top()) && beside.as_str().unwrap().starts_with("a.ours-"));
}

#[test]
fn a_directory_that_was_emptied_there_is_empty_here() {
    let base = words(&[("d/a", "file:1"), ("e", "file:1")]);
    let mut yard = Yard::new(&base, &base, &words(&[("d", "dir"), ("e", "file:1")]));
    assert!(yard.merge().is_complete());
    assert_eq!(yard.words("ours"), words(&[("d", "dir"), ("e", "file:1")]));
}

#[test]
fn a_file_gives_way_to_a_directory_even_if_its_copy_is_beside() {
    let (base, ours) = (words(&[]), words(&[("d", "file:1"), ("d.ours-6b86b273", "file:1")]));
    let mut yard = Yard::new(&base, &ours, &words(&[("d/a", "file:2")]));
    let merged = yard.merge();
    assert!(merged.left.is_empty(), "{merged:?}");
    let expected = [("d.ours-6b86b273", "file:1"), ("d.ours-6b86b273-1", "file:1"), ("d/a", "file:2")];
    assert_eq!(yard.words("ours"), words(&expected));
}
