//! A session with a queue, and a guest that sees its directory only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beneath::queue::{
    Client, ClientConfig, EnvelopeLimits, Job, Polled, Queue, QueueConfig, Request, RequestId, Response,
};
use beneath::{Access, Policy, Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority};
use beneath_kit::Arena;

/// Long enough for a busy machine; no test waits for it to pass.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) arena: Arena,
    pub(crate) session: Session,
    pub(crate) queue: Queue,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(QueueConfig::default())
    }

    pub(crate) fn with(config: QueueConfig) -> Self {
        Self::of(SessionsConfig::default(), config)
    }

    /// In memory, if that can be had.
    pub(crate) fn quick(config: QueueConfig) -> Self {
        Self::within(Arena::quick(), SessionsConfig::default(), config)
    }

    pub(crate) fn of(sessions: SessionsConfig, config: QueueConfig) -> Self {
        Self::within(Arena::new(), sessions, config)
    }

    fn within(arena: Arena, sessions: SessionsConfig, config: QueueConfig) -> Self {
        let session = Sessions::new(arena.open(Policy::default()), sessions);
        let session = session.create(&SessionId::new("s")).unwrap().0;
        let queue = session.queue(config).unwrap();
        Self { arena, session, queue }
    }

    /// The queue's directory on the guest's side.
    pub(crate) fn guest(&self, path: impl AsRef<Path>) -> PathBuf {
        self.arena.at("s/guest/queue").join(path)
    }

    pub(crate) fn host(&self, path: impl AsRef<Path>) -> PathBuf {
        self.arena.at("s/host/queue").join(path)
    }

    /// What the host's side has of requests.
    pub(crate) fn states(&self) -> Vec<String> {
        names(&self.host(""))
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(ClientConfig::default())
    }

    pub(crate) fn client_with(&self, config: ClientConfig) -> Client {
        let root = Root::open_ambient(self.guest(""), ambient_authority()).unwrap();
        Client::new(root.with_policy(Policy::default().with_access(Access::shared())), config)
    }

    /// Puts a file into `requests`, as a guest without this crate does.
    pub(crate) fn submit(&self, name: &str, content: impl AsRef<[u8]>) {
        let temporary = self.guest("requests/.tmp");
        fs::write(&temporary, content).unwrap();
        fs::rename(temporary, self.guest("requests").join(name)).unwrap();
    }

    pub(crate) fn submit_id(&self, name: &str) {
        self.submit(&format!("{name}.json"), Request::with_id(id(name), "GET", "/x").to_json());
    }

    pub(crate) fn poll(&self) -> Polled {
        self.queue.poll().unwrap()
    }

    /// Polls, and handles all that is there by `200` and its path.
    pub(crate) fn serve(&self) -> usize {
        self.poll().jobs.into_iter().map(handle).count()
    }

    pub(crate) fn response(&self, name: &str) -> Option<Response> {
        let json = fs::read(self.guest(format!("responses/{name}.json"))).ok()?;
        Some(Response::from_json(&json, &id(name), EnvelopeLimits::default()).unwrap())
    }

    pub(crate) fn status(&self, name: &str) -> Option<u16> {
        self.response(name).map(|response| response.status)
    }
}

pub(crate) fn handle(job: Job) {
    let started = job.start().unwrap();
    let response = Response::new(200).with_body(started.request().path.clone());
    let _ = started.answer(&response).unwrap();
}

pub(crate) fn id(name: &str) -> RequestId {
    name.parse().unwrap()
}

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.contains("lock") && name != "ledger")
        .collect();
    names.sort();
    names
}
