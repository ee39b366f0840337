//! Reading a directory one buffer at a time, so that no directory is too wide.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Room for more than a hundred of the longest names.
const BUFFER: usize = 32_768;

/// A buffer that any number of directories can be read through, one after the other.
#[derive(Debug)]
pub(super) struct Scanner(Vec<u8>);

impl Scanner {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(BUFFER))
    }

    /// Visits the next bufferful of entries; the kernel keeps the position in `dir`. Says whether there may be more.
    ///
    /// The type is a hint: it may be unknown, and it may be stale.
    pub(super) fn next_batch(
        &mut self,
        dir: BorrowedFd<'_>,
        mut visit: impl FnMut(&CStr, FileType),
    ) -> rustix::io::Result<bool> {
        let mut entries = RawDir::new(dir, self.0.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => match entry.file_name() {
                    name if matches!(name.to_bytes(), b"." | b"..") => {}
                    name => visit(name, entry.file_type()),
                },
                // The directory was removed: there is nothing in it.
                Err(Errno::NOENT) => return Ok(false),
                Err(errno) => return Err(errno),
            }
            if entries.is_buffer_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
