//! Removal of one object, on a condition if it has a version.

use http::header::{HeaderValue, IF_MATCH};
use http::{Method, StatusCode};
use object_store::client::HttpRequestBody;

use super::client::{Raw, refusal, request};
use crate::artifacts::store::answer::Answer;
use crate::artifacts::store::attributes::Dialect;
use crate::artifacts::store::object::strong;
use crate::error::{Error, ErrorKind, Result};

impl Raw {
    /// Removes the object with exactly this key; with a version, only if it has that.
    pub(super) async fn delete(&self, key: &str, etag: Option<&str>) -> Result<()> {
        let mut request =
            request("delete", key, Method::DELETE, &self.object(key)?, HttpRequestBody::empty())?;
        if let Some(etag) = etag {
            let etag = HeaderValue::from_str(strong(etag));
            let etag = etag.map_err(|_| Error::new("delete", key, ErrorKind::Unsupported))?;
            request.headers_mut().insert(IF_MATCH, etag);
        }
        let response = self.execute("delete", key, request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let answer = refusal("delete", key, response).await;
        match answer.code.as_deref() {
            Some("NoSuchKey" | "BlobNotFound") | None if status == StatusCode::NOT_FOUND => Ok(()),
            _ => {
                Err(Answer { on_condition: etag.is_some() && self.cloud.dialect() == Dialect::S3, ..answer }
                    .into_error("delete", key))
            }
        }
    }
}
