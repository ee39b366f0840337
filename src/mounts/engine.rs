//! Mounts for engines that take paths: OCI runtimes, docker, podman, systemd-nspawn.
//!
//! Problem: the engine resolves the path again, later. A colon or a comma in a path is a second option to its parser.
//!
//! Defence: a path is that of the directory which is held, at that moment. One that could be read in another way is refused.
//! Nothing is bound recursively, so what the host has mounted inside stays out, and cannot be writable in a read-only mount.
//!
//! What remains: until the engine has mounted it, whoever can rename a directory above can make the path lead elsewhere. Use these
//! only where no guest can, and compare by [`Handover::verify_in`].

use cap_std::AmbientAuthority;

use super::base::Mode;
use super::handover::{Handed, Handover, Origin};
use crate::error::{Error, ErrorKind, Result};

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
    /// `bind`, `private`, `nosuid`, `nodev`, and `ro` or `rw`. A granted directory is `nosymfollow` too; in those of the session the guest
    /// follows its own links.
    pub options: Vec<&'static str>,
}

impl Handover {
    /// Entries for an OCI runtime.
    ///
    /// # Errors
    /// Those of [`Root::ambient_path`](crate::Root::ambient_path); [`InvalidPath`](ErrorKind::InvalidPath) for a host path that is
    /// not UTF-8.
    ///
    /// # Races
    /// The paths are those of this moment.
    pub fn oci(&self, authority: AmbientAuthority) -> Result<Vec<OciMount>> {
        let entry = |handed: &Handed| {
            let mut options = vec!["bind", "private", "nosuid", "nodev", handed.mode.as_str()];
            if handed.origin == Origin::Granted {
                options.push("nosymfollow");
            }
            let source = handed.source(authority)?;
            Ok(OciMount { destination: handed.target.clone(), kind: "bind", source, options })
        };
        self.0.iter().map(entry).collect()
    }

    /// Arguments `--mount type=bind,…` for docker, 25 or later. docker has no options for `nosuid` and `nodev`: start the guest with
    /// `--security-opt=no-new-privileges` and without capabilities.
    ///
    /// # Errors
    /// Those of [`oci`](Self::oci), and [`InvalidPath`](ErrorKind::InvalidPath) for a path with a comma, a quote or a control
    /// character, which the option cannot carry.
    ///
    /// # Races
    /// The paths are those of this moment.
    pub fn docker_args(&self, authority: AmbientAuthority) -> Result<Vec<String>> {
        self.mount_args(authority, "bind-recursive=disabled")
    }

    /// Arguments `--mount type=bind,…` for podman; as [`docker_args`](Self::docker_args), with `nosuid` and `nodev`.
    ///
    /// # Errors
    /// Those of [`docker_args`](Self::docker_args).
    ///
    /// # Races
    /// The paths are those of this moment.
    pub fn podman_args(&self, authority: AmbientAuthority) -> Result<Vec<String>> {
        self.mount_args(authority, "bind-nonrecursive,nosuid,nodev")
    }

    /// Each of the two refuses the other's word for a mount that is not recursive.
    fn mount_args(&self, authority: AmbientAuthority, how: &str) -> Result<Vec<String>> {
        let args = |handed: &Handed| {
            let (source, target) = handed.paths(authority, &[',', '"', '\''])?;
            let read_only = if handed.mode == Mode::ReadOnly { ",readonly" } else { "" };
            let option =
                format!("type=bind,src={source},dst={target},bind-propagation=private,{how}{read_only}");
            Ok(["--mount".to_owned(), option])
        };
        Ok(self.0.iter().map(args).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Arguments `--bind=…` and `--bind-ro=…` for systemd-nspawn, which sets neither `nosuid` nor `nodev`. The guest must have user ids
    /// of its own, by `--private-users`, and sees the owners of files as the host does (`idmap`).
    ///
    /// # Errors
    /// Those of [`oci`](Self::oci), and [`InvalidPath`](ErrorKind::InvalidPath) for a path with a colon, a backslash or a control
    /// character.
    ///
    /// # Races
    /// The paths are those of this moment.
    pub fn nspawn_args(&self, authority: AmbientAuthority) -> Result<Vec<String>> {
        let arg = |handed: &Handed| {
            let (source, target) = handed.paths(authority, &[':', '\\'])?;
            let option = if handed.mode == Mode::ReadOnly { "--bind-ro" } else { "--bind" };
            Ok(format!("{option}={source}:{target}:norbind,idmap"))
        };
        self.0.iter().map(arg).collect()
    }
}

impl Handed {
    fn source(&self, authority: AmbientAuthority) -> Result<String> {
        let path = self.root.ambient_path(authority).map_err(|error| error.about(&self.target))?;
        path.into_os_string().into_string().map_err(|_| self.refuse("the host path is not UTF-8"))
    }

    /// Source and target, if an option can carry them in which `separators` have a meaning.
    fn paths(&self, authority: AmbientAuthority, separators: &[char]) -> Result<(String, &str)> {
        let source = self.source(authority)?;
        let splits = |text: &str| text.contains(separators) || text.contains(char::is_control);
        match splits(&source) || splits(&self.target) {
            true => Err(self.refuse("has a character that the option cannot carry")),
            false => Ok((source, &self.target)),
        }
    }

    fn refuse(&self, why: &'static str) -> Error {
        Error::new(OPERATION, &self.target, ErrorKind::InvalidPath).with_detail(why)
    }
}
