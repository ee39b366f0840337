//! A tree in memory: what the root should hold, and what each operation should answer.
//!
//! Written from the documentation of the operations, without the crate's own path checks or resolver. Sequences of
//! operations are compared with it: random ones by the property tests, searched ones by the fuzz target.

mod guest;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use beneath::ErrorKind::{self, *};
use beneath::{Ensured, FileType, HardLinks, Rename, Root};

pub use guest::Mutation;

use crate::operations::{self, Effect, Leaf, On, Operation, Success, TEXT, Task, TreeCopy};

/// An entry. Files share an inode, and so their content, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Dir,
    File(usize),
    /// With its text.
    Link(PathBuf),
    Fifo,
}

/// What a path must be the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant {
    Entry,
    Directory,
    DirectoryOrRoot,
}

/// Every entry beneath the root by its path, and every file's content.
#[derive(Debug)]
pub struct Model {
    pub nodes: BTreeMap<PathBuf, Node>,
    pub contents: Vec<Vec<u8>>,
    hard_links: HardLinks,
}

/// The answer of an operation that only says something.
fn said(what: impl std::fmt::Debug) -> Success {
    Success { said: Some(format!("{what:?}")), ..Success::default() }
}

/// The answer of a copy.
fn copied(content: &[u8]) -> Success {
    Success { said: Some(content.len().to_string()), ..Success::default() }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The number of the one file that also has a name outside.
pub const SECRET: usize = 0;

impl Model {
    pub fn new(secret: &[u8], hard_links: HardLinks) -> Self {
        Self { nodes: BTreeMap::new(), contents: vec![secret.to_vec()], hard_links }
    }

    /// Runs an operation on the tree and on the model, and compares the answers.
    pub fn agree(&mut self, operation: &Operation, task: &Task<'_>) {
        let lists = operation.effect == Effect::Reads && operation.on == On::Directory;
        // Of what an operation has met a model knows the names alone, and those of a listing.
        let known = |success: Success| {
            let entries = success.entries.into_iter().filter(|_| lists).map(|(path, _)| (path, 0));
            Success { entries: entries.collect(), ..success }
        };
        let got = (operation.run)(task).map(known).map_err(|error| {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control) && !shown.contains("/dev/shm"), "{shown:?}");
            error.kind()
        });
        let [path, other] = [task.path, task.other].map(|path| path.as_os_str().as_bytes());
        let expected = self.answer(operation, path, other, task.data).map(known);
        assert_eq!(got, expected, "{operation:?} of {:?}, {:?}", task.path, task.other);
    }

    /// Writes a new file and drops it without a commit: the name stays as it was, free or not.
    pub fn abandon(&self, root: &Root, raw: &Path, data: &[u8]) {
        let path = checked(raw.as_os_str().as_bytes(), Meant::Entry);
        let expected = path.and_then(|path| self.parent(&path));
        let got = root.new_file(raw).map(|mut file| file.write_all(data).unwrap());
        assert_eq!(got.map_err(|error| error.kind()), expected, "new_file {raw:?}");
    }

    /// What an operation should answer; changes the tree as the operation should. `other` and `data` are those of its task.
    fn answer(
        &mut self,
        operation: &Operation,
        raw: &[u8],
        other: &[u8],
        data: &[u8],
    ) -> Result<Success, ErrorKind> {
        let (effect, on) = (operation.effect, operation.on);
        let meant = match on {
            _ if operation.takes_dot => Meant::DirectoryOrRoot,
            On::Directory => Meant::Directory,
            _ => Meant::Entry,
        };
        match effect {
            Effect::MovesAway if !operation.calls("rename_to") => {
                return self.rename(raw, other, Rename::NoReplace);
            }
            Effect::MovesHere => return self.rename(other, raw, Rename::NoReplace),
            Effect::MovesOver => return self.rename(other, raw, Rename::Replace),
            Effect::Exchanges => return self.rename(other, raw, Rename::Exchange),
            Effect::CopiesAway if !operation.calls("copy_to") => return self.copy(raw, other),
            Effect::CopiesHere => return self.copy(other, raw),
            Effect::MakesDirectories => return self.make_directories(&checked(raw, meant)?).map(said),
            _ => {}
        }
        let path = checked(raw, meant)?;
        let is_directory = path.as_os_str().is_empty() || raw.ends_with(b"/");
        let node = match (effect, on) {
            (Effect::Reads, On::Directory) | (Effect::RemovesTree, _) => {
                self.reach(&path).map(|()| Node::Dir)
            }
            (Effect::Reads | Effect::SetsAccess, _) if is_directory => self.reach(&path).map(|()| Node::Dir),
            _ => {
                self.parent(&path)?;
                self.get(&path).cloned()
            }
        };
        match (effect, on, node) {
            (Effect::Creates | Effect::Links, _, Ok(_)) => return Err(AlreadyExists),
            (Effect::Replaces, _, Ok(Node::Dir)) => return Err(NotRegular),
            (Effect::Creates | Effect::Replaces, ..) => self.put_file(&path, data),
            (Effect::Links, ..) => drop(self.nodes.insert(path, Node::Link(TEXT.into()))),
            (_, _, Err(kind)) => return Err(kind),
            (Effect::Reads, _, Ok(Node::Link(text))) if operation.leaf == Leaf::Link => {
                return Ok(Success::read(text.as_os_str().as_bytes()));
            }
            (Effect::Reads, ..) if operation.leaf == Leaf::Link => return Err(NotSymlink),
            (Effect::CopiesAway, ..) => return self.content(&path).map(copied),
            (Effect::Reads, On::File, _) => return self.content(&path).map(Success::read),
            (Effect::Reads, On::Directory, _) if operation.calls("copy_tree_to") => {
                return Ok(Success::answered(self.lines_of_copy(&path), 0));
            }
            (Effect::Reads, On::Directory, _) => {
                let found = self.beneath(&path, operation.calls("walk"));
                let entries = found.into_iter().map(|path| (path, 0)).collect();
                return Ok(Success { entries, ..Success::default() });
            }
            (Effect::Reads | Effect::SetsAccess, _, Ok(Node::Link(_))) => return Err(Symlink),
            (Effect::Reads, ..) if operation.calls("try_exists") => return Ok(said(true)),
            (Effect::Reads, _, Ok(Node::Dir)) => return Ok(said(FileType::Directory)),
            (Effect::Reads, _, Ok(Node::File(_))) => return Ok(said(FileType::File)),
            (Effect::Reads, _, Ok(Node::Fifo)) => return Ok(said(FileType::Fifo)),
            (Effect::SetsAccess, _, Ok(Node::Fifo)) => return Err(NotRegular),
            (Effect::SetsAccess, _, Ok(Node::File(file))) if self.names(file) > 1 => return Err(HardLinked),
            (Effect::SetsAccess, ..) if operation.calls("set_times") => {
                return Ok(said(operations::times()));
            }
            (Effect::SetsAccess, ..) => {}
            (Effect::RemovesEntry, On::Directory, Ok(Node::Dir)) => {
                if !self.beneath(&path, false).is_empty() {
                    return Err(NotEmpty);
                }
                self.take(&path);
            }
            (Effect::RemovesEntry, On::Directory, _) => return Err(NotDirectory),
            (Effect::RemovesEntry, _, Ok(Node::Dir)) => return Err(NotRegular),
            (Effect::RemovesTree, ..) => {
                let gone = self.take(&path);
                let directories = gone.iter().filter(|(_, node)| *node == Node::Dir).count() as u64;
                let said = Success::counted(directories, gone.len() as u64 - directories);
                return Ok(Success { said: Some(said), ..Success::default() });
            }
            (Effect::RemovesEntry | Effect::MovesAway, ..) => drop(self.take(&path)),
            // Answered above.
            _ => {}
        }
        Ok(Success::default())
    }

    fn make_directories(&mut self, path: &Path) -> Result<Ensured, ErrorKind> {
        match self.reach(path) {
            Ok(()) => Ok(Ensured::Existed),
            Err(NotFound) => {
                for level in path.ancestors().filter(|level| !level.as_os_str().is_empty()) {
                    self.nodes.entry(level.to_path_buf()).or_insert(Node::Dir);
                }
                Ok(Ensured::Created)
            }
            Err(kind) => Err(kind),
        }
    }

    pub fn content(&self, path: &Path) -> Result<&[u8], ErrorKind> {
        self.parent(path)?;
        match self.get(path)? {
            Node::File(file) if self.names(*file) > 1 && self.hard_links == HardLinks::Refuse => {
                Err(HardLinked)
            }
            Node::File(file) => Ok(&self.contents[*file]),
            Node::Link(_) => Err(Symlink),
            Node::Dir | Node::Fifo => Err(NotRegular),
        }
    }

    fn copy(&mut self, from: &[u8], to: &[u8]) -> Result<Success, ErrorKind> {
        let to = checked(to, Meant::Entry)?;
        let content = self.content(&checked(from, Meant::Entry)?)?.to_vec();
        self.parent(&to)?;
        if self.get(&to).is_ok() {
            return Err(AlreadyExists);
        }
        self.put_file(&to, &content);
        Ok(copied(&content))
    }

    fn rename(&mut self, from: &[u8], to: &[u8], how: Rename) -> Result<Success, ErrorKind> {
        let (from, to) = (checked(from, Meant::Entry)?, checked(to, Meant::Entry)?);
        self.parent(&from)?;
        self.parent(&to)?;
        let (old, new) = (self.get(&from)?, self.get(&to));
        let (into, out) = (to.starts_with(&from), from.starts_with(&to));
        let is_empty = self.beneath(&to, false).is_empty();
        match (how, old, new) {
            (Rename::NoReplace, _, Ok(_)) => return Err(AlreadyExists),
            (Rename::Exchange, _, Err(kind)) => return Err(kind),
            _ if from == to => return Ok(Success::default()),
            _ if into || out && how == Rename::Exchange => return Err(InvalidPath),
            (Rename::Exchange, ..) => {
                self.exchange(&from, &to);
                return Ok(Success::default());
            }
            _ if out => return Err(AlreadyExists),
            // Two names of one file stay.
            (_, Node::File(one), Ok(Node::File(other))) if one == other => return Ok(Success::default()),
            (_, Node::Dir, Ok(Node::Dir)) if !is_empty => return Err(AlreadyExists),
            (_, Node::Dir, Ok(Node::File(_) | Node::Link(_) | Node::Fifo)) => return Err(NotDirectory),
            (_, Node::File(_) | Node::Link(_) | Node::Fifo, Ok(Node::Dir)) => return Err(NotRegular),
            _ => {}
        }
        let taken = self.take(&from);
        self.give(&to, taken);
        Ok(Success::default())
    }

    fn exchange(&mut self, one: &Path, other: &Path) {
        let (left, right) = (self.take(one), self.take(other));
        self.give(other, left);
        self.give(one, right);
    }

    pub fn get(&self, path: &Path) -> Result<&Node, ErrorKind> {
        self.nodes.get(path).ok_or(NotFound)
    }

    /// That everything above the last component is a directory.
    pub fn parent(&self, path: &Path) -> Result<(), ErrorKind> {
        let mut above = PathBuf::new();
        for component in path.parent().into_iter().flat_map(Path::components) {
            above.push(component);
            self.directory(&above)?;
        }
        Ok(())
    }

    pub fn directory(&self, path: &Path) -> Result<(), ErrorKind> {
        match self.get(path)? {
            Node::Dir => Ok(()),
            Node::Link(_) => Err(Symlink),
            Node::File(_) | Node::Fifo => Err(NotDirectory),
        }
    }

    /// A directory at the end of a path of directories; the empty path is the root.
    pub fn reach(&self, path: &Path) -> Result<(), ErrorKind> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        self.parent(path)?;
        self.directory(path)
    }

    pub fn names(&self, file: usize) -> usize {
        let outside = usize::from(file == SECRET);
        outside + self.nodes.values().filter(|node| **node == Node::File(file)).count()
    }

    pub fn put_file(&mut self, path: &Path, content: &[u8]) {
        self.contents.push(content.to_vec());
        self.nodes.insert(path.to_path_buf(), Node::File(self.contents.len() - 1));
    }

    /// What is in a directory, or all beneath it, relative to it.
    fn beneath(&self, path: &Path, whole: bool) -> BTreeSet<String> {
        let relative = self.nodes.keys().filter_map(|key| key.strip_prefix(path).ok());
        let wanted = |path: &&Path| match path.components().count() {
            0 => false,
            depth => whole || depth == 1,
        };
        relative.filter(wanted).map(text).collect()
    }

    /// What is in a copy of a directory: all that is neither file, directory nor link is left.
    fn lines_of_copy(&self, path: &Path) -> Vec<String> {
        let line = |(key, node): (&PathBuf, &Node)| {
            let relative = key.strip_prefix(path).ok().filter(|relative| !relative.as_os_str().is_empty())?;
            let (kind, length) = match node {
                Node::Dir => (FileType::Directory, 0),
                Node::File(file) => (FileType::File, self.contents[*file].len()),
                Node::Link(text) => (FileType::Symlink, text.as_os_str().len()),
                Node::Fifo => return None,
            };
            Some(TreeCopy::line(relative, kind, length as u64))
        };
        self.nodes.iter().filter_map(line).collect()
    }

    /// Takes an entry out, with everything it holds, by paths relative to it.
    pub fn take(&mut self, path: &Path) -> Vec<(PathBuf, Node)> {
        let all: Vec<PathBuf> = self.nodes.keys().filter(|key| key.starts_with(path)).cloned().collect();
        all.iter()
            .filter_map(|key| Some((key.strip_prefix(path).ok()?.to_path_buf(), self.nodes.remove(key)?)))
            .collect()
    }

    pub fn give(&mut self, path: &Path, taken: Vec<(PathBuf, Node)>) {
        for (rest, node) in taken {
            let key = if rest.as_os_str().is_empty() { path.to_path_buf() } else { path.join(rest) };
            self.nodes.insert(key, node);
        }
    }
}

/// The one form a path may have, as its components joined; the root is the empty path.
pub fn checked(raw: &[u8], meant: Meant) -> Result<PathBuf, ErrorKind> {
    if raw == b"." && meant == Meant::DirectoryOrRoot {
        return Ok(PathBuf::new());
    }
    let mut components: Vec<&[u8]> = raw.split(|byte| *byte == b'/').collect();
    if components.len() > 1 && meant != Meant::Entry && components.last() == Some(&&b""[..]) {
        components.pop();
    }
    let fine = |part: &&[u8]| {
        !matches!(**part, [] | [b'.'] | [b'.', b'.']) && part.len() <= 255 && !part.contains(&0)
    };
    if raw.len() > 4095 || !components.iter().all(fine) {
        return Err(refusal(raw));
    }
    Ok(components.into_iter().map(OsStr::from_bytes).collect())
}

/// The kind for a path that is refused: an attempt to leave is an escape.
pub fn refusal(raw: &[u8]) -> ErrorKind {
    let leaves = raw.starts_with(b"/") || raw.split(|byte| *byte == b'/').any(|component| component == b"..");
    if leaves { Escape } else { InvalidPath }
}
