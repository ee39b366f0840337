//! Several workers, and disks that are full.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Barrier, Mutex};
use std::thread;

use beneath::queue::{Answered, Queue, QueueConfig, Request, Response};
use beneath::{ErrorKind, Root, Session, ambient_authority};
use beneath_kit::naive::queue::NaiveQueue;
use beneath_kit::namespace::{Mounted, with_private_mounts};
use rustix::mount::{MountFlags, mount};

use crate::support::*;

const REQUESTS: usize = 300;

#[test]
fn of_two_workers_one_handles_each_request_even_if_both_recover_all_the_time() {
    let stage = Stage::quick(QueueConfig::default());
    let runs: Mutex<BTreeMap<String, u32>> = Mutex::default();
    let work = |queue: Queue, recovers: bool| {
        while names(&stage.guest("responses")).len() < REQUESTS {
            let mut jobs = Vec::new();
            if recovers {
                let recovered = queue.recover().unwrap();
                assert_eq!(recovered.indeterminate.len(), 0, "it took what the other is handling");
                jobs.extend(recovered.not_started);
            }
            jobs.extend(queue.poll().unwrap().jobs);
            for job in jobs {
                let Ok(started) = job.start() else { continue };
                *runs.lock().unwrap().entry(started.id().to_string()).or_default() += 1;
                thread::yield_now();
                let _ = started.answer(&Response::new(200)).unwrap();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| (0..REQUESTS).for_each(|number| stage.submit_id(&format!("r{number}"))));
        // As two processes would: each has its own handle.
        for recovers in [false, true, true] {
            let queue = stage.session.queue(QueueConfig::default()).unwrap();
            scope.spawn(move || work(queue, recovers));
        }
    });
    let runs = runs.into_inner().unwrap();
    assert_eq!(runs.len(), REQUESTS);
    assert!(runs.values().all(|times| *times == 1), "{runs:?}");
    assert_eq!(stage.states().len(), 0);
}

#[test]
fn control_two_workers_without_a_claim_both_handle_a_request() {
    let stage = Stage::new();
    stage.submit_id("a");
    let (both, runs) = (Barrier::new(2), Mutex::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let served = NaiveQueue { dir: stage.guest("") }.serve(|_, _| {
                    *runs.lock().unwrap() += 1;
                    both.wait();
                    Vec::new()
                });
                // The one that comes second finds its files gone.
                drop(served);
            });
        }
    });
    assert_eq!(runs.into_inner().unwrap(), 2, "the control is not caught");
}

