//! Mounts for bubblewrap, by descriptor.
//!
//! Problem: `--bind` takes a path and resolves it again, so a directory that was replaced after the grant is mounted instead. A
//! mount point inside a directory that the guest can write to may be a link that the guest has planted.
//!
//! Defence: `--bind-fd` and `--ro-bind-fd` mount the very directory that is held. Mount points are outside of the guest's
//! directories.
//!
//! A guest that inherits the descriptor of another guest's directory opens `..` of it and is on the host. bubblewrap closes those
//! that its arguments name, and no others. So they are inheritable only while [`Bwrap::spawn`] starts one process, one at a time.
//!
//! What remains: a process that the host starts meanwhile in another way inherits them too. bubblewrap sets `nosuid` and `nodev`, and
//! neither `noexec` nor `nosymfollow`. It binds no mount that is attached nowhere, so of a [sealed](Mounts::sealed) mount or
//! session it gets the handle of before.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::base::Mode;
use super::granted::Mounts;
use super::handover::{Handed, Handover};
use crate::error::{Error, Result};
use crate::name::MountPoint;
use crate::session::Session;

const OPERATION: &str = "start bwrap";

/// Held while descriptors are inheritable.
static STARTING: Mutex<()> = Mutex::new(());

/// Arguments for bubblewrap (0.10, or Debian's 0.8.0), and the descriptors that they name.
///
/// Put them before the command, and [start](Self::spawn) it.
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

    /// Starts `command`, which inherits the descriptors.
    ///
    /// # Errors
    /// The kind of the system's error.
    ///
    /// # Races
    /// Of several guests that are started by this call at the same time, each inherits its own descriptors only. A process that
    /// another thread starts meanwhile in another way inherits them too, and must not be a guest: whoever has the descriptor of a
    /// directory can leave it upwards.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        let failed = |errno| Error::without_subject(OPERATION, errno);
        let set = |flags| self.held.iter().try_for_each(|fd| fcntl_setfd(fd, flags)).map_err(failed);
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        // It returns when the child has them, or has failed.
        let started = set(FdFlags::empty()).map(|()| command.spawn());
        set(FdFlags::CLOEXEC)?;
        started?.map_err(|error| failed(errno(&error)).with_source(error))
    }

    fn add(&mut self, handed: &Handed) -> Result<()> {
        let option = match handed.mode {
            Mode::ReadOnly => "--ro-bind-fd",
            Mode::ReadWrite => "--bind-fd",
        };
        let held = OwnedFd::from(handed.root.try_clone()?);
        self.args.extend([option.to_owned(), held.as_raw_fd().to_string(), handed.target.clone()]);
        self.held.push(held);
        Ok(())
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
}

impl Handover {
    /// What bubblewrap needs to mount it.
    ///
    /// # Errors
    /// [`TooMany`](crate::ErrorKind::TooMany) if no descriptor is left.
    pub fn bwrap(&self) -> Result<Bwrap> {
        let mut bwrap = Bwrap::default();
        self.0.iter().try_for_each(|handed| bwrap.add(handed)).map(|()| bwrap)
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
    /// // let child = bwrap.spawn(&mut command)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bwrap(&self, mounts: &Mounts, at: &MountPoint) -> Result<Bwrap> {
        self.hand_over(mounts, at)?.bwrap()
    }
}
