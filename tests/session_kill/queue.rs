//! A service that answers requests, and is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use beneath::queue::{
    EnvelopeLimits, Job, Outcome, Queue, QueueConfig, Request, RequestId, Response, Started,
};
use beneath::{ResolverChoice, Session};
use beneath_kit::Contender;
use beneath_kit::naive::queue::NaiveQueue;
use beneath_kit::scene::lack::Lack;

use crate::host::*;
use crate::judge::Verdict;
use crate::works::{ONE, Work};

/// What the guest asks: one that is handled, one with its body in a file, one that the host refuses, and one that is no request.
const REQUESTS: [&str; 4] = ["asks", "brings", "denied", "garbled"];
/// As large as a body in a file.
const BODY: usize = 70_000;

fn id(name: &str) -> RequestId {
    name.parse().unwrap()
}

fn guest(dir: &Path) -> PathBuf {
    dir.join("s/guest/queue")
}

fn queue(session: &Session) -> Queue {
    let config = QueueConfig::default().with_request_file_bytes(1 << 20).with_response_file_bytes(1 << 20);
    session.queue(config.with_ledger(2)).unwrap()
}

fn submit(dir: &Path, name: &str) {
    let request = Request::with_id(id(name), "GET", &format!("/{name}"));
    let json = match name {
        "garbled" => b"{".to_vec(),
        "brings" => {
            fs::write(guest(dir).join("requests/brings.body"), vec![7; BODY]).unwrap();
            br#"{"v":1,"id":"brings","method":"PUT","path":"/brings","encoding":"file"}"#.to_vec()
        }
        _ => request.to_json(),
    };
    fs::write(guest(dir).join("requests").join(format!("{name}.json")), json).unwrap();
}

fn prepare(dir: &Path, session: &Session) {
    drop(queue(session));
    fs::create_dir(dir.join(".ran")).unwrap();
    REQUESTS.iter().for_each(|name| submit(dir, name));
}

/// What a handler does: it leaves a mark for each time that it runs.
fn run(dir: &Path, name: &str) {
    let times = names(&dir.join(".ran")).len();
    fs::File::create_new(dir.join(".ran").join(format!("{times}-{name}"))).unwrap();
}

fn serve_job(dir: &Path, job: Job) {
    if job.id().as_str() == "denied" {
        drop(job.refuse(403, "no"));
        return;
    }
    let Ok(mut started) = job.start() else { return };
    run(dir, started.id().as_str());
    let response = Response::new(200);
    let answered = match started.id().as_str() {
        "brings" => {
            let body = std::mem::take(&mut started.request_mut().body).into_bytes(1 << 20).unwrap();
            assert_eq!(body.len(), BODY);
            started.answer_from(&response, body.as_slice())
        }
        _ => started.answer(&response),
    };
    // What cannot be answered is for the next host.
    drop(answered);
}

/// What a host does from its start on: recovers, and then serves what there is.
fn serve(dir: &Path, queue: &Queue) {
    let recovered = queue.recover().unwrap();
    recovered.not_started.into_iter().for_each(|job| serve_job(dir, job));
    let interrupted = |started: Started| drop(started.indeterminate("interrupted").unwrap());
    recovered.indeterminate.into_iter().for_each(interrupted);
    let is_served = || !names(&guest(dir).join("requests")).iter().any(|name| name.ends_with(".json"));
    for _ in 0..5 {
        if is_served() {
            return;
        }
        queue.poll().unwrap().jobs.into_iter().for_each(|job| serve_job(dir, job));
    }
}

fn serve_undisturbed(dir: &Path, session: Session) -> Box<dyn FnOnce()> {
    let (dir, queue) = (dir.to_path_buf(), queue(&session));
    Box::new(move || serve(&dir, &queue))
}

/// The guest fetches what is there.
fn fetch(dir: &Path, told: &mut BTreeMap<String, Vec<(u16, Outcome)>>) -> Verdict {
    for file in names(&guest(dir).join("responses")) {
        let path = guest(dir).join("responses").join(&file);
        let Some(name) = file.strip_suffix(".json") else { continue };
        let json = fs::read(&path).map_err(text)?;
        let response = Response::from_json(&json, &id(name), EnvelopeLimits::default()).map_err(text)?;
        if name == "brings" && response.status == 200 {
            let body = guest(dir).join("responses/brings.body");
            // What is published once more, after it was fetched, has no body any more.
            if told.contains_key(name) && !body.exists() {
                fs::remove_file(path).map_err(text)?;
                continue;
            }
            if fs::read(&body).map_err(text)? != vec![7; BODY] {
                return Err("the body of an answer is not whole".into());
            }
            fs::remove_file(body).map_err(text)?;
        }
        told.entry(name.to_owned()).or_default().push((response.status, response.outcome));
        fs::remove_file(path).map_err(text)?;
    }
    Ok(())
}

/// How an answer gets to the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    AtOnce,
    /// A host that dies before it removes its own publishes the same once more.
    InTwoSteps,
}

