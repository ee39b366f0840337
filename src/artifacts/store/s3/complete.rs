//! Large objects in parts, published by the store only if a condition holds.
//!
//! Problem: between a comparison and a completion another host can publish its own object, which the completion then
//! overwrites.
//!
//! Defence: the completion carries the condition, and the store compares and publishes in one step.
//!
//! What remains: a server that ignores the condition, or answers that it knows none. Callers compare right before.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use http::{Method, StatusCode};
use object_store::aws::AmazonS3;
use object_store::multipart::MultipartStore as _;
use object_store::path::Path as StorePath;
use object_store::{Attributes, PutMultipartOptions, PutPayload};
use percent_encoding::utf8_percent_encode;
use tokio::sync::Mutex;

use crate::artifacts::store::answer::Answer;
use crate::artifacts::store::backend::Parts;
use crate::artifacts::store::error::{changed, store_error};
use crate::artifacts::store::object::{Condition, quoted, strong};
use crate::artifacts::store::raw::{Malformed, QUERY, Raw, malformed, read_body, read_xml, refusal, request};
use crate::error::{Error, ErrorKind, Result};

/// Largest answer to a completion.
const ANSWER_MAX: usize = 64 << 10;

/// Starts an upload.
pub(super) async fn begin(
    raw: &Arc<Raw>,
    store: &AmazonS3,
    at: StorePath,
    attributes: Attributes,
) -> Result<Box<dyn Parts>> {
    let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
    let id = store.create_multipart_opts(&at, options).await;
    let id = id.map_err(|error| store_error("put", at.as_ref(), error))?;
    let (raw, store, answers) = (Arc::clone(raw), store.clone(), Mutex::default());
    Ok(Box::new(Upload { raw, store, at, id, answers }))
}

/// An upload that has begun.
struct Upload {
    raw: Arc<Raw>,
    store: AmazonS3,
    at: StorePath,
    id: String,
    /// What the store has answered to each part, for the completion.
    answers: Mutex<Vec<String>>,
}

// The store shows its credentials.
impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("raw", &self.raw).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Parts for Upload {
    fn id(&self) -> Option<&str> {
        Some(&self.id)
    }

    // A part that is put again under its number takes the place of the first.
    fn put(&self, part: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut answers = self.answers.lock().await;
            let part = PutPayload::from_bytes(part);
            let put = self.store.put_part(&self.at, &self.id, answers.len(), part).await;
            answers.push(put.map_err(|error| store_error("put", self.at.as_ref(), error))?.content_id);
            Ok(())
        }
        .boxed()
    }

    fn complete<'a>(&'a self, condition: Condition<'a>) -> BoxFuture<'a, Result<Option<String>>> {
        async move {
            let answers = self.answers.lock().await;
            complete(&self.raw, &self.at, &self.id, &answers, condition).await
        }
        .boxed()
    }

    fn abort(&self) -> BoxFuture<'_, Result<()>> {
        abort(&self.store, &self.at, &self.id).boxed()
    }
}

/// Discards an upload; one that is not there counts as discarded.
pub(super) async fn abort(store: &AmazonS3, at: &StorePath, id: &String) -> Result<()> {
    match store.abort_multipart(at, id).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(store_error("abort", at.as_ref(), error)),
    }
}

/// Publishes the parts as the object, and returns its version. The upload stays if the condition does not hold.
///
/// An upload that is gone counts as one whose object has changed: it may have been completed by a call whose answer
/// was lost.
async fn complete(
    raw: &Raw,
    at: &StorePath,
    id: &str,
    parts: &[String],
    condition: Condition<'_>,
) -> Result<Option<String>> {
    let key = at.as_ref();
    let url = format!("{}?uploadId={}", raw.object(key)?, utf8_percent_encode(id, QUERY));
    let body = manifest(parts).map_err(|reason| malformed("put", key, reason))?;
    let mut request = request("put", key, Method::POST, &url, body.into())?;
    if let Some((name, value)) = header(key, condition)? {
        request.headers_mut().insert(name, value);
    }
    let response = raw.execute("put", key, request).await?;
    match response.status() {
        StatusCode::OK => {
            let answer = read_body("put", key, response, ANSWER_MAX).await?;
            read_answer(key, &answer)
        }
        StatusCode::NOT_FOUND => Err(changed("put", key)),
        _ => {
            let on_condition = condition != Condition::Always;
            let answer = refusal("put", key, response).await;
            Err(Answer { on_condition, ..answer }.into_error("put", key))
        }
    }
}

