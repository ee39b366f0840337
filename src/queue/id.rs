//! The name of one request.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};

/// The longest id.
const LONGEST: usize = 64;

/// Names a request and its answer: 1 to 64 ASCII letters, digits, `_` and `-`.
///
/// ```
/// use beneath::queue::RequestId;
///
/// let id = RequestId::generate()?;
/// assert_eq!(id.as_str().parse::<RequestId>()?, id);
/// assert!("../x".parse::<RequestId>().is_err());
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RequestId(String);

impl RequestId {
    /// Makes an id that nobody has used.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) or [`Unsupported`](ErrorKind::Unsupported) if the kernel gives no random bytes.
    pub fn generate() -> Result<Self> {
        unguessable().map(Self).map_err(|errno| Error::without_subject("generate id", errno))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file name that ends in `suffix`.
    pub(super) fn file(&self, suffix: &str) -> String {
        [self.as_str(), suffix].concat()
    }

    /// The id in a file name that ends in `suffix`.
    pub(super) fn of_file(name: &OsStr, suffix: &str) -> Option<Self> {
        name.to_str()?.strip_suffix(suffix)?.parse().ok()
    }
}

impl FromStr for RequestId {
    type Err = Error;

    fn from_str(raw: &str) -> Result<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match (1..=LONGEST).contains(&raw.len()) && raw.bytes().all(fits) {
            true => Ok(Self(raw.to_owned())),
            false => {
                let short: String = raw.chars().take(LONGEST).collect();
                Err(Error::new("check id", short, ErrorKind::InvalidName))
            }
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for RequestId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for RequestId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_letters_digits_and_two_signs() {
        let longest = "x".repeat(LONGEST);
        for raw in ["a", "A-b_9", "-", &longest] {
            assert_eq!(raw.parse::<RequestId>().unwrap().as_str(), raw);
        }
        let longer = "x".repeat(LONGEST + 1);
        for raw in ["", ".", "a.b", "a/b", "a b", "ä", "a\n", "\0", &longer] {
            assert_eq!(raw.parse::<RequestId>().unwrap_err().kind(), ErrorKind::InvalidName, "{raw:?}");
        }
    }

    #[test]
    fn a_file_has_an_id_if_its_stem_is_one() {
        let of = |name: &str| RequestId::of_file(name.as_ref(), ".json").map(|id| id.0);
        assert_eq!(of("a.json").as_deref(), Some("a"));
        for name in ["a", ".json", "a.json.tmp", "a.b.json", "a.JSON", ".a.json"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
