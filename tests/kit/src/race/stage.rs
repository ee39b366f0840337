//! The directory of a bout, and where else there is room for one.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, openat};
use tempfile::TempDir;

/// A directory for a bout.
pub(super) fn temporary(place: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("beneath-race-").tempdir_in(place)
}

/// A directory on another file system than `here`, if there is one.
pub fn elsewhere(here: &Path) -> io::Result<Option<TempDir>> {
    let here = fs::metadata(here)?.dev();
    let places = [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into()];
    let other = places.iter().find(|place| fs::metadata(place).is_ok_and(|place| place.dev() != here));
    other.map(|place| temporary(place)).transpose()
}

/// Holds a directory that may not be opened, and never a link to one.
pub(super) fn pin_dir(at: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// Changes the mode of a directory that may not be opened, and of nothing else.
pub(super) fn chmod_pinned(at: impl AsFd, name: &str, mode: Mode) -> rustix::io::Result<()> {
    let pin = pin_dir(at, name)?;
    let number = rustix::path::DecInt::from_fd(&pin);
    let own = openat(CWD, "/proc/self/fd", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    chmodat(own, number.as_c_str(), mode, AtFlags::empty())
}
