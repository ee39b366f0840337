//! One directory that is being emptied.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;

/// An open directory, and what is known of its entries.
pub(super) struct Frame {
    pub(super) dir: Rc<OwnedFd>,
    /// Its name in the directory that holds it.
    pub(super) name: CString,
    /// Directories seen in it but not entered yet, at most a bufferful.
    pub(super) pending: Vec<CString>,
    /// It was read to its end.
    pub(super) ended: bool,
    /// How many of its entries stay, without those in `stays`.
    pub(super) left: u64,
    pub(super) stays: Stays,
    /// It was closed meanwhile, so it is read from its beginning.
    pub(super) again: bool,
}

/// The directories in a directory that were gone through and still stay, so that they are not entered again when it is
/// read again.
#[derive(Default)]
pub(super) struct Stays {
    pub(super) names: BTreeSet<CString>,
    /// There are more than could be remembered.
    pub(super) more: bool,
}

impl Stays {
    fn any(&self) -> bool {
        self.more || !self.names.is_empty()
    }
}

/// What is remembered of a directory that was closed for want of descriptors.
#[derive(Default)]
pub(super) struct Closed {
    pub(super) name: CString,
    stays: Stays,
}

impl Frame {
    pub(super) fn new(dir: OwnedFd, name: CString) -> Self {
        let stays = Stays::default();
        Self { dir: Rc::new(dir), name, pending: Vec::new(), ended: false, left: 0, stays, again: false }
    }

    pub(super) fn reopened(dir: OwnedFd, closed: Closed) -> Self {
        Self { stays: closed.stays, again: true, ..Self::new(dir, closed.name) }
    }

    /// What is to be remembered without the descriptor. Whatever else was seen is found by reading the directory again.
    pub(super) fn closed(&mut self) -> Closed {
        Closed { name: std::mem::take(&mut self.name), stays: std::mem::take(&mut self.stays) }
    }

    /// Whether something in it stays, so that going through it again is no use.
    pub(super) fn stuck(&self) -> bool {
        self.left > 0 || self.stays.any()
    }

    /// Runs a call on this directory, and once more after widening the directory's mode if that was in the way.
    pub(super) fn permitted<T>(
        &self,
        call: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match call(self.dir.as_fd()) {
            Err(Errno::ACCESS) => {
                // Through the handle. Should it fail, the second call reports why.
                let _ = fchmod(&self.dir, Mode::RWXU);
                call(self.dir.as_fd())
            }
            result => result,
        }
    }
}
