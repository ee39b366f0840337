//! What a tree looks like to whoever works in it, by the standard library alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The bits by which a file can be executed.
pub const EXECUTE: u32 = 0o111;

/// Each path beneath a directory, with what is there: the kind, the bits of the mode that are in the mask, a hash of the content, the
/// text of a link. Also where no path is short enough to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Likeness(pub BTreeMap<OsString, String>);

impl Likeness {
    /// Of files only, the owner's bits of `mask` are compared.
    pub fn of(top: &Path, mask: u32) -> Self {
        let mut likeness = Self::default();
        likeness.add(top, &mut PathBuf::new(), mask);
        likeness
    }

    fn add(&mut self, dir: &Path, at: &mut PathBuf, mask: u32) {
        let Ok(held) = File::open(dir) else {
            self.0.insert(at.join("?").into(), "cannot be opened".into());
            return;
        };
        // From each directory's own handle, so that no path is too long.
        let dir = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let mut names: Vec<OsString> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            let path = dir.join(&name);
            at.push(&name);
            let entry = fs::symlink_metadata(&path).unwrap();
            self.0.insert(at.clone().into(), describe(&path, &entry, mask));
            if entry.is_dir() {
                self.add(&path, at, mask);
            }
            at.pop();
        }
    }

    /// One number for all of it.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(Path::new)
    }

    /// Panics at the first difference.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, what: &str) {
        for (path, here) in &self.0 {
            assert_eq!(Some(here), other.0.get(path), "{what}: {path:?}");
        }
        let added = other.0.keys().find(|path| !self.0.contains_key(*path));
        assert_eq!(added, None, "{what}: appeared");
        assert_eq!(self.hash(), other.hash(), "{what}");
    }
}

fn describe(path: &Path, entry: &fs::Metadata, mask: u32) -> String {
    let kind = entry.file_type();
    let mode = entry.mode() & mask;
    match () {
        () if kind.is_symlink() => {
            format!("link to {:?}", fs::read_link(path).unwrap().as_os_str().as_bytes())
        }
        () if kind.is_dir() => format!("directory {:o}", if mask == EXECUTE { 0 } else { mode }),
        () if kind.is_file() => {
            let content = fs::read(path)
                .map_or_else(|error| error.to_string(), |bytes| format!("{:x}", hash_of(&bytes)));
            // Who may execute besides the owner is the policy's to say.
            let mode = if mask == EXECUTE { mode & 0o100 } else { mode };
            format!("file {mode:o}, {} bytes, {content}", entry.len())
        }
        () => format!("special: fifo {}, socket {}", kind.is_fifo(), kind.is_socket()),
    }
}

/// The hash of a file with this content.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
