//! The same operations the way they are commonly written: look at the path, approve it, use the path.
//!
//! Each of them is right as long as nothing moves. They prove that the rig can see an escape.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::canary::{Canary, MARKER};
use crate::plan::{Kind, Operation, Scenario};
use crate::stage::Stage;
use crate::victims::Outcome;

/// Longer than the marker, so that a canary it is written over changes its size too.
const NAIVE: &[u8] = b"written by a host that checked the path first";

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

    pub(crate) fn call(&self, canary: &Canary) -> Outcome {
        match self.run(canary) {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Refused,
        }
    }

    fn run(&self, canary: &Canary) -> io::Result<Outcome> {
        let target = &*self.target;
        match self.scenario.operation {
            Operation::Read => {
                self.approve_file(target)?;
                self.read(canary)
            }
            Operation::Write => {
                // A dangling link does not "exist".
                let taken = match self.scenario.kind {
                    Kind::DanglingLink => target.exists(),
                    _ => fs::symlink_metadata(target).is_ok(),
                };
                if taken {
                    return Ok(Outcome::Refused);
                }
                self.approve(parent(target))?;
                fs::write(target, NAIVE)?;
                Ok(Outcome::Ok)
            }
            Operation::Replace => {
                self.approve_file(target)?;
                fs::write(target, NAIVE)?;
                Ok(Outcome::Ok)
            }
            Operation::Remove => {
                self.approve(target)?;
                remove_by_path(target)?;
                Ok(Outcome::Ok)
            }
            Operation::EnsureDir => {
                let existing = target.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
                self.approve(existing.unwrap_or(target))?;
                fs::create_dir_all(target)?;
                Ok(Outcome::Ok)
            }
            Operation::Rename => {
                let destination = self.base.join(self.scenario.destination());
                self.approve_file(target)?;
                self.approve(parent(&destination))?;
                fs::rename(target, destination)?;
                Ok(Outcome::Ok)
            }
            Operation::Walk => {
                self.approve(target)?;
                walk_by_path(target, canary)
            }
        }
    }

    /// lstat, realpath, prefix.
    fn approve(&self, path: &Path) -> io::Result<()> {
        if self.scenario.kind != Kind::LinkText && fs::symlink_metadata(path)?.is_symlink() {
            return Err(refused());
        }
        let base = match self.scenario.kind {
            // The directory that was handed out is taken as the boundary, and asked where it is.
            Kind::InboxLink => fs::canonicalize(self.base.join("a"))?,
            _ => self.base.clone(),
        };
        match fs::canonicalize(path)?.starts_with(base) {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    fn approve_file(&self, path: &Path) -> io::Result<()> {
        self.approve(path)?;
        let entry = match self.scenario.kind {
            Kind::LinkText => fs::metadata(path)?,
            _ => fs::symlink_metadata(path)?,
        };
        match entry.is_file() && entry.nlink() == 1 {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    fn read(&self, canary: &Canary) -> io::Result<Outcome> {
        let mut file = File::open(&self.target)?;
        let opened = file.metadata()?;
        let mut content = [0; 64];
        let length = file.read(&mut content)?;
        let outside = canary.holds(opened.dev(), opened.ino());
        Ok(match outside || content[..length].starts_with(MARKER) {
            true => Outcome::Escaped("read outside".into()),
            false => Outcome::Ok,
        })
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn refused() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

fn remove_by_path(dir: &Path) -> io::Result<()> {
    let entry = fs::symlink_metadata(dir)?;
    if !entry.is_dir() {
        return fs::remove_file(dir);
    }
    if entry.mode() & 0o700 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    for entry in fs::read_dir(dir)? {
        remove_by_path(&entry?.path())?;
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
