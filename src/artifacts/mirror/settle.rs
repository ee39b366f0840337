//! Whose object is in the way of a put.
//!
//! Problem: an answer can be lost after the store has put the object. A put that is repeated then finds an object in its
//! way, which may be its own or another host's.
//!
//! Defence: the object is read and hashed. It counts as this host's only if its hash is what was to be put, or what was
//! noted before an earlier put.
//!
//! What remains: another host that has put the same content is taken for this one, which changes nothing.

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::uploader::{Content, Known, Ready, Uploaded, Uploader, is_conflict};
use crate::artifacts::store::{Condition, Retry, within};
use crate::error::{ErrorKind, Result};
use crate::name::SafePath;
use crate::tree::Digest;

enum Settled {
    /// It is what was to be put.
    Same(Option<String>),
    /// This host has put it there, before it was interrupted.
    Ours(Option<String>),
    Theirs,
    Gone,
}

impl Uploader {
    /// Publishes `content`, unless another host has changed the object.
    pub(super) async fn publish(
        &self,
        key: &str,
        content: Content<'_>,
        ready: Ready<'_>,
        known: Known<'_>,
    ) -> Result<Uploaded> {
        let error = match self.make(key, &content, &ready, known.condition()).await {
            Ok(etag) => return Ok(Uploaded::Put(content.record(etag))),
            Err(error) => error,
        };
        // Only the answer may be lost, and the object be there.
        let lost = error.kind() == ErrorKind::Io;
        if !lost && !is_conflict(&error) {
            return Err(error);
        }
        let retry = if lost { self.retry.with_attempts(1) } else { self.retry };
        let etag;
        let condition = match self.settle(retry, key, content.path, &content.digest, known).await {
            Ok(Settled::Same(etag)) => return Ok(Uploaded::Same(content.record(etag))),
            _ if lost => return Err(error),
            Ok(Settled::Theirs) => return Ok(Uploaded::Conflict),
            Ok(Settled::Ours(Some(found))) => {
                etag = found;
                Condition::Unchanged(&etag)
            }
            Ok(Settled::Ours(None)) => Condition::Always,
            Ok(Settled::Gone) => Condition::Absent,
            Err(error) => return Err(error),
        };
        match self.make(key, &content, &ready, condition).await {
            Ok(etag) => Ok(Uploaded::Put(content.record(etag))),
            Err(error) if is_conflict(&error) => Ok(Uploaded::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Makes `content` the object if `condition` holds.
    async fn make(
        &self,
        key: &str,
        content: &Content<'_>,
        ready: &Ready<'_>,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        match ready {
            Ready::Whole(bytes) => self.put_whole(key, content.path, bytes.clone(), condition).await,
            Ready::Parts(parts) => self.complete(*parts, key, content, condition).await,
        }
    }

    /// Whether the object is what this session knows of, or has put there before it was interrupted. One that is not
    /// there is as good as that.
    pub(super) async fn owns(&self, key: &str, path: &SafePath, known: Known<'_>) -> Result<bool> {
        let Some(object) = self.call(path, 0, || self.source.backend().head(key)).await? else {
            return Ok(true);
        };
        let etag = known.base.and_then(|base| base.etag.as_deref());
        let unchanged = known.base.is_some() && (etag.is_none() || object.etag.as_deref() == etag);
        if known.always || unchanged {
            return Ok(true);
        }
        if known.ours.is_empty() {
            return Ok(false);
        }
        Ok(!matches!(self.settle(self.retry, key, path, &[0; 32], known).await?, Settled::Theirs))
    }

    /// Finds out whose the object is that is in the way.
    async fn settle(
        &self,
        retry: Retry,
        key: &str,
        path: &SafePath,
        wanted: &Digest,
        known: Known<'_>,
    ) -> Result<Settled> {
        let limit = retry.deadline(self.limits.file_bytes);
        let calls = retry.about(&self.progress, path).within(limit);
        calls.run(|_| self.settle_once(key, path, wanted, known)).await
    }

    async fn settle_once(
        &self,
        key: &str,
        path: &SafePath,
        wanted: &Digest,
        known: Known<'_>,
    ) -> Result<Settled> {
        let silence = self.retry.silence();
        let body = match within(silence, "get", path, self.source.backend().get(key, None)).await {
            Ok(body) => body,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Settled::Gone),
            Err(error) => return Err(error),
        };
        let (etag, mut chunks) = (body.etag, body.chunks);
        let mut hash = Sha256::new();
        let mut read = 0;
        loop {
            let next = async { chunks.next().await.transpose() };
            let Some(chunk) = within(silence, "get", path, next).await? else { break };
            read += chunk.len() as u64;
            if read > self.limits.file_bytes {
                return Ok(Settled::Theirs);
            }
            hash.update(&chunk);
        }
        let found: Digest = hash.finalize().into();
        Ok(match () {
            () if found == *wanted => Settled::Same(etag),
            () if known.ours.contains(&found) => Settled::Ours(etag),
            () => Settled::Theirs,
        })
    }
}
