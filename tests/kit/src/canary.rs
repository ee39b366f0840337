//! A tree outside the root that nothing may touch, and every way to notice that something did.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::snapshot::{Entry, Snapshot};

/// Directories and files as they were found, each held by a descriptor.
///
/// To ask the descriptors takes a few system calls and no path, so that it can be done after every call under test.
#[derive(Debug)]
pub struct Canary {
    dir: PathBuf,
    device: u64,
    found: Snapshot,
    pins: Vec<Pin>,
    /// A file whose second name the guest holds: its link count and change time are the guest's to move.
    shared: Option<&'static str>,
    /// Entries of the directory that are not part of the canary.
    others: &'static [&'static str],
}

#[derive(Debug)]
struct Pin {
    path: PathBuf,
    file: File,
    state: Entry,
}

impl Canary {
    /// Takes the tree at `dir` as it is.
    pub fn pin(dir: PathBuf, shared: Option<&'static str>) -> io::Result<Self> {
        Self::pin_all_but(&[], dir, shared)
    }

    /// The same without some of the entries of `dir`.
    pub fn pin_all_but(
        others: &'static [&'static str],
        dir: PathBuf,
        shared: Option<&'static str>,
    ) -> io::Result<Self> {
        let device = fs::metadata(&dir)?.dev();
        let mut canary = Self { dir, device, found: Snapshot::default(), pins: Vec::new(), shared, others };
        canary.found = canary.look();
        canary.restore()?;
        Ok(canary)
    }

    fn look(&self) -> Snapshot {
        let mut found = Snapshot::take(&self.dir);
        self.others.iter().for_each(|other| found.forget(other));
        self.shared.iter().for_each(|shared| found.forget_names_of(shared));
        found
    }

    /// Whether an inode belongs to the canary.
    pub fn holds(&self, dev: u64, ino: u64) -> bool {
        dev == self.device && self.holds_inode(ino)
    }

    /// Whether an inode of the canary's file system belongs to it.
    pub fn holds_inode(&self, ino: u64) -> bool {
        self.found.has_ino(ino)
    }

    /// What has changed, judged by the inodes: identity, mode, owner, link count, size and times.
    pub fn disturbed(&self) -> Option<String> {
        let pin = self
            .pins
            .iter()
            .find(|pin| self.state(&pin.path, &pin.file).map_or(true, |now| now != pin.state))?;
        Some(format!("the inode of outside/{} has changed", pin.path.display()))
    }

    fn state(&self, path: &Path, file: &File) -> io::Result<Entry> {
        let mut state = Entry::of(&file.metadata()?);
        if self.shared.is_some_and(|shared| path == Path::new(shared)) {
            state.forget_names();
        }
        Ok(state)
    }

    /// What has changed, judged by names and content too. Costs more than a call under test, so it runs now and then.
    pub fn corrupted(&self) -> Option<String> {
        Some(format!("outside/{}", self.found.difference(&self.look())?))
    }

    /// Puts everything back, in place where it still exists.
    pub fn restore(&mut self) -> io::Result<()> {
        for (path, entry) in self.found.iter() {
            let path = self.dir.join(path);
            match &entry.content {
                Some(text) if entry.is_link() => {
                    // It is there mostly.
                    let _ = symlink(OsStr::from_bytes(text), &path);
                    continue;
                }
                Some(content) => fs::write(&path, content)?,
                None => fs::create_dir_all(&path)?,
            }
            fs::set_permissions(&path, Permissions::from_mode(entry.mode & 0o7777))?;
        }
        let now = self.look();
        let added: Vec<&Path> = now.paths().filter(|path| self.found.get(path).is_none()).collect();
        for path in added.into_iter().rev().map(|path| self.dir.join(path)) {
            fs::remove_file(&path).or_else(|_| fs::remove_dir(&path))?;
        }
        self.found = self.look();
        let pin = |path: &Path| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(openat(CWD, self.dir.join(path), flags, Mode::empty())?);
            Ok(Pin { path: path.to_owned(), state: self.state(path, &file)?, file })
        };
        self.pins = self.found.iter().map(|(path, _)| pin(path)).collect::<io::Result<_>>()?;
        Ok(())
    }
}
