//! A request and its answer, client to host and back, beside other ways to ask, which take turns.
//!
//! | contender | |
//! |---|---|
//! | beneath | this crate: `Client::submit`, `Queue::next`, `Job::start`, `Started::answer`, `Ticket::wait` |
//! | syscalls | the calls that the queue's protocol and its defence need, by hand, and nothing around them; see [`raw`] |
//! | socket | a Unix socket, one connection for all requests |
//! | socket, connect | a Unix socket, a connection for each request |
//! | polling | the studied system: files by path, both sides look each 100 ms |
//!
//! The time of a round trip is the median of a round's requests; that of the host is its thread's on a processor, for one request.
//! `BENEATH_BENCH_ROUNDS` sets the rounds, `BENEATH_BENCH_MESSAGES` how many requests a round has, and `TMPDIR` where; memory if it is
//! not set.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for people"
)]

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use beneath::queue::{Client, ClientConfig, Queue, QueueConfig, Request, Response};
use beneath::session::Watcher;
use beneath::{Root, SessionId, Sessions, SessionsConfig, ambient_authority};
use beneath_kit::bench::{self, Ground, Line, OURS, Place, Ways, Work};
use beneath_kit::env;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, StatxFlags, openat2,
    renameat_with, statx,
};
use rustix::path::DecInt;
use rustix::time::{ClockId, clock_gettime};

/// How often the studied system looks.
const POLL: Duration = Duration::from_millis(100);

/// Of what the queue writes, so that all carry the same.
const PATH: &str = "/issues/1";
const ANSWER: &str = r#"{"title":"a crack in the hull","comments":["still there"]}"#;
/// The same as a text in JSON.
const ESCAPED: &str = r#"{\"title\":\"a crack in the hull\",\"comments\":[\"still there\"]}"#;

/// A side that asks.
trait Ask {
    /// Asks, and returns the answer's length.
    fn ask(&mut self, number: u64) -> usize;
}

/// A host on a thread of its own, and the time that it has been on a processor.
struct Host {
    stop: Arc<AtomicBool>,
    busy: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Host {
    /// `serve` handles what is there, and waits no longer than some time.
    fn start(mut serve: impl FnMut() + Send + 'static) -> Self {
        let (stop, busy) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopping, time) = (Arc::clone(&stop), Arc::clone(&busy));
        let run = move || {
            while !stopping.load(Ordering::Relaxed) {
                serve();
                let now = clock_gettime(ClockId::ThreadCPUTime);
                time.store(
                    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap(),
                    Ordering::Relaxed,
                );
            }
        };
        Self { stop, busy, thread: Some(thread::spawn(run)) }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// How long a host waits at most, so that it can be stopped.
const LOOK: Duration = Duration::from_millis(50);

// --- the queue

struct Asking(Client);

fn queue(dir: &Path) -> (Asking, Host) {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    let (session, _) = Sessions::new(root, SessionsConfig::default()).create(&SessionId::new("s")).unwrap();
    let queue: Queue = session.queue(QueueConfig::default()).unwrap();
    let mut watch = queue.watch(&Watcher::new()).unwrap();
    let serve = move || {
        for job in queue.next(&mut watch, Instant::now() + LOOK).unwrap().jobs {
            let started = job.start().unwrap();
            let _ = started.answer(&Response::new(200).with_body(ANSWER)).unwrap();
        }
    };
    let shared = Root::open_ambient(dir.join("s/guest/queue"), ambient_authority()).unwrap();
    (Asking(Client::new(shared, ClientConfig::default())), Host::start(serve))
}

impl Ask for Asking {
    fn ask(&mut self, _: u64) -> usize {
        let mut ticket = self.0.submit(&Request::new("GET", PATH).unwrap()).unwrap();
        let response = ticket.wait(Instant::now() + Duration::from_secs(10)).unwrap().unwrap();
        response.body.as_bytes().unwrap().len()
    }
}

// --- the syscalls

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const LIST: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// A directory that a guest may replace, so that it is opened for each use, and what watches it.
struct Shared {
    root: OwnedFd,
    part: &'static str,
    inotify: OwnedFd,
}

impl Shared {
    fn new(root: &Path, part: &'static str) -> Self {
        let root = rustix::fs::open(root, HANDLE | OFlags::DIRECTORY, Mode::empty()).unwrap();
        Self { root, part, inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap() }
    }

    fn open(&self, flags: OFlags) -> OwnedFd {
        openat2(&self.root, self.part, flags | OFlags::DIRECTORY, Mode::empty(), BENEATH).unwrap()
    }

    fn arm(&self, dir: &OwnedFd) {
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONESHOT;
        inotify::add_watch(&self.inotify, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags).unwrap();
    }

    fn wait(&self, patience: Duration) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: patience.as_nanos().try_into().unwrap() };
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN)];
        if poll(&mut fds, Some(&timeout)).unwrap() > 0 {
            // The watch ends with its first event, so there is one, and perhaps that of its end.
            let mut buffer = [MaybeUninit::uninit(); 4096];
            inotify::Reader::new(&self.inotify, &mut buffer).next().unwrap();
        }
    }
}

