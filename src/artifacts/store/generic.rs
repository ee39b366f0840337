//! Any [`ObjectStore`], with its own listing.
//!
//! Problem: a store's own `list` ends at the first key with a `.`, `..` or empty segment or with a control character,
//! and its path type takes `/abs` for `abs` and `dir/` for `dir`.
//!
//! Defence: a key that the path type does not keep byte for byte is never addressed, so no call reaches another object.
//!
//! What remains: one planted key costs all that is in its directory, or the listing. Stores with a file of their own list by raw keys.

mod list;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{
    Attribute, Attributes as StoreAttributes, Error as StoreError, GetOptions, GetRange, GetResult,
    MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    UpdateVersion,
};
use tokio::sync::Mutex;

use super::attributes::{Attributes, Dialect, Kind};
use super::backend::{Abilities, Backend, Compares, Conditions, Parts};
use super::error::{changed, conditional_error, store_error};
use super::object::{Body, Condition, Doomed, Head, Listed, same_version, strong};
use super::retry::Retry;
use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};

/// A store that is asked through its own client.
pub(super) struct Generic {
    store: Arc<dyn ObjectStore>,
    abilities: Abilities,
    /// Whether it has said that it keeps no attributes.
    plain: AtomicBool,
    /// How its own tools spell what an object says of its file.
    dialect: Dialect,
    /// Whether the store may compare by a count of its own instead of by ETags.
    counts: bool,
    /// Which store it is, if its client does not say it.
    identity: Option<String>,
    #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
    signer: Option<Arc<dyn Signer>>,
}

// The clients of some clouds show their keys and tokens.
impl fmt::Debug for Generic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generic").field("identity", &self.identity()).finish_non_exhaustive()
    }
}

/// The abilities of a store of which nothing is known.
const ANY: Abilities = Abilities {
    put: Conditions::both(Compares::AsServer),
    complete: Conditions::both(Compares::Never),
    delete: Compares::Never,
    delete_many: Compares::Never,
    // The most that a client of any store sends in one request but that of S3.
    bulk: 256,
    // A completion overwrites whatever is there by then, so as much as memory allows goes in one request.
    whole: 16 << 20,
    part: 8 << 20,
    parts: 10_000,
    repeats: false,
    raw_keys: false,
    attributes: true,
    markers: false,
    content_etags: false,
    signs: false,
};

