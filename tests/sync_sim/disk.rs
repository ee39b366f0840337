//! What is in a directory, and what a guest does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::history::{Edit, Saved};

pub(crate) type Name = Vec<u8>;

/// A file or a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    File { content: Vec<u8>, execute: bool },
    Link(Vec<u8>),
}

impl Entry {
    pub(crate) fn file(content: Vec<u8>) -> Self {
        Self::File { content, execute: false }
    }

    /// What must not be lost of it. The bit to execute is not: a store whose versions are those of the content lets a put of
    /// other content pass over a new bit.
    pub(crate) fn essence(&self) -> Self {
        match self {
            Self::File { content, .. } => Self::file(content.clone()),
            link => link.clone(),
        }
    }

    pub(crate) fn show(&self) -> String {
        match self {
            Self::File { content, execute } => {
                format!("{}{}", content.escape_ascii(), if *execute { "*" } else { "" })
            }
            Self::Link(to) => format!("-> {}", to.escape_ascii()),
        }
    }
}

/// A tree as a guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) leaves: BTreeMap<Name, Entry>,
    pub(crate) directories: BTreeSet<Name>,
}

/// What a guest has decided by an edit.
#[derive(Debug)]
pub(crate) enum Decided {
    /// It does not want this any more.
    Against(Name, Entry),
    /// It wants it there.
    Moved(Name, Name, Entry),
    For(Name, Entry),
}

pub(crate) fn at(top: &Path, name: &[u8]) -> PathBuf {
    top.join(OsStr::from_bytes(name))
}

pub(crate) fn above(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| &name[..end])
}

pub(crate) fn is_beneath(name: &[u8], directory: &[u8]) -> bool {
    name.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/'))
}

impl Folder {
    /// Everything beneath `top`.
    pub(crate) fn scan(top: &Path) -> Self {
        let mut folder = Self::default();
        folder.read(top, &mut Vec::new());
        folder
    }

