//! A guest's file, read up to a limit.
//!
//! Problem: a guest makes a file longer while it is read, so its size at opening bounds nothing.
//!
//! Defence: what was really read is counted, and reading fails with the byte that passes the limit.
//!
//! What remains: the content may be from before and after a change.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::root::ContainedFile;

/// A guest's file, open for reading up to a limit.
///
/// Reading fails with [`TooLarge`](ErrorKind::TooLarge) if the guest has made it longer than that.
#[derive(Debug)]
pub struct LimitedFile {
    /// What the caller is doing with it, for the error.
    operation: &'static str,
    file: ContainedFile,
    subject: PathBuf,
    /// How many bytes may still come.
    left: u64,
}

impl LimitedFile {
    pub(super) fn new(
        operation: &'static str,
        file: ContainedFile,
        subject: impl AsRef<Path>,
        limit: u64,
    ) -> Result<Self> {
        let subject = subject.as_ref().to_path_buf();
        if file.len_hint() > limit {
            return Err(Error::new(operation, subject, ErrorKind::TooLarge));
        }
        Ok(Self { operation, file, subject, left: limit })
    }

    /// The size when it was opened; more or less may come.
    #[must_use]
    pub fn len_hint(&self) -> u64 {
        self.file.len_hint()
    }

    /// The file itself, without the limit.
    #[must_use]
    pub fn into_contained(self) -> ContainedFile {
        self.file
    }
}

impl Read for LimitedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One byte more than is left distinguishes the end from the limit.
        let room = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(room);
        let read = self.file.read(buffer.get_mut(..wanted).unwrap_or_default())?;
        match self.left.checked_sub(read as u64) {
            Some(left) => {
                self.left = left;
                Ok(read)
            }
            None => Err(Error::new(self.operation, &self.subject, ErrorKind::TooLarge).into()),
        }
    }
}