impl Generic {
    pub(super) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            abilities: ANY,
            plain: AtomicBool::new(false),
            dialect: Dialect::default(),
            counts: true,
            identity: None,
            #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
            signer: None,
        }
    }

    /// A store that holds every object in memory, so each goes in one request whatever its size.
    pub(super) fn memory(store: Arc<InMemory>) -> Self {
        let put = Conditions::both(Compares::InOneStep);
        let identity = Some(name_of(&store));
        let abilities = Abilities { put, whole: u64::MAX, ..ANY };
        Self { abilities, counts: false, identity, ..Self::new(store) }
    }

    /// A store that also signs URLs.
    #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
    pub(super) fn signing<S: ObjectStore + Signer>(store: Arc<S>) -> Self {
        let abilities = Abilities { signs: true, ..ANY };
        Self { abilities, signer: Some(store.clone()), ..Self::new(store) }
    }

    /// A store whose tools spell what an object says of its file in this way.
    #[cfg(any(feature = "azure", feature = "gcp"))]
    pub(super) fn speaking(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// A store that is known to compare by ETags.
    #[cfg(feature = "aws")]
    pub(super) fn by_etags(self) -> Self {
        Self { counts: false, ..self }
    }

    /// A store whose client does not say where it is.
    #[cfg(feature = "aws")]
    pub(super) fn at(self, url: String) -> Self {
        Self { identity: Some(url), ..self }
    }

    async fn get_whole(&self, key: &str, etag: Option<&str>) -> Result<Body> {
        let result = self.store.get(&location(key)?).await;
        let result = result.map_err(|error| store_error("get", key, error))?;
        if let (Some(wanted), Some(found)) = (etag, &result.meta.e_tag)
            && !same_version(wanted, found)
        {
            return Err(changed("get", key));
        }
        Ok(body(key, result))
    }

    async fn get_rest(&self, key: &str, etag: &str, from: u64) -> Result<Option<Body>> {
        let (if_match, range) = (Some(etag.to_owned()), Some(GetRange::Offset(from)));
        let options = GetOptions { if_match, range, ..GetOptions::default() };
        let result = self.store.get_opts(&location(key)?, options).await;
        match result.map_err(|error| store_error("get", key, error)) {
            Ok(rest) if rest.meta.e_tag.as_deref() == Some(etag) && rest.range == (from..rest.meta.size) => {
                Ok(Some(body(key, rest)))
            }
            Err(error) if error.kind() == ErrorKind::Io => Err(error),
            _ => Ok(None),
        }
    }

    async fn put_whole(
        &self,
        key: &str,
        content: Bytes,
        attributes: &Attributes,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        let (at, content) = (location(key)?, PutPayload::from_bytes(content));
        let put = |version: Option<String>| {
            let mode = match condition {
                Condition::Always => PutMode::Overwrite,
                Condition::Absent => PutMode::Create,
                Condition::Unchanged(etag) => update(etag, version),
            };
            let options = PutOptions { mode, attributes: self.metadata(attributes), ..PutOptions::default() };
            self.store.put_opts(&at, content.clone(), options)
        };
        let put_again = match put(None).await {
            Ok(done) => return Ok(done.e_tag),
            Err(error) if self.is_plain(&error, attributes) => put(None),
            Err(error) => {
                let counted = match (&error, condition) {
                    (StoreError::Generic { .. }, Condition::Unchanged(etag)) if self.counts => {
                        self.version(&at, etag).await?
                    }
                    _ => None,
                };
                match counted {
                    Some(version) => put(Some(version)),
                    // The permission that it names is one of S3.
                    None if condition != Condition::Always && !self.counts => {
                        return Err(conditional_error("put", key, error));
                    }
                    None => return Err(store_error("put", key, error)),
                }
            }
        };
        put_again.await.map(|done| done.e_tag).map_err(|error| store_error("put", key, error))
    }

    /// What an object says of its file, unless the store has said that it keeps nothing of it.
    fn metadata(&self, attributes: &Attributes) -> StoreAttributes {
        match self.plain.load(Ordering::Relaxed) {
            true => StoreAttributes::new(),
            false => metadata(attributes, self.dialect),
        }
    }

    /// Whether the store says by its error that it keeps no attributes, and a file can go without. A link or a directory would
    /// become a file. This holds for all puts that were on their way when the first of them was answered.
    fn is_plain(&self, error: &StoreError, attributes: &Attributes) -> bool {
        let said =
            matches!(error, StoreError::NotImplemented { operation, .. } if operation.contains("attributes"));
        self.plain.fetch_or(said, Ordering::Relaxed);
        said && attributes.kind == Kind::File
    }

    /// The version of an object by the store's own count, where it has one.
    ///
    /// GCS compares generations, which no listing shows: a put on an ETag alone fails before anything is sent, and the
    /// generation is known only from a head. Of stores that do not count there is nothing more to ask.
    async fn version(&self, at: &StorePath, etag: &str) -> Result<Option<String>> {
        match self.store.head(at).await {
            Ok(found) if found.version.is_none() => Ok(None),
            Ok(found) if !found.e_tag.as_deref().is_some_and(|found| same_version(found, etag)) => {
                Err(changed("put", at.as_ref()))
            }
            Ok(found) => Ok(found.version),
            Err(StoreError::NotFound { .. }) => Err(changed("put", at.as_ref())),
            // The failure of the put says more.
            Err(_) => Ok(None),
        }
    }
}

impl Backend for Generic {
    fn abilities(&self) -> Abilities {
        Abilities { attributes: !self.plain.load(Ordering::Relaxed), ..self.abilities }
    }

    fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(|| self.store.to_string())
    }

    // The client asks again as it is set up to.
    fn list(&self, prefix: &str, _: Retry) -> BoxStream<'static, Result<Listed>> {
        match StorePath::parse(prefix) {
            Ok(location) => list::list(Arc::clone(&self.store), location),
            Err(source) => {
                let error = store_error("list", prefix, source.into());
                stream::once(async { Err(error) }).boxed()
            }
        }
    }

    fn get<'a>(&'a self, key: &'a str, etag: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        self.get_whole(key, etag).boxed()
    }

    fn rest<'a>(&'a self, key: &'a str, etag: &'a str, from: u64) -> BoxFuture<'a, Result<Option<Body>>> {
        self.get_rest(key, etag, from).boxed()
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Head>>> {
        async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            match self.store.get_opts(&location(key)?, options).await {
                Ok(found) => {
                    let attributes = said(key, &found.attributes);
                    Ok(Some(Head { size: found.meta.size, etag: found.meta.e_tag, attributes }))
                }
                Err(StoreError::NotFound { .. }) => Ok(None),
                Err(error) => Err(store_error("head", key, error)),
            }
        }
        .boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        content: Bytes,
        attributes: &'a Attributes,
        condition: Condition<'a>,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        self.put_whole(key, content, attributes, condition).boxed()
    }

    fn begin<'a>(
        &'a self,
        key: &'a str,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        async move {
            let at = location(key)?;
            let begin = || {
                let attributes = self.metadata(attributes);
                let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
                self.store.put_multipart_opts(&at, options)
            };
            let upload = match begin().await {
                Err(error) if self.is_plain(&error, attributes) => begin().await,
                upload => upload,
            };
            let upload = Mutex::new(upload.map_err(|error| store_error("put", key, error))?);
            Ok(Box::new(Upload { key: key.to_owned(), upload }) as Box<dyn Parts>)
        }
        .boxed()
    }

    // The client keeps the ids of its uploads to itself.
    fn abort<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            match self.store.delete(&location(key)?).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(store_error("delete", key, error)),
            }
        }
        .boxed()
    }

    fn delete_many<'a>(&'a self, objects: &'a [Doomed]) -> BoxFuture<'a, Result<Vec<Result<()>>>> {
        async move {
            let paths: Result<Vec<_>> = objects.iter().map(|object| location(&object.key)).collect();
            let paths = stream::iter(paths?.into_iter().map(Ok)).boxed();
            let answers: Vec<_> = self.store.delete_stream(paths).collect().await;
            // A request that fails as a whole is answered once, for all that it was about.
            let is_whole = answers.len() == objects.len();
            let outcomes = answers.into_iter().zip(objects).map(|(answer, object)| match answer {
                Ok(_) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(store_error("delete", &object.key, error)),
            });
            let outcomes: Vec<_> = outcomes.collect();
            match outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
                Some(error) if !is_whole => Err(error.clone()),
                _ => Ok(outcomes),
            }
        }
        .boxed()
    }

    fn sign<'a>(
        &'a self,
        key: &'a str,
        valid: Duration,
        disposition: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String>> {
        async move {
            #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
            if let Some(signer) = &self.signer {
                let options = SignedUrlOptions::default();
                let options = match disposition {
                    Some(value) => options.with_query([("response-content-disposition", value)]),
                    None => options,
                };
                // The default method is GET.
                let signed =
                    signer.signed_url_opts(Default::default(), &location(key)?, valid, &options).await;
                return signed.map(String::from).map_err(|error| store_error("sign", key, error));
            }
            let _ = (valid, disposition);
            Err(Error::new("sign", key, ErrorKind::Unsupported).with_detail("the store does not sign URLs"))
        }
        .boxed()
    }
}

