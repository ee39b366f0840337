//! What all uploads of one call share: the store, the room that is left, the memory for content on its way.

use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::artifacts::client::Client;
use crate::artifacts::key::Prefix;
use crate::artifacts::patience::Patience;
use crate::artifacts::progress::Progress;
use crate::artifacts::state::{FileId, Known, Places, PutAt, Uploads, Version};
use crate::artifacts::store::{
    Attributes, Compares, Condition, Conditions, Kind, Parts, Retry, Source, changed, is_transient,
    same_version,
};
use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{ContainedFile, Linked, Metadata, Root, WalkLimits};
use crate::tree::{Digest, Leaf, ObjectLimits, Stamp, is_fresh};

/// Memory for content on its way, in MiB. What needs more has it to itself.
const MEMORY: usize = 48;

/// Uploads files within the limits of one call.
#[derive(Debug)]
pub(crate) struct Uploader {
    pub(super) source: Source,
    pub(super) prefix: Prefix,
    pub(super) limits: ObjectLimits,
    pub(super) retry: Retry,
    pub(super) patience: Patience,
    pub(super) progress: Progress,
    pub(super) places: Arc<Places>,
    /// The files that have several names.
    pub(super) linked: Arc<Mutex<Linked>>,
    /// A time by the clock of the file system, before any file was opened.
    pub(super) now: SystemTime,
    memory: Semaphore,
    pub(super) room: Mutex<Room>,
    pub(super) uploads: Uploads,
    puts: OnceCell<Conditions>,
    completions: OnceCell<Conditions>,
    unconditional: AtomicU64,
}

/// What the limits leave for files that are still to be uploaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    objects: u64,
    bytes: u64,
}

impl Room {
    /// All that `limits` allow, less what is in the store and stays there, of these sizes.
    pub(crate) fn beside(limits: &ObjectLimits, staying: impl Iterator<Item = u64>) -> Self {
        staying.fold(Self { objects: limits.objects, bytes: limits.bytes }, |room, size| Self {
            objects: room.objects.saturating_sub(1),
            bytes: room.bytes.saturating_sub(size),
        })
    }

    pub(crate) fn take(&mut self, path: &GuestPath, size: u64) -> Result<()> {
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
    Put(Known),
    /// The store held it already.
    Same(Known),
    /// The store holds something else than it did.
    Conflict,
    /// There is no room for it.
    Over(Error),
}

impl Uploaded {
    /// The same, of the file that `file` says where nobody has seen which it is.
    pub(super) fn by(self, file: impl FnOnce() -> Option<FileId>) -> Self {
        let named = |known: Known| Known { file: known.file.or_else(file), ..known };
        match self {
            Self::Put(known) => Self::Put(named(known)),
            Self::Same(known) => Self::Same(named(known)),
            other => other,
        }
    }
}

/// What is known of the object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'a> {
    /// What the store had when it was last looked at; none if it had nothing.
    pub(crate) known: Option<&'a Known>,
    /// Content that this host may have put there before it was interrupted.
    pub(crate) ours: &'a [Digest],
}

impl Before<'_> {
    pub(super) fn condition(&self) -> Condition<'_> {
        match self.known {
            Some(Known { version: Version { etag: Some(etag), .. }, .. }) => Condition::Unchanged(etag),
            // Without versions there is nothing to compare.
            Some(_) => Condition::Always,
            None => Condition::Absent,
        }
    }
}

/// What was read of a file or a link.
#[derive(Debug)]
pub(crate) struct Content<'a> {
    pub(crate) path: &'a GuestPath,
    pub(crate) leaf: Leaf,
    pub(crate) digest: Digest,
    pub(crate) file: Seen,
    /// What the object says of it.
    pub(crate) attributes: Attributes,
}

/// The file that was read; nothing of it for a link, and for content that was given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    stamp: Option<Stamp>,
    /// Whether no later change can leave the stamp as it is.
    lasts: bool,
    id: Option<FileId>,
}

/// What the object of a file says of it.
pub(super) fn attributes(file: &Metadata) -> Result<Attributes> {
    let mut attributes = Attributes::default();
    (attributes.mode, attributes.modified) = (Some(file.mode() & 0o777), Some(file.modified()));
    identified(attributes)
}

/// With an id by which this host knows its own put again.
pub(crate) fn identified(mut attributes: Attributes) -> Result<Attributes> {
    let id = unguessable().map_err(|errno| Error::from_errno("put", ".", errno))?;
    attributes.put_id = Some(id);
    Ok(attributes)
}

/// The leaf of a file with this mode.
pub(crate) fn leaf(bytes: u64, sha256: Digest, attributes: &Attributes) -> Leaf {
    Leaf::File { bytes, sha256, execute: attributes.mode.is_some_and(|mode| mode & 0o100 != 0) }
}

impl Seen {
    /// The file as it was opened, after `now` by the clock of its file system.
    pub(super) fn of(file: &ContainedFile, now: SystemTime) -> Self {
        let stamp = Stamp::of(file.metadata());
        let lasts = !is_fresh(&stamp, now);
        let id = Some(FileId::of(file.metadata()));
        Self { stamp: Some(stamp), lasts, id }
    }
}

