//! The object store, as restore, mirror and bundles see it.

mod answer;
mod attributes;
#[cfg(feature = "azure")]
mod azure;
mod backend;
#[cfg(feature = "client")]
mod bounded;
mod budget;
#[cfg(feature = "client")]
mod connect;
mod error;
#[cfg(feature = "gcp")]
mod gcs;
mod generic;
mod local;
mod object;
mod parse;
mod probe;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
mod raw;
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
#[cfg(all(fuzzing, feature = "aws"))]
pub use raw::read_page;
pub use retry::Retry;
pub(crate) use retry::within;
pub use source::Source;
