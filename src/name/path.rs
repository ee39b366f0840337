//! What a relative path or an object key may be.

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::str::FromStr;

use camino::Utf8Path;

use super::rules::{Breach, SafeName, check_component};
use crate::error::{Error, ErrorKind, Result};

/// Longest path, in bytes, that a system call takes, its closing NUL not counted.
pub(super) const PATH_MAX: usize = 4095;

pub(super) const OPERATION: &str = "check path";

/// A relative path whose every component is safe.
///
/// It has one or more components with one `/` between each two, and is at most 4095 bytes long. Each component
/// follows the rules of [`SafeName`], except that it may start with a dot. So there is no `..`, no `.`, no empty
/// component, no leading or trailing slash, no drive and no scheme. Nothing is normalised: one path has one spelling.
///
/// Order is that of the bytes, as in an object store's listing.
///
/// ```
/// use beneath::SafePath;
///
/// let path = SafePath::new("src/.config/app.toml")?;
/// assert_eq!(path.file_name(), "app.toml");
/// assert_eq!(path.components().collect::<Vec<_>>(), ["src", ".config", "app.toml"]);
/// assert!(SafePath::new("src/../../etc/passwd").is_err());
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "String"))]
pub struct SafePath(String);

impl SafePath {
    /// Accepts `raw` as a relative path, or says which rule it breaks.
    ///
    /// # Errors
    /// [`ErrorKind::Escape`] for an absolute path or one with a `..`, [`ErrorKind::InvalidPath`] for any other; the
    /// message names the rule and the byte offset.
    ///
    /// ```
    /// use beneath::SafePath;
    ///
    /// let error = SafePath::new("docs//a.txt").unwrap_err();
    /// assert_eq!(error.to_string(), r#"check path "docs//a.txt": has an empty component at byte 5"#);
    /// ```
    pub fn new(raw: &str) -> Result<Self> {
        Self::try_from(raw.as_bytes())
    }

    /// The path as text.
    ///
    /// ```
    /// assert_eq!(beneath::SafePath::new("a/b")?.as_str(), "a/b");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as a UTF-8 path.
    ///
    /// ```
    /// assert_eq!(beneath::SafePath::new("a/b.txt")?.as_utf8_path().extension(), Some("txt"));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn as_utf8_path(&self) -> &Utf8Path {
        Utf8Path::new(&self.0)
    }

    /// The components from first to last; there is at least one.
    ///
    /// ```
    /// assert_eq!(beneath::SafePath::new("a/b/c")?.components().rev().next(), Some("c"));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The number of components.
    ///
    /// ```
    /// assert_eq!(beneath::SafePath::new("a/b/c")?.depth(), 3);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The last component.
    ///
    /// ```
    /// assert_eq!(beneath::SafePath::new("a/b.txt")?.file_name(), "b.txt");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The path without its last component, or `None` if that is its only one.
    ///
    /// ```
    /// use beneath::SafePath;
    ///
    /// assert_eq!(SafePath::new("a/b")?.parent(), Some(SafePath::new("a")?));
    /// assert_eq!(SafePath::new("a")?.parent(), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// This path followed by `rest`: a name, an id or another path.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`] if the result is longer than 4095 bytes.
    ///
    /// ```
    /// use beneath::{SafePath, safe_name};
    ///
    /// let path = SafePath::new("inbox/42")?.join(safe_name("a.txt")?)?;
    /// assert_eq!(path.as_str(), "inbox/42/a.txt");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn join(&self, rest: impl Into<Self>) -> Result<Self> {
        let rest = rest.into();
        Self::new(&format!("{}/{}", self.0, rest.0))
    }

    /// Whether this path is `base` or lies under it, component by component.
    ///
    /// This compares text. It says nothing about where the path leads on disk.
    ///
    /// ```
    /// use beneath::SafePath;
    ///
    /// let base = SafePath::new("allowed")?;
    /// assert!(SafePath::new("allowed/a")?.starts_with(&base));
    /// assert!(!SafePath::new("allowed-evil/a")?.starts_with(&base));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn starts_with(&self, base: &Self) -> bool {
        self == base || self.strip_prefix(base).is_some()
    }

    /// The part of this path under `base`, or `None` if it does not lie under it.
    ///
    /// ```
    /// use beneath::SafePath;
    ///
    /// let base = SafePath::new("a/b")?;
    /// assert_eq!(SafePath::new("a/b/c/d")?.strip_prefix(&base), Some(SafePath::new("c/d")?));
    /// assert_eq!(SafePath::new("a/bc")?.strip_prefix(&base), None);
    /// assert_eq!(base.strip_prefix(&base), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn strip_prefix(&self, base: &Self) -> Option<Self> {
        let rest = self.0.strip_prefix(&base.0)?.strip_prefix('/')?;
        Some(Self(rest.to_owned()))
    }
}