/// An upload in parts by the store's own client, which repeats a part as it is set up to.
struct Upload {
    key: String,
    upload: Mutex<Box<dyn MultipartUpload>>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Parts for Upload {
    fn id(&self) -> Option<&str> {
        None
    }

    fn put(&self, part: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let put = self.upload.lock().await.put_part(PutPayload::from_bytes(part)).await;
            put.map_err(|error| store_error("put", &self.key, error))
        }
        .boxed()
    }

    fn complete<'a>(&'a self, _: Condition<'a>) -> BoxFuture<'a, Result<Option<String>>> {
        async move {
            let done = self.upload.lock().await.complete().await;
            done.map(|done| done.e_tag).map_err(|error| store_error("put", &self.key, error))
        }
        .boxed()
    }

    fn abort(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let done = self.upload.lock().await.abort().await;
            done.map_err(|error| store_error("abort", &self.key, error))
        }
        .boxed()
    }
}

fn body(key: &str, result: GetResult) -> Body {
    let subject = key.to_owned();
    Body {
        size: Some(result.meta.size),
        etag: result.meta.e_tag.clone(),
        attributes: said(key, &result.attributes),
        chunks: result.into_stream().map_err(move |error| store_error("get", &subject, error)).boxed(),
    }
}

/// What an object says of its file, as the client passes it on.
pub(super) fn metadata(attributes: &Attributes, dialect: Dialect) -> StoreAttributes {
    let words = attributes.words(dialect).into_iter();
    words.map(|(name, value)| (Attribute::Metadata(name.into()), value)).collect()
}

fn said(key: &str, found: &StoreAttributes) -> Attributes {
    let words = found.iter().filter_map(|(name, value)| match name {
        Attribute::Metadata(name) => Some((name.as_ref(), value.as_ref())),
        _ => None,
    });
    Attributes::read(key, words)
}

fn update(etag: &str, version: Option<String>) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag: Some(strong(etag).to_owned()), version })
}

/// `key` as the store's own path type, only if that type keeps it byte for byte.
pub(super) fn location(key: &str) -> Result<StorePath> {
    match StorePath::parse(key) {
        Ok(path) if path.as_ref() == key && !key.is_empty() => Ok(path),
        _ => Err(Error::new("address", key, ErrorKind::InvalidPath)
            .with_detail("the store would take the key for another")),
    }
}

/// Which store in memory it is. Another one may get its address after it, and what is known of the first is on disk.
fn name_of(store: &Arc<InMemory>) -> String {
    static NAMES: std::sync::Mutex<Vec<(Weak<InMemory>, String)>> = std::sync::Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.retain(|(known, _)| known.strong_count() > 0);
    if let Some((_, name)) = names.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(store)) {
        return name.clone();
    }
    let name = unguessable().unwrap_or_else(|_| format!("{:p}", Arc::as_ptr(store)));
    let name = format!("memory {name}");
    names.push((Arc::downgrade(store), name.clone()));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_put_that_a_store_without_attributes_refuses_is_made_again_without_them() {
        let store = Generic::new(Arc::new(InMemory::new()));
        let refused =
            StoreError::NotImplemented { operation: "attributes".into(), implementer: "store".into() };
        let mut link = Attributes::NONE;
        link.kind = Kind::Link;
        assert!(!store.is_plain(&refused, &link), "it would become a file");
        for _ in 0..2 {
            assert!(store.is_plain(&refused, &Attributes::NONE));
        }
        let other = StoreError::NotImplemented { operation: "put".into(), implementer: "store".into() };
        assert!(!store.is_plain(&other, &Attributes::NONE) && !store.abilities().attributes);
    }

    #[test]
    fn key_that_the_store_would_rewrite_is_not_addressed() {
        for key in ["/abs", "dir/", "a//b", "a/../b", ".", "a\nb", ""] {
            assert_eq!(location(key).unwrap_err().kind(), ErrorKind::InvalidPath, "{key:?}");
        }
        for key in ["a b", "100%", "%2e%2e/x", "é", "e\u{301}", "a+b", "#1", "~x", "[x]"] {
            assert_eq!(location(key).unwrap().as_ref(), key);
        }
    }
}
