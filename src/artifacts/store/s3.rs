//! S3 by raw keys: listing and reading that never pass a key through a path type.
//!
//! The problem: the store's own listing turns each key into a path. A key that is no path ends the listing, and
//! `/abs` and `dir/` come out as `abs` and `dir`, which are other objects.
//!
//! The defence: requests of our own, with the endpoint, credentials and HTTP client of the store. An upload in parts is
//! completed by one, too, since the store's own completion takes no condition.
//!
//! What is left: a URL cannot hold a `.` or `..` segment, in any spelling, so such a key is listed but not read.

mod complete;
mod page;
mod xml;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MATCH, RANGE};
use http::{Method, StatusCode};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpRequest, HttpRequestBody, HttpResponse, ReqwestConnector,
};
use object_store::signer::Signer as _;
use object_store::{ClientConfigKey, RetryConfig, StaticCredentialProvider};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::source::{Body, Listed, store_error};
use crate::error::{Error, ErrorKind, Result};

/// All that a signature wants encoded in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same in a key.
const KEY: &AsciiSet = &QUERY.remove(b'/');

/// Largest page read: 1,000 keys of 1,024 bytes, encoded, with what surrounds them, fit several times.
const PAGE_MAX: usize = 16 << 20;
/// Pages in a row without a single object before a listing counts as endless.
const EMPTY_PAGES: u32 = 64;
/// The longest that a page may take.
const PAGE_WAIT: Duration = Duration::from_secs(60);
/// Attempts for one page.
const ATTEMPTS: u32 = 5;

/// A bucket.
#[derive(Debug)]
pub(super) struct S3 {
    store: AmazonS3,
    client: HttpClient,
    /// The bucket's URL, without a slash at its end.
    bucket: String,
    region: String,
    signed: bool,
    requester_pays: bool,
}

/// Keeps the client that the store connects, so that raw requests share its pool and its settings.
#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Option<HttpClient>>>);

impl HttpConnector for Shared {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

impl S3 {
    /// Builds the store, and raw access to it unless the bucket needs more than a plain signature.
    pub(super) fn open(builder: AmazonS3Builder) -> Result<(AmazonS3, Option<Self>)> {
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

        let (bucket, region) = endpoint(builder.clone())?;
        let shared = Shared::default();
        let builder = if special { builder } else { unhurried(builder) };
        let store = builder
            .with_http_connector(shared.clone())
            .build()
            .map_err(|error| unsupported(Box::new(error)))?;
        // The client of the store itself is the last that the builder connects.
        let client = shared.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let raw = match client {
            Some(client) if !special => {
                Some(Self { store: store.clone(), client, bucket, region, signed, requester_pays })
            }
            _ => None,
        };
        Ok((store, raw))
    }

    /// Every object whose key starts with `prefix`.
    pub(super) fn list(self: Arc<Self>, prefix: String) -> BoxStream<'static, Result<Listed>> {
        struct State {
            bucket: Arc<S3>,
            prefix: String,
            token: Option<String>,
            empty: u32,
        }
        let state = State { bucket: self, prefix, token: None, empty: 0 };
        stream::try_unfold(Some(state), |state| async {
            let Some(mut state) = state else { return Ok(None) };
            let page = state.bucket.page(&state.prefix, state.token.as_deref()).await?;
            state.empty = if page.objects.is_empty() { state.empty + 1 } else { 0 };
            let looping = page.next.is_some() && (page.next == state.token || state.empty >= EMPTY_PAGES);
            if looping {
                return Err(
                    Error::new("list", &state.prefix, ErrorKind::TooMany).with_detail("listing does not end")
                );
            }
            state.token = page.next;
            let objects = stream::iter(page.objects.into_iter().map(Ok));
            Ok(Some((objects, if state.token.is_some() { Some(state) } else { None })))
        })
        .try_flatten()
        .boxed()
    }

