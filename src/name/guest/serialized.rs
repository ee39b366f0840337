//! The serialised form of a path: text where it is text, bytes where it is not.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::path::PATH_MAX;
use super::GuestPath;

impl Serialize for GuestPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_str() {
            _ if !serializer.is_human_readable() => serializer.serialize_bytes(self.as_bytes()),
            Some(text) => serializer.serialize_str(text),
            None => serializer.collect_seq(self.as_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for GuestPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(PathVisitor)
        } else {
            deserializer.deserialize_bytes(PathVisitor)
        }
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = GuestPath;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a relative path as text or as bytes")
    }

    fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<GuestPath, E> {
        GuestPath::new(path).map_err(E::custom)
    }

    fn visit_bytes<E: serde::de::Error>(self, path: &[u8]) -> Result<GuestPath, E> {
        GuestPath::try_from(path).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut path: A) -> Result<GuestPath, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = path.next_element()? {
            // One more than fits, so that the path is refused for its length.
            if bytes.len() <= PATH_MAX {
                bytes.push(byte);
            }
        }
        GuestPath::try_from(bytes.as_slice()).map_err(A::Error::custom)
    }
}
