//! The real server, a real HTTP client, and a guest that works against both.

#![allow(missing_docs, reason = "a test binary has no interface")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test says where")]

mod guest;
mod server;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use beneath_kit::child::wait_until;
use beneath_kit::env;
use serde_json::{Value, json};

use guest::{Guest, Stops};
use server::{Answer, Server};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_session_works_from_its_creation_to_its_deletion() {
    let server = Server::start();
    assert_eq!(server.post("/sessions?id=s", "").status, 201);
    assert_eq!(server.post("/sessions?id=s", "").status, 200, "it is there already");
    assert_eq!(server.get("/sessions").json()["sessions"], json!(["s"]));

    let saved = server.put("/sessions/s/inbox/42/..%2Fphoto%20one.png", b"png");
    assert_eq!((saved.status, saved.json()["guest_path"].as_str().unwrap()), {
        (201, "/session/inbox/42/photo one.png")
    });
    assert_eq!(fs::read(server.guest("s/guest/inbox/42/photo one.png")).unwrap(), b"png");
    assert_eq!(server.put("/sessions/s/inbox/42/photo%20one.png", b"png").status, 200, "tried again");

    assert_eq!(server.put("/sessions/s/files/src/a%3F%FF.rs", b"0123456789").status, 201);
    assert_eq!(server.put_new("/sessions/s/files/src/a%3F%FF.rs", b"x").status, 409);
    let listed = server.get("/sessions/s/list?depth=9").json();
    let href = listed["entries"][1]["href"].as_str().unwrap().to_owned();
    assert_eq!(href, "/sessions/s/files/src/a%3F%FF.rs", "a name of any bytes is an address");
    assert_eq!(server.get(&href).body, b"0123456789");
    server.get(&href).must_be_a_download();
    server.get_range(&href, "bytes=2-4").must_be_a_download();
    for (range, status, bytes) in [
        ("bytes=2-4", 206, &b"234"[..]),
        ("bytes=8-", 206, b"89"),
        ("bytes=-3", 206, b"789"),
        ("bytes=5-99", 206, b"56789"),
        ("bytes=4-2", 200, b"0123456789"),
        ("lines=1", 200, b"0123456789"),
    ] {
        let answer = server.get_range(&href, range);
        assert_eq!((answer.status, answer.body.as_slice()), (status, bytes), "{range}");
    }
    assert_eq!(server.get_range(&href, "bytes=10-").status, 416);

    assert_eq!(server.put("/sessions/s/files/d/x%20", b"space").status, 201);
    for top in ["d", "./d/", "/session/workspace/d"] {
        let listed = server.get(&format!("/sessions/s/list/{top}")).json();
        assert_eq!(listed["entries"][0]["href"], "/sessions/s/files/d/x%20", "{top}");
    }
    assert_eq!(server.get("/sessions/s/files/d/x%20").body, b"space");
    assert_eq!(server.delete("/sessions/s/files/d?tree=true").json()["complete"], true);

    server.put("/sessions/s/files/one.txt", b"1");
    let renamed = r#"{"from": "/session/workspace/one.txt", "to": "./notes//two.txt"}"#;
    assert_eq!(server.post("/sessions/s/rename", renamed).json()["href"], "/sessions/s/files/notes/two.txt");
    assert_eq!(server.delete("/sessions/s/files/notes/two.txt").status, 200);
    assert_eq!(server.delete("/sessions/s/files/src?tree=true").json()["complete"], true);
    assert_eq!(server.get("/sessions/s/list?depth=9").json()["entries"].as_array().unwrap().len(), 1);

    assert_eq!(server.delete("/sessions/s").json()["complete"], true);
    assert_eq!(server.get("/sessions/s/list").status, 404);
    assert_eq!(server.delete("/sessions/s").status, 200, "what is gone is gone");
}

