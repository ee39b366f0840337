//! A guest asks, a host answers, and another guest attacks: `cargo run --example queue --features queue`.
#![allow(missing_docs)]

mod out;

use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use beneath::queue::policy::{HeaderRules, Route, Routes};
use beneath::queue::{
    Answered, Client, ClientConfig, Headers, Job, Outcome, Polled, Queue, QueueConfig, Request, Response,
};
use beneath::session::Watcher;
use beneath::{Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority};
use out::{is_closed_pipe, out};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const SECRET: &str = "the host's own\n";

fn main() -> Done {
    match run() {
        Err(error) if is_closed_pipe(&*error) => Ok(()),
        done => done,
    }
}

fn run() -> Done {
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("secret.json"), SECRET)?;
    let root = Root::open_ambient(dir.path(), ambient_authority())?;
    let sessions = Sessions::new(root, SessionsConfig::default());
    let (session, _) = sessions.create(&SessionId::new("s"))?;
    let shared = dir.path().join("s/guest/queue");
    let queue = session.queue(QueueConfig::default())?;

    honest(&queue, &shared)?;
    interrupted(&session, &queue, &shared)?;
    attacked(&queue, &shared, dir.path())?;

    out("\n== What is left ==")?;
    let secret = fs::read_to_string(dir.path().join("secret.json"))?;
    out(format!("  the host's secret.json: {}", if secret == SECRET { "as it was" } else { "CHANGED" }))?;
    let left = fs::read_dir(dir.path().join("s/host/queue"))?.count();
    out(format!("  requests on the host's side: {left}"))?;
    Ok(())
}

/// Which requests are allowed at all.
fn routes() -> beneath::Result<Routes> {
    Ok(Routes::from_iter([Route::new("GET", "/issues/{}")?, Route::new("POST", "/issues")?]))
}

/// Decides, and handles: what a service does with each request.
fn serve(job: Job, routes: &Routes) -> beneath::Result<String> {
    let request = job.request();
    let asked = format!("{} {}", request.method, request.path);
    let allowed = match routes.check(&request.method, &request.path) {
        Ok(allowed) => allowed,
        Err(denial) => {
            let _ = job.refuse(403, denial.to_string())?;
            return Ok(format!("{asked:<18} 403 {denial}"));
        }
    };
    // From here on a crash leaves the outcome open, and the next host says so.
    let started = job.start()?;
    let headers = HeaderRules::default().filter(started.request().headers.iter());
    let body = format!("{}, {} of {} headers", allowed.path, headers.len(), started.request().headers.len());
    let how = match started.answer(&Response::new(200).with_body(body))? {
        Answered::Published => "200".to_owned(),
        Answered::Saved(error) => format!("200, kept until it can be published: {error}"),
        Answered::Already => "200, but its name is taken, and stays as it is".to_owned(),
        other => format!("200, but {other:?}"),
    };
    Ok(format!("{asked:<18} {how}"))
}

fn honest(queue: &Queue, shared: &Path) -> Done {
    out("== An honest guest, and a host that waits for its requests ==")?;
    let stop = AtomicBool::new(false);
    let (lines, answers) = thread::scope(|scope| -> Done<_> {
        let host = scope.spawn(|| host(queue, &stop).map_err(|error| error.to_string()));
        let answers = ask(shared);
        stop.store(true, Ordering::Relaxed);
        let lines = host.join().map_err(|_| "the host has panicked")??;
        Ok((lines, answers?))
    })?;
    for (line, (status, body, outcome)) in lines.iter().zip(answers) {
        out(format!("  {line}"))?;
        out(format!("      the guest gets {status}, {outcome:?}: {body}"))?;
    }
    Ok(())
}

/// The loop of a host: wait, take, decide, answer.
fn host(queue: &Queue, stop: &AtomicBool) -> beneath::Result<Vec<String>> {
    let (watcher, routes) = (Watcher::new(), routes()?);
    let mut watch = queue.watch(&watcher)?;
    let mut lines = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let polled = queue.next(&mut watch, Instant::now() + Duration::from_millis(100))?;
        for job in polled.jobs {
            lines.push(serve(job, &routes)?);
        }
    }
    Ok(lines)
}

