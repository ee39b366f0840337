//! Who is attacked.

use beneath::ResolverChoice;
use serde::{Deserialize, Serialize};

/// The crate with one of its resolvers, or the same done by path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    #[default]
    Openat2,
    Walk,
    /// Check-then-use by path.
    Control,
}

impl Contender {
    pub const RESOLVERS: &[Self] = &[Self::Openat2, Self::Walk];

    pub fn name(self) -> &'static str {
        match self {
            Self::Openat2 => "openat2",
            Self::Walk => "walk",
            Self::Control => "path",
        }
    }

    /// What a policy must ask for; the control asks for nothing.
    pub fn choice(self) -> ResolverChoice {
        match self {
            Self::Openat2 => ResolverChoice::Openat2,
            Self::Walk => ResolverChoice::Walk,
            Self::Control => ResolverChoice::Auto,
        }
    }
}
