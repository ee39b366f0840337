//! The HTTP server in the guest: every request goes to the host through the queue, and comes back as its answer.
//!
//! It is the guest's own, and so is everything it checks: the token keeps strangers on the same loopback address out, the limits
//! save the guest a round trip. What protects the host is the host's.
//!
//! | | status |
//! |---|---|
//! | no token, or another | 401 |
//! | a body that is not JSON, unless bodies in files are on | 415 |
//! | a body that is too large | 413 |
//! | as many requests as allowed wait already | 503 |
//! | a path or header that no host would read | 400 |
//! | no answer in time; the request is taken back | 504 |
//! | an answer that is none | 502 |
//!
//! `x-bridge-outcome` says whether asking again is safe: `not-started`, `done` or `indeterminate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body as HttpBody, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response as HttpResponse;
use beneath::ErrorKind;
use beneath::queue::policy::Token;
use beneath::queue::{Body, Cancelled, Client, Outcome, Request, Response, Ticket};
use serde_json::json;

use crate::blocking;

/// Headers that concern one connection, or that the server sets itself.
const OF_THE_CONNECTION: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// How long it takes until a client that has gone is noticed.
const SLICE: Duration = Duration::from_millis(250);

/// What a server allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the host may take.
    pub wait: Duration,
    /// The largest body in an envelope.
    pub body_bytes: usize,
    /// The largest body in a file of its own; 0 if there are none.
    pub file_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { wait: Duration::from_secs(30), body_bytes: 256 << 10, file_bytes: 0 }
    }
}

/// The server's state.
#[derive(Debug)]
struct Bridge {
    client: Client,
    token: Token,
    limits: Limits,
}

/// The server. Whoever shows the token may ask for anything; the host decides.
pub fn router(client: Client, token: Token, limits: Limits) -> Router {
    Router::new().fallback(forward).with_state(Arc::new(Bridge { client, token, limits }))
}

/// A failure of the bridge itself.
#[derive(Debug)]
struct Failure {
    status: StatusCode,
    outcome: Outcome,
    words: String,
}

impl Failure {
    /// Nothing was asked of the host.
    fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self { status, outcome: Outcome::NotStarted, words: words.into() }
    }

    fn open(status: StatusCode, words: impl Into<String>) -> Self {
        Self { outcome: Outcome::Indeterminate, ..Self::new(status, words) }
    }
}

async fn forward(State(bridge): State<Arc<Bridge>>, request: HttpRequest) -> HttpResponse {
    match ask(&bridge, request).await {
        Ok(response) => response,
        Err(failure) => {
            let body = json!({ "error": failure.words }).to_string();
            let mut response = HttpResponse::new(HttpBody::from(body));
            *response.status_mut() = failure.status;
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert("x-bridge-outcome", outcome(failure.outcome));
            match failure.status {
                StatusCode::UNAUTHORIZED => {
                    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                }
                StatusCode::SERVICE_UNAVAILABLE => {
                    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                }
                _ => {}
            }
            response
        }
    }
}

