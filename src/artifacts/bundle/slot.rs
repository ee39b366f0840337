//! Where a bundle is noted and staged, and how it comes to its name.

use std::os::fd::AsFd as _;

use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::Bundle;
use crate::artifacts::state::Places;
use crate::entropy::hex;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafeName;
use crate::root::Root;

const HEADER: &str = "beneath-bundle 1";
/// How often a guest may change what stands at the name.
const TRIES: u32 = 8;

/// Where one bundle is noted and staged: a name of fixed length, whatever the bundle's.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) id: String,
}

/// What is noted of a bundle.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Version and hash of the manifest.
    pub(super) installed: Option<(String, String)>,
}

impl Slot {
    pub(super) fn of(name: &SafeName) -> Self {
        Self { id: format!("bundle-{}", hex(Sha256::digest(name.as_str()))) }
    }

    pub(super) fn lock(&self) -> String {
        format!("{}.lock", self.id)
    }

    pub(super) fn tree(&self) -> String {
        format!("{}/new", self.id)
    }

    pub(super) fn old(&self) -> String {
        format!("{}/old", self.id)
    }

    pub(super) fn read(&self, places: &Places) -> Result<Noted> {
        let text = match places.state.read_contained(&self.id, 1 << 16) {
            Ok(text) => String::from_utf8(text).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Noted::default()),
            Err(error) => return Err(error),
        };
        let mut noted = Noted::default();
        for line in text.strip_prefix(HEADER).unwrap_or_default().lines() {
            let mut fields = line.split('\t');
            if let (Some("installed"), Some(digest), Some(version)) =
                (fields.next(), fields.next(), fields.next())
            {
                noted.installed = Some((version.to_owned(), digest.to_owned()));
            }
        }
        Ok(noted)
    }

    pub(super) fn note_installed(&self, places: &Places, bundle: &Bundle) -> Result<()> {
        places.state.replace(&self.id, format!("{HEADER}\ninstalled\t{}\n", line(bundle)))
    }

    pub(super) fn note_installing(&self, places: &Places, bundle: &Bundle) -> Result<()> {
        let mut text = format!("{HEADER}\n");
        if let Some((version, digest)) = self.read(places)?.installed {
            text.push_str(&format!("installed\t{digest}\t{version}\n"));
        }
        text.push_str(&format!("installing\t{}\n", line(bundle)));
        places.state.replace(&self.id, text)
    }

    /// Puts the staged tree at `name` and takes what is there; tells whether anything was.
    pub(super) fn swap(&self, places: &Places, name: &SafeName) -> Result<bool> {
        let Places { workspace: area, staging, .. } = places;
        let home = staging.descend(&self.id)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match home.rename_to("new", area, name) {
                Ok(()) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries <= TRIES => {}
                Err(error) => return Err(error),
            }
            match renameat_with(home.as_fd(), "new", area.as_fd(), name.as_str(), RenameFlags::EXCHANGE) {
                Ok(()) => return Ok(true),
                // The guest has just taken it away.
                Err(Errno::NOENT) => {}
                // The file system cannot exchange names.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    swap_in_two_steps(&home, area, name)?;
                    return Ok(true);
                }
                Err(errno) => return Err(Error::from_errno("install", name, errno)),
            }
        }
    }
}

/// Takes what is at `name` to `old` and puts `new` there. If that does not work, what was there is put back.
fn swap_in_two_steps(home: &Root, area: &Root, name: &SafeName) -> Result<()> {
    area.rename_to(name, home, "old")?;
    home.rename_to("new", area, name).inspect_err(|_| {
        // Where this fails too, the guest has put something of its own there.
        let _ = home.rename_to("old", area, name);
    })
}

fn line(bundle: &Bundle) -> String {
    format!("{}\t{}", hex(bundle.manifest.digest()), bundle.version.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_that_fails_half_way_puts_the_old_version_back() {
        let dir = tempfile::tempdir().unwrap();
        let top = Root::open_ambient(dir.path(), crate::ambient_authority()).unwrap();
        for name in ["home", "area", "area/skill"] {
            top.ensure_dir(name).unwrap();
        }
        top.write_exclusive("area/skill/SKILL.md", "old").unwrap();
        let (home, area) = (top.descend("home").unwrap(), top.descend("area").unwrap());
        // There is no `new`, so the second rename fails.
        let error = swap_in_two_steps(&home, &area, &SafeName::new("skill").unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(top.read_contained("area/skill/SKILL.md", 9).unwrap(), b"old");
    }
}
