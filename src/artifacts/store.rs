//! The object store, as restore, mirror and bundles see it.

mod answer;
mod attributes;
mod backend;
#[cfg(feature = "client")]
mod bounded;
mod budget;
#[cfg(feature = "client")]
mod connect;
mod error;
mod generic;
mod local;
mod object;
mod parse;
mod probe;
mod retry;
#[cfg(feature = "aws")]
mod s3;
mod source;

pub use attributes::{Attributes, Kind};
pub use backend::{Abilities, Backend, Compares, Conditions, Parts};
pub(crate) use budget::Leave;
pub(crate) use error::{changed, is_transient};
pub(crate) use object::same_version;
pub use object::{Body, Condition, Doomed, Head, Listed};
pub(crate) use probe::Deletes;
pub use retry::Retry;
pub(crate) use retry::within;
#[cfg(all(fuzzing, feature = "aws"))]
pub use s3::read_page;
pub use source::Source;
