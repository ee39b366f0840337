//! Where a bundle is noted and staged, how it gets its name, and how long the version before it stays.
//!
//! Problem: the guest may replace what is at the name between a look and a rename. Whoever reads the old version while it
//! is replaced loses files while it reads, or reads some of them from the new one.
//!
//! Defence: the kernel exchanges the two names in one step, whatever is there by then, and the old entry is out of the
//! guest's reach afterwards. It is not removed before its time: a reader who holds its directory finds all of it there, and
//! nothing of the new one.
//!
//! | killed | left | the next call |
//! |---|---|---|
//! | before the swap is noted | a part of the new version | removes it |
//! | after that, before the swap | the new version, staged | puts it in place if the name is free, and removes it otherwise |
//! | after the swap | the old version, in place of the staged one | notes the new one as installed, sets the old one aside |
//! | after the old one was set aside | the old version, with the time | removes it when it is due |
//!
//! What remains: on a file system without exchange there is a moment in which the name is free. A reader by path, who looks the
//! name up for each file, still meets two versions.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, RenameFlags, renameat_with};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::manifest::Bundle;
use crate::artifacts::disk::{discard, forget};
use crate::artifacts::state::Places;
use crate::entropy::{hex, unguessable};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafeName;
use crate::root::{DirectoryFlock, FileType, Root};
use crate::session::Swept;

/// Before the hash of a name.
const PREFIX: &str = "bundle-";
const HEADER: &str = "beneath-bundle 2\n";
/// How often a guest may change what is at the name before the call gives up.
const TRIES: u32 = 8;
/// What is staged, and after the exchange what was replaced.
const NEW: &str = "new";
/// Before the time at which a version was set aside.
const OLD: &str = "old-";
/// The longest that a reader can keep a version. A guest that can read the area can hold one as well.
const HELD: Duration = Duration::from_secs(24 * 60 * 60);

/// Where one bundle is noted and staged: a name of fixed length, whatever the bundle's.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) id: String,
    name: SafeName,
}

/// What is noted of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) version: String,
    /// Device and inode of its directory.
    dir: (u64, u64),
}

/// What is noted of a bundle.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) installed: Option<Version>,
    /// A version that was about to be put in place.
    swapping: Option<Version>,
}

impl Noted {
    /// The version whose directory it is.
    pub(super) fn version_of(self, dir: &Root) -> Result<Option<String>> {
        let dir = identity(dir)?;
        let known = [self.swapping, self.installed].into_iter().flatten();
        Ok(known.into_iter().find(|version| version.dir == dir).map(|version| version.version))
    }
}

impl Slot {
    pub(super) fn of(name: &SafeName) -> Self {
        Self { id: format!("{PREFIX}{}", hex(Sha256::digest(name.as_str()))), name: name.clone() }
    }

    /// The slot whose note is at `id`; none if there is no note.
    pub(super) fn noted_at(places: &Places, id: &str) -> Result<Option<Self>> {
        let text = read_text(places, id)?;
        let name = text.lines().find_map(|line| line.strip_prefix("name\t"));
        let slot = name.and_then(|name| SafeName::new(name).ok()).map(|name| Self::of(&name));
        match slot {
            _ if text.is_empty() => Ok(None),
            Some(slot) if slot.id == id => Ok(Some(slot)),
            _ => Err(damaged(id)),
        }
    }

    pub(super) fn name(&self) -> &SafeName {
        &self.name
    }

    pub(super) fn lock(&self) -> String {
        format!("{}.lock", self.id)
    }

    pub(super) fn tree(&self) -> String {
        format!("{}/{NEW}", self.id)
    }

