//! A store from a URL, with the settings of the environment.
//!
//! Problem: a URL comes from a configuration file. A secret in it ends up in an error and so in a log; a query or a doubled slash is
//! dropped by one reader and kept by the next.
//!
//! Defence: a URL is a scheme, a bucket and a path, each read as it is written. Anything else is refused, and no error repeats the
//! URL. Credentials come from the environment.
//!
//! What remains: whoever sets the environment of the host chooses its endpoint and its credentials.

use std::sync::Arc;

use cap_std::AmbientAuthority;
use object_store::memory::InMemory;

use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;

impl Source {
    /// Opens the store at `url`, and returns the path in it that the URL names, if it names one: for [`Prefix::at`].
    ///
    /// | URL | store |
    /// |---|---|
    /// | `s3://bucket/path` | `Source::s3`, feature `aws` |
    /// | `gs://bucket/path` | `Source::gcs`, feature `gcp` |
    /// | `az://container/path` | `Source::azure`, feature `azure` |
    /// | `file:///directory` | [`Source::local`]; the whole path is the directory |
    /// | `memory:///path` | a new and empty store in memory |
    ///
    /// The path is taken as it is written, `%` included, as the tools of the clouds do. Clients follow no redirect.
    ///
    /// # Credentials
    /// They are looked for where `object_store` looks for them, in this order:
    ///
    /// * S3: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`; `AWS_WEB_IDENTITY_TOKEN_FILE` with `AWS_ROLE_ARN`
    ///   (EKS); `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` or `…_FULL_URI` (ECS, EKS pod identity); the metadata service of the
    ///   instance. `AWS_REGION`, `AWS_ENDPOINT_URL` and `AWS_ALLOW_HTTP` say where the bucket is.
    /// * GCS: `GOOGLE_SERVICE_ACCOUNT` (a file) or `GOOGLE_SERVICE_ACCOUNT_KEY`, `GOOGLE_APPLICATION_CREDENTIALS`, the file
    ///   that `gcloud auth application-default login` writes, the metadata server (`GCE_METADATA_HOST`). `GOOGLE_BASE_URL` says
    ///   where the bucket is.
    /// * Azure: `AZURE_STORAGE_ACCOUNT_NAME` with `AZURE_STORAGE_ACCOUNT_KEY`; `AZURE_FEDERATED_TOKEN_FILE` with `AZURE_CLIENT_ID` and
    ///   `AZURE_TENANT_ID` (AKS); a client secret; a SAS token; the managed identity of the machine. `AZURE_ENDPOINT` and
    ///   `AZURE_ALLOW_HTTP` say where the container is.
    ///
    /// Profiles are *not* read: neither `~/.aws/credentials` nor `~/.aws/config` with `AWS_PROFILE`, SSO or `credential_process`. Let
    /// `aws configure export-credentials --format env` put them into the environment, or give a builder a provider of your own and
    /// use `Source::s3`. Credentials of instances and containers are renewed before they expire; those of the environment are not.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for another scheme, one whose feature is off, or settings that make no store;
    /// [`ErrorKind::InvalidPath`] if the URL has more than a bucket and a safe path; for a directory those of [`Source::local`].
    ///
    /// ```
    /// use beneath::artifacts::{Prefix, Source};
    ///
    /// let (source, path) = Source::parse("memory:///tenants/acme", beneath::ambient_authority())?;
    /// let prefix = path.as_ref().map(Prefix::at);
    /// assert_eq!(prefix.unwrap().as_str(), "tenants/acme/");
    /// # let _ = source;
    /// # Ok::<(), beneath::Error>(())
    /// ```
    ///
    /// [`Prefix::at`]: crate::artifacts::Prefix::at
    pub fn parse(url: &str, authority: AmbientAuthority) -> Result<(Self, Option<SafePath>)> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| refuse("URL", "is no URL"))?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        match (scheme, bucket) {
            ("file", "") if rest.contains(['%', '?', '#']) => {
                Err(refuse("file", "has a character that URLs encode, use Source::local"))
            }
            ("file", "") => Ok((Self::local(rest, authority)?, None)),
            ("memory", "") => Ok((Self::memory(Arc::new(InMemory::new())), below(path)?)),
            ("s3" | "gs" | "az", bucket) if is_bucket(bucket) => Ok((cloud(scheme, bucket)?, below(path)?)),
            ("file" | "memory" | "s3" | "gs" | "az", _) => Err(refuse("URL", "has no bucket that is one")),
            _ => {
                Err(Error::new("open", "URL", ErrorKind::Unsupported).with_detail("no store has this scheme"))
            }
        }
    }
}

/// Whether it is a name that a cloud may have given, and not a user, a password or a port.
fn is_bucket(name: &str) -> bool {
    // A bucket of dots would be a step in the path of the endpoint, and the first of each key the bucket.
    name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '$')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.$".contains(&byte))
}

fn below(path: &str) -> Result<Option<SafePath>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    match path {
        "" => Ok(None),
        path => SafePath::new(path).map(Some).map_err(|_| refuse("URL", "has a path that is not safe")),
    }
}

/// No part of a URL is repeated.
fn refuse(subject: &str, detail: &'static str) -> Error {
    Error::new("open", subject, ErrorKind::InvalidPath).with_detail(detail)
}

fn cloud(scheme: &str, bucket: &str) -> Result<Source> {
    match scheme {
        #[cfg(feature = "aws")]
        "s3" => Source::s3(object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket)),
        #[cfg(feature = "gcp")]
        "gs" => {
            Source::gcs(object_store::gcp::GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket))
        }
        #[cfg(feature = "azure")]
        "az" => {
            Source::azure(object_store::azure::MicrosoftAzureBuilder::from_env().with_container_name(bucket))
        }
        _ => {
            let _ = bucket;
            Err(Error::new("open", "URL", ErrorKind::Unsupported)
                .with_detail("the feature of this store is off"))
        }
    }
}
