//! Patterns of paths, in the syntax of `.gitignore`.
//!
//! Problem: a pattern that is read differently by two tools protects nothing, one that backtracks takes minutes for a single name,
//! and a pattern file in the guest's tree is written by the guest.
//!
//! Defence: the lines come from the caller only. Each is parsed here by git's rules, within limits of count and length. What git
//! gives no clear meaning is refused instead of guessed. The crate `ignore` then compiles all of them to automata, which match in
//! time linear in the length of the path. Names are compared byte by byte.
//!
//! What remains: a pattern speaks about paths, and the guest names its files. What it renames it takes out of a pattern.

mod line;

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "read pattern";
/// Most lines, comments included.
const LINES: usize = 1000;
/// Most bytes of one line.
const LINE_BYTES: usize = 1024;
/// Most bytes of all lines together.
const ALL_BYTES: usize = 65_536;

/// Patterns in the syntax of `.gitignore`, given by the host.
///
/// Paths are relative to the workspace, whatever directory is listed. The last pattern that matches decides, `!` takes out again,
/// and what is beneath a directory that matches matches too: nothing in it can be taken out again. Letters are compared with
/// their case, and `?` is one byte.
///
/// ```
/// use beneath::Patterns;
///
/// let patterns = Patterns::new(["# build output", "target/", "*.log", "!keep.log"])?;
/// assert!(patterns.matches_file("target/debug/app"));
/// assert!(!patterns.matches_file("target"), "only a directory is meant");
/// assert!(patterns.matches_file("logs/2026-11-16T08:00:00.log"));
/// assert!(!patterns.matches_file("keep.log"));
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone)]
pub struct Patterns {
    matcher: Arc<Gitignore>,
    lines: Arc<[String]>,
}

impl Patterns {
    /// Reads one pattern per line; empty lines and comments have no effect.
    ///
    /// At most 1,000 lines, 1,024 bytes each and 64 KiB together.
    ///
    /// # Errors
    /// [`TooMany`](ErrorKind::TooMany) or [`TooLarge`](ErrorKind::TooLarge) beyond the limits.
    /// [`InvalidData`](ErrorKind::InvalidData) for a line that has no clear meaning: a class that is not closed, named
    /// (`[[:alpha:]]`), not ASCII or with a backslash, a range of anything but letters and digits, `**` with something else in a
    /// component, a backslash at the end, an empty component, `.` or `..` as a component, a newline or NUL, or a blank other than a
    /// space at the end.
    ///
    /// ```
    /// use beneath::{ErrorKind, Patterns};
    ///
    /// let error = Patterns::new(["[a-"]).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidData);
    /// assert_eq!(error.to_string(), r#"read pattern "[a-": has a class that is not closed"#);
    /// ```
    pub fn new<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> Result<Self> {
        let mut builder = GitignoreBuilder::new(".");
        let mut kept = Vec::new();
        let mut bytes = 0;
        for line in lines {
            let line = line.as_ref();
            bytes += line.len();
            let limit = if kept.len() >= LINES {
                Some((ErrorKind::TooMany, "more than 1000 patterns"))
            } else if line.len() > LINE_BYTES {
                Some((ErrorKind::TooLarge, "is longer than 1024 bytes"))
            } else if bytes > ALL_BYTES {
                Some((ErrorKind::TooLarge, "all patterns together are longer than 64 KiB"))
            } else {
                None
            };
            if let Some((kind, why)) = limit {
                return Err(Error::new(OPERATION, shown(line), kind).with_detail(why));
            }
            let refuse = |why: String| {
                Err(Error::new(OPERATION, shown(line), ErrorKind::InvalidData).with_detail(why))
            };
            match line::normalized(line) {
                Ok(None) => {}
                Ok(Some(plain)) => match builder.add_line(None, &plain) {
                    Ok(_) => {}
                    Err(error) => return refuse(error.to_string()),
                },
                Err(why) => return refuse(why.to_owned()),
            }
            kept.push(line.to_owned());
        }
        match builder.build() {
            Ok(matcher) => Ok(Self { matcher: Arc::new(matcher), lines: kept.into() }),
            // The automata have a limit of their own.
            Err(error) => Err(Error::new(OPERATION, "", ErrorKind::TooLarge).with_detail(error.to_string())),
        }
    }

    /// Whether the file, link or other entry at `path` matches, itself or by a directory above it.
    ///
    /// ```
    /// let patterns = beneath::Patterns::new(["/a/*.txt"])?;
    /// assert!(patterns.matches_file("a/b.txt"));
    /// assert!(!patterns.matches_file("a/b/c.txt"));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn matches_file(&self, path: impl AsRef<Path>) -> bool {
        self.matches_above(path.as_ref()) || self.matches_itself(path.as_ref(), Of::File)
    }

    /// Whether the directory at `path` matches, itself or by one above it.
    ///
    /// ```
    /// let patterns = beneath::Patterns::new(["node_modules/"])?;
    /// assert!(patterns.matches_dir("web/node_modules"));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn matches_dir(&self, path: impl AsRef<Path>) -> bool {
        self.matches_above(path.as_ref()) || self.matches_itself(path.as_ref(), Of::Directory)
    }

    /// The lines as they were given.
    ///
    /// ```
    /// assert_eq!(beneath::Patterns::new(["*.log"])?.lines(), ["*.log"]);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Whether a directory above `path` matches, from the top down: git does not look into one that does.
    fn matches_above(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes
            .filter_map(|at| bytes.get(..at))
            .any(|above| self.matches_itself(Path::new(std::ffi::OsStr::from_bytes(above)), Of::Directory))
    }

    /// Whether the last pattern that matches `path` itself is not one that takes out. Those above are not asked.
    /// The top has no name that a pattern could match, though `.*` looks like it.
    pub(crate) fn matches_itself(&self, path: &Path, of: Of) -> bool {
        path != Path::new(".") && self.matcher.matched(path, of == Of::Directory).is_ignore()
    }
}

/// What a path is the path of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    File,
    Directory,
}

/// The beginning of a line, for an error.
fn shown(line: &str) -> &str {
    let end = (0..=line.len().min(200)).rev().find(|at| line.is_char_boundary(*at));
    line.get(..end.unwrap_or(0)).unwrap_or_default()
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Patterns").field(&self.lines).finish()
    }
}

impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.lines == other.lines
    }
}

impl Eq for Patterns {}
