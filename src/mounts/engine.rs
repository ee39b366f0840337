//! Mounts for engines that take paths: OCI runtimes, docker, podman.
//!
//! Problem: the engine resolves the path again, later. A colon or a comma in a path is a second option to its parser. Where a
//! guest has planted a link at a mount point, the engine mounts elsewhere.
//!
//! Defence: a path is that of the directory which is held, at that moment. One that could be read in another way is refused. After
//! the start, [`Mounts::verify_in`] compares what is mounted with what was granted.
//!
//! What remains: until the engine has mounted it, whoever can rename a directory above can make the path lead elsewhere. Use these
//! only where no guest can.

use std::path::Path;

use cap_std::AmbientAuthority;

use super::base::Mode;
use super::granted::{Mount, Mounts};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{MountPoint, SafeName};
use crate::root::{Mounts as Crossing, Root};

const OPERATION: &str = "hand over mount";

/// An entry of `mounts` in the `config.json` of an OCI runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OciMount {
    /// Where the guest sees it.
    pub destination: String,
    /// `bind`.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: &'static str,
    /// The host path.
    pub source: String,
    /// `bind,private,nosuid,nodev,nosymfollow`, and `ro` or `rw`.
    pub options: Vec<&'static str>,
}

impl Mounts {
    /// Where the guest sees a mount.
    pub(super) fn target(&self, at: &MountPoint, mount: &Mount) -> String {
        format!("{}/{}", at.as_str().trim_end_matches('/'), mount.alias())
    }

    /// Entries for an OCI runtime, each at `<at>/<alias>`.
    ///
    /// # Errors
    /// Those of [`Root::ambient_path`]; [`InvalidPath`](ErrorKind::InvalidPath) for a host path that is not UTF-8.
    ///
    /// # Races
    /// The paths are those of this moment.
    pub fn oci(&self, at: &MountPoint, authority: AmbientAuthority) -> Result<Vec<OciMount>> {
        let entry = |mount: &Mount| {
            let options = vec!["bind", "private", "nosuid", "nodev", "nosymfollow", mount.mode().as_str()];
            let source = source(mount, authority)?;
            Ok(OciMount { destination: self.target(at, mount), kind: "bind", source, options })
        };
        self.iter().map(entry).collect()
    }

    /// Arguments `--mount type=bind,…` for docker and podman, each at `<at>/<alias>`.
    ///
    /// # Errors
    /// Those of [`oci`](Self::oci), and [`InvalidPath`](ErrorKind::InvalidPath) for a path with a comma, a quote, a line break or
    /// another control character, which the option cannot carry.
    ///
    /// # Races
    /// The paths are those of this moment.
    pub fn engine_args(&self, at: &MountPoint, authority: AmbientAuthority) -> Result<Vec<String>> {
        let mut args = Vec::new();
        for mount in self.iter() {
            let (source, target) = (source(mount, authority)?, self.target(at, mount));
            let splits = |text: &str| text.contains([',', '"', '\'']) || text.contains(char::is_control);
            if splits(&source) || splits(&target) {
                return Err(Error::new(OPERATION, mount.alias(), ErrorKind::InvalidPath)
                    .with_detail("has a character that the option cannot carry"));
            }
            let read_only = if mount.mode() == Mode::ReadOnly { ",readonly" } else { "" };
            args.push("--mount".to_owned());
            args.push(format!("type=bind,src={source},dst={target},bind-propagation=private{read_only}"));
        }
        Ok(args)
    }

    /// The aliases at which a guest sees something else than what was granted. `root` is the root directory of the guest, such as
    /// `/proc/<pid>/root` of its first process.
    ///
    /// # Errors
    /// [`TooMany`](ErrorKind::TooMany) if no descriptor is left. What cannot be looked at is reported as something else.
    ///
    /// # Races
    /// It was true during the call.
    pub fn verify_in(&self, root: &Root, at: &MountPoint) -> Result<Vec<SafeName>> {
        // What is mounted in a guest are mounts.
        let policy = root.policy().clone().with_mounts(Crossing::Cross);
        let root = root.try_clone()?.with_policy(policy);
        let is_there = |mount: &&Mount| {
            let target = self.target(at, mount);
            let found = root.metadata(Path::new(target.trim_start_matches('/')));
            found.is_ok_and(|found| (found.dev(), found.ino()) == mount.identity())
        };
        Ok(self.iter().filter(|mount| !is_there(mount)).map(|mount| mount.alias().clone()).collect())
    }
}

fn source(mount: &Mount, authority: AmbientAuthority) -> Result<String> {
    let path = mount.to_hand_over().ambient_path(authority).map_err(|error| error.about(mount.alias()))?;
    path.into_os_string().into_string().map_err(|_| {
        Error::new(OPERATION, mount.alias(), ErrorKind::InvalidPath).with_detail("the host path is not UTF-8")
    })
}
