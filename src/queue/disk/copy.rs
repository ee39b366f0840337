//! Where a request cannot be moved to the host's side, or an answer to the guest's.
//!
//! Problem: a copy and the removal of its source are two steps. A host that dies between them finds both, and one that copies what
//! another worker is handling handles it twice.
//!
//! Defence: under a lock, in this order: look for `<id>.done`, copy to `<id>.copy`, remove the source, rename to `<id>.claimed`.
//! Where the host may not remove the source, `<id>.done` is written instead, and stays until the source is gone. So nothing that
//! is claimed can be claimed again. A crash leaves a copy; the source, which is removed by whoever comes next, or its absence
//! says how far it came.
//!
//! What remains: where the host may not remove requests, a guest that withdraws one does not know whether it was taken.
//! Without locks, in a file system that has none, only one worker may copy.

use std::path::Path;

use super::super::id::RequestId;
use super::{Disk, JSON, OPERATION, Published, REQUESTS, Step, Taken};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Flock, Root};

/// On the host's side.
const LOCK: &str = "lock";
/// How many requests that the host may not remove are handled at most.
const TOMBSTONES: usize = 1024;

impl Disk {
    /// Nobody else copies, or answers what cannot be opened, as long as this is held; none where there are no locks.
    pub(in crate::queue) fn lock(&self) -> Result<Option<Flock>> {
        match Flock::try_take(&self.host, Path::new(LOCK), OPERATION) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            taken => taken.map(Some),
        }
    }

    pub(super) fn claim_copy(&self, requests: &Root, id: &RequestId, max_bytes: u64) -> Result<Taken> {
        let _lock = self.lock()?;
        if self.has(id, Step::Done)? {
            return Ok(Taken::Handled);
        }
        let name = id.file(JSON);
        // One byte past the limit is enough to know; what cannot be read is refused as what it is not.
        let bytes = match requests.open_contained(&name) {
            Ok(mut file) => match file.read_to_limit(max_bytes) {
                Err(error) if error.kind() == ErrorKind::TooLarge => {
                    vec![b' '; usize::try_from(max_bytes).unwrap_or(usize::MAX).saturating_add(1)]
                }
                read => read?,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Taken::Gone),
            Err(error)
                if matches!(error.kind(), ErrorKind::HardLinked | ErrorKind::Denied | ErrorKind::Busy) =>
            {
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        self.host.write_exclusive(Step::Copy.of(id), bytes)?;
        self.finish_copy(requests, id)
    }

    /// Removes the source of a copy, and makes the copy a claim.
    fn finish_copy(&self, requests: &Root, id: &RequestId) -> Result<Taken> {
        let removed = match requests.remove_file(id.file(JSON)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.forget(id, Step::Copy)?;
                return Ok(Taken::Gone);
            }
            removed => removed,
        };
        // A power cut must not bring it back.
        if removed.and_then(|()| self.sync(requests)).is_err() {
            self.bury(id).inspect_err(|_| {
                // Nothing was claimed.
                let _ = self.forget(id, Step::Copy);
            })?;
        }
        self.settle_copy(id)
    }

    /// Makes what was removed there durable, if that is asked for.
    fn sync(&self, requests: &Root) -> Result<()> {
        let policy = requests.policy().clone().with_durability(self.host.policy().durability());
        requests.try_clone()?.with_policy(policy).sync_dir(".")
    }

    fn settle_copy(&self, id: &RequestId) -> Result<Taken> {
        match self.unsynced.rename(Step::Copy.of(id), Step::Claimed.of(id)) {
            Ok(()) => Ok(Taken::Claimed),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.forget(id, Step::Copy)?;
                Ok(Taken::Duplicate)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that the source of a copy is not to be taken again.
    fn bury(&self, id: &RequestId) -> Result<()> {
        let buried = self.states()?.filter(|state| matches!(state, Ok((_, Step::Done, _)))).count();
        if buried >= TOMBSTONES {
            let error = Error::new(OPERATION, id.file(JSON), ErrorKind::TooMany);
            return Err(error.with_detail("the host may not remove requests, and has handled too many"));
        }
        match self.host.write_exclusive(Step::Done.of(id), "") {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// What becomes of a copy that an interrupted claim has left.
    pub(in crate::queue) fn recover_copy(&self, id: &RequestId) -> Result<Recopied> {
        let lock = self.lock()?;
        if !self.has(id, Step::Copy)? {
            return Ok(Recopied::Taken(Taken::Gone));
        }
        if self.has(id, Step::Done)? {
            return self.settle_copy(id).map(Recopied::Taken);
        }
        let requests = self.open(REQUESTS)?;
        match requests.try_exists(id.file(JSON))? {
            true => self.finish_copy(&requests, id).map(Recopied::Taken),
            // The crash came right after the removal, or whoever wrote it has withdrawn it. Nobody has begun it.
            false => Ok(Recopied::Lost(lock)),
        }
    }

    /// Removes the notes of requests that are gone.
    pub(in crate::queue) fn exhume(&self, id: &RequestId) -> Result<bool> {
        let requests = self.open(REQUESTS)?;
        match requests.try_exists(id.file(JSON))? {
            true => Ok(false),
            false => self.forget(id, Step::Done).map(|()| true),
        }
    }

    /// Publishes by a copy.
    pub(super) fn hand_copy(
        &self,
        id: &RequestId,
        step: Step,
        responses: &Root,
        name: &str,
    ) -> Result<Published> {
        let mut own = match self.host.open_contained(step.of(id)) {
            // Another worker has published it, or there is no body.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Published::Now),
            own => own?,
        };
        // Its own copy goes only after this one is durable, if that is asked for.
        let policy = responses.policy().clone().with_durability(self.host.policy().durability());
        let mut file = responses.try_clone()?.with_policy(policy).new_file(name)?;
        let length = own.len_hint();
        file.copy_from(&mut own, length)?;
        let published = match file.commit() {
            Ok(()) => Published::Now,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Published::Already,
            Err(error) => return Err(error),
        };
        self.forget(id, step)?;
        Ok(published)
    }
}

/// What becomes of a copy without its claim.
#[derive(Debug)]
pub(in crate::queue) enum Recopied {
    Taken(Taken),
    /// Its source is gone. Nobody else answers it as long as the lock is held.
    Lost(Option<Flock>),
}
