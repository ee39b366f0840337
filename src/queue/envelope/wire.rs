//! The JSON itself.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::value::CowStrDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

use super::body::{Body, BodyPlace};
use super::headers::Headers;
use super::limits::EnvelopeLimits;
use super::malformed::Malformed;
use super::message::{Outcome, Request, Response};
use crate::queue::id::RequestId;

const VERSION: u64 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Text,
    Base64,
    File,
}

type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest<'a> {
    v: u64,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    query: Cow<'a, str>,
    #[serde(borrow, default)]
    headers: Vec<Pair<'a>>,
    #[serde(default, deserialize_with = "from_text")]
    encoding: Encoding,
    #[serde(borrow, default)]
    body: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResponse<'a> {
    v: u64,
    #[serde(borrow)]
    id: Cow<'a, str>,
    status: u16,
    #[serde(default, deserialize_with = "from_text")]
    outcome: RawOutcome,
    #[serde(borrow, default)]
    headers: Vec<Pair<'a>>,
    #[serde(default, deserialize_with = "from_text")]
    encoding: Encoding,
    #[serde(borrow, default)]
    body: Cow<'a, str>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawOutcome {
    #[default]
    Done,
    NotStarted,
    Indeterminate,
}

/// Serde also takes `{"text":null}` for the variant `text`.
fn from_text<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(CowStrDeserializer::new(Cow::deserialize(deserializer)?))
}

/// What any version has.
#[derive(Deserialize)]
struct AnyVersion {
    v: u64,
}

#[derive(Serialize)]
struct Reason<'a> {
    reason: &'a str,
    error: &'a str,
}

impl Request {
    /// The envelope. A [file](Body::File) is only said to be there.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        self.write(self.body.place())
    }

    /// The same, with the body in a file beside it if `place` says so.
    pub(in crate::queue) fn write(&self, place: BodyPlace) -> Vec<u8> {
        let (encoding, body) = encoded(&self.body, place);
        let raw = RawRequest {
            v: VERSION,
            id: self.id.as_str().into(),
            method: self.method.as_str().into(),
            path: self.path.as_str().into(),
            query: self.query.as_str().into(),
            headers: pairs(&self.headers),
            encoding,
            body,
        };
        // Texts and numbers can always be written.
        serde_json::to_vec(&raw).unwrap_or_default()
    }

    /// Reads an envelope that was found under the name of `id`. A body that is said to be in a file is empty here.
    ///
    /// # Errors
    /// The first [`Malformed`] that is found.
    pub fn from_json(json: &[u8], id: &RequestId, limits: EnvelopeLimits) -> Result<Self, Malformed> {
        Self::read(json, id, limits).map(|(request, _)| request)
    }

    /// The same, and where the body is.
    pub(in crate::queue) fn read(
        json: &[u8],
        id: &RequestId,
        limits: EnvelopeLimits,
    ) -> Result<(Self, BodyPlace), Malformed> {
        let raw: RawRequest<'_> = parse(json, limits)?;
        if raw.id != id.as_str() {
            return Err(Malformed::Id);
        }
        let headers = read_headers(&raw.headers)?;
        let (body, place) = decoded(raw.encoding, raw.body)?;
        let (method, path, query) = (raw.method.into_owned(), raw.path.into_owned(), raw.query.into_owned());
        let request = Self { id: id.clone(), method, path, query, headers, body };
        request.check(limits)?;
        Ok((request, place))
    }
}

impl Response {
    /// The envelope of the answer to `id`. A [file](Body::File) is only said to be there.
    #[must_use]
    pub fn to_json(&self, id: &RequestId) -> Vec<u8> {
        self.write(id, self.body.place())
    }

    /// The same, with the body in a file beside it if `place` says so.
    pub(in crate::queue) fn write(&self, id: &RequestId, place: BodyPlace) -> Vec<u8> {
        let (encoding, body) = encoded(&self.body, place);
        let outcome = match self.outcome {
            Outcome::Done => RawOutcome::Done,
            Outcome::NotStarted => RawOutcome::NotStarted,
            Outcome::Indeterminate => RawOutcome::Indeterminate,
        };
        let raw = RawResponse {
            v: VERSION,
            id: id.as_str().into(),
            status: self.status,
            outcome,
            headers: pairs(&self.headers),
            encoding,
            body,
        };
        serde_json::to_vec(&raw).unwrap_or_default()
    }

    /// Reads an envelope that was found under the name of `id`. A body that is said to be in a file is empty here.
    ///
    /// # Errors
    /// The first [`Malformed`] that is found.
    pub fn from_json(json: &[u8], id: &RequestId, limits: EnvelopeLimits) -> Result<Self, Malformed> {
        Self::read(json, id, limits).map(|(response, _)| response)
    }

