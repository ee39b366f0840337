//! An S3 server that misbehaves on demand.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Not even a status line.
    Closed,
    /// The same, and the connection stays open.
    Silent,
}

pub(crate) struct Stub {
    port: u16,
    pub(crate) gets: Arc<AtomicUsize>,
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
        let (list, get, counter) = (Arc::new(list), Arc::new(get), Arc::clone(&gets));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let (list, get, counter) = (Arc::clone(&list), Arc::clone(&get), Arc::clone(&counter));
                std::thread::spawn(move || {
                    let Some(target) = request(&stream) else { return };
                    let answer = match target.split_once('?') {
                        Some((_, query)) => {
                            let token =
                                query.split('&').find_map(|pair| pair.strip_prefix("continuation-token="));
                            list(token)
                        }
                        None => {
                            let key = target.strip_prefix("/bucket/sessions/s1/").unwrap_or_default();
                            get(key, counter.fetch_add(1, Ordering::SeqCst))
                        }
                    };
                    // A client that has enough hangs up.
                    let _ = respond(stream, answer);
                });
            }
        });
        Self { port, gets }
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

fn request(stream: &TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream).lines();
    let target = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    while !lines.next()?.ok()?.is_empty() {}
    Some(target)
}

pub(crate) fn respond(mut stream: TcpStream, answer: Answer) -> std::io::Result<()> {
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
