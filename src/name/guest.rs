//! Paths of a guest's tree.
//!
//! Problem: a guest gives its files any name that Linux allows, and an agent spells one file in many ways. A rule that
//! refuses some of those names makes files that can be listed but not read; a rule that guesses reads the wrong file.
//!
//! Defence: a [`GuestPath`] keeps every byte, and has exactly one form for each entry. What an agent writes is brought to
//! that form in one place, [`GuestPath::parse`], which refuses whatever would leave.
//!
//! What remains: a name may deceive people and programs that read it. Its display is escaped; its bytes are not. Two
//! names that a file system folds into one are two paths here.

mod convert;
mod mount;
#[cfg(feature = "serde")]
mod serialized;
mod spelling;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use super::path::{OPERATION, check_path, kind_of_refused};
use super::rules::Breach;
use crate::error::{Result, escaped_whole};

pub use mount::MountPoint;
pub use spelling::Spelling;

/// A relative path with any name that Linux allows: what a guest's tree has.
///
/// It has components with one `/` between each two, and is at most 4095 bytes long. A component is any bytes but `/` and
/// NUL, and not empty, `.` or `..`. So `Q3: plan?.md`, `aux.rs`, `...`, `a\nb` and names that are not UTF-8 are all fine,
/// and whatever a listing shows is a path for every other call. How long a component may be is decided by the file
/// system.
///
/// The directory that all paths start from has a path too, the [top](Self::top). It is written `.`.
///
/// Two paths are equal if their bytes are. Order is that of the bytes, and the top comes first. The
/// [`Display`](fmt::Display) form is escaped as in error messages: it is for people, and is not read back.
///
/// With the feature `serde` a path is a string where it is UTF-8 and a sequence of bytes where it is not; in formats that
/// people do not read it is always bytes. Deserialising checks it as [`new`](Self::new) does.
///
/// ```
/// use std::ffi::OsStr;
/// use std::os::unix::ffi::OsStrExt;
/// use beneath::GuestPath;
///
/// let path = GuestPath::new("logs/2026-11-16T08:00:00.log")?;
/// assert_eq!(path.file_name(), Some(OsStr::new("2026-11-16T08:00:00.log")));
///
/// let odd = GuestPath::top().join(OsStr::from_bytes(b"caf\xe9\n.txt"))?;
/// assert_eq!(odd.to_string(), r"caf\xe9\u{a}.txt");
/// assert_eq!(GuestPath::new(odd.as_path())?, odd);
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath {
    /// Empty for the top. Shared, since a tree and what is made of it have the same paths.
    bytes: Arc<[u8]>,
}

