//! What is no object, read only up to a bound.
//!
//! Problem: the clients of the clouds read a refusal, a page of a listing and the answer to a put to the end, and keep what a
//! refusal says in the error. A store that does not end fills the memory of the host; so does one with a version of half a megabyte for
//! each of many objects.
//!
//! Defence: of a refusal, and of an answer that says all by its headers, the beginning is read. A listing and what a call returns
//! have a bound, and so has a version. Only an object itself has none, since it is read chunk by chunk.
//!
//! What remains: a store of the caller's own reads what it likes.

use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_util::StreamExt as _;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

/// Most that is read of a refusal, or of what says all by its headers.
const BEGINNING: usize = 16 << 10;
/// Largest answer to a call, as that for a thousand objects.
const ANSWER_MAX: usize = 16 << 20;
/// Largest page of a listing: five thousand long names, with what Azure says of each.
const PAGE_MAX: usize = 32 << 20;
/// Longest version.
pub(super) const VERSION_MAX: usize = 512;

/// A client whose answers have bounds.
#[derive(Debug)]
struct Bounded(HttpClient);

/// The same client, whose answers have bounds.
pub(super) fn bounded(client: HttpClient) -> HttpClient {
    HttpClient::new(Bounded(client))
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Bounded {
    fn call<'life0, 'async_trait>(&'life0 self, request: HttpRequest) -> Answer<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let answers = Answers::of(&request);
            let (parts, body) = self.0.execute(request).await?.into_parts();
            if parts.headers.get("etag").is_some_and(|etag| etag.len() > VERSION_MAX) {
                return Err(overlong("version is overlong"));
            }
            let body = match answers {
                Answers::Object if parts.status.is_success() => body,
                Answers::Text(most) if parts.status.is_success() => {
                    let (answer, end) = beginning(body, most).await;
                    end?;
                    answer.into()
                }
                // The headers say what matters, also where the rest does not come.
                _ => beginning(body, BEGINNING).await.0.into(),
            };
            Ok(HttpResponse::from_parts(parts, body))
        })
    }
}

/// What a request is answered by, if it succeeds.
enum Answers {
    Object,
    /// At most so many bytes.
    Text(usize),
    Headers,
}

impl Answers {
    fn of(request: &HttpRequest) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let lists = query.split('&').any(|part| part.starts_with("list-type=") || part == "comp=list");
        match request.method().as_str() {
            "GET" if lists => Self::Text(PAGE_MAX),
            "GET" => Self::Object,
            "POST" => Self::Text(ANSWER_MAX),
            _ => Self::Headers,
        }
    }
}

/// The first bytes of a body, at most as many as `most`, and whether these are all.
async fn beginning(body: HttpResponseBody, most: usize) -> (Vec<u8>, Result<(), HttpError>) {
    let (mut chunks, mut read) = (body.bytes_stream(), Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => return (read, Err(error)),
        };
        let room = most.saturating_sub(read.len());
        read.extend(chunk.iter().take(room));
        if chunk.len() > room {
            return (read, Err(overlong("answer is overlong")));
        }
    }
    (read, Ok(()))
}

fn overlong(words: &'static str) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, io::Error::other(words))
}
