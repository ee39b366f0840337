//! What keeps others from a request that this process has.
//!
//! Problem: a file system or a filter of system calls may have no `flock`. A recovery, which may run at any time, then takes the requests
//! that this very process is handling for those of a host that has died.
//!
//! Defence: where there is no lock, the queue itself notes which files it has.
//!
//! What remains: without locks another process, or another queue on the same directory, knows nothing of that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::root::{ContainedFile, Flock};

/// Device and inode.
type File = (u64, u64);

/// The files that a queue has and could not lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Unlocked(Arc<Mutex<BTreeSet<File>>>);

impl Unlocked {
    fn files<T>(&self, change: impl FnOnce(&mut BTreeSet<File>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that nobody else takes as long as this is held.
#[derive(Debug)]
pub(super) struct Hold {
    // Before the file is closed, so that no other has its number.
    _noted: Option<Noted>,
    lock: Flock,
}

#[derive(Debug)]
struct Noted {
    file: File,
    among: Unlocked,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.among.files(|files| files.remove(&self.file));
    }
}

impl Hold {
    /// Takes what was opened, unless somebody else has it.
    pub(super) fn try_take(file: ContainedFile, unlocked: &Unlocked) -> Option<Self> {
        let lock = Flock::try_hold(file)?;
        if lock.is_locked() {
            return Some(Self { _noted: None, lock });
        }
        let file = (lock.file().metadata().dev(), lock.file().metadata().ino());
        unlocked.files(|files| files.insert(file)).then(|| {
            let noted = Noted { file, among: unlocked.clone() };
            Self { _noted: Some(noted), lock }
        })
    }

    pub(super) fn file(&self) -> &ContainedFile {
        self.lock.file()
    }

    pub(super) fn file_mut(&mut self) -> &mut ContainedFile {
        self.lock.file_mut()
    }

    /// Ends it for a request whose file has no name any more.
    pub(super) fn end(self) {
        self.lock.end();
    }
}

impl From<Flock> for Hold {
    fn from(lock: Flock) -> Self {
        Self { _noted: None, lock }
    }
}
