//! The session a race is run on. As in the other bouts, all goes by held handles and single names.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use beneath_kit::scene::CANARY;
use beneath_kit::strikes::exchange::{Bait, NEW, move_new, open_dir};
use rustix::fs::{AtFlags, CWD, Mode, mkdirat, openat, statat, unlinkat};

use super::{Call, Exchange, GUEST, INSIDE, MESSAGE, Play, SESSION};

const HOST_PARTS: [&str; 4] = ["staging", "claimed", "trash", "state"];
/// What makes a directory a session, and of which name.
const MARKER: (&str, &str) = (".session", "beneath session 1\ns\n");

/// In the canary: what looks like an inbox or an outbox, like a message or a workspace, and what is in these.
pub(super) const BOX: &str = "box";
pub(super) const MESSAGE_BOX: &str = "box/c";
pub(super) const FILE: &str = "box/c/f";
pub(super) const DIRECTORY: &str = "box/c/d";

/// Builds the session and the canary.
pub(super) fn build(base: &Path, call: Call) -> io::Result<()> {
    let (root, outside) = (base.join("root"), base.join("outside"));
    fs::create_dir_all(outside.join(DIRECTORY))?;
    for file in ["box/c/f", "box/c/d/x"] {
        fs::write(outside.join(file), CANARY)?;
    }
    fs::create_dir(&root)?;
    if call == Call::Remove {
        return Ok(());
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
    fs::write(root.join(SESSION).join(MARKER.0), MARKER.1)
}

/// The host's bookkeeping between two calls.
pub(super) struct Books {
    play: Play,
    home: OwnedFd,
    outside: PathBuf,
}

impl Books {
    pub(super) fn open(play: Play, base: &Path) -> io::Result<Self> {
        let home = match play.call {
            Call::Deliver => "root/s/guest/inbox/c",
            Call::Collect | Call::Clear | Call::InPlace => "root/s/guest/outbox",
            Call::Harden => "root/s/guest/workspace",
            Call::Remove => "root",
        };
        Ok(Self { play, home: open_dir(CWD, base.join(home))?, outside: base.join("outside") })
    }

    /// Makes what the next call needs and the last one took.
    pub(super) fn prepare(&self) -> rustix::io::Result<()> {
        let home = &self.home;
        match (self.play.call, self.play.exchange) {
            (Call::Collect | Call::Clear | Call::InPlace, Exchange::Message) => {
                // If the guest's link was taken for litter, the message is under the link's name.
                let stranded = open_dir(home, "x").is_ok();
                match stranded && move_new(home, "x", home, MESSAGE).is_ok() {
                    true => Ok(()),
                    false => send(home),
                }
            }
            (Call::Collect | Call::Clear | Call::InPlace, Exchange::Outbox) => send(home),
            (Call::Clear | Call::InPlace, Exchange::DirLink) => {
                mkdirat(home, MESSAGE, Mode::RWXU)?;
                self.doom(&open_dir(home, MESSAGE)?)
            }
            (Call::Remove, _) => {
                mkdirat(home, SESSION, Mode::RWXU)?;
                let session = open_dir(home, SESSION)?;
                let marker = openat(&session, MARKER.0, NEW, Mode::RUSR | Mode::WUSR)?;
                rustix::io::write(marker, MARKER.1.as_bytes())?;
                directories(&session, "host", &HOST_PARTS)?;
                let guest = directories(&session, "guest", &["inbox", "outbox", "workspace"])?;
                self.doom(&open_dir(&guest, "workspace")?)
            }
            _ => Ok(()),
        }
    }

    /// A directory, a link that looks the same, and the file that both lead to.
    fn doom(&self, top: &OwnedFd) -> rustix::io::Result<()> {
        Bait::Link(DIRECTORY).plant(&self.outside, top, "l")?;
        mkdirat(top, "d", Mode::RWXU)?;
        openat(open_dir(top, "d")?, "x", NEW, Mode::RUSR).map(drop)
    }

    /// Undoes what the call did inside, and reports whether it had done anything, where that can be seen.
    pub(super) fn settle(&self) -> Option<bool> {
        match self.play.call {
            Call::Deliver => Some(unlinkat(&self.home, "w", AtFlags::empty()).is_ok()),
            _ => None,
        }
    }
}

/// A directory with others in it.
fn directories(at: &OwnedFd, name: &str, inner: &[&str]) -> rustix::io::Result<OwnedFd> {
    mkdirat(at, name, Mode::RWXU)?;
    let made = open_dir(at, name)?;
    inner.iter().try_for_each(|part| mkdirat(&made, *part, Mode::RWXU))?;
    Ok(made)
}

/// Puts a message in the outbox, whole; under its own name the guest would exchange it half made.
fn send(outbox: &OwnedFd) -> rustix::io::Result<()> {
    if statat(outbox, MESSAGE, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    mkdirat(outbox, "draft", Mode::RWXU)?;
    let file = openat(open_dir(outbox, "draft")?, "f", NEW, Mode::RUSR | Mode::WUSR)?;
    rustix::io::write(file, INSIDE)?;
    move_new(outbox, "draft", outbox, MESSAGE)
}
