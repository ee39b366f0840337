//! Where a guest sees the shared directory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::super::path::PATH_MAX;
use super::super::rules::Breach;
use super::{GuestPath, below, check_nul};
use crate::error::{Error, ErrorKind, Result};

/// Where a guest sees a directory that the host shares with it: an absolute path in the guest's own name space.
///
/// It is normalised: `/home//agent/.` is `/home/agent`. `/` is a mount point too, and every absolute path is under it.
/// It is text that the host chose, so its [`Display`](fmt::Display) is not escaped.
///
/// ```
/// use std::path::Path;
/// use beneath::{GuestPath, MountPoint};
///
/// let mount = MountPoint::new("/home//agent/")?;
/// assert_eq!(mount.as_str(), "/home/agent");
/// assert_eq!(mount.join(&GuestPath::new("a b")?), Path::new("/home/agent/a b"));
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "String"))]
pub struct MountPoint(String);

impl MountPoint {
    /// Accepts `raw` as an absolute path, and normalises slashes and `.`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`] for a relative or empty path, one with a `..` or a NUL, and one of more than 4095
    /// bytes.
    ///
    /// ```
    /// use beneath::MountPoint;
    ///
    /// assert_eq!(MountPoint::new("/")?.as_str(), "/");
    /// let error = MountPoint::new("home/agent").unwrap_err();
    /// assert_eq!(error.to_string(), r#"check mount point "home/agent": is not absolute at byte 0"#);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn new(raw: impl AsRef<str>) -> Result<Self> {
        let raw = raw.as_ref();
        match check(raw) {
            Ok(path) => Ok(Self(path)),
            Err(breach) => {
                Err(breach.into_error("check mount point", raw.as_bytes(), ErrorKind::InvalidPath))
            }
        }
    }

    /// The path as text; it starts with a slash, and ends with one only if it is `/`.
    ///
    /// ```
    /// assert_eq!(beneath::MountPoint::new("/session")?.as_str(), "/session");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The absolute path by which the guest reaches `path`.
    ///
    /// ```
    /// use std::path::Path;
    /// use beneath::{GuestPath, MountPoint};
    ///
    /// let mount = MountPoint::new("/session")?;
    /// assert_eq!(mount.join(&GuestPath::new("inbox/42")?), Path::new("/session/inbox/42"));
    /// assert_eq!(mount.join(&GuestPath::top()), Path::new("/session"));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn join(&self, path: &GuestPath) -> PathBuf {
        let mount = PathBuf::from(&self.0);
        if path.is_top() { mount } else { mount.join(path) }
    }

    /// The path of this mount point from `base`, if it is that or within it.
    ///
    /// ```
    /// use beneath::{GuestPath, MountPoint};
    ///
    /// let outbox = MountPoint::new("/work/out")?;
    /// assert_eq!(outbox.strip_prefix(&MountPoint::new("/work")?), Some(GuestPath::new("out")?));
    /// assert_eq!(outbox.strip_prefix(&MountPoint::new("/wor")?), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn strip_prefix(&self, base: &Self) -> Option<GuestPath> {
        base.strip(self.without_slash().as_bytes()).map(|path| GuestPath { bytes: path.into() })
    }

    /// What follows this mount point in `path`, an absolute path in its one form without its first slash.
    pub(super) fn strip<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        below(path, self.without_slash().as_bytes())
    }

    /// The first component, which the guest's root directory contains.
    pub(super) fn first(&self) -> &[u8] {
        let path = self.without_slash();
        path.split_once('/').map_or(path, |(first, _)| first).as_bytes()
    }

    fn without_slash(&self) -> &str {
        self.0.strip_prefix('/').unwrap_or(&self.0)
    }
}

fn check(raw: &str) -> Result<String, Breach<'_>> {
    if !raw.starts_with('/') {
        return Err(Breach::new("is not absolute", "", 0));
    }
    check_nul(raw.as_bytes())?;
    let mut path = String::new();
    let mut at = 0;
    for component in raw.split('/') {
        match component {
            "" | "." => {}
            ".." => return Err(Breach::new("has the component", component, at)),
            name => path.extend(["/", name]),
        }
        at += component.len() + 1;
    }
    match path.len() {
        0 => Ok("/".to_owned()),
        1..=PATH_MAX => Ok(path),
        _ => Err(Breach::new("is longer than 4095 bytes", "", PATH_MAX)),
    }
}

impl Default for MountPoint {
    /// `/session`.
    fn default() -> Self {
        Self("/session".to_owned())
    }
}

impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for MountPoint {
    type Err = Error;

    fn from_str(raw: &str) -> Result<Self> {
        Self::new(raw)
    }
}

impl TryFrom<&str> for MountPoint {
    type Error = Error;

    fn try_from(raw: &str) -> Result<Self> {
        Self::new(raw)
    }
}

impl TryFrom<String> for MountPoint {
    type Error = Error;

    fn try_from(raw: String) -> Result<Self> {
        Self::new(raw)
    }
}

impl From<MountPoint> for String {
    fn from(mount: MountPoint) -> Self {
        mount.0
    }
}

impl AsRef<str> for MountPoint {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl AsRef<Path> for MountPoint {
    fn as_ref(&self) -> &Path {
        self.0.as_ref()
    }
}
