//! Reading a directory one buffer at a time, so that no directory is too wide.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Room for more than a hundred of the longest names.
const BUFFER: usize = 32_768;

/// How many bufferfuls in a row may hold no name. Real directories have one, with `.` and `..` in it, or two if the file
/// system returns them one by one.
const WITHOUT_NAMES: u32 = 64;

/// A buffer that any number of directories can be read through, one after the other.
#[derive(Debug)]
pub(in crate::root) struct Scanner(Vec<u8>);

impl Scanner {
    pub(in crate::root) fn new() -> Self {
        Self(Vec::with_capacity(BUFFER))
    }

    /// Visits the next bufferful of entries; the kernel keeps the position in `dir`. Says whether there may be more.
    ///
    /// The type is a hint: it may be unknown, stale or a lie. The name is one component, and neither `.` nor `..`.
    pub(in crate::root) fn next_batch(
        &mut self,
        dir: BorrowedFd<'_>,
        mut visit: impl FnMut(&CStr, FileType),
    ) -> rustix::io::Result<bool> {
        for _ in 0..WITHOUT_NAMES {
            let mut visited = false;
            let more = self.read(dir, |name, hint| {
                visited = true;
                visit(name, hint);
            })?;
            if visited || !more {
                return Ok(more);
            }
        }
        // A file system that a guest serves may list `.` for ever.
        Err(Errno::IO)
    }

    fn read(
        &mut self,
        dir: BorrowedFd<'_>,
        mut visit: impl FnMut(&CStr, FileType),
    ) -> rustix::io::Result<bool> {
        let mut entries = RawDir::new(dir, self.0.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => match entry.file_name() {
                    name if matches!(name.to_bytes(), b"." | b"..") => {}
                    name if is_component(name.to_bytes()) => visit(name, entry.file_type()),
                    _ => return Err(Errno::IO),
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

/// Kernels before 5.4 pass on whatever name a file system lists, and that of a hostile server may be `../../etc`.
fn is_component(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/')
}

#[cfg(test)]
mod tests {
    use crate::root::is_component;

    #[test]
    fn a_path_is_no_component() {
        for path in ["", "/", "a/b", "../x", "/etc", "a/"] {
            assert!(!is_component(path.as_bytes()), "{path:?}");
        }
        for name in ["a", "...", " ", "a\\b"] {
            assert!(is_component(name.as_bytes()), "{name:?}");
        }
    }
}
