//! How a path becomes an object key, and the exact way back.
//!
//! Problem: a key is text that others may choose. A program that *searches* a key for the prefix of a user finds
//! it where a guest put it, and one that strips a prefix "if it is there" reads two keys as one path.
//!
//! A guest, on the other hand, gives its files any name that Linux takes, and each of them must have a key.
//!
//! Defence: a key is a prefix, built from typed parts and ending in `/`, followed by a [`SafePath`] or by components that
//! are marked as escaped. Reading a key compares the whole prefix at byte 0 and checks all that follows; what is escaped is
//! accepted in one spelling only, so one path has one key and one key has at most one path.
//!
//! What remains: the prefix says where objects live, not who may ask for them. Authorise before choosing it.

use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SafePath, SessionId};

const OPERATION: &str = "read key";

/// Longest key that S3, GCS and Azure all take, in bytes.
const KEY_MAX: usize = 1024;

/// Where the objects of one session, or of one set of bundles, live in a store.
///
/// ```
/// use beneath::artifacts::Prefix;
/// use beneath::{GuestPath, SessionId};
///
/// let prefix = Prefix::session(&SessionId::new("s-1")).of_user("7").of_tenant("acme");
/// let key = prefix.key(&GuestPath::new("out/a b.txt")?)?;
/// assert_eq!(key, "tenants/acme/users/7/sessions/s-1/out/a b.txt");
/// assert_eq!(prefix.path(key.as_bytes())?, GuestPath::new("out/a b.txt")?);
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
    ///
    /// Every text is the id of a user, and becomes one component as that of a [`SessionId`] does: a safe name stays itself.
    ///
    /// ```
    /// use beneath::{SessionId, artifacts::Prefix};
    ///
    /// let prefix = |user| Prefix::session(&SessionId::new("s")).of_user(user);
    /// assert_eq!(prefix("u-7").as_str(), "users/u-7/sessions/s/");
    /// assert_eq!(prefix("auth0|7").as_str(), "users/auth0-7~0a07a4c62c2b815cbf76a2bd1467b462/sessions/s/");
    /// ```
    #[must_use]
    pub fn of_user(self, user: impl AsRef<str>) -> Self {
        Self(format!("users/{}/{}", SessionId::new(user), self.0))
    }

    /// The same prefix within a tenant's: `tenants/<tenant>/…`, with any text for the id, as [`of_user`](Self::of_user).
    #[must_use]
    pub fn of_tenant(self, tenant: impl AsRef<str>) -> Self {
        Self(format!("tenants/{}/{}", SessionId::new(tenant), self.0))
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
    /// A component that is not safe in a [`SafePath`] is escaped: `Q3: plan?.md` becomes `%=Q3%3A plan%3F.md`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the key is longer than the 1024 bytes that every store takes, and
    /// [`ErrorKind::InvalidPath`] for the top.
    pub fn key(&self, path: &GuestPath) -> Result<String> {
        if path.is_top() {
            return Err(Error::new("build key", path, ErrorKind::InvalidPath));
        }
        let mut key = self.0.clone();
        for (index, component) in path.components().enumerate() {
            if index > 0 {
                key.push('/');
            }
            escape(component.as_bytes(), &mut key);
        }
        match key.len() <= KEY_MAX {
            true => Ok(key),
            false => Err(Error::new("build key", path, ErrorKind::TooLarge)
                .with_detail(format!("key has more than {KEY_MAX} bytes"))),
        }
    }

    /// The key of the object that says that there is a directory at `path`: with a slash at its end where the store keeps such
    /// keys (`slashes`), and otherwise with a component that no file has.
    pub(crate) fn marker(&self, path: &GuestPath, slashes: bool) -> Result<String> {
        let end = if slashes { "/" } else { MARKER };
        let key = self.key(path)? + end;
        match key.len() <= KEY_MAX {
            true => Ok(key),
            false => Err(Error::new("build key", path, ErrorKind::TooLarge)
                .with_detail(format!("key has more than {KEY_MAX} bytes"))),
        }
    }

    /// The path of a directory if `raw` is the key of a [`marker`](Self::marker) in either form; none for all others.
    pub(crate) fn marked(&self, raw: &[u8]) -> Option<Result<GuestPath>> {
        let key = raw.strip_suffix(MARKER.as_bytes()).or_else(|| raw.strip_suffix(b"/"))?;
        // The prefix itself is no directory of the workspace.
        (key.len() >= self.0.len()).then(|| self.path(key))
    }

    /// A key that nobody else has, for an object that is put to see what the store does with it.
    pub(crate) fn scratch(&self) -> Result<String> {
        let random = unguessable().map_err(|errno| Error::from_errno("build key", &self.0, errno))?;
        Ok(format!("{}{SCRATCH}{random}", self.0))
    }

    /// Whether `raw` is such a key.
    pub(crate) fn is_scratch(&self, raw: &[u8]) -> bool {
        let rest = raw.strip_prefix(self.0.as_bytes()).and_then(|rest| rest.strip_prefix(SCRATCH.as_bytes()));
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let rest = rest.map(|rest| rest.strip_suffix(b"/").unwrap_or(rest));
        rest.is_some_and(|random| random.len() == 32 && random.iter().all(is_hex))
    }

    /// The path that `raw` holds: the exact inverse of [`key`](Self::key).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`] if `raw` does not start with this prefix, or is not the key of any path; those of
    /// [`SafePath::new`] for what follows.
    pub fn path(&self, raw: &[u8]) -> Result<GuestPath> {
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
        if !rest.contains(MARK) {
            return SafePath::new(rest).map(GuestPath::from);
        }
        let mut path = Vec::with_capacity(rest.len());
        for component in rest.split('/') {
            if !path.is_empty() {
                path.push(b'/');
            }
            match component.strip_prefix(MARK) {
                Some(escaped) => match unescape(escaped) {
                    Some(name) => path.extend_from_slice(&name),
                    None => return refuse("is not escaped as it should be"),
                },
                None => path.extend_from_slice(SafePath::new(component)?.as_str().as_bytes()),
            }
        }
        // One path has one key.
        match GuestPath::try_from(path.as_slice()) {
            Ok(path) if self.key(&path).is_ok_and(|key| key.as_bytes() == raw) => Ok(path),
            _ => refuse("is not escaped as it should be"),
        }
    }
}

