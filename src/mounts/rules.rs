//! What may be asked for, and the judgement of what is.
//!
//! Problem: each check alone has a way round it: an alias that shadows `inbox` in capitals, a `..` after the prefix was
//! compared, a link that comes after the look. A set of which one request is denied half-way leaves the others behind.
//!
//! Defence: a fixed order. First what the text says, then one lookup that ends with the opened directory. Only if no request of
//! the set is denied is anything returned, and nothing is made on disk at all.
//!
//! What remains: two grants at different times may find different directories. [`Mounts::load`] compares.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::base::{Base, Mode};
use super::denial::{Denial, Denials};
use super::granted::{Mount, Mounts};
use super::pattern::{Blocked, NamePatterns};
use crate::error::ErrorKind;
use crate::name::{SafeName, SafePath, fold};
use crate::root::Root;

/// Names of secrets.
const BLOCKED: [&str; 21] = [
    ".ssh",
    ".gnupg",
    ".gpg",
    ".aws",
    ".azure",
    ".gcloud",
    ".kube",
    ".docker",
    ".env",
    ".env.*",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "id_*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    ".secret*",
    "credentials",
];
const EXCEPTED: [&str; 1] = [".env.example"];

/// Names that a session or a guest's own tools use.
const RESERVED: [&str; 8] =
    ["inbox", "outbox", "workspace", "share", "skills", "external", "claude", "output.yaml"];

/// A directory that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The name by which the guest will know it.
    pub alias: &'a str,
    /// The name of the base.
    pub base: &'a str,
    /// The path from the base; empty or `.` for the base itself.
    pub subpath: &'a str,
    /// What is to be done with it.
    pub mode: Mode,
}

/// What may be asked for, and by whom.
#[derive(Debug)]
pub struct Rules {
    bases: Vec<Base>,
    blocked: Arc<Blocked>,
    reserved: BTreeSet<String>,
    most: usize,
    enabled: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self::new()
    }
}

impl Rules {
    /// Rules with no base, which deny everything. At most 10 mounts, the usual names of secrets are blocked, and the names of a
    /// session's own directories are reserved.
    #[must_use]
    pub fn new() -> Self {
        // The constants are patterns, which a test shows.
        let patterns = |names: &[&str]| NamePatterns::new(names).unwrap_or_default();
        let blocked = Blocked { block: patterns(&BLOCKED), except: patterns(&EXCEPTED) };
        let reserved = RESERVED.iter().map(|name| fold(name)).collect();
        Self { bases: Vec::new(), blocked: Arc::new(blocked), reserved, most: 10, enabled: true }
    }

    /// Rules that deny every request as [`Denial::Disabled`].
    #[must_use]
    pub fn disabled() -> Self {
        Self { enabled: false, ..Self::new() }
    }

    /// Adds a base; one of the same name is replaced.
    #[must_use]
    pub fn with_base(mut self, base: Base) -> Self {
        self.bases.retain(|known| known.name != base.name);
        self.bases.push(base);
        self
    }

    /// Replaces what is blocked for all bases.
    #[must_use]
    pub fn with_block(mut self, names: NamePatterns, exceptions: NamePatterns) -> Self {
        self.blocked = Arc::new(Blocked { block: names, except: exceptions });
        self
    }

