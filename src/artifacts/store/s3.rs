//! S3 by raw keys: listing and reading that never pass a key through a path type.
//!
//! Problem: the store's own listing turns each key into a path. A key that is no path ends the listing, and `/abs` and
//! `dir/` come out as `abs` and `dir`, which are other objects.
//!
//! Defence: requests of our own, with the endpoint, credentials and HTTP client of the store. An upload in parts is
//! completed by one, too, since the store's own completion takes no condition.
//!
//! What remains: a URL cannot hold a `.` or `..` segment, in any spelling, so such a key is listed but not read.

mod client;
mod clock;
mod complete;
mod delete;
mod list;
mod marker;
mod page;
mod read;
mod xml;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::BoxStream;
use object_store::aws::AmazonS3Builder;

use super::attributes::{Attributes, Dialect};
use super::backend::{Abilities, Backend, Compares, Conditions, Parts};
use super::generic::{Generic, location, metadata};
use super::object::{Body, Condition, Doomed, Head, Listed};
use super::retry::Retry;
use crate::error::Result;
use client::Bucket;
#[cfg(fuzzing)]
pub use page::read_page;

/// A bucket, by raw keys where the store's own client rewrites them.
#[derive(Debug)]
struct S3 {
    bucket: Arc<Bucket>,
    client: Generic,
}

/// Opens the bucket that `builder` describes; by raw keys unless it needs more than a plain signature.
pub(super) fn open(builder: AmazonS3Builder) -> Result<Arc<dyn Backend>> {
    let (store, url, bucket) = Bucket::open(builder)?;
    let client = Generic::signing(Arc::new(store)).by_etags();
    Ok(match bucket {
        Some(bucket) => Arc::new(S3 { bucket: Arc::new(bucket), client }),
        None => Arc::new(client.at(url)),
    })
}

impl Backend for S3 {
    fn abilities(&self) -> Abilities {
        Abilities {
            complete: Conditions::both(Compares::AsServer),
            delete: Compares::AsServer,
            delete_many: Compares::AsServer,
            bulk: 1000,
            whole: 8 << 20,
            repeats: true,
            raw_keys: true,
            markers: true,
            content_etags: true,
            ..self.client.abilities()
        }
    }

    fn identity(&self) -> String {
        self.bucket.url.clone()
    }

    fn time(&self) -> Option<i64> {
        self.bucket.clock.now()
    }

    fn list(&self, prefix: &str, retry: Retry) -> BoxStream<'static, Result<Listed>> {
        list::list(Arc::clone(&self.bucket), prefix.to_owned(), retry)
    }

    // A raw key names one object, so whichever version is there is the right one.
    fn get<'a>(&'a self, key: &'a str, _: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        self.bucket.get(key).boxed()
    }

    fn rest<'a>(&'a self, key: &'a str, etag: &'a str, from: u64) -> BoxFuture<'a, Result<Option<Body>>> {
        self.bucket.rest(key, etag, from).boxed()
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Head>>> {
        match key.ends_with('/') {
            true => self.bucket.head_marker(key).boxed(),
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
            true => self.bucket.put_marker(key, attributes).boxed(),
            false => self.client.put(key, content, attributes, condition),
        }
    }

    fn begin<'a>(
        &'a self,
        key: &'a str,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        let attributes = metadata(attributes, Dialect::S3);
        async move { complete::begin(&self.bucket, location(key)?, attributes).await }.boxed()
    }

    fn abort<'a>(&'a self, key: &'a str, id: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { self.bucket.abort(&location(key)?, &id.to_owned()).await }.boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            // A server that keeps files behind its keys may take one that is no path for another.
            if !key.ends_with('/') {
                location(key)?;
            }
            self.bucket.delete(key, None).await
        }
        .boxed()
    }

    fn delete_if<'a>(&'a self, key: &'a str, etag: &'a str) -> BoxFuture<'a, Result<()>> {
        self.bucket.delete(key, Some(etag)).boxed()
    }

    fn delete_many<'a>(&'a self, objects: &'a [Doomed]) -> BoxFuture<'a, Result<Vec<Result<()>>>> {
        self.bucket.delete_many(objects).boxed()
    }

    fn sign<'a>(
        &'a self,
        key: &'a str,
        valid: Duration,
        disposition: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String>> {
        self.client.sign(key, valid, disposition)
    }
}
