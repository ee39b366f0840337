//! A tree in memory: what the root should hold, and what each operation should answer.
//!
//! Written from the documentation of the operations, without the crate's own path checks or resolver. Sequences of
//! operations are compared with it: random ones by the property tests, searched ones by the fuzz target.

mod guest;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use beneath::ErrorKind::{self, *};
use beneath::{Ensured, FileType, HardLinks};

pub use guest::Mutation;

use crate::operations::{Effect, On, Operation, Success, Task};

/// An entry. Files share an inode, and so their content, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Dir,
    File(usize),
    Link,
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

/// What an operation should return.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    data: Option<String>,
    /// What a listing should contain.
    entries: Option<BTreeSet<String>>,
    said: Option<String>,
}

impl Answer {
    fn said(what: impl std::fmt::Debug) -> Self {
        Self { said: Some(format!("{what:?}")), ..Self::default() }
    }

    /// Of what an operation has returned, the part that a model can know.
    fn of(operation: &Operation, success: Success) -> Self {
        assert!(!success.incomplete, "{operation:?} is incomplete");
        let paths = || success.entries.iter().map(|(path, _)| path.clone()).collect();
        Self { data: success.data.clone(), entries: lists(operation).then(paths), said: success.said }
    }
}

fn lists(operation: &Operation) -> bool {
    operation.effect == Effect::Reads && operation.on == On::Directory
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
        let got = (operation.run)(task).map(|success| Answer::of(operation, success)).map_err(|error| {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control) && !shown.contains("/dev/shm"), "{shown:?}");
            error.kind()
        });
        let [path, other] = [task.path, task.other].map(|path| path.as_os_str().as_bytes());
        let expected = self.answer(operation, path, other, task.data);
        assert_eq!(got, expected, "{operation:?} of {:?}, {:?}", task.path, task.other);
    }

    /// What an operation should answer; changes the tree as the operation should. `other` and `data` are those of its task.
    fn answer(
        &mut self,
        operation: &Operation,
        raw: &[u8],
        other: &[u8],
        data: &[u8],
    ) -> Result<Answer, ErrorKind> {
        let meant = match (operation.effect, operation.on) {
            _ if operation.takes_dot => Meant::DirectoryOrRoot,
            (Effect::SetsAccess, _) => Meant::DirectoryOrRoot,
            (_, On::Directory) => Meant::Directory,
            _ => Meant::Entry,
        };
        match operation.effect {
            Effect::MovesAway if operation.calls("rename_to") => {
                let path = checked(raw, meant)?;
                self.parent(&path)?;
                self.get(&path)?;
                self.take(&path);
                return Ok(Answer::default());
            }
            Effect::MovesAway => return self.rename(raw, other),
            Effect::MovesHere => return self.rename(other, raw),
            _ => {}
        }
        let path = checked(raw, meant)?;
        let is_directory = path.as_os_str().is_empty() || raw.ends_with(b"/");
        match (operation.effect, operation.on) {
            (Effect::Reads, On::File) => {
                let content = self.content(&path)?;
                let data = Some(String::from_utf8_lossy(content).into_owned());
                return Ok(Answer { data, ..Answer::default() });
            }
            (Effect::Reads, On::Directory) => {
                self.reach(&path)?;
                let whole = operation.calls("walk");
                let entries = Some(self.beneath(&path, whole));
                return Ok(Answer { entries, ..Answer::default() });
            }
            (Effect::SetsAccess, _) if is_directory => self.reach(&path)?,
            (Effect::Reads, On::Entry) if is_directory => {
                self.reach(&path)?;
                return Ok(Answer::said(FileType::Directory));
            }
            (Effect::Reads, On::Entry) => {
                self.parent(&path)?;
                return Ok(Answer::said(match self.get(&path)? {
                    Node::Link => return Err(Symlink),
                    Node::Dir => FileType::Directory,
                    Node::File(_) => FileType::File,
                    Node::Fifo => FileType::Fifo,
                }));
            }
            (Effect::SetsAccess, _) => {
                self.parent(&path)?;
                match self.get(&path)? {
                    Node::Link => return Err(Symlink),
                    Node::Fifo => return Err(NotRegular),
                    Node::File(file) if self.names(*file) > 1 => return Err(HardLinked),
                    Node::File(_) | Node::Dir => {}
                }
            }
            (Effect::Creates, _) => {
                self.parent(&path)?;
                if self.get(&path).is_ok() {
                    return Err(AlreadyExists);
                }
                self.put_file(&path, data);
            }
            (Effect::Replaces, _) => {
                self.parent(&path)?;
                if let Ok(Node::Dir) = self.get(&path) {
                    return Err(NotRegular);
                }
                self.put_file(&path, data);
            }
            (Effect::MakesDirectories, _) => match self.reach(&path) {
                Ok(()) => return Ok(Answer::said(Ensured::Existed)),
                Err(NotFound) => {
                    for level in path.ancestors().filter(|level| !level.as_os_str().is_empty()) {
                        self.nodes.entry(level.to_path_buf()).or_insert(Node::Dir);
                    }
                    return Ok(Answer::said(Ensured::Created));
                }
                Err(kind) => return Err(kind),
            },
            (Effect::RemovesEntry, On::Directory) => {
                self.parent(&path)?;
                if *self.get(&path)? != Node::Dir {
                    return Err(NotDirectory);
                }
                if !self.beneath(&path, false).is_empty() {
                    return Err(AlreadyExists);
                }
                self.take(&path);
            }
            (Effect::RemovesEntry, _) => {
                self.parent(&path)?;
                if *self.get(&path)? == Node::Dir {
                    return Err(NotRegular);
                }
                self.take(&path);
            }
            (Effect::RemovesTree, _) => {
                self.reach(&path)?;
                let gone = self.take(&path);
                let directories = gone.iter().filter(|(_, node)| *node == Node::Dir).count() as u64;
                let said = Success::counted(directories, gone.len() as u64 - directories);
                return Ok(Answer { said: Some(said), ..Answer::default() });
            }
            // Answered above.
            (Effect::MovesAway | Effect::MovesHere, _) => {}
        }
        Ok(Answer::default())
    }

    pub fn content(&self, path: &Path) -> Result<&[u8], ErrorKind> {
        self.parent(path)?;
        match self.get(path)? {
            Node::File(file) if self.names(*file) > 1 && self.hard_links == HardLinks::Refuse => {
                Err(HardLinked)
            }
            Node::File(file) => Ok(&self.contents[*file]),
            Node::Link => Err(Symlink),
            Node::Dir | Node::Fifo => Err(NotRegular),
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<Answer, ErrorKind> {
        let (from, to) = (checked(from, Meant::Entry)?, checked(to, Meant::Entry)?);
        self.parent(&from)?;
        self.parent(&to)?;
        self.get(&from)?;
        match self.get(&to) {
            Ok(_) => return Err(AlreadyExists),
            Err(_) if to.starts_with(&from) => return Err(InvalidPath),
            Err(_) => {}
        }
        let taken = self.take(&from);
        self.give(&to, taken);
        Ok(Answer::default())
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
            Node::Link => Err(Symlink),
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
