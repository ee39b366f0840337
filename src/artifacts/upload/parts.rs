//! A file that is too large for one request.

use std::io::Read as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{Content, Known, Ready, Uploaded, Uploader, lasting_stamp, read};
use crate::artifacts::parts::Parts;
use crate::artifacts::progress::Event;
use crate::artifacts::record::{Digest, Record};
use crate::artifacts::snapshot::digest;
use crate::artifacts::source::{Condition, PART};
use crate::artifacts::state::blocking;
use crate::error::{ErrorKind, Result};
use crate::name::SafePath;
use crate::root::ContainedFile;

/// Most parts that S3 takes for one object.
const PARTS: u64 = 10_000;

impl Uploader {
    pub(super) async fn upload_parts(
        &self,
        key: &str,
        path: &SafePath,
        file: ContainedFile,
        known: Known<'_>,
        intend: impl Fn(&SafePath, &Digest) -> Result<()>,
    ) -> Result<Uploaded> {
        let size = file.len_hint();
        let part = PART.max(size.div_ceil(PARTS));
        let _memory = self.reserve(2 * part).await?;
        let stamp = lasting_stamp(&file);
        if let Some(base) = known.base.filter(|base| base.size == size) {
            let (places, wanted, limit) = (Arc::clone(&self.places), path.clone(), self.limits.file_bytes);
            let (_, found) = blocking("read", move || digest(&places.workspace, &wanted, limit)).await?;
            if found == base.digest {
                return Ok(Uploaded::Same(Record { stamp, ..base.clone() }));
            }
        }
        let parts = self.call(path, 0, || self.source.begin(key)).await?;
        let result = async {
            if let Some(id) = parts.id() {
                self.leftovers.note(&self.places.state, id, key)?;
            }
            let (size, digest) = self.send(&parts, path, file.take(size), part).await?;
            intend(path, &digest)?;
            let content = Content { path, size, digest, stamp };
            self.publish(key, content, Ready::Parts(&parts), known).await
        }
        .await;
        let ended = match result {
            Ok(Uploaded::Put(_)) => Ok(()),
            // What cannot be discarded now is left to the next mirror.
            _ => {
                let once = self.retry.with_attempts(1);
                once.run(&self.progress, path, self.retry.silence(), || parts.abort()).await
            }
        };
        if let (Ok(()), Some(id)) = (ended, parts.id()) {
            self.leftovers.forget(id);
        }
        result
    }

    /// Puts all of `file`, `part` bytes at a time; tells the size and the hash of what was read.
    async fn send(
        &self,
        parts: &Parts,
        path: &SafePath,
        file: std::io::Take<ContainedFile>,
        part: u64,
    ) -> Result<(u64, Digest)> {
        let retry = if parts.can_repeat() { self.retry } else { self.retry.with_attempts(1) };
        let (mut rest, mut hash, mut sent) = (file, Sha256::new(), 0);
        loop {
            let (file, subject, mut hashing) = (rest, path.clone(), hash);
            let (file, bytes, hashed) = blocking("read", move || {
                let (file, bytes) = read(&subject, file, part)?;
                hashing.update(&bytes);
                Ok((file, bytes, hashing))
            })
            .await?;
            (rest, hash) = (file, hashed);
            let moved = bytes.len() as u64;
            if moved == 0 {
                return Ok((sent, hash.finalize().into()));
            }
            let limit = self.retry.deadline(moved);
            retry.run(&self.progress, path, limit, || parts.put(bytes.clone())).await?;
            sent += moved;
            self.progress.tell(&Event::Moved { path, bytes: moved });
        }
    }

    /// Makes the parts the object, if `condition` holds.
    pub(super) async fn complete(
        &self,
        parts: &Parts,
        key: &str,
        content: &Content<'_>,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        let retry = if parts.can_repeat() { self.retry } else { self.retry.with_attempts(1) };
        // Not every store heeds the condition.
        self.call(content.path, 0, || self.compare(key, condition)).await?;
        let limit = self.retry.deadline(content.size);
        let complete = || async {
            match parts.complete(condition).await {
                Err(error) if error.kind() == ErrorKind::Unsupported && condition != Condition::Always => {
                    parts.complete(Condition::Always).await
                }
                result => result,
            }
        };
        retry.run(&self.progress, content.path, limit, complete).await
    }

    /// Discards the uploads that an earlier call has left. What cannot be discarded is noted for the next one.
    pub(crate) async fn clear_leftovers(&self) {
        for (id, key) in self.leftovers.all() {
            let Ok(path) = self.prefix.path(key.as_bytes()) else { continue };
            if self.call(&path, 0, || self.source.abort(&key, &id)).await.is_ok() {
                self.leftovers.forget(&id);
            }
        }
    }

    /// Writes down which uploads are left.
    pub(crate) fn write_leftovers(&self) -> Result<()> {
        self.leftovers.write(&self.places.state)
    }
}
