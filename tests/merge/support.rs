//! Two trees with a common past, and a directory of the host's.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use beneath::tree::{MergeOptions, Merged, Tree, TreeLimits, merge};
use beneath::{Result, Root, ambient_authority};

/// A tree in words: `file:text`, `exec:text`, `link:target` or `dir`, by path.
pub(crate) type Words = BTreeMap<String, String>;

pub(crate) fn words(entries: &[(&str, &str)]) -> Words {
    entries.iter().map(|(path, word)| ((*path).to_owned(), (*word).to_owned())).collect()
}

pub(crate) struct Yard {
    dir: tempfile::TempDir,
    pub(crate) base: Tree,
    pub(crate) options: MergeOptions,
}

impl Yard {
    pub(crate) fn new(base: &Words, ours: &Words, theirs: &Words) -> Self {
        let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
        for name in ["base", "ours", "theirs", "work", "trash"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut yard = Self { dir, base: Tree::default(), options: MergeOptions::default() };
        for (name, words) in [("base", base), ("ours", ours), ("theirs", theirs)] {
            plant(&yard.path(name), words);
        }
        yard.base = Tree::take(&yard.root("base"), TreeLimits::default()).unwrap();
        yard
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn root(&self, name: &str) -> Root {
        Root::open_ambient(self.path(name), ambient_authority()).unwrap()
    }

    pub(crate) fn try_merge(&self) -> Result<Merged> {
        let places = (&self.root("work"), &self.root("trash"));
        merge(&self.base, &self.root("theirs"), &self.root("ours"), places, &self.options)
    }

    /// Merges, and keeps the new base.
    pub(crate) fn merge(&mut self) -> Merged {
        let merged = self.try_merge().unwrap();
        self.base = merged.base.clone();
        merged
    }

    pub(crate) fn words(&self, name: &str) -> Words {
        let mut found = Words::new();
        read(&self.path(name), Path::new(""), &mut found);
        found
    }
}

fn plant(top: &Path, words: &Words) {
    for (path, word) in words {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match word.split_once(':') {
            Some(("link", target)) => symlink(target, path).unwrap(),
            Some((kind, text)) => {
                fs::write(&path, text).unwrap();
                let mode = if kind == "exec" { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            None => fs::create_dir_all(path).unwrap(),
        }
    }
}

fn read(top: &Path, below: &Path, found: &mut Words) {
    let mut empty = true;
    for entry in fs::read_dir(top.join(below)).unwrap() {
        empty = false;
        let path = below.join(entry.unwrap().file_name());
        let (whole, name) = (top.join(&path), path.to_str().unwrap().to_owned());
        let kind = fs::symlink_metadata(&whole).unwrap();
        if kind.is_dir() {
            read(top, &path, found);
        } else if kind.is_symlink() {
            found.insert(name, format!("link:{}", fs::read_link(&whole).unwrap().display()));
        } else {
            let word = if kind.permissions().mode() & 0o100 == 0 { "file" } else { "exec" };
            found.insert(name, format!("{word}:{}", fs::read_to_string(&whole).unwrap()));
        }
    }
    if empty && below != Path::new("") {
        found.insert(below.to_str().unwrap().to_owned(), "dir".to_owned());
    }
}
