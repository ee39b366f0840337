//! Messages in SQLite: what the host writes, what the guest writes, and what a guest makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod crash;
mod flips;
mod journal;
mod mount;
mod put;
mod resolve;
mod rows;
mod schemas;
mod support;
mod take;
mod upstream;
