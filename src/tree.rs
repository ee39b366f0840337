//! What a directory holds at some time, and what has changed since: the ground that restore, mirror and bundles share.

mod limits;
mod reserved;
mod snapshot;
mod stamp;

pub use limits::ObjectLimits;
pub(crate) use reserved::{Reserved, is_reserved};
pub use snapshot::{Diff, Hashing, Snapshot};
pub(crate) use stamp::{Digest, Stamp, digest, is_fresh};
