//! Requests of a guest, from both sides.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apart;
mod bad_input;
mod flood;
mod recover;
mod straight;
mod support;
mod upstream;
mod wake;
mod workers;
