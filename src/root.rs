//! A directory handle, and everything that is done through it.

mod access;
mod copy_tree;
mod enforced;
mod entries;
#[cfg(any(feature = "seal", feature = "session"))]
#[allow(dead_code, reason = "sessions lock files, seats and bundles lock directories")]
mod flock;
#[cfg(feature = "session")]
mod glance;
mod metadata;
mod policy;
mod read;
mod remove;
mod rename;
mod resolve;
#[cfg(feature = "seal")]
mod seal;
mod walk;
#[cfg(feature = "session")]
mod watch;
mod write;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use cap_std::AmbientAuthority;
use cap_std::fs::Dir;
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, fstatvfs, openat};
use rustix::io::{FdFlags, fcntl_setfd};

pub use access::{Applied, Execute};
pub use copy_tree::options::{CopiedTree, TreeOptions};
pub use enforced::Enforced;
pub use entries::Ensured;
#[cfg(feature = "artifacts")]
pub(crate) use flock::DirectoryFlock;
#[cfg(feature = "session")]
pub(crate) use flock::Flock;
#[cfg(feature = "session")]
pub(crate) use glance::{Glance, Moment};
pub use metadata::{FileType, Metadata};
pub use policy::{Access, Durability, HardLinks, Links, Mounts, Policy, ResolverChoice};
pub use read::ContainedFile;
#[cfg(feature = "artifacts")]
pub(crate) use read::linked::Linked;
pub use remove::budget::{Budget, Removed};
pub use rename::Rename;
#[cfg(feature = "seal")]
pub use seal::{Seal, Seat};
#[cfg(feature = "session")]
pub(crate) use watch::Changes;
pub use write::copy::Copied;
pub use write::new_file::NewFile;
pub use write::options::WriteOptions;

pub use resolve::resolver::Resolver;
#[cfg(feature = "queue")]
pub(crate) use walk::Entries;
pub use walk::{Entry, List, Walk, WalkLimits};

use crate::error::{Error, ErrorKind, Result};
use metadata::{MountId, describe};
use read::stamps;
use resolve::{proc, resolver};

/// A directory that a guest may change at any moment, held by its handle.
///
/// Every path given to a `Root` is relative, and the kernel refuses whatever would leave the directory. Nothing is
/// ever looked up by its absolute path again, so the guest may rename, exchange and link as it likes.
///
/// ```
/// use beneath::{ErrorKind, Root, ambient_authority};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let root = Root::open_ambient(path, ambient_authority())?;
/// root.write_exclusive("note.txt", "hello")?;
/// assert_eq!(root.read_contained("note.txt", 1024)?, b"hello");
///
/// std::os::unix::fs::symlink("/etc/passwd", path.join("report.txt"))?;
/// let refused = root.read_contained("report.txt", 1024).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Symlink);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    policy: Policy,
    /// What the probe found when this root, or the one it descends from, was made.
    found: Resolver,
    mount: MountId,
    /// Whether device nodes on this mount are dead, so that opening one has no effect.
    nodev: bool,
    /// Whether every change is refused: it was sealed read-only, or is the handle of a read-only mount.
    read_only: bool,
    /// Whether this kernel's own clock stamps every change.
    stamps: bool,
    /// Whether no two changes that somebody asked about have the same stamp; measured when it is first needed.
    exact: OnceLock<bool>,
}

impl Root {
    /// Opens the directory at a host path, with the default [`Policy`].
    ///
    /// This is the only call that takes a path from the host's own tree, and it follows links in it: the guest must
    /// not be able to move or replace the directory itself or anything above it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`NotDirectory`](crate::ErrorKind::NotDirectory),
    /// [`Denied`](crate::ErrorKind::Denied), or [`InvalidPath`](crate::ErrorKind::InvalidPath) for a path that holds a NUL or
    /// is too long; without the path in the message.
    pub fn open_ambient(path: impl AsRef<Path>, authority: AmbientAuthority) -> Result<Self> {
        // The token's only use is to be asked for.
        let _ = authority;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path.as_ref(), flags, Mode::empty()) {
            Ok(fd) => Ok(Self::from(fd)),
            Err(errno) => {
                let error = Error::without_subject("open root", errno);
                let has_nul = path.as_ref().as_os_str().as_encoded_bytes().contains(&0);
                Err(if has_nul {
                    error.with_kind(ErrorKind::InvalidPath).with_detail("holds a NUL")
                } else {
                    error
                })
            }
        }
    }

    /// Replaces the policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The resolver in use. It never changes by itself during the life of a `Root`.
    #[must_use]
    pub fn resolver(&self) -> Resolver {
        match self.policy.resolver() {
            ResolverChoice::Auto => self.found,
            ResolverChoice::Openat2 => Resolver::Openat2,
            ResolverChoice::Walk => Resolver::Walk,
        }
    }

    /// A second handle on the same directory, with the same policy.
    ///
    /// # Errors
    /// [`TooMany`](crate::ErrorKind::TooMany) when no descriptor is left.
    pub fn try_clone(&self) -> Result<Self> {
        match self.fd.try_clone() {
            Ok(fd) => Ok(self.narrowed(fd)),
            Err(error) => Err(Error::new("clone", ".", crate::ErrorKind::TooMany).with_source(error)),
        }
    }

    /// A root on `fd`, which is beneath this one.
    fn narrowed(&self, fd: OwnedFd) -> Self {
        let policy = self.policy.clone();
        match policy.mounts() {
            Mounts::Refuse => {
                let Self { found, mount, nodev, read_only, stamps, .. } = *self;
                Self { fd, policy, found, mount, nodev, read_only, stamps, exact: self.exact.clone() }
            }
            Mounts::Cross => Self { policy, found: self.found, read_only: self.read_only, ..Self::from(fd) },
        }
    }
}

impl From<OwnedFd> for Root {
    /// Takes a directory descriptor, with the default [`Policy`]; an `O_PATH` one will do.
    ///
    /// If it is not a directory, every later call says so.
    fn from(fd: OwnedFd) -> Self {
        proc::prepare();
        stamps::prepare();
        // Best effort: a caller's own descriptor may lack it, and a child must inherit none.
        let _ = fcntl_setfd(&fd, FdFlags::CLOEXEC);
        let nodev = fstatvfs(&fd).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NODEV));
        let mount = describe(fd.as_fd()).map_or(MountId::UNKNOWN, |entry| entry.mount());
        let (found, stamps) = (resolver::probe(fd.as_fd()), stamps::stamps_changes(fd.as_fd()));
        let (policy, exact, read_only) = (Policy::default(), OnceLock::new(), false);
        Self { fd, policy, found, mount, nodev, read_only, stamps, exact }
    }
}

impl From<Dir> for Root {
    fn from(dir: Dir) -> Self {
        Self::from(OwnedFd::from(dir))
    }
}

impl From<Root> for OwnedFd {
    fn from(root: Root) -> Self {
        root.fd
    }
}

impl From<Root> for Dir {
    /// Hands the directory to `cap-std`, which follows links beneath it and knows nothing of the policy.
    fn from(root: Root) -> Self {
        Self::from(root.fd)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
