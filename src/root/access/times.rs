//! Setting the times of what is already there.
//!
//! Problem: `utimes` goes by path and follows links, so a guest that exchanges an entry for a link has a host's file changed; a
//! second name of that file needs not even a race.
//!
//! Defence: as for mode and owner. The entry is pinned with `O_PATH`, judged by its handle, proven to have no other name if it is
//! a file, and changed through that handle.
//!
//! What remains: the guest may set the times of its own entries again at once. The change time is the kernel's.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, OFlags, Timespec, Timestamps, UTIME_OMIT, futimens, utimensat};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::root::Root;
use crate::root::metadata::{FileType, describe};
use crate::root::read::single::{self, Proof, Purpose, REOPENED};
use crate::root::resolve::path::{Checked, Meant, subject};
use crate::root::resolve::proc::{missing_proc, own_descriptors};

const OPERATION: &str = "set times";

impl Root {
    /// Sets when the regular file or directory at `path` was last accessed and modified. What is `None` stays as it is.
    ///
    /// The file system rounds the times, and bounds them to what it can keep.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink); [`HardLinked`](ErrorKind::HardLinked) whatever the policy says of reading;
    /// [`NotRegular`](ErrorKind::NotRegular) for FIFOs, sockets and devices; [`Denied`](ErrorKind::Denied) for an entry of another
    /// owner; [`Busy`](ErrorKind::Busy) if the guest keeps exchanging, linking or changing the file;
    /// [`Unsupported`](ErrorKind::Unsupported) before Linux 5.8 without a usable `/proc`; and the kinds of every resolution.
    ///
    /// # Races
    /// As [`set_access`](Self::set_access): what is changed was an entry beneath the root during the call, and the only name of its
    /// file.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("report", "x")?;
    /// let modified = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    /// root.set_times("report", None, Some(modified))?;
    /// assert_eq!(root.metadata("report")?.modified(), modified);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let path = Checked::new(OPERATION, path.as_ref(), Meant::DirectoryOrRoot)?;
        self.writable(OPERATION, path)?;
        let failed = |errno| Error::from_errno(OPERATION, subject(path), errno);
        let times = Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) };
        let until = single::patience();
        for _ in 0..REOPENED {
            let pin = self.open(OPERATION, path, OFlags::PATH)?;
            let single = match describe(pin.as_fd()).map_err(failed)?.file_type() {
                FileType::Directory => true,
                FileType::File => {
                    let proof = self.prove_single(OPERATION, path, pin.as_fd(), Purpose::Change, until)?;
                    proof == Proof::Single
                }
                // Never a link: the resolver has refused it.
                _ => return Err(Error::new(OPERATION, subject(path), ErrorKind::NotRegular)),
            };
            if single {
                return apply(pin.as_fd(), &times).map_err(failed);
            }
        }
        Err(failed(Errno::BUSY).with_detail("is exchanged without pause"))
    }
}

/// Sets when a file that is open was last modified.
pub(in crate::root) fn set_modified(file: BorrowedFd<'_>, time: SystemTime) -> rustix::io::Result<()> {
    futimens(file, &Timestamps { last_access: timespec(None), last_modification: timespec(Some(time)) })
}

fn apply(pin: BorrowedFd<'_>, times: &Timestamps) -> rustix::io::Result<()> {
    match utimensat(pin, c"", times, AtFlags::EMPTY_PATH) {
        // Before Linux 5.8 the call does not know the flag.
        Err(Errno::INVAL) => {}
        result => return result,
    }
    // The name of a pin in the thread's own descriptors leads to the inode, which is no link.
    let (descriptors, number) = own_descriptors(pin).map_err(missing_proc(Errno::OPNOTSUPP))?;
    utimensat(descriptors, number.as_c_str(), times, AtFlags::empty())
}

/// As the kernel counts: whole seconds downwards from the epoch, and nanoseconds upwards from there.
fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else { return Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT } };
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = 0_i64.saturating_sub_unsigned(before.as_secs());
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanos => (seconds.saturating_sub(1), 1_000_000_000 - nanos),
            }
        }
    };
    Timespec { tv_sec: seconds, tv_nsec: nanos.into() }
}
