//! What a server in the guest says about itself.
//!
//! Problem: a host that takes an address or a process id from a guest's file connects to whatever the guest names, or kills it.
//!
//! Defence: of the file only a port is read, with a limit. The address is the caller's own, and a process id is not even read.
//!
//! What remains: what answers at that port is the guest's.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use crate::error::{Error, ErrorKind, Result};

pub(super) const READY: &str = "ready.json";
const MOST_BYTES: u64 = 4096;

/// What a server in the guest says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ready {
    /// Where it listens, on the loopback address of the guest.
    pub port: NonZeroU16,
}

impl Ready {
    pub(super) fn new(port: NonZeroU16) -> Self {
        Self { port }
    }

    pub(super) fn to_json(self) -> Vec<u8> {
        // A number can always be written.
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

pub(super) fn read_ready(disk: &Disk) -> Result<Option<Ready>> {
    disk.session.alive()?;
    let (root, path) = disk.at(READY);
    let text = match root.read_contained(&path, MOST_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    match serde_json::from_slice(&text) {
        Ok(ready) => Ok(Some(ready)),
        Err(_) => Err(Error::new("read", path, ErrorKind::InvalidData)),
    }
}