    /// The same, and where the body is.
    pub(in crate::queue) fn read(
        json: &[u8],
        id: &RequestId,
        limits: EnvelopeLimits,
    ) -> Result<(Self, BodyPlace), Malformed> {
        let raw: RawResponse<'_> = parse(json, limits)?;
        if raw.id != id.as_str() {
            return Err(Malformed::Id);
        }
        let headers = read_headers(&raw.headers)?;
        let (body, place) = decoded(raw.encoding, raw.body)?;
        let outcome = match raw.outcome {
            RawOutcome::Done => Outcome::Done,
            RawOutcome::NotStarted => Outcome::NotStarted,
            RawOutcome::Indeterminate => Outcome::Indeterminate,
        };
        let response = Self { status: raw.status, headers, body, outcome };
        response.check(limits)?;
        Ok((response, place))
    }

    /// What the host itself says.
    pub(in crate::queue) fn of_host(status: u16, outcome: Outcome, reason: &str, words: &str) -> Self {
        // A map of two texts can always be written.
        let body = serde_json::to_string(&Reason { reason, error: words }).unwrap_or_default();
        let mut headers = Headers::new();
        // Both are constants that fit.
        let _ = headers.add("content-type", "application/json");
        Self { status, headers, body: Body::Text(body), outcome }
    }
}

fn parse<'a, T: Deserialize<'a> + Versioned>(json: &'a [u8], limits: EnvelopeLimits) -> Result<T, Malformed> {
    // Most have fewer brackets than levels are allowed.
    let brackets = json.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets > limits.depth() && nesting(json) > limits.depth() {
        return Err(Malformed::Depth);
    }
    // Serde also takes an array for a struct, its items in the order of the fields.
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(Malformed::Form);
    }
    match serde_json::from_slice::<T>(json) {
        Ok(raw) if raw.version() == VERSION => Ok(raw),
        Ok(_) => Err(Malformed::Version),
        // A later version may have another form.
        Err(_) => match serde_json::from_slice::<AnyVersion>(json) {
            Ok(any) if any.v != VERSION => Err(Malformed::Version),
            _ => Err(Malformed::Form),
        },
    }
}

trait Versioned {
    fn version(&self) -> u64;
}

impl Versioned for RawRequest<'_> {
    fn version(&self) -> u64 {
        self.v
    }
}

impl Versioned for RawResponse<'_> {
    fn version(&self) -> u64 {
        self.v
    }
}

