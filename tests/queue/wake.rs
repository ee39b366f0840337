//! Waiting for requests and answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use beneath::queue::{QueueConfig, Request};
use beneath::session::{Wake, Watch, Watcher};
use beneath_kit::{Ends, env};

use crate::support::*;

/// How many requests are submitted, unless a number is asked for.
const SUBMISSIONS: usize = 2_000;

#[test]
fn no_request_waits_for_the_timer() {
    let submissions = env::QUEUE_WAKES.number().unwrap_or(SUBMISSIONS);
    let stage = Stage::quick(QueueConfig::default());
    let (stop, client) = (AtomicBool::new(false), stage.client());
    let (mut by_timer, mut handled) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&stop);
            for number in 0..submissions {
                let mut ticket = client.submit(&Request::new("GET", &format!("/{number}")).unwrap()).unwrap();
                assert_eq!(ticket.wait(soon()).unwrap().unwrap().status, 200);
            }
        });
        let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
        while !stop.load(Ordering::Relaxed) {
            watch.arm().unwrap();
            let mut jobs = stage.poll().jobs;
            if jobs.is_empty() {
                let wake = watch.wait(Instant::now() + Duration::from_secs(5));
                jobs = stage.poll().jobs;
                // Nobody submits anything else in the meantime: whatever is found now should have been an event.
                by_timer += usize::from(wake == Wake::Timer && !jobs.is_empty());
            }
            if !jobs.is_empty() {
                watch.found();
            }
            handled += jobs.len();
            jobs.into_iter().for_each(handle);
        }
    });
    println!("{handled} requests, {by_timer} found by the timer");
    assert_eq!(handled, submissions);
    // A machine that stands still for a second makes it look so.
    assert!(by_timer <= submissions / 1000, "{by_timer} of {submissions} were found by the timer");
}

/// Whoever arms after the look misses what comes in between.
#[test]
fn control_a_request_between_the_look_and_the_arming_waits_for_the_timer() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    assert!(stage.poll().jobs.is_empty());
    stage.submit_id("a");
    watch.arm().unwrap();
    assert_eq!(watch.wait(Instant::now() + Duration::from_millis(50)), Wake::Deadline);
    assert_eq!(stage.poll().jobs.len(), 1);
}

#[test]
fn next_returns_at_its_deadline_and_finds_what_comes() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let polled = stage.queue.next(&mut watch, Instant::now() + Duration::from_millis(5)).unwrap();
    assert!(polled.jobs.is_empty() && polled.is_complete());
    thread::scope(|scope| {
        scope.spawn(|| stage.submit_id("a"));
        assert_eq!(stage.queue.next(&mut watch, soon()).unwrap().jobs.len(), 1);
    });
}

/// How often `next` is called until it is not late: a machine that does nothing for a second makes it look so once.
fn is_prompt(mut round: impl FnMut()) -> bool {
    (0..5).any(|_| {
        let start = Instant::now();
        round();
        start.elapsed() < Duration::from_millis(900)
    })
}

/// Between two calls nothing is looked at: the watch was armed before the last look, and only its event is a reason for the next.
#[test]
fn no_request_that_comes_between_two_looks_waits_for_the_timer() {
    let submissions = env::QUEUE_WAKES.number().unwrap_or(SUBMISSIONS);
    let stage = Stage::quick(QueueConfig::default());
    let client = stage.client();
    let (mut late, mut handled) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..submissions {
                let request = Request::new("GET", &format!("/{number}")).unwrap();
                let mut ticket = client.submit(&request).unwrap();
                assert_eq!(ticket.wait(soon()).unwrap().unwrap().status, 200);
            }
        });
        let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
        while handled < submissions {
            let start = Instant::now();
            let jobs = stage.queue.next(&mut watch, soon()).unwrap().jobs;
            late += usize::from(start.elapsed() >= Duration::from_millis(900));
            handled += jobs.len();
            jobs.into_iter().for_each(handle);
        }
    });
    assert!(late <= submissions / 1000, "{late} of {submissions} were found by the timer");
}

/// A host that has just looked waits for an event, and one that has something else to do does that first.
#[test]
fn what_waits_in_this_process_is_done_before_the_next_wait() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let mut number = 0;
    assert!(is_prompt(|| {
        number += 1;
        stage.submit_id(&format!("r{number}"));
        let job = stage.queue.next(&mut watch, soon()).unwrap().jobs.pop().unwrap();
        std::fs::rename(stage.guest("responses"), stage.guest("aside")).unwrap();
        std::fs::write(stage.guest("responses"), "").unwrap();
        handle(job);
        std::fs::remove_file(stage.guest("responses")).unwrap();
        std::fs::rename(stage.guest("aside"), stage.guest("responses")).unwrap();
        assert_eq!(stage.queue.next(&mut watch, soon()).unwrap().published, 1);
    }));
}

/// Each queue looks for itself, whatever the watch has seen.
#[test]
fn a_watch_that_has_seen_another_queue_says_nothing_of_this_one() {
    let (one, other) = (Stage::new(), Stage::new());
    let mut watch = one.queue.watch(&Watcher::new()).unwrap();
    let mut number = 0;
    assert!(is_prompt(|| {
        number += 1;
        let name = format!("r{number}");
        [&one, &other].into_iter().for_each(|stage| stage.submit_id(&name));
        for stage in [&one, &other] {
            let jobs = stage.queue.next(&mut watch, soon()).unwrap().jobs;
            assert_eq!(jobs.into_iter().map(handle).count(), 1);
            assert_eq!(stage.status(&name), Some(200));
        }
    }));
}

