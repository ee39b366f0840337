//! Everything that can be seen of a small tree without changing it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, Seen>);

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    inode: u64,
    links: u64,
    changed: (i64, i64),
    content: Vec<u8>,
}

impl Snapshot {
    pub fn take(top: &Path) -> Self {
        let mut seen = BTreeMap::new();
        let mut pending = vec![top.to_path_buf()];
        while let Some(path) = pending.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            let mut content = Vec::new();
            if kind.is_dir() {
                // An unreadable directory shows as empty.
                let entries = fs::read_dir(&path).into_iter().flatten();
                pending.extend(entries.map(|entry| entry.unwrap().path()));
            } else if kind.is_symlink() {
                content = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
            } else if kind.is_file() && meta.len() < 1 << 20 {
                content = fs::read(&path).unwrap_or_default();
            }
            seen.insert(
                path.strip_prefix(top).unwrap().to_path_buf(),
                Seen {
                    mode: meta.mode(),
                    owner: (meta.uid(), meta.gid()),
                    inode: meta.ino(),
                    links: meta.nlink(),
                    changed: (meta.ctime(), meta.ctime_nsec()),
                    content,
                },
            );
        }
        Self(seen)
    }

    #[track_caller]
    pub fn assert_same(&self, after: &Self, what: &str) {
        for (path, seen) in &self.0 {
            assert_eq!(Some(seen), after.0.get(path), "{what}: {}", path.display());
        }
        for path in after.0.keys() {
            assert!(self.0.contains_key(path), "{what}: new entry {}", path.display());
        }
    }

    /// The paths seen, the top itself not among them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty())
    }
}
