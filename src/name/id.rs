//! Ids that others chose, or that nobody can guess, as one directory name each.

mod fresh;
mod mapping;

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::time::SystemTime;

use super::path::SafePath;
use super::rules::SafeName;
use crate::entropy::unguessable;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// A message's id as one safe directory name.
///
/// Equal ids give equal names, and different ids different ones, whatever they hold.
///
/// ```
/// use beneath::MessageId;
///
/// assert_eq!(MessageId::new("msg-1").as_str(), "msg-1");
///
/// let id = MessageId::new("spaces/AAA/messages/B.B");
/// assert_eq!(id.as_str(), "spaces-AAA-messages-B-B~40ed6fb46fab0db76d241a74a614df8f");
/// assert!(!id.is_verbatim());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MessageId(SafeName);

/// A session's id as one safe directory name.
///
/// It is mapped in the same way as a [`MessageId`], or [generated](Self::generate).
///
/// ```
/// use beneath::SessionId;
///
/// assert_eq!(SessionId::new("team-42").as_str(), "team-42");
/// assert_ne!(SessionId::new("../team-42"), SessionId::new("team-42"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SessionId(SafeName);

impl MessageId {
    /// Gives the id `raw` its directory name.
    ///
    /// Every text is an id, the empty one too. Mapping the name of an id once more gives another name: to
    /// read an id back from the disk use [`MessageId::from_component`].
    ///
    /// ```
    /// use beneath::MessageId;
    ///
    /// assert_ne!(MessageId::new("a/b"), MessageId::new("a\\b"));
    /// assert!(MessageId::new("").as_str().starts_with("id~"));
    /// ```
    #[must_use]
    pub fn new(raw: impl AsRef<str>) -> Self {
        Self(mapping::component(raw.as_ref().as_bytes()))
    }

    /// Reads an id back from the name of its directory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if [`MessageId::new`] never gives that name.
    ///
    /// ```
    /// use beneath::MessageId;
    ///
    /// let id = MessageId::new("-1001234567890:42");
    /// assert_eq!(MessageId::from_component(id.as_str())?, id);
    /// assert!(MessageId::from_component("-1001234567890:42").is_err());
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn from_component(name: &str) -> Result<Self> {
        mapping::parse(name).map(Self)
    }

    /// The id of the message in a directory of that name, whoever chose the name.
    ///
    /// A name that [`from_component`](Self::from_component) reads is that id. Any other is an id as it is written, as
    /// [`new`](Self::new) takes it, also if it is not UTF-8. So a guest that names a directory by the id itself, and one that uses
    /// the name that the host gives to the id, send messages of the same id.
    ///
    /// ```
    /// use std::ffi::OsStr;
    /// use std::os::unix::ffi::OsStrExt;
    /// use beneath::MessageId;
    ///
    /// let id = MessageId::new("msg:agent-1");
    /// assert_eq!(MessageId::of_directory("msg:agent-1"), id);
    /// assert_eq!(MessageId::of_directory(id.as_str()), id);
    /// assert!(MessageId::of_directory(OsStr::from_bytes(b"\xff")).as_str().starts_with("id~"));
    /// ```
    #[must_use]
    pub fn of_directory(name: impl AsRef<OsStr>) -> Self {
        let name = name.as_ref();
        let known = name.to_str().and_then(|name| Self::from_component(name).ok());
        known.unwrap_or_else(|| Self(mapping::component(name.as_bytes())))
    }

    /// The name of the id's directory.
    ///
    /// ```
    /// assert_eq!(beneath::MessageId::new("42").as_str(), "42");
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The name of the id's directory as a [`SafeName`].
    ///
    /// ```
    /// assert_eq!(beneath::MessageId::new("42").as_name().as_str(), "42");
    /// ```
    #[must_use]
    pub fn as_name(&self) -> &SafeName {
        &self.0
    }

