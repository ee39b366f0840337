//! Where objects come from: any object store, by keys that nobody has rewritten.

use std::path::Path;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use object_store::ObjectStore;
use object_store::memory::InMemory;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
use object_store::signer::Signer;

use super::backend::{Backend, Conditions};
use super::budget::{Budget, Leave};
use super::generic::Generic;
use super::local::Local;
use super::object::Listed;
use super::probe::{Deletes, Found, Keeps};
use super::retry::Retry;
use crate::artifacts::key::Prefix;
use crate::error::Result;
use crate::root::Root;
use cap_std::AmbientAuthority;

/// An object store, as restore and mirror see it. Cheap to clone.
///
/// `Source::s3`, `Source::gcs` and `Source::azure` (features `aws`, `gcp` and `azure`) list a bucket by raw key. [`Source::new`]
/// takes any [`ObjectStore`] and lists it through the store's own `list`, which ends at the first key with a `.`, `..` or empty
/// segment, or with a control character: one planted key costs all that is in its directory, or the whole listing. Prefer
/// the former where there is one.
///
/// [`Source::local`] uses a directory as the *remote* side. A bare [`LocalFileSystem`] follows links out of its root,
/// ends its listing at the first name that is not text, and takes no name that ends in `#` and digits.
///
/// [`LocalFileSystem`]: https://docs.rs/object_store/latest/object_store/local/struct.LocalFileSystem.html
#[derive(Clone, Debug)]
pub struct Source {
    backend: Arc<dyn Backend>,
    budget: Budget,
    found: Arc<Found>,
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
        Self::of_backend(Arc::new(Generic::new(store)))
    }

    /// Uses `store` with its own listing, and signs URLs with it.
    #[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
    #[must_use]
    pub fn signing<S: ObjectStore + Signer>(store: Arc<S>) -> Self {
        Self::of_backend(Arc::new(Generic::signing(store)))
    }

    /// Uses `store`, which holds its objects in memory: each is put in one request, and so on a condition, whatever its
    /// size.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let source = beneath::artifacts::Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// ```
    #[must_use]
    pub fn memory(store: Arc<InMemory>) -> Self {
        Self::of_backend(Arc::new(Generic::memory(store)))
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
        Ok(Self::of_backend(Arc::new(Local::new(Root::open_ambient(path, authority)?))))
    }

    /// Uses an S3 bucket by raw keys, with the credentials, the endpoint and the client options of `builder`.
    ///
    /// Buckets of S3 Express and buckets with customer keys use the store's own listing, and its completion of uploads
    /// in parts. For all others [`Retry`](super::Retry) replaces what `builder` sets for retries and for the time that a
    /// whole request may take. An HTTP connector set in `builder` is replaced by the default one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if `builder` does not describe a bucket.
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
        super::s3::open(builder).map(Self::of_backend)
    }

    /// Uses a bucket of Google Cloud Storage by raw keys, with the credentials, the endpoint and the client options of `builder`.
    ///
    /// [`Retry`](super::Retry) replaces what `builder` sets for retries and for the time that a whole request may take. An HTTP
    /// connector set in `builder` is replaced by one that follows no redirect.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if `builder` does not describe a bucket.
    #[cfg(feature = "gcp")]
    pub fn gcs(builder: object_store::gcp::GoogleCloudStorageBuilder) -> Result<Self> {
        super::gcs::open(builder).map(Self::of_backend)
    }

    /// Uses a container of Azure Blob Storage by raw keys, with the credentials, the endpoint and the client options of `builder`.
    ///
    /// [`Retry`](super::Retry) replaces what `builder` sets for retries and for the time that a whole request may take. An HTTP
    /// connector set in `builder` is replaced by one that follows no redirect.
    ///
    /// A container with customer keys is listed through the store's own client. URLs are signed for keys that need no encoding in
    /// a URL.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if `builder` does not describe a container.
    #[cfg(feature = "azure")]
    pub fn azure(builder: object_store::azure::MicrosoftAzureBuilder) -> Result<Self> {
        super::azure::open(builder).map(Self::of_backend)
    }

    /// Lets this source, and all clones that are made of it, have at most `objects` objects on their way and `calls` calls at work
    /// at a time. Who comes later waits. Without it, all sources of the process share a budget of 64 and 16.
    ///
    /// An object on its way has a connection and at most one file open, a call about ten descriptors for the directories of its
    /// session. A source keeps connections for a while after their use; clones share them, and sources that were opened one by
    /// one do not.
    #[must_use]
    pub fn with_budget(self, objects: usize, calls: usize) -> Self {
        Self { budget: Budget::new(objects, calls), ..self }
    }

    /// Waits until another object may be on its way.
    pub(crate) async fn leave(&self) -> Leave {
        self.budget.object().await
    }

    /// Waits until another call may open its directories.
    pub(crate) async fn turn(&self) -> Leave {
        self.budget.call().await
    }

    /// Lists every object whose key starts with `prefix`, in the store's order.
    ///
    /// The stream ends after its first error.
    #[must_use]
    pub fn list(&self, prefix: &Prefix) -> BoxStream<'static, Result<Listed>> {
        self.backend.list(prefix.as_str(), Retry::default())
    }

    /// Uses a store of a test's own.
    #[doc(hidden)]
    #[must_use]
    pub fn of_backend(backend: Arc<dyn Backend>) -> Self {
        Self { backend, budget: Budget::of_process(), found: Arc::default() }
    }

    /// The store itself; for the conformance suite.
    #[doc(hidden)]
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// How the store checks the conditions of a put; what is still [`Compares::AsServer`](super::Compares::AsServer)
    /// could not be found out.
    pub(crate) async fn puts(&self, prefix: &Prefix, retry: Retry) -> Conditions {
        self.found.puts(self.backend(), prefix, retry).await
    }

    /// What the store keeps of a file besides its bytes, by a trial that writes to the store.
    pub(crate) async fn try_out(&self, prefix: &Prefix, retry: Retry) -> Keeps {
        self.found.keeps(self.backend(), prefix, retry).await
    }

    /// The same, as far as it is known without a trial.
    pub(crate) fn keeps(&self) -> Keeps {
        self.found.known(self.backend())
    }

    /// The same for a completion of parts.
    pub(crate) async fn completions(&self, prefix: &Prefix, retry: Retry) -> Conditions {
        self.found.completions(self.backend(), prefix, retry).await
    }

    /// How the store removes objects.
    pub(crate) async fn deletes(&self, prefix: &Prefix, retry: Retry) -> Deletes {
        self.found.deletes(self.backend(), prefix, retry).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn sources_share_one_budget_unless_they_have_their_own() {
        let parse = || Source::parse("memory:///", cap_std::ambient_authority()).unwrap().0;
        let own = parse().with_budget(2, 1);
        let held: Vec<_> = std::iter::from_fn(|| parse().leave().now_or_never()).collect();
        let called: Vec<_> = std::iter::from_fn(|| parse().turn().now_or_never()).collect();
        assert_eq!((held.len(), called.len()), (64, 16), "of all that were parsed together");
        let of_own: Vec<_> = std::iter::from_fn(|| own.leave().now_or_never()).collect();
        assert_eq!(of_own.len(), 2);
        assert!(own.clone().leave().now_or_never().is_none() && own.turn().now_or_never().is_some());
    }
}
