//! What the next host finds, for each state that a death can leave.

use std::fs;
use std::path::Path;
use std::time::Duration;

use beneath::queue::{Answered, Outcome, QueueConfig, Response};
use beneath::{ErrorKind, SessionsConfig};
use beneath_kit::seccomp::{Denial, denied};
use rustix::io::Errno;

use crate::support::*;

/// Another host, which has died, left the request in this state.
fn left_in(stage: &Stage, state: &str) {
    stage.submit_id("a");
    let job = stage.poll().jobs.pop().unwrap();
    match state {
        "claimed" => drop(job),
        "started" => drop(job.start().unwrap()),
        "refused" => {
            drop(job);
            fs::rename(stage.host("a.claimed"), stage.host("a.refused")).unwrap();
        }
        "answer" | "started and answer" => {
            drop(job.start().unwrap());
            if state == "answer" {
                fs::remove_file(stage.host("a.started")).unwrap();
            }
            fs::write(stage.host("a.answer"), Response::new(201).to_json(&id("a"))).unwrap();
        }
        _ => panic!("{state}"),
    }
}

#[test]
fn each_state_is_recovered_by_its_name() {
    for (state, expected) in [
        ("claimed", (1, 0, 0, None)),
        ("started", (0, 1, 0, None)),
        ("refused", (0, 0, 0, Some(503))),
        ("started and answer", (0, 0, 1, Some(201))),
        ("answer", (0, 0, 1, Some(201))),
    ] {
        let stage = Stage::new();
        left_in(&stage, state);
        let next = stage.session.queue(QueueConfig::default()).unwrap();
        let recovered = next.recover().unwrap();
        let found = (
            recovered.not_started.len(),
            recovered.indeterminate.len(),
            recovered.published,
            stage.status("a"),
        );
        assert_eq!(found, expected, "{state}");
        recovered.not_started.into_iter().for_each(handle);
        for started in recovered.indeterminate {
            assert_eq!(started.request().path, "/x");
            assert_eq!(started.indeterminate("the host has died").unwrap(), Answered::Published);
            let response = stage.response("a").unwrap();
            assert_eq!((response.status, response.outcome), (504, Outcome::Indeterminate));
        }
        assert!(stage.status("a").is_some(), "{state}");
        assert_eq!(stage.states().len(), 0, "{state}");
        let again = next.recover().unwrap();
        assert!(again.is_complete() && again.published == 0, "{state}: {again:?}");
    }
}

#[test]
fn what_another_worker_has_is_left_to_it() {
    let stage = Stage::new();
    ["a", "b"].into_iter().for_each(|name| stage.submit_id(name));
    let mut jobs = stage.poll().jobs;
    let started = jobs.pop().unwrap().start().unwrap();
    let other = stage.session.queue(QueueConfig::default()).unwrap();
    let recovered = other.recover().unwrap();
    assert_eq!((recovered.held, recovered.not_started.len(), recovered.indeterminate.len()), (2, 0, 0));
    assert_eq!(started.answer(&Response::new(200)).unwrap(), Answered::Published);
    jobs.into_iter().for_each(handle);
    assert_eq!((stage.status("a"), stage.status("b")), (Some(200), Some(200)));

    // What is dropped is found, also by the same process.
    stage.submit_id("c");
    drop(stage.poll().jobs.pop().unwrap().start().unwrap());
    assert_eq!(stage.queue.recover().unwrap().indeterminate.len(), 1);
}

#[test]
fn a_job_that_another_worker_has_recovered_does_not_start() {
    let stage = Stage::new();
    stage.submit_id("a");
    let job = stage.poll().jobs.pop().unwrap();
    fs::rename(stage.host("a.claimed"), stage.host("a.started")).unwrap();
    assert_eq!(job.start().unwrap_err().kind(), ErrorKind::NotFound);
    stage.submit_id("b");
    let job = stage.poll().jobs.pop().unwrap();
    fs::rename(stage.host("b.claimed"), stage.host("b.started")).unwrap();
    assert_eq!(job.refuse(403, "no").unwrap(), Answered::Already);
    assert_eq!(stage.status("b"), None);
}

