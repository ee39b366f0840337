//! A bucket: by raw keys where the store's own client rewrites them, and by that client elsewhere.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::client::Raw;
use super::list;
use crate::artifacts::store::attributes::Attributes;
use crate::artifacts::store::backend::{Abilities, Backend, Compares, Parts, unconditional};
use crate::artifacts::store::generic::{Generic, location};
use crate::artifacts::store::object::{Body, Condition, Doomed, Head, Listed};
use crate::artifacts::store::retry::Retry;
use crate::error::{Error, ErrorKind, Result};

/// Requests at a time that remove one object each.
const REMOVALS: usize = 10;

/// What the client of a store does in a way that asks for requests of our own.
pub(crate) trait More: Send + Sync {
    /// As [`Backend::begin`].
    fn begin<'a>(&'a self, key: &'a str, attributes: &'a Attributes)
    -> BoxFuture<'a, Result<Box<dyn Parts>>>;

    /// As [`Backend::abort`].
    fn abort<'a>(&'a self, key: &'a str, id: &'a str) -> BoxFuture<'a, Result<()>>;

    /// As [`Backend::delete_many`].
    fn delete_many<'a>(&'a self, objects: &'a [Doomed]) -> BoxFuture<'a, Result<Vec<Result<()>>>>;
}

/// A bucket of a cloud.
pub(crate) struct Bucket {
    pub(crate) raw: Arc<Raw>,
    pub(crate) client: Generic,
    /// What it can do, given what its client can.
    pub(crate) abilities: fn(Abilities) -> Abilities,
    pub(crate) more: Option<Box<dyn More>>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl Bucket {
    async fn remove(&self, key: &str) -> Result<()> {
        // A server that keeps files behind its keys may take one that is no path for another.
        if !key.ends_with('/') {
            location(key)?;
        }
        self.raw.delete(key, None).await
    }
}

impl Backend for Bucket {
    fn abilities(&self) -> Abilities {
        (self.abilities)(Abilities { raw_keys: true, markers: true, ..self.client.abilities() })
    }

    fn identity(&self) -> String {
        self.raw.url.clone()
    }

    fn time(&self) -> Option<i64> {
        self.raw.clock.now()
    }

    fn list(&self, prefix: &str, retry: Retry) -> BoxStream<'static, Result<Listed>> {
        list::list(Arc::clone(&self.raw), prefix.to_owned(), retry)
    }

    // A raw key names one object, so whichever version is there is the right one.
    fn get<'a>(&'a self, key: &'a str, _: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        self.raw.get(key).boxed()
    }

    fn rest<'a>(&'a self, key: &'a str, etag: &'a str, from: u64) -> BoxFuture<'a, Result<Option<Body>>> {
        self.raw.rest(key, etag, from).boxed()
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Head>>> {
        match key.ends_with('/') {
            true => self.raw.head_marker(key).boxed(),
            false => self.client.head(key),
        }
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        content: Bytes,
        attributes: &'a Attributes,
        condition: Condition<'a>,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        match key.ends_with('/') {
            true => self.raw.put_marker(key, attributes).boxed(),
            false => self.client.put(key, content, attributes, condition),
        }
    }

    fn begin<'a>(
        &'a self,
        key: &'a str,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        match &self.more {
            Some(more) => more.begin(key, attributes),
            None => self.client.begin(key, attributes),
        }
    }

    fn abort<'a>(&'a self, key: &'a str, id: &'a str) -> BoxFuture<'a, Result<()>> {
        match &self.more {
            Some(more) => more.abort(key, id),
            None => self.client.abort(key, id),
        }
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        self.remove(key).boxed()
    }

    fn delete_if<'a>(&'a self, key: &'a str, etag: &'a str) -> BoxFuture<'a, Result<()>> {
        match self.abilities().delete {
            Compares::Never => std::future::ready(Err(unconditional(key))).boxed(),
            _ => self.raw.delete(key, Some(etag)).boxed(),
        }
    }

    fn delete_many<'a>(&'a self, objects: &'a [Doomed]) -> BoxFuture<'a, Result<Vec<Result<()>>>> {
        match &self.more {
            Some(more) => more.delete_many(objects),
            // Not by the client: that of Azure takes what an answer does not mention for removed, and panics if it mentions what
            // nobody has asked for.
            None => {
                let removals: Vec<_> =
                    objects.iter().map(|object| self.remove(&object.key).boxed()).collect();
                stream::iter(removals).buffered(REMOVALS).collect().map(Ok).boxed()
            }
        }
    }

    fn sign<'a>(
        &'a self,
        key: &'a str,
        valid: Duration,
        disposition: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String>> {
        match self.raw.cloud.signs(key) {
            true => self.client.sign(key, valid, disposition),
            false => {
                let error = Error::new("sign", key, ErrorKind::Unsupported)
                    .with_detail("the store's client signs no name that a URL encodes");
                std::future::ready(Err(error)).boxed()
            }
        }
    }
}