#[test]
fn a_message_reaches_the_client_that_waits_for_it() {
    let server = Server::start();
    server.post("/sessions?id=s", "");
    assert_eq!(server.get("/sessions/s/outbox").json(), json!({ "messages": [], "complete": true }));
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.get("/sessions/s/outbox?wait=60").json());
        // The guest puts it together where nobody looks, and sends it in one step.
        fs::create_dir(server.guest("s/guest/draft")).unwrap();
        fs::write(server.guest("s/guest/draft/report.txt"), "all is well").unwrap();
        let latin = OsStr::from_bytes(b"caf\xe9.txt");
        fs::write(server.guest("s/guest/draft").join(latin), "au lait").unwrap();
        fs::rename(server.guest("s/guest/draft"), server.guest("s/guest/outbox/42")).unwrap();
        assert_eq!(waits.join().unwrap()["messages"], json!(["42"]));
    });
    let claim = server.post("/sessions/s/outbox/42", "").json();
    assert_eq!((&claim["files"][1]["name"], &claim["complete"]), (&json!("report.txt"), &json!(true)));
    assert_eq!(server.post("/sessions/s/outbox/42", "").status, 404, "it was taken");
    let claimed = format!("/sessions/s/claims/{}", claim["ticket"].as_str().unwrap());
    assert_eq!(server.get("/sessions/s/claims").json()["claims"][0]["ticket"], claim["ticket"]);
    assert_eq!(server.get("/sessions/s/claims").json()["claims"][0]["files"], claim["files"]);
    for (file, href, bytes) in [(0, "caf%E9.txt", &b"au lait"[..]), (1, "report.txt", b"all is well")] {
        let href = format!("{claimed}/{href}");
        assert_eq!(claim["files"][file]["href"], href);
        let answer = server.get(&href);
        assert_eq!((answer.status, answer.body.as_slice()), (200, bytes));
        answer.must_be_a_download();
    }
    assert_eq!(server.get(&format!("{claimed}/other.txt")).status, 404);
    assert_eq!(server.delete(&claimed).json()["complete"], true);
    assert_eq!(server.delete(&claimed).status, 404);
}

#[test]
fn a_claim_outlives_its_client_and_the_server() {
    const BYTES: u64 = 8 << 20;
    let mut server = Server::start();
    server.post("/sessions?id=s", "");
    fs::create_dir(server.guest("s/guest/draft")).unwrap();
    let mut file = fs::File::create(server.guest("s/guest/draft/big")).unwrap();
    io::copy(&mut Pattern::of(BYTES), &mut file).unwrap();
    fs::rename(server.guest("s/guest/draft"), server.guest("s/guest/outbox/42")).unwrap();
    let claim = server.post("/sessions/s/outbox/42", "").json();
    let href = claim["files"][0]["href"].as_str().unwrap();

    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "GET {href} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    drop(stream);
    server.crash_and_restart();

    assert_eq!(server.get("/sessions/s/claims").json()["claims"], json!([claim]));
    assert_eq!(same(&mut server.download(href), Pattern::of(BYTES)), BYTES);
}

