//! Servers for the tests, each started once, on a loopback port, and gone with the test process.
//!
//! `.ci/run stores` installs them to `target/stores`, where they are found; `BENEATH_STORES` names another directory of that
//! kind. A test that needs one which is not there prints that it skips.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use beneath::artifacts::Source;
use beneath_kit::env::STORES;
use object_store::aws::AmazonS3Builder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Those that s3rver has of itself; all others are given them.
pub(crate) const KEY_ID: &str = "S3RVER";
pub(crate) const SECRET: &str = "S3RVER";

/// The account and the key that every Azurite has.
#[cfg(feature = "azure")]
pub(crate) const ACCOUNT: &str = "devstoreaccount1";
#[cfg(feature = "azure")]
pub(crate) const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A server on loopback; of S3 in most cases.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    home: PathBuf,
    buckets: Buckets,
}

/// How a bucket is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buckets {
    /// By a request without a signature.
    Request,
    /// By a signed request.
    Signed,
    /// As a directory.
    Directory,
}

type Start = fn() -> Option<&'static Server>;

/// All servers of S3.
pub(crate) const S3: [(&str, Start); 5] =
    [("moto", moto), ("SeaweedFS", weed), ("s3s-fs", s3s), ("s3rver", s3rver), ("rclone serve s3", rclone)];

/// moto keeps every key verbatim and checks no signature.
pub(crate) fn moto() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    start("moto_server", &SERVER, Buckets::Request, |program, port, _| {
        format!("'{program}' -H 127.0.0.1 -p {port}")
    })
}

/// SeaweedFS checks signatures and conditions.
pub(crate) fn weed() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    start("weed", &SERVER, Buckets::Signed, |program, port, home| {
        let [master, volume, filer] = [(); 3].map(|()| free_port_pair());
        let config = format!(
            r#"{{"identities":[{{"name":"t","credentials":[{{"accessKey":"{KEY_ID}","secretKey":"{SECRET}"}}],"actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
        );
        std::fs::write(format!("{home}/s3.json"), config).unwrap();
        format!(
            "env WEED_MASTER_VOLUME_GROWTH_COPY_1=1 '{program}' -logdir='{home}' server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir='{home}' \
             -s3 -s3.port={port} -s3.port.iceberg=0 -s3.port.lance=0 -s3.config='{home}/s3.json' \
             -master.port={master} -volume.port={volume} -filer.port={filer} -master.volumeSizeLimitMB=64 -volume.max=2000"
        )
    })
}

/// s3s-fs says that it encodes the keys of a listing, and does not.
pub(crate) fn s3s() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    start("s3s-fs", &SERVER, Buckets::Directory, |program, port, home| {
        format!(
            "'{program}' --host 127.0.0.1 --port {port} --access-key {KEY_ID} --secret-key {SECRET} '{home}'"
        )
    })
}

/// s3rver ignores conditions.
pub(crate) fn s3rver() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    start("s3rver", &SERVER, Buckets::Directory, |program, port, home| {
        format!("'{program}' -s -a 127.0.0.1 -p {port} -d '{home}' --no-vhost-buckets")
    })
}

/// rclone ignores conditions, and gives an object that was put in parts another version than it says.
pub(crate) fn rclone() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    start("rclone", &SERVER, Buckets::Directory, |program, port, home| {
        format!(
            "'{program}' --config '' serve s3 --addr 127.0.0.1:{port} --auth-key {KEY_ID},{SECRET} --vfs-cache-mode off --dir-cache-time 1ms '{home}'"
        )
    })
}

/// Azurite is Azure's emulator, and has containers instead of buckets.
#[cfg(feature = "azure")]
pub(crate) fn azurite() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    start("azurite-blob", &SERVER, Buckets::Request, |program, port, home| {
        format!("'{program}' --silent --blobPort {port} --location '{home}' --skipApiVersionCheck")
    })
}

/// A SeaweedFS that another process has started.
pub(crate) fn at(port: u16) -> Server {
    Server { port, home: PathBuf::new(), buckets: Buckets::Signed }
}

/// A server that is started once.
fn start(
    name: &str,
    server: &'static OnceLock<Option<Server>>,
    buckets: Buckets,
    command: impl FnOnce(&str, u16, &str) -> String,
) -> Option<&'static Server> {
    let begin = || {
        let program = installed(name)?;
        let home = tempfile::tempdir().unwrap().keep();
        let server = Server { port: free_port_pair(), home, buckets };
        server.run(&command(program.to_str().unwrap(), server.port, server.home.to_str().unwrap()));
        Some(server)
    };
    let server = server.get_or_init(begin).as_ref();
    if server.is_none() {
        beneath_kit::skip(&format!("there is no {name}; .ci/run stores installs it"));
    }
    server
}

