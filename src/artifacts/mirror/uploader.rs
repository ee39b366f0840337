//! What all uploads of one call share: the store, the room that is left, the memory for content on its way.

use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::artifacts::client::Client;
use crate::artifacts::key::Prefix;
use crate::artifacts::progress::Progress;
use crate::artifacts::state::{Places, Record, Uploads};
use crate::artifacts::store::{Compares, Condition, Parts, Retry, Source, changed, is_transient};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::ContainedFile;
use crate::tree::{Digest, ObjectLimits, Stamp, is_fresh};

/// Memory for content on its way, in MiB. What needs more has it to itself.
const MEMORY: usize = 48;

/// Uploads files within the limits of one call.
#[derive(Debug)]
pub(crate) struct Uploader {
    pub(super) source: Source,
    pub(super) prefix: Prefix,
    pub(super) limits: ObjectLimits,
    pub(super) retry: Retry,
    pub(super) progress: Progress,
    pub(super) places: Arc<Places>,
    memory: Semaphore,
    pub(super) room: Mutex<Room>,
    pub(super) uploads: Uploads,
}

/// What the limits leave for files that are still to be uploaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    objects: u64,
    bytes: u64,
}

impl Room {
    /// All that `limits` allow, less what is in the store and stays there.
    pub(crate) fn beside<'a>(limits: &ObjectLimits, staying: impl Iterator<Item = &'a Record>) -> Self {
        staying.fold(Self { objects: limits.objects, bytes: limits.bytes }, |room, record| Self {
            objects: room.objects.saturating_sub(1),
            bytes: room.bytes.saturating_sub(record.size),
        })
    }

    pub(super) fn take(&mut self, path: &SafePath, size: u64) -> Result<()> {
        let over = |kind| Err(Error::new("put", path, kind).with_detail("more than the limit in all"));
        if self.objects == 0 {
            return over(ErrorKind::TooMany);
        }
        if size > self.bytes {
            return over(ErrorKind::TooLarge);
        }
        self.objects -= 1;
        self.bytes -= size;
        Ok(())
    }
}

/// What became of a file.
#[derive(Debug)]
pub(super) enum Uploaded {
    /// The store holds it now.
    Put(Record),
    /// The store held it already.
    Same(Record),
    /// The store holds something else than it did.
    Conflict,
    /// There is no room for it.
    Over(Error),
}

/// What is known of the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) base: Option<&'a Record>,
    /// Content that this host may have put there before it was interrupted.
    pub(super) ours: &'a [Digest],
    /// Whether to overwrite whatever is there.
    pub(super) always: bool,
}

impl Known<'_> {
    pub(super) fn condition(&self) -> Condition<'_> {
        match self.base {
            _ if self.always => Condition::Always,
            Some(Record { etag: Some(etag), .. }) => Condition::Unchanged(etag),
            // Without versions there is nothing to compare.
            Some(_) => Condition::Always,
            None => Condition::Absent,
        }
    }
}

/// What was read of a file.
#[derive(Debug)]
pub(super) struct Content<'a> {
    pub(super) path: &'a SafePath,
    pub(super) size: u64,
    pub(super) digest: Digest,
    pub(super) stamp: Option<Box<Stamp>>,
}

impl Content<'_> {
    pub(super) fn record(self, etag: Option<String>) -> Record {
        let Self { path, size, digest, stamp } = self;
        Record { path: path.clone(), size, etag: etag.map(Into::into), digest, stamp }
    }
}

/// Content that only has to be made the object.
#[derive(Debug)]
pub(super) enum Ready<'a> {
    Whole(Bytes),
    Parts(&'a dyn Parts),
}

impl Uploader {
    /// Uploads no more than fits into `room`.
    pub(crate) fn new(client: &Client, places: &Arc<Places>, room: Room, uploads: Uploads) -> Self {
        Self {
            source: client.source.clone(),
            prefix: client.prefix.clone(),
            limits: client.limits,
            retry: client.retry,
            progress: client.progress.clone(),
            places: Arc::clone(places),
            memory: Semaphore::new(MEMORY),
            room: Mutex::new(room),
            uploads,
        }
    }

