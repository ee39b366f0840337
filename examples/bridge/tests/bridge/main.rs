//! The real host, the real server in a sandbox, `curl`, and a guest that works against both.
//!
//! Needs `bwrap` and `curl`, and prints why it skips where one of them is missing or does not work. All traffic is on the loopback
//! address.

#![allow(missing_docs, reason = "a test binary has no interface")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed test says where"
)]

mod sandbox;

use std::fs;
use std::thread;

use beneath_kit::child::wait_until;
use serde_json::json;

use sandbox::{PATIENCE, World};

/// Something that takes long enough to be interrupted, whatever the machine.
const LONG: &str = r#"{"ms": 100000, "stubborn": true}"#;

#[test]
fn an_honest_guest_is_answered() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&[]);
    world.guest(&[]);
    let created = world.post("/issues", r#"{"title": "a crack in the hull"}"#);
    assert_eq!((created.status, created.outcome.as_str()), (201, "done"));
    assert_eq!(created.json(), json!({ "issue": 1 }));
    assert_eq!(world.post("/issues/1/comments", r#"{"text": "still there"}"#).status, 201);
    let shown = world.curl("/issues/%31?verbose=1", &[]);
    assert_eq!(shown.json(), json!({ "title": "a crack in the hull", "comments": ["still there"] }));
    assert_eq!(world.curl("/issues/2", &[]).status, 404, "the handler's own answer");
    assert_eq!((world.waiting("requests"), world.waiting("responses")), (0, 0));
    assert_eq!(world.journal(), ["Create ", "Comment 1", "Show 1", "Show 2"]);
}

#[test]
fn what_no_route_allows_reaches_no_handler() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&[]);
    world.guest(&[]);
    for (method, path) in [
        ("GET", "/admin"),
        ("DELETE", "/issues/1"),
        ("HEAD", "/issues"),
        ("GET", "/issues/"),
        ("GET", "//issues"),
        ("GET", "/issues/1/../../admin"),
        ("GET", "/issues/.."),
        ("GET", "/issues/%2e%2e"),
        ("GET", "/issues/.%2E"),
        ("GET", "/issues/%252e%252e"),
        ("GET", "/issues/..%2fadmin"),
        ("GET", "/issues/..%5cadmin"),
        ("GET", "/issues/%00"),
        ("GET", "/issues/%ff"),
        ("GET", "/issues/%c0%ae"),
        ("GET", "/issues/1/files/%2e%2e"),
        ("GET", "/issues/%"),
    ] {
        let how: &[&str] = if method == "HEAD" { &["--head"] } else { &["-X", method] };
        let answer = world.curl(path, how);
        assert_eq!((answer.status, answer.outcome.as_str()), (403, "not-started"), "{method} {path}");
    }
    assert!(world.journal().is_empty(), "{:?}", world.journal());
    // The control: the same way, to a route that is allowed.
    assert_eq!(world.curl("/issues", &[]).status, 200);
    assert_eq!(world.journal(), ["List "]);
}

#[test]
fn a_captured_segment_is_still_the_guests_text() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&["--file-bytes", "1000"]);
    world.guest(&["--file-bytes", "1000"]);
    for name in ["...", "con", "a%3Fb", "%E2%80%AEgpj.exe", ".ssh"] {
        let answer = world.curl(&format!("/issues/1/files/{name}"), &["-X", "PUT", "-d", "x"]);
        assert_eq!(answer.status, 400, "{name}");
    }
    assert_eq!(world.curl("/issues/1/files/a%20b", &["-X", "PUT", "-d", "x"]).status, 201);
    assert_eq!(fs::read(world.path("data/files/0/a b")).unwrap(), b"x");
}

#[test]
fn only_the_token_opens_the_server() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&[]);
    world.guest(&[]);
    let other = format!("authorization: Bearer {}", "0".repeat(64));
    for token in
        [None, Some("authorization: Bearer "), Some("authorization: Basic eDp5"), Some(other.as_str())]
    {
        let answer = world.curl_as(token, "/issues", &[]);
        assert_eq!((answer.status, answer.outcome.as_str()), (401, "not-started"), "{token:?}");
    }
    assert!(world.journal().is_empty());
    assert_eq!(world.curl("/issues", &[]).status, 200);
}

