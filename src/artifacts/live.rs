//! Single objects of a session that is running.
//!
//! Problem: the guest runs while a file is written for it and while that file is uploaded.
//!
//! Defence: a file has no name before it is complete, and what is uploaded is what the caller gave, not what is at the
//! path by then.
//!
//! What remains: the file is the guest's as soon as it is there.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::Artifacts;
use super::disk::blocking;
use super::mirror::{Room, Uploader};
use super::policy::OnLocal;
use super::pull::{Content, Fetcher, Restored, Target};
use super::state::{Base, Intent, Places, Planned, Record, Uploads, lock};
use super::store::Condition;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::{NewFile, WriteOptions};
use crate::tree::{Digest, is_reserved};

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
}

impl Put {
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

impl Artifacts {
    /// Brings one object into the workspace of a session that may be running; none if there is no such object.
    ///
    /// Missing directories are made. [`OnLocal::ColdStart`] means the same here as [`OnLocal::LocalWins`].
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] under [`OnLocal::Fail`]; [`ErrorKind::InvalidPath`] under a reserved name;
    /// [`ErrorKind::TooLarge`]; the store's errors, and those of [`Root::new_file`](crate::Root::new_file).
    ///
    /// # Races
    /// The guest sees the whole file or none. A link at the path is never followed: it counts as something that is
    /// there, and under [`OnLocal::RemoteWins`] the file takes its place.
    pub async fn materialise(&self, path: &SafePath, policy: OnLocal) -> Result<Option<Restored>> {
        if is_reserved(path, &self.reserved) {
            return Err(
                Error::new("materialise", path, ErrorKind::InvalidPath).with_detail("top name is reserved")
            );
        }
        let key = self.client.prefix.key(path)?;
        let head = self.client.retry.about(&self.client.progress, path).within(self.client.retry.silence());
        let Some(object) = head.run(|_| self.client.source.backend().head(&key)).await? else {
            return Ok(None);
        };
        let object =
            Planned { path: path.clone(), size: object.size, etag: object.etag.map(String::into_boxed_str) };
        let fetcher = Fetcher::new(&self.client, self.client.prefix.clone());
        let target = Leaf { places: self.open().await?, path: path.clone(), policy };
        let fetched = match fetcher.fetch(&object, target.clone()).await {
            Ok(arrived) => match arrived.content {
                Content::Filed { size, .. } => Ok(size),
                Content::Held(bytes) => target.write(bytes).await,
            },
            Err(error) => Err(error),
        };
        match fetched {
            Ok(bytes) => Ok(Some(Restored::Placed { path: object.path, bytes })),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && policy != OnLocal::Fail => {
                Ok(Some(Restored::Kept { path: object.path }))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes `bytes` to the workspace at `path`, in place of what is there, and then to the store.
    ///
    /// A failed upload is in the report; the file stays, and the next mirror brings it to the store. The same holds if
    /// another call on this session is at work for longer than ten seconds, which is reported as [`ErrorKind::Busy`].
    ///
    /// The object is overwritten, whoever has put it there, and goes in one request of any size; large files are better
    /// written to the workspace and mirrored.
    ///
    /// # Errors
    /// Those of [`Root::replace`](crate::Root::replace); [`ErrorKind::InvalidPath`] under a reserved name.
    ///
    /// # Races
    /// What is uploaded is `bytes`, whatever the guest does with the file.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, OnLocal, Prefix, Source};
    /// # use beneath::{Root, SafePath, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(home.path(), ambient_authority())?, SessionsConfig::default());
    /// # let (session, _) = sessions.create(&SessionId::new("s1"))?;
    /// # let source = Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// # let artifacts = Artifacts::new(source, Prefix::session(&SessionId::new("s1")), &session);
    /// let path = SafePath::new("out/report.txt")?;
    /// let put = artifacts.put(&path, "done").await?;
    /// assert!(put.is_complete());
    /// assert_eq!(put.key, "sessions/s1/out/report.txt");
    ///
    /// session.workspace().remove_file("out/report.txt")?;
    /// assert!(artifacts.materialise(&path, OnLocal::Fail).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put(&self, path: &SafePath, bytes: impl Into<Bytes>) -> Result<Put> {
        if is_reserved(path, &self.reserved) {
            return Err(Error::new("put", path, ErrorKind::InvalidPath).with_detail("top name is reserved"));
        }
        let bytes = bytes.into();
        let key = self.client.prefix.key(path)?;
        let places = self.open().await?;
        let (guard, busy) = match lock(&places.state).await {
            Ok(guard) => (Some(guard), None),
            Err(error) => (None, Some(error)),
        };
        let (held, wanted, content) = (Arc::clone(&places), path.clone(), bytes.clone());
        let guarded = guard.clone();
        let intent = blocking("put", move || {
            if let Some(parent) = wanted.parent() {
                held.workspace.ensure_dir(parent)?;
            }
            held.workspace.replace(&wanted, &content)?;
            let digest: Digest = Sha256::digest(&content).into();
            match guarded {
                Some(_) => Ok(Some((Intent::note(&held.state, &wanted, &digest)?, digest))),
                None => Ok(None),
            }
        })
        .await?;
        let Some((intent, digest)) = intent else {
            let busy = busy.unwrap_or_else(|| Error::new("put", path, ErrorKind::Busy));
            return Ok(Put { key, uploaded: Err(busy) });
        };
        let room = Room::beside(&self.client.limits, std::iter::empty());
        let uploader = Uploader::new(&self.client, &places, room, Uploads::default());
        let size = bytes.len() as u64;
        let uploaded = match uploader.put_whole(&key, path, bytes, Condition::Always).await {
            Ok(etag) => {
                let record =
                    Record { path: path.clone(), size, etag: etag.map(Into::into), digest, stamp: None };
                let places = Arc::clone(&places);
                blocking("put", move || {
                    Base::append(&places.state, &record)?;
                    intent.done()?;
                    drop(guard);
                    Ok(())
                })
                .await?;
                Ok(())
            }
            Err(error) => Err(error),
        };
        Ok(Put { key, uploaded })
    }

    /// A URL that lets whoever has it read the object at `path` until `valid` has passed.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the source has no signer.
    pub async fn signed_url(&self, path: &SafePath, valid: Duration) -> Result<String> {
        self.client.source.backend().sign(&self.client.prefix.key(path)?, valid).await
    }
}

/// A file in the workspace, unnamed until it is complete.
#[derive(Clone, Debug)]
struct Leaf {
    places: Arc<Places>,
    path: SafePath,
    policy: OnLocal,
}

impl Leaf {
    async fn write(self, bytes: Bytes) -> Result<u64> {
        blocking("materialise", move || {
            let mut file = self.open()?;
            file.write_all(&bytes).map_err(|error| Error::from_io("write", &self.path, error))?;
            self.commit(file)?;
            Ok(bytes.len() as u64)
        })
        .await
    }
}

impl Target for Leaf {
    fn open(&self) -> Result<NewFile> {
        let workspace = &self.places.workspace;
        if let Some(parent) = self.path.parent() {
            workspace.ensure_dir(parent)?;
        }
        // Where the remote object wins, it wins over a read-only file too.
        workspace.new_file_with(&self.path, WriteOptions::default().over_read_only())
    }

    fn commit(&self, file: NewFile) -> Result<()> {
        match self.policy {
            OnLocal::RemoteWins => file.commit_replace(),
            OnLocal::ColdStart | OnLocal::LocalWins | OnLocal::Fail => file.commit(),
        }
    }
}
