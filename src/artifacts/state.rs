//! What the host remembers of a session between two calls, in its own directories.

mod base;
mod binding;
mod intents;
mod lines;
mod log;
mod places;
mod record;
mod uploads;
mod version;

pub(crate) use base::{Base, FileId, Known};
pub(crate) use binding::Binding;
pub(crate) use intents::Intents;
pub(crate) use log::Log;
pub use places::Places;
pub(crate) use places::{Desk, lock_named};
pub(crate) use record::{Planned, Record};
pub(crate) use uploads::Uploads;
pub(crate) use version::{PutAt, Version, unhex};
