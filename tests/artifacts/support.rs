//! Stores for the tests, each started once, on a loopback port, and gone with the test process.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use beneath::artifacts::conformance::Condition;
use beneath::artifacts::{Artifacts, Places, Prefix, Source};
use beneath::{Root, SessionId, ambient_authority};
use futures_util::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;

pub(crate) const KEY_ID: &str = "beneath-key";
pub(crate) const SECRET: &str = "beneath-secret";

/// An S3 server on loopback.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    signed: bool,
}

/// moto keeps every key verbatim and checks no signature. None if it is not installed.
pub(crate) fn moto() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER
        .get_or_init(|| {
            let program = find("BENEATH_MOTO", "moto_server")?;
            let port = free_port();
            spawn(
                &format!("exec '{}' -H 127.0.0.1 -p {port}", program.display()),
                std::path::Path::new("/nonexistent"),
            );
            Some(Server { port, signed: false }.ready())
        })
        .as_ref()
}

/// SeaweedFS checks signatures and conditions. None if it is not installed.
pub(crate) fn weed() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER
        .get_or_init(|| {
            let program = find("BENEATH_WEED", "weed")?;
            let home = tempfile::tempdir().unwrap().keep();
            let config = home.join("s3.json");
            let actions = r#"["Admin","Read","Write","List","Tagging"]"#;
            std::fs::write(
                &config,
                format!(
                    r#"{{"identities":[{{"name":"t","credentials":[{{"accessKey":"{KEY_ID}","secretKey":"{SECRET}"}}],"actions":{actions}}}]}}"#
                ),
            )
            .unwrap();
            let port = free_port_pair();
            let ports: Vec<u16> = (0..3).map(|_| free_port_pair()).collect();
            spawn(&format!(
                "exec env WEED_MASTER_VOLUME_GROWTH_COPY_1=1 '{}' -logdir='{}' server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir='{}' -s3 -s3.port={port} -s3.port.iceberg=0 -s3.port.lance=0 -s3.config='{}' \
                 -master.port={} -volume.port={} -filer.port={} -master.volumeSizeLimitMB=64 -volume.max=2000",
                program.display(),
                home.display(),
                home.display(),
                config.display(),
                ports[0],
                ports[1],
                ports[2],
            ), &home);
            Some(Server { port, signed: true }.ready())
        })
        .as_ref()
}

impl Server {
    /// A server that another process has started.
    pub(crate) fn at(port: u16) -> Self {
        Self { port, signed: true }
    }

    /// Starts a server that checks no signature of ours; `home` goes with it.
    #[cfg(feature = "azure")]
    pub(crate) fn start(command: impl FnOnce(u16) -> String, home: &std::path::Path) -> Self {
        let port = free_port();
        spawn(&format!("exec {}", command(port)), home);
        Self { port, signed: false }.ready()
    }

    fn ready(self) -> Self {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if self.http("GET", "/", b"").is_ok_and(|answer| !answer.is_empty()) {
                return self;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("server on port {} did not start", self.port);
    }

    pub(crate) fn builder(&self, bucket: &str) -> AmazonS3Builder {
        AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_bucket_name(bucket)
            .with_region("us-east-1")
            .with_access_key_id(KEY_ID)
            .with_secret_access_key(SECRET)
    }

    /// A new bucket and a source on it.
    pub(crate) async fn bucket(&self) -> (String, Source) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("b{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        if self.signed {
            self.create_signed(&name).await;
        } else {
            assert!(self.http("PUT", &format!("/{name}"), b"").unwrap().contains(" 200 "));
        }
        let source = Source::s3(self.builder(&name)).unwrap();
        (name, source)
    }

