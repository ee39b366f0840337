//! Large files on their way to the store.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use beneath::ErrorKind;
use beneath::artifacts::conformance::Attributes;
use beneath::artifacts::{Artifacts, Event, Retry, Source, SyncOptions, SyncReport};
use tokio::sync::oneshot;

use crate::bucket::{Act, Answer, Ask, Bucket};
use crate::support::{self, Home};

/// A file of three parts.
const LARGE: usize = 20 << 20;
/// A file of two parts, the second of them small.
const SPLIT: usize = (8 << 20) + 1000;

/// Longer than any answer takes on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

async fn mirror(artifacts: &Artifacts) -> SyncReport {
    artifacts.mirror(&SyncOptions::default()).await.unwrap()
}

/// Few attempts, short pauses, and a list of the attempts that failed.
fn listening(home: &Home, source: &Source, silence: Duration) -> (Artifacts, Arc<Mutex<Vec<u32>>>) {
    let retry = Retry::default()
        .with_attempts(3)
        .with_pause(Duration::from_millis(5), Duration::from_millis(20))
        .with_silence(silence);
    let retried = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&retried);
    let artifacts = home.artifacts(source).with_retry(retry).with_progress(move |event| {
        if let Event::Retried { attempt, .. } = event {
            seen.lock().unwrap().push(*attempt);
        }
    });
    (artifacts, retried)
}

fn error(status: u16) -> Answer {
    Answer::new(status, "")
}

fn said(body: &str) -> Answer {
    Answer::new(200, body)
}

