//! A bucket of S3, GCS or, but for parts, Azure in this process: it keeps conditions in one step with the write, and misbehaves on demand.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use beneath::artifacts::Source;
use object_store::aws::AmazonS3Builder;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub(crate) use crate::http::{Answer, Ask, Request};
use crate::servers;

/// What the bucket does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Serve,
    /// Nothing, and answers this.
    Refuse(Answer),
    /// What it is asked for, and then answers this.
    ServeAndSay(Answer),
    /// What it is asked for but for what is said of the file, and then answers this.
    ServeBareAndSay(Answer),
    /// What it is asked for, and then another host puts an object at this path below the prefix of the session.
    ServeAndPlant(&'static str),
}

type Headers = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct State {
    /// Content and version by key.
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    /// What was said of each version, and of each upload.
    said: BTreeMap<String, Headers>,
    /// Parts by number, by upload.
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
    count: u64,
    /// The headers of every request, by kind.
    log: BTreeMap<Ask, Vec<Headers>>,
    /// The kinds of requests, in order.
    order: Vec<Ask>,
    /// Whether conditions are taken and ignored.
    careless: bool,
    /// Whether all versions but those of puts are marked as weak.
    weak: bool,
    /// Whether a removal of many is refused.
    no_bulk: bool,
    /// The answer to all about scratch objects, if it is not served.
    probes: Option<Answer>,
    /// Whether the answer to the next completion of a scratch object is lost.
    loses_trial: bool,
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
                    let Some(mut request) = Request::read(&stream) else { return };
                    let before = bucket.begin(&request);
                    let serve = |request: &Request| bucket.state.lock().unwrap().serve(request);
                    let refusal = || bucket.state.lock().unwrap().probes.clone();
                    let loses = || std::mem::take(&mut bucket.state.lock().unwrap().loses_trial);
                    let act = match request.is_probe() {
                        true if request.ask == Ask::Complete && loses() => Act::ServeAndSay(Answer::closed()),
                        true => refusal().map_or(Act::Serve, Act::Refuse),
                        false => judge(&request, before),
                    };
                    let answer = match act {
                        Act::Serve => serve(&request),
                        Act::ServeAndPlant(path) => {
                            let answer = serve(&request);
                            bucket.plant(&format!("sessions/s1/{path}"));
                            answer
                        }
                        Act::Refuse(answer) => answer,
                        Act::ServeAndSay(answer) => {
                            serve(&request);
                            answer
                        }
                        Act::ServeBareAndSay(answer) => {
                            request.headers.retain(|name, _| !is_said(name));
                            serve(&request);
                            answer
                        }
                    };
                    // A client that has enough hangs up.
                    let _ = answer.send(&stream);
                });
            }
        });
        bucket
    }

    /// Answers listings with `list(continuation token)` and reads with `get(key below the prefix, count of gets)`.
    pub(crate) fn scripted(
        list: impl Fn(Option<&str>) -> Answer + Send + Sync + 'static,
        get: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |request, count| {
            Act::Refuse(match request.ask {
                Ask::List => list(request.query.get("continuation-token").map(String::as_str)),
                _ => get(request.key.strip_prefix("sessions/s1/").unwrap(), count).or_with("ETag", "\"e\""),
            })
        })
    }

    pub(crate) fn source(&self) -> Source {
        Source::s3(self.builder()).unwrap()
    }

    pub(crate) fn builder(&self) -> AmazonS3Builder {
        servers::client(self.port, "bucket")
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The same bucket as GCS, which compares generations and not versions.
    #[cfg(feature = "gcp")]
    pub(crate) fn gcs(&self) -> Source {
        Source::gcs(self.gcs_builder()).unwrap()
    }

    #[cfg(feature = "gcp")]
    pub(crate) fn gcs_builder(&self) -> object_store::gcp::GoogleCloudStorageBuilder {
        use object_store::gcp::{GcpSigningCredential, GoogleCloudStorageBuilder, ServiceAccountKey};

        let private_key = Some(ServiceAccountKey::new(Box::new(Signer)));
        let signing = GcpSigningCredential { email: "a@example".to_owned(), private_key };
        GoogleCloudStorageBuilder::new()
            .with_base_url(&self.url())
            .with_bucket_name("bucket")
            .with_bearer_token("token")
            .with_signing_credentials(Arc::new(object_store::StaticCredentialProvider::new(signing)))
    }

    /// The same bucket as a container of Azure.
    #[cfg(feature = "azure")]
    pub(crate) fn azure(&self) -> Source {
        Source::azure(self.azure_builder()).unwrap()
    }

    #[cfg(feature = "azure")]
    pub(crate) fn azure_builder(&self) -> object_store::azure::MicrosoftAzureBuilder {
        object_store::azure::MicrosoftAzureBuilder::new()
            .with_account("account")
            .with_access_key("aw==")
            .with_container_name("bucket")
            .with_endpoint(self.url())
            .with_allow_http(true)
    }

    /// The same bucket as every cloud that there is, by name.
    pub(crate) fn clouds(&self) -> Vec<(&'static str, Source)> {
        vec![
            ("S3", self.source()),
            #[cfg(feature = "gcp")]
            ("GCS", self.gcs()),
            #[cfg(feature = "azure")]
            ("Azure", self.azure()),
        ]
    }

    /// A bucket that gives this answer to all about scratch objects.
    pub(crate) fn refusing_probes(answer: Answer) -> Self {
        let bucket = Self::new(|_, _| Act::Serve);
        bucket.state.lock().unwrap().probes = Some(answer);
        bucket
    }

    /// The same bucket, which takes conditions and ignores them, as s3rver does.
    pub(crate) fn careless(self) -> Self {
        self.state.lock().unwrap().careless = true;
        self
    }

    /// The same bucket, behind something that marks versions as weak.
    pub(crate) fn weak(self) -> Self {
        self.state.lock().unwrap().weak = true;
        self
    }

    /// The same bucket, which does not know a removal of many.
    pub(crate) fn without_bulk(self) -> Self {
        self.state.lock().unwrap().no_bulk = true;
        self
    }

    /// The same bucket, which completes the next scratch object and does not say so.
    pub(crate) fn losing_a_trial(self) -> Self {
        self.state.lock().unwrap().loses_trial = true;
        self
    }

    /// The kinds of all requests but those about scratch objects, in order.
    pub(crate) fn order(&self) -> Vec<Ask> {
        self.state.lock().unwrap().order.iter().copied().filter(|ask| *ask != Ask::Probe).collect()
    }

    /// Every key.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }

    /// Notes a request; returns how many of the kind came before.
    fn begin(&self, request: &Request) -> usize {
        let mut state = self.state.lock().unwrap();
        let ask = if request.is_probe() { Ask::Probe } else { request.ask };
        state.order.push(ask);
        let of_kind = state.log.entry(ask).or_default();
        of_kind.push(request.headers.clone());
        of_kind.len() - 1
    }

    /// How often it was asked.
    pub(crate) fn asked(&self, ask: Ask) -> usize {
        self.state.lock().unwrap().log.get(&ask).map_or(0, Vec::len)
    }

    /// The headers of each read.
    pub(crate) fn reads(&self) -> Vec<Headers> {
        self.state.lock().unwrap().log[&Ask::Get].clone()
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

    /// Puts the object at `path` again, with the same content and under another version, as another tool does.
    pub(crate) fn put_again(&self, path: &str) {
        let mut state = self.state.lock().unwrap();
        state.count += 1;
        let (key, count) = (format!("sessions/s1/{path}"), state.count);
        state.objects.get_mut(&key).unwrap().1 = count;
    }

    /// The same without content.
    pub(crate) fn plant_empty(&self, key: &str) {
        self.state.lock().unwrap().objects.insert(key.to_owned(), (Vec::new(), 0));
    }

    /// Uploads in parts that are neither completed nor aborted.
    pub(crate) fn unfinished(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
    }
}

/// Signs with nothing, which is enough for a server that does not look.
#[cfg(feature = "gcp")]
#[derive(Debug)]
struct Signer;

#[cfg(feature = "gcp")]
impl object_store::client::Signer for Signer {
    fn sign(&self, _: &[u8]) -> object_store::Result<Vec<u8>> {
        Ok(vec![1])
    }
}

/// What a request says of the file.
fn said(request: &Request) -> Headers {
    let said = request.headers.iter().filter(|(name, _)| is_said(name));
    said.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether a header says something of the file.
fn is_said(name: &str) -> bool {
    ["x-amz-meta-", "x-goog-meta-", "x-ms-meta-"].iter().any(|start| name.starts_with(start))
}

/// There are few names, and a test soon ends.
fn leak(name: &str) -> &'static str {
    name.to_owned().leak()
}

fn etag(version: u64) -> String {
    format!("\"v{version}\"")
}

fn error(status: u16, code: &str) -> Answer {
    Answer::new(status, format!("<Error><Code>{code}</Code></Error>"))
}

fn version(answer: Answer, version: u64) -> Answer {
    answer.with("ETag", etag(version)).with("x-goog-generation", version)
}

impl State {
    fn serve(&mut self, request: &Request) -> Answer {
        let upload = request.query.get("uploadId").map_or("", String::as_str);
        let gone = || error(404, "NoSuchUpload");
        match request.ask {
            Ask::List => self.list(request),
            Ask::Head | Ask::Get => self.get(request),
            Ask::Put => self.publish(request, request.body.clone()).unwrap_or_else(|refusal| refusal),
            Ask::Delete if request.body.is_empty() => {
                match self.remove(&request.key, request.headers.get("if-match").map(String::as_str)) {
                    Ok(()) => Answer::new(204, ""),
                    Err((status, code)) => error(status, code),
                }
            }
            Ask::Delete if self.no_bulk => error(501, "NotImplemented"),
            Ask::Delete => {
                let body = String::from_utf8_lossy(&request.body).into_owned();
                let between = |text: &str, name: &str| {
                    let (_, rest) = text.split_once(&format!("<{name}>"))?;
                    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
                    Some(quick_xml::escape::unescape(inner).unwrap().into_owned())
                };
                let mut xml = String::from("<DeleteResult>");
                for object in body.split("<Object>").skip(1) {
                    let key = between(object, "Key").unwrap();
                    let removed = self.remove(&key, between(object, "ETag").as_deref());
                    let key = quick_xml::escape::escape(&key).into_owned();
                    xml.push_str(&match removed {
                        Ok(()) => format!("<Deleted><Key>{key}</Key></Deleted>"),
                        Err((_, code)) => format!("<Error><Key>{key}</Key><Code>{code}</Code></Error>"),
                    });
                }
                Answer::new(200, xml + "</DeleteResult>")
            }
            Ask::Create => {
                self.count += 1;
                let id = format!("u{}", self.count);
                self.uploads.insert(id.clone(), BTreeMap::new());
                self.said.insert(id.clone(), said(request));
                let xml = "InitiateMultipartUploadResult";
                Answer::new(200, format!("<{xml}><UploadId>{id}</UploadId></{xml}>"))
            }
            Ask::Part => {
                let number: usize = request.query["partNumber"].parse().unwrap();
                let Some(parts) = self.uploads.get_mut(upload) else { return gone() };
                parts.insert(number, request.body.clone());
                version(Answer::new(200, ""), number as u64)
            }
            Ask::Complete => {
                let Some(parts) = self.uploads.get(upload) else { return gone() };
                let content: Vec<u8> = parts.values().flatten().copied().collect();
                let named = String::from_utf8_lossy(&request.body).matches("<PartNumber>").count();
                assert_eq!(named, parts.len(), "{:?}", request.body);
                if let Err(refusal) = self.publish(request, content) {
                    return refusal;
                }
                self.uploads.remove(upload);
                let (xml, version) = ("CompleteMultipartUploadResult", self.count);
                Answer::new(200, format!("<{xml}><ETag>&quot;v{version}&quot;</ETag></{xml}>"))
            }
            Ask::Abort => self.uploads.remove(upload).map_or_else(gone, |_| Answer::new(204, "")),
            Ask::Probe => Answer::new(400, "a probe is one of the others"),
        }
    }

    /// Removes an object, if it has the version that is asked for.
    fn remove(&mut self, key: &str, wanted: Option<&str>) -> Result<(), (u16, &'static str)> {
        let found = self.objects.get(key).map(|(_, version)| etag(*version));
        match wanted.filter(|_| !self.careless) {
            Some(_) if found.is_none() => Err((404, "NoSuchKey")),
            Some(wanted) if found.as_deref() != Some(wanted) => Err((412, "PreconditionFailed")),
            _ => {
                self.objects.remove(key);
                Ok(())
            }
        }
    }

    fn get(&self, request: &Request) -> Answer {
        let Some((content, found)) = self.objects.get(&request.key) else { return Answer::new(404, "") };
        if request.headers.get("if-match").is_some_and(|wanted| *wanted != etag(*found)) {
            return Answer::new(412, "");
        }
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
        let from: Option<usize> = range.and_then(|range| range.strip_suffix('-')?.parse().ok());
        let total = content.len();
        let answer = match from {
            _ if request.ask == Ask::Head => Answer::new(200, "").with("Content-Length", total),
            None => Answer::new(200, content.clone()),
            Some(from) if from >= total => return Answer::new(416, ""),
            Some(from) => Answer::new(206, &content[from..])
                .with("Content-Range", format!("bytes {from}-{}/{total}", total - 1)),
        };
        let answer = version(answer, *found);
        let answer = if self.weak { answer.with("ETag", format!("W/{}", etag(*found))) } else { answer };
        let said = self.said.get(&format!("v{found}")).into_iter().flatten();
        let answer = said.fold(answer, |answer, (name, value)| answer.with(leak(name), value));
        answer.with("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
    }

    /// Puts `content` in place if the condition holds.
    fn publish(&mut self, request: &Request, content: Vec<u8>) -> Result<Answer, Answer> {
        let found = self.objects.get(&request.key).map(|(_, version)| *version);
        let generation = request.headers.get("x-goog-if-generation-match");
        let generation = generation.is_none_or(|wanted| *wanted == found.unwrap_or(0).to_string());
        let absent = !request.headers.contains_key("if-none-match") || found.is_none();
        let same =
            request.headers.get("if-match").is_none_or(|wanted| found.map(etag).as_ref() == Some(wanted));
        if !self.careless && (!absent || !same || !generation) {
            return Err(error(412, "PreconditionFailed"));
        }
        self.count += 1;
        let upload = request.query.get("uploadId").and_then(|id| self.said.remove(id));
        self.said.insert(format!("v{}", self.count), upload.unwrap_or_else(|| said(request)));
        self.objects.insert(request.key.clone(), (content, self.count));
        Ok(version(Answer::new(200, ""), self.count))
    }

    fn list(&self, request: &Request) -> Answer {
        let is_azure = request.query.contains_key("comp");
        let encoded = request.query.contains_key("encoding-type");
        let prefix = request.query.get("prefix").map_or("", String::as_str);
        let delimiter = request.query.get("delimiter").map(String::as_str);
        let mut prefixes = std::collections::BTreeSet::new();
        let found = self.objects.iter().filter(|(key, _)| key.starts_with(prefix)).filter(|(key, _)| {
            let inner = delimiter.and_then(|delimiter| key[prefix.len()..].split_once(delimiter));
            inner.is_none_or(|(inner, _)| {
                prefixes.insert(format!("{prefix}{inner}/"));
                false
            })
        });
        let contents: Vec<_> = found
            .map(|(key, (content, version))| {
                let key = match encoded {
                    true => utf8_percent_encode(key, NON_ALPHANUMERIC).to_string(),
                    false => key.replace('&', "&amp;").replace('<', "&lt;"),
                };
                (key, content.len(), format!("{}{}", if self.weak { "W/" } else { "" }, etag(*version)))
            })
            .collect();
        if is_azure {
            let blob = |(key, size, etag): (String, usize, String)| {
                let etag = etag.replace('"', "");
                format!(
                    "<Blob><Name>{key}</Name><Properties><Content-Length>{size}</Content-Length><Etag>{etag}</Etag>\
                     <Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified></Properties></Blob>"
                )
            };
            let blobs: String = contents.into_iter().map(blob).collect();
            let xml = "EnumerationResults";
            return Answer::new(200, format!("<{xml}><Blobs>{blobs}</Blobs><NextMarker/></{xml}>"));
        }
        listing(encoded, contents.into_iter(), prefixes, None)
    }
}

/// A page with these objects below the prefix.
pub(crate) fn page(objects: &[(&str, usize)], next: Option<&str>) -> Answer {
    let contents = objects.iter().map(|(path, size)| (format!("sessions/s1/{path}"), *size, "\"e\"".into()));
    listing(true, contents, Default::default(), next)
}

/// A page with the key, as text of XML, the size and the version of each object, and with directories.
fn listing(
    encoded: bool,
    contents: impl Iterator<Item = (String, usize, String)>,
    prefixes: std::collections::BTreeSet<String>,
    next: Option<&str>,
) -> Answer {
    let mut xml = String::from("<ListBucketResult>");
    if encoded {
        xml.push_str("<EncodingType>url</EncodingType>");
    }
    for (key, size, etag) in contents {
        xml.push_str(&format!(
            "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>{etag}</ETag>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        ));
    }
    for prefix in prefixes {
        xml.push_str(&format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>"));
    }
    if let Some(token) = next {
        xml.push_str(&format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        ));
    }
    Answer::new(200, xml + "</ListBucketResult>")
}
