//! A root on a mount of its own, on which the kernel follows no link and opens no device.
//!
//! Problem: what this crate refuses, it refuses to its own callers. Code that gets the directory's descriptor and knows nothing
//! of this crate follows the guest's links and wakes the guest's device nodes.
//!
//! Defence: a second mount of the directory, `nodev,nosuid,noexec,nosymfollow` and if wanted read-only, that is attached
//! nowhere. The flags belong to the mount, so they hold for every user of the descriptor. The kernel takes them only for a
//! mount that is attached, so for the length of the call it is: in a [`Seat`], which no guest reaches. The result is judged by
//! what the new descriptor says, not by the success of the calls: a kernel before 5.10 ignores `nosymfollow`.
//!
//! | killed after | left | then |
//! |---|---|---|
//! | the bind | the directory, mounted in the seat, with no flags | the next [`Seat::open_ambient`] or `seal` unmounts it |
//! | made private, or the flags are set | the same, with flags | likewise |
//! | the mount is cloned off the seat | the same | likewise |
//! | the unmount | nothing | |
//!
//! What remains: until then whoever is root in the same mount namespace finds the guest's tree in the seat. If the seat is on a
//! mount whose propagation is shared, others see it come and go.

mod seat;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, OpenTreeFlags, mount_bind, mount_change, mount_remount, open_tree,
};

use super::Root;
use super::enforced::Enforced;
use super::metadata::describe;
use super::resolve::proc::{DIRECTORY, own_descriptors};
use crate::error::{Error, Result};

pub use seat::Seat;
use seat::{MOUNT, Taken};

const OPERATION: &str = "seal";

/// A descriptor of the mount in the seat that outlives it there.
///
/// Of a mount that was unmounted under its descriptor, the kernel drops each reference under a lock of the whole machine. A
/// clone is in a namespace of its own, and has the flags of what it is a clone of.
fn take_off(taken: &Taken<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    match open_tree(taken.seat(), MOUNT, flags | OpenTreeFlags::AT_SYMLINK_NOFOLLOW) {
        // A profile that allows the calls of old need not know this one.
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(taken.seat(), MOUNT, flags, Mode::empty())
        }
        taken_off => taken_off,
    }
}

/// Whether a [sealed](Root::seal) root can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seal {
    /// Links and device nodes are dead, nothing can be executed.
    ReadWrite,
    /// The same, and the kernel refuses every change; this crate reports it as [`Denied`](crate::ErrorKind::Denied).
    ReadOnly,
}

impl Seal {
    fn flags(self) -> MountFlags {
        let dead = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOSYMFOLLOW;
        match self {
            Self::ReadWrite => dead,
            Self::ReadOnly => dead | MountFlags::RDONLY,
        }
    }

    /// Whether the mount is what was asked for.
    fn is_enforced(self, found: Enforced) -> bool {
        let dead = found.nodev && found.nosuid && found.noexec && found.nosymfollow;
        dead && found.detached && (self == Self::ReadWrite || found.read_only)
    }
}

impl Root {
    /// This directory on a mount of its own, on which the kernel follows no link and opens no device.
    ///
    /// The flags hold for every user of the descriptor, also for code that knows nothing of this crate. The mount is attached
    /// nowhere and goes with its last descriptor. `seat` is in use during the call only. The policy stays as it is;
    /// [`Links::FollowBeneath`](crate::Links::FollowBeneath) has no effect any more.
    ///
    /// * Files cannot be moved or linked between two seals, nor between a seal and the plain directory:
    ///   [`CrossDevice`](crate::ErrorKind::CrossDevice). Seal the directory that contains both ends, once.
    /// * What the host has mounted inside the directory is not seen: the directory beneath the mount point is.
    /// * The mount has no path. `/proc/self/fd/N` of such a handle reads as `/`, so a library that turns it into a path ends
    ///   in the host's own root. [`ambient_path`](Self::ambient_path) refuses.
    /// * What is on a read-only mount, or held by a handle that refuses changes, is sealed [`ReadOnly`](Seal::ReadOnly), whatever
    ///   `seal` says.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied) without `CAP_SYS_ADMIN` in the user namespace that owns the mount namespace, or
    /// under a profile that forbids the calls; [`Unsupported`](crate::ErrorKind::Unsupported) before Linux 5.10, without
    /// `/proc`, and for a root on a mount that this namespace does not contain, such as one that is sealed already, where the
    /// kernel takes none; [`Busy`](crate::ErrorKind::Busy) if somebody else uses the seat for more than a second.
    ///
    /// # Races
    /// The handle decides which directory is sealed, wherever the guest moves it.
    ///
    /// ```no_run
    /// use beneath::{Root, Seal, Seat, ambient_authority};
    ///
    /// let seat = Seat::open_ambient("/run/my-service/seat", ambient_authority())?;
    /// let root = Root::open_ambient("/srv/sessions", ambient_authority())?.seal(Seal::ReadWrite, &seat)?;
    /// assert!(root.enforced()?.nosymfollow);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn seal(&self, seal: Seal, seat: &Seat) -> Result<Self> {
        let failed = |errno| Error::without_subject(OPERATION, errno);
        let held = describe(self.as_fd()).map_err(failed)?;
        // The remount sets the flags anew, so what is read-only would become writable.
        let seal = if self.read_only || self.enforced()?.read_only { Seal::ReadOnly } else { seal };
        let taken = seat.take(OPERATION)?;
        let sealed = self.bind(seal, &taken).map_err(failed)?;
        drop(taken);
        let found = describe(sealed.as_fd()).map_err(failed)?;
        // Somebody else has unmounted it, and this is the seat.
        if (found.dev(), found.ino()) != (held.dev(), held.ino()) {
            return Err(failed(Errno::BUSY).with_detail("the seat was changed meanwhile"));
        }
        if !seal.is_enforced(sealed.enforced()?) {
            return Err(failed(Errno::OPNOTSUPP).with_detail("the kernel does not enforce the flags"));
        }
        Ok(Self { policy: self.policy.clone(), read_only: seal == Seal::ReadOnly, ..sealed })
    }

    /// The mount is gone from the seat when this returns, whatever it returns.
    fn bind(&self, seal: Seal, taken: &Taken<'_>) -> rustix::io::Result<Self> {
        let (_, number) = own_descriptors(self.as_fd()).map_err(|_| Errno::OPNOTSUPP)?;
        let source = PathBuf::from(format!("/proc/thread-self/fd/{}", number.as_str()));
        let point = taken.point();
        mount_bind(&source, &point)?;
        let opened = mount_change(&point, MountPropagationFlags::PRIVATE)
            .and_then(|()| mount_remount(&point, MountFlags::BIND | seal.flags(), c""))
            .and_then(|()| take_off(taken));
        taken.clear()?;
        opened.map(Self::from)
    }
}
