//! Every operation of [`Root`], one row each.
//!
//! The contract runs the rows on hostile paths, `step` and `faults` stop and starve them, `syscalls` traces them, `race`
//! and the fuzz targets call them while a guest is at work. A new operation is a new row here, and a test compares the
//! rows with the public functions of `Root`.

mod effect;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use beneath::{
    Access, Budget, CopiedTree, Error, ErrorKind, Execute, FileType, HardLinks, NewFile, Rename, Result,
    Root, TreeOptions, WalkLimits, WriteOptions,
};

use crate::naive::{self, Naive};
use crate::scene::CANARY;
pub use effect::{Effect, Leaf, On};

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
    /// Gives the file the mode of the one that it replaces.
    pub keeps_mode: bool,
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
    /// The host's own directory: where a move or a copy between roots leads, and the quarantine.
    pub host: &'a Root,
    /// The other end of a move or a copy.
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

    /// Lines that are compared wherever `said` or entries are. The inode is one that every rig knows: the root's.
    pub(crate) fn answered(mut lines: Vec<String>, root: u64) -> Self {
        lines.sort();
        let said = Some(lines.join("; "));
        Self { said, entries: lines.into_iter().map(|line| (line, root)).collect(), ..Self::default() }
    }

    fn found(path: &Path, ino: u64) -> Self {
        Self { entries: vec![(path.to_string_lossy().into_owned(), ino)], ..Self::default() }
    }
}

/// What [`Operation::run_on`] moves or copies to the path, and where it moves or copies the path to.
pub const RENAME_SOURCE: &str = "rename-source";
pub const RENAME_TARGET: &str = "rename-target";

/// Modes that nothing in a test has by itself.
pub const ACCESS: Access = Access::custom(0o640, 0o750);

/// What a single write asks for, which the policy of most tests says too.
fn options() -> WriteOptions {
    WriteOptions::default().with_mode(0o600).over_read_only()
}

/// A copy that goes again before the call ends, by a name of the kind that the crate itself makes.
pub const COPY: &str = ".beneath-copy";

/// The text of a link that an operation makes: in a scene it leads to the canary.
pub const TEXT: &str = "../../../outside/dir";

/// A name that the canary's directories have, and nothing beneath a root.
pub(crate) const ONLY_OUTSIDE: &str = "only-outside";

/// The times of the last access and the last change that an operation sets.
pub(crate) fn times() -> [SystemTime; 2] {
    [1, 2].map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds))
}

/// More than any test has in a file.
pub const MOST: u64 = 1 << 20;

