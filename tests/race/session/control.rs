//! The same calls by path, as the studied systems make them: each checks what it can see, then uses the path.
//!
//! Links of the guest's lead nowhere but to the canary, so neither does anything that is done here.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use beneath_kit::canary::Canary;
use beneath_kit::naive::{open_counted, refused, remove_by_path};
use beneath_kit::race::Outcome;
use beneath_kit::scene::CANARY;
use rustix::fs::OFlags;

use super::{Call, Exchange, Play};

pub(super) struct Control {
    play: Play,
    target: PathBuf,
}

type Pause<'a> = &'a dyn Fn();

impl Control {
    pub(super) fn new(play: Play, base: &Path) -> io::Result<Self> {
        Ok(Self { play, target: base.canonicalize()?.join("root").join(play.call.target()) })
    }

    pub(super) fn call(&self, turn: u64, canary: &Canary) -> Outcome {
        let pause = || {
            if !turn.is_multiple_of(2) {
                std::thread::sleep(Duration::from_micros(1));
            }
        };
        self.run(&pause, canary).unwrap_or(Outcome::Refused)
    }

    fn run(&self, pause: Pause<'_>, canary: &Canary) -> io::Result<Outcome> {
        let (target, exchange) = (&*self.target, self.play.exchange);
        match self.play.call {
            Call::Deliver => deliver(target, pause)?,
            Call::Clear => clear(target, pause)?,
            // It knows of no other place.
            Call::InPlace if exchange == Exchange::DirLink => clear(target, pause)?,
            Call::Collect | Call::InPlace => {
                let file = match exchange {
                    Exchange::HardLinkRace => open_counted(&target.join("f"), OFlags::RDONLY)?,
                    _ => approve_file(target, pause)?,
                };
                let outcome = judge(file, canary)?;
                if matches!(outcome, Outcome::Ok) && !exchange.keeps_message() {
                    clear(target, pause)?;
                }
                return Ok(outcome);
            }
            Call::Remove => remove_by_path(target, pause)?,
            Call::Harden => {
                if fs::symlink_metadata(target)?.is_symlink() {
                    return Err(refused());
                }
                pause();
                harden(target, pause)?;
            }
        }
        Ok(Outcome::Ok)
    }
}

fn judge(mut file: File, canary: &Canary) -> io::Result<Outcome> {
    let opened = file.metadata()?;
    let mut content = [0; 64];
    let length = file.read(&mut content)?;
    let outside = canary.holds(opened.dev(), opened.ino());
    Ok(match outside || content[..length].starts_with(CANARY.as_bytes()) {
        true => Outcome::Escaped("read outside".into()),
        false => Outcome::Ok,
    })
}

/// Looks at the message's directory, and asks both where they are.
fn approve(dir: &Path) -> io::Result<PathBuf> {
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(refused());
    }
    let real = fs::canonicalize(dir)?;
    match real.starts_with(fs::canonicalize(dir.parent().unwrap_or(dir))?) {
        true => Ok(real),
        false => Err(refused()),
    }
}

fn deliver(dir: &Path, pause: Pause<'_>) -> io::Result<()> {
    approve(dir)?;
    pause();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(dir.join("w"))?;
    file.write_all(b"delivered by path")
}

fn approve_file(dir: &Path, pause: Pause<'_>) -> io::Result<File> {
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(refused());
    }
    let path = dir.join("f");
    let entry = fs::symlink_metadata(&path)?;
    let inside = fs::canonicalize(&path)?.starts_with(fs::canonicalize(dir)?);
    if !entry.is_file() || entry.nlink() != 1 || !inside {
        return Err(refused());
    }
    pause();
    File::open(&path)
}

fn clear(dir: &Path, pause: Pause<'_>) -> io::Result<()> {
    let real = approve(dir)?;
    pause();
    remove_by_path(&real, pause)
}

fn harden(dir: &Path, pause: Pause<'_>) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o770))?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let entry = fs::symlink_metadata(&path)?;
        if entry.is_symlink() || (entry.is_file() && entry.nlink() != 1) {
            continue;
        }
        pause();
        match entry.is_dir() {
            true => harden(&path, pause)?,
            false => fs::set_permissions(&path, Permissions::from_mode(0o660))?,
        }
    }
    Ok(())
}
