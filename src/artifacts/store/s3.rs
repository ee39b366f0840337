//! S3: conditions on a completion and on removals, which its own client does not send.
//!
//! What remains: buckets that need more than a plain signature are asked through their own client.

mod bulk;
mod complete;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequest;
use object_store::{ClientConfigKey, StaticCredentialProvider};
use percent_encoding::percent_decode_str;

use super::attributes::{Attributes, Dialect};
use super::backend::{Abilities, Backend, Compares, Conditions, Parts};
use super::generic::{Generic, location, metadata};
use super::object::Doomed;
use super::raw::{
    Bucket, Cloud, Malformed, More, Page, Raw, Shared, is_set, list_type_2, once, parse, signed_place,
    unbuilt,
};
use crate::error::{Error, ErrorKind, Result};

/// Opens the bucket that `builder` describes; by raw keys unless it needs more than a plain signature.
pub(super) fn open(builder: AmazonS3Builder) -> Result<Arc<dyn Backend>> {
    let set = |key| is_set(builder.get_config_value(&key));
    let signed = !set(AmazonS3ConfigKey::SkipSignature);
    let requester_pays = set(AmazonS3ConfigKey::RequestPayer);
    let special = set(AmazonS3ConfigKey::S3Express)
        || "aws_sse_customer_key_base64".parse().is_ok_and(|key| builder.get_config_value(&key).is_some());

    let (url, region) = place(builder.clone())?;
    let shared = Shared::default();
    // Their listing is the client's, which goes on where it has failed.
    let builder = if special { builder } else { unhurried(builder) };
    let store = builder.with_http_connector(shared.clone()).build().map_err(unbuilt)?;
    let client = Generic::signing(Arc::new(store.clone())).by_etags();
    if special {
        return Ok(Arc::new(client.at(url)));
    }
    let raw = Arc::new(shared.raw(url, S3 { store: store.clone(), region, signed, requester_pays })?);
    let more = Some(Box::new(Uploads { raw: Arc::clone(&raw), store }) as Box<dyn More>);
    Ok(Arc::new(Bucket { raw, client, abilities, more }))
}

fn abilities(client: Abilities) -> Abilities {
    Abilities {
        complete: Conditions::both(Compares::AsServer),
        delete: Compares::AsServer,
        delete_many: Compares::AsServer,
        bulk: 1000,
        whole: 8 << 20,
        repeats: true,
        content_etags: true,
        ..client
    }
}

/// Leaves retries and deadlines to our own, which are counted, reported, and know how much a request moves.
fn unhurried(builder: AmazonS3Builder) -> AmazonS3Builder {
    builder.with_retry(once()).with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), "30 days")
}

/// The bucket's URL and region, as the store itself would use them.
fn place(builder: AmazonS3Builder) -> Result<(String, String)> {
    let credential = AwsCredential { key_id: "k".into(), secret_key: "s".into(), token: None };
    let credentials = Arc::new(StaticCredentialProvider::new(credential));
    let (url, query) = signed_place(&builder.with_credentials(credentials).build().map_err(unbuilt)?)?;
    let scope = query.split('&').find_map(|pair| pair.strip_prefix("X-Amz-Credential="));
    let scope = scope.and_then(|scope| percent_decode_str(scope).decode_utf8().ok());
    let region = scope.and_then(|scope| scope.split('/').nth(2).map(str::to_owned));
    Ok((url, region.ok_or_else(|| Error::new("open", "bucket", ErrorKind::Unsupported))?))
}

/// How S3 is asked.
struct S3 {
    store: AmazonS3,
    region: String,
    signed: bool,
    requester_pays: bool,
}

impl Cloud for S3 {
    fn dialect(&self) -> Dialect {
        Dialect::S3
    }

    fn word(&self) -> &'static str {
        "x-amz-meta-"
    }

    fn authorize<'a>(&'a self, request: &'a mut HttpRequest) -> BoxFuture<'a, object_store::Result<()>> {
        async move {
            if !self.signed {
                return Ok(());
            }
            let credential = self.store.credentials().get_credential().await?;
            AwsAuthorizer::new(&credential, "s3", &self.region)
                .with_request_payer(self.requester_pays)
                .try_authorize(request, None)
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

/// Uploads in parts and removals of many.
struct Uploads {
    raw: Arc<Raw>,
    store: AmazonS3,
}

impl More for Uploads {
    fn begin<'a>(
        &'a self,
        key: &'a str,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        let attributes = metadata(attributes, Dialect::S3);
        async move { complete::begin(&self.raw, &self.store, location(key)?, attributes).await }.boxed()
    }

    fn abort<'a>(&'a self, key: &'a str, id: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { complete::abort(&self.store, &location(key)?, &id.to_owned()).await }.boxed()
    }

    fn delete_many<'a>(&'a self, objects: &'a [Doomed]) -> BoxFuture<'a, Result<Vec<Result<()>>>> {
        bulk::delete_many(&self.raw, objects).boxed()
    }
}
