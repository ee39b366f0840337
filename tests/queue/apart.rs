//! Two sides on different mounts, and a host that may not remove requests: a claim is a copy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use beneath::queue::{
    Answered, Cancelled, Client, ClientConfig, Outcome, Queue, QueueConfig, Request, Response,
};
use beneath::{Access, ErrorKind, Policy, Root, Session, ambient_authority};
use beneath_kit::namespace::another_file_system;
use beneath_kit::{child, skip};
use tempfile::TempDir;

use crate::support::{handle, id, names, soon};

struct Apart {
    guest: TempDir,
    host: TempDir,
    session: Session,
    queue: Queue,
}

fn config() -> QueueConfig {
    QueueConfig::default().with_request_file_bytes(1 << 20).with_response_file_bytes(1 << 20)
}

fn open(path: &Path) -> Root {
    Root::open_ambient(path, ambient_authority()).unwrap()
}

impl Apart {
    fn new() -> Option<Self> {
        let guest = tempfile::tempdir().unwrap();
        let Some(other) = another_file_system(guest.path()) else {
            skip("needs a second file system, at /dev/shm or for temporary files");
            return None;
        };
        Some(Self::over(guest, tempfile::tempdir_in(other).unwrap()))
    }

    fn over(guest: TempDir, host: TempDir) -> Self {
        let root = open(guest.path()).with_policy(Policy::default().with_access(Access::shared()));
        let session = Session::from_roots(root, open(host.path())).unwrap();
        let queue = session.queue(config()).unwrap();
        Self { guest, host, session, queue }
    }

    fn client(&self) -> Client {
        Client::new(open(&self.guest.path().join("queue")), ClientConfig::default())
    }

    fn requests(&self) -> Vec<String> {
        names(&self.guest.path().join("queue/requests"))
    }

    fn states(&self) -> Vec<String> {
        names(&self.host.path().join("queue"))
    }

    fn submit(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.guest.path().join("queue/requests").join(name), content).unwrap();
    }

    fn submit_id(&self, name: &str) {
        self.submit(&format!("{name}.json"), Request::with_id(id(name), "GET", "/x").to_json());
    }

    fn status(&self, name: &str) -> Option<u16> {
        let path = self.guest.path().join(format!("queue/responses/{name}.json"));
        let json = fs::read(path).ok()?;
        Some(Response::from_json(&json, &id(name), Default::default()).unwrap().status)
    }
}

#[test]
fn requests_and_answers_are_copied_across_mounts() {
    let Some(apart) = Apart::new() else { return };
    let body = vec![7; 300_000];
    let request = Request::new("PUT", "/file").unwrap();
    let mut ticket = apart.client().submit_from(&request, body.as_slice()).unwrap();
    let mut started = apart.queue.poll().unwrap().jobs.pop().unwrap().start().unwrap();
    assert_eq!(apart.requests().len(), 0);
    let brought = std::mem::take(&mut started.request_mut().body).into_bytes(1 << 20).unwrap();
    assert!(brought == body);
    assert_eq!(started.answer_from(&Response::new(200), body.as_slice()).unwrap(), Answered::Published);
    let response = ticket.wait(soon()).unwrap().unwrap();
    assert!(response.body.into_bytes(1 << 20).unwrap() == body);
    assert_eq!(apart.states().len(), 0);
    let mode = fs::metadata(apart.guest.path().join("queue/responses")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o770);
}

#[test]
fn what_cannot_be_copied_is_answered_all_the_same() {
    let Some(apart) = Apart::new() else { return };
    let large = fs::File::create(apart.guest.path().join("queue/requests/large.json")).unwrap();
    large.set_len(10 << 30).unwrap();
    apart.submit("own", Request::with_id(id("linked"), "GET", "/").to_json());
    let requests = apart.guest.path().join("queue/requests");
    fs::rename(requests.join("own"), apart.guest.path().join("own")).unwrap();
    fs::hard_link(apart.guest.path().join("own"), requests.join("linked.json")).unwrap();
    let polled = apart.queue.poll().unwrap();
    assert_eq!((polled.jobs.len(), polled.answered), (0, 2), "{polled:?}");
    assert_eq!((apart.status("large"), apart.status("linked")), (Some(413), Some(400)));
    assert_eq!((apart.requests().len(), apart.states().len()), (0, 0));
}

