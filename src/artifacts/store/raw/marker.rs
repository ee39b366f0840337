//! Directories as objects without content, whose keys end in `/`.
//!
//! The store's own client takes the slash away, and so would reach another object.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use object_store::client::{HttpRequestBody, HttpResponse};

use super::client::{Raw, refusal, request};
use crate::artifacts::store::attributes::{Attributes, Kind};
use crate::artifacts::store::object::Head;
use crate::error::{Error, ErrorKind, Result};

/// By which s3fs and others know a directory.
const DIRECTORY: HeaderValue = HeaderValue::from_static("application/x-directory");

impl Raw {
    /// Puts an object without content, in place of any.
    pub(super) async fn put_marker(&self, key: &str, attributes: &Attributes) -> Result<Option<String>> {
        if attributes.kind != Kind::Directory {
            return Err(Error::new("put", key, ErrorKind::InvalidPath)
                .with_detail("a key that ends in a slash is a directory"));
        }
        let mut request = request("put", key, Method::PUT, &self.object(key)?, HttpRequestBody::empty())?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, DIRECTORY);
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        self.cloud.put(headers);
        for (name, value) in attributes.words(self.cloud.dialect()) {
            let name = HeaderName::try_from(format!("{}{name}", self.cloud.word()));
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
        let response = self.execute("put", key, request).await?;
        match response.status() {
            status if status.is_success() => Ok(header(&response, ETAG)),
            _ => Err(refusal("put", key, response).await.into_error("put", key)),
        }
    }

    pub(super) async fn head_marker(&self, key: &str) -> Result<Option<Head>> {
        let request = request("head", key, Method::HEAD, &self.object(key)?, HttpRequestBody::empty())?;
        let response = self.execute("head", key, request).await?;
        match response.status() {
            StatusCode::OK => {
                let size = header(&response, CONTENT_LENGTH).and_then(|size| size.parse().ok());
                let attributes = self.said(key, response.headers());
                Ok(Some(Head { size: size.unwrap_or(0), etag: header(&response, ETAG), attributes }))
            }
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(refusal("head", key, response).await.into_error("head", key)),
        }
    }
}

fn header(response: &HttpResponse, name: HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
