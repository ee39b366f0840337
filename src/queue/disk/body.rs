//! Bodies in files of their own.
//!
//! Problem: a body is larger than what fits into an envelope, and is a second file of which a guest makes a link, a FIFO, or anything.
//!
//! Defence: it is moved to the host's side after its request was, or copied within the limit, and opened there as a request is. That of an
//! answer is published before the answer.
//!
//! What remains: a guest that holds it open can still write to it while it is read.

use super::super::id::RequestId;
use super::{BODY, Disk, REQUESTS, Step, is_unmovable};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{ContainedFile, Root};

impl Disk {
    /// Saves the body of an answer, in place of what an earlier attempt has left.
    ///
    /// # Errors
    /// `TooLarge` if there is more than `max_bytes`.
    pub(in crate::queue) fn save_body(
        &self,
        id: &RequestId,
        reader: impl std::io::Read,
        max_bytes: u64,
    ) -> Result<()> {
        self.forget(id, Step::Out)?;
        let mut file = self.host.new_file(Step::Out.of(id))?;
        file.copy_from(reader, max_bytes)?;
        file.commit()
    }

    /// Moves the body of a request to the host's side, and opens it.
    ///
    /// # Errors
    /// `NotFound` if there is none, `TooLarge` if it has more than `max_bytes`.
    pub(in crate::queue) fn claim_body(&self, id: &RequestId, max_bytes: u64) -> Result<ContainedFile> {
        let name = id.file(BODY);
        if self.has(id, Step::Body)? {
            self.unlink_twins(id, Step::Body)?;
        } else {
            let requests = self.open(REQUESTS)?;
            match requests.rename_to(&name, &self.unsynced, Step::Body.of(id)) {
                Err(error) if is_unmovable(&error) => {
                    self.copy_body(&requests, id, &name, max_bytes)?;
                }
                moved => moved?,
            }
        }
        let file = self.open_step(id, Step::Body)?;
        match file.len_hint() <= max_bytes {
            true => Ok(file),
            false => Err(Error::new("read", name, ErrorKind::TooLarge)),
        }
    }

    fn copy_body(&self, requests: &Root, id: &RequestId, name: &str, max_bytes: u64) -> Result<()> {
        let mut source = requests.open_contained(name)?;
        let mut file = self.host.new_file(Step::Body.of(id))?;
        file.copy_from(&mut source, max_bytes)?;
        match file.commit() {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => {
                // What stays is swept, or the guest's to remove.
                let _ = requests.remove_file(name);
                Ok(())
            }
        }
    }
}
