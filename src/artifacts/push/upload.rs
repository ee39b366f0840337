//! One file to the store, read through its handle.
//!
//! A file that goes in one request is put on a condition, a larger one in parts that become an object on a condition. One that
//! changes while it is read does not become an object: it would be half old, half new. Of a link the text goes.

use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::uploader::{
    Before, Content, Ready, Seen, Uploaded, Uploader, attributes, identified, leaf, read, unchanged,
};
use crate::artifacts::disk::blocking;
use crate::artifacts::progress::Event;
use crate::artifacts::state::Version;
use crate::artifacts::store::{Attributes, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::ContainedFile;
use crate::tree::{Digest, Leaf};

/// What is called with the hash before anything is put.
pub(crate) type Intend<'a> = &'a (dyn Fn(&Digest) -> Result<()> + Sync);

impl Uploader {
    /// Brings the file or link at `path`, which was `seen` there, to the object `key` unless it is there.
    pub(crate) async fn upload(
        &self,
        (path, seen): (&GuestPath, &Leaf),
        key: &str,
        before: Before<'_>,
        intend: Intend<'_>,
    ) -> Result<Uploaded> {
        let _leave = self.source.leave().await;
        if let Leaf::Link { .. } = seen {
            return self.upload_link(key, path, before, intend).await;
        }
        let (places, linked, wanted) = (Arc::clone(&self.places), Arc::clone(&self.linked), path.clone());
        let file = blocking("open", move || {
            let mut linked = linked.lock().unwrap_or_else(PoisonError::into_inner);
            linked.open(&places.workspace, wanted.as_path())
        })
        .await?;
        let size = file.len_hint();
        if size > self.limits.file_bytes {
            return Err(Error::new("put", path, ErrorKind::TooLarge)
                .with_detail(format!("more than {} bytes", self.limits.file_bytes)));
        }
        if let Err(error) = self.room.lock().unwrap_or_else(PoisonError::into_inner).take(path, size) {
            return Ok(Uploaded::Over(error));
        }
        self.progress.report(&Event::Started { path, bytes: size });
        let result = if size <= self.source.backend().abilities().whole {
            self.upload_whole(key, path, file, before, intend).await
        } else {
            self.upload_parts(key, path, file, before, intend).await
        };
        if let Ok(Uploaded::Put(known) | Uploaded::Same(known)) = &result {
            self.progress.report(&Event::Done { path, bytes: known.leaf.size() });
        }
        result
    }

    async fn upload_whole(
        &self,
        key: &str,
        path: &GuestPath,
        file: ContainedFile,
        before: Before<'_>,
        intend: Intend<'_>,
    ) -> Result<Uploaded> {
        let (size, mut attributes) = (file.len_hint(), attributes(file.metadata())?);
        let _memory = self.reserve(size).await?;
        let (subject, places, now) = (path.clone(), Arc::clone(&self.places), self.now);
        let (bytes, digest, seen) = blocking("read", move || {
            let seen = Seen::of(&file, now);
            let (_, bytes) = read(&subject, file.take(size), size)?;
            unchanged(&places.workspace, &subject, seen)?;
            let digest: Digest = Sha256::digest(&bytes).into();
            Ok((bytes, digest, seen))
        })
        .await?;
        attributes.sha256 = Some(digest);
        let leaf = leaf(bytes.len() as u64, digest, &attributes);
        let content = Content { path, leaf, digest, file: seen, attributes };
        self.put(key, content, bytes, before, intend).await
    }

    async fn upload_link(
        &self,
        key: &str,
        path: &GuestPath,
        before: Before<'_>,
        intend: Intend<'_>,
    ) -> Result<Uploaded> {
        let (places, wanted) = (Arc::clone(&self.places), path.clone());
        let text = blocking("read link", move || places.workspace.read_link(&wanted)).await?;
        let text = text.into_os_string().into_vec();
        let size = text.len() as u64;
        if let Err(error) = self.room.lock().unwrap_or_else(PoisonError::into_inner).take(path, size) {
            return Ok(Uploaded::Over(error));
        }
        self.progress.report(&Event::Started { path, bytes: size });
        let digest: Digest = Sha256::digest(&text).into();
        let mut attributes = identified(Attributes::default())?;
        (attributes.kind, attributes.mode, attributes.sha256) = (Kind::Link, Some(0o777), Some(digest));
        let leaf = Leaf::Link { text: text.clone() };
        let content = Content { path, leaf, digest, file: Seen::default(), attributes };
        let result = self.put(key, content, text.into(), before, intend).await;
        if let Ok(Uploaded::Put(_) | Uploaded::Same(_)) = &result {
            self.progress.report(&Event::Done { path, bytes: size });
        }
        result
    }

    /// Puts `content` in one request unless it is there.
    async fn put(
        &self,
        key: &str,
        content: Content<'_>,
        bytes: Bytes,
        before: Before<'_>,
        intend: Intend<'_>,
    ) -> Result<Uploaded> {
        if let Some(version) = same(before, &content) {
            return Ok(Uploaded::Same(content.known(version)));
        }
        intend(&content.digest)?;
        let (path, size) = (content.path, bytes.len() as u64);
        let result = self.publish(key, content, Ready::Whole(bytes), before).await;
        if let Ok(Uploaded::Put(_)) = result {
            self.progress.report(&Event::Moved { path, bytes: size });
        }
        result
    }

    async fn upload_parts(
        &self,
        key: &str,
        path: &GuestPath,
        file: ContainedFile,
        before: Before<'_>,
        intend: Intend<'_>,
    ) -> Result<Uploaded> {
        let (size, attributes) = (file.len_hint(), attributes(file.metadata())?);
        let store = self.source.backend();
        let part = store.abilities().part_of(size);
        let _memory = self.reserve(2 * part).await?;
        let seen = Seen::of(&file, self.now);
        let parts = self.call(path, 0, || store.begin(key, &attributes)).await?;
        let result = async {
            if let Some(id) = parts.id() {
                self.uploads.note(&self.places.state, id, key)?;
            }
            let (size, digest) = self.send(&*parts, path, file.take(size), part).await?;
            let (places, subject) = (Arc::clone(&self.places), path.clone());
            blocking("read", move || unchanged(&places.workspace, &subject, seen)).await?;
            let leaf = leaf(size, digest, &attributes);
            let content = Content { path, leaf, digest, file: seen, attributes };
            if let Some(version) = same(before, &content) {
                return Ok(Uploaded::Same(content.known(version)));
            }
            intend(&digest)?;
            self.publish(key, content, Ready::Parts(&*parts), before).await
        }
        .await;
        let ended = match result {
            Ok(Uploaded::Put(_)) => Ok(()),
            // What cannot be discarded now is left to the next call.
            _ => {
                let once = self.retry.with_attempts(1).about(&self.progress, path);
                once.within(self.retry.silence()).run(|_| parts.abort()).await
            }
        };
        if let (Ok(()), Some(id)) = (ended, parts.id()) {
            self.uploads.forget(id);
        }
        result
    }
}

/// The version of the object, if it is just this as far as is known.
fn same(before: Before<'_>, content: &Content<'_>) -> Option<Version> {
    let known = before.known.filter(|known| known.leaf == content.leaf)?;
    let same_mode = known.mode.is_none() || known.mode == content.attributes.mode;
    same_mode.then(|| known.version.clone())
}
