//! Envelopes against a reading of their form by hand, from a tree that keeps every key.
//!
//! The first byte of the input says whether the rest is a request or an answer, and which limits are tight.
#![no_main]

use std::fmt;

use beneath::queue::{EnvelopeLimits, Headers, Malformed, Outcome, Request, RequestId, Response};
use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

const ID: &str = "a";

fuzz_target!(|input: &[u8]| {
    let Some((bits, json)) = input.split_first() else { return };
    let (depth, headers, header_bytes) = (
        if bits & 2 == 0 { 32 } else { 3 },
        if bits & 4 == 0 { 64 } else { 2 },
        if bits & 8 == 0 { 16 << 10 } else { 12 },
    );
    let limits =
        EnvelopeLimits::default().with_depth(depth).with_headers(headers).with_header_bytes(header_bytes);
    let id: RequestId = ID.parse().expect("a letter is an id");
    let judge = Judge { depth, headers, header_bytes };
    let (got, expected) = if bits & 1 == 0 {
        (Request::from_json(json, &id, limits).map(Read::from), judge.request(json))
    } else {
        (Response::from_json(json, &id, limits).map(Read::from), judge.response(json))
    };
    match (&got, &expected) {
        (Ok(read), Ok(meant)) => assert_eq!(read, meant),
        (Err(malformed), Err(reasons)) => {
            assert!(reasons.contains(malformed), "{malformed:?}, not {reasons:?}")
        }
        _ => panic!("{got:?}, expected {expected:?}"),
    }
    let Ok(read) = got else { return };
    again(&read, &id, limits);
});

/// What is written of what was read is read the same, by the crate and by hand.
fn again(read: &Read, id: &RequestId, limits: EnvelopeLimits) {
    let mut headers = Headers::new();
    for (name, value) in &read.headers {
        headers.add(name, value).expect("what was read can be written");
    }
    let body = read.body.as_slice();
    let judge = Judge { depth: 32, headers: 64, header_bytes: 16 << 10 };
    let (got, expected) = match &read.line {
        Line::Request { method, path, query } => {
            let request = Request::with_id(id.clone(), method, path).with_query(query.as_str());
            let json = request.with_headers(headers).with_body(body).to_json();
            (Request::from_json(&json, id, limits).map(Read::from), judge.request(&json))
        }
        Line::Response { status, .. } => {
            let json = Response::new(*status).with_headers(headers).with_body(body).to_json(id);
            (Response::from_json(&json, id, limits).map(Read::from), judge.response(&json))
        }
    };
    let mut meant = read.clone();
    if let Line::Response { outcome, .. } = &mut meant.line {
        *outcome = "done".to_owned();
    }
    assert_eq!((got.as_ref(), expected.as_ref()), (Ok(&meant), Ok(&meant)));
}

#[derive(Clone, Debug, PartialEq)]
struct Read {
    line: Line,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq)]
enum Line {
    Request { method: String, path: String, query: String },
    Response { status: u16, outcome: String },
}

fn owned(headers: &Headers) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl From<Request> for Read {
    fn from(request: Request) -> Self {
        assert_eq!(request.id.as_str(), ID);
        let headers = owned(&request.headers);
        let line = Line::Request { method: request.method, path: request.path, query: request.query };
        Self { line, headers, body: request.body.into_bytes(u64::MAX).expect("it is in memory") }
    }
}

impl From<Response> for Read {
    fn from(response: Response) -> Self {
        let outcome = match response.outcome {
            Outcome::Done => "done",
            Outcome::NotStarted => "not-started",
            Outcome::Indeterminate => "indeterminate",
            _ => panic!("an outcome that no envelope has"),
        };
        let line = Line::Response { status: response.status, outcome: outcome.to_owned() };
        let headers = owned(&response.headers);
        Self { line, headers, body: response.body.into_bytes(u64::MAX).expect("it is in memory") }
    }
}

struct Judge {
    depth: usize,
    headers: usize,
    header_bytes: usize,
}

type Judged = Result<Read, Vec<Malformed>>;

impl Judge {
    fn request(&self, json: &[u8]) -> Judged {
        let keys = ["v", "id", "method", "path", "query", "headers", "encoding", "body"];
        self.judge(json, &keys, |object, reasons| {
            let (method, path) = (object.text("method")?, object.text("path")?);
            let query = object.text_or("query", "")?;
            let token = (1..=32).contains(&method.len()) && method.bytes().all(is_tchar);
            let control = |letter: char| matches!(u32::from(letter), 0..0x20 | 0x7f..0xa0);
            if !token {
                reasons.push(Malformed::Method);
            }
            let foreign = |letter: char| !matches!(letter, '!' | '"' | '$'..='~');
            if path.as_bytes().first() != Some(&b'/') || path.contains(control) || query.contains(foreign) {
                reasons.push(Malformed::Path);
            }
            Some(Line::Request { method, path, query })
        })
    }

    fn response(&self, json: &[u8]) -> Judged {
        let keys = ["v", "id", "status", "outcome", "headers", "encoding", "body"];
        self.judge(json, &keys, |object, reasons| {
            let status = match object.one("status")? {
                Tree::Number(number) => u16::try_from(number.as_u64()?).ok()?,
                _ => return None,
            };
            let outcome = object.text_or("outcome", "done")?;
            if !["done", "not-started", "indeterminate"].contains(&outcome.as_str()) {
                return None;
            }
            if status / 100 == 0 || status > 999 {
                reasons.push(Malformed::Status);
            }
            Some(Line::Response { status, outcome })
        })
    }

