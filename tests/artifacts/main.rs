//! Artifacts against real stores: in memory, a directory, moto and SeaweedFS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod keys;
mod mirror;
mod restore;
mod support;
