//! Where scenes are built: memory if possible, with live device nodes or without.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use tempfile::TempDir;

/// Whether opening a device node has an effect. Reading takes a shorter way where it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    Live,
    Dead,
}

/// The directories found or made for the tests.
#[derive(Debug)]
pub struct Places {
    live: Option<PathBuf>,
    dead: Option<PathBuf>,
    /// Holds the mount points; mounts vanish with the process, since they are in its own namespace.
    mounts: Option<TempDir>,
}

impl Places {
    /// Must be called while the process has one thread: only that one enters the new mount namespace.
    pub fn find() -> Self {
        let mut candidates = vec![PathBuf::from("/dev/shm"), std::env::temp_dir()];
        candidates.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
        candidates.retain(|dir| tempfile::tempdir_in(dir).is_ok());
        let first = |dead: bool| candidates.iter().find(|dir| has_dead_devices(dir) == dead).cloned();
        let mut places = Self { live: first(false), dead: first(true), mounts: None };
        if places.live.is_some() && places.dead.is_some() {
            return places;
        }
        if let Some(dir) = own_mounts() {
            let mounted = |name: &str, flags: MountFlags| memory(&dir.path().join(name), flags, "size=64m");
            if places.live.is_none() {
                places.live = mounted("live", MountFlags::empty());
            }
            if places.dead.is_none() {
                places.dead = mounted("dead", MountFlags::NODEV);
            }
            places.mounts = Some(dir);
        }
        places
    }

    /// A fresh directory, unless there is no such mount and none can be made.
    pub fn dir(&self, devices: Devices) -> Option<TempDir> {
        let place = match devices {
            Devices::Live => self.live.as_ref(),
            Devices::Dead => self.dead.as_ref(),
        };
        place.and_then(|place| tempfile::tempdir_in(place).ok())
    }

    /// Where such directories are.
    pub fn any(&self) -> PathBuf {
        self.live.clone().or_else(|| self.dead.clone()).unwrap_or_else(std::env::temp_dir)
    }

    /// A fresh directory on any of them, for calls that do not care.
    pub fn any_dir(&self) -> TempDir {
        let dir = self.dir(Devices::Live).or_else(|| self.dir(Devices::Dead));
        dir.expect("there is a writable directory")
    }
}

/// A directory for mount points in a mount namespace of our own, if we may have one.
pub fn own_mounts() -> Option<TempDir> {
    unshare(CloneFlags::CLONE_NEWNS).ok()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
    tempfile::tempdir().ok()
}

/// Mounts a file system in memory.
pub fn memory(at: &Path, flags: MountFlags, options: &str) -> Option<PathBuf> {
    fs::create_dir(at).ok()?;
    let options = std::ffi::CString::new(options).ok()?;
    mount("tmpfs", at, "tmpfs", flags, Some(&*options)).ok()?;
    Some(at.to_path_buf())
}

fn has_dead_devices(dir: &Path) -> bool {
    statvfs(dir).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NODEV))
}

impl Drop for Places {
    fn drop(&mut self) {
        if let Some(mounts) = &self.mounts {
            for name in ["live", "dead"] {
                // Not every one was mounted.
                let _ = rustix::mount::unmount(mounts.path().join(name), rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}
