//! Requests of our own, with the endpoint, credentials and HTTP client of the store.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use http::header::{IF_MATCH, RANGE};
use http::{Method, StatusCode};
use object_store::RetryConfig;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpRequest, HttpRequestBody, HttpResponse,
};
use object_store::path::Path;
use object_store::signer::Signer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::clock::Clock;
use super::cloud::Cloud;
use super::xml;
use crate::artifacts::store::answer::Answer;
use crate::artifacts::store::connect::Strict;
use crate::artifacts::store::error::store_error;
use crate::error::{Error, ErrorKind, Result};

/// All that a signature wants encoded in a query.
pub(crate) const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same in a key.
const KEY: &AsciiSet = &QUERY.remove(b'/');

/// Largest body of a refusal that is read.
const REFUSAL_MAX: usize = 16 << 10;

/// A bucket, by requests of our own.
pub(crate) struct Raw {
    client: HttpClient,
    /// Its URL, without a slash at its end.
    pub(crate) url: String,
    pub(super) cloud: Box<dyn Cloud>,
    pub(super) clock: Clock,
}

// The client shows the proxy and the headers that it was given, with the passwords in them.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Keeps the client that the store connects, so that raw requests share its pool and its settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
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

impl Shared {
    /// Raw access to the bucket at `url`, with the client that its store was built with.
    pub(crate) fn raw(self, url: String, cloud: impl Cloud + 'static) -> Result<Raw> {
        // The client of the store itself is the last that its builder connects.
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        let client = client.ok_or_else(|| Error::new("open", "bucket", ErrorKind::Unsupported))?;
        Ok(Raw { client, url, cloud: Box::new(cloud), clock: self.clock })
    }
}

impl Raw {
    /// The URL of an object.
    pub(crate) fn object(&self, key: &str) -> Result<String> {
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
    pub(crate) async fn execute(
        &self,
        operation: &'static str,
        subject: &str,
        mut request: HttpRequest,
    ) -> Result<HttpResponse> {
        let signed = self.cloud.authorize(&mut request).await;
        signed.map_err(|error| store_error(operation, subject, error))?;
        self.client.execute(request).await.map_err(|error| transport(operation, subject, error))
    }
}

pub(crate) fn request(
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
pub(crate) async fn read_body(
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
pub(crate) async fn refusal(operation: &'static str, subject: &str, response: HttpResponse) -> Answer {
    let status = response.status();
    let region = response.headers().get("x-amz-bucket-region").and_then(|value| value.to_str().ok());
    let region = region.filter(|_| status.is_redirection()).map(str::to_owned);
    let mut answer = Answer { status: Some(status.as_u16()), region, ..Answer::default() };
    let code = response.headers().get("x-ms-error-code").and_then(|value| value.to_str().ok());
    let code = code.map(str::to_owned);
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
    // Without a body that can be read the status, and of Azure a header, is all there is.
    answer.code = answer.code.or(code);
    answer
}

/// Leaves retries to our own, which are counted and reported.
pub(crate) fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Whether a setting is one of the words for yes that the builders take.
pub(crate) fn is_set(value: Option<String>) -> bool {
    let value = value.unwrap_or_default().to_ascii_lowercase();
    matches!(value.as_str(), "true" | "1" | "yes" | "on" | "y" | "t")
}

/// The URL of the store's bucket, without a slash at its end, and the query by which a URL in it is signed.
///
/// The settings of a store come from many places (URL, environment, files, defaults), and only a signed URL shows the outcome.
pub(crate) fn signed_place(store: &impl Signer) -> Result<(String, String)> {
    let signed = store.signed_url(Method::GET, &Path::from("k"), Duration::from_secs(60)).now_or_never();
    let place = signed.and_then(std::result::Result::ok).and_then(|mut url| {
        let query = url.query().unwrap_or_default().to_owned();
        url.set_query(None);
        Some((url.as_str().strip_suffix("/k")?.to_owned(), query))
    });
    place.ok_or_else(|| Error::new("open", "bucket", ErrorKind::Unsupported))
}

/// The settings make no store.
pub(crate) fn unbuilt(error: object_store::Error) -> Error {
    Error::new("open", "bucket", ErrorKind::Unsupported).with_source(std::io::Error::other(error))
}

pub(crate) fn malformed(operation: &'static str, subject: &str, reason: &'static str) -> Error {
    Error::new(operation, subject, ErrorKind::Io).with_detail(reason)
}

pub(super) fn transport(
    operation: &'static str,
    subject: &str,
    error: object_store::client::HttpError,
) -> Error {
    Error::new(operation, subject, ErrorKind::Io).with_source(std::io::Error::other(error))
}
