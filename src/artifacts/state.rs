//! What the host remembers of a session between two calls, in its own directories.

mod base;
mod binding;
mod intents;
mod lines;
mod log;
mod places;
mod record;
mod uploads;

pub(crate) use base::{Base, FileId, Known, PutAt, Version};
pub(crate) use binding::Binding;
pub(crate) use intents::Intents;
pub(crate) use log::Log;
pub use places::Places;
pub(crate) use places::{Desk, lock_named};
pub(crate) use record::{Planned, Record, unhex};
pub(crate) use uploads::Uploads;
