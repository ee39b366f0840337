//! The only place where a path becomes a descriptor.
//!
//! Problem: between two lookups of one name a guest can exchange a directory for a link, and a lookup that
//! follows links goes wherever the guest points it.
//!
//! Defence: one lookup per operation, which the kernel keeps beneath the root's handle. [`Resolver::Openat2`] hands
//! the whole path to `openat2`; [`Resolver::Walk`] opens one component after the other with `O_NOFOLLOW` and
//! compares mount ids. Without links and `..` neither can be led astray or starved by renames, so neither retries
//! and neither falls back to the other: which one runs is settled when the root is made.
//!
//! What remains: a directory that the guest moves away during the lookup may still be the one that is opened. It was
//! beneath the root when the lookup passed it.

pub(super) mod path;
pub(super) mod proc;
pub(super) mod resolver;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, chmodat, openat, openat2};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;

use super::metadata::{MountId, describe, describe_at};
use super::{Links, Mounts, Root};
use crate::error::{Error, ErrorKind, Result};
use path::{Checked, Meant, subject};
use proc::{DIRECTORY, missing_proc, own_descriptors};
use resolver::Resolver;

/// Bound on `EAGAIN`, which `openat2` answers only when it meets a `..` during a rename anywhere on the machine.
/// Under [`Links::FollowBeneath`] the guest writes those `..` itself, so this must end.
const FOLLOW_TIME: Duration = Duration::from_millis(100);

/// To hold whatever has the name, a link itself included. `openat2` gives a link to nobody who does not ask so.
const ENTRY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// The directory that holds an entry: the root itself, or one opened for this call.
#[derive(Debug)]
pub(super) enum Handle<'a> {
    Root(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Handle<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => *fd,
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

impl Handle<'_> {
    /// The same directory, held independently of the root.
    pub(super) fn into_owned(self) -> rustix::io::Result<OwnedFd> {
        match self {
            Self::Root(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 0),
            Self::Opened(fd) => Ok(fd),
        }
    }
}

impl Root {
    /// A narrower `Root` on a directory beneath this one, with the same policy.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotDirectory`](ErrorKind::NotDirectory),
    /// [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution.
    ///
    /// # Races
    /// The new handle stays on the directory it was opened on, wherever the guest moves it. If the guest can rename
    /// that directory, prefer to resolve from the outer root each time.
    pub fn descend(&self, path: impl AsRef<Path>) -> Result<Self> {
        let path = Checked::new("open", path.as_ref(), Meant::DirectoryOrRoot)?;
        let fd = self.open("open", path, DIRECTORY)?;
        Ok(self.narrowed(fd))
    }

    /// Opens what `path` names, without following a link unless the policy says so.
    pub(super) fn open(&self, operation: &'static str, path: Checked<'_>, flags: OFlags) -> Result<OwnedFd> {
        self.require_resolver(operation, path)?;
        let flags = if path.names_directory() { flags | OFlags::DIRECTORY } else { flags };
        match (self.resolver(), self.policy.links()) {
            (Resolver::Openat2, Links::Refuse) => {
                open_beneath(self.as_fd(), path.bytes(), flags, without_links(self.policy.mounts()))
            }
            (Resolver::Openat2, Links::FollowBeneath) => return self.open_following(operation, path, flags),
            (Resolver::Walk, _) => self.open_walking(path, flags),
        }
        .map_err(|errno| Error::from_errno(operation, subject(path), errno))
    }

    /// Pins the entry itself, also if it is a link. With a trailing slash only a directory will do.
    pub(super) fn pin_entry(&self, operation: &'static str, path: Checked<'_>) -> Result<OwnedFd> {
        match path.names_directory() {
            true => self.open(operation, path, OFlags::PATH),
            false => self.open(operation, path, ENTRY),
        }
    }

