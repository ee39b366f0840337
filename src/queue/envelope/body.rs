//! What a request or an answer carries.

use std::io::Read as _;

use crate::error::Result;
use crate::root::ContainedFile;

/// The body of a request or an answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Body {
    /// Text.
    Text(String),
    /// Bytes; base64 in the envelope.
    Bytes(Vec<u8>),
    /// A file of its own beside the envelope, where the queue allows one. A guest that holds it open may still change it.
    File(ContainedFile),
}

/// Where the body of an envelope is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::queue) enum BodyPlace {
    Inside,
    Beside,
}

impl Default for Body {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Body {
    pub(in crate::queue) fn place(&self) -> BodyPlace {
        match self {
            Self::Text(_) | Self::Bytes(_) => BodyPlace::Inside,
            Self::File(_) => BodyPlace::Beside,
        }
    }

    /// The bytes that are in the envelope; none for a file.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
            Self::File(_) => None,
        }
    }

    /// All of it, at most `max_bytes`.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) if there is more, or the kind of the system's error.
    ///
    /// ```
    /// use beneath::queue::Body;
    ///
    /// assert_eq!(Body::from("hello").into_bytes(8)?, b"hello");
    /// assert!(Body::from("hello").into_bytes(4).is_err());
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn into_bytes(self, max_bytes: u64) -> Result<Vec<u8>> {
        let bytes = match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::File(mut file) => return file.read_to_limit(max_bytes),
        };
        match bytes.len() as u64 <= max_bytes {
            true => Ok(bytes),
            false => Err(crate::Error::new("read", "body", crate::ErrorKind::TooLarge)),
        }
    }

    /// A reader of all of it, that ends after `max_bytes`.
    pub fn reader(&mut self, max_bytes: u64) -> impl std::io::Read + '_ {
        let reader: Box<dyn std::io::Read + '_> = match self {
            Self::Text(text) => Box::new(text.as_bytes()),
            Self::Bytes(bytes) => Box::new(bytes.as_slice()),
            Self::File(file) => Box::new(file),
        };
        reader.take(max_bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<u8>> for Body {
    /// Text if it is UTF-8.
    fn from(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Text)
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}
