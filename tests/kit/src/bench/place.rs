//! Where a work is done: memory, so that the calls are measured and not a disk; and a disk, to see the difference.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::described;

/// A directory, and what the rows say of its file system.
#[derive(Debug)]
pub struct Place {
    pub name: String,
    dir: tempfile::TempDir,
    mounted: bool,
}

impl Place {
    /// Where temporary files go, or on the disk if that is memory too; and memory with and without `nodev`, which takes root.
    pub fn all() -> Vec<Self> {
        let disk = Self::beneath(&std::env::temp_dir());
        let disk = if disk.name.starts_with("tmpfs") { Self::beneath(Path::new("/var/tmp")) } else { disk };
        let mut all: Vec<Self> =
            [MountFlags::NODEV, MountFlags::empty()].into_iter().filter_map(Self::mounted).collect();
        if all.is_empty() {
            all.extend(Self::memory());
        }
        all.push(disk);
        all
    }

    /// Memory, if the machine has it at the usual place.
    pub fn memory() -> Vec<Self> {
        let usual = Path::new("/dev/shm");
        if usual.is_dir() { vec![Self::beneath(usual)] } else { Self::temporary() }
    }

    /// Only where temporary files go, which `TMPDIR` says.
    pub fn temporary() -> Vec<Self> {
        vec![Self::beneath(&std::env::temp_dir())]
    }

    fn beneath(base: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("beneath-bench-").tempdir_in(base);
        let dir = dir.expect("temporary files can be made");
        Self { name: described(dir.path()), dir, mounted: false }
    }

    /// A tmpfs of its own.
    fn mounted(flags: MountFlags) -> Option<Self> {
        let mut place = Self::beneath(&std::env::temp_dir());
        mount("none", place.dir.path(), "tmpfs", flags, None).ok()?;
        place.name = described(place.dir.path());
        place.mounted = true;
        Some(place)
    }

    /// An empty directory for a work.
    pub fn ground(&self, title: &str) -> Result<Ground, String> {
        Ground::new(self.dir.path().join(title.replace([' ', ','], "_")), false)
    }

    /// Removes what works have left.
    pub fn clear(&self) {
        for entry in fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            // What stays goes with the place.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
        }
    }
}

/// A directory for one work.
#[derive(Debug)]
pub struct Ground {
    pub dir: PathBuf,
    is_traced: bool,
}

impl Ground {
    pub(super) fn new(dir: PathBuf, is_traced: bool) -> Result<Self, String> {
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self { dir, is_traced })
    }

    /// Whether no device can be opened here, so that a read needs no pin.
    pub fn is_nodev(&self) -> bool {
        statvfs(&self.dir).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NODEV))
    }

    /// How many there are of something: all of them, or few where every call is stopped.
    pub fn size(&self, full: usize) -> usize {
        if self.is_traced { (full / 500).clamp(1, 50) } else { full }
    }
}
