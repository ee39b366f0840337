//! Merging two trees: nothing that anybody wrote is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cases;
mod exhaustive;
mod flaws;
mod races;
mod support;
