//! Everything that can be seen of a small tree without changing it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Names that the crate makes for itself begin with this.
const TEMPORARY: &[u8] = b".beneath-";

pub fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(TEMPORARY))
}

/// Files that are larger are not read; a sparse one could be larger than the memory.
const MOST: u64 = 1 << 20;

/// What `stat` and a read show of one entry.
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
    /// All but the content.
    pub(crate) fn of(meta: &fs::Metadata) -> Self {
        Self {
            ino: meta.ino(),
            mode: meta.mode(),
            size: if meta.is_dir() { 0 } else { meta.size() },
            links: meta.nlink(),
            owner: (meta.uid(), meta.gid()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            content: None,
        }
    }

    /// Leaves out how many names the inode has and when that changed: both are the guest's to move.
    pub(crate) fn forget_names(&mut self) {
        self.changed = (0, 0);
        self.links = 1;
    }

    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    pub fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }
}

/// How closely a snapshot looks at files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Times and modes show a change as well.
    Skipped,
    Read,
    /// What the guest has closed is opened for a moment, which moves its time of change.
    Opened,
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
    /// Everything beneath a directory, and the directory itself.
    pub fn take(top: &Path) -> Self {
        Self::of(top, &[""], Contents::Read)
    }

    /// Everything at and beneath these paths, which are relative to the base, as are those of the entries.
    pub fn of(base: &Path, paths: &[&str], contents: Contents) -> Self {
        let mut snapshot = Self::default();
        for path in paths {
            snapshot.add(base, Path::new(path), contents);
        }
        snapshot
    }

    fn add(&mut self, base: &Path, relative: &Path, contents: Contents) {
        let path = base.join(relative);
        let Ok(meta) = fs::symlink_metadata(&path) else { return };
        let mut entry = Entry::of(&meta);
        if contents == Contents::Skipped {
            // The times show a change.
        } else if meta.is_file() && meta.len() < MOST {
            entry.content = look(&path, &meta, contents, || fs::read(&path).ok());
        } else if meta.is_symlink() {
            entry.content = fs::read_link(&path).ok().map(|to| to.into_os_string().into_encoded_bytes());
        }
        let named = self.inodes.get(&entry.ino).is_some_and(|path| !is_temporary(Path::new(path)));
        if !named {
            self.inodes.insert(entry.ino, relative.into());
        }
        self.entries.insert(relative.into(), entry);
        if meta.is_dir() {
            look(&path, &meta, contents, || {
                // A directory that cannot be read shows as empty.
                for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                    self.add(base, &relative.join(entry.file_name()), contents);
                }
            });
        }
    }

    /// The paths seen, the top itself not among them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.iter().map(|(path, _)| path).filter(|path| !path.as_os_str().is_empty())
    }

    /// Panics at the first difference.
    #[track_caller]
    pub fn assert_same(&self, after: &Self, what: &str) {
        if let Some(difference) = self.difference(after) {
            panic!("{what}: {difference}");
        }
    }

    /// [`Entry::forget_names`] of the entry at a path.
    pub fn forget_names_of(&mut self, path: &str) {
        if let Some(entry) = self.entries.get_mut(OsStr::new(path)) {
            entry.forget_names();
        }
    }

    /// Leaves out what is at and beneath a path.
    pub fn forget(&mut self, path: &str) {
        self.entries.retain(|entry, _| !Path::new(entry).starts_with(path));
        self.inodes.retain(|_, entry| self.entries.contains_key(entry));
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

    /// Whether an inode has a name that the crate makes for itself.
    pub fn is_named_by_us(&self, ino: u64) -> bool {
        self.iter().any(|(path, entry)| entry.ino == ino && is_temporary(path))
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

/// What a directory holds, which must be there.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Looks into a file or directory that the guest may have closed, and puts its mode back.
fn look<T>(path: &Path, meta: &fs::Metadata, contents: Contents, look: impl FnOnce() -> T) -> T {
    let needed = if meta.is_dir() { 0o700 } else { 0o400 };
    let closed = contents == Contents::Opened && meta.mode() & needed != needed;
    if closed {
        let _ = set_mode(path, needed);
    }
    let seen = look();
    if closed {
        let _ = set_mode(path, meta.mode() & 0o7777);
    }
    seen
}

/// Changes a mode by a handle; a link is refused, wherever it leads.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pin = openat(CWD, path, flags, Mode::empty())?;
    let pinned = format!("/proc/self/fd/{}", pin.as_raw_fd());
    fs::set_permissions(pinned, fs::Permissions::from_mode(mode))
}
