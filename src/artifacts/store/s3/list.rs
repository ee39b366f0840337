//! A listing by raw keys, page by page.
//!
//! Problem: the store chooses how many pages there are, how large each is and how long it takes; a page can name itself
//! as the next one.
//!
//! Defence: a page has a bound, a deadline and a number of attempts; a token that repeats itself and too many pages
//! without an object end the listing.
//!
//! What remains: a store can list more objects than the caller wants. The caller counts them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use percent_encoding::utf8_percent_encode;

use super::client::{Bucket, QUERY, malformed, read_body};
use super::page::{self, Page};
use crate::artifacts::store::object::Listed;
use crate::artifacts::store::retry::Retry;
use crate::error::{Error, ErrorKind, Result};

/// Largest page read: 1,000 keys of 1,024 bytes, encoded, with what surrounds them, fit several times.
const PAGE_MAX: usize = 16 << 20;
/// Pages in a row without a single object before a listing counts as endless.
const EMPTY_PAGES: u32 = 64;
/// The longest that a page may take.
const PAGE_WAIT: Duration = Duration::from_secs(60);
/// Attempts for one page.
const ATTEMPTS: u32 = 5;

struct State {
    bucket: Arc<Bucket>,
    prefix: String,
    token: Option<String>,
    empty: u32,
}

/// Every object whose key starts with `prefix`.
pub(super) fn list(bucket: Arc<Bucket>, prefix: String) -> BoxStream<'static, Result<Listed>> {
    let state = State { bucket, prefix, token: None, empty: 0 };
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

impl Bucket {
    /// One page, with retries.
    async fn page(&self, prefix: &str, token: Option<&str>) -> Result<Page> {
        let mut query =
            format!("list-type=2&encoding-type=url&prefix={}", utf8_percent_encode(prefix, QUERY));
        if let Some(token) = token {
            query.push_str(&format!("&continuation-token={}", utf8_percent_encode(token, QUERY)));
        }
        let url = format!("{}?{query}", self.url);
        let retry = Retry::default().with_attempts(ATTEMPTS);
        retry.of("list", Path::new(prefix)).within(PAGE_WAIT).run(|_| self.page_once(&url, prefix)).await
    }

    async fn page_once(&self, url: &str, prefix: &str) -> Result<Page> {
        let response = self.send("list", prefix, url, None).await?;
        let xml = read_body("list", prefix, response, PAGE_MAX).await?;
        page::parse(&xml).map_err(|reason| malformed("list", prefix, reason))
    }
}
