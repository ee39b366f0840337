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
//! that is attached nowhere, so of a [sealed](Mounts::sealed) mount or session it gets the handle of before.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_setfd};

use super::base::Mode;
use super::granted::Mounts;
use super::handover::{Handed, Handover};
use crate::error::{Error, Result};
use crate::name::MountPoint;
use crate::session::Session;

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

    fn add(&mut self, handed: Handed) {
        let option = match handed.mode {
            Mode::ReadOnly => "--ro-bind-fd",
            Mode::ReadWrite => "--bind-fd",
        };
        let held = OwnedFd::from(handed.root);
        self.args.extend([option.to_owned(), held.as_raw_fd().to_string(), handed.target]);
        self.held.push(held);
    }
}

impl Handover {
    /// What bubblewrap needs to mount it.
    #[must_use]
    pub fn bwrap(self) -> Bwrap {
        let mut bwrap = Bwrap::default();
        self.0.into_iter().for_each(|handed| bwrap.add(handed));
        bwrap
    }
}

impl Session {
    /// What bubblewrap needs to mount a whole guest; as [`hand_over`](Self::hand_over).
    ///
    /// # Errors
    /// Those of [`hand_over`](Self::hand_over).
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
        Ok(self.hand_over(mounts, at)?.bwrap())
    }
}
