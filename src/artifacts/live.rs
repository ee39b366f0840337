//! Single objects of a session that is running, and what somebody decides about a conflict.
//!
//! Problem: the guest runs while a file is written for it and while that file is uploaded.
//!
//! Defence: one object comes by the same merge as all of them, with every other path unknown. What is uploaded is what the
//! caller gave, not what is at the path by then.
//!
//! What remains: the file is the guest's as soon as it is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::Artifacts;
use super::disk::blocking;
use super::local::Local;
use super::options::SyncOptions;
use super::push::{Before, Content, Ready, Room, Seen, Uploaded, Uploader};
use super::remote::{Object, Remote};
use super::report::SyncReport;
use super::state::{Base, Desk, Intents, Uploads};
use super::sync::Turn;
use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::Rename;
use crate::tree::{Digest, is_reserved, recover_from};

/// What a [`put`](Artifacts::put) did. The file is in the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "the upload may have failed"]
#[non_exhaustive]
pub struct Put {
    /// The key of the object.
    pub key: String,
    /// Whether it is in the store, too.
    pub uploaded: Result<()>,
    /// Whether the store did not compare it in the same step, as [`SyncReport::unconditional`] counts it.
    pub unconditional: bool,
}

impl Put {
    fn failed(key: String, error: Error) -> Self {
        Self { key, uploaded: Err(error), unconditional: false }
    }

    /// Whether the object is in the store, too.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.uploaded.is_ok()
    }

    /// The key, if the object is not in the store, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.uploaded.as_ref().err().map(|error| (Path::new(&self.key), error)).into_iter()
    }
}

/// Which version of a file that both sides have changed is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The one that has the name. The one beside goes to the trash.
    Ours,
    /// The one beside gets the name. The other goes to the trash.
    Theirs,
    /// Both stay as they are, and it is no conflict any more.
    Both,
}

