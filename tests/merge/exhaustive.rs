//! Every small case, on the real code.
//!
//! The oracle is survival: every version that a side had is in the target afterwards, under some name, or the other side has
//! removed or replaced it knowingly, which means that the base had that very version at that very path. Then it is in the trash.

use beneath::tree::{Guard, MergeOptions, OnConflict};

use crate::support::*;

/// What one tree may have: names that sort on both sides of `t/`, a file in place of a directory, a link, an empty directory.
fn shapes() -> Vec<Words> {
    [
        &[][..],
        &[("t", "file:1")],
        &[("t", "file:2")],
        &[("t", "exec:1")],
        &[("t", "link:x")],
        &[("t", "dir")],
        &[("t/a", "file:1")],
        &[("t/a", "file:2")],
        &[("t/a", "file:1"), ("t/b", "file:3")],
        &[("t-1", "file:1"), ("t/a/b", "file:2")],
    ]
    .into_iter()
    .map(words)
    .collect()
}

const POLICIES: [OnConflict; 4] =
    [OnConflict::KeepBoth, OnConflict::KeepTarget, OnConflict::TakeSource, OnConflict::Fail];

#[test]
fn no_version_is_lost_in_any_small_case() {
    let shapes = shapes();
    let (mut cases, mut conflicts) = (0, 0);
    for base in &shapes {
        for ours in &shapes {
            for theirs in &shapes {
                for policy in POLICIES {
                    conflicts += usize::from(judge(base, ours, theirs, policy));
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, shapes.len().pow(3) * POLICIES.len());
    assert!(conflicts > cases / 10, "{conflicts} of {cases} cases had a conflict");
}

/// Whether there was a conflict.
fn judge(base: &Words, ours: &Words, theirs: &Words, policy: OnConflict) -> bool {
    let mut yard = Yard::new(base, ours, theirs);
    yard.options = MergeOptions::default().with_on_conflict(policy).with_guard(Guard::Off);
    let merged = yard.merge();
    let after = yard.words("ours");
    let case =
        format!("{policy:?}: base {base:?}, ours {ours:?}, theirs {theirs:?} gave {after:?}, {merged:?}");

    assert!(merged.left.is_empty() && merged.held.is_empty(), "{case}");
    assert_eq!(yard.words("theirs"), *theirs, "{case}");
    if policy == OnConflict::Fail && !merged.conflicts.is_empty() {
        assert_eq!(after, *ours, "{case}");
        return true;
    }
    let survives = |word: &String| word == "dir" || after.values().any(|kept| kept == word);
    for (path, word) in ours {
        let knowingly = base.get(path) == Some(word) && theirs.get(path) != Some(word);
        assert!(survives(word) || knowingly, "ours at {path}: {case}");
    }
    for (path, word) in theirs {
        let knowingly = base.get(path) == Some(word) && ours.get(path) != Some(word);
        assert!(survives(word) || knowingly || policy == OnConflict::KeepTarget, "theirs at {path}: {case}");
    }
    if merged.conflicts.is_empty() {
        for path in ours.keys().chain(theirs.keys()).chain(after.keys()) {
            let [was, here, there, now] = [base, ours, theirs, &after].map(|tree| state(tree, path));
            let expected = if there == was { &here } else { &there };
            // A directory that is empty on one side, and filled or gone on the other, may stay or go.
            let is_directory = [&was, &here].contains(&&Some("dir".to_owned())) && there != was;
            assert!(now == *expected || is_directory, "{path}: {case}");
        }
    }
    for conflict in &merged.conflicts {
        if let Some(beside) = &conflict.beside {
            let beside = beside.as_str().unwrap();
            let is_there = after.keys().any(|path| path == beside || path.starts_with(&format!("{beside}/")));
            assert!(is_there, "{beside}: {case}");
        }
    }
    let again = yard.merge();
    assert!(again.is_complete() && (again.written, again.removed) == (0, 0), "again {again:?}: {case}");
    assert_eq!(yard.words("ours"), after, "{case}");
    assert!(yard.words("work").keys().all(|path| path == "merge.lock"), "{case}");
    !merged.conflicts.is_empty()
}

/// What a tree has at a path; a directory is `dir`, empty or not.
fn state(tree: &Words, path: &str) -> Option<String> {
    let is_directory = tree.keys().any(|other| other.starts_with(&format!("{path}/")));
    tree.get(path).cloned().or_else(|| is_directory.then(|| "dir".to_owned()))
}

/// The rule of those who copy whatever the source has changed over whatever is there.
#[test]
fn copying_over_is_caught_by_the_same_oracle() {
    let shapes = shapes();
    let lost = shapes.iter().flat_map(|base| shapes.iter().map(move |ours| (base, ours)));
    let lost = lost.flat_map(|pair| shapes.iter().map(move |theirs| (pair, theirs)));
    let lost = lost.filter(|((base, ours), theirs)| {
        let mut after = (*ours).clone();
        for (path, word) in *theirs {
            if base.get(path) != Some(word) {
                after.retain(|other, _| other != path && !other.starts_with(&format!("{path}/")));
                after.insert(path.clone(), word.clone());
            }
        }
        let survives = |word: &String| word == "dir" || after.values().any(|kept| kept == word);
        ours.iter().any(|(path, word)| base.get(path) != Some(word) && !survives(word))
    });
    assert!(lost.count() > 50);
}