async fn ask(bridge: &Arc<Bridge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let (parts, body) = request.into_parts();
    if !shows_token(&parts, &bridge.token) {
        return Err(Failure::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong"));
    }
    let in_file = !is_json(&parts) && bridge.limits.file_bytes > 0;
    if !in_file && !is_json(&parts) && brings_body(&parts) {
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a body must be JSON"));
    }
    let most = if in_file { bridge.limits.file_bytes } else { bridge.limits.body_bytes };
    let body = to_bytes(body, most).await;
    let body = body.map_err(|error| Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
    let asked = translated(&parts)?;
    let (own, gone) = (Arc::clone(bridge), Gone::default());
    let has_gone = Arc::clone(&gone.0);
    let answer = blocking(move || {
        let ticket = match in_file && !body.is_empty() {
            true => own.client.submit_from(&asked, body.as_ref()),
            false => own.client.submit(&asked.with_body(body.as_ref())),
        };
        answer(ticket.map_err(|error| refused(&error))?, &own.limits, &has_gone)
    });
    let answer =
        answer.await.map_err(|error| Failure::open(StatusCode::BAD_GATEWAY, error.to_string()))??;
    drop(gone);
    Ok(answer)
}

/// Says, by its end, that nobody waits for the answer any more.
#[derive(Default)]
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for the answer, and takes the request back if there is none in time, or nobody waits.
fn answer(mut ticket: Ticket, limits: &Limits, has_gone: &AtomicBool) -> Result<HttpResponse, Failure> {
    let deadline = Instant::now() + limits.wait;
    loop {
        let waited = ticket.wait(deadline.min(Instant::now() + SLICE));
        match waited.map_err(|error| Failure::open(StatusCode::BAD_GATEWAY, error.to_string()))? {
            Some(response) => return retold(response, limits),
            None if Instant::now() >= deadline || has_gone.load(Ordering::Relaxed) => break,
            None => {}
        }
    }
    let words = "the host has not answered in time";
    match ticket.cancel() {
        Ok(Cancelled::Withdrawn) => Err(Failure::new(StatusCode::GATEWAY_TIMEOUT, words)),
        // Also if it cannot be found out.
        _ => Err(Failure::open(StatusCode::GATEWAY_TIMEOUT, words)),
    }
}

fn refused(error: &beneath::Error) -> Failure {
    let status = match error.kind() {
        ErrorKind::TooMany => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::InvalidData => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    };
    Failure::new(status, error.to_string())
}

fn shows_token(parts: &Parts, token: &Token) -> bool {
    let mut shown = parts.headers.get_all(header::AUTHORIZATION).iter();
    match (shown.next().and_then(|value| value.to_str().ok()), shown.next()) {
        (Some(value), None) => value.strip_prefix("Bearer ").is_some_and(|raw| token.matches(raw)),
        _ => false,
    }
}

fn is_json(parts: &Parts) -> bool {
    let value = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn brings_body(parts: &Parts) -> bool {
    let length = parts.headers.get(header::CONTENT_LENGTH).map(|length| length.as_bytes() != b"0");
    let is_chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
    is_chunked || length.unwrap_or(![Method::GET, Method::HEAD, Method::DELETE].contains(&parts.method))
}

/// The request for the queue. The token stays here; all other headers are the host's to judge.
fn translated(parts: &Parts) -> Result<Request, Failure> {
    let wrong = |words: &str| Failure::new(StatusCode::BAD_REQUEST, words);
    let request = Request::new(parts.method.as_str(), parts.uri.path());
    let mut request = request.map_err(|error| Failure::new(StatusCode::BAD_GATEWAY, error.to_string()))?;
    for (name, value) in &parts.headers {
        if name == header::AUTHORIZATION || OF_THE_CONNECTION.contains(&name.as_str()) {
            continue;
        }
        let value = value.to_str().map_err(|_| wrong("a header is not text"))?;
        request.headers.add(name.as_str(), value).map_err(|malformed| wrong(&malformed.to_string()))?;
    }
    Ok(request.with_query(parts.uri.query().unwrap_or_default()))
}

fn outcome(outcome: Outcome) -> HeaderValue {
    HeaderValue::from_static(match outcome {
        Outcome::Done => "done",
        Outcome::NotStarted => "not-started",
        // Whatever is not known is not safe.
        _ => "indeterminate",
    })
}

/// The answer of the host, in HTTP.
fn retold(response: Response, limits: &Limits) -> Result<HttpResponse, Failure> {
    let wrong = |words: String| Failure::open(StatusCode::BAD_GATEWAY, words);
    let status = StatusCode::from_u16(response.status).map_err(|error| wrong(error.to_string()))?;
    let file_bytes = limits.file_bytes as u64;
    let bytes = match response.body {
        body @ Body::File(_) => body.into_bytes(file_bytes).map_err(|error| wrong(error.to_string()))?,
        // The size of its file was the limit.
        body => body.into_bytes(u64::MAX).map_err(|error| wrong(error.to_string()))?,
    };
    let mut retold = HttpResponse::new(HttpBody::from(bytes));
    *retold.status_mut() = status;
    for (name, value) in response.headers.iter().filter(|(name, _)| !OF_THE_CONNECTION.contains(name)) {
        let (name, value) = (HeaderName::try_from(name), HeaderValue::try_from(value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(wrong("the answer has an invalid header".to_owned()));
        };
        retold.headers_mut().append(name, value);
    }
    retold.headers_mut().insert("x-bridge-outcome", outcome(response.outcome));
    Ok(retold)
}
