//! What the studied system promises its users, row by row. Its tests have the names in the first column; those about uploads,
//! mounts and merges are elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use beneath::ErrorKind;
use beneath::queue::policy::{HeaderRules, Route, Routes, Token};
use beneath::queue::{
    Answered, Cancelled, ClientConfig, Headers, Job, Outcome, QueueConfig, Request, Response,
};

use crate::support::*;

const ROWS: &[(&str, fn())] = &[
    ("round trip through queue", || {
        let stage = Stage::new();
        let mut headers = Headers::new();
        for (name, value) in [("accept", "*/*"), ("authorization", "Bearer x"), ("x-bridge-token", "y")] {
            headers.add(name, value).unwrap();
        }
        let request = Request::new("GET", "/issues/7").unwrap().with_headers(headers);
        let mut ticket = stage.client().submit(&request).unwrap();
        let started = stage.poll().jobs.pop().unwrap().start().unwrap();
        let forwarded = HeaderRules::default().filter(started.request().headers.iter());
        assert_eq!(forwarded, [("accept".to_owned(), "*/*".to_owned())]);
        let mut headers = Headers::new();
        headers.add("etag", "1").unwrap();
        headers.add("last-modified", "2").unwrap();
        let _ = started.answer(&Response::new(200).with_headers(headers.clone())).unwrap();
        let response = ticket.wait(soon()).unwrap().unwrap();
        assert_eq!((response.status, response.headers), (200, headers));
    }),
    ("unlisted route", || {
        let stage = Stage::new();
        let routes = Routes::from_iter([Route::new("GET", "/issues/{}").unwrap()]);
        let mut handled = 0;
        for (path, status) in
            [("/issues/7", 200), ("/secrets", 403), ("/issues/%2e%2e", 403), ("/issues/..", 403)]
        {
            let mut ticket = stage.client().submit(&Request::new("GET", path).unwrap()).unwrap();
            for job in stage.poll().jobs {
                match routes.check(&job.request().method, &job.request().path) {
                    Ok(_) => {
                        handled += 1;
                        handle(job);
                    }
                    Err(denial) => drop(job.refuse(403, denial.to_string()).unwrap()),
                }
            }
            assert_eq!(ticket.wait(soon()).unwrap().unwrap().status, status, "{path}");
        }
        assert_eq!(handled, 1);
    }),
    ("wrong token", || {
        let (stage, token) = (Stage::new(), Token::generate().unwrap());
        for (shown, status) in [(token.as_str(), 200), ("guess", 401), ("", 401)] {
            let mut headers = Headers::new();
            headers.add("x-token", shown).unwrap();
            let request = Request::new("GET", "/").unwrap().with_headers(headers);
            let mut ticket = stage.client().submit(&request).unwrap();
            for job in stage.poll().jobs {
                match token.matches(job.request().headers.get("X-Token").unwrap_or_default()) {
                    true => handle(job),
                    false => drop(job.refuse(401, "").unwrap()),
                }
            }
            assert_eq!(ticket.wait(soon()).unwrap().unwrap().status, status);
        }
    }),
    ("stop with queued requests, long drain", || {
        let stage = Stage::new();
        let names: Vec<String> = (0..100).map(|number| format!("r{number:03}")).collect();
        names.iter().for_each(|name| stage.submit_id(name));
        let mut order = Vec::new();
        let drained = stage.queue.drain(LONG, |job| {
            order.push(job.id().to_string());
            handle(job);
        });
        let drained = drained.unwrap();
        assert_eq!((drained.handled, drained.answered, drained.is_complete()), (100, 0, true));
        assert_eq!(order, names);
        assert!(names.iter().all(|name| stage.status(name) == Some(200)));
    }),
    ("stop, drain shorter than work", || {
        let stage = Stage::new();
        ["a", "b", "c"].into_iter().for_each(|name| stage.submit_id(name));
        let patience = Duration::from_millis(100);
        let drained = stage.queue.drain(patience, |job: Job| {
            handle(job);
            std::thread::sleep(patience);
        });
        let drained = drained.unwrap();
        assert_eq!((drained.handled, drained.answered, drained.is_complete()), (1, 2, true));
        assert_eq!(
            (stage.status("a"), stage.status("b"), stage.status("c")),
            (Some(200), Some(503), Some(503))
        );
        assert_eq!(stage.response("b").unwrap().outcome, Outcome::NotStarted);
        assert_eq!((stage.states().len(), names(&stage.guest("requests")).len()), (0, 0));
    }),
    ("polling fails", || {
        let stage = Stage::new();
        fs::remove_dir(stage.guest("requests")).unwrap();
        fs::write(stage.guest("requests"), "").unwrap();
        for _ in 0..3 {
            assert_eq!(stage.poll().refused().next().unwrap().1.kind(), ErrorKind::NotDirectory);
        }
        stage.queue.repair().unwrap();
        stage.submit_id("a");
        assert_eq!(stage.serve(), 1);
    }),
    ("a request that vanishes after it was listed", || {
        let stage = Stage::new();
        stage.submit_id("a");
        let ticket = stage.client().submit(&Request::new("GET", "/").unwrap()).unwrap();
        assert_eq!(ticket.cancel().unwrap(), Cancelled::Withdrawn);
        let polled = stage.poll();
        assert_eq!((polled.jobs.len(), polled.is_complete()), (1, true));
    }),
    ("stop while a remote response write is slow", || {
        let stage = Stage::new();
        stage.submit_id("a");
        let aside = stage.arena.at("s/guest/aside");
        fs::rename(stage.guest("responses"), &aside).unwrap();
        symlink(stage.arena.outside(), stage.guest("responses")).unwrap();
        let drained = stage.queue.drain(Duration::ZERO, drop).unwrap();
        assert_eq!((drained.answered, names(&stage.guest("requests")).len()), (1, 0));
        assert_eq!(stage.states(), ["a.answer"], "kept until it lands");
        stage.queue.repair().unwrap();
        let next = stage.session.queue(QueueConfig::default()).unwrap();
        assert_eq!(next.recover().unwrap().published, 1);
        assert_eq!((stage.status("a"), stage.states().len()), (Some(503), 0));
    }),
    ("full queue (depth 1)", || {
        let stage = Stage::new();
        let client = stage.client_with(ClientConfig::default().with_depth(1));
        let ticket = client.submit(&Request::new("GET", "/").unwrap()).unwrap();
        let full = client.submit(&Request::new("GET", "/").unwrap()).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::TooMany);
        drop(ticket);
        assert!(client.submit(&Request::new("GET", "/").unwrap()).is_ok());
    }),
    ("body larger than the limit", || {
        let client = Stage::new().client_with(ClientConfig::default().with_request_bytes(1000));
        let large = Request::new("GET", "/").unwrap().with_body("x".repeat(1000));
        assert_eq!(client.submit(&large).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(client.waiting(), 0);
    }),
    ("host never answers (75 ms)", || {
        let stage = Stage::new();
        let mut ticket = stage.client().submit(&Request::new("GET", "/").unwrap()).unwrap();
        assert!(ticket.wait(Instant::now() + Duration::from_millis(75)).unwrap().is_none());
        assert_eq!(ticket.cancel().unwrap(), Cancelled::Withdrawn);
        assert_eq!(names(&stage.guest("requests")).len(), 0, "no slot leaks");
    }),
    ("malformed response file", || {
        let stage = Stage::new();
        let mut ticket = stage.client().submit(&Request::new("GET", "/").unwrap()).unwrap();
        fs::write(stage.guest(format!("responses/{}.json", ticket.id())), "{").unwrap();
        assert_eq!(ticket.wait(soon()).unwrap_err().kind(), ErrorKind::InvalidData);
    }),
    ("stalled poll; watchdog", || {
        let stage = Stage::new();
        let before = stage.queue.last_progress();
        let _ = stage.poll();
        assert_eq!(stage.queue.last_progress(), before, "an empty poll is none");
        stage.submit_id("a");
        let job = stage.poll().jobs.pop().unwrap();
        let taken = stage.queue.last_progress();
        handle(job);
        assert!(before < taken && taken <= stage.queue.last_progress());
    }),
    ("handler in flight at timeout", || {
        let stage = Stage::new();
        let mut ticket = stage.client().submit(&Request::new("POST", "/").unwrap()).unwrap();
        let started = stage.poll().jobs.pop().unwrap().start().unwrap();
        assert!(ticket.wait(Instant::now()).unwrap().is_none());
        // It is not abandoned, and nobody else gets it.
        assert_eq!(stage.poll().jobs.len(), 0);
        assert_eq!(stage.queue.recover().unwrap().held, 1);
        assert_eq!(started.answer(&Response::new(200)).unwrap(), Answered::Published);
        assert_eq!(ticket.wait(soon()).unwrap().unwrap().status, 200);
    }),
    ("ignoring abort / late abort", || {
        let stage = Stage::new();
        stage.submit_id("a");
        let started = stage.poll().jobs.pop().unwrap().start().unwrap();
        let _ = started.indeterminate("the deadline has passed").unwrap();
        let response = stage.response("a").unwrap();
        assert_eq!((response.status, response.outcome), (504, Outcome::Indeterminate));
    }),
    ("transient write failure / all writes fail", || {
        let stage = Stage::new();
        stage.submit_id("a");
        let started = stage.poll().jobs.pop().unwrap().start().unwrap();
        let responses = stage.guest("responses");
        fs::remove_dir(&responses).unwrap();
        symlink(stage.arena.outside(), &responses).unwrap();
        assert!(matches!(started.answer(&Response::new(200)).unwrap(), Answered::Saved(_)));
        for _ in 0..3 {
            assert_eq!(stage.poll().published, 0);
        }
        stage.queue.repair().unwrap();
        assert_eq!(stage.poll().published, 1);
        assert_eq!(stage.status("a"), Some(200), "the real answer");
    }),
    ("abandon before start", || {
        let stage = Stage::new();
        stage.submit_id("a");
        drop(stage.poll());
        assert_eq!(stage.status("a"), None);
        let recovered = stage.queue.recover().unwrap();
        assert_eq!(recovered.not_started.len(), 1);
        for job in recovered.not_started {
            let _ = job.refuse(503, "stopping").unwrap();
        }
        assert_eq!(stage.response("a").unwrap().outcome, Outcome::NotStarted);
    }),
    ("fast request", || {
        let stage = Stage::new();
        let mut ticket = stage.client().submit(&Request::new("GET", "/").unwrap()).unwrap();
        stage.serve();
        // It is there, however little time is left.
        assert_eq!(ticket.wait(Instant::now()).unwrap().unwrap().status, 200);
    }),
    ("late responses pile up", || {
        let stage = Stage::with(QueueConfig::default().with_response_age(Duration::ZERO));
        let ticket = stage.client().submit(&Request::new("GET", "/").unwrap()).unwrap();
        let job = stage.poll().jobs.pop().unwrap();
        drop(ticket);
        handle(job);
        assert_eq!(names(&stage.guest("responses")).len(), 1);
        assert_eq!(stage.queue.sweep().unwrap().removed, 1);
        assert_eq!(names(&stage.guest("responses")).len(), 0);
    }),
];

#[test]
fn every_row_of_the_studied_system_holds() {
    for (name, row) in ROWS {
        println!("{name}");
        row();
    }
    assert!(ROWS.len() >= 19);
}
