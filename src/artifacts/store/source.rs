//! Where objects come from: any object store, by keys that nobody has rewritten.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, UpdateVersion,
};

use super::local::Local;
use super::parts::{Parts, Way};
#[cfg(feature = "aws")]
use super::s3::S3;
use crate::AmbientAuthority;
use crate::artifacts::key::Prefix;
use crate::error::{Error, ErrorKind, Result};
use crate::root::Root;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
use object_store::signer::Signer;

/// The usual size of a part.
pub(crate) const PART: u64 = 8 << 20;
/// The largest object in one request to a store that completes an upload in parts whatever it holds by then.
const WHOLE: u64 = 16 << 20;

/// An object store, as restore and mirror see it.
///
/// [`Source::new`] takes any [`ObjectStore`] and lists it through the store's own `list`. `Source::s3` (feature
/// `aws`) lists a bucket by raw key instead. Prefer it for S3: a store's own `list` ends at the first key with a `.`,
/// `..` or empty segment, or with a control character, so that one planted key keeps all others from being restored.
///
/// [`Source::local`] lets a directory stand for the *remote* side. A bare [`LocalFileSystem`] follows links out of its
/// root, ends its listing at the first name that is not text, and takes no name that ends in `#` and digits.
///
/// [`LocalFileSystem`]: https://docs.rs/object_store/latest/object_store/local/struct.LocalFileSystem.html
#[derive(Clone, Debug)]
pub struct Source {
    store: Arc<dyn ObjectStore>,
    local: Option<Local>,
    #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
    signer: Option<Arc<dyn Signer>>,
    #[cfg(feature = "aws")]
    raw: Option<Arc<S3>>,
}

/// An object as the listing tells of it; none of it is to be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The key, byte for byte.
    pub key: Vec<u8>,
    /// The size that the listing claims.
    pub size: u64,
    /// The version that the listing claims.
    pub etag: Option<String>,
}

/// An object's content on its way.
pub(crate) struct Body {
    /// The length of the object that the store announces.
    pub(crate) size: Option<u64>,
    pub(crate) etag: Option<String>,
    pub(crate) chunks: BoxStream<'static, Result<Bytes>>,
}

impl Body {
    fn of(key: &str, result: GetResult) -> Self {
        let subject = key.to_owned();
        Self {
            size: Some(result.meta.size),
            etag: result.meta.e_tag.clone(),
            chunks: result.into_stream().map_err(move |error| store_error("get", &subject, error)).boxed(),
        }
    }
}

/// What must hold for a put to take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition<'a> {
    Always,
    Absent,
    Unchanged(&'a str),
}

