//! Objects by raw keys, and the rest of an object that was read in part.

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG};
use http::{HeaderMap, StatusCode};
use object_store::client::HttpResponse;

use super::client::{Raw, transport};
use crate::artifacts::store::attributes::Attributes;
use crate::artifacts::store::object::Body;
use crate::error::{ErrorKind, Result};

impl Raw {
    /// Opens the object with exactly this key.
    pub(super) async fn get(&self, key: &str) -> Result<Body> {
        let response = self.send("get", key, &self.object(key)?, None).await?;
        Ok(self.body(key, response))
    }

    /// The object from byte `from` on, if the server gives exactly that, of the version `etag`.
    pub(super) async fn rest(&self, key: &str, etag: &str, from: u64) -> Result<Option<Body>> {
        let response = match self.send("get", key, &self.object(key)?, Some((etag, from))).await {
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
        let rest = self.body(key, response);
        let exact = is_partial && rest.etag.as_deref() == Some(etag);
        let same_length = |total: &u64| rest.size.is_none_or(|size| total.checked_sub(from) == Some(size));
        Ok(total.filter(|total| exact && same_length(total)).map(|total| Body { size: Some(total), ..rest }))
    }

    fn body(&self, key: &str, response: HttpResponse) -> Body {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let size = header(CONTENT_LENGTH).and_then(|value| value.parse().ok());
        let etag = header(ETAG).map(str::to_owned);
        let (attributes, subject) = (self.said(key, response.headers()), key.to_owned());
        let chunks: BoxStream<'static, Result<Bytes>> = response
            .into_body()
            .bytes_stream()
            .map_err(move |error| transport("get", &subject, error))
            .boxed();
        Body { size, etag, attributes, chunks }
    }

    /// What the headers of an answer say of the file.
    pub(super) fn said(&self, key: &str, headers: &HeaderMap) -> Attributes {
        let words = headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().strip_prefix(self.cloud.word())?, value.to_str().ok()?))
        });
        Attributes::read(key, words)
    }
}
