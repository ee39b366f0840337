//! Stores for the tests, each started once, on a loopback port, and gone with the test process.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use beneath::artifacts::conformance::Condition;
use beneath::artifacts::{Artifacts, Places, Prefix, Source};
use beneath::{Root, Session, SessionId, ambient_authority};
use beneath_kit::Snapshot;
use futures_util::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

pub(crate) const KEY_ID: &str = "beneath-key";
pub(crate) const SECRET: &str = "beneath-secret";

/// A server on loopback; of S3 in most cases.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) signed: bool,
}

/// moto keeps every key verbatim and checks no signature. None, and a line on stdout, if it is not installed.
pub(crate) fn moto() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    installed("BENEATH_MOTO", "moto_server", &SERVER, |program| {
        let port = free_port();
        Server { port, signed: false }.start(|_| format!("'{program}' -H 127.0.0.1 -p {port}"))
    })
}

/// SeaweedFS checks signatures and conditions. None, and a line on stdout, if it is not installed.
pub(crate) fn weed() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    installed("BENEATH_WEED", "weed", &SERVER, |program| {
        let [port, master, volume, filer] = [(); 4].map(|()| free_port_pair());
        Server { port, signed: true }.start(|home| {
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
    })
}

/// A server that is started once, from the program that a variable names or that is on PATH.
fn installed(
    variable: &str,
    name: &str,
    server: &'static OnceLock<Option<Server>>,
    start: impl FnOnce(&str) -> Server,
) -> Option<&'static Server> {
    let find = || {
        let paths = std::env::var_os("PATH")?;
        let on_path = || std::env::split_paths(&paths).map(|dir| dir.join(name)).find(|path| path.is_file());
        let program = std::env::var_os(variable).map(PathBuf::from).or_else(on_path)?;
        Some(start(program.to_str().unwrap()))
    };
    let server = server.get_or_init(find).as_ref();
    if server.is_none() {
        beneath_kit::skip(&format!("{name} is neither on PATH nor in {variable}"));
    }
    server
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
    /// Runs the command for a new directory until this process ends, however it ends: the standard input of the shell is a
    /// pipe that we hold.
    pub(crate) fn start(self, command: impl FnOnce(&str) -> String) -> Self {
        let home = tempfile::tempdir().unwrap().keep();
        let home = home.to_str().unwrap();
        let script = format!(
            "(exec {}) </dev/null >/dev/null 2>&1 & child=$!; read -r _; kill -9 $child; rm -rf '{home}'",
            command(home)
        );
        let child = Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn().unwrap();
        std::mem::forget(child);
        self.answers("GET", "/", "HTTP/");
        self
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
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("b{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let target = if self.signed { self.signed(&name).await } else { format!("/{name}") };
        self.answers("PUT", &target, " 200 ");
        let source = Source::s3(self.builder(&name)).unwrap();
        (name, source)
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

/// Every kind of store, by name; prints which it had to leave out.
pub(crate) async fn every_store() -> Vec<(&'static str, Source)> {
    let mut stores = vec![("memory", memory()), ("directory", directory()), ("local", local().1)];
    for (name, server) in [("moto", moto()), ("seaweedfs", weed())] {
        if let Some(server) = server {
            stores.push((name, server.bucket().await.1));
        }
    }
    stores
}

pub(crate) fn memory() -> Source {
    Source::memory(Arc::new(object_store::memory::InMemory::new()))
}

pub(crate) fn directory() -> Source {
    let home = tempfile::tempdir().unwrap().keep();
    Source::new(Arc::new(object_store::local::LocalFileSystem::new_with_prefix(home).unwrap()))
}

/// A directory as a store, and the source on it.
pub(crate) fn local() -> (PathBuf, Source) {
    let home = tempfile::tempdir().unwrap().keep();
    let source = Source::local(&home, ambient_authority()).unwrap();
    (home, source)
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A port for SeaweedFS, which also takes the one 10,000 above it. Both are below those that the kernel gives to
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

/// The directories of one session, and a canary beside them that no test may touch.
#[derive(Debug)]
pub(crate) struct Home {
    dir: tempfile::TempDir,
    outside: Snapshot,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["guest/workspace", "host/staging/artifacts", "host/state/artifacts", "outside"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("outside/canary"), "canary").unwrap();
        let outside = Snapshot::take(&dir.path().join("outside"));
        Self { dir, outside }
    }

    /// A path in the home: that of the workspace, of staging or of the state if it begins with one of these words.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        place_at(self.dir.path(), name)
    }

    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        self.path("workspace").join(name)
    }

    pub(crate) fn artifacts(&self, source: &Source) -> Artifacts {
        artifacts_at(self.dir.path(), source)
    }

    /// Every file of the workspace with its content.
    pub(crate) fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        tree_at(&self.path("workspace"))
    }

    /// Nothing in staging, nothing outside.
    pub(crate) fn assert_clean(&self) {
        let staged: Vec<_> = std::fs::read_dir(self.path("staging")).unwrap().collect();
        assert!(staged.is_empty(), "left in staging: {staged:?}");
        self.assert_contained();
    }

    pub(crate) fn assert_contained(&self) {
        self.outside.assert_same(&Snapshot::take(&self.path("outside")), "the canary");
    }
}

