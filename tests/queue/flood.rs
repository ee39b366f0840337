//! A guest that fills its queue.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use beneath::queue::{Overflow, QueueConfig, Request};
use beneath::session::Watcher;
use beneath_kit::naive::queue::NaiveQueue;
use beneath_kit::{child, env};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::ioctl_fionread;

use crate::support::*;

/// How many names there are, unless a number is asked for.
const NAMES: usize = 20_000;
const MIB: u64 = 1 << 20;

/// Makes names that are no requests, long enough to be noticed by whoever remembers them all.
fn flood(stage: &Stage, names: usize) {
    for number in 0..names {
        drop(File::create(stage.guest("requests").join(format!("{number:0>150}.json"))).unwrap());
    }
}

#[test]
fn a_poll_looks_at_a_bounded_number_of_names_and_remembers_few() {
    child::run("flood::a_poll_looks_at_a_bounded_number_of_names_and_remembers_few", || {
        let names = env::QUEUE_NAMES.number().unwrap_or(NAMES);
        let stage = Stage::quick(QueueConfig::default());
        // Before the others: a file system in memory lists the newest first.
        stage.submit_id("wanted");
        flood(&stage, names);
        // What the first poll of a process takes in any case.
        drop(Stage::new().poll());
        let before = child::peak_memory();
        let (mut polls, mut longest) = (0, std::time::Duration::ZERO);
        loop {
            let start = Instant::now();
            let polled = stage.poll();
            longest = longest.max(start.elapsed());
            polls += 1;
            assert!(polled.ignored as usize + polled.jobs.len() <= stage.queue.config().entries());
            assert_eq!(polled.refused.total, 0);
            if !polled.jobs.is_empty() {
                break;
            }
            assert!(polled.more, "it was overlooked");
        }
        // Each poll goes on where the last one has stopped.
        let most = names / stage.queue.config().entries() + 2;
        assert!(polls <= most, "{polls} polls for {names} names");
        let taken = child::peak_memory() - before;
        assert!(taken <= MIB, "{taken} bytes");

        let before = child::peak_memory();
        let start = Instant::now();
        let listed = NaiveQueue { dir: stage.guest("") }.list().unwrap();
        let naive = child::peak_memory() - before;
        println!(
            "{names} names: {polls} polls, the longest {longest:?}, {taken} bytes; control: {:?}, {naive} bytes",
            start.elapsed()
        );
        assert!(listed.len() >= names && naive > MIB, "the control is not caught: {naive} bytes");
    });
}

/// Every one of them is a request, and every one is bad.
#[test]
fn a_flood_of_bad_requests_is_answered_bit_by_bit() {
    let stage = Stage::with(QueueConfig::default().with_claims(10).with_entries(50));
    for number in 0..200 {
        stage.submit(&format!("r{number}.json"), "{");
    }
    let mut answered = 0;
    for _ in 0..200 {
        let polled = stage.poll();
        assert!(polled.answered <= 10 && polled.jobs.is_empty());
        answered += polled.answered;
        if !polled.more {
            break;
        }
    }
    assert_eq!((answered, names(&stage.guest("requests")).len()), (200, 0));
    // And nobody fetches any of the answers.
    let stage = Stage::with(QueueConfig::default().with_responses(3));
    for number in 0..10 {
        stage.submit(&format!("r{number}.json"), "{");
        assert_eq!(stage.poll().answered, 1);
    }
    let swept = stage.queue.sweep().unwrap();
    assert_eq!((swept.removed, swept.kept), (7, 3));
    assert_eq!(names(&stage.guest("responses")), ["r7.json", "r8.json", "r9.json"], "the oldest go");
}

/// Nothing can be published, so each refusal stays on the host's side.
#[test]
fn a_guest_that_takes_no_answers_fills_no_more_than_its_share_of_the_host() {
    let config = QueueConfig::default().with_in_flight(2).with_overflow(Overflow::Reject);
    for config in [config, config.with_waiting_age(Duration::ZERO)] {
        let stage = Stage::with(config);
        fs::remove_dir(stage.guest("responses")).unwrap();
        symlink(stage.arena.outside(), stage.guest("responses")).unwrap();
        let all: Vec<String> = (0..30).map(|number| format!("r{number}")).collect();
        all.iter().for_each(|name| stage.submit_id(name));
        let mut jobs = Vec::new();
        for _ in 0..5 {
            let polled = stage.poll();
            assert!(polled.more);
            jobs.extend(polled.jobs);
        }
        // As many as are in flight, and as many answers.
        assert!(stage.states().len() <= 4, "{:?}", stage.states());
        stage.queue.repair().unwrap();
        jobs.into_iter().for_each(handle);
        for _ in 0..5 {
            stage.serve();
        }
        assert!(all.iter().all(|name| stage.status(name).is_some()), "nobody is forgotten");
    }
}

#[test]
fn a_flood_queues_as_many_events_as_one_change() {
    let stage = Stage::quick(QueueConfig::default());
    let watcher = Watcher::new();
    let mut watch = stage.queue.watch(&watcher).unwrap();
    let naive = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    add_watch(&naive, stage.guest("requests"), WatchFlags::CREATE).unwrap();
    watch.arm().unwrap();
    flood(&stage, NAMES);
    // Two events: the change, and the end of the watch.
    let queued = ioctl_fionread(watcher.try_clone_fd().unwrap().unwrap()).unwrap();
    assert!(queued <= 2 * 272, "{queued} bytes are queued");
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 65_536];
    let mut reader = Reader::new(&naive, &mut buffer);
    let events = std::iter::from_fn(|| reader.next().ok().map(|event| event.events()));
    let (mut count, mut overflowed) = (0, false);
    for event in events {
        count += 1;
        overflowed |= event.contains(ReadFlags::QUEUE_OVERFLOW);
    }
    println!("{NAMES} names: {queued} bytes of events; control: {count} events, overflow: {overflowed}");
    assert!(overflowed || count >= NAMES, "the control is not caught");
    stage.submit("a.json", Request::with_id(id("a"), "GET", "/").to_json());
    fs::remove_dir_all(stage.guest("requests")).unwrap();
}