/// The requests in a directory.
fn names(dir: &OwnedFd) -> Vec<Vec<u8>> {
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry.unwrap().file_name().to_owned();
        if name.to_bytes().ends_with(b".json") {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            statx(dir, name.as_c_str(), flags, StatxFlags::BASIC_STATS).unwrap();
            found.push(name.into_bytes());
        }
    }
    found
}

fn write_new(dir: &OwnedFd, name: &str, text: &str) {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&file, text.as_bytes()).unwrap();
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP).unwrap();
    rustix::fs::linkat(&file, "", dir, name, AtFlags::EMPTY_PATH).unwrap();
}

/// Whether what is read is locked, so that other workers know that somebody has it.
#[derive(PartialEq)]
enum Lock {
    None,
    Taken,
}

/// The directory of this process's descriptors. Each thread could have a table of its own; these two share one.
fn descriptors() -> OwnedFd {
    rustix::fs::open("/proc/self/fd", HANDLE | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// Pins a file, looks at it, and reads that very inode.
fn read_all(proc: &OwnedFd, dir: &OwnedFd, name: &OsStr, lock: Lock) -> Option<(Vec<u8>, OwnedFd)> {
    let pin = openat2(dir, name, HANDLE | OFlags::NOFOLLOW, Mode::empty(), BENEATH).ok()?;
    let size = rustix::fs::fstat(&pin).unwrap().st_size;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, DecInt::from_fd(&pin), flags, Mode::empty()).unwrap();
    if lock == Lock::Taken {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap() + 1];
    let length = rustix::io::read(&file, &mut bytes).unwrap();
    bytes.truncate(length);
    Some((bytes, file))
}

struct Raw {
    requests: Shared,
    responses: Shared,
    proc: OwnedFd,
}

/// What a careful programmer writes by hand, with the same directories, names and contents. The host's calls for a request:
///
/// | | |
/// |---|---|
/// | wake | `ppoll`, `read` of the event |
/// | look | `openat2` of `requests`, `inotify_add_watch`, `getdents64` twice, `statx` of the entry |
/// | claim | `renameat2` |
/// | read | `openat2` of a pin, `fstat`, `open` of that very inode through `/proc`, `flock`, `read`, `close`; `close` of `requests` |
/// | start | `renameat2` |
/// | answer | `openat` of an unnamed file, `write`, `fchmod`, `linkat`, `close`, `unlinkat` of the state |
/// | publish | `openat2` of `responses`, `renameat2`, `close` |
/// | end | `close` of the request |
///
/// The crate does the same, and besides: it asks whether the session is still there before it looks (`statx`), compares what `/proc` has
/// opened with the pin (`statx`), and with itself after a fork (`getpid`, twice), removes the list that an answer may have inherited
/// (`fremovexattr`), and parses and writes the envelopes. What it could do with fewer calls is done so here.
fn raw(dir: &Path) -> (Raw, Host) {
    for part in ["guest/queue/requests", "guest/queue/responses", "host/queue"] {
        fs::create_dir_all(dir.join(part)).unwrap();
    }
    let guest = dir.join("guest");
    let (requests, responses) =
        (Shared::new(&guest, "queue/requests"), Shared::new(&guest, "queue/responses"));
    let host = Shared::new(dir, "host/queue").open(HANDLE);
    let proc = descriptors();
    requests.arm(&requests.open(LIST));
    let no = RenameFlags::NOREPLACE;
    let serve = move || {
        // It was armed before the last look, so what came since is an event.
        requests.wait(LOOK);
        let dir = requests.open(LIST);
        requests.arm(&dir);
        let mut claimed = Vec::new();
        for name in names(&dir) {
            let name = OsStr::from_bytes(&name).to_owned();
            let id = Path::new(&name).file_stem().unwrap().to_str().unwrap().to_owned();
            let own = format!("{id}.claimed");
            renameat_with(&dir, &name, &host, &own, no).unwrap();
            claimed.push((name, id, read_all(&proc, &host, OsStr::new(&own), Lock::Taken).unwrap()));
        }
        drop(dir);
        for (name, id, _request) in claimed {
            let [claimed, started, answer] =
                ["claimed", "started", "answer"].map(|state| format!("{id}.{state}"));
            renameat_with(&host, claimed, &host, &started, no).unwrap();
            write_new(&host, &answer, &answered(&id));
            rustix::fs::unlinkat(&host, started, AtFlags::empty()).unwrap();
            renameat_with(&host, answer, responses.open(HANDLE), name, no).unwrap();
        }
    };
    (
        Raw {
            requests: Shared::new(&guest, "queue/requests"),
            responses: Shared::new(&guest, "queue/responses"),
            proc: descriptors(),
        },
        Host::start(serve),
    )
}

impl Ask for Raw {
    fn ask(&mut self, number: u64) -> usize {
        let name = format!("{number:032x}.json");
        write_new(&self.requests.open(HANDLE), &name, &envelope(number));
        loop {
            let dir = self.responses.open(HANDLE);
            self.responses.arm(&dir);
            if let Some((answer, _)) = read_all(&self.proc, &dir, OsStr::new(&name), Lock::None) {
                rustix::fs::unlinkat(&dir, name, AtFlags::empty()).unwrap();
                return answer.len();
            }
            self.responses.wait(Duration::from_millis(900));
        }
    }
}

fn envelope(number: u64) -> String {
    format!(
        r#"{{"v":1,"id":"{number:032x}","method":"GET","path":"{PATH}","query":"","headers":[],"encoding":"text","body":""}}"#
    )
}

fn answered(id: &str) -> String {
    format!(
        r#"{{"v":1,"id":"{id}","status":200,"outcome":"done","headers":[],"encoding":"text","body":"{ESCAPED}"}}"#
    )
}

// --- the sockets

struct Socket {
    path: PathBuf,
    open: Option<UnixStream>,
}

/// Texts of a length that both know: the first two bytes.
fn send(stream: &mut UnixStream, text: &str) {
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    stream.write_all(&[length.as_slice(), text.as_bytes()].concat()).unwrap();
}

fn receive(stream: &mut UnixStream) -> Option<usize> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut text = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut text).ok()?;
    Some(text.len())
}

