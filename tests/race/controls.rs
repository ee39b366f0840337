//! The same operations the way they are commonly written: look at the path, approve it, use the path.
//!
//! Each of them is right as long as nothing moves. They prove that the rig can see an escape. Hosts that do their file
//! work asynchronously give up the processor between check and use; so does every second call here, which makes the
//! control work on a busy machine too.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::canary::{Canary, MARKER};
use crate::plan::{Kind, Operation, Scenario};
#[cfg(feature = "session")]
use crate::session;
use crate::stage::Stage;
use crate::victims::Outcome;

/// Longer than the marker, so that a canary it is written over changes its size too.
const NAIVE: &[u8] = b"written by a host that checked the path first";

/// Whether check and use follow each other without a break.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    Straight,
    Asynchronous,
}

impl Pace {
    pub(crate) fn hand_over(self) {
        if let Self::Asynchronous = self {
            std::thread::sleep(Duration::from_micros(1));
        }
    }
}

pub(crate) struct Control {
    scenario: Scenario,
    base: PathBuf,
    target: PathBuf,
}

impl Control {
    pub(crate) fn new(scenario: Scenario, stage: &Stage) -> io::Result<Self> {
        let base = fs::canonicalize(stage.root())?;
        let target = base.join(scenario.target());
        Ok(Self { scenario, base, target })
    }

    pub(crate) fn call(&self, turn: u64, canary: &Canary) -> Outcome {
        let pace = if turn.is_multiple_of(2) { Pace::Straight } else { Pace::Asynchronous };
        match self.run(pace, canary) {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Refused,
        }
    }

    fn run(&self, pace: Pace, canary: &Canary) -> io::Result<Outcome> {
        let target = &*self.target;
        match self.scenario.operation {
            Operation::Read if matches!(self.scenario.kind, Kind::HardLinkRace(_)) => {
                return read_counted(target, canary);
            }
            Operation::SetAccess => {
                let pin = open_counted(target, OFlags::PATH)?;
                let path = format!("/proc/self/fd/{}", pin.as_raw_fd());
                fs::set_permissions(path, Permissions::from_mode(0o660))?;
            }
            Operation::Read => {
                self.approve_file(target)?;
                pace.hand_over();
                return read_by_path(target, canary);
            }
            Operation::Write => {
                // A dangling link does not "exist".
                let taken = match self.scenario.kind {
                    Kind::DanglingLink => target.exists(),
                    _ => fs::symlink_metadata(target).is_ok(),
                };
                if taken {
                    return Err(refused());
                }
                self.approve(parent(target))?;
                pace.hand_over();
                fs::write(target, NAIVE)?;
            }
            Operation::Replace => {
                self.approve_file(target)?;
                pace.hand_over();
                fs::write(target, NAIVE)?;
            }
            Operation::Remove => {
                self.approve(target)?;
                pace.hand_over();
                remove_by_path(target, pace)?;
            }
            Operation::EnsureDir => {
                let existing = target.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
                self.approve(existing.unwrap_or(target))?;
                pace.hand_over();
                fs::create_dir_all(target)?;
            }
            Operation::Rename => {
                let destination = self.base.join(self.scenario.destination());
                self.approve_file(target)?;
                self.approve(parent(&destination))?;
                pace.hand_over();
                fs::rename(target, destination)?;
            }
            Operation::Walk => {
                self.approve(target)?;
                pace.hand_over();
                return walk_by_path(target, canary);
            }
            #[cfg(feature = "session")]
            Operation::Session(call) => {
                let Kind::Session(exchange) = self.scenario.kind else { return Err(refused()) };
                return session::control::run(call, exchange, target, pace, canary);
            }
        }
        Ok(Outcome::Ok)
    }

    /// lstat, realpath, prefix.
    fn approve(&self, path: &Path) -> io::Result<Metadata> {
        let entry = match self.scenario.kind {
            Kind::LinkText => fs::metadata(path)?,
            _ => fs::symlink_metadata(path)?,
        };
        let base = match self.scenario.kind {
            // The directory that was handed out is taken as the boundary, and asked where it is.
            Kind::InboxLink => fs::canonicalize(self.base.join("a"))?,
            _ => self.base.clone(),
        };
        match !entry.is_symlink() && fs::canonicalize(path)?.starts_with(base) {
            true => Ok(entry),
            false => Err(refused()),
        }
    }

    fn approve_file(&self, path: &Path) -> io::Result<()> {
        let entry = self.approve(path)?;
        match entry.is_file() && entry.nlink() == 1 {
            true => Ok(()),
            false => Err(refused()),
        }
    }
}

/// Opens without following a link, then counts the names: one handle, and no path is used twice. Still the name that was
/// counted may be another one.
pub(crate) fn open_counted(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())?);
    let entry = file.metadata()?;
    match entry.is_file() && entry.nlink() == 1 {
        true => Ok(file),
        false => Err(refused()),
    }
}

pub(crate) fn read_counted(path: &Path, canary: &Canary) -> io::Result<Outcome> {
    judge_content(open_counted(path, OFlags::RDONLY)?, canary)
}

pub(crate) fn read_by_path(path: &Path, canary: &Canary) -> io::Result<Outcome> {
    judge_content(File::open(path)?, canary)
}

fn judge_content(mut file: File, canary: &Canary) -> io::Result<Outcome> {
    let opened = file.metadata()?;
    let mut content = [0; 64];
    let length = file.read(&mut content)?;
    let outside = canary.holds(opened.dev(), opened.ino());
    Ok(match outside || content[..length].starts_with(MARKER) {
        true => Outcome::Escaped("read outside".into()),
        false => Outcome::Ok,
    })
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

pub(crate) fn refused() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

pub(crate) fn remove_by_path(dir: &Path, pace: Pace) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let entry = fs::symlink_metadata(&path)?;
        if !entry.is_dir() {
            fs::remove_file(&path)?;
            continue;
        }
        pace.hand_over();
        if entry.mode() & 0o700 != 0o700 {
            fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        }
        remove_by_path(&path, pace)?;
    }
    fs::remove_dir(dir)
}

fn walk_by_path(dir: &Path, canary: &Canary) -> io::Result<Outcome> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let entry = fs::symlink_metadata(&path)?;
        if canary.holds(entry.dev(), entry.ino()) {
            return Ok(Outcome::Escaped("walked outside".into()));
        }
        if entry.is_dir()
            && let Outcome::Escaped(how) = walk_by_path(&path, canary)?
        {
            return Ok(Outcome::Escaped(how));
        }
    }
    Ok(Outcome::Ok)
}
