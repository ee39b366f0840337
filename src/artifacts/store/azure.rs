//! Azure Blob Storage.
//!
//! What remains: completions of parts take no condition. URLs are signed for names that a URL takes as they are, and without a
//! `Content-Disposition`. With customer keys the container is asked through its own client alone.

mod page;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use http::{HeaderMap, HeaderValue};
use object_store::azure::{
    AzureAccessKey, AzureAuthorizer, AzureConfigKey, AzureCredential, MicrosoftAzure, MicrosoftAzureBuilder,
};
use object_store::client::HttpRequest;
use object_store::{ClientConfigKey, StaticCredentialProvider};

use super::attributes::Dialect;
use super::backend::{Abilities, Backend, Compares};
use super::generic::Generic;
use super::raw::{Bucket, Cloud, Malformed, Page, Shared, is_set, once, signed_place, unbuilt};
use crate::error::{Error, ErrorKind, Result};

/// What an anonymous request is answered by; a signed one says it itself.
const VERSION: HeaderValue = HeaderValue::from_static("2023-11-03");

/// Opens the container that `builder` describes; by raw keys unless it needs more than a signature.
pub(super) fn open(builder: MicrosoftAzureBuilder) -> Result<Arc<dyn Backend>> {
    let signed = !is_set(builder.get_config_value(&AzureConfigKey::SkipSignature));
    let special = builder.get_config_value(&AzureConfigKey::EncryptionKey).is_some();
    let place = if special { None } else { Some(place(builder.clone())?) };
    let shared = Shared::default();
    let store = builder.with_http_connector(shared.clone());
    // The listing of the client goes on where it has failed.
    let store = if special { store } else { unhurried(store) }.build().map_err(unbuilt)?;
    let client = Generic::signing(Arc::new(store.clone())).speaking(Dialect::Azure);
    Ok(match place {
        Some((url, account)) => {
            let raw = Arc::new(shared.raw(url, Azure { store, account, signed })?);
            Arc::new(Bucket { raw, client, abilities, more: None })
        }
        None => Arc::new(client),
    })
}

fn abilities(client: Abilities) -> Abilities {
    Abilities { delete: Compares::AsServer, ..client }
}

/// Leaves retries and deadlines to our own, which are counted, reported, and know how much a request moves.
fn unhurried(builder: MicrosoftAzureBuilder) -> MicrosoftAzureBuilder {
    builder.with_retry(once()).with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), "30 days")
}

/// The container's URL and its account, as the store itself would use them.
fn place(builder: MicrosoftAzureBuilder) -> Result<(String, String)> {
    let key = AzureAccessKey::try_new("aw==").map_err(|error| {
        Error::new("open", "bucket", ErrorKind::Unsupported).with_source(std::io::Error::other(error))
    })?;
    let credential = Arc::new(StaticCredentialProvider::new(AzureCredential::AccessKey(key)));
    // An emulator takes no credentials but what is set.
    let builder = builder.with_credentials(credential).with_access_key("aw==").with_skip_signature(false);
    let store = builder.build().map_err(unbuilt)?;
    let (url, _) = signed_place(&store)?;
    // Only the text of the store says which account the settings have led to.
    let text = store.to_string();
    let account = text.split_once("account: ").and_then(|(_, rest)| rest.split_once(", container: "));
    let account = account.ok_or_else(|| Error::new("open", "bucket", ErrorKind::Unsupported))?.0;
    Ok((url, account.to_owned()))
}

/// How Azure is asked.
struct Azure {
    store: MicrosoftAzure,
    account: String,
    signed: bool,
}

impl Cloud for Azure {
    fn dialect(&self) -> Dialect {
        Dialect::Azure
    }

    fn word(&self) -> &'static str {
        "x-ms-meta-"
    }

    fn authorize<'a>(&'a self, request: &'a mut HttpRequest) -> BoxFuture<'a, object_store::Result<()>> {
        async move {
            if !self.signed {
                request.headers_mut().insert("x-ms-version", VERSION);
                return Ok(());
            }
            let credential = self.store.credentials().get_credential().await?;
            AzureAuthorizer::new(&credential, &self.account).try_authorize(request)
        }
        .boxed()
    }

    fn query(&self, prefix: &str, token: Option<&str>) -> String {
        let token = token.map_or(String::new(), |token| format!("&marker={token}"));
        // Of more, with all that is said of each, a page could not be bounded as that of other clouds.
        format!("restype=container&comp=list&maxresults=1000&prefix={prefix}{token}")
    }

    fn page(&self, xml: &[u8]) -> std::result::Result<Page, Malformed> {
        page::parse(xml)
    }

    // The client signs the path of the URL, and the server expects the name.
    fn signs(&self, key: &str) -> bool {
        key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte))
    }

    fn put(&self, headers: &mut HeaderMap) {
        headers.insert("x-ms-blob-type", HeaderValue::from_static("BlockBlob"));
    }
}
