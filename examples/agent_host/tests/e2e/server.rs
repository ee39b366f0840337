//! The server as a process of its own, and a client for it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use beneath_kit::child::peak_memory_of;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body, SendBody};

pub(crate) struct Server {
    child: Child,
    place: tempfile::TempDir,
    pub(crate) address: String,
    agent: Agent,
}

/// What came back, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// On a port that the kernel chooses, with no sessions.
    pub(crate) fn start() -> Self {
        let place = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
        fs::create_dir(place.path().join("sessions")).unwrap();
        let (child, address) = spawn(place.path());
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(600)))
            .max_idle_connections_per_host(16);
        Self { child, place, address, agent: config.build().into() }
    }

    /// Kills it with SIGKILL, and starts another on the same sessions.
    pub(crate) fn crash_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.address) = spawn(self.place.path());
    }

    pub(crate) fn place(&self) -> &Path {
        self.place.path()
    }

    /// A path among the sessions, as the guest's own tools see it.
    pub(crate) fn guest(&self, path: &str) -> PathBuf {
        self.place.path().join("sessions").join(path)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn agent(&self) -> Agent {
        self.agent.clone()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        Answer::of(self.agent.get(self.url(path)).call())
    }

    pub(crate) fn get_range(&self, path: &str, range: &str) -> Answer {
        Answer::of(self.agent.get(self.url(path)).header("range", range).call())
    }

    pub(crate) fn download(&self, path: &str) -> impl Read + use<> {
        self.agent.get(self.url(path)).call().unwrap().into_body().into_reader()
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> Answer {
        Answer::of(self.agent.put(self.url(path)).send(bytes))
    }

    pub(crate) fn put_new(&self, path: &str, bytes: &[u8]) -> Answer {
        Answer::of(self.agent.put(self.url(path)).header("if-none-match", "*").send(bytes))
    }

    /// An upload whose length nobody says beforehand.
    pub(crate) fn put_from(&self, path: &str, mut reader: impl Read) -> Answer {
        Answer::of(self.agent.put(self.url(path)).send(SendBody::from_reader(&mut reader)))
    }

    pub(crate) fn post(&self, path: &str, json: &str) -> Answer {
        Answer::of(self.agent.post(self.url(path)).content_type("application/json").send(json))
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        Answer::of(self.agent.delete(self.url(path)).call())
    }

    /// The most memory that the server has had.
    pub(crate) fn peak_memory(&self) -> u64 {
        peak_memory_of(self.child.id()).unwrap()
    }

    /// How many files the server holds that have no name yet.
    pub(crate) fn drafts(&self) -> usize {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let target = |entry: std::io::Result<fs::DirEntry>| fs::read_link(entry.ok()?.path()).ok();
        let is_draft = |target: &PathBuf| {
            let target = target.to_string_lossy();
            target.ends_with(" (deleted)") || target.contains("/.beneath-")
        };
        descriptors.filter_map(target).filter(is_draft).count()
    }

    pub(crate) fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

/// The process, and the address that it listens on.
fn spawn(place: &Path) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_agent_host"))
        .arg(place.join("sessions"))
        .arg("127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap().to_owned();
    (child, address)
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    pub(crate) fn of(response: Result<Response<Body>, ureq::Error>) -> Self {
        let mut response = response.unwrap();
        let body = response.body_mut().read_to_vec().unwrap();
        Self { status: response.status().as_u16(), headers: response.headers().clone(), body }
    }

    /// Without it, nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn is_json(&self) -> bool {
        self.header("content-type") == "application/json"
    }

    /// It is a file that no browser takes for a page.
    pub(crate) fn must_be_a_download(&self) {
        let length = self.body.len().to_string();
        for (name, value) in [
            ("content-type", "application/octet-stream"),
            ("x-content-type-options", "nosniff"),
            ("content-length", &length),
        ] {
            assert_eq!(self.header(name), value, "{name}");
        }
    }

    pub(crate) fn json(&self) -> Value {
        assert!(self.is_json(), "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// It is a success, or a refusal that says why; the service itself has no fault.
    pub(crate) fn must_be_well_formed(&self, call: usize) {
        match self.status {
            200 | 201 => {}
            400 | 404 | 409 | 503 => {
                let error = self.json();
                assert!(error["error"]["kind"].is_string(), "call {call}: {error}");
            }
            status => panic!("call {call}: {status} {}", String::from_utf8_lossy(&self.body)),
        }
        if self.is_json() {
            self.json();
        }
    }
}
