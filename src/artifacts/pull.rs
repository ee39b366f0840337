//! Bringing the objects of a session to its workspace.

mod fetch;
mod row;
mod stage;
mod take;

pub(crate) use fetch::{Content, Fetcher, Target};
