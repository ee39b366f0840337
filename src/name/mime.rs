//! Types of files: by extension, and by the first bytes.
//!
//! Problem: a sender names a program `photo.png`, and a host that trusts the name passes it on as a picture. One that trusts the content reads a
//! whole file to find out what it is.
//!
//! Defence: one table gives a name and a type to each other, in both directions. The content is judged by a prefix of bounded size,
//! and [`Detected`] reports whether both agree.
//!
//! What remains: a file can be of two types at once, and what follows the prefix is not looked at. A type is a hint for people and
//! programs, never proof that a file is harmless.

mod allowed;
mod content;
mod table;

use std::fmt;
use std::path::Path;

pub use allowed::AllowedTypes;
pub use content::Detected;
use table::{ROWS, Row};

/// A MIME type that this crate knows, without parameters.
///
/// ```
/// use beneath::Mime;
///
/// let png = Mime::new("Image/PNG; q=1").unwrap();
/// assert_eq!((png.as_str(), png.extension()), ("image/png", Some("png")));
/// assert_eq!(Mime::from_path("a/b.JPEG").unwrap().as_str(), "image/jpeg");
/// assert_eq!(Mime::from_path("README"), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mime(&'static str);

impl Mime {
    /// The type that a text names; parameters, case and surrounding blanks do not matter, and `image/jpg` is `image/jpeg`.
    ///
    /// ```
    /// assert_eq!(beneath::Mime::new(" audio/MP3 ").unwrap().as_str(), "audio/mpeg");
    /// assert_eq!(beneath::Mime::new("application/x-unheard-of"), None);
    /// ```
    #[must_use]
    pub fn new(raw: &str) -> Option<Self> {
        let name = raw.split(';').next().unwrap_or(raw).trim().to_ascii_lowercase();
        ROWS.iter().find(|row| row.names.contains(&name.as_str())).map(Self::of)
    }

    /// The type that files with this extension usually have; case does not matter.
    ///
    /// ```
    /// assert_eq!(beneath::Mime::from_extension("TIF").unwrap().as_str(), "image/tiff");
    /// ```
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<Self> {
        let extension = extension.to_ascii_lowercase();
        ROWS.iter().find(|row| row.extensions.contains(&extension.as_str())).map(Self::of)
    }

    /// The type that the extension of the last component names.
    ///
    /// ```
    /// assert_eq!(beneath::Mime::from_path("backup.tar.gz").unwrap().as_str(), "application/gzip");
    /// assert_eq!(beneath::Mime::from_path(".png"), None);
    /// ```
    #[must_use]
    pub fn from_path(path: impl AsRef<Path>) -> Option<Self> {
        Self::from_extension(path.as_ref().extension()?.to_str()?)
    }

    /// The name, in lower case.
    ///
    /// ```
    /// assert_eq!(beneath::Mime::from_extension("md").unwrap().as_str(), "text/markdown");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// The usual extension, without its dot.
    ///
    /// ```
    /// assert_eq!(beneath::Mime::new("audio/x-wav").unwrap().extension(), Some("wav"));
    /// ```
    #[must_use]
    pub fn extension(self) -> Option<&'static str> {
        self.row()?.extensions.first().copied()
    }

    /// Whether files of this type are text.
    ///
    /// ```
    /// assert!(beneath::Mime::new("application/json").unwrap().is_text());
    /// assert!(!beneath::Mime::new("application/pdf").unwrap().is_text());
    /// ```
    #[must_use]
    pub fn is_text(self) -> bool {
        self.0.starts_with("text/")
            || matches!(self.0, "application/json" | "image/svg+xml" | "application/xml")
    }

    fn of(row: &Row) -> Self {
        Self(row.name())
    }

    fn row(self) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.names.contains(&self.0))
    }
}

impl fmt::Display for Mime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Mime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mime({})", self.0)
    }
}

impl AsRef<str> for Mime {
    fn as_ref(&self) -> &str {
        self.0
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Mime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}