impl Source {
    /// Uses `store` with its own listing.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let source = beneath::artifacts::Source::new(Arc::new(object_store::memory::InMemory::new()));
    /// ```
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            local: None,
            #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
            signer: None,
            #[cfg(feature = "aws")]
            raw: None,
        }
    }

    /// Uses the directory at `path`, beneath a [`Root`] and by raw names.
    ///
    /// One bad name, link or special file in it is one refusal, and none is followed, reading or writing. An object takes
    /// the place of another after a comparison, not in one step with it.
    ///
    /// # Errors
    /// As [`Root::open_ambient`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let source = beneath::artifacts::Source::local(dir.path(), beneath::ambient_authority())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn local(path: impl AsRef<Path>, authority: AmbientAuthority) -> Result<Self> {
        let path = path.as_ref();
        let root = Root::open_ambient(path, authority)?;
        let store = LocalFileSystem::new_with_prefix(path)
            .map_err(|error| store_error("open", &path.to_string_lossy(), error))?;
        Ok(Self { local: Some(Local::new(root)), ..Self::new(Arc::new(store)) })
    }

    /// Uses an S3 bucket by raw keys, with the credentials, the endpoint and the client options of `builder`.
    ///
    /// Buckets of S3 Express and buckets with customer keys use the store's own listing, and its completion of uploads
    /// in parts. For all others what `builder` says of retries and of the time that a whole request may take does not
    /// count, since [`Retry`](super::Retry) does. An HTTP connector set in `builder` is replaced by the default one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if `builder` does not describe a bucket.
    ///
    /// ```
    /// use object_store::aws::AmazonS3Builder;
    ///
    /// let builder = AmazonS3Builder::new().with_bucket_name("artifacts").with_region("eu-west-1");
    /// let source = beneath::artifacts::Source::s3(builder)?;
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[cfg(feature = "aws")]
    pub fn s3(builder: object_store::aws::AmazonS3Builder) -> Result<Self> {
        let (store, raw) = S3::open(builder)?;
        let store = Arc::new(store);
        Ok(Self { store: store.clone(), local: None, signer: Some(store), raw: raw.map(Arc::new) })
    }

    /// Signs URLs with `signer`, which should be the store itself.
    #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
    #[must_use]
    pub fn with_signer(mut self, signer: Arc<dyn Signer>) -> Self {
        self.signer = Some(signer);
        self
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Lists every object whose key starts with `prefix`, in the store's order.
    ///
    /// The stream ends after its first error.
    #[must_use]
    pub fn list(&self, prefix: &Prefix) -> BoxStream<'static, Result<Listed>> {
        if let Some(local) = &self.local {
            return local.list(prefix.as_str().to_owned());
        }
        #[cfg(feature = "aws")]
        if let Some(raw) = &self.raw {
            return raw.clone().list(prefix.as_str().to_owned());
        }
        let location = match StorePath::parse(prefix.as_str()) {
            Ok(location) => location,
            Err(source) => {
                let error = store_error("list", prefix.as_str(), source.into());
                return futures_util::stream::once(async { Err(error) }).boxed();
            }
        };
        let subject = prefix.clone();
        self.store
            .list(Some(&location))
            .map(move |item| match item {
                Ok(meta) => Ok(Listed {
                    key: String::from(meta.location).into_bytes(),
                    size: meta.size,
                    etag: meta.e_tag.map(quoted),
                }),
                Err(error) => Err(store_error("list", subject.as_str(), error)),
            })
            .scan(false, |failed, item| {
                let item = if *failed { None } else { Some(item) };
                *failed = matches!(item, Some(Err(_)));
                std::future::ready(item)
            })
            .boxed()
    }

    /// Opens the object `key`. With `etag`, only that version will do where the store can tell.
    pub(crate) async fn get(&self, key: &str, etag: Option<&str>) -> Result<Body> {
        if let Some(local) = &self.local {
            return local.get(key, etag).await;
        }
        #[cfg(feature = "aws")]
        if let Some(raw) = &self.raw {
            // A raw key names one object, so whichever version is there is the right one.
            return raw.get(key).await;
        }
        let result = self.store.get(&location(key)?).await;
        let result = result.map_err(|error| store_error("get", key, error))?;
        if let (Some(wanted), Some(found)) = (etag, &result.meta.e_tag)
            && wanted != found
            && wanted != quoted(found.clone())
        {
            return Err(changed("get", key));
        }
        Ok(Body::of(key, result))
    }

    /// The object `key` from byte `from` on; none if the store does not give exactly that, of the version `etag`.
    pub(crate) async fn rest(&self, key: &str, etag: &str, from: u64) -> Result<Option<Body>> {
        if self.local.is_some() {
            return Ok(None);
        }
        #[cfg(feature = "aws")]
        if let Some(raw) = &self.raw {
            return raw.rest(key, etag, from).await;
        }
        let (if_match, range) = (Some(etag.to_owned()), Some(GetRange::Offset(from)));
        let options = GetOptions { if_match, range, ..GetOptions::default() };
        let result = self.store.get_opts(&location(key)?, options).await;
        match result.map_err(|error| store_error("get", key, error)) {
            Ok(rest) if rest.meta.e_tag.as_deref() == Some(etag) && rest.range == (from..rest.meta.size) => {
                Ok(Some(Body::of(key, rest)))
            }
            Err(error) if error.kind() == ErrorKind::Io => Err(error),
            _ => Ok(None),
        }
    }

    /// What the store says of `key`, or none if there is no such object.
    pub(crate) async fn head(&self, key: &str) -> Result<Option<Listed>> {
        if let Some(local) = &self.local {
            return local.head(key).await;
        }
        match self.store.head(&location(key)?).await {
            Ok(meta) => Ok(Some(Listed { key: key.as_bytes().to_vec(), size: meta.size, etag: meta.e_tag })),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error("head", key, error)),
        }
    }

    /// Writes the object `key`, and tells its version.
    pub(crate) async fn put(
        &self,
        key: &str,
        content: Bytes,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        if let Some(local) = &self.local {
            return local.put(key, content, condition).await;
        }
        let update =
            |etag: &str, version| PutMode::Update(UpdateVersion { e_tag: Some(etag.to_owned()), version });
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(etag) => update(etag, None),
        };
        let (at, content) = (location(key)?, PutPayload::from_bytes(content));
        let mut result = self.store.put_opts(&at, content.clone(), mode.into()).await;
        // GCS compares generations, which it does not list, and says so before it sends anything.
        if let (Err(object_store::Error::Generic { store: "GCS", .. }), Condition::Unchanged(etag)) =
            (&result, condition)
        {
            let found = self.store.head(&at).await.map_err(|error| store_error("head", key, error))?;
            if found.e_tag.as_deref() != Some(etag) {
                return Err(changed("put", key));
            }
            result = self.store.put_opts(&at, content, update(etag, found.version).into()).await;
        }
        result.map(|result| result.e_tag).map_err(|error| store_error("put", key, error))
    }

    /// The largest object that goes in one request, and so on a condition if the store knows any.
    pub(crate) fn whole(&self) -> u64 {
        #[cfg(feature = "aws")]
        if self.raw.is_some() {
            return PART;
        }
        match self.local {
            Some(_) => PART,
            // It holds every object in memory anyway. Its name is all that a store tells of itself.
            None if self.store.to_string() == "InMemory" => u64::MAX,
            None => WHOLE,
        }
    }

    /// Starts an upload in parts.
    pub(crate) async fn begin(&self, key: &str) -> Result<Parts> {
        let way = if let Some(local) = &self.local {
            Way::Local(Some(local.draft(key).await?))
        } else {
            self.begin_remote(key).await?
        };
        Ok(Parts::new(key, way))
    }

    async fn begin_remote(&self, key: &str) -> Result<Way> {
        let at = location(key)?;
        #[cfg(feature = "aws")]
        if let Some(raw) = &self.raw {
            let id = raw.create(&at).await?;
            return Ok(Way::S3 { bucket: Arc::clone(raw), at, id, said: Vec::new() });
        }
        let upload = self.store.put_multipart(&at).await;
        upload.map(Way::Store).map_err(|error| store_error("put", key, error))
    }

    /// Discards an upload of an earlier call; one that is not there counts as discarded.
    pub(crate) async fn abort(&self, key: &str, id: &str) -> Result<()> {
        #[cfg(feature = "aws")]
        if let Some(raw) = &self.raw {
            return raw.abort(&location(key)?, &id.to_owned()).await;
        }
        // No other store has such ids.
        let _ = (key, id);
        Ok(())
    }

    /// Removes the object `key`; one that is not there counts as removed.
    pub(crate) async fn delete(&self, key: &str) -> Result<()> {
        if let Some(local) = &self.local {
            return local.delete(key).await;
        }
        match self.store.delete(&location(key)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error("delete", key, error)),
        }
    }

    /// A URL that lets anybody read the object `key` until `valid` has passed.
    pub(crate) async fn sign(&self, key: &str, valid: Duration) -> Result<String> {
        #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
        if let Some(signer) = &self.signer {
            // The default method is GET.
            let signed = signer.signed_url(Default::default(), &location(key)?, valid).await;
            return signed.map(String::from).map_err(|error| store_error("sign", key, error));
        }
        let _ = valid;
        Err(Error::new("sign", key, ErrorKind::Unsupported).with_detail("the store does not sign URLs"))
    }
}

