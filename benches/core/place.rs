//! Where the work is done: memory, so that the calls are measured and not a disk; and a disk, to see the difference.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A directory, and whether its mount is `nodev`.
pub struct Place {
    pub name: &'static str,
    dir: tempfile::TempDir,
    mounted: bool,
    pub nodev: bool,
}

impl Place {
    /// A plain directory, on tmpfs if the machine has one at the usual place.
    pub fn plain() -> Self {
        let base =
            if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let dir = tempfile::tempdir_in(base).unwrap();
        let flags = rustix::fs::statvfs(dir.path()).unwrap().f_flag;
        Self {
            name: "memory",
            dir,
            mounted: false,
            nodev: flags.contains(rustix::fs::StatVfsMountFlags::NODEV),
        }
    }

    /// A directory where temporary files go.
    pub fn disk() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = rustix::fs::statvfs(dir.path()).unwrap().f_flag;
        let nodev = flags.contains(rustix::fs::StatVfsMountFlags::NODEV);
        Self { name: "temporary directory", dir, mounted: false, nodev }
    }

    /// A tmpfs of its own with `nodev`, which takes root.
    pub fn nodev() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        match mount("none", dir.path(), "tmpfs", MountFlags::NODEV, None) {
            Ok(()) => Some(Self { name: "memory", dir, mounted: true, nodev: true }),
            Err(errno) => {
                println!("skipped: no nodev tmpfs can be mounted here ({errno})");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
        }
    }
}
