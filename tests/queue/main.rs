//! Requests of a guest, from both sides.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bad_input;
mod recover;
mod straight;
mod support;