impl GuestPath {
    /// Accepts `path` if it is a relative path in its one form, or `.` for the top.
    ///
    /// This is for paths that come from a listing, a record or another `GuestPath`. What an agent writes goes through
    /// [`parse`](Self::parse).
    ///
    /// # Errors
    /// [`Escape`](crate::ErrorKind::Escape) for an absolute path or one with a `..`,
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for any other; the message names the rule and the byte offset.
    ///
    /// ```
    /// use beneath::{ErrorKind, GuestPath};
    ///
    /// assert!(GuestPath::new("a b/..c/~").is_ok());
    /// assert!(GuestPath::new(".")?.is_top());
    ///
    /// let error = GuestPath::new("a/../b").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Escape);
    /// assert_eq!(error.to_string(), r#"check path "a/../b": is the dot entry ".." at byte 2"#);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn new(path: impl AsRef<OsStr>) -> Result<Self> {
        let raw = path.as_ref().as_bytes();
        if raw == b"." {
            return Ok(Self::top());
        }
        match check_path(raw, check_component) {
            Ok(()) => Ok(Self { bytes: raw.into() }),
            Err(breach) => Err(breach.into_error(OPERATION, raw, kind_of_refused(raw))),
        }
    }

    /// The directory that all paths start from.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// assert_eq!(GuestPath::top().as_path(), std::path::Path::new("."));
    /// assert_eq!(GuestPath::top().components().count(), 0);
    /// ```
    #[must_use]
    pub fn top() -> Self {
        Self { bytes: Arc::default() }
    }

    /// Whether this is the directory that all paths start from.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// assert!(GuestPath::top().is_top());
    /// assert!(!GuestPath::new("a")?.is_top());
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn is_top(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The path as every call of [`Root`](crate::Root) takes it; `.` for the top, which only calls on directories take.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// use beneath::GuestPath;
    ///
    /// root.write_exclusive(GuestPath::new("aux: 1?")?, "hello")?;
    /// let mut names = Vec::new();
    /// for entry in root.list(GuestPath::top())? {
    ///     names.push(GuestPath::new(entry?.path())?);
    /// }
    /// assert_eq!(root.read_contained(names.remove(0).as_path(), 100)?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.as_bytes()))
    }

    /// The bytes of [`as_path`](Self::as_path).
    ///
    /// ```
    /// assert_eq!(beneath::GuestPath::new("a/b")?.as_bytes(), b"a/b");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        if self.is_top() { b"." } else { &self.bytes }
    }

    /// The path as text, if it is UTF-8; not escaped.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// assert_eq!(GuestPath::new("a/é")?.as_str(), Some("a/é"));
    /// assert_eq!(GuestPath::try_from(&b"\xff"[..])?.as_str(), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        str::from_utf8(self.as_bytes()).ok()
    }

    /// The components from first to last; none for the top.
    ///
    /// ```
    /// assert_eq!(beneath::GuestPath::new("a/b/c")?.components().next_back(), Some("c".as_ref()));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        let is_top = self.is_top();
        self.bytes.split(|byte| *byte == b'/').filter(move |_| !is_top).map(OsStr::from_bytes)
    }

    /// The number of components.
    ///
    /// ```
    /// assert_eq!(beneath::GuestPath::new("a/b/c")?.depth(), 3);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The last component, unless this is the top.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// assert_eq!(GuestPath::new("a/b.txt")?.file_name(), Some("b.txt".as_ref()));
    /// assert_eq!(GuestPath::top().file_name(), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn file_name(&self) -> Option<&OsStr> {
        self.components().next_back()
    }

    /// What follows the last dot of the last component, unless that dot is its first byte; as [`Path::extension`].
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// assert_eq!(GuestPath::new("a/b.tar.gz")?.extension(), Some("gz".as_ref()));
    /// assert_eq!(GuestPath::new("a.d/.env")?.extension(), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn extension(&self) -> Option<&OsStr> {
        Path::new(self.file_name()?).extension()
    }

    /// The path without its last component, or `None` for the top.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// assert_eq!(GuestPath::new("a/b")?.parent(), Some(GuestPath::new("a")?));
    /// assert_eq!(GuestPath::new("a")?.parent(), Some(GuestPath::top()));
    /// assert_eq!(GuestPath::top().parent(), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let name = self.file_name()?;
        let above = self.bytes.len() - name.len();
        let parent = self.bytes.get(..above.saturating_sub(1)).unwrap_or_default();
        Some(Self { bytes: parent.into() })
    }

    /// This path followed by `rest`: a name from a listing, or another path in its one form.
    ///
    /// # Errors
    /// Those of [`new`](Self::new) for `rest`, and [`InvalidPath`](crate::ErrorKind::InvalidPath) if the result is longer
    /// than 4095 bytes.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// let path = GuestPath::new("a")?.join("b c")?;
    /// assert_eq!(path.join(GuestPath::top())?, path);
    /// assert_eq!(GuestPath::top().join(&path)?, path);
    /// assert!(path.join("../d").is_err());
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn join(&self, rest: impl AsRef<OsStr>) -> Result<Self> {
        let rest = Self::new(rest)?;
        if self.is_top() || rest.is_top() {
            return Ok(if self.is_top() { rest } else { self.clone() });
        }
        let bytes = [&*self.bytes, &rest.bytes].join(&b'/');
        Self::new(OsStr::from_bytes(&bytes))
    }

    /// Whether this path is `base` or lies under it, component by component.
    ///
    /// This compares text. It says nothing about where the path leads on disk.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// let base = GuestPath::new("allowed")?;
    /// assert!(GuestPath::new("allowed/a")?.starts_with(&base));
    /// assert!(!GuestPath::new("allowed-evil/a")?.starts_with(&base));
    /// assert!(base.starts_with(&GuestPath::top()));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn starts_with(&self, base: &Self) -> bool {
        below(&self.bytes, &base.bytes).is_some()
    }

    /// The part of this path under `base`, which is the top if they are equal, or `None` if it does not lie under it.
    ///
    /// ```
    /// use beneath::GuestPath;
    ///
    /// let base = GuestPath::new("a/b")?;
    /// assert_eq!(GuestPath::new("a/b/c/d")?.strip_prefix(&base), Some(GuestPath::new("c/d")?));
    /// assert_eq!(GuestPath::new("a/bc")?.strip_prefix(&base), None);
    /// assert_eq!(base.strip_prefix(&base), Some(GuestPath::top()));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn strip_prefix(&self, base: &Self) -> Option<Self> {
        below(&self.bytes, &base.bytes).map(|rest| Self { bytes: rest.into() })
    }
}

/// What follows `base` in `path`, both without a slash at either end; empty is the top.
fn below<'a>(path: &'a [u8], base: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(base)? {
        rest if rest.is_empty() || base.is_empty() => Some(rest),
        rest => rest.strip_prefix(b"/"),
    }
}

fn check_component(component: &[u8]) -> Result<(), Breach<'_>> {
    if component == b"." || component == b".." {
        return Err(Breach::new("is the dot entry", component, 0));
    }
    check_nul(component)
}

fn check_nul(text: &[u8]) -> Result<(), Breach<'_>> {
    match text.iter().position(|byte| *byte == 0) {
        Some(at) => Err(Breach::new("holds a NUL", "", at)),
        None => Ok(()),
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&escaped_whole(self.as_bytes()))
    }
}

impl fmt::Debug for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestPath(\"{}\")", escaped_whole(self.as_bytes()))
    }
}

impl Default for GuestPath {
    /// The top.
    fn default() -> Self {
        Self::top()
    }
}