    /// Reserves further aliases, case folded.
    #[must_use]
    pub fn with_reserved<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.reserved.extend(names.into_iter().map(|name| fold(name.as_ref())));
        self
    }

    /// Sets how many mounts a set may have.
    #[must_use]
    pub fn with_most(mut self, mounts: usize) -> Self {
        self.most = mounts;
        self
    }

    /// Judges a set of requests, and opens the directories if none is denied.
    ///
    /// `user` is who asks, as the host knows: from a token, never from the request.
    ///
    /// # Errors
    /// All denials, in the order of the requests.
    ///
    /// # Races
    /// A mount is the directory that was beneath its base during the call. What somebody puts at its name later is not.
    pub fn grant(&self, user: &str, requests: &[Request<'_>]) -> Result<Mounts, Denials> {
        let mut aliases = BTreeSet::new();
        let (mut granted, mut missing, mut denied) = (Vec::new(), Vec::new(), Vec::new());
        for (number, request) in requests.iter().enumerate() {
            match self.judge(user, number, request, &mut aliases) {
                Ok(Judged::Mount(mount)) => granted.push(*mount),
                Ok(Judged::Missing(alias)) => missing.push(alias),
                Err(denial) => denied.push((number, denial)),
            }
        }
        match denied.is_empty() {
            true => Ok(Mounts::new(granted, missing)),
            false => Err(Denials(denied)),
        }
    }

    fn judge(
        &self,
        user: &str,
        number: usize,
        request: &Request<'_>,
        aliases: &mut BTreeSet<String>,
    ) -> Result<Judged, Denial> {
        let unless = |good: bool, denial| if good { Ok(()) } else { Err(denial) };
        unless(self.enabled, Denial::Disabled)?;
        unless(number < self.most, Denial::TooManyMounts)?;
        let alias = SafeName::new(request.alias).map_err(|_| Denial::AliasInvalid)?;
        let folded = fold(request.alias);
        unless(!self.reserved.contains(&folded), Denial::AliasReserved)?;
        unless(aliases.insert(folded), Denial::AliasDuplicate)?;
        let base = self.bases.iter().find(|base| base.name.as_str() == request.base);
        let base = base.ok_or(Denial::BaseNotFound)?;
        unless(base.admits(user), Denial::NotAuthorized)?;
        let path = read_path(request.subpath)?;
        let components = || path.iter().flat_map(SafePath::components);
        unless(components().count() <= base.depth, Denial::MaxDepthExceeded)?;
        unless(!self.blocked.blocks(components()), Denial::GlobalBlocked)?;
        let allowed = |names: &NamePatterns| components().next().is_some_and(|first| names.matches(first));
        unless(base.allow.as_ref().is_none_or(allowed), Denial::NotInAllowlist)?;
        unless(!base.blocked.blocks(components()), Denial::BlockedByBase)?;
        unless(request.mode <= base.max, Denial::ModeExceedsMax)?;
        match open(&base.root, path.as_ref()) {
            Ok(root) => {
                let blocked = [Arc::clone(&self.blocked), Arc::new(base.blocked.clone())];
                let mount = Mount::new(alias, base.name.clone(), path, request.mode, root, blocked);
                Ok(Judged::Mount(Box::new(mount.map_err(|_| Denial::ResolutionFailed)?)))
            }
            Err(Denial::PathNotFound) if base.optional => Ok(Judged::Missing(alias)),
            Err(denial) => Err(denial),
        }
    }
}

enum Judged {
    Mount(Box<Mount>),
    Missing(SafeName),
}

/// The path that a request means; none for the base itself.
fn read_path(raw: &str) -> Result<Option<SafePath>, Denial> {
    let climbs = raw.split(['/', '\\']).any(|component| component == "..");
    if climbs || raw.contains(['\0', '\\']) || raw.starts_with(['/', '~']) {
        return Err(Denial::DangerousPattern);
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.-".contains(&byte);
    match raw {
        "" | "." => Ok(None),
        raw if raw.bytes().all(plain) => SafePath::new(raw).map(Some).map_err(|_| Denial::InvalidCharacters),
        _ => Err(Denial::InvalidCharacters),
    }
}

/// The one lookup.
fn open(base: &Root, path: Option<&SafePath>) -> Result<Root, Denial> {
    base.descend(path.map_or(".", SafePath::as_str)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Denial::PathNotFound,
        ErrorKind::Symlink => Denial::Symlink,
        ErrorKind::NotDirectory => Denial::NotDirectory,
        ErrorKind::CrossDevice => Denial::CrossDevice,
        ErrorKind::Escape => Denial::PathEscape,
        _ => Denial::ResolutionFailed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_are_blocked_by_default_are_patterns() {
        let blocked = &Rules::new().blocked;
        assert_eq!(blocked.block, NamePatterns::new(BLOCKED).unwrap());
        assert_eq!(blocked.except, NamePatterns::new(EXCEPTED).unwrap());
        assert!(
            blocked.blocks([".SSH"])
                && blocked.blocks(["a", ".env.local"])
                && !blocked.blocks([".env.example"])
        );
    }
}