    /// Opens the directory that holds the last component.
    pub(super) fn parent<'p>(
        &self,
        operation: &'static str,
        path: Checked<'p>,
    ) -> Result<(Handle<'_>, &'p [u8])> {
        self.require_resolver(operation, path)?;
        let (parent, leaf) = path.split();
        let handle = match parent {
            None => Handle::Root(self.as_fd()),
            Some(parent) => Handle::Opened(
                self.open(operation, parent, DIRECTORY).map_err(|error| error.about(subject(path)))?,
            ),
        };
        Ok((handle, leaf))
    }

    /// Opens one entry of `dir`. Never follows a link; never enters a mount that `mounts` refuses.
    pub(super) fn open_child(
        &self,
        dir: BorrowedFd<'_>,
        name: impl Arg + Copy,
        flags: OFlags,
        mounts: Mounts,
    ) -> rustix::io::Result<OwnedFd> {
        match self.resolver() {
            Resolver::Openat2 => {
                match open_beneath(dir, name, flags, without_links(mounts)) {
                    // Not only a mount, but also a directory that is moved away during the lookup.
                    Err(Errno::XDEV) => match describe_at(dir, name) {
                        Ok(entry) if !self.mount.is(entry.mount()) => Err(Errno::XDEV),
                        Ok(_) => Err(Errno::AGAIN),
                        Err(errno) => Err(errno),
                    },
                    result => result,
                }
            }
            Resolver::Walk => step(dir, name, flags, self.boundary(mounts)),
        }
    }

    /// Opens a directory of `dir` for reading, even one whose mode forbids that to its owner. Never enters a mount.
    pub(super) fn enter(&self, dir: BorrowedFd<'_>, name: impl Arg + Copy) -> rustix::io::Result<OwnedFd> {
        match self.open_child(dir, name, OFlags::DIRECTORY, Mounts::Refuse) {
            Err(Errno::ACCESS) => {}
            result => return result,
        }
        // Pinned as a directory, so what is widened and then opened is that directory and nothing else.
        let pin = self.open_child(dir, name, DIRECTORY, Mounts::Refuse)?;
        let (descriptors, number) = own_descriptors(pin.as_fd()).map_err(missing_proc(Errno::ACCESS))?;
        chmodat(&descriptors, number.as_c_str(), Mode::RWXU, AtFlags::empty())?;
        openat(&descriptors, number.as_c_str(), OFlags::CLOEXEC, Mode::empty())
    }

    fn open_walking(&self, path: Checked<'_>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let boundary = self.boundary(self.policy.mounts());
        let (parent, leaf) = path.split();
        let mut above: Option<OwnedFd> = None;
        for name in parent.iter().flat_map(|parent| parent.components()) {
            let dir = above.as_ref().map_or(self.as_fd(), AsFd::as_fd);
            above = Some(step(dir, name, DIRECTORY, boundary)?);
        }
        step(above.as_ref().map_or(self.as_fd(), AsFd::as_fd), leaf, flags, boundary)
    }

    fn open_following(&self, operation: &'static str, path: Checked<'_>, flags: OFlags) -> Result<OwnedFd> {
        let start = Instant::now();
        let open = |flags, mounts| {
            loop {
                match open_beneath(self.as_fd(), path.bytes(), flags, confinement(mounts)) {
                    Err(Errno::AGAIN) if start.elapsed() < FOLLOW_TIME => {}
                    result => return result,
                }
            }
        };
        open(flags, self.policy.mounts()).map_err(|errno| {
            let error = Error::from_errno(operation, subject(path), errno);
            if errno != Errno::XDEV {
                return error;
            }
            // Both "left the root" and "met a mount": ask once more, for the error only.
            let elsewhere =
                |fd: &OwnedFd| describe(fd.as_fd()).is_ok_and(|entry| !self.mount.is(entry.mount()));
            match open(OFlags::PATH, Mounts::Cross) {
                Ok(fd) if elsewhere(&fd) => error,
                _ => error.with_kind(ErrorKind::Escape),
            }
        })
    }

    /// The mount that must not be left, if any.
    fn boundary(&self, mounts: Mounts) -> Option<MountId> {
        match mounts {
            Mounts::Refuse => Some(self.mount),
            Mounts::Cross => None,
        }
    }

    fn require_resolver(&self, operation: &'static str, path: Checked<'_>) -> Result<()> {
        let missing = match self.resolver() {
            Resolver::Openat2 => self.found == Resolver::Walk,
            Resolver::Walk => self.policy.links() == Links::FollowBeneath,
        };
        if missing {
            return Err(Error::new(operation, subject(path), ErrorKind::Unsupported)
                .with_detail("needs openat2, which is missing or blocked here"));
        }
        Ok(())
    }
}

fn without_links(mounts: Mounts) -> ResolveFlags {
    ResolveFlags::NO_SYMLINKS | confinement(mounts)
}

/// `NO_MAGICLINKS` is implied by `NO_SYMLINKS` and matters when links are followed.
fn confinement(mounts: Mounts) -> ResolveFlags {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match mounts {
        Mounts::Refuse => beneath | ResolveFlags::NO_XDEV,
        Mounts::Cross => beneath,
    }
}

/// The one call that may see a path of several components.
fn open_beneath(
    dir: BorrowedFd<'_>,
    path: impl Arg + Copy,
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    retry_on_intr(|| openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
}

/// Opens one component without following it, and refuses to leave `boundary`.
fn step(
    dir: BorrowedFd<'_>,
    name: impl Arg + Copy,
    flags: OFlags,
    boundary: Option<MountId>,
) -> rustix::io::Result<OwnedFd> {
    let never_follows = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match retry_on_intr(|| openat(dir, name, never_follows, Mode::empty())) {
        Ok(fd) => fd,
        // O_DIRECTORY turns a link into ENOTDIR, as it does a plain file: ask once, for the error only.
        Err(Errno::NOTDIR) => {
            let is_link = describe_at(dir, name).is_ok_and(|entry| entry.is_symlink());
            return Err(if is_link { Errno::LOOP } else { Errno::NOTDIR });
        }
        Err(errno) => return Err(errno),
    };
    let entry = describe(fd.as_fd())?;
    // O_PATH with O_NOFOLLOW opens the link itself, which only a caller wants that asks for it.
    if entry.is_symlink() && !flags.contains(OFlags::NOFOLLOW) {
        return Err(Errno::LOOP);
    }
    if boundary.is_some_and(|boundary| !boundary.is(entry.mount())) {
        return Err(Errno::XDEV);
    }
    Ok(fd)
}
