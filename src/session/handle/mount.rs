//! What a container needs to be given.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use cap_std::AmbientAuthority;
use rustix::fs::{Stat, fstat, stat};

use super::Session;
use super::parts::Part;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, MountPoint};
use crate::root::Root;

const OPERATION: &str = "find directory to mount";

/// A directory of the host, and where the guest expects it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// The absolute path of the directory in the host's own name space.
    pub source: PathBuf,
    /// Where the guest sees it.
    pub target: MountPoint,
    /// Whether the guest may write there. The [share](Session::share) is safe only if it cannot.
    pub access: MountAccess,
}

/// What the guest may do with a directory that is mounted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MountAccess {
    /// All.
    ReadWrite,
    /// Read. The mount must be read-only: `--ro-bind` of bubblewrap, `:ro` of a volume.
    ReadOnly,
}

impl Session {
    /// What to mount into the guest, and where: the guest's directory, or inbox, outbox and workspace if they are
    /// [apart](crate::SessionsConfig::with_places); and the [share](Self::share), read-only, if there is one and the config says where.
    ///
    /// A session knows its directories by their handles alone, so the kernel is asked where they are. The paths are the host's own:
    /// give them to whoever starts the guest, and never to the guest.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if a directory was removed, or cannot be reached by a path from here;
    /// [`Unsupported`](ErrorKind::Unsupported) without a usable `/proc`; and the kinds of every resolution.
    ///
    /// # Races
    /// It was true during the call. Whoever can rename the directories above can make the path lead elsewhere.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// for mount in session.to_mount(beneath::ambient_authority())? {
    ///     let volume = format!("--volume={}:{}", mount.source.display(), mount.target);
    /// #   assert!(volume.ends_with("/s/guest:/session"));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_mount(&self, authority: AmbientAuthority) -> Result<Vec<Mount>> {
        // The token's only use is to be asked for.
        let _ = authority;
        let mount = |(root, target, access)| Ok(Mount { source: path_of(&root)?, target, access });
        self.handles_to_mount()?.into_iter().map(mount).collect()
    }

    /// The directories to mount into the guest, where, and whether it may write there.
    pub(crate) fn handles_to_mount(&self) -> Result<Vec<(Root, MountPoint, MountAccess)>> {
        self.alive()?;
        let mut mounts = self.parts_to_mount()?;
        if let (Some(share), Some(target)) = (self.share(), self.config().share()) {
            mounts.push((share.try_clone()?, target.clone(), MountAccess::ReadOnly));
        }
        Ok(mounts)
    }

    fn parts_to_mount(&self) -> Result<Vec<(Root, MountPoint, MountAccess)>> {
        if self.config().places().is_none() {
            let target = self.config().mount_point().clone();
            let parts = self.tops()?;
            let mount = |(part, root): (Part, &Root)| {
                let target = match part {
                    Part::Guest => target.clone(),
                    part => below(&target, part)?,
                };
                Ok((root.try_clone()?, target, MountAccess::ReadWrite))
            };
            return parts.into_iter().map(mount).collect();
        }
        let places = Part::ALL.into_iter().filter_map(|part| Some((part, self.config().place(part)?)));
        let mount = |(part, target): (Part, &MountPoint)| {
            Ok((self.open_part(part)?, target.clone(), MountAccess::ReadWrite))
        };
        places.map(mount).collect()
    }
}

fn below(mount: &MountPoint, part: Part) -> Result<MountPoint> {
    let path = mount.join(&GuestPath::new(part.name())?);
    MountPoint::new(path.to_string_lossy())
}

/// The path by which this process reaches a directory now.
fn path_of(root: &Root) -> Result<PathBuf> {
    let refuse = |kind| Err(Error::new(OPERATION, ".", kind));
    let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", root.as_fd().as_raw_fd())) else {
        return refuse(ErrorKind::Unsupported);
    };
    // A directory that is gone, or that another mount hides, has a text here that leads elsewhere.
    let held = fstat(root).map_err(|errno| Error::from_errno(OPERATION, ".", errno))?;
    let is_it = |found: Stat| (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino);
    match stat(Path::new(&path)) {
        Ok(found) if path.is_absolute() && is_it(found) => Ok(path),
        _ => refuse(ErrorKind::NotFound),
    }
}
