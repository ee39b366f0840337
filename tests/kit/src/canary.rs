//! A tree outside the root that nothing may touch, and every way to notice that something did.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};

/// Directories and files as they were found, each held by a descriptor.
///
/// To ask the descriptors takes a few system calls and no path, so that it can be done after every call under test.
#[derive(Debug)]
pub struct Canary {
    dir: PathBuf,
    /// What was found: the content of a file, or nothing for a directory.
    entries: BTreeMap<PathBuf, Option<Vec<u8>>>,
    pins: Vec<Pin>,
    /// A file whose second name the guest holds: its link count and change time are the guest's to move.
    shared: Option<PathBuf>,
}

#[derive(Debug)]
struct Pin {
    path: PathBuf,
    fd: OwnedFd,
    state: Stat,
}

impl Canary {
    /// Takes the tree at `dir` as it is.
    pub fn pin(dir: PathBuf, shared: Option<&str>) -> io::Result<Self> {
        let entries = list(&dir)?;
        let mut canary = Self { dir, entries, pins: Vec::new(), shared: shared.map(PathBuf::from) };
        canary.restore()?;
        Ok(canary)
    }

    /// Whether an inode belongs to the canary.
    pub fn holds(&self, dev: u64, ino: u64) -> bool {
        self.pins.iter().any(|pin| (pin.state.st_dev, pin.state.st_ino) == (dev, ino))
    }

    /// Whether an inode of the canary's file system belongs to it.
    pub fn holds_inode(&self, ino: u64) -> bool {
        self.pins.iter().any(|pin| pin.state.st_ino == ino)
    }

    /// What has changed, judged by the inodes: identity, mode, owner, link count, size and times.
    pub fn disturbed(&self) -> Option<String> {
        let pin = self.pins.iter().find(|pin| match fstat(&pin.fd) {
            Ok(now) => !same(&pin.state, &now, self.shared.as_ref() == Some(&pin.path)),
            Err(_) => true,
        })?;
        Some(format!("the inode of outside/{} has changed", pin.path.display()))
    }

    /// What has changed, judged by names and content. Costs more than a call under test, so it runs now and then.
    pub fn corrupted(&self) -> io::Result<Option<String>> {
        let found = list(&self.dir)?;
        let differs = |path: &&PathBuf| found.get(*path) != self.entries.get(*path);
        if let Some(path) = found.keys().chain(self.entries.keys()).find(differs) {
            return Ok(Some(format!("outside/{} has come, gone or changed", path.display())));
        }
        for pin in &self.pins {
            if fs::symlink_metadata(self.dir.join(&pin.path))?.ino() != pin.state.st_ino {
                return Ok(Some(format!("outside/{} is another inode", pin.path.display())));
            }
        }
        Ok(None)
    }

    /// Puts everything back, in place where it still exists.
    pub fn restore(&mut self) -> io::Result<()> {
        self.pins.clear();
        for (path, content) in &self.entries {
            let path = self.dir.join(path);
            let mode = match content {
                None => {
                    fs::create_dir(&path).or_else(|error| match error.kind() {
                        io::ErrorKind::AlreadyExists => Ok(()),
                        _ => Err(error),
                    })?;
                    0o755
                }
                Some(content) => {
                    fs::write(&path, content)?;
                    0o644
                }
            };
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
        }
        for added in list(&self.dir)?.keys().rev().filter(|path| !self.entries.contains_key(*path)) {
            let path = self.dir.join(added);
            fs::remove_file(&path).or_else(|_| fs::remove_dir(&path))?;
        }
        for path in self.entries.keys() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = openat(CWD, self.dir.join(path), flags, Mode::empty())?;
            self.pins.push(Pin { path: path.clone(), state: fstat(&fd)?, fd });
        }
        Ok(())
    }
}

/// Compares everything but the access time, which a mere listing moves.
fn same(then: &Stat, now: &Stat, shared: bool) -> bool {
    let lasting = |stat: &Stat| (stat.st_mode, stat.st_uid, stat.st_gid, stat.st_size);
    let modified = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
    let linked = |stat: &Stat| (stat.st_nlink, stat.st_ctime, stat.st_ctime_nsec);
    lasting(then) == lasting(now)
        && modified(then) == modified(now)
        && (shared || linked(then) == linked(now))
}

/// Every entry from `top` on; what is neither a directory nor a readable file counts as an empty one.
fn list(top: &Path) -> io::Result<BTreeMap<PathBuf, Option<Vec<u8>>>> {
    let mut found = BTreeMap::from([(PathBuf::new(), None)]);
    let mut unread = vec![PathBuf::new()];
    while let Some(dir) = unread.pop() {
        for entry in fs::read_dir(top.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let kind = entry.file_type()?;
            let content = match kind.is_dir() {
                true => {
                    unread.push(path.clone());
                    None
                }
                false if kind.is_file() => Some(fs::read(entry.path())?),
                false => Some(Vec::new()),
            };
            found.insert(path, content);
        }
    }
    Ok(found)
}
