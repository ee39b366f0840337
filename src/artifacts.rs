//! Files that outlive their machine: restore, materialise, snapshot, mirror and bundles over an object store.

mod key;
#[cfg(feature = "aws")]
mod listing;
#[cfg(feature = "aws")]
mod s3;
mod source;

pub use key::Prefix;
pub use source::{Listed, Source};