#[test]
fn a_second_request_of_an_id_in_use_is_removed_wherever_the_first_is() {
    let stage = Stage::new();
    stage.submit_id("a");
    let first = stage.poll().jobs.pop().unwrap();
    stage.submit_id("a");
    let polled = stage.poll();
    assert_eq!((polled.jobs.len(), polled.refused().next().unwrap().1.kind()), (0, ErrorKind::AlreadyExists));
    let first = first.start().unwrap();
    stage.submit_id("a");
    let second = stage.poll().jobs.pop().unwrap();
    assert_eq!(second.start().unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(stage.states(), ["a.started"]);
    assert_eq!(first.answer(&Response::new(200)).unwrap(), Answered::Published);
    assert_eq!(names(&stage.guest("requests")).len(), 0);
}

/// It would tell whoever waits for the first one that nobody has begun it.
#[test]
fn a_second_request_of_an_id_that_is_being_handled_is_not_refused_in_its_place() {
    type Refuse = fn(&Stage);
    let strikes: [(&str, &str, Refuse); 3] = [
        ("malformed", "{", |stage| assert_eq!(stage.poll().jobs.len(), 0)),
        ("refused", r#"{"v":1,"id":"a","method":"GET","path":"/"}"#, |stage| {
            let _ = stage.poll().jobs.pop().unwrap().refuse(403, "no").unwrap();
        }),
        ("drained", r#"{"v":1,"id":"a","method":"GET","path":"/"}"#, |stage| {
            let _ = stage.queue.drain(Duration::ZERO, drop).unwrap();
        }),
    ];
    for (what, content, refuse) in strikes {
        let stage = Stage::new();
        stage.submit_id("a");
        let first = stage.poll().jobs.pop().unwrap().start().unwrap();
        stage.submit("a.json", content);
        refuse(&stage);
        assert_eq!((stage.status("a"), stage.states()), (None, vec!["a.started".into()]), "{what}");
        assert_eq!(first.answer(&Response::new(200)).unwrap(), Answered::Published, "{what}");
        assert_eq!((stage.status("a"), stage.queue.in_flight()), (Some(200), 0), "{what}");
    }
}

#[test]
fn an_id_is_free_again_after_the_answer_unless_the_ledger_has_it() {
    for ledger in [0, 3] {
        let config = QueueConfig::default().with_ledger(ledger);
        let stage = Stage::with(config);
        for status in [200, if ledger == 0 { 200 } else { 409 }] {
            stage.submit_id("a");
            stage.serve();
            assert_eq!(stage.status("a"), Some(status));
            fs::remove_file(stage.guest("responses/a.json")).unwrap();
        }
        // The next host knows it too, and it is forgotten when enough others came after.
        let mut next = stage.session.queue(config).unwrap();
        for name in 0..20 {
            stage.submit_id(&format!("n{name}"));
            next.poll().unwrap().jobs.into_iter().for_each(handle);
            if name == 1 {
                next = stage.session.queue(config).unwrap();
                stage.submit_id("a");
                next.poll().unwrap().jobs.into_iter().for_each(handle);
                assert_eq!(stage.status("a"), Some(if ledger == 0 { 200 } else { 409 }));
                fs::remove_file(stage.guest("responses/a.json")).unwrap();
            }
        }
        stage.submit_id("a");
        next.poll().unwrap().jobs.into_iter().for_each(handle);
        assert_eq!(stage.status("a"), Some(200));
        if ledger > 0 {
            let lines = fs::read_to_string(stage.host("ledger")).unwrap().lines().count();
            assert!((ledger..=2 * ledger + 1).contains(&lines), "{lines}");
        }
    }
}

#[test]
fn a_line_of_the_ledger_that_a_crash_has_cut_off_costs_no_other() {
    let config = QueueConfig::default().with_ledger(100);
    let stage = Stage::with(config);
    stage.submit_id("a");
    stage.serve();
    let ledger = stage.host("ledger");
    let mut text = fs::read(&ledger).unwrap();
    text.extend(b"cut-off");
    fs::write(&ledger, text).unwrap();
    let next = stage.session.queue(config).unwrap();
    stage.submit_id("b");
    next.poll().unwrap().jobs.into_iter().for_each(handle);
    for name in ["a", "b"] {
        fs::remove_file(stage.guest(format!("responses/{name}.json"))).unwrap();
        stage.submit_id(name);
        assert_eq!(stage.session.queue(config).unwrap().poll().unwrap().answered, 1, "{name}");
        assert_eq!(stage.status(name), Some(409));
    }
}

