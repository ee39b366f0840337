//! One file to the store, read through its handle.
//!
//! A file that goes in one request is put on a condition, a larger one in parts that become an object on a condition.

use std::io::Read as _;
use std::sync::{Arc, PoisonError};

use sha2::{Digest as _, Sha256};

use super::uploader::{Content, Known, Ready, Uploaded, Uploader, lasting_stamp, read};
use crate::artifacts::disk::blocking;
use crate::artifacts::progress::Event;
use crate::artifacts::state::Record;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::ContainedFile;
use crate::tree::{Digest, digest};

impl Uploader {
    /// Brings the file at `path` to the store unless it is there. `intend` is called with the hash before anything is put.
    pub(super) async fn upload(
        &self,
        path: &SafePath,
        known: Known<'_>,
        intend: impl Fn(&SafePath, &Digest) -> Result<()>,
    ) -> Result<Uploaded> {
        let key = self.prefix.key(path)?;
        let (places, wanted) = (Arc::clone(&self.places), path.clone());
        let file = blocking("open", move || places.workspace.open_contained(&wanted)).await?;
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
            self.upload_whole(&key, path, file, known, intend).await
        } else {
            self.upload_parts(&key, path, file, known, intend).await
        };
        if let Ok(Uploaded::Put(record) | Uploaded::Same(record)) = &result {
            self.progress.report(&Event::Done { path, bytes: record.size });
        }
        result
    }

    async fn upload_whole(
        &self,
        key: &str,
        path: &SafePath,
        file: ContainedFile,
        known: Known<'_>,
        intend: impl Fn(&SafePath, &Digest) -> Result<()>,
    ) -> Result<Uploaded> {
        let size = file.len_hint();
        let _memory = self.reserve(size).await?;
        let subject = path.clone();
        let (bytes, digest, stamp) = blocking("read", move || {
            let stamp = lasting_stamp(&file);
            // What a guest appends meanwhile comes with the next mirror.
            let (_, bytes) = read(&subject, file.take(size), size)?;
            let digest: Digest = Sha256::digest(&bytes).into();
            Ok((bytes, digest, stamp))
        })
        .await?;
        let size = bytes.len() as u64;
        let content = Content { path, size, digest, stamp };
        if let Some(base) = known.base.filter(|base| base.digest == digest) {
            return Ok(Uploaded::Same(content.record(base.etag.as_deref().map(str::to_owned))));
        }
        intend(path, &digest)?;
        let result = self.publish(key, content, Ready::Whole(bytes), known).await;
        if let Ok(Uploaded::Put(_)) = result {
            self.progress.report(&Event::Moved { path, bytes: size });
        }
        result
    }

    async fn upload_parts(
        &self,
        key: &str,
        path: &SafePath,
        file: ContainedFile,
        known: Known<'_>,
        intend: impl Fn(&SafePath, &Digest) -> Result<()>,
    ) -> Result<Uploaded> {
        let size = file.len_hint();
        let store = self.source.backend();
        let part = store.abilities().part_of(size);
        let _memory = self.reserve(2 * part).await?;
        let stamp = lasting_stamp(&file);
        if let Some(base) = known.base.filter(|base| base.size == size) {
            let (places, wanted, limit) = (Arc::clone(&self.places), path.clone(), self.limits.file_bytes);
            let (_, found) = blocking("read", move || digest(&places.workspace, &wanted, limit)).await?;
            if found == base.digest {
                return Ok(Uploaded::Same(Record { stamp, ..base.clone() }));
            }
        }
        let parts = self.call(path, 0, || store.begin(key)).await?;
        let result = async {
            if let Some(id) = parts.id() {
                self.uploads.note(&self.places.state, id, key)?;
            }
            let (size, digest) = self.send(&*parts, path, file.take(size), part).await?;
            intend(path, &digest)?;
            let content = Content { path, size, digest, stamp };
            self.publish(key, content, Ready::Parts(&*parts), known).await
        }
        .await;
        let ended = match result {
            Ok(Uploaded::Put(_)) => Ok(()),
            // What cannot be discarded now is left to the next mirror.
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
