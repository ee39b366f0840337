//! A bucket of S3 or GCS in this process: it keeps conditions in one step with the write, and misbehaves on demand.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use beneath::artifacts::Source;
use object_store::aws::AmazonS3Builder;

use crate::stub::{Answer, respond};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    key: String,
    query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    /// The byte from which on the object is wanted.
    fn range(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What the bucket does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Serve,
    /// Nothing, and answers this.
    Refuse(Answer),
    /// What it is asked for, and then answers this.
    ServeAndSay(Answer),
}

#[derive(Debug, Default)]
struct State {
    /// Content and version by key.
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    /// Parts by number, by upload.
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
    count: u64,
    log: Vec<Ask>,
}

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Bucket {
    /// A bucket where `judge` decides on each request; it is given how many of the kind came before.
    pub(crate) fn new(judge: impl Fn(&Request, usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bucket = Self { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let (serving, judge) = (bucket.clone(), Arc::new(judge));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (bucket, judge) = (serving.clone(), Arc::clone(&judge));
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    let before = bucket.begin(request.ask);
                    // A client that has enough hangs up.
                    let _ = match judge(&request, before) {
                        Act::Serve => bucket.state.lock().unwrap().serve(&request).send(&stream),
                        Act::Refuse(answer) => respond(stream, answer, 0),
                        Act::ServeAndSay(answer) => {
                            bucket.state.lock().unwrap().serve(&request);
                            respond(stream, answer, 0)
                        }
                    };
                });
            }
        });
        bucket
    }

    pub(crate) fn source(&self) -> Source {
        Source::s3(self.builder()).unwrap()
    }

    pub(crate) fn builder(&self) -> AmazonS3Builder {
        AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_bucket_name("bucket")
            .with_region("us-east-1")
            .with_access_key_id("k")
            .with_secret_access_key("s")
    }

    /// The same bucket as GCS, which compares generations and not versions.
    #[cfg(feature = "gcp")]
    pub(crate) fn gcs(&self) -> Source {
        let key = format!(
            r#"{{"gcs_base_url":"http://127.0.0.1:{}","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}}"#,
            self.port
        );
        let builder = object_store::gcp::GoogleCloudStorageBuilder::new()
            .with_bucket_name("bucket")
            .with_service_account_key(key)
            .with_client_options(object_store::ClientOptions::new().with_allow_http(true));
        Source::new(Arc::new(builder.build().unwrap()))
    }

    fn begin(&self, ask: Ask) -> usize {
        let log = &mut self.state.lock().unwrap().log;
        log.push(ask);
        log.iter().filter(|earlier| **earlier == ask).count() - 1
    }

    /// How often it was asked.
    pub(crate) fn asked(&self, ask: Ask) -> usize {
        self.state.lock().unwrap().log.iter().filter(|earlier| **earlier == ask).count()
    }

    /// The object at `path` below the prefix of the session.
    pub(crate) fn object(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state.lock().unwrap();
        state.objects.get(&format!("sessions/s1/{path}")).map(|(content, _)| content.clone())
    }

    /// Puts an object under any key, past every client.
    pub(crate) fn plant(&self, key: &str) {
        self.state.lock().unwrap().objects.insert(key.to_owned(), (b"planted".to_vec(), 0));
    }

    /// Uploads in parts that are neither completed nor aborted.
    pub(crate) fn unfinished(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
    }
}

fn etag(version: u64) -> String {
    format!("\"v{version}\"")
}

/// Status, version, length and body of an answer, and at which byte of the object the body begins.
struct Served(u16, Option<u64>, usize, Vec<u8>, usize);

impl Served {
    fn of(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self(status, None, body.len(), body, 0)
    }

