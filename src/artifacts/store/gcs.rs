//! Google Cloud Storage, by its XML API.
//!
//! What remains: it compares generations, which no listing of the client shows, so an object is looked at before it is put in
//! place of another. Completions of parts and removals take no condition.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use object_store::client::{HttpRequest, Signer};
use object_store::gcp::{
    GcpSigningCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey, ServiceAccountKey,
};
use object_store::{ClientConfigKey, StaticCredentialProvider};

use super::attributes::Dialect;
use super::backend::{Abilities, Backend};
use super::generic::Generic;
use super::raw::{
    Bucket, Cloud, Malformed, Page, Shared, is_set, list_type_2, once, parse, signed_place, unbuilt,
};
use crate::error::Result;

/// Opens the bucket that `builder` describes.
pub(super) fn open(builder: GoogleCloudStorageBuilder) -> Result<Arc<dyn Backend>> {
    let signed = !is_set(builder.get_config_value(&GoogleConfigKey::SkipSignature));
    let url = place(builder.clone())?;
    let shared = Shared::default();
    let store = builder
        .with_retry(once())
        .with_config(GoogleConfigKey::Client(ClientConfigKey::Timeout), "30 days")
        .with_http_connector(shared.clone())
        .build()
        .map_err(unbuilt)?;
    let client = Generic::signing(Arc::new(store.clone())).speaking(Dialect::Gcs);
    let raw = Arc::new(shared.raw(url, Gcs { store, signed })?);
    Ok(Arc::new(Bucket { raw, client, abilities, more: None }))
}

// The ETag of an object that was put in one request is the hash of its content.
fn abilities(client: Abilities) -> Abilities {
    Abilities { content_etags: true, ..client }
}

/// The bucket's URL, as the store itself would use it.
fn place(builder: GoogleCloudStorageBuilder) -> Result<String> {
    let private_key = Some(ServiceAccountKey::new(Box::new(Nobody)));
    let credential = GcpSigningCredential { email: String::new(), private_key };
    let builder = builder.with_signing_credentials(Arc::new(StaticCredentialProvider::new(credential)));
    Ok(signed_place(&builder.build().map_err(unbuilt)?)?.0)
}

/// Signs nothing.
#[derive(Debug)]
struct Nobody;

impl Signer for Nobody {
    fn sign(&self, _: &[u8]) -> object_store::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

/// How GCS is asked.
struct Gcs {
    store: GoogleCloudStorage,
    signed: bool,
}

impl Cloud for Gcs {
    fn dialect(&self) -> Dialect {
        Dialect::Gcs
    }

    fn word(&self) -> &'static str {
        "x-goog-meta-"
    }

    fn authorize<'a>(&'a self, request: &'a mut HttpRequest) -> BoxFuture<'a, object_store::Result<()>> {
        async move {
            if !self.signed {
                return Ok(());
            }
            let credential = self.store.credentials().get_credential().await?;
            // Emulators are given none.
            if !credential.bearer.is_empty() {
                let bearer = HeaderValue::try_from(format!("Bearer {}", credential.bearer));
                let mut bearer = bearer.map_err(|error| object_store::Error::Generic {
                    store: "GCS",
                    source: Box::new(error),
                })?;
                bearer.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, bearer);
            }
            Ok(())
        }
        .boxed()
    }

    fn query(&self, prefix: &str, token: Option<&str>) -> String {
        list_type_2(prefix, token)
    }

    fn page(&self, xml: &[u8]) -> std::result::Result<Page, Malformed> {
        parse(xml)
    }
}