fn socket(dir: &Path, keep: bool) -> (Socket, Host) {
    let path = dir.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut kept: Option<UnixStream> = None;
    let serve = move || {
        let readable = |fd: rustix::fd::BorrowedFd<'_>| {
            let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos().try_into().unwrap() };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
        };
        if kept.is_none() {
            if !readable(listener.as_fd()) {
                return;
            }
            kept = Some(listener.accept().unwrap().0);
        }
        let stream = kept.as_mut().unwrap();
        if !readable(stream.as_fd()) {
            return;
        }
        match receive(stream) {
            Some(_) => send(stream, ANSWER),
            None => kept = None,
        }
        if !keep {
            kept = None;
        }
    };
    let host = Host::start(serve);
    let open = keep.then(|| UnixStream::connect(&path).unwrap());
    (Socket { path, open }, host)
}

impl Ask for Socket {
    fn ask(&mut self, number: u64) -> usize {
        let mut once;
        let stream = match &mut self.open {
            Some(stream) => stream,
            None => {
                once = UnixStream::connect(&self.path).unwrap();
                &mut once
            }
        };
        send(stream, &envelope(number));
        receive(stream).unwrap()
    }
}

// --- the studied system

struct Polling(PathBuf);

fn put(path: &Path, text: &str) {
    let temporary = path.with_extension("json.tmp");
    fs::write(&temporary, text).unwrap();
    fs::rename(temporary, path).unwrap();
}

