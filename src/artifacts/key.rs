//! How a path becomes an object key, and the exact way back.
//!
//! The problem: a key is text that others may choose. A program that *searches* a key for the prefix of a user finds
//! it where a guest put it, and one that strips a prefix "if it is there" reads two keys as one path.
//!
//! The defence: a key is a prefix, built from typed parts and ending in `/`, followed by a [`SafePath`]. Reading a key
//! compares the whole prefix at byte 0 and checks all that follows; nothing is decoded, so one path has one key and
//! one key has at most one path.
//!
//! What is left: the prefix says where objects live, not who may ask for them. Authorise before choosing it.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::name::{SafeName, SafePath, SessionId};

const OPERATION: &str = "read key";

/// Longest key that S3, GCS and Azure all take, in bytes.
const KEY_MAX: usize = 1024;

/// Where the objects of one session, or of one set of bundles, live in a store.
///
/// ```
/// use beneath::artifacts::Prefix;
/// use beneath::{SafePath, SessionId, safe_name};
///
/// let prefix = Prefix::session(&SessionId::new("s-1")).of_user(&safe_name("7")?).of_tenant(&safe_name("acme")?);
/// let key = prefix.key(&SafePath::new("out/a b.txt")?)?;
/// assert_eq!(key, "tenants/acme/users/7/sessions/s-1/out/a b.txt");
/// assert_eq!(prefix.path(key.as_bytes())?.as_str(), "out/a b.txt");
/// assert!(prefix.path(b"x/tenants/acme/users/7/sessions/s-1/out/a b.txt").is_err());
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(String);

impl Prefix {
    /// The prefix of a session: `sessions/<id>/`.
    #[must_use]
    pub fn session(id: &SessionId) -> Self {
        Self(format!("sessions/{}/", id.as_str()))
    }

    /// A prefix of one's own layout: `<path>/`.
    ///
    /// ```
    /// use beneath::{SafePath, artifacts::Prefix};
    ///
    /// let prefix = Prefix::at(&SafePath::new("skills/pdf")?);
    /// assert_eq!(prefix.as_str(), "skills/pdf/");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn at(path: &SafePath) -> Self {
        Self(format!("{}/", path.as_str()))
    }

    /// The same prefix within a user's: `users/<user>/…`.
    #[must_use]
    pub fn of_user(self, user: &SafeName) -> Self {
        Self(format!("users/{}/{}", user.as_str(), self.0))
    }

    /// The same prefix within a tenant's: `tenants/<tenant>/…`.
    #[must_use]
    pub fn of_tenant(self, tenant: &SafeName) -> Self {
        Self(format!("tenants/{}/{}", tenant.as_str(), self.0))
    }

    /// A prefix below this one: `…/<path>/`.
    #[must_use]
    pub fn join(&self, path: &SafePath) -> Self {
        Self(format!("{}{}/", self.0, path.as_str()))
    }

    /// The prefix as text; it ends in `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of the object that holds `path`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the key is longer than the 1024 bytes that every store takes.
    pub fn key(&self, path: &SafePath) -> Result<String> {
        let key = format!("{}{}", self.0, path.as_str());
        match key.len() <= KEY_MAX {
            true => Ok(key),
            false => Err(Error::new("build key", path, ErrorKind::TooLarge)
                .with_detail(format!("key has more than {KEY_MAX} bytes"))),
        }
    }

    /// The path that `raw` holds: the exact inverse of [`key`](Self::key).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`] if `raw` does not start with this prefix; those of [`SafePath::new`] for what follows.
    pub fn path(&self, raw: &[u8]) -> Result<SafePath> {
        let refuse = |detail: &'static str| Err(refused(raw, detail));
        let Some(rest) = raw.strip_prefix(self.0.as_bytes()) else {
            return refuse("is not under the prefix");
        };
        if raw.len() > KEY_MAX {
            return refuse("has more than 1024 bytes");
        }
        let Ok(rest) = std::str::from_utf8(rest) else {
            return refuse("is not UTF-8");
        };
        if rest.is_empty() || rest.ends_with('/') {
            return refuse("is a directory marker");
        }
        SafePath::new(rest)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn refused(raw: &[u8], detail: &'static str) -> Error {
    use std::os::unix::ffi::OsStrExt as _;
    let shown = raw.get(..KEY_MAX).unwrap_or(raw);
    Error::new(OPERATION, std::ffi::OsStr::from_bytes(shown), ErrorKind::InvalidPath).with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix() -> Prefix {
        Prefix::session(&SessionId::new("s1")).of_user(&SafeName::new("u7").unwrap())
    }

    #[test]
    fn path_is_read_only_from_its_own_prefix() {
        let hostile: [&[u8]; 12] = [
            b"users/u7/sessions/s1",
            b"users/u7/sessions/s1/",
            b"users/u7/sessions/s1/dir/",
            b"users/u7/sessions/s1//abs",
            b"users/u7/sessions/s1/../s2/a",
            b"users/u7/sessions/s1/a/./b",
            b"users/u7/sessions/s10/a",
            b"/users/u7/sessions/s1/a",
            b"users/u8/users/u7/sessions/s1/a",
            b"users/u7/sessions/s1/a\0b",
            b"users/u7/sessions/s1/\xff",
            b"users/u7/sessions/s1/a\\..\\b",
        ];
        for raw in hostile {
            let error = prefix().path(raw).unwrap_err();
            let leaves =
                [b"users/u7/sessions/s1//abs".as_slice(), b"users/u7/sessions/s1/../s2/a"].contains(&raw);
            let kind = if leaves { ErrorKind::Escape } else { ErrorKind::InvalidPath };
            assert_eq!(error.kind(), kind, "{raw:?}: {error}");
        }
    }

    #[test]
    fn key_longer_than_a_store_takes_is_refused() {
        let path = SafePath::new(&["x".repeat(200).as_str(); 6].join("/")).unwrap();
        assert_eq!(prefix().key(&path).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    proptest! {
        #[test]
        fn key_and_path_are_inverse(raw in "(\\PC{1,20}/){0,3}\\PC{1,20}") {
            if let Ok(path) = SafePath::new(&raw) {
                let key = prefix().key(&path).unwrap();
                prop_assert_eq!(prefix().path(key.as_bytes()).unwrap(), path);
            }
        }

        #[test]
        fn accepted_key_is_the_key_of_its_path(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            let key = [prefix().as_str().as_bytes(), &raw].concat();
            if let Ok(path) = prefix().path(&key) {
                prop_assert_eq!(prefix().key(&path).unwrap().into_bytes(), key);
            }
        }
    }
}
