//! Bringing the objects of a session back as files.

mod fetch;
mod plan;
mod publish;
mod report;
mod restore;
mod stage;

pub(crate) use fetch::{Content, Fetcher, Target};
#[cfg(all(fuzzing, feature = "aws"))]
pub use plan::plan;
pub use report::{Ended, RestoreReport, Restored};
