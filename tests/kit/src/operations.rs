//! Every operation of [`Root`], one row each.
//!
//! The contract runs the rows on hostile paths, `step` and `faults` stop and starve them, `syscalls` traces them, `race`
//! and the fuzz targets call them while a guest is at work. A new operation is a new row here, and a test compares the
//! rows with the public functions of `Root`.

use std::io::{Read as _, Write as _};
use std::path::Path;

use beneath::{Access, Budget, Execute, NewFile, Result, Root, WalkLimits};

use crate::naive::{self, Naive};

/// What a call is meant to do, and so what may be different afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changes.
    Reads,
    /// A file with the data appears at the path.
    Creates,
    /// A file with the data takes the place of what is at the path.
    Replaces,
    /// Directories appear at the path.
    MakesDirectories,
    /// What is at the path gets another name.
    MovesAway,
    /// Something else gets the path as its name.
    MovesHere,
    /// The entry at the path goes.
    RemovesEntry,
    /// What is at the path gets [`ACCESS`].
    SetsAccess,
    /// The directory at the path goes, with everything in it.
    RemovesTree,
}

/// What a path may mean to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A file, so no trailing slash.
    File,
    /// A directory.
    Directory,
    Entry,
}

/// What is at the path when an operation is to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    Absent,
    File,
    EmptyDirectory,
    /// With files, directories, a link and a FIFO in it.
    Directory,
}

/// One operation.
pub struct Operation {
    /// The function of `Root`, and after a comma what is done with its result or which end of it the path is.
    pub name: &'static str,
    pub on: On,
    /// Whether the path may be `.`, the root itself.
    pub takes_dot: bool,
    pub leaf: Leaf,
    pub effect: Effect,
    /// Reads a file's content, which is done differently where device nodes are dead.
    pub opens_files: bool,
    pub run: fn(&Task<'_>) -> Result<Success>,
    /// The same done by path: look at it, approve it, use it. Every rig must catch it.
    pub naive: Naive,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What an operation works with.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    pub root: &'a Root,
    pub path: &'a Path,
    /// What is written.
    pub data: &'a [u8],
    /// The host's own directory: where a rename between roots leads, and the quarantine.
    pub host: &'a Root,
    /// The other end of a rename.
    pub other: &'a Path,
}

/// What a call that succeeded returned, in a form that can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    pub data: Option<String>,
    /// Paths and inodes.
    pub entries: Vec<(String, u64)>,
    pub incomplete: bool,
    /// What else it returned: the type of an entry, what was made, what was counted.
    pub said: Option<String>,
}

impl Success {
    pub fn read(bytes: &[u8]) -> Self {
        Self { data: Some(String::from_utf8_lossy(bytes).into_owned()), ..Self::default() }
    }

    fn removed(removed: &beneath::Removed) -> Self {
        let said = Self::counted(removed.directories, removed.files);
        Self { incomplete: !removed.is_complete(), said: Some(said), ..Self::default() }
    }

    /// What a removal says of so many entries.
    pub fn counted(directories: u64, files: u64) -> String {
        format!("{directories} directories, {files} files")
    }

    fn found(path: &Path, ino: u64) -> Self {
        Self { entries: vec![(path.to_string_lossy().into_owned(), ino)], ..Self::default() }
    }
}

/// What [`Operation::run_on`] moves to the path, and what it moves the path to.
pub const RENAME_SOURCE: &str = "rename-source";
pub const RENAME_TARGET: &str = "rename-target";

/// Modes that nothing in a test has by itself.
pub const ACCESS: Access = Access::custom(0o640, 0o750);

/// More than any test has in a file.
pub const MOST: u64 = 1 << 20;