    /// One put, retried. A store that cannot put on a condition is asked first and put to afterwards.
    pub(crate) async fn put_whole(
        &self,
        key: &str,
        path: &SafePath,
        bytes: Bytes,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        let store = self.source.backend();
        let asks = store.abilities().put.of(condition) != Compares::Never;
        self.call(path, bytes.len() as u64, || async {
            if asks {
                match store.put(key, bytes.clone(), condition).await {
                    Err(error)
                        if error.kind() == ErrorKind::Unsupported && condition != Condition::Always => {}
                    done => return done,
                }
            }
            self.compare(key, condition).await?;
            store.put(key, bytes.clone(), Condition::Always).await
        })
        .await
    }

    /// Removes the object `key`.
    pub(super) async fn delete(&self, key: &str, path: &SafePath) -> Result<()> {
        self.call(path, 0, || self.source.backend().delete(key)).await
    }

    /// A call to the store that moves `bytes`, retried.
    pub(super) async fn call<T, C: Future<Output = Result<T>>>(
        &self,
        path: &SafePath,
        bytes: u64,
        mut call: impl FnMut() -> C,
    ) -> Result<T> {
        let limit = self.retry.deadline(bytes);
        self.retry.about(&self.progress, path).within(limit).run(|_| call()).await
    }

    /// Asks whether `condition` holds right now.
    pub(super) async fn compare(&self, key: &str, condition: Condition<'_>) -> Result<()> {
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => self.source.backend().head(key).await?.is_none(),
            Condition::Unchanged(etag) => self
                .source
                .backend()
                .head(key)
                .await?
                .is_some_and(|object| object.etag.as_deref() == Some(etag)),
        };
        if holds { Ok(()) } else { Err(changed("put", key)) }
    }

    /// Discards the uploads that an earlier call has left. What cannot be discarded is noted for the next one.
    pub(super) async fn discard_abandoned(&self) {
        for (id, key) in self.uploads.all() {
            let Ok(path) = self.prefix.path(key.as_bytes()) else { continue };
            if self.call(&path, 0, || self.source.backend().abort(&key, &id)).await.is_ok() {
                self.uploads.forget(&id);
            }
        }
    }

    /// Writes down which uploads are left.
    pub(super) fn write_uploads(&self) -> Result<()> {
        self.uploads.write(&self.places.state)
    }

    pub(super) async fn reserve(&self, bytes: u64) -> Result<SemaphorePermit<'_>> {
        let permits = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).saturating_add(1);
        self.memory
            .acquire_many(permits.min(MEMORY as u32))
            .await
            .map_err(|error| Error::new("put", ".", ErrorKind::Io).with_source(std::io::Error::other(error)))
    }
}

/// The next `size` bytes of a file, or what is left of it.
pub(super) fn read<R: std::io::Read>(subject: &SafePath, mut file: R, size: u64) -> Result<(R, Bytes)> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.by_ref()
        .take(size)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::new("read", subject, ErrorKind::Io).with_source(error))?;
    Ok((file, Bytes::from(bytes)))
}

/// The stamp of an open file, unless a change right now could leave it as it is.
pub(super) fn lasting_stamp(file: &ContainedFile) -> Option<Box<Stamp>> {
    let stamp = Stamp::of(file.metadata());
    if is_fresh(&stamp, SystemTime::now()) { None } else { Some(Box::new(stamp)) }
}

pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Busy)
}

/// Whether the next mirror may succeed where this one did not.
pub(super) fn may_pass(error: &Error) -> bool {
    is_transient(error)
        || matches!(error.kind(), ErrorKind::Denied | ErrorKind::TooMany | ErrorKind::Unsupported)
}
