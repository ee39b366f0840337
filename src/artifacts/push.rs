//! Bringing what has changed in the workspace to the store.
//!
//! Problem: a host that uploads by path uploads what a guest puts at the path in the meantime. Two hosts that
//! mirror one session overwrite each other. A host that dies forgets what it has uploaded.
//!
//! Defence: every file is opened beneath the workspace and read from that handle. The store is listed first, and a put still
//! asks for the version that was seen. Before each put its hash is noted, so that after a crash the host knows its own work from
//! another's. Deletions come last, each for a version that this workspace had.
//!
//! What remains: where the store does not compare and put in one step, what another host puts in between is overwritten.

mod delete;
mod give;
mod mark;
mod parts;
mod settle;
mod upload;
mod uploader;

pub(crate) use uploader::{Before, Content, Ready, Room, Seen, Uploaded, Uploader, identified, leaf};