impl Content<'_> {
    /// What is known of it once it is in the store in this version.
    pub(super) fn known(self, version: Version) -> Known {
        let Self { leaf, file, attributes, .. } = self;
        let stamp = file.stamp.filter(|_| file.lasts).map(Box::new);
        let mode = attributes.mode.filter(|_| attributes.kind == Kind::File);
        Known { leaf, version, mode, file: file.id, stamp }
    }
}

/// Content that only has to be made the object.
#[derive(Debug)]
pub(crate) enum Ready<'a> {
    Whole(Bytes),
    Parts(&'a dyn Parts),
}

impl Uploader {
    /// Uploads no more than fits into `room`.
    pub(crate) fn new(
        client: &Client,
        places: &Arc<Places>,
        room: Room,
        uploads: Uploads,
        now: SystemTime,
    ) -> Self {
        let walk = WalkLimits::default().with_entries(client.limits.objects.saturating_mul(2));
        Self {
            source: client.source.clone(),
            prefix: client.prefix.clone(),
            limits: client.limits,
            retry: client.retry,
            patience: Patience::of(client.retry),
            progress: client.progress.clone(),
            places: Arc::clone(places),
            linked: Arc::new(Mutex::new(Linked::new(walk))),
            now,
            memory: Semaphore::new(MEMORY),
            room: Mutex::new(room),
            uploads,
            puts: OnceCell::new(),
            completions: OnceCell::new(),
            unconditional: AtomicU64::new(0),
        }
    }

    /// One put, retried. Where the store is not seen to keep the condition, it is asked first.
    pub(super) async fn put_whole(
        &self,
        key: &str,
        path: &GuestPath,
        bytes: Bytes,
        attributes: &Attributes,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        let store = self.source.backend();
        let compares = self.puts().await.of(condition);
        let put = self.call(path, bytes.len() as u64, || async {
            if compares != Compares::InOneStep {
                self.compare(key, condition).await?;
            }
            let sent = if compares == Compares::Never { Condition::Always } else { condition };
            match store.put(key, bytes.clone(), attributes, sent).await {
                Err(error) if error.kind() == ErrorKind::Unsupported && sent != Condition::Always => {
                    self.compare(key, condition).await?;
                    Ok((store.put(key, bytes.clone(), attributes, Condition::Always).await?, Compares::Never))
                }
                done => Ok((done?, compares)),
            }
        });
        let (etag, compared) = put.await?;
        self.count(if condition == Condition::Always { Compares::Never } else { compared });
        Ok(etag)
    }

    /// Counts what was put or deleted, unless the store has compared it in the same step.
    pub(super) fn count(&self, compared: Compares) {
        if compared != Compares::InOneStep {
            self.unconditional.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were put or deleted that the store did not compare in the same step.
    pub(crate) fn unconditional(&self) -> u64 {
        self.unconditional.load(Ordering::Relaxed)
    }

    /// How the store checks the condition of a put; found out once in a call, even if it cannot be found out.
    async fn puts(&self) -> Conditions {
        *self.puts.get_or_init(|| self.source.puts(&self.prefix, self.retry)).await
    }

    /// The same for a completion.
    pub(super) async fn completions(&self) -> Conditions {
        *self.completions.get_or_init(|| self.source.completions(&self.prefix, self.retry)).await
    }

    /// The version of an object that the store has just answered for.
    pub(super) fn version(&self, etag: Option<String>) -> Version {
        Version { put_at: self.source.backend().time().map(PutAt::By), ..Version::of(etag) }
    }

    /// A call to the store that moves `bytes`, retried.
    pub(super) async fn call<T, C: Future<Output = Result<T>>>(
        &self,
        path: &GuestPath,
        bytes: u64,
        mut call: impl FnMut() -> C,
    ) -> Result<T> {
        let calls = self.retry.about(&self.progress, path).within(self.retry.deadline(bytes));
        self.patience.call(path, calls.run(|_| call())).await
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
                .is_some_and(|object| object.etag.is_some_and(|found| same_version(&found, etag))),
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
pub(super) fn read<R: std::io::Read>(subject: &GuestPath, mut file: R, size: u64) -> Result<(R, Bytes)> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.by_ref()
        .take(size)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::new("read", subject, ErrorKind::Io).with_source(error))?;
    Ok((file, Bytes::from(bytes)))
}

/// Fails if the file at `path` is not the one that was read any more, or has changed since.
pub(super) fn unchanged(root: &Root, path: &GuestPath, seen: Seen) -> Result<()> {
    let now = root.metadata(path).ok().map(|metadata| Stamp::of(&metadata));
    match now == seen.stamp {
        true => Ok(()),
        false => Err(Error::new("put", path, ErrorKind::Busy).with_detail("changes while it is sent")),
    }
}

pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Busy)
}

/// Whether the next call may succeed where this one did not.
pub(crate) fn may_pass(error: &Error) -> bool {
    is_transient(error)
        || matches!(error.kind(), ErrorKind::Denied | ErrorKind::TooMany | ErrorKind::Unsupported)
}