    pub(super) fn read(&self, places: &Places) -> Result<Noted> {
        let mut noted = Noted::default();
        for line in read_text(places, &self.id)?.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let place = match fields.first() {
                Some(&"installed") => &mut noted.installed,
                Some(&"swapping") => &mut noted.swapping,
                _ => continue,
            };
            let &[_, device, inode, version] = fields.as_slice() else { return Err(damaged(&self.id)) };
            let (Ok(device), Ok(inode)) = (device.parse(), inode.parse()) else {
                return Err(damaged(&self.id));
            };
            *place = Some(Version { version: version.to_owned(), dir: (device, inode) });
        }
        Ok(noted)
    }

    fn note(&self, places: &Places, noted: &Noted) -> Result<()> {
        let mut text = format!("{HEADER}name\t{}\n", self.name.as_str());
        for (state, version) in [("installed", &noted.installed), ("swapping", &noted.swapping)] {
            if let Some(Version { version, dir: (device, inode) }) = version {
                text.push_str(&format!("{state}\t{device}\t{inode}\t{version}\n"));
            }
        }
        places.state.replace(&self.id, text)
    }

    /// Notes that `bundle` is what is at the name.
    pub(super) fn note_installed(&self, places: &Places, bundle: &Bundle) -> Result<()> {
        let dir = identity(&places.workspace.descend(&self.name)?)?;
        let installed = Some(Version { version: bundle.version.to_string(), dir });
        self.note(places, &Noted { installed, swapping: None })
    }

    /// What is noted. A power cut may have left a part of a note: then nothing is, and what is installed is judged by its hashes.
    fn read_or_forget(&self, places: &Places) -> Result<Noted> {
        match self.read(places) {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                // It may be what was replaced, which somebody may read.
                self.set_aside(places, &places.staging, self.tree())?;
                forget(&places.state, &self.id)?;
                Ok(Noted::default())
            }
            noted => noted,
        }
    }

    /// Completes what an interrupted call has left, and removes the versions that are due. Nobody else is at work here.
    pub(super) fn settle(&self, places: &Places, grace: Duration) -> Result<Swept> {
        let Noted { installed, swapping } = self.read_or_forget(places)?;
        if let Some(swapping) = swapping {
            let is_it =
                |dir: Result<Root>| dir.and_then(|dir| identity(&dir)).is_ok_and(|dir| dir == swapping.dir);
            let mut swapped = is_it(places.workspace.descend(&self.name));
            match swapped {
                true => drop(self.set_aside(places, &places.staging, self.tree())?),
                false if is_it(places.staging.descend(self.tree())) => {
                    swapped = places.staging.rename_to(self.tree(), &places.workspace, &self.name).is_ok();
                }
                // The guest has taken the new one away. What it was exchanged for may still be read.
                false => drop(self.set_aside(places, &places.staging, self.tree())?),
            }
            // Before its directory goes: what is staged next may get the same inode, and must not be taken for whole.
            let installed = if swapped { Some(swapping) } else { installed };
            self.note(places, &Noted { installed, swapping: None })?;
        }
        discard(&places.staging, self.tree())?;
        remove_due(places, &self.id, grace)
    }

    /// Moves what was replaced to a name with the time, and returns that; none if there is nothing.
    fn set_aside(&self, places: &Places, from: &Root, name: impl AsRef<Path>) -> Result<Option<String>> {
        let random = unguessable().map_err(|errno| Error::from_errno("install", &self.name, errno))?;
        let old = format!("{}/{OLD}{}-{random}", self.id, now());
        places.staging.ensure_dir(&self.id)?;
        match from.rename_to(name, &places.staging, &old) {
            Ok(()) => Ok(Some(old)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes what is at the name away, and forgets it; whether anything was there.
    pub(super) fn take(&self, places: &Places) -> Result<bool> {
        let taken = self.set_aside(places, &places.workspace, &self.name)?;
        forget(&places.state, &self.id)?;
        Ok(taken.is_some())
    }

    /// Puts the staged tree at the name and sets aside what is there; whether anything was.
    pub(super) fn swap(&self, places: &Places, bundle: &Bundle) -> Result<bool> {
        let home = places.staging.descend(&self.id)?;
        let dir = identity(&home.descend(NEW)?)?;
        let swapping = Some(Version { version: bundle.version.to_string(), dir });
        let installed = self.read(places)?.installed;
        self.note(places, &Noted { installed, swapping: swapping.clone() })?;
        let occupied = self.exchange(places, &home)?;
        // Nothing is there if it could not be exchanged in one step.
        self.set_aside(places, &home, NEW)?;
        self.note(places, &Noted { installed: swapping, swapping: None })?;
        Ok(occupied)
    }

    fn exchange(&self, places: &Places, home: &Root) -> Result<bool> {
        let (area, name) = (&places.workspace, &self.name);
        let mut tries = 0;
        loop {
            tries += 1;
            match home.rename_to(NEW, area, name) {
                Ok(()) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries <= TRIES => {}
                Err(error) => return Err(error),
            }
            match renameat_with(home.as_fd(), NEW, area.as_fd(), name.as_str(), RenameFlags::EXCHANGE) {
                Ok(()) => return Ok(true),
                // The guest has just taken it away.
                Err(Errno::NOENT) => {}
                // The file system cannot exchange names.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    return self.swap_in_two_steps(places, home).map(|()| true);
                }
                Err(errno) => return Err(Error::from_errno("install", name, errno)),
            }
        }
    }

    /// If the second step does not work, what was there is put back.
    fn swap_in_two_steps(&self, places: &Places, home: &Root) -> Result<()> {
        let area = &places.workspace;
        let old = self.set_aside(places, area, &self.name)?;
        home.rename_to(NEW, area, &self.name).inspect_err(|_| {
            // Where this fails too, the guest has put something of its own there.
            let _ = old.map(|old| places.staging.rename_to(old, area, &self.name));
        })
    }
}

/// The bundles that have something in a directory of the host's own.
pub(super) fn ids(root: &Root) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for entry in root.list(".")? {
        let entry = entry?;
        let id = entry.path().to_str().filter(|name| name.starts_with(PREFIX) && !name.contains('.'));
        ids.extend(id.map(str::to_owned));
    }
    Ok(ids)
}