const fn row(
    name: &'static str,
    leaf: Leaf,
    effect: Effect,
    naive: Naive,
    run: fn(&Task<'_>) -> Result<Success>,
) -> Operation {
    use Effect::{Exchanges, MovesAway, MovesHere, MovesOver, SetsAccess};
    let on = match (effect, leaf) {
        (SetsAccess | MovesAway | MovesHere | MovesOver | Exchanges, _) => On::Entry,
        (Effect::MakesDirectories, _) | (_, Leaf::Directory | Leaf::EmptyDirectory) => On::Directory,
        _ => On::File,
    };
    Operation { name, on, takes_dot: false, leaf, effect, opens_files: false, keeps_mode: false, run, naive }
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

    const fn keeps_mode(self) -> Self {
        Self { keeps_mode: true, ..self }
    }

    /// Whether it goes through this function.
    pub fn calls(&self, function: &str) -> bool {
        self.name.split(", ").any(|called| called == function)
    }

    /// Runs the operation on a root that is its own other end.
    pub fn run_on(&self, root: &Root, path: impl AsRef<Path>) -> Result<Success> {
        let other = if self.effect.brings() { RENAME_SOURCE } else { RENAME_TARGET };
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
        let opened = Success::found(task.path, file.metadata().ino()).entries;
        match file.read_to_limit(MOST) {
            Ok(rest) => bytes.extend(rest),
            Err(error) => return Err(failed_after(opened, error)),
        }
        Ok(Success { entries: opened, ..Success::read(&bytes) })
    })
    .opens_files(),
    row("metadata", Leaf::File, Effect::Reads, naive::metadata, found).on(On::Entry).takes_dot(),
    row("try_exists", Leaf::File, Effect::Reads, naive::exists, |task| {
        let exists = task.root.try_exists(task.path)?;
        if let Ok(true) = task.root.try_exists(task.path.with_file_name(ONLY_OUTSIDE)) {
            return Ok(Success::read(CANARY.as_bytes()));
        }
        let said = Some(exists.to_string());
        match (exists, found(task)) {
            (true, Ok(found)) => Ok(Success { said, ..found }),
            (true, Err(error)) if error.kind() != ErrorKind::NotFound => Err(error),
            (false, Err(error)) if error.kind() == ErrorKind::NotFound => Err(error),
            // The two disagree: a fault, unless somebody was at work between them.
            _ => Ok(Success { said, ..Success::default() }),
        }
    })
    .on(On::Entry)
    .takes_dot(),
    row("read_link", Leaf::Link, Effect::Reads, naive::read_link, |task| {
        task.root.read_link(task.path).map(|text| Success::read(text.as_os_str().as_encoded_bytes()))
    }),
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
    row("copy_tree_to", Leaf::Directory, Effect::Reads, naive::copy_tree, |task| {
        // Without the proofs of `open_contained`, which has rows of its own: how many calls they take depends on the time.
        let [from, to] = [allowing_hard_links(task.root)?, allowing_hard_links(task.host)?];
        let copied = from.copy_tree_to(task.path, &to, COPY, TreeOptions::default());
        let found = judged(task.root, copied, TreeCopy::look(&to));
        // Once more, since the first may be the very call that is made to fail.
        let remove = || task.host.remove_tree_contained(COPY).is_ok_and(|removed| removed.is_complete());
        let _ = remove() || remove();
        found
    })
    .takes_dot(),
    row("write_exclusive", Leaf::Absent, Effect::Creates, naive::write, |task| {
        task.root.write_exclusive(task.path, task.data).map(done)
    }),
    row("write_exclusive_with", Leaf::Absent, Effect::Creates, naive::write, |task| {
        task.root.write_exclusive_with(task.path, task.data, options()).map(done)
    }),
    row("new_file_with, commit", Leaf::Absent, Effect::Creates, naive::write, |task| {
        let mut file = task.root.new_file_with(task.path, options())?;
        // The commit reports a write that failed once more, typed.
        let _ = file.copy_from(task.data, MOST);
        file.commit().map(done)
    }),
    row("new_file, commit", Leaf::Absent, Effect::Creates, naive::write, |task| {
        stream(task)?.commit().map(done)
    }),
    row("new_file, commit_as", Leaf::Absent, Effect::Creates, naive::write, |task| {
        stream(task)?.commit_as(name_of(task.path)).map(done)
    }),
    row("new_file, commit_replace", Leaf::File, Effect::Replaces, naive::replace, |task| {
        stream(task)?.commit_replace().map(done)
    })
    .keeps_mode(),
    row("replace", Leaf::File, Effect::Replaces, naive::replace, |task| {
        task.root.replace(task.path, task.data).map(done)
    })
    .keeps_mode(),
    row("replace_with", Leaf::File, Effect::Replaces, naive::replace, |task| {
        task.root.replace_with(task.path, task.data, options()).map(done)
    }),
    row("copy, from", Leaf::File, Effect::CopiesAway, naive::copy, |task| {
        task.root.copy(task.path, task.other, MOST).map(copied)
    })
    .opens_files(),
    row("copy, to", Leaf::Absent, Effect::CopiesHere, naive::copy_here, |task| {
        task.root.copy(task.other, task.path, MOST).map(copied)
    }),
    row("copy_to", Leaf::File, Effect::CopiesAway, naive::copy, |task| {
        task.root.copy_to(task.path, task.host, name_of(task.other), MOST).map(copied)
    })
    .opens_files(),
    row("symlink", Leaf::Absent, Effect::Links, naive::symlink, |task| {
        task.root.symlink(TEXT, task.path).map(done)
    }),
    row("ensure_dir", Leaf::Absent, Effect::MakesDirectories, naive::ensure_dir, |task| {
        let ensured = task.root.ensure_dir(task.path)?;
        Ok(Success { said: Some(format!("{ensured:?}")), ..Success::default() })
    }),
    row("set_access", Leaf::File, Effect::SetsAccess, naive::set_access, |task| {
        task.root.set_access(task.path, ACCESS, Execute::Clear).map(|_| Success::default())
    })
    .takes_dot(),
    row("set_times", Leaf::File, Effect::SetsAccess, naive::set_access, |task| {
        let [accessed, modified] = times();
        task.root.set_times(task.path, Some(accessed), Some(modified))?;
        let now = task.root.metadata(task.path)?;
        // What a round is judged by.
        task.root.set_access(task.path, ACCESS, Execute::Clear)?;
        let times = format!("{:?}", [now.accessed(), now.modified()]);
        Ok(Success::answered(vec![times], task.root.metadata(".")?.ino()))
    })
    .takes_dot(),
    row("rename_with", Leaf::File, Effect::MovesAway, naive::rename, |task| {
        task.root.rename_with(task.path, task.root, task.other, Rename::NoReplace).map(done)
    }),
    row("rename_with, replacing", Leaf::File, Effect::MovesOver, naive::rename_over, |task| {
        task.root.rename_with(task.other, task.root, task.path, Rename::Replace).map(done)
    }),
    row("rename_with, exchanging", Leaf::File, Effect::Exchanges, naive::exchange_places, |task| {
        task.root.rename_with(task.other, task.root, task.path, Rename::Exchange).map(done)
    }),
    row("rename, from", Leaf::File, Effect::MovesAway, naive::rename, |task| {
        task.root.rename(task.path, task.other).map(done)
    }),
    row("rename, to", Leaf::Absent, Effect::MovesHere, naive::rename_here, |task| {
        task.root.rename(task.other, task.path).map(done)
    }),
    row("rename_to", Leaf::Directory, Effect::MovesAway, naive::rename, |task| {
        task.root.rename_to(task.path, task.host, name_of(task.other)).map(done)
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
    ("enforced", "describes the descriptor"),
    ("ambient_path", "takes no path; `sealed` has it where the directory is moved and replaced"),
    ("seal", "takes no path; `sealed` has it, and kills it between each two calls"),
    ("copy_tree", "is `copy_tree_to` with one root at both ends"),
];

fn found(task: &Task<'_>) -> Result<Success> {
    let metadata = task.root.metadata(task.path)?;
    assert!(!metadata.is_symlink(), "metadata never describes a link");
    let said = Some(format!("{:?}", metadata.file_type()));
    Ok(Success { said, ..Success::found(task.path, metadata.ino()) })
}

fn allowing_hard_links(root: &Root) -> Result<Root> {
    Ok(root.try_clone()?.with_policy(root.policy().clone().with_hard_links(HardLinks::Allow)))
}

/// What is in the copy of a tree.
#[derive(Default)]
pub(crate) struct TreeCopy {
    /// What a file holds that must not be there.
    pub(crate) stolen: Option<Success>,
    lines: Vec<String>,
    failed: Option<Error>,
}

impl TreeCopy {
    /// Goes on after an error, since whatever is there is to be judged.
    pub(crate) fn look(host: &Root) -> Self {
        let mut copy = Self::default();
        let walk = host.descend(COPY).and_then(|top| Ok((top.walk(".", WalkLimits::default())?, top)));
        match walk {
            Ok((walk, top)) => walk.for_each(|entry| {
                if let Err(error) = entry.and_then(|entry| copy.add(&top, &entry)) {
                    copy.failed.get_or_insert(error);
                }
            }),
            Err(error) => copy.failed = Some(error),
        }
        copy
    }

    fn add(&mut self, top: &Root, entry: &beneath::Entry) -> Result<()> {
        let found = entry.metadata();
        self.lines.push(Self::line(entry.path(), found.file_type(), found.len()));
        if found.is_file() {
            let content = Success::read(&top.read_contained(entry.path(), MOST)?);
            if content.data.as_ref().is_some_and(|data| data.contains(CANARY)) {
                self.stolen = Some(content);
            }
        }
        Ok(())
    }

    /// What is said of one entry.
    pub(crate) fn line(path: &Path, kind: FileType, length: u64) -> String {
        let length = if kind == FileType::Directory { 0 } else { length };
        format!("{}, {kind:?} of {length}", path.display())
    }
}

/// A theft comes before any refusal.
fn judged(root: &Root, copied: Result<CopiedTree>, copy: TreeCopy) -> Result<Success> {
    if let Some(stolen) = copy.stolen {
        return Ok(stolen);
    }
    let expected = [ErrorKind::NotRegular, ErrorKind::InvalidPath];
    let copied = copied?;
    let refused = copied.refused().find(|(_, error)| !expected.contains(&error.kind()));
    match refused.map(|(_, error)| error.clone()).or(copy.failed) {
        Some(error) => Err(error),
        None => Ok(Success::answered(copy.lines, root.metadata(".")?.ino())),
    }
}

fn done((): ()) -> Success {
    Success::default()
}

fn copied(copied: beneath::Copied) -> Success {
    Success { said: Some(copied.bytes.to_string()), ..Success::default() }
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Writes in two parts, so that there is a moment at which a part is there.
fn stream(task: &Task<'_>) -> Result<NewFile> {
    let mut file = task.root.new_file(task.path)?;
    let (first, second) = task.data.split_at(task.data.len() / 3);
    // The commit reports a write that failed once more, typed.
    let _ = file.write_all(first).and_then(|()| file.write_all(second));
    Ok(file)
}

/// Goes on after an error, since whatever it meets is to be judged.
fn gather(found: impl Iterator<Item = Result<beneath::Entry>>) -> Result<Success> {
    let (mut entries, mut failed) = (Vec::new(), None);
    for entry in found {
        match entry {
            Ok(entry) => {
                entries.push((entry.path().to_string_lossy().into_owned(), entry.metadata().ino()));
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    entries.sort();
    match failed {
        Some(error) => Err(failed_after(entries, error)),
        None => Ok(Success { entries, ..Success::default() }),
    }
}

thread_local! {
    static MET: RefCell<Vec<(String, u64)>> = const { RefCell::new(Vec::new()) };
}

fn failed_after(met: Vec<(String, u64)>, error: beneath::Error) -> beneath::Error {
    MET.set(met);
    error
}

/// What the operation that has just failed in this thread had met before: paths and inodes.
pub fn met_before_failing() -> Vec<(String, u64)> {
    MET.take()
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
