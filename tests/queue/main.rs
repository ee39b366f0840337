//! Requests of a guest, from both sides.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod straight;
mod support;
