//! The place where a mount is attached while it gets its flags.
//!
//! Problem: a process that is killed there leaves the guest's tree mounted. Two processes that use the same place at once
//! would open or unmount each other's tree.
//!
//! Defence: mounts are made on a directory inside the seat, so the seat itself is never covered, and its lock is the same for
//! everybody. Whoever has the lock unmounts what is there before it begins. Paths start at the seat's descriptor.
//!
//! What remains: processes in other mount namespaces have the same lock and other mounts; they wait for each other in vain.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cap_std::AmbientAuthority;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use super::super::flock::DirectoryFlock;
use super::super::metadata::{describe, describe_at};
use super::super::{Access, Policy, Root};
use crate::error::{Error, ErrorKind, Result};

/// What is mounted on, in the seat.
pub(super) const MOUNT: &str = "mount";
/// How many mounts a crash can have left one above the other; each crash leaves one.
const LEFT: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// A host-only directory in which [`Root::seal`] attaches a mount for the length of the call.
///
/// Use one of its own, mode `0700`, that no guest can reach, best on a mount whose propagation is private: a tmpfs of the
/// service, or a mount namespace of its own. A directory `mount` is made in it.
#[derive(Debug)]
pub struct Seat(Root);

impl Seat {
    /// Opens the seat at a host path, and unmounts what a process that was killed has left in it.
    ///
    /// # Errors
    /// Those of [`Root::open_ambient`]; [`Denied`](ErrorKind::Denied) if it belongs to another user or its mode lets others in,
    /// or if something is left and this process may not unmount it;
    /// [`Unsupported`](ErrorKind::Unsupported) before Linux 5.8; [`Busy`](ErrorKind::Busy) if somebody else uses it for more than a second.
    ///
    /// ```
    /// use std::os::unix::fs::PermissionsExt as _;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path();
    /// std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    /// let seat = beneath::Seat::open_ambient(path, beneath::ambient_authority())?;
    /// # drop(seat);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_ambient(path: impl AsRef<Path>, authority: AmbientAuthority) -> Result<Self> {
        const OPERATION: &str = "open seat";
        let root = Root::open_ambient(path, authority).map_err(|error| error.again(OPERATION))?;
        let root = root.with_policy(Policy::default().with_access(Access::private()));
        let failed = |errno| Error::without_subject(OPERATION, errno);
        let found = describe(root.as_fd()).map_err(failed)?;
        // Its owner could put a link at the name that is mounted on, which the kernel follows.
        if found.uid() != geteuid().as_raw() {
            return Err(failed(Errno::ACCESS).with_detail("it belongs to somebody else"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(failed(Errno::ACCESS).with_detail("its mode lets others in"));
        }
        match root.ensure_dir(MOUNT) {
            // What a crash has left is mounted there.
            Err(error) if error.kind() == ErrorKind::CrossDevice => {}
            ensured => ensured.map(drop).map_err(|error| error.again(OPERATION))?,
        }
        let seat = Self(root);
        seat.take(OPERATION)?;
        Ok(seat)
    }

    /// Waits for the lock, and unmounts what is left.
    pub(super) fn take(&self, operation: &'static str) -> Result<Taken<'_>> {
        let failed = |errno| Error::without_subject(operation, errno);
        let start = Instant::now();
        let lock = loop {
            match DirectoryFlock::try_take(&self.0, FlockOperation::NonBlockingLockExclusive) {
                Ok(lock) => break lock,
                Err(Errno::WOULDBLOCK) if start.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    return Err(failed(Errno::BUSY).with_detail("the seat is in use"));
                }
                Err(errno) => return Err(failed(errno)),
            }
        };
        let taken = Taken { seat: &self.0, _lock: lock };
        taken.clear().map_err(failed)?;
        Ok(taken)
    }
}

/// A seat that this thread alone uses.
#[derive(Debug)]
pub(super) struct Taken<'s> {
    seat: &'s Root,
    _lock: DirectoryFlock,
}

impl Taken<'_> {
    pub(super) fn seat(&self) -> BorrowedFd<'_> {
        self.seat.as_fd()
    }

    /// The mount calls take paths only. This one starts at the descriptor, and its last component is looked up, so that it
    /// means what is mounted there and not the directory beneath.
    pub(super) fn point(&self) -> PathBuf {
        PathBuf::from(format!("/proc/thread-self/fd/{}/{MOUNT}", self.seat().as_raw_fd()))
    }

    /// Unmounts whatever is mounted there.
    pub(super) fn clear(&self) -> rustix::io::Result<()> {
        let seat = describe(self.seat())?.mount();
        // Before 5.8 a mount of the same file system looks like the seat, and would stay.
        seat.known().ok_or(Errno::OPNOTSUPP)?;
        for _ in 0..LEFT {
            if describe_at(self.seat(), MOUNT)?.mount().is(seat) {
                return Ok(());
            }
            unmount(self.point(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
        }
        Err(Errno::BUSY)
    }
}
