//! One object from the store, with limits, retries and deadlines, into memory or into a new file.
//!
//! Problem: the store may announce one size and send another, send one byte a minute, stop in the middle, or continue with
//! another version.
//!
//! Defence: each chunk is counted against what was announced and against all limits; silence and slowness have deadlines.
//! A download continues only with the rest of exactly the version that it began with. A file has no name before its last
//! byte.
//!
//! What remains: without an announced size, and without one in a listing, a body that ends early is taken for the whole.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::row::Row;
use crate::artifacts::client::Client;
use crate::artifacts::disk::blocking;
use crate::artifacts::key::Prefix;
use crate::artifacts::progress::Event;
use crate::artifacts::state::{Planned, Version};
use crate::artifacts::store::{Attributes, Body, Kind, within};
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::NewFile;
use crate::tree::Digest;

/// Objects up to this size are held in memory and written in batches.
const SMALL: u64 = 64 << 10;
/// The longest text that a link has.
const LINK_MAX: u64 = 4095;
/// Chunks of one large object in memory.
const CHUNKS: usize = 4;

/// Fetches objects, and counts how much was taken in all.
#[derive(Debug)]
pub(crate) struct Fetcher<'a> {
    client: &'a Client,
    prefix: Prefix,
    taken: AtomicU64,
    row: Row,
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
    pub(crate) version: Version,
    pub(crate) attributes: Attributes,
}

/// How an object becomes a file.
pub(crate) trait Target: Clone + Send + Sync + 'static {
    /// Starts the file of an object that says this of it, where that may block.
    fn open(&self, attributes: &Attributes) -> Result<NewFile>;
    /// Publishes it.
    fn commit(&self, file: NewFile) -> Result<()>;

    /// Makes the file of an object that was small enough to be held; where that may block.
    fn write(&self, path: &GuestPath, bytes: &[u8], attributes: &Attributes) -> Result<()> {
        let mut file = self.open(attributes)?;
        file.write_all(bytes).map_err(|error| Error::from_io("write", path, error))?;
        self.commit(file)
    }
}

impl<'a> Fetcher<'a> {
    /// Fetches from below `prefix`, with the limits of `client`.
    pub(crate) fn new(client: &'a Client, prefix: Prefix) -> Self {
        Self { client, prefix, taken: AtomicU64::new(0), row: Row::default() }
    }

    /// Fetches one object; what is larger than [`SMALL`] goes to `target`.
    pub(crate) async fn fetch(&self, object: &Planned, target: impl Target) -> Result<Arrived> {
        let path = &object.path;
        let key = self.prefix.key(path)?;
        let Client { source, retry, progress, .. } = self.client;
        let _leave = source.leave().await;
        if self.row.is_last(self.client, &self.prefix).await {
            return Err(Error::new("get", path, ErrorKind::Io).with_detail("the store does not respond"));
        }
        progress.report(&Event::Started { path, bytes: object.size });
        let moved = AtomicU64::new(0);
        let download = Download { fetcher: self, key, object, target, moved, kept: Mutex::new(None) };
        let take_back = || download.take_back();
        let retry = if self.row.is_long() { retry.with_attempts(1) } else { *retry };
        let calls = retry.about(progress, path).also_when_changed().losing(&take_back);
        let result = calls.run(|attempt| download.attempt(attempt)).await;
        match &result {
            Ok(_) => {
                self.row.end();
                progress.report(&Event::Done { path, bytes: download.moved.into_inner() });
            }
            Err(error) => {
                *download.kept() = None;
                download.take_back();
                self.row.add(error);
            }
        }
        result
    }
}

/// One object on its way.
struct Download<'a, T> {
    fetcher: &'a Fetcher<'a>,
    key: String,
    object: &'a Planned,
    target: T,
    /// Bytes that have arrived and count.
    moved: AtomicU64,
    /// What the last attempt has left to go on from.
    kept: Mutex<Option<Partial>>,
}

