//! Descriptors by their number: opening, or changing, the very inode that a descriptor holds.
//!
//! Problem: what was opened as a mere pin can only be read, or given a mode, through `/proc`, and `/proc` may be missing, be
//! something else, or show the descriptors of another thread or process.
//!
//! Defence: it must be procfs, and show this thread's own table; before a change the number is compared with the pin.
//!
//! What remains: without `/proc` the calls that need it say so.

use std::cell::RefCell;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, openat, statat};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::DecInt;

/// To hold a directory, not to read it.
pub(in crate::root) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

thread_local! {
    /// The directory of this thread's own descriptors, kept since every pinned read goes through it, and the process that
    /// opened it.
    ///
    /// It shows the table of the thread that opened it, also after that thread got a table of its own. A thread has to have
    /// one for itself, since the same number may be another file in another thread's table, and so has a child after a fork:
    /// opening the parent's file of that number would already break a lease, or wake a device.
    static DESCRIPTORS: RefCell<Option<(u32, OwnedFd)>> = const { RefCell::new(None) };
}

/// Opens the directory of descriptors before anything counts how many are open.
pub(in crate::root) fn prepare() {
    // Without it every read says what is missing.
    let _ = with_descriptors(|_| ());
}

/// Runs `call` with the directory of this thread's own descriptors. `None` without a usable `/proc`.
fn with_descriptors<T>(call: impl FnOnce(BorrowedFd<'_>) -> T) -> rustix::io::Result<Option<T>> {
    let kept = DESCRIPTORS.try_with(|kept| {
        let Ok(mut kept) = kept.try_borrow_mut() else { return Ok(None) };
        let process = std::process::id();
        if kept.as_ref().is_none_or(|(opener, _)| *opener != process) {
            *kept = match open_descriptors(c"/proc/thread-self/fd") {
                Ok(descriptors) => Some((process, descriptors)),
                // Not a reason to do without it.
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
                Err(_) => None,
            };
        }
        Ok(kept.as_ref().map(|(_, descriptors)| call(descriptors.as_fd())))
    });
    // The thread is ending.
    kept.unwrap_or(Ok(None))
}

/// Has the directory of descriptors opened anew.
pub(in crate::root) fn forget_descriptors() {
    let _ = DESCRIPTORS.try_with(|kept| kept.take());
}

/// Opens the regular file behind a pin for reading. `None` if no usable `/proc` leads to it.
pub(in crate::root) fn reopen(pin: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<Option<OwnedFd>> {
    let (number, flags) = (DecInt::from_fd(pin), flags | OFlags::CLOEXEC);
    let open = |descriptors: BorrowedFd<'_>| {
        retry_on_intr(|| openat(descriptors, number.as_c_str(), flags, Mode::empty()))
    };
    match with_descriptors(open)? {
        Some(Ok(fd)) => Ok(Some(fd)),
        // A guest cannot cause these: the link leads to the inode even after its last name is gone.
        None | Some(Err(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
        Some(Err(errno)) => Err(errno),
    }
}

/// The directory of the thread's own descriptors, and the name of `fd` in it, which is checked to be that file.
pub(in crate::root) fn own_descriptors(fd: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, DecInt)> {
    let (descriptors, number) = (open_descriptors(c"/proc/thread-self/fd")?, DecInt::from_fd(fd));
    let (shown, held) = (statat(&descriptors, number.as_c_str(), AtFlags::empty())?, fstat(fd)?);
    if (shown.st_dev, shown.st_ino) != (held.st_dev, held.st_ino) {
        return Err(Errno::NOENT);
    }
    Ok((descriptors, number))
}

/// The name of `fd` in the directory of the thread's own descriptors, for a call where a wrong file does no harm: that `/proc` is
/// procfs was checked when this thread first used it.
#[cfg(feature = "session")]
pub(in crate::root) fn number_of(fd: BorrowedFd<'_>) -> rustix::io::Result<DecInt> {
    // In a child after a fork too: what the number is looked up in is not the directory that is kept.
    let is_checked = DESCRIPTORS.try_with(|kept| kept.try_borrow().is_ok_and(|kept| kept.is_some()));
    if !is_checked.unwrap_or(false) {
        with_descriptors(|_| ())?.ok_or(Errno::NOENT)?;
    }
    Ok(DecInt::from_fd(fd))
}

/// What a failure to find one's own descriptors means: `meaning`, unless the host has run out of something.
pub(in crate::root) fn missing_proc(meaning: Errno) -> impl Fn(Errno) -> Errno {
    move |errno| match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => errno,
        _ => meaning,
    }
}

/// Checked, since anything may be mounted at `/proc`.
fn open_descriptors(path: &CStr) -> rustix::io::Result<OwnedFd> {
    let descriptors = openat(CWD, path, DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    if fstatfs(&descriptors)?.f_type != PROC_SUPER_MAGIC {
        return Err(Errno::NOENT);
    }
    Ok(descriptors)
}
