//! The bundles of an area, and how a version is installed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use sha2::{Digest as _, Sha256};

use super::manifest::{Bundle, Manifest};
use super::slot::{Slot, remove_due};
use crate::artifacts::client::Client;
use crate::artifacts::disk::blocking;
use crate::artifacts::key::Prefix;
use crate::artifacts::progress::{Event, Step};
use crate::artifacts::pull::{Content, Fetcher, Target};
use crate::artifacts::state::{Places, Planned, Version, lock_named};
use crate::artifacts::store::{Attributes, Kind, Retry, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SafeName, SafePath};
use crate::report::Leftovers;
use crate::root::{Flock, NewFile, WriteOptions};
use crate::tree::{Digest, ObjectLimits};

/// Largest manifest read.
const MANIFEST_MAX: usize = 16 << 20;
/// How long a version stays after it was replaced.
const GRACE: Duration = Duration::from_secs(60);

/// What an installation did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "something of the old version may be left"]
#[non_exhaustive]
pub struct Installed {
    /// What has changed. The version is in place, complete.
    pub change: Change,
    /// What of older versions was due and could not be removed from staging, by its path there. The next call tries again.
    pub left: Leftovers,
}

/// What an installation has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Change {
    /// The version is in place; nothing was there before.
    New,
    /// The version is in place of what was there before.
    Replaced {
        /// The version that was installed before, if it was installed and not something else.
        version: Option<String>,
    },
    /// The version was in place, complete and unchanged.
    Unchanged,
}

impl Installed {
    /// Whether nothing of older versions is left that was due. The new one is in place in any case.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// What could not be removed, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}

/// The bundles of an area. Cheap to clone.
///
/// The objects of a version are at `<prefix><name>/<version>/…`, its manifest at `<prefix><name>/<version>.sha256`.
///
/// ```
/// use std::sync::Arc;
/// use beneath::artifacts::{Bundles, Change, Places, Prefix, Source};
/// use beneath::{Root, SafePath, ambient_authority, safe_name};
/// use object_store::{ObjectStoreExt, memory::InMemory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(InMemory::new());
/// let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
/// store.put(&"skills/pdf/2/SKILL.md".into(), "hello".into()).await?;
/// store.put(&"skills/pdf/2.sha256".into(), format!("{hash}  SKILL.md\n").into()).await?;
///
/// # let home = tempfile::tempdir()?;
/// # for name in ["area", "staging", "state"] { std::fs::create_dir(home.path().join(name))?; }
/// # let open = |name| Root::open_ambient(home.path().join(name), ambient_authority());
/// # let places = Places { workspace: open("area")?, staging: open("staging")?, state: open("state")? };
/// let bundles = Bundles::new(Source::memory(store), Prefix::at(&SafePath::new("skills")?), places)?;
/// let bundle = bundles.bundle(&safe_name("pdf")?, &safe_name("2")?).await?;
/// assert_eq!(bundles.install_if_changed(&bundle).await?.change, Change::New);
/// assert_eq!(bundles.install_if_changed(&bundle).await?.change, Change::Unchanged);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bundles {
    pub(super) client: Client,
    pub(super) places: Arc<Places>,
    pub(super) grace: Duration,
}

impl Bundles {
    /// Connects the objects under `prefix` with an area, which is the `workspace` of `places`.
    ///
    /// # Errors
    /// [`ErrorKind::CrossDevice`] if staging and the area are not on one mount.
    pub fn new(source: Source, prefix: Prefix, places: Places) -> Result<Self> {
        Ok(Self { client: Client::new(source, prefix), places: places.prepared()?, grace: GRACE })
    }

    /// Keeps a version that was replaced for `grace`, a minute by default, so that whoever reads it can go on: a guest that holds its
    /// directory, or a host that reads file by file. What is [open](Self::open) is kept for longer.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Takes in no more than `limits`.
    #[must_use]
    pub fn with_limits(mut self, limits: ObjectLimits) -> Self {
        self.client.limits = limits;
        self
    }

