//! What a service does with requests, and what must hold afterwards.

use std::time::Instant;

use beneath::queue::{Polled, Queue, QueueConfig, Request, RequestId, Response, Started};
use beneath::session::Watcher;
use beneath::{ErrorKind, ResolverChoice, Result, Session};
use beneath_kit::naive::queue::NaiveQueue;
use beneath_kit::scene::report::Report;

use crate::scenarios::{After, Scenario, Work, control, open, scenario};

const TARGETS: &[&str] =
    &["queue", "queue/requests", "queue/responses", "queue/requests/one.json", "queue/responses/one.json"];
const ASKED: &str = "/what the guest asks";

fn one() -> RequestId {
    "one".parse().unwrap()
}

const fn queue_scenario(name: &'static str, run: fn(&Work, &mut Report) -> Result<bool>) -> Scenario {
    Scenario { prepare: submit, all_strikes: true, judge: handled_once, ..scenario(name, TARGETS, run) }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    queue_scenario("queue: poll, start, answer", |work, report| {
        serve(&work.session.queue(config())?, report)
    }),
    // Armed between the lookup of the directory and the look at it.
    queue_scenario("queue: next, start, answer", |work, report| {
        let queue = work.session.queue(config())?;
        let mut watch = queue.watch(&Watcher::new())?;
        let polled = queue.next(&mut watch, Instant::now())?;
        answer_all(polled, report)
    }),
    queue_scenario("queue: poll, refuse", |work, report| {
        let queue = work.session.queue(config())?;
        for job in queue.poll()?.jobs {
            let answered = job.refuse(403, "no")?;
            report.incomplete |= answered != beneath::queue::Answered::Published;
        }
        Ok(true)
    }),
    queue_scenario("queue: sweep, repair, ready", |work, report| {
        let queue = work.session.queue(config().with_junk_age(std::time::Duration::ZERO))?;
        let swept = queue.sweep()?;
        report.refuse(swept.refused().map(|(_, error)| error));
        queue.repair()?;
        Ok(queue.ready()?.is_none())
    }),
    queue_scenario("queue: drain", |work, _| {
        let drained = work.session.queue(config())?.drain(std::time::Duration::ZERO, drop)?;
        Ok(drained.is_complete())
    }),
    Scenario {
        prepare: submit,
        ..control("control: queue", TARGETS, |work, report| {
            let queue = NaiveQueue { dir: work.naive.dir.join("queue") };
            let served = queue.serve(|_, request| {
                report.read(request);
                Response::new(200).to_json(&one())
            });
            if let Err(error) = served {
                report.errors.push(("Naive".into(), error.to_string()));
            }
            Ok(true)
        })
    },
];

fn config() -> QueueConfig {
    QueueConfig::default().with_request_file_bytes(1 << 20)
}

fn submit(session: &Session) {
    drop(session.queue(config()).unwrap());
    let request = Request::with_id(one(), "GET", ASKED);
    session.guest().write_exclusive("queue/requests/one.json", request.to_json()).unwrap();
}

/// Recovers, polls and answers; what was handled is reported.
fn serve(queue: &Queue, report: &mut Report) -> Result<bool> {
    let recovered = queue.recover()?;
    recovered.indeterminate.into_iter().try_for_each(|started| handle(started, report))?;
    let mut polled = queue.poll()?;
    polled.jobs.extend(recovered.not_started);
    answer_all(polled, report)
}

fn answer_all(polled: Polled, report: &mut Report) -> Result<bool> {
    report.refuse(polled.refused().map(|(_, error)| error));
    let complete = polled.is_complete();
    for job in polled.jobs {
        match job.start() {
            Ok(started) => {
                report.read(started.request().path.as_bytes());
                handle(started, report)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(complete)
}

fn handle(started: Started, report: &mut Report) -> Result<()> {
    let answered = started.answer(&Response::new(200))?;
    report.incomplete |= answered != beneath::queue::Answered::Published;
    Ok(())
}

/// Whatever the guest puts back, the next host handles nothing a second time.
fn handled_once(after: &After) -> Vec<String> {
    after.give_back();
    let mut second = Report::default();
    let next = open(after.base, ResolverChoice::Auto).and_then(|work| work.session.queue(config()));
    // An error is no fault here: what counts is what was handled.
    let _ = next.and_then(|queue| serve(&queue, &mut second));
    let times = after.report.data.iter().chain(&second.data).filter(|data| *data == ASKED).count();
    (times > 1).then(|| format!("it was handled {times} times")).into_iter().collect()
}
