//! A large download that breaks off goes on where it stopped, and only there.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use beneath::artifacts::{Event, Retry, Source};

use crate::bucket::{Answer, Ask, Bucket, page};
use crate::servers;
use crate::support::{self, Home};

const SIZE: usize = 300_000;
const CUT: usize = 100_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|n| (n % 251) as u8).collect()
}

fn quick() -> Retry {
    Retry::default().with_pause(Duration::from_millis(5), Duration::from_millis(20))
}

/// Restores one object, of which the first answer sends a part and the others are as given; returns the headers of the
/// reads, without the first.
async fn restore(answers: Vec<Answer>) -> Vec<BTreeMap<String, String>> {
    let answers = Mutex::new(answers.into_iter());
    let bucket = Bucket::scripted(
        |_| page(&[("a", SIZE)], None),
        move |_, count| match count {
            0 => Answer::cut(SIZE, &content()[..CUT]),
            _ => answers.lock().unwrap().next().unwrap_or(Answer::closed()),
        },
    );
    let home = Home::new();
    let total = Arc::new(AtomicI64::new(0));
    let seen = Arc::clone(&total);
    let artifacts = home.artifacts(&bucket.source()).with_retry(quick()).with_progress(move |event| {
        match event {
            Event::Moved { bytes, .. } => seen.fetch_add(*bytes as i64, Ordering::SeqCst),
            Event::Retried { moved, .. } => seen.fetch_sub(*moved as i64, Ordering::SeqCst),
            _ => 0,
        };
    });
    let report = artifacts.restore().await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert!(home.tree()["a"] == content(), "the file is not the object");
    assert_eq!(total.load(Ordering::SeqCst), SIZE as i64, "what a bar would show");
    home.assert_clean();
    let mut heads = bucket.reads();
    assert!(!heads.remove(0).contains_key("range"));
    heads
}

/// The rest of the object from a byte on.
fn rest(from: usize) -> Answer {
    part(&format!("bytes {from}-{}/{SIZE}", SIZE - 1), &content()[from..])
}

fn part(range: &str, body: impl Into<Vec<u8>>) -> Answer {
    Answer::new(206, body).with("Content-Range", range)
}

fn asks_for_rest(head: &BTreeMap<String, String>, from: usize) -> bool {
    head["range"] == format!("bytes={from}-") && head["if-match"] == "\"e\""
}

#[tokio::test]
async fn download_goes_on_where_it_stopped() {
    let heads = restore(vec![rest(CUT)]).await;
    assert!(heads.len() == 1 && asks_for_rest(&heads[0], CUT), "{heads:?}");
}

#[tokio::test]
async fn download_goes_on_after_a_pause_of_the_server() {
    let busy = Answer::new(503, "");
    let heads = restore(vec![busy, Answer::closed(), rest(CUT)]).await;
    assert!(heads.len() == 3 && heads.iter().all(|head| asks_for_rest(head, CUT)), "{heads:?}");
}

#[tokio::test]
async fn download_that_breaks_off_twice_keeps_both_parts() {
    let range = format!("bytes {CUT}-{}/{SIZE}", SIZE - 1);
    let second = part(&range, &content()[CUT..2 * CUT]).with("Content-Length", SIZE - CUT);
    let heads = restore(vec![second, rest(2 * CUT)]).await;
    assert!(asks_for_rest(&heads[0], CUT) && asks_for_rest(&heads[1], 2 * CUT), "{heads:?}");
}

#[tokio::test]
async fn store_that_does_not_go_on_exactly_is_asked_for_the_whole() {
    let other = |length: usize| vec![b'y'; length];
    let rest = format!("bytes {CUT}-{}/{SIZE}", SIZE - 1);
    let cases = [
        ("ignores the range", Answer::new(200, other(SIZE))),
        ("from the beginning", part(&format!("bytes 0-{}/{SIZE}", SIZE - 1), other(SIZE))),
        ("from elsewhere", part(&format!("bytes 50000-{}/{SIZE}", SIZE - 1), other(SIZE - 50_000))),
        ("ends early", part(&format!("bytes {CUT}-{}/{SIZE}", SIZE - 2), other(SIZE - CUT - 1))),
        ("another size", part(&format!("bytes {CUT}-{SIZE}/{}", SIZE + 1), other(SIZE - CUT + 1))),
        ("other length than announced", part(&rest, other(10))),
        ("another version", part(&rest, other(SIZE - CUT)).with("ETag", "\"f\"")),
        ("no range at all", part("none", other(SIZE - CUT))),
        ("no such version", Answer::new(412, "")),
        ("no such range", Answer::new(416, "")),
    ];
    for (name, answer) in cases {
        println!("{name}");
        let heads = restore(vec![answer, Answer::new(200, content())]).await;
        assert!(heads.len() == 2 && asks_for_rest(&heads[0], CUT), "{name}: {heads:?}");
        assert!(!heads[1].contains_key("range"), "{name}: {heads:?}");
    }
}