    fn read(&mut self, directory: &Path, prefix: &mut Name) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries {
            let entry = entry.unwrap();
            let length = prefix.len();
            if length > 0 {
                prefix.push(b'/');
            }
            prefix.extend(entry.file_name().as_bytes());
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_dir() {
                self.directories.insert(prefix.clone());
                self.read(&path, prefix);
            } else if kind.is_symlink() {
                let to = fs::read_link(&path).unwrap();
                self.leaves.insert(prefix.clone(), Entry::Link(to.as_os_str().as_bytes().to_vec()));
            } else if let Ok(mut file) = File::open(&path) {
                let mut content = Vec::with_capacity(16);
                file.read_to_end(&mut content).unwrap();
                let execute = file.metadata().unwrap().mode() & 0o100 != 0;
                self.leaves.insert(prefix.clone(), Entry::File { content, execute });
            }
            prefix.truncate(length);
        }
    }

    /// The directories with nothing in them.
    pub(crate) fn empty(&self) -> impl Iterator<Item = &Name> {
        self.directories.iter().filter(|directory| {
            let holds = |name: &&Name| is_beneath(name, directory);
            !self.leaves.keys().any(|name| holds(&name)) && !self.directories.iter().any(|name| holds(&name))
        })
    }

    fn is_free(&self, name: &[u8]) -> bool {
        !self.leaves.contains_key(name) && !self.directories.contains(name) && self.is_reachable(name)
    }

    /// Whether all above it are directories, or can be.
    fn is_reachable(&self, name: &[u8]) -> bool {
        above(name).all(|above| !self.leaves.contains_key(above))
    }

    /// Makes the directories above `name`.
    fn enclose(&mut self, top: &Path, name: &[u8]) {
        for above in above(name) {
            if self.directories.insert(above.to_vec()) {
                fs::create_dir(at(top, above)).unwrap();
            }
        }
    }

    /// Lets the guest do it in `top`, which this is the content of; nothing if it makes no sense there.
    pub(crate) fn edit(&mut self, top: &Path, edit: &Edit) -> Vec<Decided> {
        match *edit {
            Edit::Write { path, content, saved } => self.write(top, path, content.bytes(), saved),
            Edit::Delete(path) => match self.leaves.remove(path) {
                Some(entry) => {
                    fs::remove_file(at(top, path)).unwrap();
                    vec![Decided::Against(path.to_vec(), entry)]
                }
                None => Vec::new(),
            },
            Edit::Rename(from, to) => {
                if !self.leaves.contains_key(from) || !self.is_free(to) || is_beneath(to, from) {
                    return Vec::new();
                }
                self.enclose(top, to);
                fs::rename(at(top, from), at(top, to)).unwrap();
                let entry = self.leaves.remove(from).unwrap();
                self.leaves.insert(to.to_vec(), entry.clone());
                vec![Decided::Moved(from.to_vec(), to.to_vec(), entry)]
            }
            Edit::RemoveTree(path) => {
                if !self.directories.contains(path) {
                    return Vec::new();
                }
                fs::remove_dir_all(at(top, path)).unwrap();
                let gone = self.take_tree(path);
                gone.into_iter().map(|(name, entry)| Decided::Against(name, entry)).collect()
            }
            Edit::RenameTree(from, to) => {
                if !self.directories.contains(from) || !self.is_free(to) || is_beneath(to, from) {
                    return Vec::new();
                }
                self.enclose(top, to);
                fs::rename(at(top, from), at(top, to)).unwrap();
                let there = |name: &Name| [to, &name[from.len()..]].concat();
                let directories: Vec<Name> = self.directories_of(from).map(there).collect();
                let moved = self.take_tree(from);
                self.directories.extend(directories);
                let moved = moved.into_iter().map(|(name, entry)| {
                    let to = there(&name);
                    self.leaves.insert(to.clone(), entry.clone());
                    Decided::Moved(name, to, entry)
                });
                moved.collect()
            }
            Edit::Execute(path) => match self.leaves.get_mut(path) {
                Some(Entry::File { content, execute }) => {
                    let before = Entry::File { content: content.clone(), execute: *execute };
                    *execute = !*execute;
                    let mode = if *execute { 0o755 } else { 0o644 };
                    fs::set_permissions(at(top, path), fs::Permissions::from_mode(mode)).unwrap();
                    let after = Entry::File { content: content.clone(), execute: *execute };
                    vec![Decided::Against(path.to_vec(), before), Decided::For(path.to_vec(), after)]
                }
                _ => Vec::new(),
            },
            Edit::Link(path, to) => {
                if !self.is_free(path) {
                    return Vec::new();
                }
                self.enclose(top, path);
                symlink(OsStr::from_bytes(to), at(top, path)).unwrap();
                let entry = Entry::Link(to.to_vec());
                self.leaves.insert(path.to_vec(), entry.clone());
                vec![Decided::For(path.to_vec(), entry)]
            }
            Edit::Directory(path) => {
                if self.is_free(path) {
                    self.enclose(top, &[path, b"/"].concat());
                }
                Vec::new()
            }
        }
    }

    fn write(&mut self, top: &Path, name: &[u8], content: Vec<u8>, saved: Saved) -> Vec<Decided> {
        if self.directories.contains(name) || !self.is_reachable(name) {
            return Vec::new();
        }
        self.enclose(top, name);
        let (path, before) = (at(top, name), self.leaves.remove(name));
        match (saved, &before) {
            (Saved::InPlace | Saved::Mapped, Some(Entry::File { .. })) => overwrite(&path, &content),
            _ => {
                let draft = at(top, b"draft~");
                fs::write(&draft, &content).unwrap();
                fs::rename(draft, path).unwrap();
            }
        }
        let in_place = saved != Saved::Renamed;
        let execute = in_place && matches!(before, Some(Entry::File { execute: true, .. }));
        let after = Entry::File { content, execute };
        self.leaves.insert(name.to_vec(), after.clone());
        let before = before.filter(|before| before.essence() != after.essence());
        let against = before.map(|before| Decided::Against(name.to_vec(), before));
        against.into_iter().chain([Decided::For(name.to_vec(), after)]).collect()
    }

    fn directories_of<'a>(&'a self, top: &'a [u8]) -> impl Iterator<Item = &'a Name> {
        self.directories.iter().filter(move |name| *name == top || is_beneath(name, top))
    }

    fn take_tree(&mut self, top: &[u8]) -> Vec<(Name, Entry)> {
        self.directories.retain(|name| name != top && !is_beneath(name, top));
        let names: Vec<Name> = self.leaves.keys().filter(|name| is_beneath(name, top)).cloned().collect();
        names.into_iter().map(|name| self.leaves.remove_entry(&name).unwrap()).collect()
    }
}

/// Writes to the same file until its stamp has changed: some kernels count time in ticks.
fn overwrite(path: &Path, content: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    let stamp = |file: &File| file.metadata().map(|now| (now.ctime(), now.ctime_nsec())).unwrap();
    let before = stamp(&file);
    while {
        file.set_len(0).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        file.write_all(content).unwrap();
        stamp(&file) == before
    } {}
}
