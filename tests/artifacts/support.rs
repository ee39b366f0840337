//! Stores for the tests, each started once, on a loopback port, and gone with the test process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use beneath::artifacts::Source;
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
            let port = free_port();
            let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
            spawn(&format!(
                "exec '{}' server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir='{}' -s3 -s3.port={port} -s3.config='{}' \
                 -master.port={} -volume.port={} -filer.port={} -master.volumeSizeLimitMB=64 -volume.max=50",
                program.display(),
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

    fn http(&self, method: &str, target: &str, body: &[u8]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
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

/// Every kind of store, by name; says which it had to leave out.
pub(crate) async fn every_store() -> Vec<(&'static str, Source)> {
    let mut stores = vec![("memory", memory()), ("directory", directory())];
    match moto() {
        Some(server) => stores.push(("moto", server.bucket().await.1)),
        None => println!("skipped moto: moto_server is neither on PATH nor in BENEATH_MOTO"),
    }
    match weed() {
        Some(server) => stores.push(("seaweedfs", server.bucket().await.1)),
        None => println!("skipped SeaweedFS: weed is neither on PATH nor in BENEATH_WEED"),
    }
    stores
}

pub(crate) fn memory() -> Source {
    Source::new(Arc::new(object_store::memory::InMemory::new()))
}

pub(crate) fn directory() -> Source {
    let home = tempfile::tempdir().unwrap().keep();
    Source::new(Arc::new(object_store::local::LocalFileSystem::new_with_prefix(home).unwrap()))
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

/// Runs a server until this process ends, however it ends: its standard input is a pipe that we hold.
fn spawn(command: &str, home: &std::path::Path) {
    let script = format!(
        "({command}) </dev/null >/dev/null 2>&1 & child=$!; read -r _; kill -9 $child; rm -rf '{}'",
        home.display()
    );
    let child = Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn().unwrap();
    std::mem::forget(child);
}
