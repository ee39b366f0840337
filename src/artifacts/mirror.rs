//! Bringing what has changed in the workspace to the store.
//!
//! Problem: a host that uploads by path uploads what a guest puts at the path in the meantime. Two hosts that
//! mirror one session overwrite each other. A host that dies forgets what it has uploaded.
//!
//! Defence: every file is opened beneath the workspace and read from that handle. The version of each object is
//! remembered, and a put asks for it. Before each put its hash is noted, so that after a crash the host knows its own
//! work from another's.
//!
//! What remains: a file that a guest changes while it is read may be uploaded half old, half new; and where the store does
//! not compare and put in one step, what another host puts in between is overwritten.

mod parts;
mod push;
mod report;
mod settle;
mod upload;
mod uploader;

pub use report::{MirrorReport, Mirrored};
pub(crate) use uploader::{Room, Uploader};
