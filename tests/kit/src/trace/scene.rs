//! The directory a round is played in, and what must be left of it.
//!
//! ```text
//! root/g/p/leaf   what the call is about      root/g/p/other     its neighbour
//! root/g/sib/     a directory to swap with    root/spare/        room for the attacker
//! root/dst/       where renames go            root/src/item      what they bring
//! exile/, host/   same file system, not beneath the root, the guest's reach and the host's own
//! outside/        the canary: same names, all content marked; nothing may change here
//! ```

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::judge::is_temporary;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};

/// In everything outside; a byte of it in an answer is an escape.
pub const CANARY: &str = "CANARY: never a byte of this";
/// In the file that calls read.
pub const ORIGINAL_LINE: &str = "original content of the leaf\n";
/// What calls write.
pub const DATA_LINE: &str = "data that the host writes\n";

/// What stands at `root/g/p/leaf` when a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    Absent,
    File,
    Directory,
}

pub fn original() -> String {
    ORIGINAL_LINE.repeat(200)
}

pub fn data() -> String {
    DATA_LINE.repeat(200)
}

/// The scene's directories.
#[derive(Clone, Debug)]
pub struct Scene {
    pub base: PathBuf,
    pub leaf_kind: Leaf,
}

impl Scene {
    /// Builds the canary, which stays as it is for all rounds, in an empty directory.
    pub fn new(base: &Path, leaf_kind: Leaf) -> io::Result<Self> {
        let scene = Self { base: base.to_path_buf(), leaf_kind };
        scene.build_outside()?;
        Ok(scene)
    }

    fn build_outside(&self) -> io::Result<()> {
        let outside = self.outside();
        fs::create_dir_all(&outside)?;
        fs::write(outside.join("file"), CANARY)?;
        fs::write(outside.join("hard"), CANARY)?;
        for dir in ["dir", "top/p"].map(|dir| outside.join(dir)) {
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("other"), CANARY)?;
            fs::write(dir.join("only-outside"), CANARY)?;
            self.build_lesser_leaf(&dir.join("leaf"), CANARY)?;
            // So that a link to this directory at the leaf leads to the names beneath the leaf as well.
            fs::write(dir.join("a"), CANARY)?;
            fs::create_dir_all(dir.join("sub"))?;
            fs::write(dir.join("sub/x"), CANARY)?;
        }
        Ok(())
    }

    /// Puts the guest's tree back to the beginning of a round. Tells the inodes that a rename may be about.
    pub fn reset(&self) -> io::Result<Vec<u64>> {
        for dir in ["root", "exile", "host"].map(|dir| self.base.join(dir)) {
            clear(&dir)?;
            fs::create_dir(&dir)?;
        }
        let root = self.root();
        for dir in ["g", "g/p", "g/sib", "spare", "dst", "src"] {
            fs::create_dir(root.join(dir))?;
        }
        fs::write(root.join("g/p/other"), "other\n")?;
        fs::write(root.join("g/sib/other"), "other of the sibling\n")?;
        fs::write(root.join("src/item"), "item\n")?;
        self.build_leaf(&root.join("g/p/leaf"), &original())?;
        self.build_lesser_leaf(&root.join("g/sib/leaf"), "leaf of the sibling\n")?;
        let inode = |path: &str| fs::symlink_metadata(root.join(path)).ok().map(|meta| meta.ino());
        Ok(["g/p/leaf", "src/item"].into_iter().filter_map(inode).collect())
    }

    fn build_leaf(&self, leaf: &Path, content: &str) -> io::Result<()> {
        match self.leaf_kind {
            Leaf::Absent => Ok(()),
            Leaf::File => fs::write(leaf, content),
            Leaf::Directory => {
                fs::create_dir_all(leaf.join("sub/deeper"))?;
                for file in ["a", "b", "sub/x", "sub/deeper/y"] {
                    fs::write(leaf.join(file), content)?;
                }
                symlink(self.outside().join("dir"), leaf.join("link"))?;
                fifo(&leaf.join("fifo"))
            }
        }
    }

    /// Of the same kind, with less in it.
    fn build_lesser_leaf(&self, leaf: &Path, content: &str) -> io::Result<()> {
        match self.leaf_kind {
            Leaf::Absent => Ok(()),
            Leaf::File => fs::write(leaf, content),
            Leaf::Directory => {
                fs::create_dir_all(leaf.join("sub"))?;
                fs::write(leaf.join("a"), content)
            }
        }
    }

    pub fn root(&self) -> PathBuf {
        self.base.join("root")
    }

    pub fn outside(&self) -> PathBuf {
        self.base.join("outside")
    }

    /// All that the guest or the host may have left, with paths relative to the scene.
    pub fn inside_now(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for dir in ["root", "exile", "host"] {
            snapshot.add(&self.base, Path::new(dir), Contents::Read);
        }
        snapshot
    }

    /// The canary. Its times tell of a change as well as its contents, which are read at the beginning and the end.
    pub fn outside_now(&self, contents: Contents) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.add(&self.base, Path::new("outside"), contents);
        if let Some(entry) = snapshot.entries.get_mut(OsStr::new("outside/hard")) {
            // The guest may give this inode more names, and take them away again.
            entry.changed = (0, 0);
            entry.links = 1;
        }
        snapshot
    }
}