impl Artifacts {
    /// Brings one object into the workspace of a session that may be running; none if there is no such object.
    ///
    /// Missing directories are made. What is at the path is treated as by [`pull`](Self::pull).
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath) under a reserved name, [`TooLarge`](ErrorKind::TooLarge) and
    /// [`TooMany`](ErrorKind::TooMany) over the limits, and those of [`pull`](Self::pull).
    ///
    /// # Races
    /// As [`pull`](Self::pull).
    pub async fn materialise(&self, path: &GuestPath, options: &SyncOptions) -> Result<Option<SyncReport>> {
        self.admit("materialise", path, 0)?;
        let key = self.client.prefix.key(path)?;
        let head = self.client.retry.about(&self.client.progress, path).within(self.client.retry.silence());
        let Some(object) = head.run(|_| self.client.source.backend().head(&key)).await? else {
            return Ok(None);
        };
        self.admit("materialise", path, object.size)?;
        let desk = Desk::open(&self.session).await?;
        let (held, artifacts, wanted) = (Arc::clone(&desk), self.clone(), path.clone());
        let (base, local, intents) = blocking("materialise", move || {
            let places = &held.places;
            recover_from(&held.work, &held.trash, &places.workspace)?;
            let base = Base::read(&places.state, artifacts.binding(places)?)?;
            let local = Local::one(places, &wanted, artifacts.client.limits.file_bytes)?;
            let intents = Intents::open(&places.state, base.binding())?;
            Ok((base, local, intents))
        })
        .await?;
        let object = Object { size: object.size, etag: object.etag.map(String::into_boxed_str) };
        let objects = BTreeMap::from([(path.clone(), object)]);
        let remote = Remote { objects, cut: true, listed: 1, ..Remote::default() };
        let report = SyncReport { listed: 1, ..SyncReport::default() };
        let turn = Turn { desk, base, local, remote, contents: BTreeMap::new(), intents, report };
        self.take(turn, options).await.map(|turn| Some(turn.report))
    }

    /// Writes `bytes` to the workspace at `path`, in place of what is there, and then to the store.
    ///
    /// A failed upload is in the report; the file stays, and the next call brings it to the store. It has also failed, as
    /// [`Busy`](ErrorKind::Busy), if another host has changed the object, or if another call on this session is at work for
    /// longer than ten seconds.
    ///
    /// The object goes in one request of any size; large files are better written to the workspace and mirrored.
    ///
    /// # Errors
    /// Those of [`Root::replace`](crate::Root::replace); [`InvalidPath`](ErrorKind::InvalidPath) under a reserved name;
    /// [`TooLarge`](ErrorKind::TooLarge) and [`TooMany`](ErrorKind::TooMany) over the limits.
    ///
    /// # Races
    /// What is uploaded is `bytes`, whatever the guest does with the file.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, Prefix, Source, SyncOptions};
    /// # use beneath::{GuestPath, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(home.path(), ambient_authority())?, SessionsConfig::default());
    /// # let (session, _) = sessions.create(&SessionId::new("s1"))?;
    /// # let source = Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// # let artifacts = Artifacts::new(source, Prefix::session(&SessionId::new("s1")), &session);
    /// let path = GuestPath::new("out/report.txt")?;
    /// let put = artifacts.put(&path, "done").await?;
    /// assert!(put.is_complete());
    /// assert_eq!(put.key, "sessions/s1/out/report.txt");
    ///
    /// session.workspace().remove_file("out/report.txt")?;
    /// let restored = artifacts.restore().await?;
    /// assert_eq!(restored.placed, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put(&self, path: &GuestPath, bytes: impl Into<Bytes>) -> Result<Put> {
        let bytes = bytes.into();
        let size = bytes.len() as u64;
        self.admit("put", path, size)?;
        let key = self.client.prefix.key(path)?;
        let desk = match Desk::open(&self.session).await {
            Ok(desk) => Ok(desk),
            Err(error) if error.kind() == ErrorKind::Busy => Err(error),
            Err(error) => return Err(error),
        };
        let (workspace, wanted, content) = (self.session.workspace(), path.clone(), bytes.clone());
        let (held, artifacts) = (desk.as_ref().ok().cloned(), self.clone());
        let known = blocking("put", move || {
            let workspace = match &held {
                Some(desk) => desk.places.workspace.try_clone()?,
                None => workspace.open()?,
            };
            if let Some(parent) = wanted.parent().filter(|parent| !parent.is_top()) {
                workspace.ensure_dir(&parent)?;
            }
            workspace.replace(&wanted, &content)?;
            let Some(desk) = held else { return Ok(None) };
            let places = &desk.places;
            let base = Base::read(&places.state, artifacts.binding(places)?)?;
            let staying = base.iter().filter(|(path, _)| **path != wanted);
            let mut room =
                Room::beside(&artifacts.client.limits, staying.map(|(_, known)| known.leaf.size()));
            let digest: Digest = Sha256::digest(&content).into();
            let intents = Intents::open(&places.state, base.binding())?;
            let fits = room.take(&wanted, content.len() as u64);
            if fits.is_ok() {
                intents.note(&wanted, &digest)?;
            }
            Ok(Some((base, intents, digest, fits)))
        })
        .await?;
        let (desk, (mut base, mut intents, digest, fits)) = match (desk, known) {
            (Ok(desk), Some(known)) => (desk, known),
            (Err(busy), _) => return Ok(Put::failed(key, busy)),
            (Ok(_), None) => return Ok(Put::failed(key, Error::new("put", path, ErrorKind::Busy))),
        };
        if let Err(error) = fits {
            return Ok(Put::failed(key, error));
        }
        let room = Room::beside(&self.client.limits, std::iter::empty());
        let uploader = Uploader::new(&self.client, &desk.places, room, Uploads::default());
        let before = Before { known: base.get(path), ours: intents.of(path) };
        let content = Content { path, size, digest, file: Seen::default() };
        let uploaded =
            match uploader.publish(&key, content, Ready::Whole(bytes), before).await {
                Ok(Uploaded::Put(known) | Uploaded::Same(known)) => {
                    let path = path.clone();
                    base.insert(path.clone(), known);
                    blocking("put", move || {
                        base.write(&desk.places.state)?;
                        intents.keep(&desk.places.state, |other| *other != path)
                    })
                    .await?;
                    Ok(())
                }
                Ok(Uploaded::Conflict) => Err(Error::new("put", path, ErrorKind::Busy)
                    .with_detail("another host has changed the object")),
                Ok(Uploaded::Over(error)) | Err(error) => Err(error),
            };
        Ok(Put { key, uploaded, unconditional: uploader.unconditional() > 0 })
    }

    /// Settles a conflict that [`SyncReport::conflicts`] has reported at `path`; returns whether there was one.
    ///
    /// What is not kept goes to the trash of the session. The next call brings the decision to the store.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if another call is at work, and those of a rename.
    ///
    /// # Races
    /// If the guest changes one of the two meanwhile, that version is kept or in the trash.
    pub async fn resolve(&self, path: &GuestPath, take: Take) -> Result<bool> {
        let desk = Desk::open(&self.session).await?;
        let (artifacts, path) = (self.clone(), path.clone());
        blocking("resolve", move || {
            let places = &desk.places;
            let mut base = Base::read(&places.state, artifacts.binding(places)?)?;
            let Some(beside) = base.conflicts.remove(&path) else { return Ok(false) };
            let workspace = &places.workspace;
            if take == Take::Theirs {
                match workspace.rename_with(&beside, workspace, &path, Rename::Exchange) {
                    Err(error) if error.kind() == ErrorKind::NotFound => workspace.rename(&beside, &path)?,
                    exchanged => exchanged?,
                }
            }
            if take != Take::Both {
                let name = unguessable().map_err(|errno| Error::from_errno("resolve", &path, errno))?;
                match workspace.rename_to(&beside, &desk.trash, format!("merge-{name}")) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    moved => moved?,
                }
            }
            base.write(&places.state)?;
            Ok(true)
        })
        .await
    }

    /// Whether a single object may be at `path`, with so many bytes.
    fn admit(&self, operation: &'static str, path: &GuestPath, size: u64) -> Result<()> {
        let refuse = |kind, detail| Err(Error::new(operation, path, kind).with_detail(detail));
        let limits = &self.client.limits;
        match () {
            () if is_reserved(path, &self.reserved) => refuse(ErrorKind::InvalidPath, "top name is reserved"),
            () if path.depth() > limits.depth => refuse(ErrorKind::TooMany, "too many levels"),
            () if size > limits.file_bytes => refuse(ErrorKind::TooLarge, "more bytes than the limit"),
            () => Ok(()),
        }
    }
}
