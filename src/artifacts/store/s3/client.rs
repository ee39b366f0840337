//! Requests of our own, with the endpoint, credentials and HTTP client of the store.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use http::header::{IF_MATCH, RANGE};
use http::{Method, StatusCode};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpRequest, HttpRequestBody, HttpResponse,
};
use object_store::signer::Signer as _;
use object_store::{ClientConfigKey, RetryConfig, StaticCredentialProvider};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::clock::Clock;
use super::xml;
use crate::artifacts::store::answer::Answer;
use crate::artifacts::store::connect::Strict;
use crate::artifacts::store::error::store_error;
use crate::error::{Error, ErrorKind, Result};

/// All that a signature wants encoded in a query.
pub(super) const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same in a key.
const KEY: &AsciiSet = &QUERY.remove(b'/');

/// Largest body of a refusal that is read.
const REFUSAL_MAX: usize = 16 << 10;

/// A bucket.
pub(super) struct Bucket {
    pub(super) store: AmazonS3,
    client: HttpClient,
    /// Its URL, without a slash at its end.
    pub(super) url: String,
    region: String,
    signed: bool,
    requester_pays: bool,
    pub(super) clock: Clock,
}

// The client shows the proxy and the headers that it was given, with the passwords in them.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Keeps the client that the store connects, so that raw requests share its pool and its settings.
#[derive(Debug, Clone, Default)]
struct Shared {
    client: Arc<Mutex<Option<HttpClient>>>,
    clock: Clock,
}

impl HttpConnector for Shared {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = Strict.connect(options)?;
        let client = self.clock.watching(client);
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

impl Bucket {
    /// Builds the store, with its URL, and raw access to it unless the bucket needs more than a plain signature.
    pub(super) fn open(builder: AmazonS3Builder) -> Result<(AmazonS3, String, Option<Self>)> {
        let unsupported = |error| {
            Error::new("open", "bucket", ErrorKind::Unsupported)
                .with_source(std::io::Error::other::<Box<dyn std::error::Error + Send + Sync>>(error))
        };
        let setting = |key| builder.get_config_value(&key).unwrap_or_default();
        let is_set = |key| {
            matches!(setting(key).to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on" | "y" | "t")
        };
        let signed = !is_set(AmazonS3ConfigKey::SkipSignature);
        let requester_pays = is_set(AmazonS3ConfigKey::RequestPayer);
        let special = is_set(AmazonS3ConfigKey::S3Express)
            || "aws_sse_customer_key_base64"
                .parse()
                .is_ok_and(|key| builder.get_config_value(&key).is_some());

        let (url, region) = endpoint(builder.clone())?;
        let shared = Shared::default();
        let builder = if special { builder } else { unhurried(builder) };
        let store = builder
            .with_http_connector(shared.clone())
            .build()
            .map_err(|error| unsupported(Box::new(error)))?;
        // The client of the store itself is the last that the builder connects.
        let client = shared.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let raw = match client {
            Some(client) if !special => Some(Self {
                store: store.clone(),
                client,
                url: url.clone(),
                region,
                signed,
                requester_pays,
                clock: shared.clock,
            }),
            _ => None,
        };
        Ok((store, url, raw))
    }

    /// The URL of an object.
    pub(super) fn object(&self, key: &str) -> Result<String> {
        if key.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(
                Error::new("get", key, ErrorKind::InvalidPath).with_detail("a URL cannot hold a dot segment")
            );
        }
        Ok(format!("{}/{}", self.url, utf8_percent_encode(key, KEY)))
    }

    /// Signs and sends a GET, for the rest of a version with `rest`; any answer but success is an error.
    pub(super) async fn send(
        &self,
        operation: &'static str,
        subject: &str,
        url: &str,
        rest: Option<(&str, u64)>,
    ) -> Result<HttpResponse> {
        let mut request = request(operation, subject, Method::GET, url, HttpRequestBody::empty())?;
        if let Some((etag, from)) = rest {
            let etag = etag.parse().map_err(|_| Error::new(operation, subject, ErrorKind::Unsupported))?;
            request.headers_mut().insert(IF_MATCH, etag);
            if let Ok(range) = format!("bytes={from}-").parse() {
                request.headers_mut().insert(RANGE, range);
            }
        }
        let response = self.execute(operation, subject, request).await?;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::PARTIAL_CONTENT if rest.is_some() => Ok(response),
            _ => Err(refusal(operation, subject, response).await.into_error(operation, subject)),
        }
    }