/// Removes the versions that were set aside more than `grace` ago and that nobody reads.
pub(super) fn remove_due(places: &Places, id: &str, grace: Duration) -> Result<Swept> {
    let mut swept = Swept::default();
    let entries = match places.staging.list(id) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(swept),
        entries => entries?,
    };
    let mut empty = true;
    for entry in entries {
        let entry = entry?;
        let Some(aside) = entry.path().to_str().and_then(|name| name.strip_prefix(OLD)) else {
            // What is being staged.
            empty = false;
            continue;
        };
        let age = age(aside);
        let path = Path::new(id).join(entry.path());
        if age < grace || (age < HELD && is_held(places, &path)?) {
            (empty, swept.kept) = (false, swept.kept + 1);
            continue;
        }
        let gone = match entry.metadata().file_type() {
            FileType::Directory => discard(&places.staging, &path),
            // What a guest had put at the name.
            _ => places.staging.remove_file(&path),
        };
        match gone {
            Ok(()) => swept.removed += 1,
            Err(error) => {
                empty = false;
                swept.left.add(path, error);
            }
        }
    }
    if empty {
        discard(&places.staging, id)?;
    }
    Ok(swept)
}

fn identity(dir: &Root) -> Result<(u64, u64)> {
    dir.metadata(".").map(|found| (found.dev(), found.ino()))
}

