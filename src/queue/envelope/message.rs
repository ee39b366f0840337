//! What a guest asks for, and what it is answered.

use super::body::Body;
use super::headers::{Headers, is_token};
use super::limits::EnvelopeLimits;
use super::malformed::Malformed;
use crate::queue::id::RequestId;

/// The longest method.
const METHOD: usize = 32;

/// What a guest asks for.
///
/// ```
/// use beneath::queue::{EnvelopeLimits, Malformed, Request, RequestId};
///
/// let limits = EnvelopeLimits::default();
/// let request = Request::new("GET", "/issues/7")?;
/// let json = request.to_json();
/// assert_eq!(Request::from_json(&json, &request.id, limits)?.path, "/issues/7");
///
/// let other: RequestId = "other".parse()?;
/// assert_eq!(Request::from_json(&json, &other, limits).unwrap_err(), Malformed::Id);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// Its name, which the answer has too.
    pub id: RequestId,
    /// A token: `GET`.
    pub method: String,
    /// As the guest wrote it, with a `/` in front; see [`Routes`](crate::queue::policy::Routes).
    pub path: String,
    /// What follows the `?`, without it: visible ASCII without a `#`, not decoded.
    pub query: String,
    /// As the guest wrote them; see [`HeaderRules`](crate::queue::policy::HeaderRules).
    pub headers: Headers,
    /// What it brings.
    pub body: Body,
}

/// What became of the request that is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It was handled.
    #[default]
    Done,
    /// Nobody has begun it: asking again is safe.
    NotStarted,
    /// It was begun, and nobody knows how far it came: asking again may do it twice.
    Indeterminate,
}

/// What a guest is answered.
///
/// ```
/// use beneath::queue::{EnvelopeLimits, Outcome, RequestId, Response};
///
/// let id = RequestId::generate()?;
/// let json = Response::new(200).with_body("hello").to_json(&id);
/// let response = Response::from_json(&json, &id, EnvelopeLimits::default())?;
/// assert_eq!((response.status, response.outcome), (200, Outcome::Done));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Response {
    /// As of HTTP, from 100 to 999.
    pub status: u16,
    /// In their order.
    pub headers: Headers,
    /// What it brings.
    pub body: Body,
    /// What became of the request.
    pub outcome: Outcome,
}

impl Request {
    /// A request with a new id and no headers, query or body.
    ///
    /// # Errors
    /// As [`RequestId::generate`].
    pub fn new(method: &str, path: &str) -> crate::Result<Self> {
        RequestId::generate().map(|id| Self::with_id(id, method, path))
    }

    /// A request with this id.
    #[must_use]
    pub fn with_id(id: RequestId, method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { id, method, path, query: String::new(), headers: Headers::new(), body: Body::default() }
    }

    /// Sets the query, without the `?`.
    #[must_use]
    pub fn with_query(mut self, query: impl Into<String>) -> Self {
        self.query = query.into();
        self
    }

    /// Replaces the headers.
    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Whether a host would read it.
    pub(in crate::queue) fn check(&self, limits: EnvelopeLimits) -> Result<(), Malformed> {
        let is_method = self.method.len() <= METHOD && is_token(&self.method);
        let is_path = self.path.starts_with('/') && !self.path.contains(char::is_control);
        // A space would end the target in a line of HTTP, and a `#` begins what no server is sent.
        let is_query = self.query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        match (is_method, is_path && is_query) {
            (false, _) => Err(Malformed::Method),
            (_, false) => Err(Malformed::Path),
            _ => self.headers.check(limits),
        }
    }
}

impl Response {
    /// An answer with no headers and no body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, headers: Headers::new(), body: Body::default(), outcome: Outcome::Done }
    }

    /// Replaces the headers.
    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Whether a guest would read it.
    pub(in crate::queue) fn check(&self, limits: EnvelopeLimits) -> Result<(), Malformed> {
        match (100..=999).contains(&self.status) {
            true => self.headers.check(limits),
            false => Err(Malformed::Status),
        }
    }
}
