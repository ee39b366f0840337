//! A tree in memory: what the root should hold, and what each operation should answer.
//!
//! Written from the documentation of the operations, without the crate's own path checks or resolver.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use beneath::ErrorKind::{self, *};

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
#[derive(Debug, Default)]
pub struct Tree {
    pub nodes: BTreeMap<PathBuf, Node>,
    pub contents: Vec<Vec<u8>>,
}

/// The number of the one file that also has a name outside.
pub const SECRET: usize = 0;

impl Tree {
    pub fn new(secret: &[u8]) -> Self {
        Self { nodes: BTreeMap::new(), contents: vec![secret.to_vec()] }
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

    pub fn children(&self, path: &Path) -> BTreeSet<PathBuf> {
        self.nodes.keys().filter(|key| key.parent() == Some(path)).cloned().collect()
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

    /// What a rename to a free name should answer.
    pub fn renamed(&self, from: &Path, to: &Path) -> Result<(), ErrorKind> {
        self.parent(from)?;
        self.parent(to)?;
        self.get(from)?;
        match self.get(to) {
            Ok(_) => Err(AlreadyExists),
            Err(_) if to.starts_with(from) => Err(InvalidPath),
            Err(_) => Ok(()),
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
        return Err(crate::oracle::refusal(raw));
    }
    Ok(components.into_iter().map(OsStr::from_bytes).collect())
}