#[test]
fn every_failure_is_json_with_a_status_that_fits() {
    let server = Server::start();
    server.post("/sessions?id=s", "");
    server.put("/sessions/s/files/f", b"f");
    std::os::unix::fs::symlink("/etc/passwd", server.guest("s/guest/workspace/link")).unwrap();
    for (answer, status, kind) in [
        (server.get("/nothing"), 404, "Request"),
        (server.post("/sessions/s/files/f", ""), 405, "Request"),
        (server.get("/sessions/s/outbox?wait=soon"), 400, "Request"),
        (server.post("/sessions/s/rename", "{"), 400, "Request"),
        (server.get("/sessions/%FF/list"), 400, "Request"),
        (server.get("/sessions/other/files/f"), 404, "NotFound"),
        (server.get("/sessions/a%3Ab/list"), 400, "InvalidName"),
        (server.get("/sessions/s/files/..%2f..%2f..%2fetc/passwd"), 400, "Escape"),
        (server.get("/sessions/s/files//etc/passwd"), 400, "Escape"),
        (server.get("/sessions/s/files/link"), 409, "Symlink"),
        (server.put("/sessions/s/files/link/x", b""), 409, "Symlink"),
        (server.get("/sessions/s/files/f/x"), 409, "NotDirectory"),
        (server.put("/sessions/s/files/%00", b""), 400, "InvalidPath"),
    ] {
        let error = answer.json();
        let seen = (answer.status, error["error"]["kind"].as_str().unwrap());
        assert_eq!(seen, (status, kind), "{error}");
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_client_that_goes_in_the_middle_leaves_nothing() {
    let server = Server::start();
    server.post("/sessions?id=s", "");
    server.put("/sessions/s/files/kept", b"old");
    for target in ["files/kept", "files/new", "inbox/42/a.bin"] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let head = "HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000";
        write!(stream, "PUT /sessions/s/{target} {head}\r\n\r\n").unwrap();
        stream.write_all(&[7; 100_000]).unwrap();
        wait_until("the beginning of the upload", PATIENCE, || server.drafts() == 1);
        drop(stream);
        wait_until("the end of the upload", PATIENCE, || server.drafts() == 0);
    }
    assert_eq!(server.get("/sessions/s/files/kept").body, b"old");
    assert_eq!(server.get("/sessions/s/files/new").status, 404);
    wait_until("the end of the delivery", PATIENCE, || {
        fs::read_dir(server.guest("s/guest/inbox")).unwrap().next().is_none()
    });
}

#[test]
fn the_signal_ends_those_who_wait_and_lets_the_others_finish() {
    let mut server = Server::start();
    server.post("/sessions?id=s", "");
    let (url, agent) = (server.url("/sessions/s/outbox?wait=60"), server.agent());
    let waits = thread::spawn(move || Answer::of(agent.get(url).call()));
    let mut upload = TcpStream::connect(&server.address).unwrap();
    write!(
        upload,
        "PUT /sessions/s/files/late HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 6\r\n\r\nabc"
    )
    .unwrap();
    wait_until("the upload", PATIENCE, || server.drafts() == 1);
    let start = Instant::now();
    server.terminate();
    assert_eq!(waits.join().unwrap().json()["messages"], json!([]));
    assert!(start.elapsed() < Duration::from_secs(50), "not the client's 60 s");
    upload.write_all(b"def").unwrap();
    let mut answer = String::new();
    upload.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(server.wait().success());
    assert_eq!(fs::read(server.guest("s/guest/workspace/late")).unwrap(), b"abcdef");
}

#[test]
fn a_guest_that_swaps_everything_reaches_nothing_outside() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 60;
    let server = Server::start();
    server.post("/sessions?id=s", "");
    let guest = Guest::new(server.place(), server.guest("s/guest"));
    let stop = AtomicBool::new(false);
    let (good, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let leaked = thread::scope(|scope| {
        let stops = Stops(&stop);
        let swaps = scope.spawn(|| guest.swap_until(&stop));
        let naive = scope.spawn(|| guest.naive_reads_until(&stop));
        let waits = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                server.get("/sessions/s/outbox?wait=1").must_be_well_formed(0);
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (server, good, refused) = (&server, &good, &refused);
                scope.spawn(move || {
                    for answer in (0..ROUNDS).flat_map(|round| play(server, client, round)) {
                        let count = if answer.status < 400 { good } else { refused };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let played: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        wait_until("the control's leak", PATIENCE, || guest.has_leaked());
        drop(stops);
        swaps.join().unwrap();
        waits.join().unwrap();
        let leaked = naive.join().unwrap();
        played.into_iter().for_each(|played| played.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        leaked
    });
    let (good, refused) = (good.into_inner(), refused.into_inner());
    println!(
        "{good} calls did their work, {refused} were refused; a host that reads by path leaked {leaked} times"
    );
    assert!(leaked > 0 && good > 0 && refused > 0);
    assert!(guest.outside_is_untouched());
    assert_eq!(server.delete("/sessions/s").json()["complete"], true);
    assert!(guest.outside_is_untouched());
}

/// One client's calls. Each may be refused, and none may show anything from outside.
fn play(server: &Server, client: usize, round: usize) -> Vec<Answer> {
    let own = format!("{client}-{round}");
    let rename = format!(r#"{{"from": "d/{own}", "to": "d/moved-{own}"}}"#);
    let mut answers = vec![
        server.get("/sessions/s/files/f"),
        server.put("/sessions/s/files/f", b"inside"),
        server.get("/sessions/s/files/d/x"),
        server.get("/sessions/s/files/d/secret"),
        server.put(&format!("/sessions/s/files/d/{own}"), b"inside"),
        server.put("/sessions/s/files/d/secret", b"inside"),
        server.post("/sessions/s/rename", &rename),
        server.delete(&format!("/sessions/s/files/d/moved-{own}")),
        server.delete("/sessions/s/files/d/secret"),
        server.delete("/sessions/s/files/d?tree=true"),
        server.get("/sessions/s/list?depth=5"),
        server.put(&format!("/sessions/s/inbox/{own}/secret"), b"inside"),
        server.get("/sessions/s/outbox?wait=0"),
        server.post("/sessions/s/outbox/42", ""),
        server.post(&format!("/sessions?id={own}"), ""),
        server.delete(&format!("/sessions/{own}")),
    ];
    // The oldest claim, so that the clients work on the same one.
    let claims = server.get("/sessions/s/claims");
    let parsed: Value = serde_json::from_slice(&claims.body).unwrap();
    let claimed = format!("/sessions/s/claims/{}", parsed["claims"][0]["ticket"].as_str().unwrap_or("none"));
    answers.extend([claims, server.get(&format!("{claimed}/secret")), server.delete(&claimed)]);
    for (index, answer) in answers.iter().enumerate() {
        answer.must_be_well_formed(index);
        let text = String::from_utf8_lossy(&answer.body);
        assert!(!text.contains(guest::SECRET), "call {index} of {own} has leaked: {text}");
    }
    answers
}

#[test]
fn a_thousand_sessions_are_made_used_and_deleted() {
    const SESSIONS: usize = 1000;
    const CLIENTS: usize = 8;
    let server = Server::start();
    let made: Vec<String> = thread::scope(|scope| {
        let make = |_| {
            let id = server.post("/sessions", "").json()["id"].as_str().unwrap().to_owned();
            let text = id.as_bytes();
            assert_eq!(server.put(&format!("/sessions/{id}/files/a/b.txt"), text).status, 201);
            assert_eq!(server.put(&format!("/sessions/{id}/inbox/1/c.txt"), text).status, 201);
            id
        };
        let clients =
            [(); CLIENTS].map(|()| scope.spawn(move || (0..SESSIONS / CLIENTS).map(make).collect()));
        clients.into_iter().flat_map(|client| -> Vec<String> { client.join().unwrap() }).collect()
    });
    assert_eq!(server.get("/sessions").json()["sessions"].as_array().unwrap().len(), SESSIONS);
    thread::scope(|scope| {
        for ids in made.chunks(SESSIONS / CLIENTS) {
            let server = &server;
            scope.spawn(move || {
                for id in ids {
                    assert_eq!(server.get(&format!("/sessions/{id}/files/a/b.txt")).body, id.as_bytes());
                    assert_eq!(server.delete(&format!("/sessions/{id}")).json()["complete"], true);
                }
            });
        }
    });
    assert_eq!(server.get("/sessions").json()["sessions"], json!([]));
    let left: Vec<_> =
        fs::read_dir(server.guest("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == ".clock"), "{left:?}");
}

#[test]
fn a_transfer_of_any_size_takes_little_memory() {
    const MEMORY: u64 = 16 << 20;
    let bytes: u64 = if env::FULL.is_set() { 1 << 30 } else { 64 << 20 };
    let server = Server::start();
    server.post("/sessions?id=s", "");
    let idle = server.peak_memory();
    for place in ["files/big", "inbox/42/big"] {
        let answer = server.put_from(&format!("/sessions/s/{place}"), Pattern::of(bytes));
        assert_eq!((answer.status, answer.json()["bytes"].as_u64()), (201, Some(bytes)));
    }
    // What came to the inbox goes back through the outbox.
    fs::rename(server.guest("s/guest/inbox/42"), server.guest("s/guest/outbox/42")).unwrap();
    let claim = server.post("/sessions/s/outbox/42", "").json();
    let claimed = format!("/sessions/s/claims/{}/big", claim["ticket"].as_str().unwrap());
    for place in ["/sessions/s/files/big", &claimed] {
        assert_eq!(same(&mut server.download(place), Pattern::of(bytes)), bytes, "{place}");
    }
    let more = server.peak_memory() - idle;
    println!(
        "{} MiB each way: {} KiB more than the {} KiB of an idle server",
        bytes >> 20,
        more >> 10,
        idle >> 10
    );
    assert!(more <= MEMORY, "{more} bytes more than idle");
}

/// Bytes that repeat after a length which no buffer has.
struct Pattern {
    block: Vec<u8>,
    at: u64,
    end: u64,
}

impl Pattern {
    fn of(end: u64) -> Self {
        Self { block: (0..65_521_u32).map(|at| (at ^ (at >> 8)) as u8).collect(), at: 0, end }
    }
}

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap();
        let start = usize::try_from(self.at % self.block.len() as u64).unwrap();
        let length = buffer.len().min(left).min(self.block.len() - start);
        buffer[..length].copy_from_slice(&self.block[start..][..length]);
        self.at += length as u64;
        Ok(length)
    }
}

/// How many bytes the two have in common before the first difference, or in all.
fn same(one: &mut impl Read, mut other: impl Read) -> u64 {
    let (mut got, mut meant) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut same = 0;
    loop {
        let length = one.read(&mut got).unwrap();
        other.read_exact(&mut meant[..length]).unwrap();
        if length == 0 || got[..length] != meant[..length] {
            return same;
        }
        same += length as u64;
    }
}

#[test]
fn the_commands_of_the_readme_work_word_for_word() {
    if Command::new("curl").arg("--version").output().is_err() {
        return beneath_kit::skip("there is no curl");
    }
    let server = Server::start();
    let readme = include_str!("../../README.md");
    let script = |text: &'static str| text.split("```").next().unwrap();
    let scripts: Vec<&str> = readme.split("```sh\n").skip(1).map(script).collect();
    let (start, rest) = scripts.split_first().unwrap();
    assert!(start.contains("cargo run -p agent_host"));
    let rest = rest.concat();
    assert!(rest.contains("http://127.0.0.1:7878"));
    let rest = rest
        .replace("http://127.0.0.1:7878", &server.url(""))
        .replace("/tmp/agents", &server.guest("").display().to_string());
    let place = tempfile::tempdir().unwrap();
    let output =
        Command::new("bash").args(["-euo", "pipefail", "-c", &rest]).current_dir(&place).output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !said.contains("\"error\""), "{rest}\n{said}\n{complained}");
    assert!(said.contains("all is well"), "{said}");
}