/// The first bytes of an object, in a file that has no name yet.
#[derive(Debug)]
struct Partial {
    file: NewFile,
    hash: Sha256,
    /// Of which version.
    etag: String,
    /// Of how many bytes.
    size: u64,
}

/// What the writer of a large object has made.
enum Filed {
    Whole(Content),
    Part(Box<NewFile>, Sha256),
}

impl<T: Target> Download<'_, T> {
    fn kept(&self) -> MutexGuard<'_, Option<Partial>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uncounts the bytes that are not kept, and returns how many.
    fn take_back(&self) -> u64 {
        let kept = self.kept().as_ref().map_or(0, |kept| kept.file.written());
        let lost = self.moved.swap(kept, Ordering::Relaxed).saturating_sub(kept);
        self.fetcher.taken.fetch_sub(lost, Ordering::Relaxed);
        lost
    }

    async fn attempt(&self, attempt: u32) -> Result<Arrived> {
        let Client { source, limits, retry, progress, .. } = self.fetcher.client;
        let path = &self.object.path;
        let mut partial = self.kept().take();
        let mut body = None;
        if let Some(kept) = &partial {
            match self.rest(kept).await {
                Ok(rest) => body = rest,
                Err(error) => {
                    *self.kept() = partial;
                    return Err(error);
                }
            }
        }
        let mut body = match body {
            Some(rest) => rest,
            None => {
                if partial.take().is_some() {
                    let (moved, delay) = (self.take_back(), Duration::ZERO);
                    let error = Error::new("get", path, ErrorKind::Busy)
                        .with_detail("the store does not go on where it stopped");
                    progress.report(&Event::Retried { path, attempt, moved, delay, error: &error });
                }
                let whole = source.backend().get(&self.key, self.object.version.etag.as_deref());
                within(retry.silence(), "get", path, whole).await?
            }
        };
        let expected = body.size.unwrap_or(self.object.size);
        if expected > limits.file_bytes {
            return Err(Error::new("get", path, ErrorKind::TooLarge)
                .with_detail(format!("more than {} bytes", limits.file_bytes)));
        }
        let etag = body.etag.take();
        let attributes = std::mem::take(&mut body.attributes);
        let is_link = attributes.kind == Kind::Link;
        if is_link && expected > LINK_MAX {
            return Err(
                Error::new("get", path, ErrorKind::InvalidData).with_detail("text of the link is too long")
            );
        }
        let content = match body.size {
            Some(..=SMALL) => {
                within(retry.deadline(expected), "get", path, self.hold(&mut body, expected)).await?
            }
            None if is_link => {
                within(retry.deadline(LINK_MAX), "get", path, self.hold(&mut body, LINK_MAX)).await?
            }
            _ => self.file(&mut body, partial, (etag.as_deref(), &attributes)).await?,
        };
        let listed = &self.object.version;
        let mut version = Version::of(etag);
        // Of a version that was not listed nobody knows when it was put.
        version.put_at = listed.put_at.filter(|_| version.same_bytes(listed));
        Ok(Arrived { content, version, attributes })
    }

    /// What follows the bytes that are kept, if the store returns exactly that.
    async fn rest(&self, kept: &Partial) -> Result<Option<Body>> {
        let Client { source, retry, .. } = self.fetcher.client;
        let rest = source.backend().rest(&self.key, &kept.etag, kept.file.written());
        let rest = within(retry.silence(), "get", &self.object.path, rest).await?;
        Ok(rest.filter(|rest| rest.size == Some(kept.size)))
    }

    /// Holds a body of at most `most` bytes.
    async fn hold(&self, body: &mut Body, most: u64) -> Result<Content> {
        let mut whole: Option<Bytes> = None;
        let mut parts = BytesMut::new();
        while let Some(chunk) = self.next(body).await? {
            if self.moved.load(Ordering::Relaxed) > most {
                return Err(Error::new("get", &self.object.path, ErrorKind::TooLarge));
            }
            match whole.take() {
                None if parts.is_empty() => whole = Some(chunk),
                None => parts.extend_from_slice(&chunk),
                Some(first) => {
                    parts.reserve(usize::try_from(most).unwrap_or(0));
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
        body: &mut Body,
        partial: Option<Partial>,
        (etag, attributes): (Option<&str>, &Attributes),
    ) -> Result<Content> {
        let attributes = attributes.clone();
        let (sender, mut chunks) = mpsc::channel::<Option<Bytes>>(CHUNKS);
        let (target, path) = (self.target.clone(), self.object.path.clone());
        let writer = blocking("write", move || {
            let (mut file, mut hash) = match partial {
                Some(partial) => (partial.file, partial.hash),
                None => (target.open(&attributes)?, Sha256::new()),
            };
            while let Some(chunk) = chunks.blocking_recv() {
                let Some(chunk) = chunk else {
                    let size = file.written();
                    target.commit(file)?;
                    return Ok(Filed::Whole(Content::Filed { digest: hash.finalize().into(), size }));
                };
                hash.update(&chunk);
                file.write_all(&chunk).map_err(|error| Error::from_io("write", &path, error))?;
            }
            Ok(Filed::Part(Box::new(file), hash))
        });
        let size = body.size;
        let left = size.unwrap_or(self.object.size).saturating_sub(self.moved.load(Ordering::Relaxed));
        // The sender goes with the reader, and then the writer knows that no more will come.
        let reader = async move {
            loop {
                let chunk = self.next(body).await?;
                let last = chunk.is_none();
                // The writer ends early only if it failed, and its error is returned.
                if sender.send(chunk).await.is_err() || last {
                    return Ok(());
                }
            }
        };
        let reader = within(self.fetcher.client.retry.deadline(left), "get", &self.object.path, reader);
        match futures_util::future::join(writer, reader).await {
            (Ok(Filed::Whole(content)), Ok(())) => Ok(content),
            (Ok(Filed::Part(file, hash)), Err(error)) => {
                // A weak version can be that of other bytes.
                if let (Some(etag), Some(size)) = (etag.filter(|etag| !etag.starts_with("W/")), size) {
                    *self.kept() = Some(Partial { file: *file, hash, etag: etag.to_owned(), size });
                }
                Err(error)
            }
            (Err(error), Ok(())) | (_, Err(error)) => Err(error),
            (Ok(Filed::Part(..)), Ok(())) => {
                Err(Error::new("write", &self.object.path, ErrorKind::Io).with_detail("given up half-way"))
            }
        }
    }

    /// The next chunk, counted against all limits; none after the announced end.
    async fn next(&self, body: &mut Body) -> Result<Option<Bytes>> {
        let Client { limits, retry, progress, .. } = self.fetcher.client;
        let path = &self.object.path;
        let chunk =
            within(retry.silence(), "get", path, async { body.chunks.next().await.transpose() }).await?;
        let so_far = self.moved.load(Ordering::Relaxed);
        let Some(chunk) = chunk else {
            return match body.size {
                Some(size) if so_far != size => Err(Error::new("get", path, ErrorKind::Io)
                    .with_detail(format!("body ends after {so_far} of {size} bytes"))),
                // A version that was listed has the size that was listed.
                None if self.object.version.etag.is_some() && so_far != self.object.size => {
                    Err(Error::new("get", path, ErrorKind::Io).with_detail(format!(
                        "body ends after {so_far} bytes, and {} were listed",
                        self.object.size
                    )))
                }
                _ => Ok(None),
            };
        };
        let bytes = chunk.len() as u64;
        let now = so_far + bytes;
        self.moved.store(now, Ordering::Relaxed);
        let taken = self.fetcher.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if body.size.is_some_and(|size| now > size) {
            return Err(Error::new("get", path, ErrorKind::Io).with_detail("body is longer than announced"));
        }
        if now > limits.file_bytes || taken > limits.bytes {
            return Err(Error::new("get", path, ErrorKind::TooLarge));
        }
        progress.report(&Event::Moved { path, bytes });
        Ok(Some(chunk))
    }
}
