//! Why a request was denied.

use std::fmt;

/// Why a request for a mount was denied. The order is that of the checks, and the first that fails is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Denial {
    /// Nothing is granted to anybody.
    Disabled,
    /// The set has more requests than are allowed.
    TooManyMounts,
    /// The alias is no [`SafeName`](crate::SafeName).
    AliasInvalid,
    /// The alias is reserved, case folded.
    AliasReserved,
    /// Another request of the set has the alias, case folded.
    AliasDuplicate,
    /// There is no base of that name.
    BaseNotFound,
    /// The user may not ask for this base.
    NotAuthorized,
    /// The path is absolute, or has a `..`, a NUL, a backslash or a leading `~`.
    DangerousPattern,
    /// The path has other characters than `A-Z a-z 0-9 / _ . -`, or is not in its one form.
    InvalidCharacters,
    /// The path has more components than the base allows.
    MaxDepthExceeded,
    /// A component is blocked for all bases.
    GlobalBlocked,
    /// The first component is not in the base's list of what is allowed.
    NotInAllowlist,
    /// A component is blocked for this base.
    BlockedByBase,
    /// More is asked for than the base allows.
    ModeExceedsMax,
    /// There is nothing at the path.
    PathNotFound,
    /// A component of the path is a link.
    Symlink,
    /// The path leads to something else than a directory.
    NotDirectory,
    /// Something is mounted at a component of the path.
    CrossDevice,
    /// The path leads out of the base.
    PathEscape,
    /// The directory could not be opened for another reason.
    ResolutionFailed,
}

impl Denial {
    /// Every denial, in the order of the checks.
    pub const ALL: [Self; 20] = [
        Self::Disabled,
        Self::TooManyMounts,
        Self::AliasInvalid,
        Self::AliasReserved,
        Self::AliasDuplicate,
        Self::BaseNotFound,
        Self::NotAuthorized,
        Self::DangerousPattern,
        Self::InvalidCharacters,
        Self::MaxDepthExceeded,
        Self::GlobalBlocked,
        Self::NotInAllowlist,
        Self::BlockedByBase,
        Self::ModeExceedsMax,
        Self::PathNotFound,
        Self::Symlink,
        Self::NotDirectory,
        Self::CrossDevice,
        Self::PathEscape,
        Self::ResolutionFailed,
    ];

    /// A stable code for logs and for other programs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Disabled => "FEATURE_DISABLED",
            Self::TooManyMounts => "TOO_MANY_MOUNTS",
            Self::AliasInvalid => "ALIAS_INVALID",
            Self::AliasReserved => "ALIAS_RESERVED",
            Self::AliasDuplicate => "ALIAS_DUPLICATE",
            Self::BaseNotFound => "BASE_NOT_FOUND",
            Self::NotAuthorized => "NOT_AUTHORIZED",
            Self::DangerousPattern => "DANGEROUS_PATTERN",
            Self::InvalidCharacters => "INVALID_CHARACTERS",
            Self::MaxDepthExceeded => "MAX_DEPTH_EXCEEDED",
            Self::GlobalBlocked => "GLOBAL_BLOCKED",
            Self::NotInAllowlist => "NOT_IN_ALLOWLIST",
            Self::BlockedByBase => "BLOCKED_BY_BASE",
            Self::ModeExceedsMax => "MODE_EXCEEDS_MAX",
            Self::PathNotFound => "PATH_NOT_FOUND",
            Self::Symlink => "SYMLINK_ESCAPE",
            Self::NotDirectory => "NOT_A_DIRECTORY",
            Self::CrossDevice => "CROSS_DEVICE",
            Self::PathEscape => "PATH_ESCAPE",
            Self::ResolutionFailed => "RESOLUTION_FAILED",
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// All denials of a set of requests, each with the number of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denials(pub(super) Vec<(usize, Denial)>);

impl Denials {
    /// The number of each request that was denied, from zero, and why.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Denial)> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Denials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("grant mounts: ")?;
        for (at, (request, denial)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}request {request} is {denial}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Denials {}