#[test]
fn a_copy_that_a_crash_has_left_is_ended_by_whether_its_source_is_there() {
    let Some(apart) = Apart::new() else { return };
    let json = |name: &str| Request::with_id(id(name), "GET", "/x").to_json();
    let host = apart.host.path().join("queue");
    for name in ["both", "alone"] {
        fs::write(host.join(format!("{name}.copy")), json(name)).unwrap();
    }
    apart.submit("both.json", json("both"));
    // The host may not have been able to remove it.
    fs::write(host.join("buried.copy"), json("buried")).unwrap();
    fs::write(host.join("buried.done"), "").unwrap();
    let polled = apart.queue.poll().unwrap();
    assert_eq!(polled.jobs.len(), 0, "what was begun is for the recovery");
    let recovered = apart.queue.recover().unwrap();
    let mut not_started: Vec<String> =
        recovered.not_started.iter().map(|job| job.id().as_str().to_owned()).collect();
    not_started.sort();
    assert_eq!(not_started, ["both", "buried"]);
    assert_eq!(apart.status("alone"), Some(503), "nobody has begun it");
    recovered.not_started.into_iter().for_each(handle);
    assert_eq!((apart.status("both"), apart.status("buried")), (Some(200), Some(200)));
    assert!(apart.queue.sweep().unwrap().is_complete());
    assert_eq!((apart.requests().len(), apart.states().len()), (0, 0));
}

#[test]
fn an_answer_that_was_copied_before_the_crash_is_not_copied_again() {
    let Some(apart) = Apart::new() else { return };
    apart.submit_id("a");
    let polled = apart.queue.poll().unwrap();
    polled.jobs.into_iter().for_each(handle);
    fs::write(apart.host.path().join("queue/a.answer"), Response::new(500).to_json(&id("a"))).unwrap();
    assert_eq!(apart.queue.recover().unwrap().published, 1);
    assert_eq!((apart.status("a"), apart.states().len()), (Some(200), 0));
}

#[test]
fn who_withdraws_a_request_in_time_has_it_back() {
    let Some(apart) = Apart::new() else { return };
    let ticket = apart.client().submit(&Request::new("GET", "/").unwrap()).unwrap();
    assert_eq!(ticket.cancel().unwrap(), Cancelled::Withdrawn);
    let ticket = apart.client().submit(&Request::new("GET", "/").unwrap()).unwrap();
    let polled = apart.queue.poll().unwrap();
    assert_eq!((polled.jobs.len(), ticket.cancel().unwrap()), (1, Cancelled::Taken));
}

/// The directory of the guest does not let the host remove anything.
#[test]
fn what_the_host_may_not_remove_is_handled_once() {
    child::run_unprivileged("apart::what_the_host_may_not_remove_is_handled_once", || {
        let apart = Apart::over(tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let requests = apart.guest.path().join("queue/requests");
        apart.submit_id("a");
        fs::set_permissions(&requests, fs::Permissions::from_mode(0o555)).unwrap();
        for _ in 0..2 {
            apart.queue.poll().unwrap().jobs.into_iter().for_each(handle);
        }
        assert_eq!((apart.status("a"), apart.requests()), (Some(200), vec!["a.json".to_owned()]));
        assert_eq!(apart.states(), ["a.done"]);
        let response = apart.guest.path().join("queue/responses/a.json");
        fs::remove_file(&response).unwrap();
        let next = apart.session.queue(config()).unwrap();
        assert!(next.recover().unwrap().is_complete());
        let polled = next.poll().unwrap();
        assert_eq!((polled.jobs.len(), response.exists()), (0, false), "it is not handled again");
        assert_eq!(polled.refused().next().unwrap().1.kind(), ErrorKind::AlreadyExists);
        assert_eq!(next.sweep().unwrap().left.total, 0);
        assert_eq!(apart.states(), ["a.done"]);

        fs::set_permissions(&requests, fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(requests.join("a.json")).unwrap();
        assert!(next.sweep().unwrap().is_complete());
        assert_eq!(apart.states().len(), 0);
        apart.submit_id("a");
        next.poll().unwrap().jobs.into_iter().for_each(handle);
        assert_eq!(apart.status("a"), Some(200), "its id is free again");
    });
}

/// `queue` is mounted by itself, so that the guest cannot replace it.
#[test]
fn a_queue_may_be_a_directory_of_its_own() {
    let (work, own, host) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let session = Session::from_roots(open(work.path()), open(host.path())).unwrap();
    let queue = session.queue_at(open(own.path()), QueueConfig::default()).unwrap();
    let client = Client::new(open(own.path()), ClientConfig::default());
    let mut ticket = client.submit(&Request::new("GET", "/x").unwrap()).unwrap();
    let watcher = beneath::session::Watcher::new();
    let mut watch = queue.watch(&watcher).unwrap();
    queue.next(&mut watch, soon()).unwrap().jobs.into_iter().for_each(handle);
    let response = ticket.wait(soon()).unwrap().unwrap();
    assert_eq!((response.status, response.outcome), (200, Outcome::Done));
    assert_eq!(names(work.path()).len(), 0);
}
