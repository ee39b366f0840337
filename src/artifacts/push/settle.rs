//! Whose object is in the way of a put.
//!
//! Problem: an answer can be lost after the store has put the object. A put that is repeated then finds an object in its
//! way, which may be its own or another host's.
//!
//! Defence: each put has a random id, which the object keeps. Where it has another one, the object is read and hashed. It counts
//! as this host's only if its hash is what was to be put, or what was noted before an earlier put.
//!
//! What remains: another host that has put the same content is taken for this one, which changes nothing.

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::uploader::{Before, Content, Ready, Uploaded, Uploader, is_conflict};
use crate::artifacts::state::{Known, Version};
use crate::artifacts::store::{Attributes, Body, Condition, Kind, Retry, within};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::tree::{Digest, Leaf};

/// The longest text that a link has.
const LINK_MAX: u64 = 4095;

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
    pub(crate) async fn publish(
        &self,
        key: &str,
        content: Content<'_>,
        ready: Ready<'_>,
        before: Before<'_>,
    ) -> Result<Uploaded> {
        let error = match self.make(key, &content, &ready, before.condition()).await {
            Ok(etag) => return Ok(Uploaded::Put(content.known(self.version(etag)))),
            Err(error) => error,
        };
        // Only the answer may be lost, and the object be there.
        let lost = error.kind() == ErrorKind::Io;
        if !lost && !is_conflict(&error) {
            return Err(error);
        }
        let retry = if lost { self.retry.with_attempts(1) } else { self.retry };
        if let Some(etag) = self.put_by(retry, key, &content).await {
            return Ok(Uploaded::Put(content.known(self.version(etag))));
        }
        let etag;
        let condition = match self.settle(retry, key, &content, before.ours).await {
            Ok(Settled::Same(etag)) => return Ok(Uploaded::Same(content.known(self.version(etag)))),
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
            Ok(etag) => Ok(Uploaded::Put(content.known(self.version(etag)))),
            Err(error) if is_conflict(&error) => Ok(Uploaded::Conflict),
            Err(error) => Err(error),
        }
    }

    /// The version of the object, if it came by this very put; nothing if that cannot be seen.
    async fn put_by(&self, retry: Retry, key: &str, content: &Content<'_>) -> Option<Option<String>> {
        let calls = retry.about(&self.progress, content.path).within(self.retry.silence());
        let found = calls.run(|_| self.source.backend().head(key));
        let found = self.patience.call(content.path, found).await.ok().flatten()?;
        let ours =
            content.attributes.put_id.is_some() && found.attributes.put_id == content.attributes.put_id;
        (ours && found.size == content.leaf.size()).then_some(found.etag)
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
            Ready::Whole(bytes) => {
                self.put_whole(key, content.path, bytes.clone(), &content.attributes, condition).await
            }
            Ready::Parts(parts) => self.complete(*parts, key, content, condition).await,
        }
    }

    /// Whether the object is still what is known of it. A missing object counts as unchanged.
    pub(crate) async fn owns(&self, key: &str, path: &GuestPath, known: &Known) -> Result<bool> {
        let object = self.call(path, 0, || self.source.backend().head(key)).await?;
        Ok(object.is_none_or(|object| {
            known.version.etag.is_none() || Version::of(object.etag).same_bytes(&known.version)
        }))
    }

    /// Finds out whose the object is that is in the way.
    async fn settle(
        &self,
        retry: Retry,
        key: &str,
        content: &Content<'_>,
        ours: &[Digest],
    ) -> Result<Settled> {
        let (path, limit) = (content.path, self.limits.file_bytes);
        let found = match self.identify_with(retry, key, path, limit).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Settled::Gone),
            Err(error) if error.kind() == ErrorKind::TooLarge => return Ok(Settled::Theirs),
            Err(error) => return Err(error),
        };
        Ok(match () {
            () if found.digest == content.digest && found.attributes.fit(&content.leaf) => {
                Settled::Same(found.etag)
            }
            () if ours.contains(&found.digest) => Settled::Ours(found.etag),
            () => Settled::Theirs,
        })
    }

    /// What the object `key` contains, of at most `limit` bytes; none if there is no such object.
    pub(crate) async fn identify(&self, key: &str, path: &GuestPath, limit: u64) -> Result<Option<Found>> {
        self.identify_with(self.retry, key, path, limit).await
    }

    async fn identify_with(
        &self,
        retry: Retry,
        key: &str,
        path: &GuestPath,
        limit: u64,
    ) -> Result<Option<Found>> {
        let calls = retry.about(&self.progress, path);
        self.patience.call(path, calls.run(|_| self.identify_once(key, path, limit))).await
    }

    async fn identify_once(&self, key: &str, path: &GuestPath, limit: u64) -> Result<Option<Found>> {
        let silence = self.retry.silence();
        let body = match within(silence, "get", path, self.source.backend().get(key, None)).await {
            Ok(body) => body,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let too_large = || Error::new("get", path, ErrorKind::TooLarge);
        if body.size.is_some_and(|size| size > limit) {
            return Err(too_large());
        }
        // As long as an object of this size may take, and not as long as the largest.
        let deadline = self.retry.deadline(body.size.unwrap_or(limit));
        let Body { size, etag, attributes, mut chunks } = body;
        let is_link = attributes.kind == Kind::Link;
        let limit = if is_link { limit.min(LINK_MAX) } else { limit };
        let hashed = async {
            let (mut hash, mut bytes, mut text) = (Sha256::new(), 0_u64, Vec::new());
            loop {
                let next = async { chunks.next().await.transpose() };
                let Some(chunk) = within(silence, "get", path, next).await? else { break };
                bytes = bytes.saturating_add(chunk.len() as u64);
                if bytes > limit {
                    return Err(too_large());
                }
                hash.update(&chunk);
                if is_link {
                    text.extend_from_slice(&chunk);
                }
            }
            match size {
                Some(size) if size != bytes => Err(Error::new("get", path, ErrorKind::Io)
                    .with_detail(format!("body ends after {bytes} of {size} bytes"))),
                _ => Ok((bytes, Digest::from(hash.finalize()), text)),
            }
        };
        let (bytes, digest, text) = within(deadline, "get", path, hashed).await?;
        Ok(Some(Found { bytes, digest, text, etag, attributes }))
    }
}

/// What an object contains, and of which version.
#[derive(Debug)]
pub(crate) struct Found {
    bytes: u64,
    pub(crate) digest: Digest,
    /// Of a link.
    text: Vec<u8>,
    pub(crate) etag: Option<String>,
    pub(crate) attributes: Attributes,
}

impl Found {
    /// What it is, as a file that has the mode `had` if the object does not say it.
    pub(crate) fn leaf(&self, had: Option<u32>) -> Leaf {
        let execute = self.attributes.mode.or(had).is_some_and(|mode| mode & 0o100 != 0);
        match self.attributes.kind {
            Kind::Link => Leaf::Link { text: self.text.clone() },
            _ => Leaf::File { bytes: self.bytes, sha256: self.digest, execute },
        }
    }
}