/// How a component begins that is escaped.
const MARK: &str = "%=";
/// What follows the key of a directory where a slash at the end is not kept. An escaped component is never empty.
const MARKER: &str = "/%=";
/// How the key of a scratch object goes on after the prefix, before 32 hexadecimal digits. No path has such a key, since a
/// name of these characters is not escaped.
const SCRATCH: &str = "%=~probe-";

/// Adds one component of a key.
fn escape(name: &[u8], key: &mut String) {
    if let Ok(name) = std::str::from_utf8(name)
        && !name.starts_with(MARK)
        && SafePath::new(name).is_ok()
    {
        return key.push_str(name);
    }
    key.push_str(MARK);
    let mut rest = name;
    while !rest.is_empty() {
        let (valid, bad) = match std::str::from_utf8(rest) {
            Ok(all) => (all, 0),
            Err(error) => {
                let (valid, _) = rest.split_at(error.valid_up_to());
                (
                    std::str::from_utf8(valid).unwrap_or_default(),
                    error.error_len().unwrap_or(rest.len() - valid.len()),
                )
            }
        };
        for char in valid.chars() {
            match is_plain(char) {
                true => key.push(char),
                false => char.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(byte, key)),
            }
        }
        let (_, after) = rest.split_at(valid.len());
        let (odd, after) = after.split_at_checked(bad).unwrap_or((after, &[]));
        odd.iter().for_each(|byte| push_byte(*byte, key));
        rest = after;
    }
    // Some stores take away a dot or a blank at the end.
    if let Some(last) = key.pop() {
        match last {
            '.' | ' ' => last.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(byte, key)),
            last => key.push(last),
        }
    }
}

/// Whether a character is allowed anywhere in a name, so that what is escaped is safe wherever it is.
fn is_plain(char: char) -> bool {
    match char {
        '.' | ' ' => true,
        '%' => false,
        char => !char.is_whitespace() && SafePath::new(&format!("a{char}a")).is_ok(),
    }
}

fn push_byte(byte: u8, key: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(key, "%{byte:02X}");
}

