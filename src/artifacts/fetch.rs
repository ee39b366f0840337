//! One object from the store, with limits, retries and deadlines, into memory or into a new file.

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::key::Prefix;
use super::limits::{ObjectLimits, Retry};
use super::plan::Planned;
use super::progress::{Event, Progress};
use super::record::Digest;
use super::source::{Body, Source, is_transient};
use super::state::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::NewFile;

/// Objects up to this size are held in memory and written in batches.
pub(crate) const SMALL: u64 = 64 << 10;
/// Chunks of one large object in memory.
const CHUNKS: usize = 4;
/// Objects in a row that may fail for good before the store counts as gone.
const GONE: u32 = 32;

/// Fetches objects, and knows how much was taken in all.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) source: Source,
    pub(crate) prefix: Prefix,
    pub(crate) limits: ObjectLimits,
    pub(crate) retry: Retry,
    pub(crate) progress: Progress,
    taken: AtomicU64,
    failures: AtomicU32,
}

/// An object's content, and where it is.
#[derive(Debug)]
pub(crate) enum Content {
    Held(Bytes),
    Filed { digest: Digest, size: u64 },
}

/// An object as it arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) content: Content,
    pub(crate) etag: Option<Box<str>>,
}

/// How a large object becomes a file.
pub(crate) trait Target: Clone + Send + 'static {
    /// Starts the file, where that may block.
    fn open(&self) -> Result<NewFile>;
    /// Publishes it.
    fn commit(&self, file: NewFile) -> Result<()>;
}

impl Fetcher {
    pub(crate) fn new(
        source: Source,
        prefix: Prefix,
        limits: ObjectLimits,
        retry: Retry,
        progress: Progress,
    ) -> Self {
        let (taken, failures) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { source, prefix, limits, retry, progress, taken, failures }
    }

    /// Fetches one object; what is larger than [`SMALL`] goes to `target`.
    pub(crate) async fn fetch(&self, object: &Planned, target: impl Target) -> Result<Arrived> {
        let path = &object.path;
        let key = self.prefix.key(path)?;
        if self.failures.load(Ordering::Relaxed) >= GONE {
            return Err(Error::new("get", path, ErrorKind::Io).with_detail("the store is gone"));
        }
        self.progress.tell(&Event::Started { path, bytes: object.size });
        let mut attempt = 1;
        loop {
            let moved = AtomicU64::new(0);
            let error = match self.attempt(&key, object, target.clone(), &moved).await {
                Ok(arrived) => {
                    self.failures.store(0, Ordering::Relaxed);
                    let bytes = moved.into_inner();
                    self.progress.tell(&Event::Done { path, bytes });
                    return Ok(arrived);
                }
                Err(error) => error,
            };
            let moved = moved.into_inner();
            self.taken.fetch_sub(moved, Ordering::Relaxed);
            let pause = if is_transient(&error) { self.retry.pause(attempt) } else { None };
            let Some(delay) = pause else {
                if is_transient(&error) {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                }
                return Err(error);
            };
            self.progress.tell(&Event::Retried { path, attempt, moved, delay, error: &error });
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        key: &str,
        object: &Planned,
        target: impl Target,
        moved: &AtomicU64,
    ) -> Result<Arrived> {
        let path = &object.path;
        let body = self.source.get(key, object.etag.as_deref());
        let mut body = within(self.retry.silence(), path, body).await?;
        let expected = body.size.unwrap_or(object.size);
        if expected > self.limits.file_bytes {
            return Err(Error::new("get", path, ErrorKind::TooLarge)
                .with_detail(format!("more than {} bytes", self.limits.file_bytes)));
        }
        let etag = body.etag.take().map(String::into_boxed_str);
        let arrival = async {
            if body.size.is_some() && expected <= SMALL {
                self.hold(path, &mut body, expected, moved).await
            } else {
                self.file(path, &mut body, target, moved).await
            }
        };
        let content = within(self.retry.deadline(expected), path, arrival).await?;
        Ok(Arrived { content, etag })
    }

    async fn hold(
        &self,
        path: &SafePath,
        body: &mut Body,
        expected: u64,
        moved: &AtomicU64,
    ) -> Result<Content> {
        let mut whole: Option<Bytes> = None;
        let mut parts = BytesMut::new();
        while let Some(chunk) = self.next(path, body, moved).await? {
            match whole.take() {
                None if parts.is_empty() => whole = Some(chunk),
                None => parts.extend_from_slice(&chunk),
                Some(first) => {
                    parts.reserve(usize::try_from(expected).unwrap_or(0));
                    parts.extend_from_slice(&first);
                    parts.extend_from_slice(&chunk);
                }
            }
        }
        Ok(Content::Held(whole.unwrap_or_else(|| parts.freeze())))
    }

    /// Streams into a file. Dropped half-way, it leaves nothing: the file is committed only after the last chunk.
    async fn file(
        &self,
        path: &SafePath,
        body: &mut Body,
        target: impl Target,
        moved: &AtomicU64,
    ) -> Result<Content> {
        let (sender, mut chunks) = mpsc::channel::<Option<Bytes>>(CHUNKS);
        let subject = path.clone();
        let writer = blocking("write", move || {
            let mut file = target.open()?;
            let mut hash = Sha256::new();
            while let Some(chunk) = chunks.blocking_recv() {
                let Some(chunk) = chunk else {
                    let size = file.written();
                    target.commit(file)?;
                    return Ok(Content::Filed { digest: hash.finalize().into(), size });
                };
                hash.update(&chunk);
                file.write_all(&chunk).map_err(|error| written(&subject, error))?;
            }
            Err(Error::new("write", &subject, ErrorKind::Io).with_detail("given up half-way"))
        });
        let reader = async {
            loop {
                let chunk = self.next(path, body, moved).await?;
                let last = chunk.is_none();
                // The writer has gone only if it failed, and then it tells why.
                if sender.send(chunk).await.is_err() || last {
                    drop(sender);
                    return Ok(());
                }
            }
        };
        let (content, read) = futures_util::future::join(writer, reader).await;
        read.and(content)
    }

    /// The next chunk, counted against all limits; none after the announced end.
    async fn next(&self, path: &SafePath, body: &mut Body, moved: &AtomicU64) -> Result<Option<Bytes>> {
        let chunk =
            within(self.retry.silence(), path, async { body.chunks.next().await.transpose() }).await?;
        let so_far = moved.load(Ordering::Relaxed);
        let Some(chunk) = chunk else {
            return match body.size {
                Some(size) if so_far != size => Err(Error::new("get", path, ErrorKind::Io)
                    .with_detail(format!("body ends after {so_far} of {size} bytes"))),
                _ => Ok(None),
            };
        };
        let bytes = chunk.len() as u64;
        let now = so_far + bytes;
        moved.store(now, Ordering::Relaxed);
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if body.size.is_some_and(|size| now > size) {
            return Err(Error::new("get", path, ErrorKind::Io).with_detail("body is longer than announced"));
        }
        if now > self.limits.file_bytes || taken > self.limits.bytes {
            return Err(Error::new("get", path, ErrorKind::TooLarge));
        }
        self.progress.tell(&Event::Moved { path, bytes });
        Ok(Some(chunk))
    }
}

/// The result of `work`, or a failure that is worth another attempt when it takes longer than `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    subject: &SafePath,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::new("get", subject, ErrorKind::Io).with_detail("the store is silent")),
    }
}

/// The error of a write, out of the [`std::io::Error`] that carries it.
pub(crate) fn written(subject: &SafePath, error: std::io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::new("write", subject, ErrorKind::Io).with_source(error),
    }
}