    /// Signs and sends `request`.
    pub(super) async fn execute(
        &self,
        operation: &'static str,
        subject: &str,
        mut request: HttpRequest,
    ) -> Result<HttpResponse> {
        if self.signed {
            let credential = self.store.credentials().get_credential().await;
            let credential = credential.map_err(|error| store_error(operation, subject, error))?;
            AwsAuthorizer::new(&credential, "s3", &self.region)
                .with_request_payer(self.requester_pays)
                .try_authorize(&mut request, None)
                .map_err(|error| store_error(operation, subject, error))?;
        }
        self.client.execute(request).await.map_err(|error| transport(operation, subject, error))
    }
}

pub(super) fn request(
    operation: &'static str,
    subject: &str,
    method: Method,
    url: &str,
    body: HttpRequestBody,
) -> Result<HttpRequest> {
    let mut request = HttpRequest::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = url.parse().map_err(|error| {
        Error::new(operation, subject, ErrorKind::InvalidPath)
            .with_source(std::io::Error::other::<http::uri::InvalidUri>(error))
    })?;
    Ok(request)
}

/// The whole body of an answer, if it has no more than `limit` bytes.
pub(super) async fn read_body(
    operation: &'static str,
    subject: &str,
    response: HttpResponse,
    limit: usize,
) -> Result<Vec<u8>> {
    let mut chunks = response.into_body().bytes_stream();
    let mut body: Vec<u8> = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| transport(operation, subject, error))?;
        if body.len() + chunk.len() > limit {
            return Err(malformed(operation, subject, "answer is overlong"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// What an answer says that is no success.
pub(super) async fn refusal(operation: &'static str, subject: &str, response: HttpResponse) -> Answer {
    let status = response.status();
    let region = response.headers().get("x-amz-bucket-region").and_then(|value| value.to_str().ok());
    let region = region.filter(|_| status.is_redirection()).map(str::to_owned);
    let mut answer = Answer { status: Some(status.as_u16()), region, ..Answer::default() };
    // Without a body that can be read the status is all there is.
    if let Ok(body) = read_body(operation, subject, response, REFUSAL_MAX).await {
        let _ = xml::read(&body, |names, text| {
            match names {
                ["Error", "Code"] => answer.code = Some(text),
                ["Error", "Message"] => answer.message = Some(text),
                ["Error", "Region"] if answer.region.is_none() => answer.region = Some(text),
                _ => {}
            }
            Ok(())
        });
    }
    answer
}

/// Leaves retries and deadlines to our own, which are counted, reported, and know how much a request moves.
fn unhurried(builder: AmazonS3Builder) -> AmazonS3Builder {
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    builder.with_retry(once).with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), "30 days")
}

/// The bucket's URL and region, as the store itself would use them.
///
/// Its settings come from many places (URL, environment, defaults), and only a signed URL shows the outcome.
fn endpoint(builder: AmazonS3Builder) -> Result<(String, String)> {
    let unreadable = || Error::new("open", "bucket", ErrorKind::Unsupported);
    let credential = AwsCredential { key_id: "k".into(), secret_key: "s".into(), token: None };
    let store = builder
        .with_credentials(Arc::new(StaticCredentialProvider::new(credential)))
        .build()
        .map_err(|error| unreadable().with_source(std::io::Error::other(error)))?;
    let url = store
        .signed_url(Method::GET, &object_store::path::Path::from("k"), Duration::from_secs(60))
        .now_or_never()
        .and_then(std::result::Result::ok)
        .ok_or_else(unreadable)?;
    let scope = url.query_pairs().find(|(name, _)| name == "X-Amz-Credential").ok_or_else(unreadable)?.1;
    let region = scope.split('/').nth(2).ok_or_else(unreadable)?.to_owned();
    let mut bucket = url.clone();
    bucket.set_query(None);
    let bucket = bucket.as_str().strip_suffix("/k").ok_or_else(unreadable)?.to_owned();
    Ok((bucket, region))
}

pub(super) fn malformed(operation: &'static str, subject: &str, reason: &'static str) -> Error {
    Error::new(operation, subject, ErrorKind::Io).with_detail(reason)
}

pub(super) fn transport(
    operation: &'static str,
    subject: &str,
    error: object_store::client::HttpError,
) -> Error {
    Error::new(operation, subject, ErrorKind::Io).with_source(std::io::Error::other(error))
}
