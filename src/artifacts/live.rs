//! Single objects of a session that is running, and what somebody decides about a conflict.
//!
//! Problem: the guest runs while a file is written for it and while that file is uploaded.
//!
//! Defence: one object comes by the same merge as all of them, with every other path unknown. What is uploaded is what the
//! caller gave, not what is at the path by then.
//!
//! What remains: the file is the guest's as soon as it is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::Artifacts;
use super::disk::blocking;
use super::local::Local;
use super::options::SyncOptions;
use super::over::write_over;
use super::push::{Before, Content, Ready, Room, Seen, Uploaded, Uploader, identified, leaf};
use super::remote::{Object, Remote};
use super::report::SyncReport;
use super::state::{Base, Desk, Intents, Log, Places, Uploads, Version};
use super::store::Attributes;
use super::sync::Turn;
use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{Rename, Root};
use crate::tree::{Digest, Guard, Leaf, TRIES, Whose, beside, displaced_name, is_reserved, whose};

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
    /// That of the workspace has the name afterwards, whichever has it now. The other goes to the trash.
    Ours,
    /// That of the store has the name afterwards, whichever has it now. The other goes to the trash.
    Theirs,
    /// Both stay as they are, and it is no conflict any more.
    Both,
}

impl Artifacts {
    /// Brings one object into the workspace of a session that may be running; none if there is no such object.
    ///
    /// Missing directories are made. A file at the path is treated as by [`pull`](Self::pull). Where a directory or a link is at the
    /// path, or something else than a directory above it, nothing comes and the report says so. The report is of this path alone: what
    /// else the store has does not make it incomplete.
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
        let Some(object) = self.client.head(path, &key).await? else { return Ok(None) };
        self.admit("materialise", path, object.size)?;
        let desk = Desk::open(&self.session, &self.client.source).await?;
        let (held, artifacts, wanted) = (Arc::clone(&desk), self.clone(), path.clone());
        let (base, local, intents) = blocking("materialise", move || {
            let places = &held.places;
            let (base, _) = artifacts.recover(&held)?;
            let local = Local::one(places, &wanted, artifacts.client.limits.file_bytes)?;
            let intents = Intents::open(&places.state, base.binding())?;
            Ok((base, local, intents))
        })
        .await?;
        let object = Object { size: object.size, version: Version::of(object.etag) };
        let objects = BTreeMap::from([(path.clone(), object)]);
        let remote = Remote { objects, cut: true, listed: 1, ..Remote::default() };
        let report = SyncReport { listed: 1, left: local.tree.left().clone(), ..SyncReport::default() };
        let (attributes, contents) = (self.client.source.keeps().attributes, BTreeMap::new());
        let turn = Turn { desk, base, local, remote, contents, intents, attributes, unsure: false, report };
        // It is asked for by name, and nothing is seen of the others.
        let Turn { desk, report, .. } = self.take_guarded(turn, options, Guard::Off).await?;
        Ok(Some(self.reported(desk, report).await))
    }

    /// Writes `bytes` to the workspace at `path`, in place of what is there, and then to the store.
    ///
    /// What the guest had there, and the store has not, is in the trash of the session for a day.
    ///
    /// A failed upload is in the report; the file stays, and the next call brings it to the store. It has also failed, as
    /// [`Busy`](ErrorKind::Busy), if another host has changed the object, or if another call on this session is at work for
    /// longer than ten seconds.
    ///
    /// The object goes in one request of any size; large files are better written to the workspace and mirrored.
    ///
    /// # Errors
    /// Those of [`Root::replace`](crate::Root::replace); [`CrossDevice`](ErrorKind::CrossDevice) if the host's directories are on
    /// another mount; [`InvalidPath`](ErrorKind::InvalidPath) under a reserved name; [`TooLarge`](ErrorKind::TooLarge) and
    /// [`TooMany`](ErrorKind::TooMany) over the limits.
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
        let desk = match Desk::open(&self.session, &self.client.source).await {
            Ok(desk) => Ok(desk),
            Err(error) if error.kind() == ErrorKind::Busy => Err(error),
            Err(error) => return Err(error),
        };
        let (wanted, content) = (path.clone(), bytes.clone());
        let (held, artifacts) = (desk.as_ref().ok().cloned(), self.clone());
        let known = blocking("put", move || {
            let places = match &held {
                Some(desk) => Arc::clone(&desk.places),
                None => Places::of(&artifacts.session)?.prepared()?,
            };
            let (workspace, host) = (&places.workspace, artifacts.session.host());
            let base = Base::read(&places.state, artifacts.binding(&places)?)?;
            if let Some(parent) = wanted.parent().filter(|parent| !parent.is_top()) {
                workspace.ensure_dir(&parent)?;
            }
            let known = base.get(&wanted).map(|known| &known.leaf);
            write_over(&places, &host.ensure_and_descend("trash")?.0, &wanted, &content, known)?;
            // It has the mode of what it replaces.
            let mode = workspace.metadata(&wanted).ok().map(|file| file.mode() & 0o777);
            if held.is_none() {
                return Ok(None);
            }
            let staying = base.iter().filter(|(path, _)| **path != wanted);
            let mut room =
                Room::beside(&artifacts.client.limits, staying.map(|(_, known)| known.leaf.size()));
            let digest: Digest = Sha256::digest(&content).into();
            let intents = Intents::open(&places.state, base.binding())?;
            let fits = room.take(&wanted, content.len() as u64);
            if fits.is_ok() {
                intents.note(&wanted, &digest)?;
            }
            Ok(Some((base, intents, (digest, mode), fits)))
        })
        .await?;
        let (desk, (mut base, mut intents, (digest, mode), fits)) = match (desk, known) {
            (Ok(desk), Some(known)) => (desk, known),
            (Err(busy), _) => return Ok(Put::failed(key, busy)),
            (Ok(_), None) => return Ok(Put::failed(key, Error::new("put", path, ErrorKind::Busy))),
        };
        if let Err(error) = fits {
            return Ok(Put::failed(key, error));
        }
        let room = Room::beside(&self.client.limits, std::iter::empty());
        let uploader =
            Uploader::new(&self.client, &desk.places, room, Uploads::default(), SystemTime::UNIX_EPOCH);
        let before = Before { known: base.get(path), ours: intents.of(path) };
        let mut attributes = identified(Attributes::default())?;
        (attributes.mode, attributes.sha256) = (mode, Some(digest));
        let leaf = leaf(size, digest, &attributes);
        let content = Content { path, leaf, digest, file: Seen::default(), attributes };
        let uploaded =
            match uploader.publish(&key, content, Ready::Whole(bytes), before).await {
                Ok(Uploaded::Put(known) | Uploaded::Same(known)) => {
                    let path = path.clone();
                    base.insert(path.clone(), known);
                    blocking("put", move || {
                        let state = &desk.places.state;
                        Log::forget(state, base.binding(), |record| record.path == path)?;
                        let was_whole = base.is_whole() && intents.is_empty();
                        base.write(state)?;
                        if was_whole {
                            base.vouch(state)?;
                        }
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
    /// If a mirror has found it, the other version is in the store alone, and is fetched first. What is not kept goes to the trash of
    /// the session. The next call brings the decision to the store.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if another call is at work, those of a rename, and those of [`materialise`](Self::materialise).
    ///
    /// # Races
    /// If the guest changes one of the two meanwhile, that version is kept or in the trash.
    pub async fn resolve(&self, path: &GuestPath, take: Take) -> Result<bool> {
        let ours = match self.settle(path, take).await? {
            Settled::Done => return Ok(true),
            Settled::Same => return Ok(false),
            Settled::Unknown(ours) => ours,
        };
        let options = SyncOptions::default();
        if self.materialise(path, &options).await?.is_none() {
            return Ok(false);
        }
        // The mirror has put ours there, too.
        if let Ok(second) = beside(path, Whose::Ours, &ours.tag(), 0) {
            let _ours = self.materialise(&second, &options).await;
        }
        Ok(matches!(self.settle(path, take).await?, Settled::Done))
    }

    /// Settles a conflict of which both versions are here.
    async fn settle(&self, path: &GuestPath, take: Take) -> Result<Settled> {
        let desk = Desk::open(&self.session, &self.client.source).await?;
        let (artifacts, path) = (self.clone(), path.clone());
        blocking("resolve", move || {
            let places = &desk.places;
            let (mut base, _) = artifacts.recover(&desk)?;
            let (workspace, max_bytes) = (&places.workspace, artifacts.client.limits.file_bytes);
            let Some(beside) = base.notes.conflicts.remove(&path) else {
                let ours = Leaf::at(workspace, path.as_path(), max_bytes).ok().flatten();
                let is_known = ours.as_ref() == base.get(&path).map(|known| &known.leaf);
                return Ok(ours.filter(|_| !is_known).map_or(Settled::Same, Settled::Unknown));
            };
            let second = whose(&path, &beside).unwrap_or(Whose::Theirs);
            let moves = match take {
                Take::Ours => second == Whose::Ours,
                Take::Theirs => second == Whose::Theirs,
                Take::Both => false,
            };
            let name = unguessable().map_err(|errno| Error::from_errno("resolve", &path, errno))?;
            let displaced = PathBuf::from(displaced_name(&name));
            desk.trash.ensure_dir(&displaced)?;
            let trash = |path: &GuestPath, as_what: &str| {
                match workspace.rename_to(path, &desk.trash, displaced.join(as_what)) {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    moved => moved,
                }
            };
            // What a mirror has put beside is what has the name here.
            if second == Whose::Theirs
                && let Ok(Some(ours)) = Leaf::at(workspace, path.as_path(), max_bytes)
            {
                for copy in names(&path, Whose::Ours, &ours) {
                    if matches!(Leaf::at(workspace, copy.as_path(), ours.size()), Ok(Some(leaf)) if leaf == ours) {
                        trash(&copy, "copy")?;
                    }
                }
            }
            // The call may have been cut off after the exchange, and then the name has the version that is kept.
            if moves && !has_moved(workspace, (&path, &beside), second, max_bytes) {
                match workspace.rename_with(&beside, workspace, &path, Rename::Exchange) {
                    Err(error) if error.kind() == ErrorKind::NotFound => workspace.rename(&beside, &path)?,
                    Err(error) if error.kind() == ErrorKind::Unsupported => {
                        trash(&path, "displaced")?;
                        workspace.rename(&beside, &path)?;
                    }
                    exchanged => exchanged?,
                }
            }
            if take != Take::Both {
                trash(&beside, "beside")?;
            }
            // Where nothing was displaced.
            let _ = desk.trash.remove_dir(&displaced);
            base.write(&places.state)?;
            Ok(Settled::Done)
        })
        .await
    }

    /// Whether a single object may be at `path`, with so many bytes.
    fn admit(&self, operation: &'static str, path: &GuestPath, size: u64) -> Result<()> {
        let refuse = |kind, detail| Err(Error::new(operation, path, kind).with_detail(detail));
        let limits = &self.client.limits;
        match () {
            () if is_reserved(path, &self.reserved) => refuse(ErrorKind::InvalidPath, "top name is reserved"),
            () if self.client.leaves_out(path, false) => {
                refuse(ErrorKind::InvalidPath, "is left out by the filter")
            }
            () if path.depth() > limits.depth => refuse(ErrorKind::TooMany, "too many levels"),
            () if size > limits.file_bytes => refuse(ErrorKind::TooLarge, "more bytes than the limit"),
            () => Ok(()),
        }
    }
}

/// Whether what has the name `path` is the version that `second` was the name of, which says so by its digits.
fn has_moved(
    workspace: &Root,
    (path, second): (&GuestPath, &GuestPath),
    whose: Whose,
    max_bytes: u64,
) -> bool {
    let Ok(Some(leaf)) = Leaf::at(workspace, path.as_path(), max_bytes) else { return false };
    names(path, whose, &leaf).any(|name| name == *second)
}

/// The names beside `path` that `leaf` gets.
fn names(path: &GuestPath, whose: Whose, leaf: &Leaf) -> impl Iterator<Item = GuestPath> {
    let tag = leaf.tag();
    (0..TRIES).filter_map(move |number| beside(path, whose, &tag, number).ok())
}

/// What became of a conflict.
enum Settled {
    Done,
    /// There is none: the workspace has what it had.
    Same,
    /// Nobody knows of one, and the workspace has this.
    Unknown(Leaf),
}