fn header(key: &str, condition: Condition<'_>) -> Result<Option<(HeaderName, HeaderValue)>> {
    Ok(match condition {
        Condition::Always => None,
        Condition::Absent => Some((IF_NONE_MATCH, HeaderValue::from_static("*"))),
        Condition::Unchanged(etag) => {
            let value = HeaderValue::from_str(strong(etag)).map_err(|error| {
                Error::new("put", key, ErrorKind::Io).with_source(std::io::Error::other(error))
            })?;
            Some((IF_MATCH, value))
        }
    })
}

/// The body of the completion. The answer to a part is its version, or an element with versions and checksums.
fn manifest(parts: &[String]) -> std::result::Result<String, Malformed> {
    let mut body = String::from("<CompleteMultipartUpload>");
    for (index, answer) in parts.iter().enumerate() {
        body.push_str(&format!("<Part><PartNumber>{}</PartNumber>", index + 1));
        if answer.starts_with('<') {
            read_xml(answer.as_bytes(), |names, text| {
                match names {
                    [_, "e_tag"] => element(&mut body, "ETag", &text),
                    [_, "checksum_sha256"] => element(&mut body, "ChecksumSHA256", &text),
                    [_, "checksum_crc64nvme"] => element(&mut body, "ChecksumCRC64NVME", &text),
                    _ => {}
                }
                Ok(())
            })?;
        } else {
            element(&mut body, "ETag", answer);
        }
        body.push_str("</Part>");
    }
    body.push_str("</CompleteMultipartUpload>");
    Ok(body)
}

pub(super) fn element(body: &mut String, name: &str, text: &str) {
    body.push_str(&format!("<{name}>{}</{name}>", quick_xml::escape::escape(text)));
}

/// The version of the object. A completion takes its time, so S3 answers 200 before it knows how it ends.
fn read_answer(key: &str, answer: &[u8]) -> Result<Option<String>> {
    let (mut done, mut etag, mut code) = (false, None, None);
    let read = read_xml(answer, |names, text| {
        match names {
            ["CompleteMultipartUploadResult"] => done = true,
            // As a header has it: on the version in another form no condition holds.
            ["CompleteMultipartUploadResult", "ETag"] => etag = Some(quoted(text)),
            ["Error", "Code"] => code = Some(text),
            _ => {}
        }
        Ok(())
    });
    match code {
        None if done => Ok(etag),
        None => Err(malformed("put", key, read.err().unwrap_or("answer is no completion"))),
        Some(code) if ["NoSuchUpload", "NoSuchKey"].contains(&code.as_str()) => Err(changed("put", key)),
        // The status was sent before anything was known, and says nothing.
        code => Err(Answer { code, ..Answer::default() }.into_error("put", key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_names_versions_and_checksums() {
        let checked =
            "<PartMetadata><e_tag>\"b\"</e_tag><checksum_sha256>x=</checksum_sha256></PartMetadata>";
        let body = manifest(&["\"a<\"".into(), checked.into()]).unwrap();
        let part = |number: u32, rest: &str| format!("<Part><PartNumber>{number}</PartNumber>{rest}</Part>");
        let (first, second) = (
            part(1, "<ETag>&quot;a&lt;&quot;</ETag>"),
            part(2, "<ETag>&quot;b&quot;</ETag><ChecksumSHA256>x=</ChecksumSHA256>"),
        );
        assert_eq!(body, format!("<CompleteMultipartUpload>{first}{second}</CompleteMultipartUpload>"));
    }

    #[test]
    fn answer_of_200_is_read_before_it_is_believed() {
        let error = |code: &str| format!("\n \n<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
        let cases = [
            (error("InternalError"), ErrorKind::Io),
            (error("SlowDown"), ErrorKind::Io),
            (error("PreconditionFailed"), ErrorKind::Busy),
            (error("ConditionalRequestConflict"), ErrorKind::Busy),
            (error("NoSuchUpload"), ErrorKind::Busy),
            (error("NotImplemented"), ErrorKind::Unsupported),
            (String::new(), ErrorKind::Io),
            ("<CompleteMultipartUploadResult><ETag>&quot;a".into(), ErrorKind::Io),
            ("<html></html>".into(), ErrorKind::Io),
        ];
        for (answer, kind) in cases {
            let error = read_answer("k", answer.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), kind, "{answer}: {error}");
        }
        let done = "<?xml version=\"1.0\"?>\n<CompleteMultipartUploadResult xmlns=\"x\"><ETag>&quot;a-1&quot;</ETag>\
                    </CompleteMultipartUploadResult>";
        for done in [done.to_owned(), done.replace("&quot;", "")] {
            assert_eq!(read_answer("k", done.as_bytes()).unwrap().as_deref(), Some("\"a-1\""));
        }
    }
}