/// Each of them would save it, and the guest that has fetched the first would find a second.
#[test]
fn of_two_threads_that_poll_one_publishes_what_waits() {
    let stage = Stage::quick(QueueConfig::default());
    for round in 0..200 {
        let name = format!("r{round}");
        fs::rename(stage.guest("responses"), stage.guest("aside")).unwrap();
        fs::write(stage.guest("responses"), "").unwrap();
        stage.submit(&format!("{name}.json"), "{");
        assert_eq!(stage.poll().answered, 1);
        fs::remove_file(stage.guest("responses")).unwrap();
        fs::rename(stage.guest("aside"), stage.guest("responses")).unwrap();
        let both = Barrier::new(2);
        let poll = || {
            both.wait();
            stage.poll().published
        };
        let published: u64 = thread::scope(|scope| {
            [scope.spawn(poll), scope.spawn(poll)].map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!((published, stage.status(&name)), (1, Some(400)), "round {round}");
        assert_eq!((stage.states().len(), stage.queue.in_flight()), (0, 0));
    }
}

/// Puts a file in place of the directory of answers, and the directory back.
fn without_responses<T>(guest: impl Fn(&str) -> PathBuf, act: impl FnOnce() -> T) -> T {
    fs::rename(guest("responses"), guest("aside")).unwrap();
    fs::write(guest("responses"), "").unwrap();
    let done = act();
    fs::remove_file(guest("responses")).unwrap();
    fs::rename(guest("aside"), guest("responses")).unwrap();
    done
}

/// The worker that has saved it would lose track of the other one's request, and a crash leave it without an answer.
#[test]
fn an_answer_that_is_published_late_ends_no_other_request_of_its_id() {
    let stage = Stage::new();
    stage.submit_id("a");
    let first = stage.poll().jobs.pop().unwrap().start().unwrap();
    let saved = without_responses(|part| stage.guest(part), || first.answer(&Response::new(200)).unwrap());
    assert!(matches!(saved, Answered::Saved(_)), "{saved:?}");
    let other = stage.session.queue(QueueConfig::default()).unwrap();
    stage.submit_id("a");
    let second = other.poll().unwrap().jobs.pop().unwrap().start().unwrap();
    assert_eq!((stage.poll().published, stage.status("a")), (1, Some(200)));
    assert_eq!(stage.states(), ["a.started"]);
    drop(second);
    assert_eq!(other.recover().unwrap().indeterminate.len(), 1);
}

/// A session whose guest's side, or whose host's side, is a file system of its own that is full until `free` is called.
fn with_full_disk(full: &str, body: impl FnOnce(&Session, &Path, &dyn Fn()) + Send) {
    let dir = tempfile::tempdir().unwrap();
    for side in ["guest", "host"] {
        fs::create_dir(dir.path().join(side)).unwrap();
    }
    with_private_mounts(|| {
        let point = dir.path().join(full);
        mount("tmpfs", &point, "tmpfs", MountFlags::empty(), c"size=256k").unwrap();
        let _mounted = Mounted([point.clone()]);
        let open = |side: &str| Root::open_ambient(dir.path().join(side), ambient_authority()).unwrap();
        let session = Session::from_roots(open("guest"), open("host")).unwrap();
        drop(session.queue(QueueConfig::default()).unwrap());
        for name in ["a", "bad"] {
            let json = Request::with_id(id(name), "GET", "/").to_json();
            let json = if name == "bad" { b"{".to_vec() } else { json };
            fs::write(dir.path().join(format!("guest/queue/requests/{name}.json")), json).unwrap();
        }
        body(&session, dir.path(), &|| fs::remove_file(point.join("filler")).unwrap());
    });
}

fn fill(disk: &Path) {
    use std::io::Write as _;

    let mut filler = fs::File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
}

fn statuses(dir: &Path) -> BTreeMap<String, u16> {
    let responses = dir.join("guest/queue/responses");
    let status = |file: &String| {
        let name = file.trim_end_matches(".json");
        let json = fs::read(responses.join(file)).unwrap();
        (name.to_owned(), Response::from_json(&json, &id(name), Default::default()).unwrap().status)
    };
    names(&responses).iter().map(status).collect()
}

#[test]
fn an_answer_waits_until_the_guest_has_room() {
    with_full_disk("guest", |session, dir, free| {
        let queue = session.queue(QueueConfig::default()).unwrap();
        let polled = queue.poll().unwrap();
        let started = polled.jobs.into_iter().next().unwrap().start().unwrap();
        fill(&dir.join("guest"));
        let Answered::Saved(error) = started.answer(&Response::new(200).with_body("x".repeat(5000))).unwrap()
        else {
            panic!("there was room")
        };
        assert_eq!((error.kind(), queue.in_flight()), (ErrorKind::NoSpace, 1));
        assert_eq!(queue.poll().unwrap().refused().next().unwrap().1.kind(), ErrorKind::NoSpace);
        free();
        assert_eq!(queue.poll().unwrap().published, 1);
        assert_eq!(statuses(dir), [("a".to_owned(), 200), ("bad".to_owned(), 400)].into());
        assert_eq!((names(&dir.join("host/queue")).len(), queue.in_flight()), (0, 0));
    });
}

#[test]
fn an_answer_that_the_host_has_no_room_for_is_given_back_and_a_refusal_is_tried_again() {
    with_full_disk("host", |session, dir, free| {
        let queue = session.queue(QueueConfig::default()).unwrap();
        // The copy of a request needs room too, so it is taken before.
        fs::rename(dir.join("guest/queue/requests/bad.json"), dir.join("guest/bad")).unwrap();
        let started = queue.poll().unwrap().jobs.into_iter().next().unwrap().start().unwrap();
        fs::rename(dir.join("guest/bad"), dir.join("guest/queue/requests/bad.json")).unwrap();
        fill(&dir.join("host"));
        let unanswered = started.answer(&Response::new(200)).unwrap_err();
        assert_eq!(unanswered.error.kind(), ErrorKind::NoSpace);
        let polled = queue.poll().unwrap();
        assert!(polled.jobs.is_empty() && !polled.refused.is_empty());
        assert_eq!(statuses(dir).len(), 0);
        free();
        assert_eq!(unanswered.started.answer(&Response::new(200)).unwrap(), Answered::Published);
        let _ = queue.poll().unwrap();
        assert_eq!(statuses(dir), [("a".to_owned(), 200), ("bad".to_owned(), 400)].into());
        assert_eq!(names(&dir.join("host/queue")).len(), 0);
    });
}

/// The claim is a rename and needs no room; the refusal does.
#[test]
fn a_refusal_that_cannot_be_saved_is_answered_by_the_next_poll() {
    let dir = tempfile::tempdir().unwrap();
    with_private_mounts(|| {
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), c"size=256k").unwrap();
        let _mounted = Mounted([dir.path().to_path_buf()]);
        for side in ["guest", "host"] {
            fs::create_dir(dir.path().join(side)).unwrap();
        }
        let open = |side: &str| Root::open_ambient(dir.path().join(side), ambient_authority()).unwrap();
        let session = Session::from_roots(open("guest"), open("host")).unwrap();
        let queue = session.queue(QueueConfig::default()).unwrap();
        fs::write(dir.path().join("guest/queue/requests/bad.json"), "{").unwrap();
        fill(dir.path());
        let polled = queue.poll().unwrap();
        assert_eq!(polled.refused().next().unwrap().1.kind(), ErrorKind::NoSpace);
        assert_eq!(
            (names(&dir.path().join("host/queue")), queue.in_flight()),
            (vec!["bad.refused".into()], 1)
        );
        fs::remove_file(dir.path().join("filler")).unwrap();
        assert_eq!(queue.poll().unwrap().published, 1);
        assert_eq!(statuses(dir.path()), [("bad".to_owned(), 400)].into());
        assert_eq!((names(&dir.path().join("host/queue")).len(), queue.in_flight()), (0, 0));
    });
}

