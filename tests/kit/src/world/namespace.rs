//! A mount namespace for one thread, so that tests can mount without anybody else noticing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::UnshareFlags;

/// A thread that works for the test of this one and speaks under its name.
pub fn thread_of_this_test() -> thread::Builder {
    thread::Builder::new().name(thread::current().name().unwrap_or("?").to_owned())
}

/// Runs `body` on such a thread, and panics as it does.
pub fn on_a_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let joined = thread::scope(|scope| thread_of_this_test().spawn_scoped(scope, body).unwrap().join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `body` on a thread with its own mounts; false (and a reason on stdout) where this user may not.
#[track_caller]
pub fn with_private_mounts(body: impl FnOnce() + Send) -> bool {
    let ran = on_a_thread(|| enter().map(|()| body()));
    ran.inspect_err(|errno| crate::skip(&format!("no private mount namespace: {errno}"))).is_ok()
}

// The safe function is deprecated because of `FILES`, which is not asked for here.
#[allow(deprecated)]
fn enter() -> rustix::io::Result<()> {
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// Mount points that go when this does, so that the arena around them can.
#[derive(Debug)]
pub struct Mounted<const N: usize>(pub [PathBuf; N]);

impl<const N: usize> Drop for Mounted<N> {
    fn drop(&mut self) {
        for point in &self.0 {
            let _ = unmount(point, UnmountFlags::DETACH);
        }
    }
}

/// A directory on another file system than this one.
pub fn another_file_system(dir: &Path) -> Option<PathBuf> {
    let device = |path: &Path| fs::metadata(path).map(|entry| entry.dev()).ok();
    let other = |place: &PathBuf| device(place).is_some_and(|there| Some(there) != device(dir));
    [PathBuf::from("/dev/shm"), std::env::temp_dir()].into_iter().find(other)
}
