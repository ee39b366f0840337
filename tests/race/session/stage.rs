//! The session a race is run on. As in the other stages, all goes by held handles and single names.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, RenameFlags, mkdirat, openat, renameat_with, statat, symlinkat, unlinkat};
use tempfile::TempDir;

use super::{Call, Exchange, GUEST, MESSAGE, SESSION};
use crate::stage::{INSIDE, NEW, open_dir};

const HOST_PARTS: [&str; 4] = ["staging", "claimed", "trash", "state"];
/// What makes a directory a session, and of which name.
const MARKER: (&str, &str) = (".session", "beneath session 1\ns\n");

/// Builds the session, and says which directory the bookkeeping needs a handle of.
pub(crate) fn build(root: &Path, call: Call) -> io::Result<std::path::PathBuf> {
    if call == Call::Remove {
        return Ok(root.to_path_buf());
    }
    let guest = root.join(GUEST);
    for message in ["inbox/c", "outbox/c"] {
        fs::create_dir_all(guest.join(message))?;
    }
    fs::write(guest.join("outbox/c/f"), INSIDE)?;
    fs::create_dir_all(guest.join("workspace/d"))?;
    for file in ["workspace/f", "workspace/d/x"] {
        fs::write(guest.join(file), INSIDE)?;
    }
    for part in HOST_PARTS {
        fs::create_dir_all(root.join(SESSION).join("host").join(part))?;
    }
    fs::write(root.join(SESSION).join(MARKER.0), MARKER.1)?;
    Ok(guest.join(match call {
        Call::Deliver => "inbox/c",
        Call::Collect | Call::Clear | Call::InPlace => "outbox",
        Call::Remove | Call::Harden => "workspace",
    }))
}

/// A directory on another file system than `here`, if there is one.
pub(crate) fn elsewhere(here: &Path) -> io::Result<Option<TempDir>> {
    let here = fs::metadata(here)?.dev();
    let places = [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into()];
    let other = places.iter().find(|place| fs::metadata(place).is_ok_and(|place| place.dev() != here));
    other.map(|place| tempfile::Builder::new().prefix("beneath-race-").tempdir_in(place)).transpose()
}

/// Makes what the next call needs and the last one took.
pub(crate) fn prepare(
    call: Call,
    exchange: Exchange,
    home: &OwnedFd,
    outside: &Path,
) -> rustix::io::Result<()> {
    match (call, exchange) {
        (Call::Collect | Call::Clear | Call::InPlace, Exchange::Message) => {
            // If the guest's link was taken for litter, the message stands under the link's name.
            let stranded = open_dir(home, "x").is_ok();
            match stranded && renameat_with(home, "x", home, MESSAGE, RenameFlags::NOREPLACE).is_ok() {
                true => Ok(()),
                false => send(home),
            }
        }
        (Call::Collect | Call::Clear | Call::InPlace, Exchange::Outbox) => send(home),
        (Call::Clear | Call::InPlace, Exchange::DirLink) => {
            mkdirat(home, MESSAGE, Mode::RWXU)?;
            doom(&open_dir(home, MESSAGE)?, outside)
        }
        (Call::Remove, _) => {
            mkdirat(home, SESSION, Mode::RWXU)?;
            let session = open_dir(home, SESSION)?;
            let marker = openat(&session, MARKER.0, NEW, Mode::RUSR | Mode::WUSR)?;
            rustix::io::write(marker, MARKER.1.as_bytes())?;
            mkdirat(&session, "host", Mode::RWXU)?;
            let host = open_dir(&session, "host")?;
            HOST_PARTS.iter().try_for_each(|part| mkdirat(&host, *part, Mode::RWXU))?;
            mkdirat(&session, "guest", Mode::RWXU)?;
            let guest = open_dir(&session, "guest")?;
            ["inbox", "outbox", "workspace"]
                .iter()
                .try_for_each(|part| mkdirat(&guest, *part, Mode::RWXU))?;
            doom(&open_dir(&guest, "workspace")?, outside)
        }
        _ => Ok(()),
    }
}

/// Puts a message in the outbox, whole; under its own name the guest would exchange it half made.
fn send(outbox: &OwnedFd) -> rustix::io::Result<()> {
    if statat(outbox, MESSAGE, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    mkdirat(outbox, "draft", Mode::RWXU)?;
    let file = openat(open_dir(outbox, "draft")?, "f", NEW, Mode::RUSR | Mode::WUSR)?;
    rustix::io::write(file, INSIDE)?;
    renameat_with(outbox, "draft", outbox, MESSAGE, RenameFlags::NOREPLACE)
}

/// A directory, a link that looks the same, and the file that both lead to.
fn doom(top: &OwnedFd, outside: &Path) -> rustix::io::Result<()> {
    symlinkat(outside.join("a/b/c/job/d"), top, "l")?;
    mkdirat(top, "d", Mode::RWXU)?;
    openat(open_dir(top, "d")?, "x", NEW, Mode::RUSR).map(drop)
}

/// Undoes what the call did inside, and says whether it had done anything, where that can be told.
pub(crate) fn settle(call: Call, home: &OwnedFd) -> Option<bool> {
    match call {
        Call::Deliver => Some(unlinkat(home, "w", AtFlags::empty()).is_ok()),
        _ => None,
    }
}
