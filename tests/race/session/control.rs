//! The same calls by path, as the studied systems make them: each checks what it can see, then uses the path.
//!
//! Links of the guest's lead nowhere but to the canary, so neither does anything that is done here.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::{Call, Exchange};
use crate::canary::Canary;
use crate::controls::{Pace, parent, read_by_path, read_counted, refused, remove_by_path};
use crate::victims::Outcome;

pub(crate) fn run(
    call: Call,
    exchange: Exchange,
    target: &Path,
    pace: Pace,
    canary: &Canary,
) -> io::Result<Outcome> {
    match call {
        Call::Deliver => deliver(target, pace)?,
        Call::Clear => clear(target, pace)?,
        // It knows of no other place.
        Call::InPlace if exchange == Exchange::DirLink => clear(target, pace)?,
        Call::Collect | Call::InPlace => {
            let outcome = match exchange {
                Exchange::HardLinkRace => read_counted(&target.join("f"), canary)?,
                _ => collect(target, pace, canary)?,
            };
            if matches!(outcome, Outcome::Ok) && !exchange.keeps_message() {
                clear(target, pace)?;
            }
            return Ok(outcome);
        }
        Call::Remove => remove_by_path(target, pace)?,
        Call::Harden => {
            if fs::symlink_metadata(target)?.is_symlink() {
                return Err(refused());
            }
            pace.hand_over();
            harden(target, pace)?;
        }
    }
    Ok(Outcome::Ok)
}

/// Looks at the message's directory, and asks both where they are.
fn approve(dir: &Path) -> io::Result<std::path::PathBuf> {
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(refused());
    }
    let real = fs::canonicalize(dir)?;
    match real.starts_with(fs::canonicalize(parent(dir))?) {
        true => Ok(real),
        false => Err(refused()),
    }
}

fn deliver(dir: &Path, pace: Pace) -> io::Result<()> {
    approve(dir)?;
    pace.hand_over();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(dir.join("w"))?;
    file.write_all(b"delivered by path")
}

fn collect(dir: &Path, pace: Pace, canary: &Canary) -> io::Result<Outcome> {
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(refused());
    }
    let path = dir.join("f");
    let entry = fs::symlink_metadata(&path)?;
    let inside = fs::canonicalize(&path)?.starts_with(fs::canonicalize(dir)?);
    if !entry.is_file() || entry.nlink() != 1 || !inside {
        return Err(refused());
    }
    pace.hand_over();
    read_by_path(&path, canary)
}

fn clear(dir: &Path, pace: Pace) -> io::Result<()> {
    let real = approve(dir)?;
    pace.hand_over();
    remove_by_path(&real, pace)
}

fn harden(dir: &Path, pace: Pace) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o770))?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let entry = fs::symlink_metadata(&path)?;
        if entry.is_symlink() || (entry.is_file() && entry.nlink() != 1) {
            continue;
        }
        pace.hand_over();
        match entry.is_dir() {
            true => harden(&path, pace)?,
            false => fs::set_permissions(&path, Permissions::from_mode(0o660))?,
        }
    }
    Ok(())
}
