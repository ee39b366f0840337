//! What a guest does to one entry of its session between two calls of the host.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, fchmod, openat, renameat_with};

use beneath_kit::trace::scene::fifo;

pub(crate) struct Strike {
    pub(crate) name: &'static str,
    act: fn(&At) -> io::Result<()>,
}

/// Where a strike lands.
struct At {
    entry: PathBuf,
    /// Out of the host's sight, on the same file system.
    spare: PathBuf,
    outside: PathBuf,
}

impl Strike {
    /// Strikes at `target`, a path in the guest's side of the session. Every directory on the way must be real, since a
    /// guest too can only reach what is its own.
    pub(crate) fn apply(&self, base: &Path, target: &str) -> io::Result<()> {
        let guest = base.join("all/s/guest");
        let entry = guest.join(target);
        let parent = entry.parent().unwrap_or(&guest);
        for dir in parent.ancestors().take_while(|dir| dir.starts_with(&guest)) {
            if !fs::symlink_metadata(dir)?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        (self.act)(&At { entry, spare: spare(base), outside: base.join("outside") })
    }
}

/// Where strikes put what was there.
pub(crate) fn spare(base: &Path) -> PathBuf {
    base.join("exile/spare")
}

impl At {
    /// Takes away whatever is there.
    fn vacate(&self) -> io::Result<()> {
        match fs::rename(&self.entry, &self.spare) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn exchange_with_link(&self, to: &Path) -> io::Result<()> {
        symlink(to, &self.spare)?;
        Ok(renameat_with(CWD, &self.entry, CWD, &self.spare, RenameFlags::EXCHANGE)?)
    }
}

const fn strike(name: &'static str, act: fn(&At) -> io::Result<()>) -> Strike {
    Strike { name, act }
}

/// What leads a host that trusts a path furthest out.
pub(crate) fn worst(target: &str) -> &'static str {
    if target.ends_with(".bin") { TO_A_FILE } else { TO_A_DIRECTORY }
}

const TO_A_DIRECTORY: &str = "exchanged with a link to a directory";
const TO_A_FILE: &str = "exchanged with a link to a file";

pub(crate) const STRIKES: &[Strike] = &[
    strike("link to an outside directory", |at| {
        at.vacate()?;
        symlink(at.outside.join("dir"), &at.entry)
    }),
    strike("link to an outside file", |at| {
        at.vacate()?;
        symlink(at.outside.join("file"), &at.entry)
    }),
    strike(TO_A_DIRECTORY, |at| at.exchange_with_link(&at.outside.join("dir"))),
    strike(TO_A_FILE, |at| at.exchange_with_link(&at.outside.join("file"))),
    strike("link to itself", |at| {
        at.vacate()?;
        symlink(at.entry.file_name().unwrap_or_default(), &at.entry)
    }),
    strike("link to ..", |at| {
        at.vacate()?;
        symlink("..", &at.entry)
    }),
    strike("FIFO", |at| {
        at.vacate()?;
        fifo(&at.entry)
    }),
    strike("hard link to an outside file", |at| {
        at.vacate()?;
        fs::hard_link(at.outside.join("hard"), &at.entry)
    }),
    strike("empty directory", |at| {
        at.vacate()?;
        fs::create_dir(&at.entry)
    }),
    strike("another file", |at| {
        at.vacate()?;
        fs::write(&at.entry, "the guest's\n")
    }),
    strike("moved away", |at| fs::rename(&at.entry, &at.spare)),
    // By handle and without following: the entry may be a link that came with the session.
    strike("mode 000", |at| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(fchmod(openat(CWD, &at.entry, flags, Mode::empty())?, Mode::empty())?)
    }),
];
