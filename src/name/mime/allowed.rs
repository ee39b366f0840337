//! A list of the types that a host accepts.

use std::path::Path;

use super::{Detected, Mime};
use crate::error::{Error, ErrorKind, Result};

/// The types of files that a host accepts.
///
/// ```
/// use beneath::{AllowedTypes, ErrorKind};
///
/// let allowed = AllowedTypes::new(["text/*", "application/json"])?;
/// assert!(allowed.check("notes.md", b"# Plan").is_ok());
/// assert_eq!(allowed.check("a.pdf", b"%PDF-1.7").unwrap_err().kind(), ErrorKind::Denied);
/// assert_eq!(allowed.check("a.txt", b"\0\0").unwrap_err().kind(), ErrorKind::InvalidData);
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedTypes {
    types: Vec<Mime>,
    /// With their slash.
    groups: Vec<String>,
}

impl AllowedTypes {
    /// Accepts these types, each a MIME type that [`Mime::new`] knows or a whole group as `image/*`.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) for any other text, so that a spelling mistake does not close the door to a type.
    ///
    /// ```
    /// assert!(beneath::AllowedTypes::new(["image/pgn"]).is_err());
    /// ```
    pub fn new<T: AsRef<str>>(types: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut allowed = Self { types: Vec::new(), groups: Vec::new() };
        for raw in types {
            let raw = raw.as_ref();
            match (raw.strip_suffix('*').filter(|group| is_group(group)), Mime::new(raw)) {
                (Some(group), _) => allowed.groups.push(group.to_ascii_lowercase()),
                (None, Some(mime)) => allowed.types.push(mime),
                (None, None) => {
                    return Err(Error::new("read type", raw, ErrorKind::InvalidData)
                        .with_detail("is no known type of files"));
                }
            }
        }
        Ok(allowed)
    }

    /// Whether a type is in the list.
    ///
    /// ```
    /// use beneath::{AllowedTypes, Mime};
    ///
    /// let allowed = AllowedTypes::new(["image/*"])?;
    /// assert!(allowed.contains(Mime::from_extension("gif").unwrap()));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn contains(&self, mime: Mime) -> bool {
        self.types.contains(&mime)
            || self.groups.iter().any(|group| mime.as_str().starts_with(group.as_str()))
    }

    /// Checks a file by its path and its first bytes; [`Detected::PREFIX`] of them are enough.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) if the content is not what the extension says,
    /// [`Denied`](ErrorKind::Denied) if the type is not in the list or unknown.
    ///
    /// ```
    /// let allowed = beneath::AllowedTypes::new(["text/plain"])?;
    /// assert_eq!(allowed.check("README", b"Hello")?.mime().unwrap().as_str(), "text/plain");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn check(&self, path: impl AsRef<Path>, start: &[u8]) -> Result<Detected> {
        let path = path.as_ref();
        let found = Detected::new(path, start);
        let refuse = |kind, why: &'static str| Err(Error::new("check type", path, kind).with_detail(why));
        if !found.is_consistent() {
            return refuse(ErrorKind::InvalidData, "its content is not what its extension says");
        }
        match found.mime() {
            Some(mime) if self.contains(mime) => Ok(found),
            Some(_) => refuse(ErrorKind::Denied, "files of its type are not accepted"),
            None => refuse(ErrorKind::Denied, "its type is unknown"),
        }
    }
}

fn is_group(text: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    text.strip_suffix('/').is_some_and(is_name)
}
