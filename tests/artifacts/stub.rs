//! An S3 server that misbehaves on demand.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use beneath::artifacts::Source;
use object_store::aws::AmazonS3Builder;

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A whole response: status and body.
    Whole(u16, Vec<u8>),
    /// 200 with an announced length, the given bytes, then the end of the connection.
    Announced(usize, Vec<u8>),
    /// 200 with an announced length, the given bytes, then silence.
    Stalled(usize, Vec<u8>),
    /// 200, and bytes for ever.
    Endless,
    /// 206 with the rest of these bytes that the request asks for.
    Rest(Vec<u8>),
    /// A whole response of one's own: status line and headers, and body.
    Headed(String, Vec<u8>),
    /// Not even a status line.
    Closed,
    /// The same, and the connection stays open.
    Silent,
}

pub(crate) struct Stub {
    port: u16,
    pub(crate) gets: Arc<AtomicUsize>,
    /// The headers of each read, in lower case.
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    /// Answers listings with `list(continuation token)` and reads with `get(key below the prefix, count of gets)`.
    pub(crate) fn new(
        list: impl Fn(Option<&str>) -> Answer + Send + Sync + 'static,
        get: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let gets = Arc::new(AtomicUsize::new(0));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (list, get) = (Arc::new(list), Arc::new(get));
        let (counter, seen) = (Arc::clone(&gets), Arc::clone(&heads));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let (list, get) = (Arc::clone(&list), Arc::clone(&get));
                let (counter, seen) = (Arc::clone(&counter), Arc::clone(&seen));
                std::thread::spawn(move || {
                    let Some((target, head)) = request(&stream) else { return };
                    let from =
                        head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
                    let from = from.and_then(|from| from.parse().ok()).unwrap_or(0);
                    let answer = match target.split_once('?') {
                        Some((_, query)) => {
                            let token =
                                query.split('&').find_map(|pair| pair.strip_prefix("continuation-token="));
                            list(token)
                        }
                        None => {
                            let key = target.strip_prefix("/bucket/sessions/s1/").unwrap_or_default();
                            seen.lock().unwrap().push(head);
                            get(key, counter.fetch_add(1, Ordering::SeqCst))
                        }
                    };
                    // A client that has enough hangs up.
                    let _ = respond(stream, answer, from);
                });
            }
        });
        Self { port, gets, heads }
    }

    pub(crate) fn source(&self) -> Source {
        let builder = AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_bucket_name("bucket")
            .with_region("us-east-1")
            .with_access_key_id("k")
            .with_secret_access_key("s");
        Source::s3(builder).unwrap()
    }
}

/// The target of a request, and its headers in lower case.
fn request(stream: &TcpStream) -> Option<(String, String)> {
    let mut lines = BufReader::new(stream).lines();
    let target = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut head = String::new();
    loop {
        let line = lines.next()?.ok()?;
        if line.is_empty() {
            return Some((target, head));
        }
        head.push_str(&line.to_ascii_lowercase());
        head.push('\n');
    }
}

pub(crate) fn respond(mut stream: TcpStream, answer: Answer, from: usize) -> std::io::Result<()> {
    let mut head = |status: u16, length: Option<usize>| {
        let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
        let head = format!("HTTP/1.1 {status} X\r\nETag: \"e\"\r\nConnection: close\r\n{length}\r\n");
        stream.write_all(head.as_bytes())
    };
    match answer {
        Answer::Whole(status, body) => {
            head(status, Some(body.len()))?;
            stream.write_all(&body)
        }
        Answer::Announced(length, body) => {
            head(200, Some(length))?;
            stream.write_all(&body)
        }
        Answer::Stalled(length, body) => {
            head(200, Some(length))?;
            stream.write_all(&body)?;
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        }
        Answer::Endless => {
            head(200, None)?;
            loop {
                stream.write_all(&[b'x'; 4096])?;
            }
        }
        Answer::Rest(whole) => {
            let (last, total, rest) = (whole.len() - 1, whole.len(), &whole[from..]);
            let head = format!(
                "HTTP/1.1 206 X\r\nETag: \"e\"\r\nConnection: close\r\nContent-Length: {}\r\n\
                 Content-Range: bytes {from}-{last}/{total}\r\n\r\n",
                rest.len()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(rest)
        }
        Answer::Headed(head, body) => {
            stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes())?;
            stream.write_all(&body)
        }
        Answer::Closed => Ok(()),
        Answer::Silent => {
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        }
    }
}

/// A page with these objects below the prefix.
pub(crate) fn page(objects: &[(&str, usize)], next: Option<&str>) -> Answer {
    let mut xml = String::from("<ListBucketResult><EncodingType>url</EncodingType>");
    for (path, size) in objects {
        xml.push_str(&format!(
            "<Contents><Key>sessions/s1/{path}</Key><Size>{size}</Size><ETag>&quot;e&quot;</ETag></Contents>"
        ));
    }
    if let Some(token) = next {
        xml.push_str(&format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        ));
    }
    xml.push_str("</ListBucketResult>");
    Answer::Whole(200, xml.into_bytes())
}