    /// Retries as `retry` says.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.client.retry = retry;
        self
    }

    /// Reports every event to `listener`, on the thread where it happens: it should be quick.
    #[must_use]
    pub fn with_progress(self, listener: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { client: self.client.with_progress(listener), ..self }
    }

    /// Reads the manifest of a version from the store; if the store has none, it is made of the objects that the store lists for the
    /// version, each of which is read for it.
    ///
    /// It is as trustworthy as the store. A caller who does not trust the store keeps the manifests elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is neither a manifest nor an object, [`ErrorKind::TooLarge`] for a manifest over 16 MiB or more
    /// than the limits, [`ErrorKind::TooMany`], [`ErrorKind::InvalidPath`] for a key that is no path where a manifest is made, those of
    /// [`Manifest::parse`] and of the store.
    pub async fn bundle(&self, name: &SafeName, version: &SafeName) -> Result<Bundle> {
        let path = GuestPath::new(format!("{}/{}.sha256", name.as_str(), version.as_str()))?;
        let key = self.client.prefix.key(&path)?;
        let read = |_| async {
            let store = self.client.source.backend();
            let mut body = store.get(&key, None).await?;
            let mut text = Vec::new();
            while let Some(chunk) = body.chunks.next().await {
                text.extend_from_slice(&chunk?);
                if text.len() > MANIFEST_MAX {
                    return Err(Error::new("read manifest", &path, ErrorKind::TooLarge));
                }
            }
            // The first lines of a manifest are a manifest, too.
            let size = match body.size {
                Some(size) => Some(size),
                None => store.head(&key).await?.map(|object| object.size),
            };
            match size == Some(text.len() as u64) {
                true => Ok(text),
                false => {
                    Err(Error::new("read manifest", &path, ErrorKind::Io).with_detail("body ends early"))
                }
            }
        };
        let limit = self.client.retry.deadline(MANIFEST_MAX as u64);
        let leave = self.client.source.leave().await;
        let text = self.client.retry.about(&self.client.progress, &path).within(limit).run(read).await;
        drop(leave);
        let text = match text {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let manifest = self.make_manifest(&home(name, version)?).await?.ok_or(error)?;
                return Ok(Bundle { name: name.clone(), version: version.clone(), manifest });
            }
            text => text?,
        };
        let text = String::from_utf8(text).map_err(|_| {
            Error::new("read manifest", &path, ErrorKind::Unsupported).with_detail("manifest is not UTF-8")
        })?;
        Ok(Bundle { name: name.clone(), version: version.clone(), manifest: Manifest::parse(&text)? })
    }

    /// The version that was last installed under `name`, if its installation was complete.
    ///
    /// # Errors
    /// Whatever keeps the host from its own state.
    pub async fn installed(&self, name: &SafeName) -> Result<Option<String>> {
        let (places, slot) = (Arc::clone(&self.places), Slot::of(name));
        blocking("read", move || Ok(slot.read(&places)?.installed.map(|installed| installed.version))).await
    }

    /// Installs `bundle` unless it is in place, complete and unchanged.
    ///
    /// What is there is read only up to the limits; what is larger is replaced.
    ///
    /// # Errors
    /// As [`install`](Self::install).
    pub async fn install_if_changed(&self, bundle: &Bundle) -> Result<Installed> {
        let slot = Slot::of(&bundle.name);
        let lock = lock_named(&self.places.state, slot.lock()).await?;
        let (places, wanted, held) = (Arc::clone(&self.places), bundle.clone(), slot.clone());
        let (limits, grace) = (self.client.limits, self.grace);
        let unchanged = blocking("read", move || {
            let swept = held.settle(&places, grace)?;
            let in_place = wanted.manifest.matches(&places.workspace, wanted.name.as_str(), &limits);
            if in_place {
                held.note_installed(&places, &wanted)?;
            }
            Ok(in_place.then_some(swept.left))
        });
        if let Some(left) = unchanged.await? {
            return Ok(Installed { change: Change::Unchanged, left });
        }
        self.replace(bundle, slot, lock).await
    }

    /// Fetches `bundle`, checks every file, and swaps it in.
    ///
    /// Until the swap the old version stays as it is. The next call completes one that was interrupted.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] with the file whose hash is wrong; the store's errors; [`ErrorKind::Busy`] if
    /// another call is at work or the guest keeps interfering; and whatever keeps the host from its directories. The
    /// old version then stays.
    ///
    /// # Races
    /// A reader of the area sees the old version or the new one, and one who has it [open](Self::open), or holds its directory for less
    /// than the [grace](Self::with_grace), sees it whole. On a file system that cannot exchange two names there is a moment without
    /// either.
    pub async fn install(&self, bundle: &Bundle) -> Result<Installed> {
        let slot = Slot::of(&bundle.name);
        let lock = lock_named(&self.places.state, slot.lock()).await?;
        self.replace(bundle, slot, lock).await
    }

    async fn replace(&self, bundle: &Bundle, slot: Slot, lock: Arc<Flock>) -> Result<Installed> {
        let (places, held) = (Arc::clone(&self.places), slot.clone());
        let grace = self.grace;
        blocking("write", move || {
            // What could not be removed is reported by the end of this call.
            let _ = held.settle(&places, grace)?;
            places.staging.ensure_dir(held.tree()).map(drop)
        })
        .await?;
        self.client.progress.report(&Event::Entered(Step::Fetching));
        self.fetch(bundle, &slot, &lock).await?;
        let (places, wanted, progress) =
            (Arc::clone(&self.places), bundle.clone(), self.client.progress.clone());
        blocking("publish", move || {
            progress.report(&Event::Entered(Step::Publishing));
            let before = slot.read(&places)?.installed.map(|installed| installed.version);
            let occupied = slot.swap(&places, &wanted)?;
            progress.report(&Event::Entered(Step::Complete));
            let change = if occupied { Change::Replaced { version: before } } else { Change::New };
            // The version is in place, so what keeps the host from its staging is no failure of the call.
            let left = match remove_due(&places, &slot.id, grace) {
                Ok(swept) => swept.left,
                Err(error) => Leftovers::one(&slot.id, error),
            };
            let installed = Installed { change, left };
            drop(lock);
            Ok(installed)
        })
        .await
    }

    async fn fetch(&self, bundle: &Bundle, slot: &Slot, lock: &Arc<Flock>) -> Result<()> {
        let home = home(&bundle.name, &bundle.version)?;
        let prefix = self.client.prefix.join(&home);
        if bundle.manifest.files.len() as u64 > self.client.limits.objects {
            return Err(Error::new("install", &home, ErrorKind::TooMany));
        }
        let objects = bundle.manifest.files.len() as u64;
        let bytes = self.listed_bytes(bundle, &prefix).await;
        self.client.progress.report(&Event::Planned { objects, bytes });
        let fetcher = &Fetcher::new(&self.client, prefix);
        // Owned, since a future that borrows from the stream's items cannot be sent to another thread.
        let files: Vec<(SafePath, Digest)> =
            bundle.manifest.files.iter().map(|(path, wanted)| (path.clone(), *wanted)).collect();
        let files = stream::iter(files).map(|(path, wanted)| async move {
            let leaf = Leaf {
                places: Arc::clone(&self.places),
                _lock: Arc::clone(lock),
                path: format!("{}/{}", slot.tree(), path.as_str()),
            };
            let path = GuestPath::from(path);
            let object = Planned { path: path.clone(), size: 0, version: Version::default(), mode: None };
            let arrived = fetcher.fetch(&object, leaf.clone()).await?;
            if arrived.attributes.kind != Kind::File {
                return Err(Error::new("install", &path, ErrorKind::NotRegular)
                    .with_detail("a bundle has files only"));
            }
            let found: Digest = match arrived.content {
                Content::Filed { digest, .. } => digest,
                Content::Held(bytes) => {
                    let path = path.clone();
                    blocking("write", move || {
                        leaf.write(&path, &bytes, &arrived.attributes)?;
                        Ok(Sha256::digest(&bytes).into())
                    })
                    .await?
                }
            };
            match found == wanted {
                true => Ok(()),
                false => Err(Error::new("install", &path, ErrorKind::Io)
                    .with_detail("content is not what the manifest says")),
            }
        });
        let mut files = std::pin::pin!(files.buffer_unordered(self.client.concurrency));
        while let Some(result) = files.next().await {
            result?;
        }
        Ok(())
    }

    /// The bytes of a version as the store lists them; 0 if it does not. Only for the listener.
    async fn listed_bytes(&self, bundle: &Bundle, home: &Prefix) -> u64 {
        let limit = usize::try_from(self.client.limits.objects).unwrap_or(usize::MAX);
        let retry = self.client.retry;
        let listed = self.client.source.backend().list(home.as_str(), retry);
        let mut listed = std::pin::pin!(listed.take(limit));
        let mut bytes = 0_u64;
        while let Ok(Some(Ok(object))) = tokio::time::timeout(retry.whole(), listed.next()).await {
            let path = object.key.strip_prefix(home.as_str().as_bytes());
            let path = path.and_then(|path| SafePath::new(std::str::from_utf8(path).ok()?).ok());
            if path.is_some_and(|path| bundle.manifest.files.contains_key(&path)) {
                bytes = bytes.saturating_add(object.size);
            }
        }
        bytes
    }
}

/// Where the objects of a version are, below the prefix.
pub(super) fn home(name: &SafeName, version: &SafeName) -> Result<SafePath> {
    SafePath::new(&format!("{}/{}", name.as_str(), version.as_str()))
}

/// A file of a version that is being staged.
#[derive(Clone, Debug)]
struct Leaf {
    places: Arc<Places>,
    /// Held as long as anything may still be written.
    _lock: Arc<Flock>,
    path: String,
}

impl Target for Leaf {
    // The host's policy decides who may read it; whoever may, may execute it too, if it is a program.
    fn open(&self, attributes: &Attributes) -> Result<NewFile> {
        let staging = &self.places.staging;
        if let Some((parent, _)) = self.path.rsplit_once('/') {
            staging.ensure_dir(parent)?;
        }
        let mode = staging.policy().access().file_mode();
        let mode = match attributes.mode {
            Some(said) if said & 0o100 != 0 => mode | (mode >> 2) & 0o111,
            _ => mode,
        };
        staging.new_file_with(&self.path, WriteOptions::default().with_mode(mode & 0o777))
    }

    fn commit(&self, file: NewFile) -> Result<()> {
        file.commit_replace()
    }
}