/// A look that goes on where the last has stopped does not see what came to the part before that.
#[test]
fn what_comes_to_the_part_of_a_long_directory_that_was_looked_at_is_found() {
    let stage = Stage::with(QueueConfig::default().with_entries(20));
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let mut number = 0;
    let mut submit = || {
        for _ in 0..30 {
            number += 1;
            stage.submit_id(&format!("r{number}"));
        }
    };
    assert!(is_prompt(|| {
        submit();
        let mut handled = 0;
        while handled < 60 {
            let jobs = stage.queue.next(&mut watch, soon()).unwrap().jobs;
            if handled == 0 {
                submit();
            }
            handled += jobs.into_iter().map(handle).count();
        }
    }));
}

/// Whoever waits by the watch itself has the event that it was told of.
#[test]
fn an_event_that_somebody_else_has_taken_is_looked_at() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let mut number = 0;
    assert!(is_prompt(|| {
        for armed in [false, true] {
            number += 1;
            stage.submit_id(&format!("r{number}"));
            if armed {
                assert_eq!(watch.wait(soon()), Wake::Changed);
            }
            let jobs = stage.queue.next(&mut watch, soon()).unwrap().jobs;
            assert_eq!(jobs.into_iter().map(handle).count(), 1);
        }
    }));
}

#[test]
fn a_directory_that_is_replaced_between_two_looks_is_looked_at() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let mut number = 0;
    let mut replace = |away: &dyn Fn()| {
        assert!(is_prompt(|| {
            for replaced in [false, true] {
                if replaced {
                    away();
                    std::fs::create_dir(stage.guest("requests")).unwrap();
                }
                number += 1;
                stage.submit_id(&format!("r{number}"));
                let jobs = stage.queue.next(&mut watch, soon()).unwrap().jobs;
                assert_eq!(jobs.into_iter().map(handle).count(), 1);
            }
        }));
    };
    replace(&|| std::fs::remove_dir(stage.guest("requests")).unwrap());
    replace(&|| std::fs::rename(stage.guest("requests"), stage.arena.beside("aside")).unwrap());
}

#[test]
fn a_session_that_is_removed_ends_the_wait_of_who_has_just_looked() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    stage.submit_id("a");
    stage.queue.next(&mut watch, soon()).unwrap().jobs.into_iter().for_each(handle);
    let sessions = beneath::Sessions::new(stage.arena.open(Default::default()), Default::default());
    assert!(sessions.remove(&beneath::SessionId::new("s")).unwrap().is_complete());
    let error = stage.queue.next(&mut watch, soon()).unwrap_err();
    assert_eq!(error.kind(), beneath::ErrorKind::NotFound);
}

/// A worker that is full is woken by whoever makes room, not by the guest.
#[test]
fn who_waits_for_room_goes_on_when_there_is_some() {
    let stage = Stage::with(QueueConfig::default().with_in_flight(1));
    ["a", "b"].into_iter().for_each(|name| stage.submit_id(name));
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let first = stage.queue.next(&mut watch, soon()).unwrap().jobs.pop().unwrap();
    let full = stage.queue.next(&mut watch, Instant::now() + Duration::from_millis(5)).unwrap();
    assert!(full.jobs.is_empty() && full.more);
    thread::scope(|scope| {
        scope.spawn(|| handle(first));
        let second = stage.queue.next(&mut watch, soon()).unwrap();
        assert_eq!(second.jobs.into_iter().map(handle).count(), 1);
    });
}

/// Requests one after the other are each looked at without a pause, or they would take ten milliseconds each.
#[test]
fn a_change_that_brings_something_costs_no_pause() {
    let stage = Stage::new();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    for number in 0..20 {
        thread::scope(|scope| {
            scope.spawn(|| {
                // The host waits, as far as that can be arranged.
                thread::yield_now();
                stage.submit_id(&format!("r{number}"));
            });
            stage.queue.next(&mut watch, soon()).unwrap().jobs.into_iter().for_each(handle);
        });
        assert_eq!(watch.rest(), Duration::ZERO);
    }
    assert_eq!(Watch::PAUSE, Duration::from_millis(10));
}

/// What the guest leaves in the way is reported, and does not keep the host busy.
#[test]
fn what_is_left_in_the_way_does_not_end_the_wait() {
    let stage = Stage::new();
    std::fs::create_dir(stage.guest("requests/d.json")).unwrap();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(30);
    let polled = stage.queue.next(&mut watch, deadline).unwrap();
    assert!(Instant::now() >= deadline);
    assert_eq!((polled.jobs.len(), polled.refused.total), (0, 1));
    // What is removed is reported at once.
    stage.arena.fifo("s/guest/queue/requests/f.json");
    let polled = stage.queue.next(&mut watch, soon()).unwrap();
    assert_eq!((polled.jobs.len(), polled.refused.total), (0, 2));
}

/// Each look of a full worker is at all that there is, and one at a long directory goes on where the last has stopped.
#[test]
fn what_is_in_the_way_is_counted_once() {
    let stage = Stage::with(QueueConfig::default().with_in_flight(1));
    ["a", "b"].into_iter().for_each(|name| stage.submit_id(name));
    std::fs::create_dir(stage.guest("requests/d.json")).unwrap();
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let first = stage.queue.next(&mut watch, soon()).unwrap().jobs;
    let full = stage.queue.next(&mut watch, Instant::now() + Duration::from_millis(20)).unwrap();
    assert_eq!((first.len(), full.jobs.len(), full.refused.total), (1, 0, 1));

    let stage = Stage::with(QueueConfig::default().with_entries(10));
    for number in 0..25 {
        std::fs::write(stage.guest(format!("requests/junk{number}")), "").unwrap();
    }
    let mut watch = stage.queue.watch(&Watcher::new()).unwrap();
    let long = stage.queue.next(&mut watch, Instant::now() + Duration::from_millis(20)).unwrap();
    assert_eq!((long.ignored, long.more), (20, true), "two looks");
}
