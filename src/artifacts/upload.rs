//! One file to the store, read through its handle.
//!
//! A file that goes in one request is put on a condition, a larger one in [`parts`] that become an object on a
//! condition. What to make of a condition that does not hold is found out in [`settle`].

mod parts;
mod settle;

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Artifacts;
use super::key::Prefix;
use super::leftover::Leftovers;
use super::limits::{ObjectLimits, Retry};
use super::parts::Parts;
use super::progress::{Event, Progress};
use super::record::{Digest, Record, Stamp};
use super::snapshot::is_fresh;
use super::source::{Condition, Source, is_transient};
use super::state::{Places, blocking};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::ContainedFile;

/// Memory for content on its way, in MiB. What needs more has it to itself.
const MEMORY: usize = 48;

/// Uploads files, and knows what the store held when it was last looked at.
#[derive(Debug)]
pub(crate) struct Uploader {
    source: Source,
    prefix: Prefix,
    limits: ObjectLimits,
    retry: Retry,
    progress: Progress,
    places: Arc<Places>,
    memory: Semaphore,
    room: Mutex<Room>,
    leftovers: Leftovers,
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

    fn take(&mut self, path: &SafePath, size: u64) -> Result<()> {
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
pub(crate) enum Uploaded {
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
pub(crate) struct Known<'a> {
    pub(crate) base: Option<&'a Record>,
    /// Content that this host may have put there before it was interrupted.
    pub(crate) ours: &'a [Digest],
    /// Whether to overwrite whatever is there.
    pub(crate) always: bool,
}

impl Known<'_> {
    fn condition(&self) -> Condition<'_> {
        match self.base {
            _ if self.always => Condition::Always,
            Some(Record { etag: Some(etag), .. }) => Condition::Unchanged(etag),
            // A store without versions cannot tell whether anything has changed.
            Some(_) => Condition::Always,
            None => Condition::Absent,
        }
    }
}

/// What was read of a file.
#[derive(Debug)]
struct Content<'a> {
    path: &'a SafePath,
    size: u64,
    digest: Digest,
    stamp: Option<Box<Stamp>>,
}

impl Content<'_> {
    fn record(self, etag: Option<String>) -> Record {
        let Self { path, size, digest, stamp } = self;
        Record { path: path.clone(), size, etag: etag.map(Into::into), digest, stamp }
    }
}

/// Content that only has to be made the object.
#[derive(Debug)]
enum Ready<'a> {
    Whole(Bytes),
    Parts(&'a Parts),
}

impl Uploader {
    /// Uploads no more than fits into `room`.
    pub(crate) fn new(artifacts: &Artifacts, room: Room, leftovers: Leftovers) -> Self {
        Self {
            source: artifacts.source.clone(),
            prefix: artifacts.prefix.clone(),
            limits: artifacts.limits,
            retry: artifacts.retry,
            progress: artifacts.progress.clone(),
            places: Arc::clone(&artifacts.places),
            memory: Semaphore::new(MEMORY),
            room: Mutex::new(room),
            leftovers,
        }
    }

    /// Brings the file at `path` to the store unless it is there. `intend` is told the hash before the store is.
    pub(crate) async fn upload(
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
        self.progress.tell(&Event::Started { path, bytes: size });
        let result = if size <= self.source.whole() {
            self.upload_whole(&key, path, file, known, intend).await
        } else {
            self.upload_parts(&key, path, file, known, intend).await
        };
        if let Ok(Uploaded::Put(record) | Uploaded::Same(record)) = &result {
            self.progress.tell(&Event::Done { path, bytes: record.size });
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
            self.progress.tell(&Event::Moved { path, bytes: size });
        }
        result
    }

    /// One put, retried. A store that cannot put on a condition is asked first and put to afterwards.
    pub(crate) async fn put_whole(
        &self,
        key: &str,
        path: &SafePath,
        bytes: Bytes,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        self.call(path, bytes.len() as u64, || async {
            match self.source.put(key, bytes.clone(), condition).await {
                Err(error) if error.kind() == ErrorKind::Unsupported && condition != Condition::Always => {
                    self.compare(key, condition).await?;
                    self.source.put(key, bytes.clone(), Condition::Always).await
                }
                result => result,
            }
        })
        .await
    }

    /// Removes the object `key`.
    pub(crate) async fn delete(&self, key: &str, path: &SafePath) -> Result<()> {
        self.call(path, 0, || self.source.delete(key)).await
    }

    /// A call to the store that moves `bytes`, retried.
    async fn call<T, C: Future<Output = Result<T>>>(
        &self,
        path: &SafePath,
        bytes: u64,
        call: impl FnMut() -> C,
    ) -> Result<T> {
        self.retry.run(&self.progress, path, self.retry.deadline(bytes), call).await
    }

    async fn reserve(&self, bytes: u64) -> Result<SemaphorePermit<'_>> {
        let permits = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).saturating_add(1);
        self.memory
            .acquire_many(permits.min(MEMORY as u32))
            .await
            .map_err(|error| Error::new("put", ".", ErrorKind::Io).with_source(std::io::Error::other(error)))
    }
}

/// The next `size` bytes of a file, or what is left of it.
fn read<R: std::io::Read>(subject: &SafePath, mut file: R, size: u64) -> Result<(R, Bytes)> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.by_ref()
        .take(size)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::new("read", subject, ErrorKind::Io).with_source(error))?;
    Ok((file, Bytes::from(bytes)))
}

/// The stamp of an open file, unless a change right now could leave it as it is.
fn lasting_stamp(file: &ContainedFile) -> Option<Box<Stamp>> {
    let stamp = Stamp::of(file.metadata());
    if is_fresh(&stamp, SystemTime::now()) { None } else { Some(Box::new(stamp)) }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Busy)
}

/// Whether the next mirror may succeed where this one did not.
pub(crate) fn may_pass(error: &Error) -> bool {
    is_transient(error)
        || matches!(error.kind(), ErrorKind::Denied | ErrorKind::TooMany | ErrorKind::Unsupported)
}