/// The kind for a path that is refused for its form: an attempt to leave is called so, whatever else is wrong with it.
pub(crate) fn kind_of_refused(path: &[u8]) -> ErrorKind {
    let leaves =
        path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(|component| component == b"..");
    if leaves { ErrorKind::Escape } else { ErrorKind::InvalidPath }
}

/// The rules for a relative path whose every component follows `rule`.
pub(super) fn check_path<'a>(
    path: &'a [u8],
    rule: impl Fn(&'a [u8]) -> Result<(), Breach<'a>>,
) -> Result<(), Breach<'a>> {
    if path.is_empty() {
        return Err(Breach::new("names no entry", "", 0));
    }
    if path.len() > PATH_MAX {
        return Err(Breach::new("is longer than 4095 bytes", "", PATH_MAX));
    }
    if path.starts_with(b"/") {
        return Err(Breach::new("is absolute", "", 0));
    }
    let mut at = 0;
    for component in path.split(|byte| *byte == b'/') {
        if component.is_empty() {
            return Err(Breach::new("has an empty component", "", at));
        }
        rule(component).map_err(|breach| breach.shifted(at))?;
        at += component.len() + 1;
    }
    Ok(())
}

impl fmt::Display for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for SafePath {
    type Err = Error;

    fn from_str(raw: &str) -> Result<Self> {
        Self::new(raw)
    }
}

impl TryFrom<&str> for SafePath {
    type Error = Error;

    fn try_from(raw: &str) -> Result<Self> {
        Self::new(raw)
    }
}

impl TryFrom<&[u8]> for SafePath {
    type Error = Error;

    fn try_from(raw: &[u8]) -> Result<Self> {
        match check_path(raw, |component| check_component(component).map(drop)) {
            // What passes is UTF-8, so nothing is replaced.
            Ok(()) => Ok(Self(String::from_utf8_lossy(raw).into_owned())),
            Err(breach) => Err(breach.into_error(OPERATION, raw, kind_of_refused(raw))),
        }
    }
}

impl TryFrom<&OsStr> for SafePath {
    type Error = Error;

    fn try_from(raw: &OsStr) -> Result<Self> {
        Self::try_from(raw.as_bytes())
    }
}

impl TryFrom<&Path> for SafePath {
    type Error = Error;

    fn try_from(raw: &Path) -> Result<Self> {
        Self::try_from(raw.as_os_str())
    }
}

impl TryFrom<String> for SafePath {
    type Error = Error;

    fn try_from(raw: String) -> Result<Self> {
        Self::new(&raw)
    }
}

impl From<SafeName> for SafePath {
    fn from(name: SafeName) -> Self {
        Self(name.into())
    }
}

impl From<&SafeName> for SafePath {
    fn from(name: &SafeName) -> Self {
        Self(name.as_str().to_owned())
    }
}

impl From<&SafePath> for SafePath {
    fn from(path: &SafePath) -> Self {
        path.clone()
    }
}

impl From<SafePath> for String {
    fn from(path: SafePath) -> Self {
        path.0
    }
}

impl Borrow<str> for SafePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SafePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl AsRef<OsStr> for SafePath {
    fn as_ref(&self) -> &OsStr {
        self.0.as_ref()
    }
}

impl AsRef<Path> for SafePath {
    fn as_ref(&self) -> &Path {
        self.0.as_ref()
    }
}

impl AsRef<Utf8Path> for SafePath {
    fn as_ref(&self) -> &Utf8Path {
        self.0.as_ref()
    }
}
