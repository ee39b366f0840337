//! Bringing what has changed in the workspace to the store.
//!
//! The problem: a host that uploads by path uploads what a guest puts at the path in the meantime. Two hosts that
//! mirror one session overwrite each other. A host that dies forgets what it has uploaded.
//!
//! The defence: every file is opened beneath the workspace and read from that handle. The version of each object is
//! remembered, and a put asks for it. Before each put its hash is noted, so that after a crash the host knows its own
//! work from another's.

mod parts;
mod push;
mod report;
mod settle;
mod upload;
mod uploader;

pub use report::{MirrorReport, Mirrored};
pub(crate) use uploader::{Room, Uploader};