#[test]
fn an_id_that_was_answered_since_the_claim_does_not_start() {
    let config = QueueConfig::default().with_ledger(10);
    let stage = Stage::with(config);
    stage.submit_id("a");
    let first = stage.poll().jobs.pop().unwrap().start().unwrap();
    stage.submit_id("a");
    let second = stage.poll().jobs.pop().unwrap();
    let _ = first.answer(&Response::new(200)).unwrap();
    fs::remove_file(stage.guest("responses/a.json")).unwrap();
    assert_eq!(second.start().unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!((stage.status("a"), stage.states().len()), (Some(409), 0));
}

#[test]
fn an_answer_that_cannot_be_saved_gives_the_request_back() {
    let stage = Stage::new();
    stage.submit_id("a");
    let started = stage.poll().jobs.pop().unwrap().start().unwrap();
    let unanswered = started.answer(&Response::new(99)).unwrap_err();
    assert_eq!(unanswered.error.kind(), ErrorKind::InvalidData);
    assert_eq!(unanswered.started.answer(&Response::new(200)).unwrap(), Answered::Published);
}

#[test]
fn a_session_that_was_removed_serves_nothing() {
    let stage = Stage::new();
    let sessions = beneath::Sessions::new(stage.arena.open(Default::default()), SessionsConfig::default());
    assert!(sessions.remove(&beneath::SessionId::new("s")).unwrap().is_complete());
    for error in [
        stage.queue.poll().unwrap_err(),
        stage.queue.recover().unwrap_err(),
        stage.queue.sweep().unwrap_err(),
        stage.queue.ready().unwrap_err(),
        stage.session.queue(QueueConfig::default()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    assert!(!Path::new(&stage.arena.at("s")).exists());
}

#[test]
fn an_emptied_session_has_no_requests_left() {
    let stage = Stage::new();
    left_in(&stage, "started");
    stage.submit_id("b");
    assert!(stage.session.empty().unwrap().is_complete());
    assert!(stage.queue.recover().unwrap().indeterminate.is_empty());
    assert_eq!(stage.poll().jobs.len(), 0);
}

/// A guest that locks its own requests gains nothing, and is reported.
#[test]
fn a_request_that_the_guest_has_locked_waits_and_counts_as_in_flight() {
    let stage = Stage::with(QueueConfig::default().with_in_flight(2));
    let lock = |name: &str| {
        let file = fs::File::open(stage.guest(format!("requests/{name}.json"))).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    };
    for name in ["a", "b", "c"] {
        stage.submit_id(name);
    }
    let locks = ["a", "b"].map(lock);
    for _ in 0..2 {
        let polled = stage.poll();
        assert_eq!((polled.jobs.len(), polled.refused.total, polled.more), (0, 2, true));
        assert_eq!(polled.refused().next().unwrap().1.kind(), ErrorKind::Busy);
        assert_eq!(stage.queue.in_flight(), 2, "it can lock no more than that");
        assert_eq!(stage.queue.recover().unwrap().not_started.len(), 0);
    }
    drop(locks);
    let polled = stage.poll();
    assert_eq!(polled.jobs.len(), 2);
    polled.jobs.into_iter().for_each(handle);
    assert_eq!((stage.serve(), stage.queue.in_flight()), (1, 0));
}

/// Of other processes nothing is known there, but of this one.
#[test]
fn without_flock_a_recovery_leaves_alone_what_this_process_has() {
    for errno in [Errno::NOSYS, Errno::OPNOTSUPP] {
        let stage = Stage::new();
        denied(&[Denial::Flock(errno)], || {
            ["claimed", "started", "dropped"].into_iter().for_each(|name| stage.submit_id(name));
            let mut jobs = stage.poll().jobs;
            let mut take =
                |name: &str| jobs.remove(jobs.iter().position(|job| job.id().as_str() == name).unwrap());
            let (claimed, started) = (take("claimed"), take("started").start().unwrap());
            drop(take("dropped").start().unwrap());
            for expected in [1, 0] {
                let recovered = stage.queue.recover().unwrap();
                assert_eq!((recovered.not_started.len(), recovered.held), (0, 2), "{errno}");
                assert_eq!(recovered.indeterminate.len(), expected, "{errno}");
                for left in recovered.indeterminate {
                    assert_eq!(left.id().as_str(), "dropped");
                    let _ = left.indeterminate("it was dropped").unwrap();
                }
            }
            handle(claimed);
            let _ = started.answer(&Response::new(200)).unwrap();
        });
        let statuses = ["claimed", "started", "dropped"].map(|name| stage.status(name));
        assert_eq!(statuses, [Some(200), Some(200), Some(504)], "{errno}");
        assert_eq!((stage.states().len(), stage.queue.in_flight()), (0, 0));
    }
}

#[test]
fn a_ledger_that_was_longer_is_read_from_its_end() {
    let stage = Stage::with(QueueConfig::default().with_ledger(1000));
    let mut lines: Vec<String> = (0..2000).map(|number| format!("old-{number}")).collect();
    lines.push("last".into());
    fs::write(stage.host("ledger"), lines.join("\n") + "\n").unwrap();
    let shorter = stage.session.queue(QueueConfig::default().with_ledger(2)).unwrap();
    for (name, status) in [("last", 409), ("old-0", 200)] {
        stage.submit_id(name);
        shorter.poll().unwrap().jobs.into_iter().for_each(handle);
        assert_eq!(stage.status(name), Some(status), "{name}");
    }
    assert!(fs::read_to_string(stage.host("ledger")).unwrap().lines().count() <= 4);
}

/// The guest gives its lock up when the service stops.
#[test]
fn what_was_locked_until_the_drain_is_refused_and_not_dropped() {
    let stage = Stage::new();
    stage.submit_id("a");
    let lock = fs::File::open(stage.guest("requests/a.json")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(stage.poll().jobs.len(), 0);
    drop(lock);
    let drained = stage.queue.drain(Duration::ZERO, drop).unwrap();
    assert_eq!((drained.answered, stage.status("a")), (1, Some(503)));
    assert_eq!((stage.states().len(), stage.queue.in_flight()), (0, 0));
}

/// It is claimed, so no later poll finds it in the guest's directory.
#[test]
fn a_request_that_could_not_be_judged_is_judged_by_the_next_poll() {
    let stage = Stage::with(QueueConfig::default().with_ledger(4));
    stage.submit_id("a");
    fs::create_dir(stage.host("ledger")).unwrap();
    for _ in 0..2 {
        let polled = stage.poll();
        assert_eq!((polled.jobs.len(), polled.refused.total), (0, 1));
        assert_eq!(stage.queue.in_flight(), 1);
    }
    fs::remove_dir(stage.host("ledger")).unwrap();
    assert_eq!((stage.serve(), stage.status("a")), (1, Some(200)));
    assert_eq!(stage.queue.in_flight(), 0);
}

#[test]
fn what_could_not_be_looked_up_in_the_ledger_has_not_begun() {
    let stage = Stage::with(QueueConfig::default().with_ledger(4));
    stage.submit_id("a");
    let job = stage.poll().jobs.pop().unwrap();
    fs::create_dir(stage.host("ledger")).unwrap();
    assert!(job.start().is_err());
    fs::remove_dir(stage.host("ledger")).unwrap();
    let recovered = stage.queue.recover().unwrap();
    assert_eq!((recovered.not_started.len(), recovered.indeterminate.len()), (1, 0));
    recovered.not_started.into_iter().for_each(handle);
    assert_eq!(stage.status("a"), Some(200));
}

/// Each would leave an answer on the host's side, and each poll try all of them again.
#[test]
fn a_drain_refuses_no_more_than_may_wait_to_be_published() {
    let stage = Stage::with(QueueConfig::default().with_in_flight(4));
    for name in 0..40 {
        stage.submit_id(&format!("r{name}"));
    }
    fs::rename(stage.guest("responses"), stage.guest("aside")).unwrap();
    fs::write(stage.guest("responses"), "").unwrap();
    let drained = stage.queue.drain(Duration::ZERO, drop).unwrap();
    assert_eq!((stage.states().len(), stage.queue.in_flight(), drained.more), (4, 4, true));
    assert_eq!(names(&stage.guest("requests")).len(), 36, "they wait for the next start");
    stage.queue.repair().unwrap();
    let drained = stage.queue.drain(Duration::ZERO, drop).unwrap();
    assert_eq!((drained.answered, drained.more), (36, false));
    assert_eq!((names(&stage.guest("responses")).len(), stage.states().len()), (40, 0));
}

#[test]
fn a_drain_without_end_waits_for_room() {
    let stage = Stage::with(QueueConfig::default().with_in_flight(1));
    ["a", "b"].into_iter().for_each(|name| stage.submit_id(name));
    let first = stage.poll().jobs.pop().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            handle(first);
        });
        assert_eq!(stage.queue.drain(Duration::MAX, handle).unwrap().handled, 1);
    });
    assert_eq!((stage.status("a"), stage.status("b")), (Some(200), Some(200)));
}

/// The answer that takes the room is published as soon as it can be.
#[test]
fn a_drain_that_waits_for_room_looks_again() {
    let stage = Stage::with(QueueConfig::default().with_in_flight(1));
    ["a", "b"].into_iter().for_each(|name| stage.submit_id(name));
    fs::rename(stage.guest("responses"), stage.guest("aside")).unwrap();
    fs::write(stage.guest("responses"), "").unwrap();
    assert_eq!((stage.serve(), stage.queue.in_flight()), (1, 1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            stage.queue.repair().unwrap();
        });
        assert_eq!(stage.queue.drain(Duration::from_secs(5), handle).unwrap().handled, 1);
    });
    assert_eq!((stage.status("a"), stage.status("b")), (Some(200), Some(200)));
}
