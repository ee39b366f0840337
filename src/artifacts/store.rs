//! The object store, as restore, mirror and bundles see it.

mod local;
mod parts;
mod retry;
#[cfg(feature = "aws")]
mod s3;
mod source;

pub(crate) use parts::Parts;
pub use retry::Retry;
pub(crate) use source::{Body, Condition, PART, changed, is_transient};
pub use source::{Listed, Source};
