//! What is installed in an area: reading it, listing it, and removing it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::install::Bundles;
use super::slot::{Slot, ids, remove_due};
use crate::artifacts::disk::blocking;
use crate::artifacts::state::{Places, lock_named};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafeName;
use crate::root::{DirectoryFlock, Root};
use crate::session::{Listing, Swept};

/// How often a version may be replaced while it is opened.
const TRIES: u32 = 64;

/// A version that is being read.
///
/// Its files are those of one version for as long as this is held: a version that replaces it does not change them, and they
/// are removed only afterwards, or after a day.
#[derive(Debug)]
pub struct OpenBundle {
    version: Option<String>,
    root: Root,
    _lock: DirectoryFlock,
}

impl OpenBundle {
    /// The version; none if a guest has put something else in its place.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }
}

/// A bundle that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct InstalledBundle {
    /// The name of its directory in the area.
    pub name: SafeName,
    /// Its version.
    pub version: String,
}

impl Bundles {
    /// Opens what is installed under `name`, so that all that is read through it is of one version.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is nothing, [`ErrorKind::Symlink`] or [`ErrorKind::NotDirectory`] if a guest has put something
    /// else there, [`ErrorKind::Busy`] if it is replaced without pause.
    ///
    /// # Races
    /// An installation at the same time neither changes nor removes what is open.
    pub async fn open(&self, name: &SafeName) -> Result<OpenBundle> {
        let (places, slot) = (Arc::clone(&self.places), Slot::of(name));
        blocking("open", move || open(&places, &slot)).await
    }

    /// The bundles that are installed, by name. One whose note is damaged is refused.
    ///
    /// # Errors
    /// Whatever keeps the host from its own state.
    pub async fn list(&self) -> Result<Listing<InstalledBundle>> {
        let places = Arc::clone(&self.places);
        blocking("list", move || {
            let mut listing = Listing::default();
            for id in ids(&places.state)? {
                match installed(&places, &id) {
                    Ok(found) => listing.entries.extend(found),
                    Err(error) => listing.refused.add(id, error),
                }
            }
            listing.total = listing.entries.len() as u64 + listing.refused.total;
            listing.entries.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(listing)
        })
        .await
    }

    /// Removes every bundle that is installed here and not among `names`. What was never installed by this area stays.
    ///
    /// # Errors
    /// Whatever keeps the host from its own state. What keeps one bundle from being removed is in the report.
    pub async fn retain(&self, names: impl IntoIterator<Item = SafeName>) -> Result<Swept> {
        let names: BTreeSet<SafeName> = names.into_iter().collect();
        let listed = self.list().await?;
        let mut swept = Swept { left: listed.refused, ..Swept::default() };
        for InstalledBundle { name, .. } in listed.entries {
            if names.contains(&name) {
                swept.kept += 1;
                continue;
            }
            match self.remove(&name).await {
                Ok(_) => swept.removed += 1,
                Err(error) => swept.left.add(name.as_str(), error),
            }
        }
        Ok(swept)
    }

    /// Removes what is installed under `name`, whatever it is by now; returns whether anything was there.
    ///
    /// # Errors
    /// Whatever keeps the host from moving it out of the area.
    ///
    /// # Races
    /// It is moved out of the guest's reach in one step. Whoever reads it can go on for the [grace](Self::with_grace).
    pub async fn remove(&self, name: &SafeName) -> Result<bool> {
        let slot = Slot::of(name);
        let lock = lock_named(&self.places.state, slot.lock()).await?;
        let (places, grace) = (Arc::clone(&self.places), self.grace);
        blocking("remove", move || {
            let _ = slot.settle(&places, grace)?;
            let was_there = slot.take(&places)?;
            // What is left of older versions is reported by the next sweep; the bundle itself is gone.
            let _ = remove_due(&places, &slot.id, grace);
            drop(lock);
            Ok(was_there)
        })
        .await
    }

    /// Removes the versions that were replaced or removed more than `older_than` ago and that nobody has [open](Self::open), and what
    /// interrupted installations have left.
    ///
    /// # Errors
    /// Whatever keeps the host from its own state. What keeps one version from being removed is in the report.
    pub async fn sweep(&self, older_than: Duration) -> Result<Swept> {
        let (places, mut swept) = (Arc::clone(&self.places), Swept::default());
        let ids = blocking("sweep", move || ids(&places.staging)).await?;
        for id in ids {
            let (places, subject) = (Arc::clone(&self.places), id.clone());
            let lock = match lock_named(&places.state, format!("{id}.lock")).await {
                Ok(lock) => lock,
                Err(error) => {
                    swept.left.add(id, error);
                    continue;
                }
            };
            let found = blocking("sweep", move || {
                let found = match Slot::noted_at(&places, &id)? {
                    Some(slot) => slot.settle(&places, older_than),
                    // Nothing is installed under that name any more.
                    None => remove_due(&places, &id, older_than),
                };
                drop(lock);
                found
            });
            match found.await {
                Ok(found) => {
                    swept.removed += found.removed;
                    swept.kept += found.kept;
                    swept.left.absorb(found.left);
                }
                Err(error) => swept.left.add(subject, error),
            }
        }
        Ok(swept)
    }
}

fn installed(places: &Places, id: &str) -> Result<Option<InstalledBundle>> {
    let Some(slot) = Slot::noted_at(places, id)? else { return Ok(None) };
    let installed = slot.read(places)?.installed;
    Ok(installed.map(|installed| InstalledBundle { name: slot.name().clone(), version: installed.version }))
}

fn open(places: &Places, slot: &Slot) -> Result<OpenBundle> {
    const OPERATION: &str = "open";
    let name = slot.name();
    for _ in 0..TRIES {
        let root = places.workspace.descend(name)?;
        let lock = match DirectoryFlock::try_take(&root, FlockOperation::NonBlockingLockShared) {
            // Replaced, and about to be removed.
            Err(Errno::WOULDBLOCK) => continue,
            lock => lock.map_err(|errno| Error::from_errno(OPERATION, name, errno))?,
        };
        // The note has every version that is at the name, and may forget one that no longer is.
        let version = slot.read(places)?.version_of(&root)?;
        // One that was replaced before the lock was taken may be removed already.
        if lock.is_at(&places.workspace, name.as_ref()).is_ok_and(|is_it| is_it) {
            return Ok(OpenBundle { version, root, _lock: lock });
        }
    }
    Err(Error::new(OPERATION, name, ErrorKind::Busy).with_detail("is replaced without pause"))
}