/// The next host takes over. Every request has one answer, no handler ran twice, and what the answer says of the handler is true.
fn judge(dir: &Path, session: &Session, host: &Path, moves: Moves) -> Verdict {
    let mut told = BTreeMap::new();
    fetch(dir, &mut told)?;
    serve(dir, &queue(session));
    fetch(dir, &mut told)?;
    let ran = names(&dir.join(".ran"));
    for name in REQUESTS {
        let runs = ran.iter().filter(|mark| mark.ends_with(&format!("-{name}"))).count();
        let mut answers = told.remove(name).unwrap_or_default();
        if moves == Moves::InTwoSteps {
            answers.dedup();
        }
        let is_true = match (name, answers.as_slice()) {
            ("asks" | "brings", [(200, Outcome::Done)]) => runs == 1,
            ("asks" | "brings", [(504, Outcome::Indeterminate)]) => runs <= 1,
            ("denied", [(403, Outcome::NotStarted)]) | ("garbled", [(400, Outcome::NotStarted)]) => runs == 0,
            (_, [(503, Outcome::NotStarted)]) => runs == 0,
            _ => false,
        };
        if !is_true {
            return Err(format!("{name}: {answers:?} after {runs} runs"));
        }
    }
    // An id that was answered is not handled again, whatever the guest does.
    submit(dir, "asks");
    serve(dir, &queue(session));
    fetch(dir, &mut told)?;
    match told.get("asks").map(Vec::as_slice) {
        // The ledger has only the last two.
        Some([(409 | 200, _)]) => {}
        other => return Err(format!("a second request of an id: {other:?}")),
    }
    let left: Vec<String> =
        names(&host.join("queue")).into_iter().filter(|name| name.contains('.')).collect();
    let swept = queue(session).sweep().map_err(text)?;
    if !left.is_empty() || !swept.is_complete() {
        return Err(format!("left {left:?}, {swept:?}"));
    }
    Ok(())
}

/// The states that an earlier host has left: one of each.
fn prepare_interrupted(dir: &Path) {
    let session = session(dir, ResolverChoice::Auto);
    prepare(dir, &session);
    let host = dir.join("s/host/queue");
    for job in queue(&session).poll().unwrap().jobs {
        match job.id().as_str() {
            "asks" => drop(job.start().unwrap()),
            "denied" => {
                drop(job);
                fs::rename(host.join("denied.claimed"), host.join("denied.refused")).unwrap();
            }
            _ => drop(job),
        }
    }
}

const SERVE: Work = Work {
    name: "queue: serve",
    contenders: Contender::RESOLVERS,
    least: 60,
    prepare: |dir| prepare(dir, &session(dir, ResolverChoice::Auto)),
    work: |dir, resolver| serve_undisturbed(dir, session(dir, resolver)),
    judge: |dir, resolver| judge(dir, &session(dir, resolver), &dir.join("s/host"), Moves::AtOnce),
    ..ONE
};
const SERVE_ONE: Work = Work { contenders: ONE.contenders, ..SERVE };

/// What was not synced is not begun, and what was not saved is recovered.
const SYNC_FAILS: Work = Work {
    name: "queue: serve, a sync fails",
    fails: Some(nix::libc::SYS_fsync),
    least: 4,
    work: |dir, _| serve_undisturbed(dir, durable_session(dir)),
    judge: |dir, _| judge(dir, &durable_session(dir), &dir.join("s/host"), Moves::AtOnce),
    ..SERVE_ONE
};

pub(crate) const QUEUE_WORKS: &[Work] = &[
    SERVE,
    SYNC_FAILS,
    Work {
        name: "queue: serve without reserving names",
        lack: Lack::NoReplace,
        judge: |dir, resolver| judge(dir, &session(dir, resolver), &dir.join("s/host"), Moves::InTwoSteps),
        ..SERVE_ONE
    },
    Work { name: "queue: recover", least: 20, prepare: prepare_interrupted, ..SERVE_ONE },
    Work {
        name: "queue: serve by copies",
        is_elsewhere: true,
        prepare: |dir| prepare(dir, &session_in_place(dir, ResolverChoice::Auto)),
        work: |dir, resolver| serve_undisturbed(dir, session_in_place(dir, resolver)),
        judge: |dir, resolver| {
            judge(dir, &session_in_place(dir, resolver), &elsewhere(dir), Moves::InTwoSteps)
        },
        ..SERVE_ONE
    },
    Work {
        name: "queue: drain",
        least: 30,
        work: |dir, resolver| {
            let queue = queue(&session(dir, resolver));
            Box::new(move || assert!(queue.drain(Duration::ZERO, drop).unwrap().is_complete()))
        },
        ..SERVE_ONE
    },
    Work {
        name: "control: queue",
        contenders: &[Contender::Control],
        least: 10,
        work: |dir, _| {
            let dir = dir.to_path_buf();
            Box::new(move || {
                let serve = |name: &str, _: &[u8]| {
                    run(&dir, name);
                    Response::new(200).to_json(&id(name))
                };
                NaiveQueue { dir: guest(&dir) }.serve(serve).unwrap();
            })
        },
        judge: |dir, _| {
            let serve = |name: &str, _: &[u8]| {
                run(dir, name);
                Response::new(200).to_json(&id(name))
            };
            NaiveQueue { dir: guest(dir) }.serve(serve).map_err(text)?;
            let ran = names(&dir.join(".ran"));
            for name in REQUESTS {
                let runs = ran.iter().filter(|mark| mark.ends_with(&format!("-{name}"))).count();
                if runs != 1 {
                    return Err(format!("{name}: {runs} runs"));
                }
            }
            Ok(())
        },
        ..SERVE
    },
];