fn unescape(escaped: &str) -> Option<Vec<u8>> {
    let (mut name, mut rest) = (Vec::with_capacity(escaped.len()), escaped.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        rest = match first {
            b'%' => {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                name.push(u8::from_str_radix(digits, 16).ok()?);
                tail.get(2..)?
            }
            byte => {
                name.push(byte);
                tail
            }
        };
    }
    Some(name)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn refused(raw: &[u8], detail: &'static str) -> Error {
    let shown = raw.get(..KEY_MAX).unwrap_or(raw);
    Error::new(OPERATION, std::ffi::OsStr::from_bytes(shown), ErrorKind::InvalidPath).with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix() -> Prefix {
        Prefix::session(&SessionId::new("s1")).of_user("u7")
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
    fn every_text_is_the_id_of_a_user_and_no_two_share_a_prefix() {
        let of = |id: &str| prefix().of_user(id).of_tenant(id);
        let ids =
            ["u", "auth0|x", "user:42", "user-42", "a/b", "a/../b", "..", "", "a\0", "é", "e\u{301}", "%=a"];
        let prefixes: std::collections::BTreeSet<_> = ids.map(|id| of(id).0).into();
        assert_eq!(prefixes.len(), ids.len());
        for id in ids {
            // Each is one component, and the way back is exact.
            assert_eq!(of(id).as_str().matches('/').count(), 8, "{id:?}");
            let path = GuestPath::new("a/b").unwrap();
            assert_eq!(of(id).path(of(id).key(&path).unwrap().as_bytes()).unwrap(), path, "{id:?}");
        }
        assert_eq!(of("u").as_str(), "tenants/u/users/u/users/u7/sessions/s1/");
        // Nobody gets the prefix of another by its name.
        let mapped = SessionId::new("auth0|x");
        assert_ne!(of(mapped.as_str()), of("auth0|x"));
    }

    #[test]
    fn key_longer_than_a_store_takes_is_refused() {
        let path = GuestPath::new(["x".repeat(200).as_str(); 6].join("/")).unwrap();
        assert_eq!(prefix().key(&path).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn any_name_has_a_key_of_its_own_that_a_person_can_read() {
        let cases: [(&[u8], &str); 12] = [
            (b"plain.txt", "plain.txt"),
            (b"100%.txt", "100%.txt"),
            (b".env", ".env"),
            (b"Q3: plan?.md", "%=Q3%3A plan%3F.md"),
            (b"aux.rs", "%=aux.rs"),
            (b"...", "%=..%2E"),
            (b"a \n", "%=a %0A"),
            (b"trailing ", "%=trailing%20"),
            (b"\xff\xc3\xa9", "%=%FF\u{e9}"),
            (b"%=a", "%=%25=a"),
            (b"d: x/100%", "%=d%3A x/100%"),
            ("rtl\u{202e}".as_bytes(), "%=rtl%E2%80%AE"),
        ];
        for (raw, rest) in cases {
            let path = GuestPath::try_from(raw).unwrap();
            let key = format!("{}{rest}", prefix().as_str());
            assert_eq!(prefix().key(&path).unwrap(), key);
            assert_eq!(prefix().path(key.as_bytes()).unwrap(), path);
        }
        for rest in ["%=", "%=a", "%=a%3a", "%=a%3", "%=%41", "%=..", "%=a%2Fb", "%=a%00", "%=a/..", "x/%=b"]
        {
            let key = format!("{}{rest}", prefix().as_str());
            assert!(prefix().path(key.as_bytes()).is_err(), "{rest}");
        }
    }

    #[test]
    fn directory_has_a_marker_that_no_file_has() {
        let path = GuestPath::new("d: x/e").unwrap();
        for (slashes, end) in [(true, "/"), (false, "/%=")] {
            let marker = prefix().marker(&path, slashes).unwrap();
            assert_eq!(marker, format!("{}%=d%3A x/e{end}", prefix().as_str()));
            assert_eq!(prefix().marked(marker.as_bytes()).unwrap().unwrap(), path);
            assert!(prefix().path(marker.as_bytes()).is_err(), "it is no file");
        }
        assert!(prefix().marked(prefix().as_str().as_bytes()).is_none(), "the prefix itself");
        assert!(prefix().marked(prefix().key(&path).unwrap().as_bytes()).is_none());
        for hostile in ["//", "../", "a//", "%=/"] {
            let key = format!("{}{hostile}", prefix().as_str());
            assert!(prefix().marked(key.as_bytes()).is_none_or(|path| path.is_err()), "{hostile}");
        }
    }

    #[test]
    fn scratch_key_is_the_key_of_no_path() {
        let scratch = prefix().scratch().unwrap();
        assert!(
            prefix().is_scratch(scratch.as_bytes()) && prefix().is_scratch(format!("{scratch}/").as_bytes())
        );
        assert_eq!(prefix().path(scratch.as_bytes()).unwrap_err().kind(), ErrorKind::InvalidPath);
        let random = "0123456789abcdef".repeat(2);
        for name in [format!("~probe-{random}"), format!("%=~probe-{random}"), format!("~probe-{random}:")] {
            let key = prefix().key(&GuestPath::new(&name).unwrap()).unwrap();
            assert!(!prefix().is_scratch(key.as_bytes()), "{key}");
            assert_eq!(prefix().path(key.as_bytes()).unwrap().as_str(), Some(name.as_str()));
        }
        assert!(!prefix().is_scratch(format!("x/{scratch}").as_bytes()));
        assert!(!prefix().is_scratch(format!("{scratch}/x").as_bytes()));
    }

    proptest! {
        #[test]
        fn key_and_path_are_inverse(raw in "(\\PC{1,20}/){0,3}\\PC{1,20}|[%=.: a\n]{1,9}") {
            if let Ok(path) = GuestPath::new(&raw) && !path.is_top() {
                let key = prefix().key(&path).unwrap();
                prop_assert_eq!(prefix().path(key.as_bytes()).unwrap(), path);
            }
        }

        #[test]
        fn bytes_that_are_no_text_have_a_key_too(raw in proptest::collection::vec(any::<u8>(), 1..40)) {
            if let Ok(path) = GuestPath::try_from(raw.as_slice()) && !path.is_top() {
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
