//! One request per connection, and any answer to it, be it HTTP or not.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::SCRATCH;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    List,
    Get,
    Head,
    Put,
    Delete,
    Create,
    Part,
    Complete,
    Abort,
    /// Anything about a scratch object.
    Probe,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    pub(crate) key: String,
    pub(crate) query: BTreeMap<String, String>,
    /// By names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned())
        };
        let first = line()?;
        let (method, target) = first.strip_suffix(" HTTP/1.1")?.split_once(' ')?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query: BTreeMap<_, _> = pairs.map(|(name, value)| (name.into(), decoded(value))).collect();
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = line()?.split_once(": ") {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let ask = match (method, query.contains_key("uploadId")) {
            ("GET", _)
                if query.contains_key("list-type")
                    || query.get("comp").is_some_and(|comp| comp == "list") =>
            {
                Ask::List
            }
            ("GET", _) => Ask::Get,
            ("HEAD", _) => Ask::Head,
            ("PUT", true) => Ask::Part,
            ("PUT", false) => Ask::Put,
            ("DELETE", true) => Ask::Abort,
            ("DELETE", false) => Ask::Delete,
            ("POST", true) => Ask::Complete,
            // The client of S3 deletes in bulk, even if it is one object.
            _ if query.contains_key("delete") => Ask::Delete,
            _ => Ask::Create,
        };
        let key = decoded(path.strip_prefix("/bucket/").unwrap_or_default());
        Some(Self { ask, key, query, headers, body })
    }

    /// Whether it is about a scratch object, by which the crate finds out what the store does with conditions.
    pub(crate) fn is_probe(&self) -> bool {
        let in_bulk = |window: &[u8]| window == SCRATCH.as_bytes();
        self.key.contains(SCRATCH) || (self.key.is_empty() && self.body.windows(SCRATCH.len()).any(in_bulk))
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// What is sent, and what becomes of the connection after it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// None: not even a status line.
    status: Option<u16>,
    headers: BTreeMap<&'static str, String>,
    body: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Close,
    Silence,
    BytesForEver,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        // A minute after every object was put, as the listings say.
        let now = "Thu, 01 Jan 2026 00:01:00 GMT".to_owned();
        let headers = BTreeMap::from([("Content-Length", body.len().to_string()), ("Date", now)]);
        Self { status: Some(status), headers, body, then: Then::Close }
    }

    /// An object with an announced length, of which only these bytes come.
    pub(crate) fn cut(length: usize, body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, body).with("Content-Length", length)
    }

    pub(crate) fn closed() -> Self {
        Self { status: None, ..Self::new(0, "") }
    }

    pub(crate) fn with(mut self, header: &'static str, value: impl ToString) -> Self {
        self.headers.insert(header, value.to_string());
        self
    }

    pub(crate) fn without(mut self, header: &str) -> Self {
        self.headers.remove(header);
        self
    }

    /// The same, unless the answer has that header.
    pub(crate) fn or_with(mut self, header: &'static str, value: &str) -> Self {
        self.headers.entry(header).or_insert(value.to_owned());
        self
    }

    /// Goes on without a byte, and the connection stays open.
    pub(crate) fn then_silence(self) -> Self {
        Self { then: Then::Silence, ..self }
    }

    /// Goes on with bytes, and does not say how many.
    pub(crate) fn then_bytes_for_ever(mut self) -> Self {
        self.headers.remove("Content-Length");
        Self { then: Then::BytesForEver, ..self }
    }

    pub(crate) fn send(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        if let Some(status) = self.status {
            let headers = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
            let headers: String = headers.collect();
            let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n{headers}\r\n");
            stream.write_all(head.as_bytes())?;
            stream.write_all(&self.body)?;
        }
        match self.then {
            Then::Close => {}
            Then::Silence => std::thread::sleep(Duration::from_secs(20)),
            Then::BytesForEver => loop {
                stream.write_all(&[b'x'; 4096])?;
            },
        }
        Ok(())
    }
}
