//! Every operation that takes a path, as a value, for tables that run all of them.

use std::io::Write as _;
use std::path::Path;

use beneath::{Budget, Result, Root, WalkLimits};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Open,
    Write,
    NewFile,
    Replace,
    EnsureDir,
    Descend,
    List,
    Walk,
    Metadata,
    RenameFrom,
    RenameTo,
    RemoveFile,
    RemoveTree,
    RemoveTreeWithin,
}

/// What [`Op::RenameTo`] moves and [`Op::RenameFrom`] moves to.
pub(crate) const RENAME_SOURCE: &str = "rename-source";
pub(crate) const RENAME_TARGET: &str = "rename-target";

impl Op {
    pub(crate) const ALL: [Self; 15] = [
        Self::Read,
        Self::Open,
        Self::Write,
        Self::NewFile,
        Self::Replace,
        Self::EnsureDir,
        Self::Descend,
        Self::List,
        Self::Walk,
        Self::Metadata,
        Self::RenameFrom,
        Self::RenameTo,
        Self::RemoveFile,
        Self::RemoveTree,
        Self::RemoveTreeWithin,
    ];

    /// The operations that mean a file and so take no trailing slash.
    pub(crate) const ON_FILES: [Self; 6] =
        [Self::Read, Self::Open, Self::Write, Self::NewFile, Self::Replace, Self::RemoveFile];

    /// The operations that mean a directory.
    pub(crate) const ON_DIRECTORIES: [Self; 6] =
        [Self::EnsureDir, Self::Descend, Self::List, Self::Walk, Self::RemoveTree, Self::RemoveTreeWithin];

    /// The operations for which the whole path may be `.`.
    pub(crate) const ON_DOT: [Self; 4] = [Self::Descend, Self::List, Self::Walk, Self::Metadata];

    /// Runs the operation to its end.
    pub(crate) fn run(self, root: &Root, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self {
            Self::Read => root.read_contained(path, 1 << 20).map(drop),
            Self::Open => root.open_contained(path).map(drop),
            Self::Write => root.write_exclusive(path, "new"),
            Self::NewFile => {
                let mut file = root.new_file(path)?;
                file.write_all(b"new").unwrap();
                file.commit()
            }
            Self::Replace => root.replace(path, "new"),
            Self::EnsureDir => root.ensure_dir(path).map(drop),
            Self::Descend => root.descend(path).map(drop),
            Self::List => root.list(path)?.try_for_each(|entry| entry.map(drop)),
            Self::Walk => root.walk(path, WalkLimits::default())?.try_for_each(|entry| entry.map(drop)),
            Self::Metadata => root.metadata(path).map(drop),
            Self::RenameFrom => root.rename(path, RENAME_TARGET),
            Self::RenameTo => root.rename(RENAME_SOURCE, path),
            Self::RemoveFile => root.remove_file(path),
            Self::RemoveTree => root.remove_tree_contained(path).map(drop),
            Self::RemoveTreeWithin => root.remove_tree_contained_within(path, Budget::default()).map(drop),
        }
    }
}