#[test]
fn headers_that_are_not_allowed_stay_outside() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&[]);
    world.guest(&[]);
    let forged = [
        "-H",
        "X-Forwarded-For: 10.0.0.1",
        "-H",
        "Cookie: a=b",
        "-H",
        "If-Match: \"1\"",
        "-H",
        "Accept: */*",
    ];
    let answer = world.curl("/headers", &forged);
    let mut seen = answer.json().as_array().unwrap().clone();
    seen.sort_by_key(ToString::to_string);
    assert_eq!(seen, [json!(["accept", "*/*"]), json!(["if-match", "\"1\""])]);
}

/// A process in the guest needs no server to ask.
#[test]
fn a_request_that_the_guest_forges_is_judged_all_the_same() {
    let Some(world) = World::new() else { return };
    let host = world.host(&[]);
    world.in_guest(
        r#"
        put() { cat >"draft" && mv draft "requests/$1.json"; }
        put denied <<'END'
{"v":1,"id":"denied","method":"GET","path":"/issues/../admin"}
END
        put forged <<'END'
{"v":1,"id":"forged","method":"GET","path":"/headers","headers":[["authorization","x"],["accept","y"]]}
END
        put other <<'END'
{"v":1,"id":"forged","method":"GET","path":"/issues"}
END
        mkfifo requests/fifo.json
        ln -s /etc/passwd requests/link.json
        mkdir requests/directory.json
        "#,
    );
    let response = |id: &str| {
        let path = world.queue().join(format!("responses/{id}.json"));
        wait_until("there is an answer", PATIENCE, || path.exists());
        serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(response("denied")["status"], 403);
    assert_eq!(response("forged")["body"], json!([["accept", "y"]]).to_string());
    assert_eq!(response("other")["status"], 400, "its id is not that of its file");
    wait_until("links and FIFOs are removed", PATIENCE, || world.waiting("requests") == 1);
    assert_eq!(world.journal(), ["Headers "]);
    world.check_outside();
    host.terminate();
    let (_, said) = host.end();
    let lines = said.lines().filter(|line| line.starts_with("bridge_host: directory.json: ")).count();
    assert_eq!(lines, 1, "what stays is said once: {said}");
}

#[test]
fn the_server_has_limits_of_its_own() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&["--file-bytes", "1000000"]);
    world.guest(&["--depth", "1"]);
    let binary = ["-X", "PUT", "-H", "content-type: application/octet-stream", "-d", "x"];
    assert_eq!(world.curl("/issues/1/files/a", &binary).status, 415);
    fs::write(world.path("large"), vec![b' '; 300_000]).unwrap();
    let large = format!("@{}", world.path("large").display());
    assert_eq!(world.post("/issues", &large).status, 413);
    thread::scope(|scope| {
        let slow = scope.spawn(|| world.post("/issues/1/build", r#"{"ms": 3000}"#));
        world.wait_for_journal(1);
        let full = world.curl("/issues", &[]);
        assert_eq!((full.status, full.outcome.as_str()), (503, "not-started"));
        assert_eq!(slow.join().unwrap().status, 200);
    });
    assert_eq!(world.curl("/issues", &[]).status, 200, "there is room again");
}

#[test]
fn a_body_of_any_bytes_goes_both_ways_in_a_file_of_its_own() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&["--file-bytes", "4000000"]);
    world.guest(&["--file-bytes", "4000000"]);
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(|number| number.to_le_bytes()).take(3_000_000).collect();
    fs::write(world.path("body"), &bytes).unwrap();
    let body = format!("@{}", world.path("body").display());
    let put = ["-X", "PUT", "-H", "content-type: application/octet-stream", "--data-binary", &body];
    let saved = world.curl("/issues/1/files/body.bin", &put);
    assert_eq!((saved.status, saved.json()), (201, json!({ "bytes": bytes.len() })));
    let loaded = world.curl("/issues/1/files/body.bin", &[]);
    assert_eq!(loaded.status, 200);
    assert!(loaded.body == bytes, "{} bytes", loaded.body.len());
    assert_eq!((world.waiting("requests"), world.waiting("responses")), (0, 0));
}

