//! What the host remembers of a session between two calls, in its own directories.

mod base;
pub(crate) mod journal;
mod lines;
mod places;
mod record;
mod uploads;

pub(crate) use base::{Base, Intent, Intents};
pub use places::Places;
pub(crate) use places::{lock, lock_named};
pub(crate) use record::{Planned, Record, unhex};
pub(crate) use uploads::Uploads;