/// How deep arrays and objects are nested, of JSON and of what is none.
fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn pairs(headers: &Headers) -> Vec<Pair<'_>> {
    headers.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn read_headers(pairs: &[Pair<'_>]) -> Result<Headers, Malformed> {
    let mut headers = Headers::new();
    pairs.iter().try_for_each(|(name, value)| headers.add(name, value))?;
    Ok(headers)
}

fn encoded(body: &Body, place: BodyPlace) -> (Encoding, Cow<'_, str>) {
    match (place, body) {
        (BodyPlace::Inside, Body::Text(text)) => (Encoding::Text, text.as_str().into()),
        (BodyPlace::Inside, Body::Bytes(bytes)) => (Encoding::Base64, STANDARD.encode(bytes).into()),
        _ => (Encoding::File, "".into()),
    }
}

fn decoded(encoding: Encoding, body: Cow<'_, str>) -> Result<(Body, BodyPlace), Malformed> {
    let inside = match encoding {
        Encoding::Text => Body::Text(body.into_owned()),
        Encoding::Base64 => Body::Bytes(STANDARD.decode(body.as_bytes()).map_err(|_| Malformed::Body)?),
        Encoding::File if body.is_empty() => return Ok((Body::default(), BodyPlace::Beside)),
        Encoding::File => return Err(Malformed::Body),
    };
    Ok((inside, BodyPlace::Inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Request, Malformed> {
        Request::from_json(json.as_bytes(), &"a".parse().unwrap(), EnvelopeLimits::default())
    }

    #[test]
    fn an_envelope_has_one_form_and_anything_else_is_refused_with_its_reason() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let headers = |count: usize| {
            let one = r#"["x","y"]"#;
            format!(
                r#"{{"v":1,"id":"a","method":"GET","path":"/","headers":[{}]}}"#,
                vec![one; count].join(",")
            )
        };
        let long = format!(
            r#"{{"v":1,"id":"a","method":"GET","path":"/","headers":[["x","{}"]]}}"#,
            "y".repeat(17 << 10)
        );
        let cases = [
            (r#"{"v":1,"id":"a","method":"GET","path":"/"}"#.to_owned(), None),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","query":"x=1","headers":[["A","b"]],"encoding":"base64","body":"AAE="}"#.into(), None),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","encoding":"file"}"#.into(), None),
            (headers(64), None),
            (headers(65), Some(Malformed::Headers)),
            (long, Some(Malformed::Headers)),
            (String::new(), Some(Malformed::Form)),
            ("null".into(), Some(Malformed::Form)),
            ("{}".into(), Some(Malformed::Form)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/"} x"#.into(), Some(Malformed::Form)),
            (r#"{"v":1,"id":"a","id":"a","method":"GET","path":"/"}"#.into(), Some(Malformed::Form)),
            (r#"{"v":1,"id":"a","\u0069d":"b","method":"GET","path":"/"}"#.into(), Some(Malformed::Form)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","more":1}"#.into(), Some(Malformed::Form)),
            (r#"{"v":1,"id":"a","method":"GET","path":7}"#.into(), Some(Malformed::Form)),
            (r#"{"v":1e400,"id":"a","method":"GET","path":"/"}"#.into(), Some(Malformed::Form)),
            (r#"{"v":2,"id":"a","shape":"new"}"#.into(), Some(Malformed::Version)),
            (r#"{"v":0,"id":"a","method":"GET","path":"/"}"#.into(), Some(Malformed::Version)),
            (r#"{"v":1,"id":"b","method":"GET","path":"/"}"#.into(), Some(Malformed::Id)),
            (r#"{"v":1,"id":"a","method":"","path":"/"}"#.into(), Some(Malformed::Method)),
            (r#"{"v":1,"id":"a","method":"GET /x","path":"/"}"#.into(), Some(Malformed::Method)),
            (r#"{"v":1,"id":"a","method":"GET","path":"x"}"#.into(), Some(Malformed::Path)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/\u0000"}"#.into(), Some(Malformed::Path)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","query":"\r\n"}"#.into(), Some(Malformed::Path)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","query":"x HTTP/1.1"}"#.into(), Some(Malformed::Path)),
            (r##"{"v":1,"id":"a","method":"GET","path":"/","query":"x#y"}"##.into(), Some(Malformed::Path)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","query":"ä"}"#.into(), Some(Malformed::Path)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","query":"?a[]=%23&b=/~!"}"#.into(), None),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","headers":[["a b","c"]]}"#.into(), Some(Malformed::Header)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","headers":[["a","b\r\nc: d"]]}"#.into(), Some(Malformed::Header)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","encoding":"base64","body":"AAE"}"#.into(), Some(Malformed::Body)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","encoding":"file","body":"x"}"#.into(), Some(Malformed::Body)),
            (r#"{"v":1,"id":"a","method":"GET","path":"/","encoding":"zip"}"#.into(), Some(Malformed::Form)),
            (
                r#"{"v":1,"id":"a","method":"GET","path":"/","encoding":{"text":null}}"#.into(),
                Some(Malformed::Form),
            ),
            (r#"[1,"a","GET","/"]"#.into(), Some(Malformed::Form)),
            (r#"[1,"a","GET","/","",[],"text",""]"#.into(), Some(Malformed::Form)),
            ("[2]".into(), Some(Malformed::Form)),
            (" \n{\"v\":1,\"id\":\"a\",\"method\":\"GET\",\"path\":\"/\"}\t".into(), None),
            (deep(32), Some(Malformed::Form)),
            (deep(33), Some(Malformed::Depth)),
            (deep(100_000), Some(Malformed::Depth)),
            (format!(r#"{{"v":1,"id":"a","method":"GET","path":"/","body":"{}"}}"#, "[".repeat(99)), None),
        ];
        for (json, expected) in cases {
            assert_eq!(read(&json).err(), expected, "{}", json.get(..120).unwrap_or(&json));
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let id: RequestId = "a".parse().unwrap();
        for body in [Body::from("\u{1}\"\\ ä"), Body::Bytes(vec![0, 159, 255])] {
            let bytes = body.as_bytes().unwrap().to_vec();
            let mut headers = Headers::new();
            headers.add("X-A", "b\tc").unwrap();
            let request = Request::with_id(id.clone(), "POST", "/x%20y")
                .with_query("a=b&c")
                .with_headers(headers.clone());
            let read = Request::from_json(&request.with_body(body).to_json(), &id, EnvelopeLimits::default())
                .unwrap();
            assert_eq!(
                (read.method.as_str(), read.path.as_str(), read.query.as_str()),
                ("POST", "/x%20y", "a=b&c")
            );
            assert_eq!((read.headers, read.body.as_bytes().unwrap()), (headers, bytes.as_slice()));
        }
        let response = Response::of_host(504, Outcome::Indeterminate, "crash", "why");
        let read = Response::from_json(&response.to_json(&id), &id, EnvelopeLimits::default()).unwrap();
        assert_eq!((read.status, read.outcome), (504, Outcome::Indeterminate));
        assert_eq!(read.body.as_bytes(), response.body.as_bytes());
    }
}