#[test]
fn a_handler_that_exceeds_its_deadline_is_a_504() {
    let Some(mut world) = World::new() else { return };
    let _host = world.host(&["--deadline", "300", "--grace", "300"]);
    world.guest(&[]);
    let stubborn = world.post("/issues/1/build", LONG);
    assert_eq!((stubborn.status, stubborn.outcome.as_str()), (504, "indeterminate"));
    let polite = world.post("/issues/1/build", r#"{"ms": 100000}"#);
    assert_eq!(
        (polite.status, polite.outcome.as_str()),
        (500, "done"),
        "one that stops gives its own answer"
    );
    assert_eq!(polite.json()["aborted"], true);
    assert_eq!(world.post("/issues/1/build", r#"{"ms": 1}"#).status, 200, "a fast one has no part in it");
    assert_eq!(world.journal(), ["Build 1"; 3]);
}

#[test]
fn what_was_begun_when_the_host_was_killed_is_open_and_is_not_done_again() {
    let Some(mut world) = World::new() else { return };
    let host = world.host(&["--handlers", "1"]);
    world.guest(&[]);
    thread::scope(|scope| {
        let begun = scope.spawn(|| world.post("/issues/1/build", LONG));
        world.wait_for_journal(1);
        let waits = scope.spawn(|| world.post("/issues", r#"{"title": "second"}"#));
        wait_until("the second is taken", PATIENCE, || {
            let claimed = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".claimed");
            let mut entries = fs::read_dir(world.path("sessions/s/host/queue")).unwrap();
            entries.any(|entry| claimed(&entry.unwrap().file_name()))
        });
        host.kill();
        let _host = world.host(&[]);
        let begun = begun.join().unwrap();
        assert_eq!((begun.status, begun.outcome.as_str()), (504, "indeterminate"));
        let waits = waits.join().unwrap();
        assert_eq!(
            (waits.status, waits.outcome.as_str()),
            (201, "done"),
            "it was not begun, so it is done now"
        );
    });
    assert_eq!(world.journal(), ["Build 1", "Create "], "each was begun once");
}

#[test]
fn a_host_that_stops_finishes_what_waits_if_there_is_time() {
    let Some(mut world) = World::new() else { return };
    let host = world.host(&["--handlers", "1", "--drain", "30000"]);
    world.guest(&[]);
    thread::scope(|scope| {
        let first = scope.spawn(|| world.post("/issues/1/build", r#"{"ms": 1500}"#));
        world.wait_for_journal(1);
        let second = scope.spawn(|| world.post("/issues", r#"{"title": "x"}"#));
        wait_until("the second is asked", PATIENCE, || {
            fs::read_dir(world.path("sessions/s/host/queue")).unwrap().count() > 1
        });
        host.terminate();
        assert_eq!(first.join().unwrap().status, 200);
        assert_eq!(second.join().unwrap().status, 201);
    });
    let (status, said) = host.end();
    assert!(status.success(), "{said}");
    assert_eq!(world.journal(), ["Build 1", "Create "]);
}

#[test]
fn a_host_that_stops_refuses_what_it_has_not_begun_and_reports_what_it_has() {
    let Some(mut world) = World::new() else { return };
    let host = world.host(&["--handlers", "1", "--drain", "300", "--grace", "300"]);
    world.guest(&[]);
    thread::scope(|scope| {
        let first = scope.spawn(|| world.post("/issues/1/build", LONG));
        world.wait_for_journal(1);
        let second = scope.spawn(|| world.post("/issues", r#"{"title": "x"}"#));
        wait_until("the second is taken", PATIENCE, || {
            fs::read_dir(world.path("sessions/s/host/queue")).unwrap().count() > 1
        });
        host.terminate();
        let first = first.join().unwrap();
        assert_eq!((first.status, first.outcome.as_str()), (504, "indeterminate"));
        let second = second.join().unwrap();
        assert_eq!((second.status, second.outcome.as_str()), (503, "not-started"));
    });
    let (status, said) = host.end();
    assert!(status.success(), "{said}");
    assert_eq!(world.journal(), ["Build 1"], "what is refused was not begun");
}

#[test]
fn an_answer_does_not_follow_a_link_that_the_guest_plants() {
    let Some(mut world) = World::new() else { return };
    let host = world.host(&[]);
    world.guest(&[]);
    let outside = world.path("outside");
    thread::scope(|scope| {
        let asked = scope.spawn(|| world.post("/issues/1/build", r#"{"ms": 500}"#));
        world.wait_for_journal(1);
        world.plant_link("responses", &outside);
        let saved = || {
            fs::read_dir(world.path("sessions/s/host/queue"))
                .unwrap()
                .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(".answer"))
        };
        wait_until("the answer is saved", PATIENCE, saved);
        world.check_outside();
        // The control: whoever writes by path writes there.
        fs::write(world.queue().join("responses/naive.json"), "{}").unwrap();
        fs::remove_file(outside.join("naive.json")).unwrap();
        // The guest has cut itself off.
        let cut = asked.join().unwrap();
        assert_eq!((cut.status, cut.outcome.as_str()), (502, "indeterminate"));
    });
    // Once there is a directory again, the answer is in it, and it is the handler's.
    world.in_guest("rm responses && mkdir -p responses");
    wait_until("the answer is published", PATIENCE, || world.waiting("responses") == 1);
    let published = fs::read_dir(world.queue().join("responses")).unwrap().next().unwrap().unwrap();
    assert!(fs::read_to_string(published.path()).unwrap().contains("built"));
    // The same with the requests: what is where they lead to is no request.
    world.plant_link("requests", &outside);
    wait_until("the host has seen it", PATIENCE, || host.has_said("requests: "));
    world.check_outside();
    world.in_guest("rm requests && mkdir -p requests");
    assert_eq!(world.curl("/issues", &[]).status, 200);
    host.terminate();
    let (status, said) = host.end();
    assert!(status.success() && said.contains("symbolic link"), "{said}");
    assert_eq!(world.journal(), ["Build 1", "List "]);
}

#[test]
fn a_request_that_nobody_answers_is_taken_back() {
    let Some(mut world) = World::new() else { return };
    world.host(&[]).kill();
    world.guest(&["--wait", "300", "--depth", "1"]);
    let answer = world.curl("/issues", &[]);
    assert_eq!((answer.status, answer.outcome.as_str()), (504, "not-started"), "no host has taken it");
    assert_eq!(world.waiting("requests"), 0);
    let _host = world.host(&[]);
    let answer = world.post("/issues/1/build", LONG);
    assert_eq!((answer.status, answer.outcome.as_str()), (504, "indeterminate"), "a host has begun it");
    assert_eq!(world.curl("/issues", &[]).status, 200, "its place is free again");
    assert_eq!(world.journal(), ["Build 1", "List "]);
}

#[test]
fn a_client_that_goes_frees_its_place() {
    let Some(mut world) = World::new() else { return };
    world.host(&[]).kill();
    world.guest(&["--depth", "1"]);
    let client = world.curl_that_goes("/issues", &[]);
    wait_until("it is asked", PATIENCE, || world.waiting("requests") == 1);
    client.kill();
    wait_until("it is taken back", PATIENCE, || world.waiting("requests") == 0);
    let _host = world.host(&[]);
    wait_until("there is room again", PATIENCE, || world.curl("/issues", &[]).status == 200);
    assert_eq!(world.journal(), ["List "]);
}
