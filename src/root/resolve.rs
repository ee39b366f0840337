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
//! Left: a directory that the guest moves away during the lookup may still be the one that is opened. It was
//! beneath the root when the lookup passed it.

pub(super) mod path;

use std::cell::RefCell;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, chmodat, fstat, fstatfs, openat, openat2,
    statat, statx,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::{Arg, DecInt};

use super::metadata::{Metadata, MountId};
use super::resolve::path::Checked;
use super::{Links, Mounts, Root};
use crate::error::{Error, ErrorKind, Result};

/// How a [`Root`] turns paths into descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolver {
    /// By `openat2`, the whole path at once.
    Openat2,
    /// Component by component, where openat2 is missing or blocked. Same guarantees, more syscalls.
    Walk,
}

/// Bound on `EAGAIN`, which `openat2` answers only when it meets a `..` during a rename anywhere on the machine.
/// Under [`Links::FollowBeneath`] the guest writes those `..` itself, so this must end.
const FOLLOW_TIME: Duration = Duration::from_millis(100);

/// To hold a directory, not to read it.
pub(super) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

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

/// Whether this process may call openat2. An empty path costs no descriptor: with openat2 it is ENOENT.
pub(super) fn probe(root: BorrowedFd<'_>) -> Resolver {
    match retry_on_intr(|| openat2(root, c"", DIRECTORY, Mode::empty(), ResolveFlags::BENEATH)) {
        Err(Errno::NOENT) => Resolver::Openat2,
        // ENOSYS from an old kernel; a seccomp profile may answer EPERM, EACCES, EINVAL or anything else.
        _ => Resolver::Walk,
    }
}

/// Describes the entry behind a descriptor.
pub(super) fn describe(fd: BorrowedFd<'_>) -> rustix::io::Result<Metadata> {
    statx(fd, c"", AtFlags::EMPTY_PATH, Metadata::WANTED).map(|found| Metadata::from_statx(&found))
}

/// Describes one entry of a directory, a link itself included.
pub(super) fn describe_at(dir: BorrowedFd<'_>, name: impl Arg) -> rustix::io::Result<Metadata> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(dir, name, flags, Metadata::WANTED).map(|found| Metadata::from_statx(&found))
}

impl Root {
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
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match retry_on_intr(|| openat(dir, name, flags, Mode::empty())) {
        Ok(fd) => fd,
        // O_DIRECTORY turns a link into ENOTDIR, as it does a plain file: ask once, for the error only.
        Err(Errno::NOTDIR) => {
            let is_link = describe_at(dir, name).is_ok_and(|entry| entry.is_symlink());
            return Err(if is_link { Errno::LOOP } else { Errno::NOTDIR });
        }
        Err(errno) => return Err(errno),
    };
    let entry = describe(fd.as_fd())?;
    // O_PATH with O_NOFOLLOW opens the link itself.
    if entry.is_symlink() {
        return Err(Errno::LOOP);
    }
    if boundary.is_some_and(|boundary| !boundary.is(entry.mount())) {
        return Err(Errno::XDEV);
    }
    Ok(fd)
}

pub(super) fn subject(path: Checked<'_>) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path.bytes()))
}

thread_local! {
    /// The directory of this thread's own descriptors, kept since every pinned read goes through it, and the process that
    /// opened it.
    ///
    /// It shows the table of the thread that opened it, also after that thread got a table of its own. A thread has to have
    /// one for itself, since the same number may be another file in another thread's table, and so has a child after a fork:
    /// opening the parent's file of that number would already break a lease, or wake a device.
    static DESCRIPTORS: RefCell<Option<(u32, OwnedFd)>> = const { RefCell::new(None) };
}

/// Opens the directory of descriptors before anything counts how many are open.
pub(super) fn prepare() {
    // Without it every read says what is missing.
    let _ = with_descriptors(|_| ());
}

/// Runs `call` with the directory of this thread's own descriptors. `None` without a usable `/proc`.
fn with_descriptors<T>(call: impl FnOnce(BorrowedFd<'_>) -> T) -> rustix::io::Result<Option<T>> {
    let kept = DESCRIPTORS.try_with(|kept| {
        let Ok(mut kept) = kept.try_borrow_mut() else { return Ok(None) };
        let process = std::process::id();
        if kept.as_ref().is_none_or(|(opener, _)| *opener != process) {
            *kept = match open_descriptors(c"/proc/thread-self/fd") {
                Ok(descriptors) => Some((process, descriptors)),
                // Not a reason to do without it.
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
                Err(_) => None,
            };
        }
        Ok(kept.as_ref().map(|(_, descriptors)| call(descriptors.as_fd())))
    });
    // The thread is ending.
    kept.unwrap_or(Ok(None))
}

/// Has the directory of descriptors opened anew.
pub(super) fn forget_descriptors() {
    let _ = DESCRIPTORS.try_with(|kept| kept.take());
}

/// Opens the regular file behind a pin for reading. `None` if no usable `/proc` leads to it.
pub(super) fn reopen(pin: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<Option<OwnedFd>> {
    let (number, flags) = (DecInt::from_fd(pin), flags | OFlags::CLOEXEC);
    let open = |descriptors: BorrowedFd<'_>| {
        retry_on_intr(|| openat(descriptors, number.as_c_str(), flags, Mode::empty()))
    };
    match with_descriptors(open)? {
        Some(Ok(fd)) => Ok(Some(fd)),
        // A guest cannot cause these: the link leads to the inode even after its last name is gone.
        None | Some(Err(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
        Some(Err(errno)) => Err(errno),
    }
}

/// The directory of the thread's own descriptors, and the name of `fd` in it, which is checked to be that file.
pub(super) fn own_descriptors(fd: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, DecInt)> {
    let (descriptors, number) = (open_descriptors(c"/proc/thread-self/fd")?, DecInt::from_fd(fd));
    let (told, held) = (statat(&descriptors, number.as_c_str(), AtFlags::empty())?, fstat(fd)?);
    if (told.st_dev, told.st_ino) != (held.st_dev, held.st_ino) {
        return Err(Errno::NOENT);
    }
    Ok((descriptors, number))
}

/// What a failure to find one's own descriptors means: `meaning`, unless the host has run out of something.
pub(super) fn missing_proc(meaning: Errno) -> impl Fn(Errno) -> Errno {
    move |errno| match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => errno,
        _ => meaning,
    }
}

/// Checked, since anything may be mounted at `/proc`.
fn open_descriptors(path: &CStr) -> rustix::io::Result<OwnedFd> {
    let descriptors = openat(CWD, path, DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    if fstatfs(&descriptors)?.f_type != PROC_SUPER_MAGIC {
        return Err(Errno::NOENT);
    }
    Ok(descriptors)
}
