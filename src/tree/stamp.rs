//! What a file looked like, and the hash of what it holds.

use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use crate::error::{Error, ErrorKind, Result};
use crate::root::{Metadata, Root};

/// Time stamps may not move for a tick of the kernel's clock, at most 10 ms.
const TICK: i128 = 50_000_000;
/// The tick of a file system that keeps whole seconds only.
const COARSE_TICK: i128 = 2_500_000_000;
const SECOND: i128 = 1_000_000_000;

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

/// What a file looked like: any change to the file changes one of these, except within one tick of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    /// Nanoseconds since the epoch.
    pub(crate) modified: i128,
    pub(crate) changed: i128,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.len(),
            modified: nanoseconds(metadata.modified()),
            changed: nanoseconds(metadata.changed()),
        }
    }
}

pub(crate) fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanos| -nanos),
    }
}

/// Whether a change just after `now` could leave this stamp as it is.
pub(crate) fn is_fresh(stamp: &Stamp, now: SystemTime) -> bool {
    let tick = if stamp.changed % SECOND == 0 { COARSE_TICK } else { TICK };
    stamp.changed.saturating_add(tick) >= nanoseconds(now)
}

/// The hash of a file of at most `limit` bytes, and its stamp from before it was read.
pub(crate) fn digest(root: &Root, path: impl AsRef<Path>, limit: u64) -> Result<(Stamp, Digest)> {
    let path = path.as_ref();
    let file = root.open_contained(path)?;
    let stamp = Stamp::of(file.metadata());
    if stamp.size > limit {
        return Err(Error::new("read", path, ErrorKind::TooLarge));
    }
    // A guest may let it grow faster than it is read. The next look at the stamp shows it.
    let mut file = file.take(stamp.size);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::new("read", path, ErrorKind::Io).with_source(error)),
        };
        match buffer.get(..read) {
            Some([]) | None => return Ok((stamp, hash.finalize().into())),
            Some(bytes) => hash.update(bytes),
        }
    }
}
