//! A listing by raw keys, page by page.
//!
//! Problem: the store chooses how many pages there are, how large each is and how long it takes; a page can name itself
//! as the next one.
//!
//! Defence: a page has a bound, a deadline and a number of attempts; a token that was there before and too many pages
//! without an object end the listing.
//!
//! What remains: a store can list more objects than the caller wants. The caller counts them.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use percent_encoding::utf8_percent_encode;

use super::client::{QUERY, Raw, malformed, read_body};
use super::cloud::Page;
use crate::artifacts::store::object::Listed;
use crate::artifacts::store::retry::Retry;
use crate::error::{Error, ErrorKind, Result};

/// Largest page read: 1,000 keys of 1,024 bytes, encoded, with what surrounds them, fit several times.
const PAGE_MAX: usize = 16 << 20;
/// Pages in a row without a single object before a listing counts as endless.
const EMPTY_PAGES: u32 = 64;

struct State {
    raw: Arc<Raw>,
    prefix: String,
    retry: Retry,
    token: Option<String>,
    /// The tokens that were there before, as hashes.
    seen: HashSet<u64>,
    hasher: RandomState,
    empty: u32,
}

impl State {
    /// Whether the page after this one was there before.
    fn repeats(&mut self, next: &str) -> bool {
        !self.seen.insert(self.hasher.hash_one(next))
    }
}

/// Every object whose key starts with `prefix`.
pub(super) fn list(raw: Arc<Raw>, prefix: String, retry: Retry) -> BoxStream<'static, Result<Listed>> {
    let (seen, hasher) = (HashSet::new(), RandomState::new());
    let state = State { raw, prefix, retry, token: None, seen, hasher, empty: 0 };
    stream::try_unfold(Some(state), |state| async {
        let Some(mut state) = state else { return Ok(None) };
        let page = state.raw.page(&state.prefix, state.token.as_deref(), state.retry).await?;
        state.empty = if page.objects.is_empty() { state.empty + 1 } else { 0 };
        let goes_on = page.next.as_deref();
        if goes_on.is_some_and(|next| state.repeats(next) || state.empty >= EMPTY_PAGES) {
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

impl Raw {
    /// One page, with retries.
    async fn page(&self, prefix: &str, token: Option<&str>, retry: Retry) -> Result<Page> {
        let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
        let query = self.cloud.query(&encoded(prefix), token.map(encoded).as_deref());
        let url = format!("{}?{query}", self.url);
        let calls = retry.of("list", Path::new(prefix)).within(retry.silence());
        calls.run(|_| self.page_once(&url, prefix)).await
    }

    async fn page_once(&self, url: &str, prefix: &str) -> Result<Page> {
        let response = self.send("list", prefix, url, None).await?;
        let xml = read_body("list", prefix, response, PAGE_MAX).await?;
        self.cloud.page(&xml).map_err(|reason| malformed("list", prefix, reason))
    }
}
