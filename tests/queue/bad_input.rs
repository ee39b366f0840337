//! What a guest puts in place of a request: a status and a reason for what somebody may wait for, removed or reported for the rest,
//! and never a stopped loop.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use beneath::queue::{EnvelopeLimits, Outcome, Overflow, QueueConfig, Request};
use beneath::session::Watcher;
use beneath::{ErrorKind, SessionsConfig};

use crate::support::*;

/// Each is answered by the host itself, with a status, a code, and the assurance that nothing was begun.
#[test]
fn what_no_handler_should_see_is_answered_with_a_status_and_a_reason() {
    let stage = Stage::with(QueueConfig::default().with_request_bytes(2000));
    let cases: &[(&str, u16, &str)] = &[
        ("", 400, "form"),
        ("{", 400, "form"),
        ("[]", 400, "form"),
        (r#"{"v":1,"id":"a","method":"GET","path":"/","path":"/"}"#, 400, "form"),
        (r#"{"v":9,"id":"a"}"#, 400, "version"),
        (r#"{"v":1,"id":"b","method":"GET","path":"/"}"#, 400, "id"),
        (r#"{"v":1,"id":"a","method":"G T","path":"/"}"#, 400, "method"),
        (r#"{"v":1,"id":"a","method":"GET","path":"etc"}"#, 400, "path"),
        (r#"{"v":1,"id":"a","method":"GET","path":"/","headers":[["a","\u0000"]]}"#, 400, "header"),
        (r#"{"v":1,"id":"a","method":"GET","path":"/","encoding":"base64","body":"?"}"#, 400, "body"),
        (r#"{"v":1,"id":"a","method":"GET","path":"/","encoding":"file"}"#, 415, "no-body-files"),
        (&"x".repeat(2001), 413, "too-large"),
        (&"[".repeat(1000), 400, "depth"),
    ];
    for (content, status, code) in cases {
        stage.submit("a.json", content);
        let polled = stage.poll();
        assert_eq!((polled.jobs.len(), polled.answered, polled.refused.total), (0, 1, 1), "{content}");
        let response = stage.response("a").unwrap();
        assert_eq!((response.status, response.outcome), (*status, Outcome::NotStarted), "{content}");
        let body = String::from_utf8(response.body.into_bytes(1000).unwrap()).unwrap();
        assert!(body.contains(&format!("\"reason\":\"{code}\"")), "{body}");
        assert_eq!((stage.states().len(), names(&stage.guest("requests")).len()), (0, 0), "{content}");
        fs::remove_file(stage.guest("responses/a.json")).unwrap();
    }
    assert_eq!(stage.queue.in_flight(), 0);
}

#[test]
fn links_and_fifos_are_removed_and_directories_are_left_and_all_are_reported() {
    let stage = Stage::new();
    let secret = stage.arena.outside().join("secret");
    stage.arena.link("s/guest/queue/requests/link.json", &secret);
    stage.arena.link("s/guest/queue/requests/dangling.json", "nowhere");
    stage.arena.fifo("s/guest/queue/requests/fifo.json");
    stage.arena.socket("s/guest/queue/requests/socket.json");
    stage.arena.file("s/guest/queue/requests/dir.json/inner", "x");
    stage.submit_id("good");
    let polled = stage.poll();
    assert_eq!((polled.jobs.len(), polled.answered), (1, 0));
    let mut kinds: Vec<(String, ErrorKind)> =
        polled.refused().map(|(path, error)| (path.display().to_string(), error.kind())).collect();
    kinds.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("dangling.json", ErrorKind::Symlink),
        ("dir.json", ErrorKind::NotRegular),
        ("fifo.json", ErrorKind::NotRegular),
        ("link.json", ErrorKind::Symlink),
        ("socket.json", ErrorKind::NotRegular),
    ];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(names(&stage.guest("requests")), ["dir.json"]);
    assert_eq!(names(&stage.guest("responses")).len(), 0, "nobody can wait for them");
    polled.jobs.into_iter().for_each(handle);
}

/// A loop of [`Queue::next`] would not rest: a guest has one directory made, and the host is busy for ever.
#[test]
fn what_stays_refused_does_not_end_each_wait() {
    for strike in ["requests/x.json", "requests"] {
        let stage = Stage::new();
        if strike == "requests" {
            fs::remove_dir(stage.guest(strike)).unwrap();
            symlink(stage.arena.outside(), stage.guest(strike)).unwrap();
        } else {
            fs::create_dir(stage.guest(strike)).unwrap();
        }
        let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
        for _ in 0..3 {
            let deadline = Instant::now() + Duration::from_millis(50);
            let polled = stage.queue.next(&mut watch, deadline).unwrap();
            assert!(Instant::now() >= deadline, "{strike}: came back at once with {polled:?}");
            assert!(!polled.refused.is_empty(), "{strike}: not reported");
        }
    }
}

#[test]
fn a_request_with_two_names_is_refused_unread() {
    let stage = Stage::new();
    fs::write(stage.guest("own"), Request::with_id(id("a"), "GET", "/").to_json()).unwrap();
    fs::hard_link(stage.guest("own"), stage.guest("requests/a.json")).unwrap();
    let polled = stage.poll();
    assert_eq!((polled.jobs.len(), stage.status("a")), (0, Some(400)));
    assert_eq!(fs::read(stage.guest("own")).unwrap(), Request::with_id(id("a"), "GET", "/").to_json());
}

#[test]
fn a_sparse_file_of_any_size_costs_nothing() {
    let stage = Stage::new();
    let file = fs::File::create(stage.guest("requests/a.json")).unwrap();
    file.set_len(10 << 30).unwrap();
    let polled = stage.poll();
    assert_eq!((polled.jobs.len(), stage.status("a")), (0, Some(413)));
    assert_eq!(stage.states().len(), 0);
}

#[test]
fn names_that_are_no_requests_are_counted_and_swept_when_they_are_old() {
    let stage = Stage::with(QueueConfig::default().with_junk_age(Duration::ZERO));
    for name in ["a.txt", ".hidden.json", "a b.json", "ä.json", "a\nb.json", "x.body", &"y".repeat(200)] {
        fs::write(stage.guest("requests").join(name), "x").unwrap();
    }
    symlink(stage.arena.outside(), stage.guest("requests/link")).unwrap();
    fs::create_dir(stage.guest("requests/dir")).unwrap();
    let polled = stage.poll();
    assert_eq!((polled.ignored, polled.refused.total), (8, 0), "a body is none");
    let swept = stage.queue.sweep().unwrap();
    assert_eq!((swept.removed, swept.left.total), (8, 1), "{swept:?}");
    assert_eq!(names(&stage.guest("requests")), ["dir"]);
}

#[test]
fn a_body_is_taken_with_its_request_and_judged() {
    let config = QueueConfig::default().with_request_file_bytes(100);
    let stage = Stage::with(config);
    let envelope = r#"{"v":1,"id":"a","method":"PUT","path":"/","encoding":"file"}"#;
    let secret = stage.arena.outside().join("secret");
    let bodies: [(&str, u16); 5] =
        [("missing", 400), ("link", 400), ("fifo", 400), ("large", 413), ("directory", 400)];
    for (what, status) in bodies {
        let body = stage.guest("requests/a.body");
        match what {
            "link" => symlink(&secret, &body).unwrap(),
            "fifo" => drop(stage.arena.fifo("s/guest/queue/requests/a.body")),
            "large" => fs::write(&body, "x".repeat(101)).unwrap(),
            "directory" => fs::create_dir(&body).unwrap(),
            _ => {}
        }
        stage.submit("a.json", envelope);
        let polled = stage.poll();
        assert_eq!((polled.jobs.len(), stage.status("a")), (0, Some(status)), "{what}");
        fs::remove_file(stage.guest("responses/a.json")).unwrap();
        assert_eq!(stage.states(), Vec::<String>::new(), "{what}");
        let _ = fs::remove_dir(body);
    }
    fs::write(stage.guest("requests/a.body"), "fits").unwrap();
    stage.submit("a.json", envelope);
    let mut started = stage.poll().jobs.pop().unwrap().start().unwrap();
    let body = std::mem::take(&mut started.request_mut().body);
    assert_eq!(body.into_bytes(100).unwrap(), b"fits");
    let _ = started.answer(&beneath::queue::Response::new(200)).unwrap();
    assert_eq!(stage.states().len(), 0);
}

#[test]
fn a_replaced_directory_is_refused_and_repaired_and_nothing_behind_it_is_touched() {
    for part in ["requests", "responses", ""] {
        let stage = Stage::new();
        let (place, aside) = (stage.guest(part), stage.arena.at("s/guest/aside"));
        stage.submit_id("a");
        let job = stage.poll().jobs.pop().unwrap();
        fs::write(stage.arena.at("s/guest/b.json"), Request::with_id(id("b"), "GET", "/").to_json()).unwrap();
        fs::rename(&place, &aside).unwrap();
        let trap = stage.arena.throwaway();
        fs::write(trap.join("b.json"), Request::with_id(id("b"), "GET", "/").to_json()).unwrap();
        fs::create_dir(trap.join("requests")).unwrap();
        fs::create_dir(trap.join("responses")).unwrap();
        symlink(&trap, place.to_string_lossy().trim_end_matches('/')).unwrap();

        let polled = stage.poll();
        assert_eq!(polled.jobs.len(), 0, "{part}");
        let answered = job.start().unwrap().answer(&beneath::queue::Response::new(200)).unwrap();
        if part == "requests" {
            assert_eq!(polled.refused().next().unwrap().1.kind(), ErrorKind::Symlink);
            assert_eq!(answered, beneath::queue::Answered::Published);
        } else {
            let beneath::queue::Answered::Saved(error) = answered else { panic!("{part}: {answered:?}") };
            assert_eq!(error.kind(), ErrorKind::Symlink);
            assert_eq!((stage.states(), stage.queue.in_flight()), (vec!["a.answer".to_owned()], 1));
        }
        let swept = stage.queue.sweep().unwrap();
        assert!(!swept.is_complete(), "{part}");
        assert_eq!(names(&trap), ["b.json", "canary", "requests", "responses"]);
        assert!(names(&trap.join("responses")).is_empty());

        stage.queue.repair().unwrap();
        let polled = stage.poll();
        assert_eq!(polled.published, u64::from(part != "requests"), "{part}: {polled:?}");
        assert_eq!((stage.status("a"), stage.states().len()), (Some(200), 0), "{part}");
        stage.submit_id("c");
        assert_eq!(stage.serve(), 1, "{part}");
    }
}

#[test]
fn a_planted_answer_is_neither_read_nor_replaced_nor_followed() {
    for kind in ["file", "link", "directory", "fifo"] {
        let stage = Stage::new();
        let planted = "s/guest/queue/responses/a.json";
        let canary = stage.arena.outside().join("secret");
        match kind {
            "file" => drop(stage.arena.file(planted, "mine")),
            "link" => drop(stage.arena.link(planted, &canary)),
            "directory" => drop(stage.arena.dir(planted)),
            _ => drop(stage.arena.fifo(planted)),
        }
        stage.submit_id("a");
        let started = stage.poll().jobs.pop().unwrap().start().unwrap();
        let answered = started.answer(&beneath::queue::Response::new(200)).unwrap();
        assert_eq!(answered, beneath::queue::Answered::Already, "{kind}");
        assert_eq!((stage.states().len(), stage.queue.in_flight()), (0, 0), "{kind}");
        if kind == "file" {
            assert_eq!(stage.arena.content(planted), b"mine");
        }
    }
}

/// The way of the system that was studied: a temporary name that can be guessed, opened so that a link is followed.
#[test]
fn control_a_temporary_name_overwrites_the_canary() {
    let stage = Stage::new();
    let trap = stage.arena.throwaway();
    symlink(trap.join("canary"), stage.guest("responses/a.json.tmp")).unwrap();
    fs::write(stage.guest("responses/a.json.tmp"), "answer").unwrap();
    fs::rename(stage.guest("responses/a.json.tmp"), stage.guest("responses/a.json")).unwrap();
    assert_eq!(fs::read_to_string(trap.join("canary")).unwrap(), "answer", "the control is not caught");
}

#[test]
fn what_is_past_the_limits_waits_or_is_refused() {
    let stage = Stage::with(QueueConfig::default().with_in_flight(2));
    ["a", "b", "c"].into_iter().for_each(|name| stage.submit_id(name));
    let polled = stage.poll();
    assert_eq!((polled.jobs.len(), polled.more), (2, true));
    assert_eq!((stage.poll().jobs.len(), stage.queue.in_flight()), (0, 2));
    polled.jobs.into_iter().for_each(handle);
    assert_eq!(stage.serve(), 1);

    let stage = Stage::with(QueueConfig::default().with_in_flight(1).with_overflow(Overflow::Reject));
    ["a", "b", "c"].into_iter().for_each(|name| stage.submit_id(name));
    let polled = stage.poll();
    assert_eq!((polled.jobs.len(), polled.answered), (1, 2));
    let job = polled.jobs.into_iter().next().unwrap();
    assert_eq!(job.id().as_str(), "a", "the oldest is taken");
    for refused in ["b", "c"] {
        let response = stage.response(refused).unwrap();
        assert_eq!((response.status, response.outcome), (503, Outcome::NotStarted));
    }

    let stage = Stage::with(QueueConfig::default().with_claims(2));
    ["a", "b", "c"].into_iter().for_each(|name| stage.submit_id(name));
    assert_eq!((stage.poll().more, stage.poll().jobs.len()), (true, 1));
}

#[test]
fn a_request_that_has_waited_too_long_is_answered_503() {
    let stage = Stage::with(QueueConfig::default().with_waiting_age(Duration::ZERO));
    stage.submit_id("a");
    let polled = stage.poll();
    assert_eq!((polled.jobs.len(), stage.status("a")), (0, Some(503)));
    assert_eq!(stage.response("a").unwrap().outcome, Outcome::NotStarted);
}

#[test]
fn envelopes_have_the_limits_of_the_config() {
    let limits = EnvelopeLimits::default().with_headers(1).with_depth(3);
    let stage = Stage::with(QueueConfig::default().with_envelope(limits));
    stage.submit("a.json", r#"{"v":1,"id":"a","method":"GET","path":"/","headers":[["a","b"],["c","d"]]}"#);
    stage.submit("b.json", r#"[[[[]]]]"#);
    let _ = stage.poll();
    assert_eq!((stage.status("a"), stage.status("b")), (Some(400), Some(400)));
}

#[test]
fn an_answer_that_is_too_large_is_502_and_done() {
    let stage = Stage::with(QueueConfig::default().with_response_bytes(10).with_response_file_bytes(100));
    for (large, from) in [(false, false), (true, false), (false, true), (true, true)] {
        stage.submit_id("a");
        let started = stage.poll().jobs.pop().unwrap().start().unwrap();
        let response = beneath::queue::Response::new(200);
        let answered = match from {
            true => started.answer_from(&response, vec![b'x'; if large { 101 } else { 100 }].as_slice()),
            false => started.answer(&response.with_body("x".repeat(if large { 11 } else { 10 }))),
        };
        let expected =
            if large { beneath::queue::Answered::TooLarge } else { beneath::queue::Answered::Published };
        assert_eq!(answered.unwrap(), expected);
        let response = stage.response("a").unwrap();
        assert_eq!((response.status, response.outcome), (if large { 502 } else { 200 }, Outcome::Done));
        assert_eq!(stage.states(), Vec::<String>::new());
        let _ = fs::remove_file(stage.guest("responses/a.body"));
        fs::remove_file(stage.guest("responses/a.json")).unwrap();
    }
}

#[test]
fn answers_have_the_modes_of_the_guests_side() {
    let stage = Stage::of(SessionsConfig::default(), QueueConfig::default());
    stage.submit_id("a");
    stage.serve();
    let mode = fs::metadata(stage.guest("responses/a.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);
}
