//! What the first bytes of a file say about it.

use std::path::Path;

use super::Mime;
use super::table::{Container, Looks};

/// What the name and the first bytes of a file say about its type.
///
/// ```
/// use beneath::Detected;
///
/// let notes = Detected::new("notes.md", b"# Plan");
/// assert!(notes.is_text && notes.is_consistent());
/// assert_eq!(notes.mime().unwrap().as_str(), "text/markdown");
///
/// let odd = Detected::new("notes.md", b"\x7fELF\x02\x01\x01\0");
/// assert!(!odd.is_text && !odd.is_consistent());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Detected {
    /// The type that the extension names.
    pub by_name: Option<Mime>,
    /// The type by the marks that many formats begin with. Always `None` without the feature `sniff`.
    pub by_content: Option<Mime>,
    /// Whether the first bytes are text: UTF-8 without a NUL. An empty file is text.
    pub is_text: bool,
    /// Whether there are no bytes.
    pub is_empty: bool,
}

impl Detected {
    /// How many bytes from the beginning of a file are looked at.
    pub const PREFIX: usize = 8192;

    /// Judges a file by its path and its first bytes; of more than [`PREFIX`](Self::PREFIX) the rest is left out.
    ///
    /// ```
    /// assert!(!beneath::Detected::new("a", b"\0").is_text);
    /// ```
    #[must_use]
    pub fn new(path: impl AsRef<Path>, start: &[u8]) -> Self {
        let start = start.get(..Self::PREFIX).unwrap_or(start);
        Self {
            by_name: Mime::from_path(path),
            by_content: sniff(start),
            is_text: is_text(start),
            is_empty: start.is_empty(),
        }
    }

    /// The best guess: what the name says if the content allows that, else what the content says. Text without either is
    /// `text/plain`.
    ///
    /// ```
    /// assert_eq!(beneath::Detected::new("README", b"Hello").mime().unwrap().as_str(), "text/plain");
    /// assert_eq!(beneath::Detected::new("core", b"\0\x01\x02\x03").mime(), None);
    /// ```
    #[must_use]
    pub fn mime(&self) -> Option<Mime> {
        let named = self.by_name.filter(|_| self.is_consistent());
        named.or(self.by_content).or_else(|| self.is_text.then(|| Mime::new("text/plain")).flatten())
    }

    /// Whether the content can be what the extension says. A name that says nothing and an empty file are consistent.
    ///
    /// Without the feature `sniff` only text can be distinguished from what is not.
    ///
    /// ```
    /// assert!(beneath::Detected::new("data.csv", b"a,b\n").is_consistent());
    /// assert!(!beneath::Detected::new("data.csv", b"a\0b\n").is_consistent());
    /// ```
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let Some((name, looks)) = self.by_name.and_then(|name| Some((name, name.row()?.looks))) else {
            return true;
        };
        match (looks, self.by_content) {
            _ if self.is_empty => true,
            (Looks::Text, _) => self.is_text,
            _ if !cfg!(feature = "sniff") => true,
            (Looks::Marked, found) => found == Some(name),
            (Looks::In(container), found) => found.and_then(container_of) == Some(container),
            (Looks::Binary, Some(found)) => found == name,
            (Looks::Binary, None) => !self.is_text,
        }
    }
}

fn container_of(mime: Mime) -> Option<Container> {
    match mime.row()?.looks {
        Looks::In(container) => Some(container),
        _ => None,
    }
}

/// A character that is cut at the end of the prefix does no harm.
fn is_text(start: &[u8]) -> bool {
    let is_utf8 = match str::from_utf8(start) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none() && start.len() == Detected::PREFIX,
    };
    is_utf8 && !start.contains(&0)
}

#[cfg(feature = "sniff")]
fn sniff(start: &[u8]) -> Option<Mime> {
    let name = infer::get(start)?.mime_type();
    // A type that the table lacks has a name nevertheless.
    Some(Mime::new(name).unwrap_or(Mime(name)))
}

#[cfg(not(feature = "sniff"))]
fn sniff(_: &[u8]) -> Option<Mime> {
    None
}
