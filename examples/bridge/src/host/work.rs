//! One request, from the policy to its answer.
//!
//! Problem: a handler takes longer than anybody waits, ignores that it should stop, or panics, and the service stops or dies in the
//! middle. A guest that reads that it may ask again then has its work done twice.
//!
//! Defence: 503 is only for what was never started. Once it is, whatever keeps the handler from its answer is a 504, which
//! says that the outcome is open.
//!
//! What remains: a handler that has given up its future may still have a thread that goes on.

use std::sync::Arc;
use std::time::Duration;

use beneath::queue::{Answered, Job, Response, Started, Unanswered};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Service;
use super::said::Said;
use crate::blocking;
use crate::issues::{Call, Issues};

/// How often an answer is tried, and after which pause.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// When the service is to have stopped, once it stops.
pub(super) type Stop = watch::Receiver<Option<Instant>>;

/// Returns at the moment at which the service is to have stopped.
async fn time_is_over(mut stop: Stop) {
    let end = match stop.wait_for(Option::is_some).await {
        Ok(end) => *end,
        // Nobody can stop it any more.
        Err(_) => None,
    };
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

pub(super) async fn work(service: Arc<Service>, job: Job, stop: Stop) {
    let id = job.id().to_string();
    let request = job.request();
    let allowed = match service.routes.check(&request.method, &request.path) {
        Ok(allowed) => allowed,
        Err(denial) => {
            service.said.say(&id, &denial);
            return refuse(&service.said, job, 403, &denial.to_string()).await;
        }
    };
    let headers = service.headers.filter(request.headers.iter());
    // As long as it waits here it is not started, and may be refused.
    let turn = tokio::select! {
        biased;
        turn = service.turns.acquire() => turn,
        () = time_is_over(stop.clone()) => return refuse(&service.said, job, 503, "the service stops").await,
    };
    let (Ok(_turn), Some(endpoint)) = (turn, Issues::endpoint(allowed.route)) else {
        return refuse(&service.said, job, 503, "the service cannot take this").await;
    };
    // Its turn may have come in the same moment as the end.
    let end = *stop.borrow();
    if end.is_some_and(|end| Instant::now() >= end) {
        return refuse(&service.said, job, 503, "the service stops").await;
    }
    let mut started = match blocking(move || job.start()).await {
        Ok(Ok(started)) => started,
        Ok(Err(error)) => return service.said.say(&id, &error),
        Err(error) => return service.said.say(&id, &error),
    };
    let body = std::mem::take(&mut started.request_mut().body);
    let call = Call { endpoint, captures: allowed.captures, headers, body };
    let answer = match handled(&service, call, stop).await {
        Ok(response) => response,
        Err(why) => {
            service.said.say(&id, why);
            return answered(&service.said, started, move |started| started.indeterminate(why)).await;
        }
    };
    let most = service.body_bytes;
    let send = move |started: Started| match answer.body.as_bytes() {
        // Such a body goes into a file of its own, if there may be one, and is refused if not.
        Some(body) if body.len() as u64 > most => started.answer_from(&answer, body),
        _ => started.answer(&answer),
    };
    answered(&service.said, started, send).await;
}

/// Answers a request that an earlier host has started.
pub(super) async fn interrupted(service: Arc<Service>, started: Started) {
    let why = "the service was interrupted after it had begun";
    service.said.say(started.id(), why);
    answered(&service.said, started, move |started| started.indeterminate(why)).await;
}

/// What the handler answers, or why it has not.
async fn handled(service: &Arc<Service>, call: Call, stop: Stop) -> Result<Response, &'static str> {
    let (abort, aborted) = watch::channel(false);
    let issues = Arc::clone(&service.issues);
    // In a task of its own, so that a panic ends nothing else.
    let mut handler = tokio::spawn(async move { issues.handle(call, aborted).await });
    let why = tokio::select! {
        biased;
        response = &mut handler => return response.map_err(|_| "the handler failed"),
        () = sleep(service.limits.deadline) => "the handler exceeded its deadline",
        () = time_is_over(stop) => "the service stopped",
    };
    abort.send_replace(true);
    tokio::select! {
        biased;
        response = &mut handler => response.map_err(|_| "the handler failed"),
        () = sleep(service.limits.grace) => {
            handler.abort();
            Err(why)
        }
    }
}

async fn refuse(said: &Said, job: Job, status: u16, words: &str) {
    let (id, body) = (job.id().to_string(), json!({ "error": words }).to_string());
    match blocking(move || job.refuse(status, body)).await {
        Ok(Ok(answered)) => note(said, &id, answered),
        Ok(Err(error)) => said.say(&id, &error),
        Err(error) => said.say(&id, &error),
    }
}

/// Answers; after some tries it is left to the next recovery, which finds it indeterminate.
async fn answered(
    said: &Said,
    mut started: Started,
    answer: impl Fn(Started) -> Result<Answered, Unanswered> + Send + Sync + 'static,
) {
    let (id, answer) = (started.id().to_string(), Arc::new(answer));
    for _ in 0..TRIES {
        let answer = Arc::clone(&answer);
        match blocking(move || answer(started)).await {
            Ok(Ok(answered)) => return note(said, &id, answered),
            Ok(Err(unanswered)) => {
                said.say(&id, &unanswered.error);
                started = unanswered.started;
            }
            Err(error) => return said.say(&id, &error),
        }
        sleep(PAUSE).await;
    }
    said.say(&id, "its answer could not be saved");
}

/// What a guest does with its own directory is its own loss, but not unreported.
fn note(said: &Said, id: &str, answered: Answered) {
    match answered {
        Answered::Published => {}
        Answered::Saved(error) => said.say(id, &format_args!("answered, and not yet published: {error}")),
        Answered::Already => said.say(id, "there was an answer already"),
        Answered::TooLarge => said.say(id, "its answer was too large"),
        _ => said.say(id, "answered in a way that this program does not know"),
    }
}