fn polling(dir: &Path) -> (Polling, Host) {
    let (requests, responses) = (dir.join("requests"), dir.join("responses"));
    fs::create_dir(&requests).unwrap();
    fs::create_dir(&responses).unwrap();
    let serve = move || {
        let names = fs::read_dir(&requests).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.filter(|name| name.as_bytes().ends_with(b".json")).collect();
        names.sort();
        if names.is_empty() {
            thread::sleep(POLL);
        }
        for name in names {
            let request = requests.join(&name);
            let _ = fs::read_to_string(&request).unwrap();
            put(&responses.join(&name), ANSWER);
            fs::remove_file(request).unwrap();
        }
    };
    (Polling(dir.to_owned()), Host::start(serve))
}

impl Ask for Polling {
    fn ask(&mut self, number: u64) -> usize {
        let name = format!("{number:032x}.json");
        put(&self.0.join("requests").join(&name), &envelope(number));
        let response = self.0.join("responses").join(&name);
        loop {
            if let Ok(text) = fs::read_to_string(&response) {
                fs::remove_file(&response).unwrap();
                return text.len();
            }
            thread::sleep(POLL);
        }
    }
}

// --- the measure

type Contender = fn(&Path) -> (Box<dyn Ask>, Host);

fn boxed(pair: (impl Ask + 'static, Host)) -> (Box<dyn Ask>, Host) {
    (Box::new(pair.0), pair.1)
}

const CONTENDERS: [(&str, Contender); 5] = [
    ("socket", |dir| boxed(socket(dir, true))),
    ("syscalls", |dir| boxed(raw(dir))),
    (OURS, |dir| boxed(queue(dir))),
    ("socket, connect", |dir| boxed(socket(dir, false))),
    ("polling", |dir| boxed(polling(dir))),
];

/// Each way with a host of its own, which is gone before the next begins. `figure` makes one of the times of all requests and of
/// that which the host's thread was on a processor for one.
fn ways(ground: &Ground, figure: fn(Vec<Duration>, Duration) -> Duration) -> Ways {
    let requests = env::BENCH_MESSAGES.number().unwrap_or(1000_u32);
    let line = |(name, contender): (&'static str, Contender)| {
        let ground = ground.dir.clone();
        Line::new(name, move |_| {
            let dir = tempfile::tempdir_in(&ground).unwrap();
            let (mut asks, host) = contender(dir.path());
            let requests = if name == "polling" { 5 } else { requests };
            let mut spent: Vec<Duration> = Vec::new();
            for number in 0..=u64::from(requests) {
                let start = Instant::now();
                assert!(asks.ask(number) >= ANSWER.len());
                // The first one warms up.
                if number > 0 {
                    spent.push(start.elapsed());
                }
            }
            let busy = Arc::clone(&host.busy);
            drop((asks, host));
            figure(spent, Duration::from_nanos(busy.load(Ordering::Relaxed)) / requests)
        })
    };
    Ok(CONTENDERS.into_iter().map(line).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn places() -> Vec<Place> {
    if std::env::var_os("TMPDIR").is_some() { Place::temporary() } else { Place::memory() }
}

fn main() -> ExitCode {
    let works: &[Work] = &[
        ("round trip", |ground| ways(ground, |times, _| median(times))),
        ("host's processor", |ground| ways(ground, |_, busy| busy)),
    ];
    bench::main("queue", places, works)
}
