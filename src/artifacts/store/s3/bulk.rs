//! Removal of many objects in one request, each on a condition.
//!
//! Problem: between a comparison and a removal another host can put its own object, which the removal then destroys. One
//! request for each object makes a large removal slow. The store's own client takes what an answer does not mention for removed, and
//! panics if it mentions what nobody has asked for.
//!
//! Defence: the request carries the version, and the store compares and removes in one step. A thousand objects go in one
//! request, and each has its own answer; what the answer does not mention counts as not removed.
//!
//! What remains: a server that ignores the versions, or knows no such request. Callers find that out before they rely on it.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use md5::{Digest as _, Md5};

use super::complete::element;
use crate::artifacts::store::answer::Answer;
use crate::artifacts::store::object::{Doomed, strong};
use crate::artifacts::store::raw::{Raw, malformed, read_body, read_xml, refusal, request};
use crate::error::Result;

/// Largest answer: a thousand keys and messages, escaped.
const ANSWER_MAX: usize = 16 << 20;

/// Removes up to a thousand objects in one request; returns what became of each, in their order.
pub(super) async fn delete_many(raw: &Raw, objects: &[Doomed]) -> Result<Vec<Result<()>>> {
    let subject = objects.first().map_or("", |object| object.key.as_str());
    for object in objects {
        raw.object(&object.key)?;
    }
    let body = list_of(objects);
    let digest = STANDARD.encode(Md5::digest(body.as_bytes()));
    let url = format!("{}?delete", raw.url);
    let mut request = request("delete", subject, Method::POST, &url, body.into())?;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    // Not all servers take a newer checksum in its place.
    if let Ok(digest) = digest.parse() {
        headers.insert(HeaderName::from_static("content-md5"), digest);
    }
    let response = raw.execute("delete", subject, request).await?;
    if response.status() != StatusCode::OK {
        return Err(refusal("delete", subject, response).await.into_error("delete", subject));
    }
    let answer = read_body("delete", subject, response, ANSWER_MAX).await?;
    read_answer(subject, &answer, objects)
}

fn list_of(objects: &[Doomed]) -> String {
    let mut body = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for object in objects {
        body.push_str("<Object>");
        element(&mut body, "Key", &object.key);
        if let Some(etag) = &object.etag {
            element(&mut body, "ETag", strong(etag));
        }
        body.push_str("</Object>");
    }
    body + "</Delete>"
}

#[derive(Default)]
struct Entry {
    key: Option<String>,
    code: Option<String>,
}

fn read_answer(subject: &str, answer: &[u8], objects: &[Doomed]) -> Result<Vec<Result<()>>> {
    let mut entry = Entry::default();
    let (mut outcomes, mut whole) = (HashMap::new(), false);
    let read = read_xml(answer, |names, text| {
        match names {
            ["DeleteResult", "Deleted" | "Error", "Key"] => entry.key = Some(text),
            ["DeleteResult", "Error", "Code"] => entry.code = Some(text),
            ["DeleteResult", kind @ ("Deleted" | "Error")] => {
                let Entry { key, code } = std::mem::take(&mut entry);
                let code = (*kind == "Error").then(|| code.unwrap_or_default());
                // Of two answers the worse counts.
                let outcome: &mut Option<String> = outcomes.entry(key.unwrap_or_default()).or_default();
                *outcome = code.or(outcome.take());
            }
            ["DeleteResult"] => whole = true,
            _ => {}
        }
        Ok(())
    });
    match read {
        Ok(()) if whole => {}
        read => return Err(malformed("delete", subject, read.err().unwrap_or("answer is no result"))),
    }
    let outcome = |Doomed { key, .. }: &Doomed| match outcomes.get(key) {
        Some(None) => Ok(()),
        Some(Some(code)) => failed(key, code),
        None => Err(malformed("delete", key, "the answer does not mention it")),
    };
    Ok(objects.iter().map(outcome).collect())
}

fn failed(key: &str, code: &str) -> Result<()> {
    match code {
        "NoSuchKey" => Ok(()),
        code => Err(Answer { code: Some(code.to_owned()), ..Answer::default() }.into_error("delete", key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};

    fn doomed(keys: &[&str]) -> Vec<Doomed> {
        keys.iter().map(|key| Doomed { key: (*key).to_owned(), etag: None }).collect()
    }

    #[test]
    fn request_escapes_keys_and_versions() {
        let objects = [Doomed { key: "a&b".into(), etag: Some("\"e\"".into()) }];
        let body = list_of(&objects);
        let object = "<Object><Key>a&amp;b</Key><ETag>&quot;e&quot;</ETag></Object>";
        assert_eq!(
            body,
            format!("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{object}</Delete>")
        );
    }

    #[test]
    fn each_object_has_the_outcome_that_the_answer_gives_it() {
        let answer = "<?xml version=\"1.0\"?><DeleteResult><Deleted><Key>a&amp;b</Key></Deleted>\
             <Error><Key>c</Key><Code>PreconditionFailed</Code><Message>m</Message></Error>\
             <Error><Key>d</Key><Code>AccessDenied</Code></Error><Error><Key>e</Key><Code>NoSuchKey</Code></Error>\
             <Error><Key>f</Key><Code>InternalError</Code></Error><Error><Key>g</Key></Error>\
             <Deleted><Key>c</Key></Deleted><Deleted><Key>d</Key></Deleted><Deleted><Key>nobody asked</Key></Deleted></DeleteResult>";
        let objects = doomed(&["e", "a&b", "c", "d", "f", "g", "unmentioned"]);
        let outcomes = read_answer("k", answer.as_bytes(), &objects).unwrap();
        let kinds: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::kind)).collect();
        let (denied, io) = (Some(ErrorKind::Denied), Some(ErrorKind::Io));
        assert_eq!(kinds, [None, None, Some(ErrorKind::Busy), denied, io, io, io]);
    }

    #[test]
    fn answer_that_is_cut_short_removes_nothing() {
        for answer in ["", "<html></html>", "<DeleteResult><Deleted><Key>a</Key></Deleted>"] {
            assert_eq!(
                read_answer("a", answer.as_bytes(), &doomed(&["a"])).unwrap_err().kind(),
                ErrorKind::Io
            );
        }
    }
}
