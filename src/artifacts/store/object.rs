//! What goes to a store and comes from it.

use std::fmt;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::attributes::Attributes;
use crate::error::Result;

/// An object as a listing describes it; none of it is to be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The key, byte for byte.
    pub key: Vec<u8>,
    /// The size that the listing claims.
    pub size: u64,
    /// The version that the listing claims.
    pub etag: Option<String>,
    /// When it was put, in seconds since the epoch, as the listing claims.
    pub put_at: Option<i64>,
}

/// An object as the store describes it when it is asked for that alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Its size.
    pub size: u64,
    /// Its version.
    pub etag: Option<String>,
    /// What it says of its file.
    pub attributes: Attributes,
}

/// An object's content as it arrives.
pub struct Body {
    /// The length of the whole object that the store announces.
    pub size: Option<u64>,
    /// Its version.
    pub etag: Option<String>,
    /// What it says of its file.
    pub attributes: Attributes,
    /// The bytes; the stream ends after its first error.
    pub chunks: BoxStream<'static, Result<Bytes>>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("size", &self.size).field("etag", &self.etag).finish_non_exhaustive()
    }
}

/// What must hold for a put to take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// Nothing.
    Always,
    /// There is no object with this key.
    Absent,
    /// The object with this key has this version.
    Unchanged(&'a str),
}

/// An object that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    /// Its key.
    pub key: String,
    /// The version that it must have, where the store compares and removes in one step.
    pub etag: Option<String>,
}

/// Whether two texts name one version. Some answers leave the quotes out, and what is between a server and its client may mark
/// versions as weak.
pub(crate) fn same_version(one: &str, other: &str) -> bool {
    let bare = |etag: &str| strong(etag).trim_matches('"').to_owned();
    bare(one) == bare(other)
}

/// A version as a header has it. Azure and some servers of S3 leave the quotes out elsewhere, and then it would be another one.
pub(super) fn quoted(etag: String) -> String {
    if etag.ends_with('"') { etag } else { format!("\"{etag}\"") }
}

/// The version without the mark of a weak one, which no condition would hold for.
pub(super) fn strong(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_version_are_equal() {
        for other in ["\"e\"", "e", "W/\"e\""] {
            assert!(same_version("\"e\"", other) && same_version(other, "W/\"e\""), "{other}");
        }
        for other in ["\"f\"", "\"e-1\"", "W/\"f\"", ""] {
            assert!(!same_version("\"e\"", other), "{other}");
        }
        assert_eq!((strong("W/\"e\""), strong("\"e\"")), ("\"e\"", "\"e\""));
    }
}
