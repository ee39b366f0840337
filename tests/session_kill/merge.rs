//! A merge that is cut off.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use beneath::tree::{Tree, TreeLimits};
use beneath::{ResolverChoice, Root, ambient_authority};

use crate::host::*;
use crate::judge::Verdict;

/// A path, and its version in the base, in the workspace and in the other copy. Long enough to be seen half-written.
type Versions = (&'static str, Option<u8>, Option<u8>, Option<u8>);
const VERSIONS: [Versions; 6] = [
    ("theirs/changed", Some(b'a'), Some(b'a'), Some(b'b')),
    ("theirs/removed", Some(b'c'), Some(b'c'), None),
    ("theirs/new", None, None, Some(b'd')),
    ("both", Some(b'e'), Some(b'f'), Some(b'g')),
    ("ours", Some(b'h'), Some(b'i'), Some(b'h')),
    ("same", Some(b'j'), Some(b'j'), Some(b'j')),
];
const LENGTH: usize = 70_000;

pub(crate) fn prepare_merge(dir: &Path) {
    drop(session(dir, ResolverChoice::Auto));
    let sides = [dir.join(".base"), dir.join("s/guest/workspace"), dir.join(".source")];
    for (path, base, ours, theirs) in VERSIONS {
        for (side, version) in sides.iter().zip([base, ours, theirs]) {
            let Some(version) = version else { continue };
            fs::create_dir_all(side.join(path).parent().unwrap()).unwrap();
            fs::write(side.join(path), vec![version; LENGTH]).unwrap();
        }
    }
}

pub(crate) fn source(dir: &Path) -> Root {
    Root::open_ambient(dir.join(".source"), ambient_authority()).unwrap()
}

pub(crate) fn base(dir: &Path) -> Tree {
    let root = Root::open_ambient(dir.join(".base"), ambient_authority()).unwrap();
    Tree::take(&root, TreeLimits::default()).unwrap()
}

/// What the five systems do: whatever the source has changed is copied over whatever is there.
pub(crate) fn copy_over(dir: &Path) {
    let workspace = dir.join("s/guest/workspace");
    for (path, base, _, theirs) in VERSIONS.into_iter().filter(|(_, base, _, theirs)| base != theirs) {
        let path = workspace.join(path);
        if base.is_some() {
            fs::remove_file(&path).unwrap();
        }
        if let Some(theirs) = theirs {
            fs::write(path, vec![theirs; LENGTH]).unwrap();
        }
    }
}

/// Every version of the workspace is whole, in the workspace or on the host's side, and each name has a whole one.
pub(crate) fn versions_survive(dir: &Path) -> Verdict {
    let workspace = files(&dir.join("s/guest/workspace"));
    let kept: Vec<u8> = workspace.values().chain(files(&dir.join("s/host")).values()).copied().collect();
    if let Some((path, _)) = workspace.iter().find(|(_, version)| **version == 0) {
        return Err(format!("{} is torn", path.display()));
    }
    for (path, _, ours, _) in VERSIONS {
        match ours {
            Some(version) if !kept.contains(&version) => {
                return Err(format!("the version of {path} is gone"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The end that an uninterrupted merge has.
pub(crate) fn merged_once(dir: &Path) -> Verdict {
    let (beside, after): (BTreeMap<PathBuf, u8>, BTreeMap<PathBuf, u8>) =
        files(&dir.join("s/guest/workspace"))
            .into_iter()
            .partition(|(path, _)| path.to_string_lossy().starts_with("both.theirs-"));
    let expected: BTreeMap<PathBuf, u8> =
        [("theirs/changed", b'b'), ("theirs/new", b'd'), ("both", b'f'), ("ours", b'i'), ("same", b'j')]
            .map(|(path, version)| (path.into(), version))
            .into();
    match after == expected && beside.values().eq(b"g") && !dir.join("s/host/state/merge").exists() {
        true => Ok(()),
        false => Err(format!("ended as {after:?}, beside {beside:?}")),
    }
}

/// The version of each file; 0 for one that is torn.
fn files(top: &Path) -> BTreeMap<PathBuf, u8> {
    let mut found = BTreeMap::new();
    for entry in
        walkdir::WalkDir::new(top).into_iter().map(Result::unwrap).filter(|entry| entry.file_type().is_file())
    {
        let content = fs::read(entry.path()).unwrap();
        let version = content.first().copied().filter(|first| content == vec![*first; LENGTH]);
        found.insert(entry.path().strip_prefix(top).unwrap().to_path_buf(), version.unwrap_or(0));
    }
    found
}
