//! A local directory in place of a store, by names that nobody has rewritten.
//!
//! The problem: a [`LocalFileSystem`] ends its listing at the first name that is not text or has a control character,
//! takes no name that ends in `#` and digits, and follows links.
//!
//! The defence: the directory is held by a [`Root`]. It is walked by raw names, so that one bad name is one refusal, and
//! files are opened beneath it, links never.
//!
//! [`LocalFileSystem`]: https://docs.rs/object_store/latest/object_store/local/struct.LocalFileSystem.html

use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc;

use super::source::{Body, Condition, Listed, changed};
use super::state::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Metadata, NewFile, Root, WalkLimits};

/// Most entries of one listing, directories included.
const ENTRIES: u64 = 10_000_000;
const CHUNK: u64 = 256 << 10;

/// The directory.
#[derive(Clone, Debug)]
pub(crate) struct Local(Arc<Root>);

impl Local {
    pub(crate) fn new(root: Root) -> Self {
        Self(Arc::new(root))
    }

    /// Lists what lies under `prefix`, which ends in `/`.
    pub(crate) fn list(&self, prefix: String) -> BoxStream<'static, Result<Listed>> {
        let root = Arc::clone(&self.0);
        let (sender, receiver) = mpsc::channel(256);
        let walking = async move {
            let failed = sender.clone();
            // The receiver is gone when nobody wants to know any more.
            if let Err(error) = blocking("list", move || walk(&root, &prefix, &sender)).await {
                let _ = failed.send(Err(error)).await;
            }
        };
        let listed = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|item| (item, receiver))
        });
        let walking = stream::once(walking).filter_map(|()| std::future::ready(None::<Result<Listed>>));
        stream::select(listed, walking).boxed()
    }

    pub(crate) async fn get(&self, key: &str, etag: Option<&str>) -> Result<Body> {
        let (root, path) = (Arc::clone(&self.0), key.to_owned());
        let file = blocking("get", move || root.open_contained(path)).await?;
        let (size, found) = (file.metadata().len(), version(file.metadata()));
        if etag.is_some_and(|wanted| wanted != found) {
            return Err(changed("get", key));
        }
        let key = key.to_owned();
        let chunks = stream::try_unfold((file.take(size), key), |(mut file, key)| {
            blocking("get", move || {
                let mut chunk = Vec::new();
                let read = file.by_ref().take(CHUNK).read_to_end(&mut chunk);
                read.map_err(|error| Error::new("get", &key, ErrorKind::Io).with_source(error))?;
                Ok(if chunk.is_empty() { None } else { Some((Bytes::from(chunk), (file, key))) })
            })
        });
        Ok(Body { size: Some(size), etag: Some(found), chunks: chunks.boxed() })
    }

    pub(crate) async fn head(&self, key: &str) -> Result<Option<Listed>> {
        let (root, path) = (Arc::clone(&self.0), key.to_owned());
        blocking("head", move || match root.open_contained(&path) {
            Ok(file) => Ok(Some(listed(path.into_bytes(), file.metadata()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    pub(crate) async fn put(
        &self,
        key: &str,
        content: Bytes,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        if let Condition::Unchanged(_) = condition {
            return Err(Error::new("put", key, ErrorKind::Unsupported)
                .with_detail("a directory does not compare and put in one step"));
        }
        let (root, path) = (Arc::clone(&self.0), key.to_owned());
        let absent = condition == Condition::Absent;
        blocking("put", move || {
            let mut draft = Draft::new(root, path)?;
            draft.write(&content)?;
            draft.publish(absent)
        })
        .await
    }

    /// Starts a file for `key` that has no name yet.
    pub(crate) async fn draft(&self, key: &str) -> Result<Draft> {
        let (root, path) = (Arc::clone(&self.0), key.to_owned());
        blocking("put", move || Draft::new(root, path)).await
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<()> {
        let (root, path) = (Arc::clone(&self.0), key.to_owned());
        blocking("delete", move || super::state::forget(&root, &path)).await
    }
}

/// A file on its way, unnamed until it is published.
#[derive(Debug)]
pub(crate) struct Draft {
    root: Arc<Root>,
    path: String,
    file: Option<NewFile>,
}

impl Draft {
    fn new(root: Arc<Root>, path: String) -> Result<Self> {
        if let Some((parent, _)) = path.rsplit_once('/') {
            root.ensure_dir(parent)?;
        }
        let file = Some(root.new_file(&path)?);
        Ok(Self { root, path, file })
    }

    pub(crate) fn write(&mut self, part: &[u8]) -> Result<()> {
        let failed = |error| Error::new("put", &self.path, ErrorKind::Io).with_source(error);
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(part)).map_err(failed)
    }

    /// Gives the file its name, with `absent` only if that is free, and tells its version.
    pub(crate) fn publish(&mut self, absent: bool) -> Result<Option<String>> {
        let leaf = self.path.rsplit('/').next().unwrap_or_default();
        match self.file.take() {
            Some(mut file) if absent => {
                if let Err(error) = file.commit_as(leaf) {
                    self.file = Some(file);
                    return Err(error);
                }
            }
            Some(file) => file.commit_replace()?,
            None => return Err(Error::new("put", &self.path, ErrorKind::Io).with_detail("is published")),
        }
        Ok(Some(version(self.root.open_contained(&self.path)?.metadata())))
    }
}

fn walk(root: &Root, prefix: &str, sender: &mpsc::Sender<Result<Listed>>) -> Result<()> {
    let entries = match root.walk(prefix.trim_end_matches('/'), WalkLimits::default().with_entries(ENTRIES)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let key = |path: &Path| [prefix.as_bytes(), path.as_os_str().as_bytes()].concat();
    for (seen, entry) in entries.enumerate() {
        let object = match entry {
            Ok(entry) if entry.metadata().is_dir() => continue,
            Ok(entry) => listed(key(entry.path()), entry.metadata()),
            // A part chosen by chance is no listing.
            Err(error) if seen as u64 >= ENTRIES => return Err(error),
            // A directory that cannot be entered is a key that ends in `/`: one refusal.
            Err(error) => {
                let mut key = key(error.subject().unwrap_or("".as_ref()));
                key.push(b'/');
                Listed { key, size: 0, etag: None }
            }
        };
        if sender.blocking_send(Ok(object)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn listed(key: Vec<u8>, metadata: &Metadata) -> Listed {
    Listed { key, size: metadata.len(), etag: Some(version(metadata)) }
}

/// The version of a file, as a `LocalFileSystem` tells it.
fn version(metadata: &Metadata) -> String {
    let modified = metadata.modified().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    format!("\"{:x}-{modified:x}-{:x}\"", metadata.ino(), metadata.len())
}
