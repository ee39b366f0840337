//! Handles and locks when sessions end.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};

use beneath::{ErrorKind, SessionId};

use crate::kit::skip;
use crate::support::with_each_resolver;

fn id() -> SessionId {
    SessionId::new("s")
}

/// Another descriptor of this process for the same open file, as a forked child has it.
fn shared(path: &Path) -> Result<OwnedFd, String> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?;
    let number = own
        .filter_map(|entry| entry.ok())
        .find(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == path))
        .and_then(|entry| entry.file_name().to_str()?.parse().ok())
        .ok_or("the lock's descriptor is not in /proc")?;
    let this = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|errno| errno.to_string())?;
    pidfd_getfd(this, number, PidfdGetfdFlags::empty()).map_err(|errno| errno.to_string())
}

struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_dropped_lock_is_free_although_a_child_still_holds_its_descriptor() {
    with_each_resolver(|stage| {
        let lock = stage.session.try_lock().unwrap();
        let inherited = match shared(&stage.host("state/lock").canonicalize().unwrap()) {
            Ok(inherited) => inherited,
            Err(reason) => return skip(&reason),
        };
        let child = Command::new("sleep").arg("600").stdin(inherited).spawn().map(Reaped).unwrap();
        assert_eq!(stage.session.try_lock().unwrap_err().kind(), ErrorKind::Busy);
        drop(lock);
        assert!(stage.session.try_lock().is_ok());
        assert!(stage.sessions.remove(&id()).unwrap().complete);
        drop(child);
    });
}
