//! One file to the store, read through its handle.

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::PutPayload;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::fetch::within;
use super::key::Prefix;
use super::limits::{ObjectLimits, Retry};
use super::progress::{Event, Progress};
use super::record::{Digest, Record, Stamp};
use super::snapshot::{digest, is_fresh};
use super::source::{Condition, Source, changed, is_transient, store_error};
use super::state::{Places, blocking};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::root::ContainedFile;

/// Files up to this size go in one request; others in parts of it.
const PART: usize = 8 << 20;
/// Memory for content on its way, in MiB.
const MEMORY: usize = 48;

/// Uploads files, and knows what the store held when it was last looked at.
#[derive(Debug)]
pub(crate) struct Uploader {
    pub(crate) source: Source,
    pub(crate) prefix: Prefix,
    pub(crate) limits: ObjectLimits,
    pub(crate) retry: Retry,
    pub(crate) progress: Progress,
    pub(crate) places: Arc<Places>,
    memory: Semaphore,
    room: Mutex<Room>,
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

impl Uploader {
    pub(crate) fn new(
        source: Source,
        prefix: Prefix,
        limits: ObjectLimits,
        retry: Retry,
        progress: Progress,
        places: Arc<Places>,
    ) -> Self {
        let room = Mutex::new(Room::beside(&limits, std::iter::empty()));
        Self { source, prefix, limits, retry, progress, places, memory: Semaphore::new(MEMORY), room }
    }