    fn send(self, mut stream: &TcpStream) -> std::io::Result<()> {
        let Self(status, version, length, body, from) = self;
        let etag = version.map_or(String::new(), |version| {
            format!("ETag: \"v{version}\"\r\nx-goog-generation: {version}\r\n")
        });
        let fixed = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: close\r\n";
        let total = from + length;
        let range = match status {
            206 => format!("Content-Range: bytes {from}-{}/{total}\r\n", total - 1),
            _ => String::new(),
        };
        let head = format!("HTTP/1.1 {status} X\r\n{etag}{range}{fixed}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&body)
    }
}

impl State {
    fn serve(&mut self, request: &Request) -> Served {
        let upload = request.query.get("uploadId").cloned().unwrap_or_default();
        let gone = || Served::of(404, "<Error><Code>NoSuchUpload</Code></Error>");
        match request.ask {
            Ask::List => self.list(request),
            Ask::Head | Ask::Get => match self.objects.get(&request.key) {
                None => Served::of(404, ""),
                Some((_, version))
                    if request.headers.get("if-match").is_some_and(|tag| *tag != etag(*version)) =>
                {
                    Served::of(412, "")
                }
                Some((content, version)) => match request.range() {
                    _ if request.ask == Ask::Head => {
                        Served(200, Some(*version), content.len(), Vec::new(), 0)
                    }
                    None => Served(200, Some(*version), content.len(), content.clone(), 0),
                    Some(from) => match content.get(from..) {
                        None | Some([]) => Served::of(416, ""),
                        Some(rest) => Served(206, Some(*version), rest.len(), rest.to_vec(), from),
                    },
                },
            },
            Ask::Put => self.publish(request, request.body.clone()),
            Ask::Delete if request.body.is_empty() => {
                self.objects.remove(&request.key);
                Served::of(204, "")
            }
            Ask::Delete => {
                let body = String::from_utf8_lossy(&request.body);
                let keys = body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
                let mut xml = String::from("<DeleteResult>");
                for key in keys {
                    let entities =
                        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
                    let plain =
                        entities.iter().fold(key.to_owned(), |key, (text, plain)| key.replace(text, plain));
                    self.objects.remove(&plain);
                    xml.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
                }
                Served::of(200, xml + "</DeleteResult>")
            }
            Ask::Create => {
                self.count += 1;
                let id = format!("u{}", self.count);
                self.uploads.insert(id.clone(), BTreeMap::new());
                let xml = "InitiateMultipartUploadResult";
                Served::of(200, format!("<{xml}><UploadId>{id}</UploadId></{xml}>"))
            }
            Ask::Part => {
                let number: usize = request.query["partNumber"].parse().unwrap();
                let Some(parts) = self.uploads.get_mut(&upload) else { return gone() };
                parts.insert(number, request.body.clone());
                Served(200, Some(number as u64), 0, Vec::new(), 0)
            }
            Ask::Complete => {
                let Some(parts) = self.uploads.get(&upload) else { return gone() };
                let content: Vec<u8> = parts.values().flatten().copied().collect();
                let named = String::from_utf8_lossy(&request.body).matches("<PartNumber>").count();
                assert_eq!(named, parts.len(), "{:?}", request.body);
                let served = self.publish(request, content);
                if let Some(version) = served.1 {
                    self.uploads.remove(&upload);
                    let xml = "CompleteMultipartUploadResult";
                    return Served::of(200, format!("<{xml}><ETag>&quot;v{version}&quot;</ETag></{xml}>"));
                }
                served
            }
            Ask::Abort => {
                if self.uploads.remove(&upload).is_some() {
                    Served::of(204, "")
                } else {
                    gone()
                }
            }
        }
    }

    /// Puts `content` in place if the condition holds.
    fn publish(&mut self, request: &Request, content: Vec<u8>) -> Served {
        let version = self.objects.get(&request.key).map(|(_, version)| *version);
        let found = version.map(etag);
        let generation = request.headers.get("x-goog-if-generation-match");
        let generation = generation.is_none_or(|wanted| *wanted == version.unwrap_or(0).to_string());
        let absent = !request.headers.contains_key("if-none-match") || found.is_none();
        let same = request.headers.get("if-match").is_none_or(|wanted| found.as_ref() == Some(wanted));
        if !absent || !same || !generation {
            return Served::of(412, "<Error><Code>PreconditionFailed</Code></Error>");
        }
        self.count += 1;
        self.objects.insert(request.key.clone(), (content, self.count));
        Served(200, Some(self.count), 0, Vec::new(), 0)
    }

    fn list(&self, request: &Request) -> Served {
        let encoded = request.query.contains_key("encoding-type");
        let prefix = request.query.get("prefix").cloned().unwrap_or_default();
        let prefix = percent_encoding::percent_decode_str(&prefix).decode_utf8_lossy().into_owned();
        let mut xml = String::from("<ListBucketResult>");
        if encoded {
            xml.push_str("<EncodingType>url</EncodingType>");
        }
        for (key, (content, version)) in &self.objects {
            if !key.starts_with(&prefix) {
                continue;
            }
            let key = match encoded {
                true => {
                    percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string()
                }
                false => key.replace('&', "&amp;").replace('<', "&lt;"),
            };
            let size = content.len();
            xml.push_str(&format!(
                "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>&quot;v{version}&quot;</ETag>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            ));
        }
        Served::of(200, xml + "</ListBucketResult>")
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
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
    let query: BTreeMap<String, String> = pairs.map(|(name, value)| (name.into(), value.into())).collect();
    let mut headers = BTreeMap::new();
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let ask = match (method, query.contains_key("uploadId")) {
        ("GET", _) if query.contains_key("list-type") => Ask::List,
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
    let key = path.strip_prefix("/bucket/").unwrap_or_default();
    let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
    Some(Request { ask, key, query, headers, body })
}
