//! From and to the other types of paths.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::super::path::SafePath;
use super::super::rules::SafeName;
use super::GuestPath;
use crate::error::{Error, Result};

impl FromStr for GuestPath {
    type Err = Error;

    fn from_str(path: &str) -> Result<Self> {
        Self::new(path)
    }
}

impl TryFrom<&str> for GuestPath {
    type Error = Error;

    fn try_from(path: &str) -> Result<Self> {
        Self::new(path)
    }
}

impl TryFrom<&OsStr> for GuestPath {
    type Error = Error;

    fn try_from(path: &OsStr) -> Result<Self> {
        Self::new(path)
    }
}

impl TryFrom<&Path> for GuestPath {
    type Error = Error;

    fn try_from(path: &Path) -> Result<Self> {
        Self::new(path)
    }
}

impl TryFrom<PathBuf> for GuestPath {
    type Error = Error;

    fn try_from(path: PathBuf) -> Result<Self> {
        Self::new(path)
    }
}

impl TryFrom<&[u8]> for GuestPath {
    type Error = Error;

    fn try_from(path: &[u8]) -> Result<Self> {
        Self::new(OsStr::from_bytes(path))
    }
}

impl From<SafePath> for GuestPath {
    fn from(path: SafePath) -> Self {
        Self::from(&path)
    }
}

impl From<&SafePath> for GuestPath {
    fn from(path: &SafePath) -> Self {
        Self { bytes: path.as_str().as_bytes().into() }
    }
}

impl From<SafeName> for GuestPath {
    fn from(name: SafeName) -> Self {
        Self::from(&name)
    }
}

impl From<&SafeName> for GuestPath {
    fn from(name: &SafeName) -> Self {
        Self { bytes: name.as_str().as_bytes().into() }
    }
}

impl From<GuestPath> for PathBuf {
    fn from(path: GuestPath) -> Self {
        OsString::from_vec(path.as_bytes().to_owned()).into()
    }
}

impl AsRef<OsStr> for GuestPath {
    fn as_ref(&self) -> &OsStr {
        self.as_path().as_os_str()
    }
}

impl AsRef<Path> for GuestPath {
    fn as_ref(&self) -> &Path {
        self.as_path()
    }
}