/// Passes connections on to `port`, and cuts the first answer of more than `most` bytes there.
fn cutting_proxy(port: u16, most: usize) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, cut) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&cut);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let (mut up, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || drop(std::io::copy(&mut up, &mut to)));
            let done = Arc::clone(&done);
            std::thread::spawn(move || pass_back(server, client, most, &done));
        }
    });
    (own, cut)
}

fn pass_back(mut server: TcpStream, mut client: TcpStream, most: usize, done: &AtomicBool) {
    let mut buffer = vec![0; 16 << 10];
    let passed = AtomicUsize::new(0);
    while let Ok(read) = server.read(&mut buffer) {
        let so_far = passed.fetch_add(read, Ordering::Relaxed) + read;
        if read == 0 || (so_far > most && !done.swap(true, Ordering::SeqCst)) {
            // Whichever end has hung up, the other one learns of it.
            let _ = client.shutdown(std::net::Shutdown::Both);
            return;
        }
        if client.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_request_for_the_rest_is_understood_by_a_real_server() {
    let Some(server) = servers::weed() else { return };
    let (bucket, source) = server.bucket().await;
    let content: Vec<u8> = (0..3 << 20).map(|n: u32| (n % 253) as u8).collect();
    support::put_object(&source, "large", &content).await;
    let (port, cut) = cutting_proxy(server.port, 1 << 20);
    let through =
        Source::s3(server.builder(&bucket).with_endpoint(format!("http://127.0.0.1:{port}"))).unwrap();
    let home = Home::new();
    let lost = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = Arc::clone(&lost);
    let artifacts = home.artifacts(&through).with_retry(quick()).with_progress(move |event| {
        if let Event::Retried { moved, .. } = event {
            seen.store(*moved as usize, Ordering::SeqCst);
        }
    });
    let report = artifacts.restore().await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert!(home.tree()["large"] == content, "the file is not the object");
    assert!(cut.load(Ordering::SeqCst), "the connection was cut");
    assert_eq!(lost.load(Ordering::SeqCst), 0, "nothing was fetched twice");
    home.assert_clean();
}

#[tokio::test]
async fn only_what_the_log_lists_and_still_has_its_hash_is_not_fetched_again() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&broken);
    let names = ["bad", "changed", "d/gone", "d/good", "e/good", "torn"];
    let bucket = Bucket::scripted(
        move |_| page(&names.map(|name| (name, 5)), None),
        move |key, _| match key {
            "bad" if state.load(Ordering::SeqCst) => Answer::cut(5, "he").then_silence(),
            _ => Answer::new(200, "hello"),
        },
    );
    let home = Home::new();
    let artifacts = home.artifacts(&bucket.source()).with_retry(quick());
    let dying = artifacts.clone();
    let restoring = tokio::spawn(async move { dying.restore().await });
    // The caller gives up while one object does not come and all others are in staging.
    let log = home.path("state/fetch.log");
    while std::fs::read_to_string(&log).unwrap_or_default().lines().count() < names.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    restoring.abort();
    assert!(restoring.await.is_err());
    assert!(home.tree().is_empty());

    // What a host leaves that died half-way, and a machine that lost power.
    let staged = |path: &str| home.path("staging/fetched/tree").join(path);
    std::fs::write(staged("changed"), "HELLO").unwrap();
    std::fs::remove_file(staged("d/gone")).unwrap();
    std::fs::write(staged("torn"), "he").unwrap();
    std::fs::write(staged("bad"), "he").unwrap();
    std::fs::create_dir(staged("f")).unwrap();
    std::fs::write(staged("f/unknown"), "no object").unwrap();
    std::fs::write(staged("d/unknown"), "no object").unwrap();
    let mut log = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    log.write_all(b"5 %22e%22 0123").unwrap();

    broken.store(false, Ordering::SeqCst);
    let before = bucket.asked(Ask::Get);
    let report = artifacts.restore().await.unwrap();
    assert!(report.is_complete() && report.placed == names.len() as u64, "{report:?}");
    let wanted = names.map(|name| (name.to_owned(), b"hello".to_vec())).into();
    assert_eq!(home.tree(), wanted);
    assert!(!home.workspace("f").exists());
    assert_eq!(bucket.asked(Ask::Get) - before, 4, "all but the two that are good");
    home.assert_clean();
}
