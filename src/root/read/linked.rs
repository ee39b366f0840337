//! Files with several names, all of them in one tree.
//!
//! Problem: build tools and package managers give one file several names. A host's file that a guest has linked looks the same.
//!
//! Defence: one walk finds the names that each file has in the tree, and [`family`](super::single::family) proves that there is no
//! other.
//!
//! What remains: names that come after the walk are not known, and the file is refused.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use super::single::family::MOST_NAMES;
use super::single::patience;
use crate::error::{Error, ErrorKind, Result};
use crate::root::{ContainedFile, HardLinks, Root, WalkLimits};

/// How many bytes of names are remembered.
const REMEMBERED: usize = 16 << 20;
const OPERATION: &str = "read";

/// A file by its device and its number there.
type Inode = (u64, u64);

/// The names of all files of a tree that have several; looked for when the first is asked for.
#[derive(Debug)]
pub(crate) struct Linked {
    limits: WalkLimits,
    names: Option<HashMap<Inode, Vec<PathBuf>>>,
}

impl Linked {
    pub(crate) fn new(limits: WalkLimits) -> Self {
        Self { limits, names: None }
    }

    /// Opens the file at `path` in `tree`; also one that has several names, if all of them are there.
    #[cfg(feature = "artifacts")]
    pub(crate) fn open(&mut self, tree: &Root, path: &Path) -> Result<ContainedFile> {
        match tree.open_contained(path) {
            Err(error) if error.kind() == ErrorKind::HardLinked => self.open_linked(tree, tree, path),
            file => file,
        }
    }

    /// Opens a file of `tree` with several names, which has the name `path` in the directory `dir`.
    pub(in crate::root) fn open_linked(
        &mut self,
        tree: &Root,
        dir: &Root,
        path: &Path,
    ) -> Result<ContainedFile> {
        let refused = || Error::new(OPERATION, path, ErrorKind::HardLinked);
        let policy = dir.policy.clone().with_hard_links(HardLinks::Allow);
        let file = dir.try_clone()?.with_policy(policy).open_contained(path)?;
        let inode = (file.metadata().dev(), file.metadata().ino());
        let names = self.names.get_or_insert_with(|| find(tree, self.limits));
        let names = names.get(&inode).ok_or_else(refused)?;
        // Whatever stops the proof, the file is not known to be the guest's own.
        match tree.prove_family(OPERATION, file.as_fd(), names, patience()) {
            Ok(true) => Ok(file),
            Ok(false) | Err(_) => Err(refused()),
        }
    }
}

/// The names of all files of the tree that have several, as far as they can be remembered.
fn find(tree: &Root, limits: WalkLimits) -> HashMap<Inode, Vec<PathBuf>> {
    let mut linked: HashMap<Inode, Vec<PathBuf>> = HashMap::new();
    let mut room = REMEMBERED;
    for entry in tree.walk(".", limits).into_iter().flatten().flatten() {
        let metadata = entry.metadata();
        let several = metadata.is_file() && (2..=MOST_NAMES as u64).contains(&metadata.nlink());
        if several && let Some(rest) = room.checked_sub(entry.path().as_os_str().len()) {
            room = rest;
            linked.entry((metadata.dev(), metadata.ino())).or_default().push(entry.into_path());
        }
    }
    linked
}