/// What runs in the guest: it sees the directory only.
fn ask(shared: &Path) -> Done<Vec<(u16, String, Outcome)>> {
    let client = Client::new(Root::open_ambient(shared, ambient_authority())?, ClientConfig::default());
    let mut answers = Vec::new();
    for (method, path) in [("GET", "/issues/7"), ("POST", "/issues"), ("GET", "/issues/%2e%2e")] {
        let mut headers = Headers::new();
        headers.add("accept", "text/plain")?;
        headers.add("authorization", "Bearer forged")?;
        let request = Request::new(method, path)?.with_headers(headers).with_body("hello");
        let mut ticket = client.submit(&request)?;
        let response = ticket.wait(Instant::now() + Duration::from_secs(30))?.ok_or("no answer")?;
        let (status, outcome) = (response.status, response.outcome);
        answers.push((
            status,
            String::from_utf8_lossy(&response.body.into_bytes(1024)?).into_owned(),
            outcome,
        ));
    }
    Ok(answers)
}

fn interrupted(session: &Session, queue: &Queue, shared: &Path) -> Done {
    out("\n== The host dies: one request is claimed, the other has been started ==")?;
    for name in ["claimed", "started"] {
        submit(shared, name, "/issues/7")?;
    }
    for job in queue.poll()?.jobs {
        // Dropping is what a crash does.
        if job.id().as_str() == "started" {
            drop(job.start()?);
        }
    }
    let next = session.queue(QueueConfig::default())?;
    let recovered = next.recover()?;
    for job in recovered.not_started {
        out(format!("  not started, handled now:  {}", serve(job, &routes()?)?))?;
    }
    for started in recovered.indeterminate {
        let id = started.id().clone();
        let _ = started.indeterminate("the host was interrupted")?;
        let json = fs::read(shared.join(format!("responses/{id}.json")))?;
        let response = Response::from_json(&json, &id, Default::default())?;
        out(format!("  started, never run again:  {}, {:?}", response.status, response.outcome))?;
    }
    Ok(())
}

fn submit(shared: &Path, name: &str, path: &str) -> Done {
    let json = Request::with_id(name.parse()?, "GET", path).to_json();
    fs::write(shared.join(format!("requests/{name}.json")), json)?;
    Ok(())
}

fn attacked(queue: &Queue, shared: &Path, host: &Path) -> Done {
    out("\n== A guest that attacks ==")?;
    out("   (a name in requests, and what the host found; or what was asked, and the")?;
    out("   status that the host answered)")?;
    let requests = shared.join("requests");
    symlink(host.join("secret.json"), requests.join("link.json"))?;
    fifo(&requests.join("fifo.json"))?;
    fs::create_dir(requests.join("directory.json"))?;
    fs::File::create(requests.join("huge.json"))?.set_len(10 << 30)?;
    fs::write(requests.join("spoof.json"), Request::with_id("other".parse()?, "GET", "/issues/1").to_json())?;
    fs::write(requests.join("bomb.json"), "[".repeat(100_000))?;
    submit(shared, "escape", "/issues/..%2f..")?;
    report(queue.poll()?)?;
    fs::remove_dir(requests.join("directory.json"))?;

    submit(shared, "planted", "/issues/7")?;
    symlink(host.join("secret.json"), shared.join("responses/planted.json"))?;
    report(queue.poll()?)?;

    submit(shared, "elsewhere", "/issues/7")?;
    let job = queue.poll()?.jobs.pop().ok_or("it was submitted")?;
    fs::rename(shared.join("responses"), shared.join("aside"))?;
    symlink(host, shared.join("responses"))?;
    out("  responses is now a link to the host's directory:")?;
    out(format!("  elsewhere.json     {}", serve(job, &routes()?)?))?;
    queue.repair()?;
    out(format!("  after a repair, {} answer is published", queue.poll()?.published))?;

    for number in 0..5000 {
        fs::File::create(requests.join(format!("junk-{number}")))?;
    }
    submit(shared, "behind", "/issues/7")?;
    let (mut polls, mut ignored) = (0, 0);
    loop {
        let polled = queue.poll()?;
        (polls, ignored) = (polls + 1, ignored + polled.ignored);
        if !polled.jobs.is_empty() {
            report(polled)?;
            break;
        }
    }
    out(format!("  was found among 5,000 other names by {polls} polls, which ignored {ignored}"))?;
    Ok(())
}

fn report(polled: Polled) -> Done {
    for (name, error) in polled.refused() {
        let name = name.display().to_string();
        let reason = error.to_string();
        let reason = reason.split_once(": ").map_or(reason.as_str(), |(_, reason)| reason);
        out(format!("  {name:<18} {reason}"))?;
    }
    if polled.answered > 0 {
        out(format!("  {:<18} {} of these got a status and a reason", "", polled.answered))?;
    }
    for job in polled.jobs {
        let name = format!("{}.json", job.id());
        out(format!("  {name:<18} {}", serve(job, &routes()?)?))?;
    }
    Ok(())
}

fn fifo(path: &PathBuf) -> Done {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o666))?;
    Ok(())
}