    /// The store has no call to make a bucket; a signed URL for an object with an empty name is nearly one.
    async fn create_signed(&self, name: &str) {
        use object_store::signer::Signer as _;
        let store = self.builder("x").with_virtual_hosted_style_request(true);
        let store = store.with_endpoint(format!("http://127.0.0.1:{}", self.port)).build().unwrap();
        let url = store
            .signed_url(
                "PUT".parse().unwrap(),
                &object_store::path::Path::from(name),
                Duration::from_secs(60),
            )
            .await
            .unwrap();
        let target = format!("{}?{}", url.path(), url.query().unwrap());
        let start = Instant::now();
        loop {
            let answer = self.http("PUT", &target, b"").unwrap();
            if answer.contains(" 200 ") {
                return;
            }
            // The S3 port opens before the parts behind it are up.
            assert!(start.elapsed() < Duration::from_secs(60), "create bucket: {answer}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Puts an object under any key at all, on a server that checks no signature.
    pub(crate) fn put_raw(&self, bucket: &str, key: &[u8], body: &[u8]) -> bool {
        let mut target = format!("/{bucket}/");
        for byte in key {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    target.push(char::from(*byte));
                }
                other => target.push_str(&format!("%{other:02X}")),
            }
        }
        self.http("PUT", &target, body).is_ok_and(|answer| answer.contains(" 200 "))
    }

    pub(crate) fn http(&self, method: &str, target: &str, body: &[u8]) -> std::io::Result<String> {
        self.http_with(method, target, "", body)
    }

    /// The same with more headers, each with the end of its line.
    pub(crate) fn http_with(
        &self,
        method: &str,
        target: &str,
        headers: &str,
        body: &[u8],
    ) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: {}\r\n{headers}Connection: close\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Prints on the real stdout, past the harness's capture, that a test or a part of it did not run and why.
pub(crate) fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test of the artifacts").to_owned();
    let _ = writeln!(std::io::stdout().lock(), "skipped {name}: {reason}");
}

/// Every kind of store, by name; prints which it had to leave out.
pub(crate) async fn every_store() -> Vec<(&'static str, Source)> {
    let mut stores = vec![("memory", memory()), ("directory", directory()), ("local", local().1)];
    match moto() {
        Some(server) => stores.push(("moto", server.bucket().await.1)),
        None => skip("moto_server is neither on PATH nor in BENEATH_MOTO"),
    }
    match weed() {
        Some(server) => stores.push(("seaweedfs", server.bucket().await.1)),
        None => skip("weed is neither on PATH nor in BENEATH_WEED"),
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

fn find(variable: &str, program: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(program)).find(|path| path.is_file())
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

/// Runs a server until this process ends, however it ends: its standard input is a pipe that we hold.
fn spawn(command: &str, home: &std::path::Path) {
    let script = format!(
        "({command}) </dev/null >/dev/null 2>&1 & child=$!; read -r _; kill -9 $child; rm -rf '{}'",
        home.display()
    );
    let child = Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn().unwrap();
    std::mem::forget(child);
}

/// The directories of one session, and a canary beside them that no test may touch.
#[derive(Debug)]
pub(crate) struct Home {
    dir: tempfile::TempDir,
    canary: (u64, std::time::SystemTime),
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["workspace", "staging", "state", "outside"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("outside/canary"), "canary").unwrap();
        let canary = Self::canary(dir.path());
        Self { dir, canary }
    }

    fn canary(path: &std::path::Path) -> (u64, std::time::SystemTime) {
        let metadata = std::fs::metadata(path.join("outside/canary")).unwrap();
        (std::os::unix::fs::MetadataExt::ino(&metadata), metadata.modified().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        self.dir.path().join("workspace").join(name)
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
        let outside: Vec<_> = std::fs::read_dir(self.path("outside")).unwrap().collect();
        assert_eq!(outside.len(), 1, "{outside:?}");
        assert_eq!(std::fs::read(self.path("outside/canary")).unwrap(), b"canary");
        assert_eq!(Self::canary(self.dir.path()), self.canary);
    }
}

pub(crate) fn prefix() -> Prefix {
    Prefix::session(&SessionId::new("s1"))
}

pub(crate) fn artifacts_at(home: &std::path::Path, source: &Source) -> Artifacts {
    let open = |name| Root::open_ambient(home.join(name), ambient_authority()).unwrap();
    let places = Places { workspace: open("workspace"), staging: open("staging"), state: open("state") };
    Artifacts::new(source.clone(), prefix(), places).unwrap()
}

pub(crate) fn tree_at(top: &std::path::Path) -> BTreeMap<String, Vec<u8>> {
    let mut tree = BTreeMap::new();
    let mut todo = vec![top.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            if kind.is_dir() {
                todo.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
                tree.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    tree
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
