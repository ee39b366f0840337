//! A directory of the host from which mounts may be taken.
//!
//! Problem: a base that is a path can be replaced, and one that is open to everybody by default is open by mistake.
//!
//! Defence: a base is a handle. Nobody may use it, and nothing in it may be written to, until the host says so. Links and mounts
//! beneath it are refused whatever the policy of its root says.
//!
//! What remains: another guest that can write to a base chooses what is in it, within the base.

use std::collections::BTreeSet;

use super::pattern::{Blocked, NamePatterns};
use crate::name::SafeName;
use crate::root::{Links, Mounts, Root};

/// What may be done with a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Nothing can be changed.
    ReadOnly,
    /// Files can be made, changed and removed.
    ReadWrite,
}

impl Mode {
    /// `ro` or `rw`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
        }
    }
}

#[derive(Clone, Debug)]
enum Users {
    Everybody,
    Only(BTreeSet<String>),
}

/// A directory of the host from which mounts may be taken.
#[derive(Debug)]
pub struct Base {
    pub(super) name: SafeName,
    pub(super) root: Root,
    pub(super) max: Mode,
    pub(super) blocked: Blocked,
    pub(super) allow: Option<NamePatterns>,
    pub(super) depth: usize,
    pub(super) optional: bool,
    users: Users,
}

impl Base {
    /// A base that nobody may use yet: read-only, at most 10 components deep, with no names blocked but those of the
    /// [rules](super::Rules).
    #[must_use]
    pub fn new(name: SafeName, root: Root) -> Self {
        let policy = root.policy().clone().with_links(Links::Refuse).with_mounts(Mounts::Refuse);
        Self {
            name,
            root: root.with_policy(policy),
            max: Mode::ReadOnly,
            blocked: Blocked::default(),
            allow: None,
            depth: 10,
            optional: false,
            users: Users::Only(BTreeSet::new()),
        }
    }

    /// Sets the most that may be asked for.
    #[must_use]
    pub fn with_max_mode(mut self, max: Mode) -> Self {
        self.max = max;
        self
    }

    /// Lets these users ask for it, and nobody else.
    #[must_use]
    pub fn with_users<U: Into<String>>(mut self, users: impl IntoIterator<Item = U>) -> Self {
        self.users = Users::Only(users.into_iter().map(Into::into).collect());
        self
    }

    /// Lets every user ask for it.
    #[must_use]
    pub fn for_everybody(mut self) -> Self {
        self.users = Users::Everybody;
        self
    }

    /// Blocks paths with a component that matches.
    #[must_use]
    pub fn with_block(mut self, names: NamePatterns) -> Self {
        self.blocked.block = names;
        self
    }

    /// Excepts names from what [`with_block`](Self::with_block) blocks. What the rules block for all bases stays blocked.
    #[must_use]
    pub fn with_exceptions(mut self, names: NamePatterns) -> Self {
        self.blocked.except = names;
        self
    }

    /// Allows only what is in, or beneath, an entry of the base whose name matches; the base itself no longer can be asked for.
    #[must_use]
    pub fn with_allow(mut self, names: NamePatterns) -> Self {
        self.allow = Some(names);
        self
    }

    /// Sets how many components a path may have.
    #[must_use]
    pub fn with_depth(mut self, components: usize) -> Self {
        self.depth = components;
        self
    }

    /// A path that is not there is left out of the grant, and not a denial. It stays out: what somebody makes there later is not
    /// mounted.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(super) fn admits(&self, user: &str) -> bool {
        match &self.users {
            Users::Everybody => true,
            Users::Only(users) => users.contains(user),
        }
    }
}