    /// One page, with retries.
    async fn page(&self, prefix: &str, token: Option<&str>) -> Result<page::Page> {
        let mut query =
            format!("list-type=2&encoding-type=url&prefix={}", utf8_percent_encode(prefix, QUERY));
        if let Some(token) = token {
            query.push_str(&format!("&continuation-token={}", utf8_percent_encode(token, QUERY)));
        }
        let url = format!("{}?{query}", self.bucket);
        let mut attempt = 1;
        loop {
            let silent = || Err(malformed("list", prefix, "the store is silent"));
            let page = tokio::time::timeout(PAGE_WAIT, self.page_once(&url, prefix)).await;
            match page.unwrap_or_else(|_| silent()) {
                Err(error) if error.kind() == ErrorKind::Io && attempt < ATTEMPTS => {
                    tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    async fn page_once(&self, url: &str, prefix: &str) -> Result<page::Page> {
        let response = self.send("list", prefix, url, None).await?;
        let xml = read_body("list", prefix, response, PAGE_MAX).await?;
        page::parse(&xml).map_err(|reason| malformed("list", prefix, reason))
    }

    /// Opens the object with exactly this key.
    pub(super) async fn get(&self, key: &str) -> Result<Body> {
        let response = self.send("get", key, &self.url(key)?, None).await?;
        Ok(body(key, response))
    }

    /// The object from byte `from` on, if the server gives exactly that, of the version `etag`.
    pub(super) async fn rest(&self, key: &str, etag: &str, from: u64) -> Result<Option<Body>> {
        let response = match self.send("get", key, &self.url(key)?, Some((etag, from))).await {
            Err(error) if error.kind() != ErrorKind::Io => return Ok(None),
            response => response?,
        };
        let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let total = range.and_then(|range| {
            let (last, total) = range.strip_prefix(&format!("bytes {from}-"))?.split_once('/')?;
            let (last, total): (u64, u64) = (last.parse().ok()?, total.parse().ok()?);
            (last.checked_add(1)? == total).then_some(total)
        });
        let is_partial = response.status() == StatusCode::PARTIAL_CONTENT;
        let rest = body(key, response);
        let exact = is_partial && rest.etag.as_deref() == Some(etag);
        let same_length = |total: &u64| rest.size.is_none_or(|size| total.checked_sub(from) == Some(size));
        Ok(total.filter(|total| exact && same_length(total)).map(|total| Body { size: Some(total), ..rest }))
    }

    fn url(&self, key: &str) -> Result<String> {
        if key.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(
                Error::new("get", key, ErrorKind::InvalidPath).with_detail("a URL cannot hold a dot segment")
            );
        }
        Ok(format!("{}/{}", self.bucket, utf8_percent_encode(key, KEY)))
    }

    /// Signs and sends a GET, of the rest of a version if told so; any answer but success is an error.
    async fn send(
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
            status => Err(refusal(operation, subject, status)),
        }
    }

    /// Signs and sends `request`.
    async fn execute(
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

fn request(
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
async fn read_body(
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

fn refusal(operation: &'static str, subject: &str, status: StatusCode) -> Error {
    let kind = match status {
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Denied,
        StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => ErrorKind::Busy,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => ErrorKind::Io,
        StatusCode::NOT_IMPLEMENTED => ErrorKind::Unsupported,
        status if status.is_server_error() => ErrorKind::Io,
        _ => ErrorKind::Unsupported,
    };
    Error::new(operation, subject, kind).with_detail(format!("the store answers {}", status.as_u16()))
}

/// Leaves retries and deadlines to our own, which are counted, told, and know how much a request moves.
fn unhurried(builder: AmazonS3Builder) -> AmazonS3Builder {
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    builder.with_retry(once).with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), "30 days")
}

fn body(key: &str, response: HttpResponse) -> Body {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let size = header(CONTENT_LENGTH).and_then(|value| value.parse().ok());
    let etag = header(ETAG).map(str::to_owned);
    let subject = key.to_owned();
    let chunks: BoxStream<'static, Result<Bytes>> =
        response.into_body().bytes_stream().map_err(move |error| transport("get", &subject, error)).boxed();
    Body { size, etag, chunks }
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

fn malformed(operation: &'static str, subject: &str, reason: &'static str) -> Error {
    Error::new(operation, subject, ErrorKind::Io).with_detail(reason)
}

fn transport(operation: &'static str, subject: &str, error: object_store::client::HttpError) -> Error {
    Error::new(operation, subject, ErrorKind::Io).with_source(std::io::Error::other(error))
}
