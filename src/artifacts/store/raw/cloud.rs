//! What a cloud has of its own in a request and in an answer.

use futures_util::future::BoxFuture;
use http::HeaderMap;
use object_store::client::HttpRequest;

use super::xml::Malformed;
use crate::artifacts::store::attributes::Dialect;
use crate::artifacts::store::object::Listed;

/// What one page contains.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Listed>,
    /// The token of the next page, if there is one.
    pub(crate) next: Option<String>,
}

/// A cloud, as a request and a page of its listing show it.
pub(crate) trait Cloud: Send + Sync {
    /// How its own tools spell what an object says of its file.
    fn dialect(&self) -> Dialect;

    /// How the header of each such word begins.
    fn word(&self) -> &'static str;

    /// Signs a request.
    fn authorize<'a>(&'a self, request: &'a mut HttpRequest) -> BoxFuture<'a, object_store::Result<()>>;

    /// The query of a page of the listing below `prefix`, both encoded.
    fn query(&self, prefix: &str, token: Option<&str>) -> String;

    /// Reads a page.
    fn page(&self, xml: &[u8]) -> Result<Page, Malformed>;

    /// Whether a URL for this key opens the object when its client has signed it.
    fn signs(&self, _: &str) -> bool {
        true
    }

    /// The headers that a put must have.
    fn put(&self, _: &mut HeaderMap) {}
}
