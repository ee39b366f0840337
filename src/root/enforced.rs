//! What the kernel enforces on the mount of a root, and the host path of its directory.
//!
//! Problem: some tools take a path and nothing else, and a path that was right a moment ago may lead elsewhere. A handle on
//! a mount that is attached nowhere has no path at all: the kernel reports `/`, which is the host's own root.
//!
//! Defence: flags are read from the descriptor. A path is returned only if the mount is attached in this thread's namespace,
//! and if opening the path anew gives the same directory on the same mount; without following a link, where there is openat2.
//!
//! What remains: the path is true at that moment. Whoever can rename a directory above it can make it lead elsewhere later.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use cap_std::AmbientAuthority;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstatvfs, openat, openat2, readlinkat};
use rustix::io::{Errno, retry_on_intr};

use super::Root;
use super::metadata::{Metadata, describe};
use super::resolve::path::{Checked, subject};
use super::resolve::proc::{DIRECTORY, own_descriptors};
use super::resolve::resolver::Resolver;
use crate::error::{Error, ErrorKind, Result};

/// `ST_NOSYMFOLLOW`, which the kernel reports from Linux 5.10 on.
const NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(0x2000);

/// What the kernel enforces on the mount of a [`Root`], for every user of its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Enforced {
    /// Device nodes cannot be opened.
    pub nodev: bool,
    /// Set-id bits and file capabilities have no effect.
    pub nosuid: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// No symbolic link is followed.
    pub nosymfollow: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// The mount is attached nowhere in this thread's mount namespace, as far as that can be known.
    pub detached: bool,
}

impl Root {
    /// What the kernel enforces on this root's mount, read from the descriptor.
    ///
    /// # Errors
    /// The kind of the system's error if the kernel does not describe the descriptor.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// assert!(!root.enforced()?.detached);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enforced(&self) -> Result<Enforced> {
        let failed = |errno| Error::without_subject("describe mount", errno);
        let flags = fstatvfs(self).map_err(failed)?.f_flag;
        let mount = describe(self.as_fd()).map_err(failed)?.mount();
        Ok(Enforced {
            nodev: flags.contains(StatVfsMountFlags::NODEV),
            nosuid: flags.contains(StatVfsMountFlags::NOSUID),
            noexec: flags.contains(StatVfsMountFlags::NOEXEC),
            nosymfollow: flags.contains(NOSYMFOLLOW),
            read_only: flags.contains(StatVfsMountFlags::RDONLY),
            detached: !mount.known().is_some_and(is_attached),
        })
    }

    /// The host path of this directory, checked: it is opened anew and must be the same directory on the same mount.
    ///
    /// For tools that take paths only, such as container engines. Never for a directory that a guest can rename, or whose
    /// parents it can.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) on a [detached](Enforced::detached) mount, where every path that the kernel
    /// reports leads to the host's own files, and without `/proc`; [`NotFound`](ErrorKind::NotFound) if the directory was
    /// removed; [`Escape`](ErrorKind::Escape) if the path leads elsewhere.
    ///
    /// # Races
    /// The path is that of this moment.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().canonicalize()?;
    /// # let root = beneath::Root::open_ambient(&path, beneath::ambient_authority())?;
    /// assert_eq!(root.ambient_path(beneath::ambient_authority())?, path);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ambient_path(&self, authority: AmbientAuthority) -> Result<PathBuf> {
        const OPERATION: &str = "find path";
        // The token's only use is to be asked for.
        let _ = authority;
        let failed = |errno| Error::without_subject(OPERATION, errno);
        let held = describe(self.as_fd()).map_err(failed)?;
        if self.enforced()?.detached {
            return Err(failed(Errno::OPNOTSUPP).with_detail("the mount is attached nowhere"));
        }
        let (descriptors, number) = own_descriptors(self.as_fd())
            .map_err(|_| failed(Errno::OPNOTSUPP).with_detail("needs a usable /proc"))?;
        let text = readlinkat(&descriptors, number.as_c_str(), Vec::new()).map_err(failed)?;
        let path = PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes()));
        let elsewhere =
            || failed(Errno::XDEV).with_kind(ErrorKind::Escape).with_detail("the path leads elsewhere");
        // Of a directory that this thread's own root does not contain, the kernel reports something else.
        if !path.is_absolute() {
            return Err(elsewhere());
        }
        match self.open_again(&path).and_then(|found| describe(found.as_fd())) {
            Ok(found) if is_same(&found, &held) => Ok(path),
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => Err(elsewhere()),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn open_again(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = DIRECTORY | OFlags::CLOEXEC;
        match self.found {
            Resolver::Openat2 => {
                retry_on_intr(|| openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS))
            }
            Resolver::Walk => retry_on_intr(|| openat(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty())),
        }
    }

    /// The same directory by a handle that refuses every change.
    #[cfg(feature = "mounts")]
    pub(crate) fn refusing_changes(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Refuses a change through a handle that is read-only, before the kernel does: the kernel's answer does not say
    /// whether it is the whole file system that has become read-only.
    pub(super) fn writable(&self, operation: &'static str, path: Checked<'_>) -> Result<()> {
        match self.read_only {
            true => Err(Error::new(operation, subject(path), ErrorKind::Denied)
                .with_detail("is read-only through this handle")),
            false => Ok(()),
        }
    }
}

/// Whether both are the same directory on the same mount.
pub(super) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino()) && one.mount().is(other.mount())
}

/// Whether a mount with this id is in the namespace of this thread. A number is not used again as long as a descriptor holds
/// the mount.
fn is_attached(id: u64) -> bool {
    let Ok(table) = fs::read("/proc/thread-self/mountinfo") else { return false };
    let number = id.to_string();
    table
        .split(|byte| *byte == b'\n')
        .any(|line| line.split(|byte| *byte == b' ').next() == Some(number.as_bytes()))
}
