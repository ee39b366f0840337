//! What every store does, and what a store can do.
//!
//! Problem: stores differ in what they promise. One compares and puts in one step, one compares first, one does not
//! compare; one lists each key as it is, one ends its listing at the first key that is no path.
//!
//! Defence: a store is one file that implements [`Backend`]. The code above asks for [`Abilities`] and never which
//! store it is. One suite of claims runs against every implementation and every server.
//!
//! What remains: a server may claim an ability and not have it. [`Compares::AsServer`] marks what depends on the server.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::BoxStream;

use super::attributes::Attributes;
use super::object::{Body, Condition, Doomed, Head, Listed};
use super::retry::Retry;
use crate::error::{Error, ErrorKind, Result};

/// An object store.
///
/// A call is one attempt: the caller repeats it. Every error has the key or the prefix as its subject.
pub trait Backend: fmt::Debug + Send + Sync {
    /// What the store can do.
    fn abilities(&self) -> Abilities;

    /// Which store it is: text that is the same for the same bucket or directory, and another for any other.
    fn identity(&self) -> String;

    /// The store's own time at its last answer, in seconds since the epoch, where it says it.
    fn time(&self) -> Option<i64> {
        None
    }

    /// Lists every object whose key starts with `prefix`, in the store's order. The stream ends after its first error.
    ///
    /// A listing is many calls: what of it fails is asked for again as `retry` says.
    fn list(&self, prefix: &str, retry: Retry) -> BoxStream<'static, Result<Listed>>;

    /// Opens the object `key`. With `etag`, a store that can compare fails with `Busy` for another version.
    fn get<'a>(&'a self, key: &'a str, etag: Option<&'a str>) -> BoxFuture<'a, Result<Body>>;

    /// The object `key` from byte `from` on; none if the store does not return exactly that of the version `etag`.
    fn rest<'a>(&'a self, key: &'a str, etag: &'a str, from: u64) -> BoxFuture<'a, Result<Option<Body>>>;

    /// Size, version and attributes of the object `key`, or none if there is no such object.
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Head>>>;

    /// Writes the object `key`, with what it says of its file, if `condition` holds, and returns its version.
    ///
    /// Fails with `AlreadyExists` or `Busy` if the condition does not hold, with `Unsupported` if the store knows no
    /// such condition.
    fn put<'a>(
        &'a self,
        key: &'a str,
        content: Bytes,
        attributes: &'a Attributes,
        condition: Condition<'a>,
    ) -> BoxFuture<'a, Result<Option<String>>>;

    /// Starts an upload of the object `key` in parts.
    fn begin<'a>(&'a self, key: &'a str, attributes: &'a Attributes)
    -> BoxFuture<'a, Result<Box<dyn Parts>>>;

    /// Discards an upload that an earlier call has started; one that is not there counts as discarded.
    fn abort<'a>(&'a self, key: &'a str, id: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Removes the object `key`; one that is not there counts as removed.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Removes the object `key` if it has the version `etag`; one that is not there counts as removed, or as changed.
    ///
    /// Fails with `Busy` if it has another version, with `Unsupported` if the store knows no such condition.
    fn delete_if<'a>(&'a self, key: &'a str, etag: &'a str) -> BoxFuture<'a, Result<()>> {
        let _ = etag;
        std::future::ready(Err(unconditional(key))).boxed()
    }

    /// Removes several objects, at most as many as [`Abilities::bulk`]; returns what became of each, in their order.
    ///
    /// Fails as a whole if the store answers nothing about any of them, with `Unsupported` if it knows no such call. A version
    /// is compared as [`Abilities::delete_many`] says.
    fn delete_many<'a>(&'a self, objects: &'a [Doomed]) -> BoxFuture<'a, Result<Vec<Result<()>>>> {
        async move {
            let mut outcomes = Vec::with_capacity(objects.len());
            for object in objects {
                outcomes.push(self.delete(&object.key).await);
            }
            Ok(outcomes)
        }
        .boxed()
    }

    /// A URL that lets anybody read the object `key` until `valid` has passed, as an answer with this `Content-Disposition`.
    fn sign<'a>(
        &'a self,
        key: &'a str,
        valid: Duration,
        disposition: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String>>;
}

/// Why an object is not removed on a condition.
pub(super) fn unconditional(key: &str) -> Error {
    Error::new("delete", key, ErrorKind::Unsupported)
        .with_detail("the store does not compare and delete in one step")
}

/// An upload in parts. Nobody sees the object before it is complete.
pub trait Parts: fmt::Debug + Send + Sync {
    /// The id by which [`Backend::abort`] discards the upload later, where the store has such ids.
    fn id(&self) -> Option<&str>;

    /// Puts the next part.
    fn put(&self, part: Bytes) -> BoxFuture<'_, Result<()>>;

    /// Publishes the object and returns its version. The store checks `condition` only as its abilities say; the upload
    /// stays if the condition does not hold.
    fn complete<'a>(&'a self, condition: Condition<'a>) -> BoxFuture<'a, Result<Option<String>>>;

    /// Discards what was put.
    fn abort(&self) -> BoxFuture<'_, Result<()>>;
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abilities {
    /// How it checks the condition of a put in one request.
    pub put: Conditions,
    /// How it checks the condition of a completion of parts.
    pub complete: Conditions,
    /// How it checks the version of an object that is removed by itself.
    pub delete: Compares,
    /// How it checks the versions of objects that are removed together.
    pub delete_many: Compares,
    /// The most objects to remove in one request.
    pub bulk: usize,
    /// The largest object to put in one request.
    pub whole: u64,
    /// The usual size of a part; only the last is smaller.
    pub part: u64,
    /// The most parts of one object.
    pub parts: u64,
    /// Whether a part or a completion that failed can be sent again.
    pub repeats: bool,
    /// Whether the listing shows every key byte for byte.
    pub raw_keys: bool,
    /// Whether it keeps what an object says of its file.
    pub attributes: bool,
    /// Whether it keeps and lists a key that ends in `/`.
    pub markers: bool,
    /// Whether a version says only what the content is, so that it stays when the same content is put with other attributes.
    pub content_etags: bool,
    /// Whether it can sign URLs.
    pub signs: bool,
}

impl Abilities {
    /// The size of the parts of an object of `size` bytes.
    pub(crate) fn part_of(&self, size: u64) -> u64 {
        self.part.max(size.div_ceil(self.parts.max(1)))
    }
}

/// How a store checks each condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// [`Condition::Absent`].
    pub absent: Compares,
    /// [`Condition::Unchanged`].
    pub unchanged: Compares,
}

impl Conditions {
    pub(super) const fn both(compares: Compares) -> Self {
        Self { absent: compares, unchanged: compares }
    }

    pub(super) fn depends_on_the_server(&self) -> bool {
        [self.absent, self.unchanged].contains(&Compares::AsServer)
    }

    /// How the store checks `condition`.
    pub(crate) fn of(&self, condition: Condition<'_>) -> Compares {
        match condition {
            Condition::Always => Compares::InOneStep,
            Condition::Absent => self.absent,
            Condition::Unchanged(_) => self.unchanged,
        }
    }
}

/// Whether a store compares and writes in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// Yes, always.
    InOneStep,
    /// As the server behind it does; only the answer shows whether it knows the condition.
    AsServer,
    /// No: compare right before.
    Never,
}