const fn row(
    name: &'static str,
    leaf: Leaf,
    effect: Effect,
    naive: Naive,
    run: fn(&Task<'_>) -> Result<Success>,
) -> Operation {
    let on = match (effect, leaf) {
        (Effect::SetsAccess | Effect::MovesAway | Effect::MovesHere, _) => On::Entry,
        (Effect::MakesDirectories, _) | (_, Leaf::Directory | Leaf::EmptyDirectory) => On::Directory,
        _ => On::File,
    };
    Operation { name, on, takes_dot: false, leaf, effect, opens_files: false, run, naive }
}

impl Operation {
    const fn on(self, on: On) -> Self {
        Self { on, ..self }
    }

    const fn takes_dot(self) -> Self {
        Self { takes_dot: true, ..self }
    }

    const fn opens_files(self) -> Self {
        Self { opens_files: true, ..self }
    }

    /// Whether it goes through this function.
    pub fn calls(&self, function: &str) -> bool {
        self.name.split(", ").any(|called| called == function)
    }

    /// Runs the operation on a root that is its own other end.
    pub fn run_on(&self, root: &Root, path: impl AsRef<Path>) -> Result<Success> {
        let other = if self.effect == Effect::MovesHere { RENAME_SOURCE } else { RENAME_TARGET };
        (self.run)(&Task { root, path: path.as_ref(), data: b"new", host: root, other: Path::new(other) })
    }
}

pub const OPERATIONS: &[Operation] = &[
    row("read_contained", Leaf::File, Effect::Reads, naive::read, |task| {
        task.root.read_contained(task.path, MOST).map(|bytes| Success::read(&bytes))
    })
    .opens_files(),
    row("open_contained", Leaf::File, Effect::Reads, naive::read, |task| {
        let mut file = task.root.open_contained(task.path)?;
        let mut bytes = vec![0; 4000];
        // The public error of `Read` is not judged: what is left is read with the typed call.
        let first = file.read(&mut bytes).unwrap_or(0);
        bytes.truncate(first);
        bytes.extend(file.read_to_limit(MOST)?);
        let opened = Success::found(task.path, file.metadata().ino());
        Ok(Success { entries: opened.entries, ..Success::read(&bytes) })
    })
    .opens_files(),
    row("metadata", Leaf::File, Effect::Reads, naive::metadata, |task| {
        let metadata = task.root.metadata(task.path)?;
        assert!(!metadata.is_symlink(), "metadata never describes a link");
        let said = Some(format!("{:?}", metadata.file_type()));
        Ok(Success { said, ..Success::found(task.path, metadata.ino()) })
    })
    .on(On::Entry)
    .takes_dot(),
    row("descend", Leaf::Directory, Effect::Reads, naive::list, |task| {
        gather(task.root.descend(task.path)?.list(".")?)
    })
    .takes_dot(),
    row("list", Leaf::Directory, Effect::Reads, naive::list, |task| gather(task.root.list(task.path)?))
        .takes_dot(),
    row("walk", Leaf::Directory, Effect::Reads, naive::walk, |task| {
        gather(task.root.walk(task.path, WalkLimits::default())?)
    })
    .takes_dot(),
    row("write_exclusive", Leaf::Absent, Effect::Creates, naive::write, |task| {
        task.root.write_exclusive(task.path, task.data).map(done)
    }),
    row("new_file, commit", Leaf::Absent, Effect::Creates, naive::write, |task| {
        stream(task)?.commit().map(done)
    }),
    row("new_file, commit_as", Leaf::Absent, Effect::Creates, naive::write, |task| {
        stream(task)?.commit_as(task.path.file_name().unwrap_or_default()).map(done)
    }),
    row("new_file, commit_replace", Leaf::File, Effect::Replaces, naive::replace, |task| {
        stream(task)?.commit_replace().map(done)
    }),
    row("replace", Leaf::File, Effect::Replaces, naive::replace, |task| {
        task.root.replace(task.path, task.data).map(done)
    }),
    row("ensure_dir", Leaf::Absent, Effect::MakesDirectories, naive::ensure_dir, |task| {
        let ensured = task.root.ensure_dir(task.path)?;
        Ok(Success { said: Some(format!("{ensured:?}")), ..Success::default() })
    }),
    row("set_access", Leaf::File, Effect::SetsAccess, naive::set_access, |task| {
        task.root.set_access(task.path, ACCESS, Execute::Clear).map(|_| Success::default())
    })
    .takes_dot(),
    row("rename, from", Leaf::File, Effect::MovesAway, naive::rename, |task| {
        task.root.rename(task.path, task.other).map(done)
    }),
    row("rename, to", Leaf::Absent, Effect::MovesHere, naive::rename_here, |task| {
        task.root.rename(task.other, task.path).map(done)
    }),
    row("rename_to", Leaf::Directory, Effect::MovesAway, naive::rename, |task| {
        let name = task.other.file_name().unwrap_or_default();
        task.root.rename_to(task.path, task.host, name).map(done)
    }),
    row("remove_file", Leaf::File, Effect::RemovesEntry, naive::remove_file, |task| {
        task.root.remove_file(task.path).map(done)
    }),
    row("remove_dir", Leaf::EmptyDirectory, Effect::RemovesEntry, naive::remove_dir, |task| {
        task.root.remove_dir(task.path).map(done)
    }),
    row("remove_tree_contained", Leaf::Directory, Effect::RemovesTree, naive::remove_tree, |task| {
        task.root.remove_tree_contained(task.path).map(|removed| Success::removed(&removed))
    }),
    row("remove_tree_contained_within", Leaf::Directory, Effect::RemovesTree, naive::remove_tree, |task| {
        let removed = task.root.remove_tree_contained_within(task.path, Budget::default())?;
        Ok(Success::removed(&removed))
    }),
    row("remove_tree_quarantined", Leaf::Directory, Effect::RemovesTree, naive::remove_tree, |task| {
        let removed = task.root.remove_tree_quarantined(task.path, task.host, Budget::default())?;
        Ok(Success::removed(&removed))
    }),
];

/// Public functions of `Root` that take no path of a guest.
pub const NOT_OPERATIONS: &[(&str, &str)] = &[
    ("open_ambient", "opens the root itself; `open_ambient, then read` has it under the stepper"),
    ("with_policy", "asks the disk nothing"),
    ("policy", "asks the disk nothing"),
    ("resolver", "asks the disk nothing"),
    ("try_clone", "duplicates a descriptor"),
];

fn done((): ()) -> Success {
    Success::default()
}

/// Writes in two parts, so that there is a moment at which a part is there.
fn stream(task: &Task<'_>) -> Result<NewFile> {
    let mut file = task.root.new_file(task.path)?;
    let (first, second) = task.data.split_at(task.data.len() / 3);
    // The commit reports a write that failed once more, typed.
    let _ = file.write_all(first).and_then(|()| file.write_all(second));
    Ok(file)
}

fn gather(found: impl Iterator<Item = Result<beneath::Entry>>) -> Result<Success> {
    let mut entries = Vec::new();
    for entry in found {
        let entry = entry?;
        entries.push((entry.path().to_string_lossy().into_owned(), entry.metadata().ino()));
    }
    entries.sort();
    Ok(Success { entries, ..Success::default() })
}

/// The row with this name.
#[track_caller]
pub fn operation(name: &str) -> &'static Operation {
    match OPERATIONS.iter().find(|operation| operation.name == name) {
        Some(operation) => operation,
        None => panic!("there is no operation {name:?}"),
    }
}

/// The rows with these names.
#[track_caller]
pub fn operations(names: &[&str]) -> Vec<&'static Operation> {
    names.iter().map(|name| operation(name)).collect()
}

/// All rows but those with these names.
#[track_caller]
pub fn operations_but(names: &[&str]) -> impl Iterator<Item = &'static Operation> {
    let left_out = operations(names);
    OPERATIONS.iter().filter(move |operation| !left_out.iter().any(|out| out.name == operation.name))
}

/// The rows whose path means this.
pub fn operations_on(on: On) -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().filter(move |operation| operation.on == on)
}

/// The rows that leave a file with the data at the path.
pub fn writers() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().filter(|operation| matches!(operation.effect, Effect::Creates | Effect::Replaces))
}
