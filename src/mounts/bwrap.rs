//! Mounts for bubblewrap, by descriptor.
//!
//! Problem: `--bind` takes a path and resolves it again, so a directory that was replaced after the grant is mounted instead. A
//! mount point inside a directory that the guest can write to may be a link that the guest has planted.
//!
//! Defence: `--bind-fd` and `--ro-bind-fd` mount the very directory that is held. Mount points are outside of the guest's
//! directories.
//!
//! What remains: bubblewrap needs the descriptors, so they are inherited by every process that is started while they are
//! [inheritable](Bwrap::inherit). bubblewrap sets `nosuid` and `nodev`, and neither `noexec` nor `nosymfollow`. It binds no mount
//! that is attached nowhere, so of a [sealed](Mounts::sealed) mount it gets the handle of before.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_setfd};

use super::base::Mode;
use super::granted::Mounts;
use crate::error::{Error, ErrorKind, Result};
use crate::name::MountPoint;
use crate::root::Root;
use crate::session::{MountAccess, Session};

const OPERATION: &str = "prepare bwrap";

/// Arguments for bubblewrap (0.10, or Debian's 0.8.0), and the descriptors that they name.
///
/// Put them before the command, [let the child inherit](Self::inherit) the descriptors, start it, and drop this.
#[derive(Debug, Default)]
pub struct Bwrap {
    args: Vec<String>,
    held: Vec<OwnedFd>,
}

impl Bwrap {
    /// The arguments.
    #[must_use]
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// The descriptors that the arguments name by their numbers.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held.iter().map(OwnedFd::as_fd)
    }

    /// Lets processes that are started from now on inherit the descriptors, until this is dropped.
    ///
    /// # Errors
    /// The kind of the system's error.
    ///
    /// # Races
    /// A process that another thread starts meanwhile inherits them too. Start others from a thread that waits, or have your own
    /// code pass the [descriptors](Self::descriptors) on.
    pub fn inherit(&self) -> Result<()> {
        let inherit = |fd: &OwnedFd| fcntl_setfd(fd, FdFlags::empty());
        self.held.iter().try_for_each(inherit).map_err(|errno| Error::without_subject(OPERATION, errno))
    }

    fn add(&mut self, root: &Root, mode: Mode, target: &str) -> Result<()> {
        let held = OwnedFd::from(root.try_clone()?);
        let option = match mode {
            Mode::ReadOnly => "--ro-bind-fd",
            Mode::ReadWrite => "--bind-fd",
        };
        self.args.extend([option.to_owned(), held.as_raw_fd().to_string(), target.to_owned()]);
        self.held.push(held);
        Ok(())
    }
}

impl Mounts {
    /// What bubblewrap needs to mount each at `<at>/<alias>`. Choose an `at` that is in no directory which the guest can write to.
    ///
    /// # Errors
    /// [`TooMany`](ErrorKind::TooMany) if no descriptor is left.
    pub fn bwrap(&self, at: &MountPoint) -> Result<Bwrap> {
        let mut bwrap = Bwrap::default();
        self.add_to(&mut bwrap, at)?;
        Ok(bwrap)
    }

    fn add_to(&self, bwrap: &mut Bwrap, at: &MountPoint) -> Result<()> {
        self.iter()
            .try_for_each(|mount| bwrap.add(mount.to_hand_over(), mount.mode(), &self.target(at, mount)))
    }
}

impl Session {
    /// What bubblewrap needs to mount the guest's directories of this session, and each of `mounts` at `<at>/<alias>`.
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath) if `at` is in a directory of the guest, or one of those in `at`: the guest could put
    /// a link there; [`Unsupported`](ErrorKind::Unsupported) for a session that is [sealed](crate::Sessions::sealed), since
    /// bubblewrap cannot bind it; [`NotFound`](ErrorKind::NotFound) if the session was removed; [`TooMany`](ErrorKind::TooMany); and the kinds of
    /// every resolution.
    ///
    /// ```
    /// # use beneath::{MountPoint, Root, SessionId, Sessions, ambient_authority, mounts::Mounts};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
    /// # let (session, _) = Sessions::new(root, Default::default()).create(&SessionId::new("s"))?;
    /// # let mounts = Mounts::default();
    /// let bwrap = session.bwrap(&mounts, &MountPoint::new("/mnt/host")?)?;
    /// let mut command = std::process::Command::new("bwrap");
    /// command.args(["--unshare-all", "--ro-bind", "/usr", "/usr"]).args(bwrap.args()).arg("/usr/bin/agent");
    /// bwrap.inherit()?;
    /// // let child = command.spawn()?;
    /// drop(bwrap);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bwrap(&self, mounts: &Mounts, at: &MountPoint) -> Result<Bwrap> {
        let mut bwrap = Bwrap::default();
        for (root, target, access) in self.handles_to_mount()? {
            if at.strip_prefix(&target).is_some() || target.strip_prefix(at).is_some() {
                return Err(Error::new(OPERATION, at.as_str(), ErrorKind::InvalidPath)
                    .with_detail("is in reach of the guest"));
            }
            let mode = match access {
                MountAccess::ReadOnly => Mode::ReadOnly,
                MountAccess::ReadWrite => Mode::ReadWrite,
            };
            if root.enforced()?.detached {
                return Err(Error::new(OPERATION, target.as_str(), ErrorKind::Unsupported)
                    .with_detail("the session is sealed"));
            }
            bwrap.add(&root, mode, target.as_str())?;
        }
        mounts.add_to(&mut bwrap, at)?;
        Ok(bwrap)
    }
}