    /// Whether the id was a safe name and is its own directory name.
    ///
    /// ```
    /// assert!(beneath::MessageId::new("42").is_verbatim());
    /// assert!(!beneath::MessageId::new("..").is_verbatim());
    /// ```
    #[must_use]
    pub fn is_verbatim(&self) -> bool {
        mapping::split_mapped(self.as_str()).is_none()
    }
}

impl SessionId {
    /// Gives the id `raw` its directory name, as [`MessageId::new`] does.
    ///
    /// The name of an id is not given to it again: to read one back use [`from_component`](Self::from_component). If it were, whoever
    /// chooses ids could choose the directory of another id.
    ///
    /// ```
    /// assert_eq!(beneath::SessionId::new("team-42").as_str(), "team-42");
    /// ```
    #[must_use]
    pub fn new(raw: impl AsRef<str>) -> Self {
        Self(mapping::component(raw.as_ref().as_bytes()))
    }

    /// Makes a new id of 128 random bits from the system.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the kernel gives no random bytes.
    ///
    /// ```
    /// use beneath::SessionId;
    ///
    /// assert_ne!(SessionId::generate()?, SessionId::generate()?);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn generate() -> Result<Self> {
        Ok(Self(SafeName::built(random()?)))
    }

    /// Makes a new id that starts with `time` in UTC, so that names sort by it, followed by 128 random bits.
    ///
    /// Times before 1970 or after 9999 count as the nearest one within.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the kernel gives no random bytes.
    ///
    /// ```
    /// use beneath::SessionId;
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let id = SessionId::generate_at(UNIX_EPOCH + Duration::from_millis(1_767_225_600_250))?;
    /// assert!(id.as_str().starts_with("20260101T000000250Z-"));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn generate_at(time: SystemTime) -> Result<Self> {
        Ok(Self(SafeName::built(format!("{}-{}", fresh::timestamp(time), random()?))))
    }

    /// Reads an id back from the name of its directory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if neither [`SessionId::new`] nor a generator gives that name.
    ///
    /// ```
    /// use beneath::SessionId;
    ///
    /// let id = SessionId::generate()?;
    /// assert_eq!(SessionId::from_component(id.as_str())?, id);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn from_component(name: &str) -> Result<Self> {
        mapping::parse(name).map(Self)
    }

    /// The name of the id's directory.
    ///
    /// ```
    /// assert_eq!(beneath::SessionId::new("team-42").as_str(), "team-42");
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The name of the id's directory as a [`SafeName`].
    ///
    /// ```
    /// assert_eq!(beneath::SessionId::new("team-42").as_name().as_str(), "team-42");
    /// ```
    #[must_use]
    pub fn as_name(&self) -> &SafeName {
        &self.0
    }

    /// Whether the id was a safe name and is its own directory name.
    ///
    /// ```
    /// assert!(beneath::SessionId::new("team-42").is_verbatim());
    /// assert!(!beneath::SessionId::new("team/42").is_verbatim());
    /// ```
    #[must_use]
    pub fn is_verbatim(&self) -> bool {
        mapping::split_mapped(self.as_str()).is_none()
    }
}

/// What both kinds of id are to the rest of the world.
macro_rules! is_a_component {
    ($id:ident) => {
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<T: ?Sized> AsRef<T> for $id
        where
            SafeName: AsRef<T>,
        {
            fn as_ref(&self) -> &T {
                self.0.as_ref()
            }
        }

        impl Borrow<str> for $id {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }

        impl From<$id> for SafeName {
            fn from(id: $id) -> Self {
                id.0
            }
        }

        impl From<&$id> for SafePath {
            fn from(id: &$id) -> Self {
                id.as_name().into()
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $id {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = String::deserialize(deserializer)?;
                Self::from_component(&name).map_err(serde::de::Error::custom)
            }
        }
    };
}

is_a_component!(MessageId);
is_a_component!(SessionId);

/// 128 bits that nobody can guess.
fn random() -> Result<String> {
    unguessable().map_err(|errno| Error::without_subject("generate id", errno))
}