    /// Uploads no more than fits into `room`.
    pub(crate) fn with_room(self, room: Room) -> Self {
        Self { room: Mutex::new(room), ..self }
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
        let result = if size <= PART as u64 {
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
        let _memory = self.reserve(file.len_hint()).await?;
        let subject = path.clone();
        let (bytes, stamp) = blocking("read", move || {
            let stamp = lasting_stamp(&file);
            let mut bytes = Vec::new();
            // What a guest appends meanwhile comes with the next mirror.
            let mut file = file.take(PART as u64);
            file.read_to_end(&mut bytes)
                .map_err(|error| Error::new("read", &subject, ErrorKind::Io).with_source(error))?;
            Ok((Bytes::from(bytes), stamp))
        })
        .await?;
        let digest: Digest = Sha256::digest(&bytes).into();
        let size = bytes.len() as u64;
        let record = |etag: Option<String>| Record {
            path: path.clone(),
            size,
            etag: etag.map(Into::into),
            digest,
            stamp: stamp.clone(),
        };
        if let Some(base) = known.base.filter(|base| base.digest == digest) {
            return Ok(Uploaded::Same(record(base.etag.as_deref().map(str::to_owned))));
        }
        intend(path, &digest)?;
        let put = |condition| self.put_whole(key, path, bytes.clone(), condition);
        let etag = match put(known.condition()).await {
            Ok(etag) => etag,
            Err(error) if is_conflict(&error) => match self.settle(key, path, &digest, known).await? {
                Settled::Same(etag) => return Ok(Uploaded::Same(record(etag))),
                Settled::Ours(Some(etag)) => match put(Condition::Unchanged(&etag)).await {
                    Err(error) if is_conflict(&error) => return Ok(Uploaded::Conflict),
                    result => result?,
                },
                Settled::Ours(None) => put(Condition::Always).await?,
                Settled::Gone => match put(Condition::Absent).await {
                    Err(error) if is_conflict(&error) => return Ok(Uploaded::Conflict),
                    result => result?,
                },
                Settled::Theirs => return Ok(Uploaded::Conflict),
            },
            Err(error) => return Err(error),
        };
        self.progress.tell(&Event::Moved { path, bytes: size });
        Ok(Uploaded::Put(record(etag)))
    }

    /// One put, retried. A store that cannot put on a condition is asked first and put to afterwards.
    pub(crate) async fn put_whole(
        &self,
        key: &str,
        path: &SafePath,
        bytes: Bytes,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        let deadline = self.retry.deadline(bytes.len() as u64);
        let mut attempt = 1;
        loop {
            let result = match within(deadline, path, self.source.put(key, bytes.clone(), condition)).await {
                Err(error) if error.kind() == ErrorKind::Unsupported && condition != Condition::Always => {
                    self.compare(key, condition).await?;
                    within(deadline, path, self.source.put(key, bytes.clone(), Condition::Always)).await
                }
                result => result,
            };
            let Err(error) = result else { return result };
            let pause = if error.kind() == ErrorKind::Io { self.retry.pause(attempt) } else { None };
            let Some(delay) = pause else { return Err(error) };
            self.progress.tell(&Event::Retried { path, attempt, moved: 0, delay, error: &error });
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
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
        let _memory = self.reserve(2 * PART as u64).await?;
        let stamp = lasting_stamp(&file);
        if let Some(base) = known.base.filter(|base| base.size == size) {
            let (places, wanted, limit) = (Arc::clone(&self.places), path.clone(), self.limits.file_bytes);
            let (_, found) = blocking("read", move || digest(&places.workspace, &wanted, limit)).await?;
            if found == base.digest {
                return Ok(Uploaded::Same(Record { stamp, ..base.clone() }));
            }
        }
        let mut upload = self.source.put_parts(key).await?;
        let mut hash = Sha256::new();
        let (mut file, mut sent) = (Some(file.take(size)), 0);
        let sending = async {
            while let Some(mut open) = file.take() {
                let subject = path.clone();
                let (open, part) = blocking("read", move || {
                    let mut part = Vec::with_capacity(PART);
                    open.by_ref()
                        .take(PART as u64)
                        .read_to_end(&mut part)
                        .map_err(|error| Error::new("read", &subject, ErrorKind::Io).with_source(error))?;
                    Ok((open, part))
                })
                .await?;
                if part.is_empty() {
                    return Ok(());
                }
                hash.update(&part);
                let bytes = part.len() as u64;
                let put = upload.put_part(PutPayload::from(part));
                let put = async { put.await.map_err(|error| store_error("put", key, error)) };
                within(self.retry.deadline(bytes), path, put).await?;
                sent += bytes;
                self.progress.tell(&Event::Moved { path, bytes });
                file = Some(open);
            }
            Ok(())
        };
        if let Err(error) = sending.await {
            // The first error is the one to tell; parts that stay are the store's to expire.
            let _ = upload.abort().await;
            return Err(error);
        }
        let digest: Digest = hash.finalize().into();
        let record = |etag: Option<String>| Record {
            path: path.clone(),
            size: sent,
            etag: etag.map(Into::into),
            digest,
            stamp: stamp.clone(),
        };
        intend(path, &digest)?;
        if let Err(error) = self.compare(key, known.condition()).await {
            let settled = match is_conflict(&error) {
                true => self.settle(key, path, &digest, known).await,
                false => Err(error),
            };
            // Reading the object took its time: it is compared once more with what was read.
            let settled = match settled {
                Ok(Settled::Ours(Some(etag))) => {
                    self.compare(key, Condition::Unchanged(&etag)).await.map(|()| Settled::Ours(Some(etag)))
                }
                Ok(Settled::Gone) => self.compare(key, Condition::Absent).await.map(|()| Settled::Gone),
                settled => settled,
            };
            match settled {
                Ok(Settled::Ours(_) | Settled::Gone) => {}
                Err(error) if is_conflict(&error) => {
                    let _ = upload.abort().await;
                    return Ok(Uploaded::Conflict);
                }
                Ok(Settled::Same(etag)) => {
                    let _ = upload.abort().await;
                    return Ok(Uploaded::Same(record(etag)));
                }
                Ok(Settled::Theirs) => {
                    let _ = upload.abort().await;
                    return Ok(Uploaded::Conflict);
                }
                Err(error) => {
                    let _ = upload.abort().await;
                    return Err(error);
                }
            }
        }
        let done = async { upload.complete().await.map_err(|error| store_error("put", key, error)) };
        let done = within(self.retry.deadline(sent), path, done).await?;
        Ok(Uploaded::Put(record(done.e_tag)))
    }

    /// Asks whether `condition` holds right now.
    pub(crate) async fn compare(&self, key: &str, condition: Condition<'_>) -> Result<()> {
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => self.source.head(key).await?.is_none(),
            Condition::Unchanged(etag) => {
                self.source.head(key).await?.is_some_and(|object| object.etag.as_deref() == Some(etag))
            }
        };
        if holds { Ok(()) } else { Err(changed("put", key)) }
    }

    /// Whether the object is what this session knows of, or has put there before it was interrupted. One that is not
    /// there is as good as that.
    pub(crate) async fn owns(&self, key: &str, path: &SafePath, known: Known<'_>) -> Result<bool> {
        let Some(object) = self.source.head(key).await? else { return Ok(true) };
        let etag = known.base.and_then(|base| base.etag.as_deref());
        let unchanged = known.base.is_some() && (etag.is_none() || object.etag.as_deref() == etag);
        if known.always || unchanged {
            return Ok(true);
        }
        if known.ours.is_empty() {
            return Ok(false);
        }
        Ok(!matches!(self.settle(key, path, &[0; 32], known).await?, Settled::Theirs))
    }

    /// Finds out whose the object is that is in the way.
    async fn settle(&self, key: &str, path: &SafePath, wanted: &Digest, known: Known<'_>) -> Result<Settled> {
        let body = match within(self.retry.silence(), path, self.source.get(key, None)).await {
            Ok(body) => body,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Settled::Gone),
            Err(error) => return Err(error),
        };
        let (etag, mut chunks) = (body.etag, body.chunks);
        let mut hash = Sha256::new();
        let mut read = 0;
        loop {
            let next = async { chunks.next().await.transpose() };
            let Some(chunk) = within(self.retry.silence(), path, next).await? else { break };
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

    async fn reserve(&self, bytes: u64) -> Result<SemaphorePermit<'_>> {
        let permits = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).saturating_add(1);
        self.memory
            .acquire_many(permits.min(MEMORY as u32))
            .await
            .map_err(|error| Error::new("put", ".", ErrorKind::Io).with_source(std::io::Error::other(error)))
    }
}

enum Settled {
    /// It is what was to be put.
    Same(Option<String>),
    /// This host has put it there, before it was interrupted.
    Ours(Option<String>),
    Theirs,
    Gone,
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
