//! The straight path: submit, poll, start, answer, fetch.

use std::fs;
use std::io::Read as _;
use std::time::{Duration, Instant};

use beneath::queue::{
    Answered, Body, Cancelled, ClientConfig, Headers, Outcome, QueueConfig, Request, Response,
};
use beneath::session::{Wake, Watcher};
use beneath::{ErrorKind, SessionsConfig};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::support::*;

#[test]
fn a_request_is_answered_with_its_headers_and_body() {
    let stage = Stage::new();
    let mut headers = Headers::new();
    headers.add("etag", "\"7\"").unwrap();
    headers.add("last-modified", "now").unwrap();
    let request = Request::new("POST", "/issues").unwrap().with_query("a=b").with_body(vec![0, 255]);
    let mut ticket = stage.client().submit(&request).unwrap();
    let mut polled = stage.poll();
    assert!(polled.is_complete(), "{polled:?}");
    let job = polled.jobs.pop().unwrap();
    assert_eq!((job.id(), job.request().query.as_str()), (&request.id, "a=b"));
    assert_eq!(job.request().body.as_bytes(), Some(&[0, 255][..]));
    let started = job.start().unwrap();
    assert_eq!(stage.states(), [format!("{}.started", request.id)]);
    let answered = started.answer(&Response::new(201).with_headers(headers.clone()).with_body("made"));
    assert_eq!(answered.unwrap(), Answered::Published);
    let response = ticket.wait(soon()).unwrap().unwrap();
    assert_eq!((response.status, response.outcome), (201, Outcome::Done));
    assert_eq!((response.headers, response.body.as_bytes()), (headers, Some(&b"made"[..])));
    assert_eq!((stage.states().len(), names(&stage.guest("requests")).len()), (0, 0));
    assert_eq!(names(&stage.guest("responses")).len(), 0);
    assert_eq!(stage.queue.in_flight(), 0);
}

#[test]
fn bodies_go_through_files_of_their_own_where_that_is_allowed() {
    let config = QueueConfig::default().with_request_file_bytes(1 << 20).with_response_file_bytes(1 << 20);
    let stage = Stage::with(config);
    let body: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    let request = Request::new("PUT", "/file").unwrap();
    let mut ticket = stage.client().submit_from(&request, body.as_slice()).unwrap();
    let mut started = stage.poll().jobs.pop().unwrap().start().unwrap();
    let mut read = Vec::new();
    started.request_mut().body.reader(1 << 20).read_to_end(&mut read).unwrap();
    assert!(read == body);
    assert_eq!(started.answer_from(&Response::new(200), read.as_slice()).unwrap(), Answered::Published);
    let response = ticket.wait(soon()).unwrap().unwrap();
    assert!(matches!(response.body, Body::File(_)));
    assert!(response.body.into_bytes(1 << 20).unwrap() == body);
    assert_eq!((stage.states().len(), names(&stage.guest("responses")).len()), (0, 0));
    assert_eq!(names(&stage.guest("requests")).len(), 0);
}

/// Whoever is woken too early looks for nothing, and then rests while the request is there.
#[test]
fn a_request_wakes_the_host_when_it_has_its_name_and_not_before() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    watch.arm().unwrap();
    let requests = fs::File::open(stage.guest("requests")).unwrap();
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let draft = rustix::fs::openat(&requests, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&draft, b"{}").unwrap();
    rustix::fs::fchmod(&draft, Mode::RUSR).unwrap();
    assert_eq!(watch.wait(Instant::now() + Duration::from_millis(50)), Wake::Deadline);
    rustix::fs::linkat(&draft, "", &requests, "x.json", AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(watch.wait(soon()), Wake::Changed);
}

#[test]
fn who_waits_is_woken_and_so_is_the_host() {
    let stage = Stage::new();
    let (queue, watcher) = (stage.queue.clone(), Watcher::new());
    let host = std::thread::spawn(move || {
        let mut watch = queue.watch(&watcher).unwrap();
        for _ in 0..3 {
            queue.next(&mut watch, soon()).unwrap().jobs.into_iter().for_each(handle);
        }
    });
    let client = stage.client();
    for path in ["/a", "/b", "/c"] {
        let response = client.submit(&Request::new("GET", path).unwrap()).unwrap().wait(soon());
        assert_eq!(response.unwrap().unwrap().body.as_bytes(), Some(path.as_bytes()));
    }
    host.join().unwrap();
}

#[test]
fn who_gives_up_takes_its_request_back() {
    let stage = Stage::new();
    let client = stage.client_with(ClientConfig::default().with_depth(1));
    let mut ticket = client.submit(&Request::new("GET", "/").unwrap()).unwrap();
    let full = client.submit(&Request::new("GET", "/").unwrap()).unwrap_err();
    assert_eq!((full.kind(), client.waiting()), (ErrorKind::TooMany, 1));
    assert!(ticket.wait(Instant::now()).unwrap().is_none());
    drop(ticket);
    assert_eq!((stage.poll().jobs.len(), client.waiting()), (0, 0));

    let ticket = client.submit(&Request::new("GET", "/").unwrap()).unwrap();
    assert_eq!(ticket.cancel().unwrap(), Cancelled::Withdrawn);
    let ticket = client.submit(&Request::new("GET", "/").unwrap()).unwrap();
    let job = stage.poll().jobs.pop().unwrap();
    assert_eq!(ticket.cancel().unwrap(), Cancelled::Taken);
    handle(job);
    // Its answer is nobody's; the sweep has it.
    assert_eq!(names(&stage.guest("responses")).len(), 1);
}

#[test]
fn the_guest_announces_its_port_and_nothing_else_is_believed() {
    let stage = Stage::new();
    assert_eq!(stage.queue.ready().unwrap(), None);
    stage.client().announce(8080.try_into().unwrap()).unwrap();
    assert_eq!(stage.queue.ready().unwrap().unwrap().port.get(), 8080);
    let long = format!(r#"{{"port":1,"x":"{}"}}"#, "y".repeat(5000));
    for (text, kind) in [
        (r#"{"port":0}"#, ErrorKind::InvalidData),
        (r#"{"port":65536}"#, ErrorKind::InvalidData),
        (r#"{"port":"80"}"#, ErrorKind::InvalidData),
        ("", ErrorKind::InvalidData),
        (&long, ErrorKind::TooLarge),
    ] {
        std::fs::write(stage.guest("ready.json"), text).unwrap();
        assert_eq!(stage.queue.ready().unwrap_err().kind(), kind, "{text}");
    }
    std::fs::remove_file(stage.guest("ready.json")).unwrap();
    stage.arena.link("s/guest/queue/ready.json", stage.arena.outside().join("secret"));
    assert_eq!(stage.queue.ready().unwrap_err().kind(), ErrorKind::Symlink);
}

#[test]
fn all_of_it_moves_to_other_threads() {
    fn sent<T: Send + 'static>() {}
    sent::<beneath::queue::Queue>();
    sent::<beneath::queue::Job>();
    sent::<beneath::queue::Started>();
    sent::<beneath::queue::Polled>();
    sent::<beneath::queue::Recovered>();
    sent::<beneath::queue::Client>();
    sent::<beneath::queue::Ticket>();
    sent::<SessionsConfig>();
}