/// It was saved by one worker and published by another, and the guest has fetched it.
#[test]
fn a_refusal_that_was_saved_late_is_published_once() {
    let dir = tempfile::tempdir().unwrap();
    with_private_mounts(|| {
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), c"size=256k").unwrap();
        let _mounted = Mounted([dir.path().to_path_buf()]);
        for side in ["guest", "host"] {
            fs::create_dir(dir.path().join(side)).unwrap();
        }
        let open = |side: &str| Root::open_ambient(dir.path().join(side), ambient_authority()).unwrap();
        let session = Session::from_roots(open("guest"), open("host")).unwrap();
        let [queue, other] = [(); 2].map(|()| session.queue(QueueConfig::default()).unwrap());
        fs::write(dir.path().join("guest/queue/requests/bad.json"), "{").unwrap();
        fill(dir.path());
        assert!(!queue.poll().unwrap().is_complete());
        fs::remove_file(dir.path().join("filler")).unwrap();
        let polled =
            without_responses(|part| dir.path().join("guest/queue").join(part), || queue.poll().unwrap());
        assert_eq!((polled.published, names(&dir.path().join("host/queue"))), (0, vec!["bad.answer".into()]));
        assert_eq!(other.recover().unwrap().published, 1);
        fs::remove_file(dir.path().join("guest/queue/responses/bad.json")).unwrap();
        let _ = queue.poll().unwrap();
        assert_eq!(statuses(dir.path()), BTreeMap::new(), "it was answered twice");
        assert_eq!((names(&dir.path().join("host/queue")).len(), queue.in_flight()), (0, 0));
    });
}