/// `key` as the store's own path type, only if that type keeps it byte for byte.
fn location(key: &str) -> Result<StorePath> {
    match StorePath::parse(key) {
        Ok(path) if path.as_ref() == key && !key.is_empty() => Ok(path),
        _ => Err(Error::new("address", key, ErrorKind::InvalidPath)
            .with_detail("the store would take the key for another")),
    }
}

/// A version as every answer but a listing of Azure tells it.
fn quoted(etag: String) -> String {
    if etag.ends_with('"') { etag } else { format!("\"{etag}\"") }
}

pub(crate) fn changed(operation: &'static str, key: &str) -> Error {
    Error::new(operation, key, ErrorKind::Busy).with_detail("object changed meanwhile")
}

/// The one table from the store's errors to kinds.
pub(crate) fn store_error(operation: &'static str, key: &str, error: object_store::Error) -> Error {
    use object_store::Error as E;
    let kind = match &error {
        E::NotFound { .. } => ErrorKind::NotFound,
        E::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        E::Precondition { .. } | E::NotModified { .. } => return changed(operation, key),
        E::InvalidPath { .. } => ErrorKind::InvalidPath,
        E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Unsupported,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Denied,
        _ => ErrorKind::Io,
    };
    Error::new(operation, key, kind).with_source(std::io::Error::other(error))
}

/// Whether the same call may well succeed later.
pub(crate) fn is_transient(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy)
}

#[cfg(test)]
mod tests {
    use super::*;

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
