//! What a guest is given, in the hands of whoever starts it.
//!
//! Problem: a program that starts a guest gets a path to mount, resolves the path again, and follows a link that a guest has
//! planted at a mount point.
//!
//! Defence: what is handed over is a handle, where the guest sees it and whether it may write there. No mount point is in a
//! directory that the guest can write to. After the start, [`Handover::verify_in`] compares what is mounted with what was meant.
//!
//! What remains: engines that take paths only, see [`Handover::oci`]. What the host has mounted inside one of the directories is
//! handed over too by those that bind recursively, as bubblewrap does.

use std::path::Path;

use super::base::Mode;
use super::granted::Mounts;
use crate::error::{Error, ErrorKind, Result};
use crate::name::MountPoint;
use crate::root::{Links, Mounts as Crossing, Root};
use crate::session::{MountAccess, Session};

/// What to mount into a guest, and where.
///
/// From [`Session::hand_over`] for a whole guest, or from [`Mounts::hand_over`] for what was granted alone.
#[derive(Debug)]
pub struct Handover(pub(super) Vec<Handed>);

/// One directory.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) root: Root,
    pub(super) target: String,
    pub(super) mode: Mode,
    pub(super) origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The session's own, in which the guest makes and follows links as it likes.
    Session,
    /// A directory of the host.
    Granted,
}

/// What a guest sees instead of what was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Difference {
    /// Nothing that can be looked at; a link, for instance.
    Missing,
    /// Another directory.
    Another,
    /// The directory, and the guest may write to it although it must not.
    Writable,
}

impl Mounts {
    /// Hands over each mount, to be mounted at `<at>/<alias>`. Choose an `at` that is in no directory which the guest can write
    /// to.
    ///
    /// # Errors
    /// [`TooMany`](ErrorKind::TooMany) if no descriptor is left.
    pub fn hand_over(&self, at: &MountPoint) -> Result<Handover> {
        let hand = |mount: &super::Mount| {
            let target = format!("{}/{}", at.as_str().trim_end_matches('/'), mount.alias());
            let root = mount.to_hand_over().try_clone()?;
            Ok(Handed { root, target, mode: mount.mode(), origin: Origin::Granted })
        };
        self.iter().map(hand).collect::<Result<_>>().map(Handover)
    }
}

impl Session {
    /// Hands over a whole guest: the guest's directories of this session, the [share](Self::share) read-only, and each of `mounts`
    /// at `<at>/<alias>`.
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath) if `at` is in a directory of the guest, or one of those in `at`, or if the config has
    /// one of the session's own mount points in a directory that the guest can write to: the guest could put a link there;
    /// [`NotFound`](ErrorKind::NotFound) if the session was removed; [`TooMany`](ErrorKind::TooMany); and the kinds
    /// of every resolution.
    ///
    /// ```
    /// # use beneath::{MountPoint, Root, SessionId, Sessions, ambient_authority, mounts::Mounts};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
    /// # let (session, _) = Sessions::new(root, Default::default()).create(&SessionId::new("s"))?;
    /// # let mounts = Mounts::default();
    /// let guest = session.hand_over(&mounts, &MountPoint::new("/mnt/host")?)?;
    /// let mut docker = std::process::Command::new("docker");
    /// docker.args(["run", "--rm"]).args(guest.docker_args(ambient_authority())?).arg("agent-image");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hand_over(&self, mounts: &Mounts, at: &MountPoint) -> Result<Handover> {
        let own = self.handles_to_mount()?;
        let refuse = |point: &MountPoint| {
            Err(Error::new("hand over mounts", point.as_str(), ErrorKind::InvalidPath)
                .with_detail("is in reach of the guest"))
        };
        for (number, (_, point, _)) in own.iter().enumerate() {
            let holds = |(other, (_, target, access)): (usize, &(Root, MountPoint, MountAccess))| {
                other != number && *access == MountAccess::ReadWrite && point.strip_prefix(target).is_some()
            };
            if own.iter().enumerate().any(holds) {
                return refuse(point);
            }
        }
        let mut handed = Vec::new();
        for (root, target, access) in own {
            if at.strip_prefix(&target).is_some() || target.strip_prefix(at).is_some() {
                return refuse(at);
            }
            let mode = match access {
                MountAccess::ReadOnly => Mode::ReadOnly,
                MountAccess::ReadWrite => Mode::ReadWrite,
            };
            handed.push(Handed { root, target: target.to_string(), mode, origin: Origin::Session });
        }
        handed.append(&mut mounts.hand_over(at)?.0);
        Ok(Handover(handed))
    }
}

impl Handover {
    /// Where the guest sees something else than what was meant, and what. `root` is the root directory of the guest, such as
    /// `/proc/<pid>/root` of its first process.
    ///
    /// # Errors
    /// [`TooMany`](ErrorKind::TooMany) if no descriptor is left, and the kind of the system's error if the kernel does not
    /// describe what is held.
    ///
    /// # Races
    /// It was true during the call.
    pub fn verify_in(&self, root: &Root) -> Result<Vec<(String, Difference)>> {
        // What is mounted in a guest are mounts. A link would be the guest's.
        let policy = root.policy().clone().with_mounts(Crossing::Cross).with_links(Links::Refuse);
        let root = root.try_clone()?.with_policy(policy);
        let mut different = Vec::new();
        for handed in &self.0 {
            let found = handed.difference(&root)?;
            different.extend(found.map(|difference| (handed.target.clone(), difference)));
        }
        Ok(different)
    }
}

impl Handed {
    fn difference(&self, guest: &Root) -> Result<Option<Difference>> {
        let found = match guest.descend(Path::new(self.target.trim_start_matches('/'))) {
            Err(error) if error.kind() == ErrorKind::TooMany => return Err(error),
            Err(_) => return Ok(Some(Difference::Missing)),
            Ok(found) => found,
        };
        let identity = |root: &Root| root.metadata(".").map(|found| (found.dev(), found.ino()));
        if identity(&found)? != identity(&self.root)? {
            return Ok(Some(Difference::Another));
        }
        let writable = self.mode == Mode::ReadOnly && !found.enforced()?.read_only;
        Ok(writable.then_some(Difference::Writable))
    }
}