pub fn fifo(path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

/// Removes a tree, directories without permissions included.
pub fn clear(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            open_up(dir)?;
            fs::remove_dir_all(dir)
        }
    }
}

/// Changes a directory's mode by its handle; a link is refused, wherever it leads.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pin = openat(CWD, path, flags, Mode::empty())?;
    let pinned = format!("/proc/self/fd/{}", pin.as_raw_fd());
    fs::set_permissions(pinned, fs::Permissions::from_mode(mode))
}

/// Looks into a file or directory that the guest may have closed. The mode is put back, and the times of the guest's tree are
/// not judged.
fn opened<T>(path: &Path, meta: &fs::Metadata, look: impl FnOnce() -> T) -> T {
    let needed = if meta.is_dir() { 0o700 } else { 0o400 };
    let closed = meta.mode() & needed != needed;
    if closed {
        let _ = set_mode(path, needed);
    }
    let seen = look();
    if closed {
        let _ = set_mode(path, meta.mode() & 0o7777);
    }
    seen
}

fn open_up(dir: &Path) -> io::Result<()> {
    set_mode(dir, 0o700)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// What `stat` and a read tell of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub ino: u64,
    pub mode: u32,
    pub size: u64,
    pub links: u64,
    pub owner: (u32, u32),
    pub modified: (i64, i64),
    pub changed: (i64, i64),
    /// A file's bytes, a link's target.
    pub content: Option<Vec<u8>>,
}

impl Entry {
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Whether a snapshot reads files and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    Read,
    Skipped,
}

/// Every entry of some directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    // Not by `Path`, whose order compares component by component: thousands of these are built.
    entries: BTreeMap<OsString, Entry>,
    /// Inodes, with one of their paths each; a temporary one only if there is no other.
    inodes: BTreeMap<u64, OsString>,
}

impl Snapshot {
    pub fn add(&mut self, base: &Path, relative: &Path, contents: Contents) {
        let path = base.join(relative);
        let Ok(meta) = fs::symlink_metadata(&path) else { return };
        let mut entry = Entry {
            ino: meta.ino(),
            mode: meta.mode(),
            size: if meta.is_dir() { 0 } else { meta.size() },
            links: meta.nlink(),
            owner: (meta.uid(), meta.gid()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            content: None,
        };
        if contents == Contents::Skipped {
            // Told by the times.
        } else if meta.is_file() {
            entry.content = opened(&path, &meta, || fs::read(&path).ok());
        } else if meta.is_symlink() {
            entry.content = fs::read_link(&path).ok().map(|to| to.into_os_string().into_encoded_bytes());
        }
        let named = self.inodes.get(&entry.ino).is_some_and(|path| !is_temporary(Path::new(path)));
        if !named {
            self.inodes.insert(entry.ino, relative.into());
        }
        self.entries.insert(relative.into(), entry);
        if meta.is_dir() {
            opened(&path, &meta, || {
                for name in fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.file_name())
                {
                    self.add(base, &relative.join(name), contents);
                }
            });
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Entry)> {
        self.entries.iter().map(|(path, entry)| (Path::new(path), entry))
    }

    pub fn get(&self, path: impl AsRef<OsStr>) -> Option<&Entry> {
        self.entries.get(path.as_ref())
    }

    pub fn has_ino(&self, ino: u64) -> bool {
        self.inodes.contains_key(&ino)
    }

    /// An entry that is this inode.
    pub fn with_ino(&self, ino: u64) -> Option<(&Path, &Entry)> {
        let path = self.inodes.get(&ino)?;
        Some((Path::new(path), self.entries.get(path)?))
    }

    /// The entries whose last component is `name`.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Path, &'a Entry)> {
        self.iter().filter(move |(path, _)| path.file_name().is_some_and(|last| last == name))
    }

    /// The first difference to `other`, in words.
    pub fn difference(&self, other: &Self) -> Option<String> {
        for (path, entry) in self.iter() {
            match other.get(path) {
                None => return Some(format!("{} is gone", path.display())),
                Some(now) if now != entry => {
                    return Some(format!("{} changed: {entry:?} became {now:?}", path.display()));
                }
                Some(_) => {}
            }
        }
        let added = other.entries.keys().find(|path| !self.entries.contains_key(*path))?;
        Some(format!("{} appeared", Path::new(added).display()))
    }
}