/// A program that `.ci/run stores` installs. Not one from elsewhere: another version keeps other claims.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let stores = STORES
        .value()
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/stores"), PathBuf::from);
    let places = ["bin", "npm/node_modules/.bin"].map(|dir| stores.join(dir).join(name));
    places.into_iter().find(|path| path.is_file())
}

/// A client of S3 on a loopback port.
pub(crate) fn client(port: u16, bucket: &str) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_allow_http(true)
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_access_key_id(KEY_ID)
        .with_secret_access_key(SECRET)
}

impl Server {
    /// Runs the command until this process ends, however it ends: the standard input of the shell is a pipe that we hold.
    fn run(&self, command: &str) {
        let home = self.home.display();
        let script = format!(
            "(exec {command}) </dev/null >/dev/null 2>&1 & child=$!; read -r _; kill -9 $child; rm -rf '{home}'"
        );
        let child = Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn().unwrap();
        std::mem::forget(child);
        self.answers("GET", "/", "HTTP/");
    }

    /// Asks until the answer contains `wanted`: a port opens before the parts behind it are up.
    fn answers(&self, method: &str, target: &str, wanted: &str) {
        let start = Instant::now();
        loop {
            let answer = self.http(method, target, "", b"").unwrap_or_else(|error| error.to_string());
            if answer.contains(wanted) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{method} {target}: {answer}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn builder(&self, bucket: &str) -> AmazonS3Builder {
        client(self.port, bucket)
    }

    /// A new bucket and a source on it.
    pub(crate) async fn bucket(&self) -> (String, Source) {
        let name = new_name();
        match self.buckets {
            Buckets::Request => self.answers("PUT", &format!("/{name}"), " 200 "),
            Buckets::Signed => self.answers("PUT", &self.signed(&name).await, " 200 "),
            Buckets::Directory => std::fs::create_dir(self.home.join(&name)).unwrap(),
        }
        let source = Source::s3(self.builder(&name)).unwrap();
        (name, source)
    }

    /// A new container of Azurite.
    #[cfg(feature = "azure")]
    pub(crate) fn container(&self) -> object_store::azure::MicrosoftAzureBuilder {
        let name = new_name();
        let answer = self.azure("PUT", &format!("{name}?restype=container"), b"");
        assert!(answer.contains(" 201 "), "{answer}");
        object_store::azure::MicrosoftAzureBuilder::new()
            .with_account(ACCOUNT)
            .with_access_key(ACCOUNT_KEY)
            .with_container_name(name)
            .with_endpoint(format!("http://127.0.0.1:{}/{ACCOUNT}", self.port))
            .with_allow_http(true)
    }

    /// The answer of Azurite to a signed request past every client.
    #[cfg(feature = "azure")]
    pub(crate) fn azure(&self, method: &str, target: &str, body: &[u8]) -> String {
        use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
        use object_store::client::{HttpRequest, HttpRequestBody};

        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = format!("http://127.0.0.1:{}/{ACCOUNT}/{target}", self.port).parse().unwrap();
        let length = body.len().to_string().parse().unwrap();
        request.headers_mut().insert("content-length", length);
        request.headers_mut().insert("x-ms-blob-type", "BlockBlob".parse().unwrap());
        let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(ACCOUNT_KEY).unwrap());
        AzureAuthorizer::new(&credential, ACCOUNT).try_authorize(&mut request).unwrap();
        request.headers_mut().remove("content-length");
        let headers: String = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()))
            .collect();
        self.http(method, &format!("/{ACCOUNT}/{target}"), &headers, body).unwrap()
    }

    /// The store has no call to make a bucket; a signed URL for an object with an empty name is nearly one.
    async fn signed(&self, name: &str) -> String {
        use object_store::signer::Signer as _;
        let store = self.builder("x").with_virtual_hosted_style_request(true).build().unwrap();
        let path = object_store::path::Path::from(name);
        let url = store.signed_url("PUT".parse().unwrap(), &path, Duration::from_secs(60)).await.unwrap();
        format!("{}?{}", url.path(), url.query().unwrap())
    }

    /// Puts an object under any key at all, on a server that checks no signature.
    pub(crate) fn put_raw(&self, bucket: &str, key: &[u8], body: &[u8]) -> bool {
        const ENCODED: &AsciiSet =
            &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
        let target = format!("/{bucket}/{}", percent_encode(key, ENCODED));
        self.http("PUT", &target, "", body).is_ok_and(|answer| answer.contains(" 200 "))
    }

    /// The answer to a request with these headers, each with the end of its line.
    pub(crate) fn http(
        &self,
        method: &str,
        target: &str,
        headers: &str,
        body: &[u8],
    ) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let (port, length) = (self.port, body.len());
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A name that no other bucket has.
fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("b{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A port for a server; SeaweedFS also takes the one 10,000 above it. Both are below those that the kernel gives to
/// clients, so that no connection takes one before the server does.
fn free_port_pair() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let port = 10_000 + (clock.subsec_nanos() / 64 % 10_000) as u16;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}
