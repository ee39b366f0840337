//! What a container needs to be given.

use std::path::{Path, PathBuf};

use cap_std::AmbientAuthority;

use super::Session;
use super::identity::Identity;
use super::parts::{GUEST, Part, SHARE};
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
    /// [`NotFound`](ErrorKind::NotFound) if a directory was removed, or is not the one that a sealed session
    /// holds; [`Escape`](ErrorKind::Escape) if it cannot be reached by a path from here;
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
        let mount = |(root, target, access): (Root, MountPoint, MountAccess)| {
            let source = root
                .ambient_path(authority)
                .map_err(|error| error.again(OPERATION).about(target.as_str()))?;
            Ok(Mount { source, target, access })
        };
        self.handles_to_mount()?.into_iter().map(mount).collect()
    }

    /// The directories to mount into the guest, where, and whether it may write there. The handles are on mounts that are
    /// attached, if the session knows such.
    pub(crate) fn handles_to_mount(&self) -> Result<Vec<(Root, MountPoint, MountAccess)>> {
        self.alive()?;
        let mut mounts = self.parts_to_mount()?;
        if let (Some(share), Some(target)) = (self.share(), self.config().share()) {
            let share = self.attached(share.try_clone()?, Path::new(SHARE))?;
            mounts.push((share, target.clone(), MountAccess::ReadOnly));
        }
        Ok(mounts)
    }

    fn parts_to_mount(&self) -> Result<Vec<(Root, MountPoint, MountAccess)>> {
        let mount = |(part, root, target): (Part, Root, MountPoint)| {
            let path = match part {
                Part::Guest => PathBuf::from(GUEST),
                part => Path::new(GUEST).join(part),
            };
            Ok((self.attached(root, &path)?, target, MountAccess::ReadWrite))
        };
        if self.config().places().is_some() {
            let places = Part::ALL.into_iter().filter_map(|part| Some((part, self.config().place(part)?)));
            return places
                .map(|(part, target)| mount((part, self.open_part(part)?, target.clone())))
                .collect();
        }
        let target = |part| match part {
            Part::Guest => Ok(self.config().mount_point().clone()),
            part => below(self.config().mount_point(), part),
        };
        self.tops()?.into_iter().map(|(part, root)| mount((part, root.try_clone()?, target(part)?))).collect()
    }

    /// The directory of `root` by a handle that others can mount.
    fn attached(&self, root: Root, path: &Path) -> Result<Root> {
        let Some(found) = self.places.home.as_ref().and_then(|home| home.attached(path)) else {
            return Ok(root);
        };
        let found = found?;
        let identity = |root| Identity::of(root).map_err(|errno| Error::from_errno(OPERATION, path, errno));
        match identity(&found)? == identity(&root)? {
            true => Ok(found),
            // The guest has exchanged it meanwhile, or something is mounted there.
            false => Err(Error::new(OPERATION, path, ErrorKind::NotFound)
                .with_detail("is another directory than the one that is held")),
        }
    }
}

fn below(mount: &MountPoint, part: Part) -> Result<MountPoint> {
    let path = mount.join(&GuestPath::new(part.name())?);
    MountPoint::new(path.to_string_lossy())
}
