//! A tree outside the root that nothing may touch, and every way to notice that something did.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};

/// What no read may ever return.
pub(crate) const MARKER: &[u8] = b"SECRET of the host";

const DIRECTORIES: &[&str] = &["", "a", "a/b", "a/b/c", "a/b/c/job", "a/b/c/job/d", "a/b/c/to"];
const FILES: &[&str] = &["a/b/c/f", "a/b/c/r", "a/b/c/job/d/x", "a/b/c/to/r"];

/// Mirrors the tree beneath the root, so that a followed link always finds what it is after.
pub(crate) struct Canary {
    dir: PathBuf,
    pins: Vec<Pin>,
    /// A file whose second name the guest holds: its link count and change time are the guest's to move.
    shared: Option<&'static str>,
}

struct Pin {
    path: &'static str,
    fd: OwnedFd,
    state: Stat,
}

impl Canary {
    pub(crate) fn plant(dir: PathBuf, shared: Option<&'static str>) -> io::Result<Self> {
        let mut canary = Self { dir, pins: Vec::new(), shared };
        canary.restore()?;
        Ok(canary)
    }

    /// Whether an inode belongs to the canary.
    pub(crate) fn holds(&self, dev: u64, ino: u64) -> bool {
        self.pins.iter().any(|pin| (pin.state.st_dev, pin.state.st_ino) == (dev, ino))
    }

    /// What has changed, judged by the inodes: identity, mode, owner, link count, size and times.
    pub(crate) fn disturbed(&self) -> Option<String> {
        let pin = self.pins.iter().find(|pin| match fstat(&pin.fd) {
            Ok(now) => !same(&pin.state, &now, self.shared == Some(pin.path)),
            Err(_) => true,
        })?;
        Some(format!("the inode of outside/{} has changed", pin.path))
    }

    /// What has changed, judged by names and content. Costs more than a call under test, so it runs now and then.
    pub(crate) fn corrupted(&self) -> io::Result<Option<String>> {
        let mut names = BTreeSet::new();
        list(&self.dir, Path::new(""), &mut names)?;
        let expected: BTreeSet<PathBuf> =
            DIRECTORIES.iter().skip(1).chain(FILES).map(PathBuf::from).collect();
        if let Some(difference) = names.symmetric_difference(&expected).next() {
            return Ok(Some(format!("outside/{} has come or gone", difference.display())));
        }
        for pin in &self.pins {
            let path = self.dir.join(pin.path);
            if fs::symlink_metadata(&path)?.ino() != pin.state.st_ino {
                return Ok(Some(format!("outside/{} is another inode", pin.path)));
            }
            if FILES.contains(&pin.path) && fs::read(&path)? != MARKER {
                return Ok(Some(format!("the content of outside/{} has changed", pin.path)));
            }
        }
        Ok(None)
    }

    /// Puts everything back, in place where it still exists.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        self.pins.clear();
        for path in DIRECTORIES {
            let path = self.dir.join(path);
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => fs::set_permissions(&path, Permissions::from_mode(0o755))?,
            }
        }
        for path in FILES {
            let path = self.dir.join(path);
            fs::write(&path, MARKER)?;
            fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        }
        let mut names = BTreeSet::new();
        list(&self.dir, Path::new(""), &mut names)?;
        for name in names.iter().rev() {
            let known = |path: &&str| Path::new(path) == name;
            if !DIRECTORIES.iter().any(known) && !FILES.iter().any(known) {
                let path = self.dir.join(name);
                fs::remove_file(&path).or_else(|_| fs::remove_dir(&path))?;
            }
        }
        for path in DIRECTORIES.iter().chain(FILES) {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = openat(CWD, self.dir.join(path), flags, Mode::empty())?;
            self.pins.push(Pin { path, state: fstat(&fd)?, fd });
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

fn list(base: &Path, beneath: &Path, names: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(base.join(beneath))? {
        let entry = entry?;
        let path = beneath.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(base, &path, names)?;
        }
        names.insert(path);
    }
    Ok(())
}