    /// Everything that is wrong, in no order. What concerns the form has no other reason beside it.
    fn judge(
        &self,
        json: &[u8],
        keys: &[&str],
        line: impl Fn(&Object, &mut Vec<Malformed>) -> Option<Line>,
    ) -> Judged {
        // A tree that merges keys and one that keeps them agree on what is JSON.
        let tree = serde_json::from_slice::<Tree>(json);
        assert_eq!(tree.is_ok(), serde_json::from_slice::<Value>(json).is_ok());
        let Ok(tree) = tree else { return Err(vec![Malformed::Form, Malformed::Version, Malformed::Depth]) };
        if tree.depth() > self.depth {
            return Err(vec![Malformed::Depth]);
        }
        let Tree::Object(pairs) = tree else { return Err(vec![Malformed::Form]) };
        let object = Object(pairs);
        match object.one("v") {
            Some(Tree::Number(version)) if version.as_u64() == Some(1) => {}
            Some(Tree::Number(version)) if version.is_u64() => return Err(vec![Malformed::Version]),
            _ => return Err(vec![Malformed::Form]),
        }
        let mut reasons = Vec::new();
        let read = object.has_only(keys).then(|| self.parts(&object, &mut reasons, &line)).flatten();
        match read {
            None => Err(vec![Malformed::Form]),
            Some(read) if reasons.is_empty() => Ok(read),
            Some(_) => Err(reasons),
        }
    }

    fn parts(
        &self,
        object: &Object,
        reasons: &mut Vec<Malformed>,
        line: &impl Fn(&Object, &mut Vec<Malformed>) -> Option<Line>,
    ) -> Option<Read> {
        if object.text("id")? != ID {
            reasons.push(Malformed::Id);
        }
        let line = line(object, reasons)?;
        let headers = object.headers()?;
        let plain = |text: &str| {
            text.chars().all(|letter| letter == '\t' || !matches!(u32::from(letter), 0..0x20 | 0x7f..0xa0))
        };
        if headers.iter().any(|(name, value)| name.is_empty() || !name.bytes().all(is_tchar) || !plain(value))
        {
            reasons.push(Malformed::Header);
        }
        let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if headers.len() > self.headers || bytes > self.header_bytes {
            reasons.push(Malformed::Headers);
        }
        let text = object.text_or("body", "")?;
        let body = match object.text_or("encoding", "text")?.as_str() {
            "text" => Some(text.into_bytes()),
            "base64" => base64(text.as_bytes()),
            "file" => text.is_empty().then(Vec::new),
            _ => return None,
        };
        if body.is_none() {
            reasons.push(Malformed::Body);
        }
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        Some(Read { line, headers, body: body.unwrap_or_default() })
    }
}

/// What RFC 9110 lists.
fn is_tchar(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~')
}

/// Base64 with its padding, bit by bit.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let letters = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = Vec::new();
    for letter in letters {
        let value = alphabet.iter().position(|own| own == letter)?;
        bits.extend((0..6).rev().map(|bit| value >> bit & 1 == 1));
    }
    let spare = bits.len() % 8;
    let is_whole =
        text.len() % 4 == 0 && [0, 2, 4].contains(&spare) && text.len() - letters.len() == spare / 2;
    let rest = bits.split_off(bits.len() - spare);
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    (is_whole && !rest.contains(&true)).then(|| bits.chunks(8).map(byte).collect())
}

/// JSON with every key of an object, also those that repeat.
enum Tree {
    Other,
    Number(Number),
    Text(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    fn depth(&self) -> usize {
        match self {
            Self::Other | Self::Number(_) | Self::Text(_) => 0,
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(pairs) => 1 + pairs.iter().map(|(_, tree)| tree.depth()).max().unwrap_or(0),
        }
    }

    fn as_text(&self) -> Option<String> {
        if let Self::Text(text) = self { Some(text.clone()) } else { None }
    }
}

struct Object(Vec<(String, Tree)>);

impl Object {
    /// The value of a key that is there once.
    fn one(&self, key: &str) -> Option<&Tree> {
        let mut found = self.0.iter().filter(|(own, _)| own == key);
        let first = found.next()?;
        found.next().is_none().then_some(&first.1)
    }

    fn has_only(&self, keys: &[&str]) -> bool {
        self.0.len() == keys.iter().filter(|key| self.one(key).is_some()).count()
    }

    fn text(&self, key: &str) -> Option<String> {
        self.one(key)?.as_text()
    }

    fn text_or(&self, key: &str, default: &str) -> Option<String> {
        if self.one(key).is_some() { self.text(key) } else { Some(default.to_owned()) }
    }

    fn headers(&self) -> Option<Vec<(String, String)>> {
        let Some(headers) = self.one("headers") else { return Some(Vec::new()) };
        let Tree::Array(items) = headers else { return None };
        let pair = |item: &Tree| match item {
            Tree::Array(pair) if pair.len() == 2 => Some((pair[0].as_text()?, pair[1].as_text()?)),
            _ => None,
        };
        items.iter().map(pair).collect()
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Grower)
    }
}

struct Grower;

impl<'de> Visitor<'de> for Grower {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Tree::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(pair) = pairs.next_entry()? {
            all.push(pair);
        }
        Ok(Tree::Object(all))
    }
}