pub(crate) fn prefix() -> Prefix {
    Prefix::session(&SessionId::new("s1"))
}

pub(crate) fn artifacts_at(home: &Path, source: &Source) -> Artifacts {
    Artifacts::new(source.clone(), prefix(), &session_at(home))
}

/// The session whose directories are in a home.
pub(crate) fn session_at(home: &Path) -> Session {
    let open = |name| Root::open_ambient(home.join(name), ambient_authority()).unwrap();
    Session::from_roots(open("guest"), open("host")).unwrap()
}

/// The same directories, for bundles.
pub(crate) fn places_at(home: &Path) -> Places {
    let open = |name| Root::open_ambient(place_at(home, name), ambient_authority()).unwrap();
    Places { workspace: open("workspace"), staging: open("staging"), state: open("state") }
}

pub(crate) fn place_at(home: &Path, name: &str) -> PathBuf {
    let places = [("workspace", "guest"), ("staging", "host"), ("state", "host")];
    let (top, rest) = name.split_once('/').unwrap_or((name, ""));
    match places.into_iter().find(|(place, _)| *place == top) {
        Some((_, "guest")) => home.join("guest/workspace").join(rest),
        Some((place, side)) => home.join(side).join(place).join("artifacts").join(rest),
        None => home.join(name),
    }
}

pub(crate) fn tree_at(top: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = walkdir::WalkDir::new(top).into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file()).map(|entry| {
        let name = entry.path().strip_prefix(top).unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(entry.path()).unwrap())
    });
    files.collect()
}

/// Every object under the prefix with its content.
pub(crate) async fn objects(source: &Source) -> BTreeMap<String, Vec<u8>> {
    let listed: Vec<_> = source.list(&prefix()).try_collect().await.unwrap();
    let mut objects = BTreeMap::new();
    for object in listed {
        let key = String::from_utf8(object.key).unwrap();
        objects.insert(key.strip_prefix(prefix().as_str()).unwrap().to_owned(), get_key(source, &key).await);
    }
    objects
}

pub(crate) async fn seed(source: &Source, files: &[(&str, &[u8])]) {
    for (path, content) in files {
        put_object(source, path, content).await;
    }
}

pub(crate) async fn put_object(source: &Source, path: &str, content: &[u8]) {
    put_key(source, &format!("{}{path}", prefix()), content).await;
}

/// Puts an object past all that the crate checks.
pub(crate) async fn put_key(source: &Source, key: &str, content: &[u8]) {
    source.backend().put(key, content.to_vec().into(), Condition::Always).await.unwrap();
}

pub(crate) async fn get_key(source: &Source, key: &str) -> Vec<u8> {
    let body = source.backend().get(key, None).await.unwrap();
    body.chunks.try_collect::<Vec<_>>().await.unwrap().concat()
}

pub(crate) async fn delete_key(source: &Source, key: &str) {
    source.backend().delete(key).await.unwrap();
}