/// A bucket whose first completion waits until it is released, and sends a message when it waits.
fn held() -> (Bucket, oneshot::Receiver<()>, Arc<AtomicBool>) {
    let (sender, waiting) = oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let released = Arc::new(AtomicBool::new(false));
    let free = Arc::clone(&released);
    let bucket = Bucket::new(move |request, count| {
        if request.ask == Ask::Complete && count == 0 {
            sender.lock().unwrap().take().unwrap().send(()).unwrap();
            while !free.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Act::Serve
    });
    (bucket, waiting, released)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hosts_with_a_large_file_one_wins_and_the_other_knows() {
    for before in [None, Some("known to both")] {
        let (bucket, waiting, released) = held();
        let source = bucket.source();
        let (one, two) = (Home::new(), Home::new());
        if let Some(content) = before {
            support::put_object(&source, "large", content.as_bytes()).await;
            for home in [&one, &two] {
                assert!(home.artifacts(&source).restore().await.unwrap().is_complete());
            }
        }
        fs::write(one.workspace("large"), vec![1; LARGE]).unwrap();
        fs::write(two.workspace("large"), vec![2; LARGE]).unwrap();
        let artifacts = one.artifacts(&source);
        let first = tokio::spawn(async move { mirror(&artifacts).await });
        waiting.await.unwrap();
        // The first has compared, and has not completed.
        let second = mirror(&two.artifacts(&source)).await;
        released.store(true, Ordering::SeqCst);
        let first = first.await.unwrap();
        assert_eq!((second.uploaded, second.conflicts.len()), (1, 0), "{before:?}: {second:?}");
        assert_eq!((first.uploaded, first.conflicts.len()), (0, 1), "{before:?}: {first:?}");
        assert!(bucket.object("large").unwrap() == vec![2; LARGE], "{before:?}");
        assert_eq!(bucket.unfinished(), 0, "{before:?}");
    }
}

/// Mirrors a file while `faults` of the requests of one kind, from the `first` on, fail.
async fn mirror_through(ask: Ask, first: usize, faults: usize, fault: Answer, silence: Duration) {
    let name = format!("{ask:?} {fault:?}");
    let bucket = Bucket::new(move |request, count| {
        let fails = request.ask == ask && (first..first + faults).contains(&count);
        if fails { Act::Refuse(fault.clone()) } else { Act::Serve }
    });
    let home = Home::new();
    fs::write(home.workspace("large"), vec![7; SPLIT]).unwrap();
    let (artifacts, retried) = listening(&home, &bucket.source(), silence);
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.uploaded == 1, "{name}: {report:?}");
    let attempts: Vec<u32> = (1..).take(faults).collect();
    assert_eq!(*retried.lock().unwrap(), attempts, "{name}");
    assert!(bucket.object("large").unwrap() == vec![7; SPLIT], "{name}");
    assert_eq!(bucket.unfinished(), 0, "{name}");
}

#[tokio::test]
async fn passing_faults_of_every_call_are_retried_and_reported() {
    for ask in [Ask::Create, Ask::Part, Ask::Complete, Ask::Head] {
        for fault in [error(500), Answer::closed()] {
            mirror_through(ask, 0, 2, fault, PATIENT).await;
        }
    }
}

#[tokio::test]
async fn silence_of_the_store_is_given_up_and_tried_again() {
    // The second part is small, and so is the time that it may take.
    for (ask, first) in [(Ask::Create, 0), (Ask::Head, 0), (Ask::Part, 1)] {
        mirror_through(ask, first, 1, Answer::closed().then_silence(), Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn deletion_and_its_comparison_are_retried() {
    for ask in [Ask::Head, Ask::Delete] {
        let broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&broken);
        let bucket =
            Bucket::new(move |request, _| match request.ask == ask && breaks.swap(false, Ordering::SeqCst) {
                true => Act::Refuse(error(500)),
                false => Act::Serve,
            });
        // One that keeps conditions is not asked before.
        let bucket = if ask == Ask::Head { bucket.careless() } else { bucket };
        let home = Home::new();
        fs::write(home.workspace("a"), "soon gone").unwrap();
        let (artifacts, retried) = listening(&home, &bucket.source(), PATIENT);
        assert_eq!(mirror(&artifacts).await.uploaded, 1);
        fs::remove_file(home.workspace("a")).unwrap();
        broken.store(true, Ordering::SeqCst);
        let report = mirror(&artifacts).await;
        assert_eq!(report.deleted, 1, "{ask:?}: {report:?}");
        assert_eq!(*retried.lock().unwrap(), [1], "{ask:?}");
        assert_eq!(bucket.object("a"), None);
    }
}

#[tokio::test]
async fn lost_answer_to_a_completion_is_settled_by_what_is_there() {
    for answer in [Answer::closed(), said("<Error><Code>InternalError</Code></Error>"), error(500)] {
        for attempts in [1, 3] {
            let name = format!("{answer:?} {attempts}");
            let fault = answer.clone();
            let bucket = Bucket::new(move |request, count| match (request.ask, count) {
                (Ask::Complete, 0) => Act::ServeAndSay(fault.clone()),
                _ => Act::Serve,
            });
            let home = Home::new();
            fs::write(home.workspace("large"), vec![7; SPLIT]).unwrap();
            let retry = Retry::default()
                .with_attempts(attempts)
                .with_pause(Duration::from_millis(5), Duration::from_millis(5));
            let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
            let report = mirror(&artifacts).await;
            assert!(report.is_complete(), "{name}: {report:?}");
            assert!(bucket.object("large").unwrap() == vec![7; SPLIT], "{name}");
            // It counts as this host's from now on.
            let parts = bucket.asked(Ask::Part);
            assert!(mirror(&artifacts).await.is_complete(), "{name}");
            assert_eq!(bucket.asked(Ask::Part), parts, "{name}");
        }
    }
}

#[tokio::test]
async fn completion_that_fails_behind_a_200_is_no_success() {
    let cases = [
        ("<Error><Code>InternalError</Code></Error>", Some(ErrorKind::Io), 3),
        ("<Error><Code>AccessDenied</Code></Error>", Some(ErrorKind::Denied), 1),
        ("", Some(ErrorKind::Io), 3),
        ("<Error><Code>PreconditionFailed</Code></Error>", None, 2),
    ];
    for (body, kind, asked) in cases {
        let bucket = Bucket::new(move |request, _| match request.ask {
            Ask::Complete => Act::Refuse(said(body)),
            _ => Act::Serve,
        });
        let home = Home::new();
        fs::write(home.workspace("large"), vec![7; SPLIT]).unwrap();
        let (artifacts, _) = listening(&home, &bucket.source(), PATIENT);
        let report = mirror(&artifacts).await;
        assert_eq!(report.failed.total as usize + report.conflicts.len(), 1, "{body}: {report:?}");
        let found = report.failed.iter().next().map(|(_, error)| error.kind());
        assert_eq!((found, bucket.asked(Ask::Complete)), (kind, asked), "{body}");
        assert_eq!((bucket.object("large"), bucket.unfinished()), (None, 0), "{body}");
    }
}

#[tokio::test]
async fn store_without_conditions_is_compared_right_before() {
    let bucket = Bucket::new(|request, _| {
        let conditional =
            ["if-match", "if-none-match"].iter().any(|name| request.headers.contains_key(*name));
        match request.ask == Ask::Complete && conditional {
            true => Act::Refuse(error(501)),
            false => Act::Serve,
        }
    });
    let (one, two) = (Home::new(), Home::new());
    fs::write(one.workspace("large"), vec![1; SPLIT]).unwrap();
    fs::write(two.workspace("large"), vec![2; SPLIT]).unwrap();
    assert_eq!(mirror(&one.artifacts(&bucket.source())).await.uploaded, 1);
    let report = mirror(&two.artifacts(&bucket.source())).await;
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    assert!(bucket.object("large").unwrap() == vec![1; SPLIT]);
    assert_eq!(bucket.unfinished(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_was_given_up_is_discarded_by_the_next_mirror() {
    let (bucket, waiting, released) = held();
    let source = bucket.source();
    let home = Home::new();
    fs::write(home.workspace("large"), vec![1; SPLIT]).unwrap();
    let artifacts = home.artifacts(&source);
    let mirroring = tokio::spawn(async move { mirror(&artifacts).await });
    waiting.await.unwrap();
    mirroring.abort();
    assert!(mirroring.await.is_err());
    assert_eq!(bucket.unfinished(), 1);
    fs::remove_file(home.workspace("large")).unwrap();
    let other = bucket.source();
    let other = other.backend().begin("sessions/s1/theirs", &Attributes::NONE).await.unwrap();
    assert!(mirror(&home.artifacts(&source)).await.is_complete());
    assert_eq!(bucket.unfinished(), 1, "the other host's stays");
    assert!(!home.path("state/push.uploads").exists());
    released.store(true, Ordering::SeqCst);
    drop(other);
}

#[tokio::test]
async fn part_may_take_longer_than_the_client_would_wait_for_it() {
    let bucket = Bucket::new(|request, _| {
        if request.ask == Ask::Part {
            std::thread::sleep(Duration::from_millis(400));
        }
        Act::Serve
    });
    let home = Home::new();
    fs::write(home.workspace("large"), vec![1; SPLIT]).unwrap();
    let options = object_store::ClientOptions::new().with_allow_http(true);
    let builder = bucket.builder().with_client_options(options.with_timeout(Duration::from_millis(200)));
    let artifacts =
        home.artifacts(&Source::s3(builder).unwrap()).with_retry(Retry::default().with_attempts(1));
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.uploaded == 1, "{report:?}");
}

#[tokio::test]
async fn directory_in_place_of_a_store_takes_large_files_through_no_link() {
    let (remote, source) = support::local();
    let home = Home::new();
    fs::create_dir_all(remote.join("sessions/s1")).unwrap();
    symlink(home.path("outside"), remote.join("sessions/s1/dir")).unwrap();
    symlink(home.path("outside/canary"), remote.join("sessions/s1/link")).unwrap();
    fs::create_dir(home.workspace("dir")).unwrap();
    for name in ["dir/large", "dir/canary", "link", "plain"] {
        fs::write(home.workspace(name), vec![5; SPLIT]).unwrap();
    }
    // A link in the store is another version of what has its name here.
    let report = mirror(&home.artifacts(&source)).await;
    assert_eq!((report.uploaded, report.conflicts.len()), (2, 1), "{report:?}");
    assert!(!report.is_complete());
    home.assert_contained();
    let path = remote.join("sessions/s1/plain");
    assert!(path.symlink_metadata().unwrap().is_file() && fs::read(path).unwrap() == vec![5; SPLIT]);
    let names: Vec<_> =
        fs::read_dir(remote.join("sessions/s1")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

/// One host has a large file; while it is uploaded another host puts a small one in its place.
async fn race_in_the_middle(source: &Source) -> (SyncReport, Vec<u8>) {
    let (one, two) = (Home::new(), Home::new());
    fs::write(one.workspace("large"), vec![1; LARGE]).unwrap();
    fs::write(two.workspace("large"), vec![2; 10]).unwrap();
    let theirs = Arc::new(two.artifacts(source));
    let (put, runtime) = (Arc::new(Mutex::new(Some(theirs))), tokio::runtime::Handle::current());
    // The first hears that its upload has begun, and the second is done before it goes on.
    let artifacts = one.artifacts(source).with_progress(move |event| {
        if let Event::Started { .. } = event
            && let Some(theirs) = put.lock().unwrap().take()
        {
            let (done, wait) = std::sync::mpsc::channel();
            runtime.spawn(async move { done.send(mirror(&theirs).await.uploaded).unwrap() });
            assert_eq!(tokio::task::block_in_place(|| wait.recv().unwrap()), 1);
        }
    });
    let report = mirror(&artifacts).await;
    (report, support::objects(source).await.remove("large").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_store_lets_a_large_file_overwrite_what_came_meanwhile() {
    for (name, source) in support::every_store().await {
        let (report, object) = race_in_the_middle(&source).await;
        assert_eq!((report.uploaded, report.conflicts.len()), (0, 1), "{name}: {report:?}");
        assert_eq!(object, [2; 10], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_object_in_memory_is_put_on_a_condition_and_so_in_one_request() {
    for round in 0..3 {
        let source = support::memory();
        let (one, two) = (Home::new(), Home::new());
        let moved = Arc::new(Mutex::new(Vec::new()));
        let hosts = [(&one, 1), (&two, 2)].map(|(home, byte)| {
            fs::write(home.workspace("large"), vec![byte; LARGE]).unwrap();
            let seen = Arc::clone(&moved);
            home.artifacts(&source).with_progress(move |event| {
                if let Event::Moved { bytes, .. } = event {
                    seen.lock().unwrap().push(*bytes);
                }
            })
        });
        let [first, second] = hosts.map(|artifacts| tokio::spawn(async move { mirror(&artifacts).await }));
        let reports = [first.await.unwrap(), second.await.unwrap()];
        let conflicts: usize = reports.iter().map(|report| report.conflicts.len()).sum();
        assert_eq!(conflicts, 1, "{round}: {reports:?}");
        // Whoever comes second has put its own beside, if the first was done before it looked.
        assert!(moved.lock().unwrap().iter().all(|bytes| *bytes == LARGE as u64), "{round}");
        let objects = support::objects(&source).await;
        assert!(
            objects
                .values()
                .all(|object| object.len() == LARGE && object.iter().all(|byte| *byte == object[0]))
        );
    }
}