fn read_text(places: &Places, id: &str) -> Result<String> {
    match places.state.read_contained(id, 1 << 16) {
        Ok(text) => {
            let text = String::from_utf8(text).map_err(|_| damaged(id))?;
            text.strip_prefix(HEADER).map(str::to_owned).ok_or_else(|| damaged(id))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn damaged(id: &str) -> Error {
    Error::new("read note", id, ErrorKind::InvalidData).with_detail("is damaged or of another version")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How long ago `aside`, a time and something random, was. The clock may have been set back since; a time that is further ahead than
/// that is of a clock that was wrong: old.
fn age(aside: &str) -> Duration {
    let at = aside.split('-').next().and_then(|seconds| seconds.parse::<u64>().ok());
    let Some(at) = at.filter(|at| *at < now().saturating_add(HELD.as_secs())) else { return Duration::MAX };
    Duration::from_secs(now().saturating_sub(at))
}

/// Whether somebody reads it. Whoever opens it while the answer is no finds that it is not at its name.
fn is_held(places: &Places, path: &Path) -> Result<bool> {
    let dir = match places.staging.descend(path) {
        Ok(dir) => dir,
        // It is no directory.
        Err(_) => return Ok(false),
    };
    match DirectoryFlock::try_take(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(_) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        // Its mode lets nobody in, or there are no locks here.
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle with its slot, and something installed.
    fn furnished() -> (tempfile::TempDir, Root, Slot, Places) {
        let dir = tempfile::tempdir().unwrap();
        let top = Root::open_ambient(dir.path(), crate::ambient_authority()).unwrap();
        let slot = Slot::of(&SafeName::new("skill").unwrap());
        for name in ["area/skill", "state", &format!("staging/{}", slot.id)] {
            top.ensure_dir(name).unwrap();
        }
        top.write_exclusive("area/skill/SKILL.md", "old").unwrap();
        let open = |name| top.descend(name).unwrap();
        let places = Places { workspace: open("area"), staging: open("staging"), state: open("state") };
        (dir, top, slot, places)
    }

    /// The host dies between the note and the swap, the next one while it stages again, and the guest takes the old version away.
    #[test]
    fn what_is_staged_after_an_abandoned_swap_is_not_taken_for_it() {
        let (_dir, _, slot, places) = furnished();
        places.staging.ensure_dir(slot.tree()).unwrap();
        let dir = identity(&places.staging.descend(slot.tree()).unwrap()).unwrap();
        let swapping = Some(Version { version: "2".into(), dir });
        slot.note(&places, &Noted { installed: None, swapping }).unwrap();
        assert!(slot.settle(&places, Duration::ZERO).unwrap().is_complete());
        assert!(!places.staging.try_exists(slot.tree()).unwrap(), "the name was taken, so it is abandoned");
        places.staging.ensure_dir(slot.tree()).unwrap();
        // A file system may give it the inode of the one before.
        assert_eq!(slot.read(&places).unwrap().swapping, None);
        assert!(places.workspace.remove_tree_contained("skill").unwrap().is_complete());
        assert!(slot.settle(&places, Duration::ZERO).unwrap().is_complete());
        assert!(!places.workspace.try_exists("skill").unwrap(), "a part of a version was put in place");
    }

    /// The host dies right after the exchange, and the guest takes the new version away.
    #[test]
    fn what_was_exchanged_is_set_aside_wherever_the_new_version_is() {
        let (_dir, top, slot, places) = furnished();
        places.staging.ensure_dir(slot.tree()).unwrap();
        let dir = identity(&places.staging.descend(slot.tree()).unwrap()).unwrap();
        let swapping = Some(Version { version: "2".into(), dir });
        slot.note(&places, &Noted { installed: None, swapping }).unwrap();
        assert!(slot.exchange(&places, &places.staging.descend(&slot.id).unwrap()).unwrap());
        top.rename("area/skill", "area/away").unwrap();
        let swept = slot.settle(&places, HELD).unwrap();
        assert_eq!((swept.removed, swept.kept), (0, 1));
        let aside = places.staging.list(&slot.id).unwrap().next().unwrap().unwrap();
        let file = Path::new(&slot.id).join(aside.path()).join("SKILL.md");
        assert_eq!(places.staging.read_contained(file, 9).unwrap(), b"old");
    }

    #[test]
    fn swap_that_fails_half_way_puts_the_old_version_back() {
        let (_dir, top, slot, places) = furnished();
        // There is no `new`, so the second rename fails.
        let home = places.staging.descend(&slot.id).unwrap();
        assert_eq!(slot.swap_in_two_steps(&places, &home).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(top.read_contained("area/skill/SKILL.md", 9).unwrap(), b"old");
    }

    #[test]
    fn a_time_from_the_far_future_is_old() {
        assert_eq!(age("x"), Duration::MAX);
        assert_eq!(age(&format!("{}-x", now() + 2 * HELD.as_secs())), Duration::MAX);
        assert_eq!(age(&format!("{}-x", u64::MAX)), Duration::MAX);
        assert!(age(&format!("{}-x", now())) < Duration::from_secs(9));
    }
}
