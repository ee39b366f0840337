//! The handlers: a small tracker of issues, in memory.
//!
//! A handler sees only what the policy has let through. What it captured from the path is still text that a guest chose: here a file
//! name must be a [`SafeName`] before it names a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use beneath::queue::policy::{Route, Routes};
use beneath::queue::{Body, Headers, Response};
use beneath::{ErrorKind, Root, SafeName, ambient_authority};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The largest file of an issue.
const FILE_BYTES: u64 = 64 << 20;

/// What there is to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    List,
    Create,
    Show,
    Comment,
    SaveFile,
    LoadFile,
    Build,
    Headers,
}

const TABLE: [(Endpoint, &str, &str); 8] = [
    (Endpoint::List, "GET", "/issues"),
    (Endpoint::Create, "POST", "/issues"),
    (Endpoint::Show, "GET", "/issues/{}"),
    (Endpoint::Comment, "POST", "/issues/{}/comments"),
    (Endpoint::SaveFile, "PUT", "/issues/{}/files/{}"),
    (Endpoint::LoadFile, "GET", "/issues/{}/files/{}"),
    (Endpoint::Build, "POST", "/issues/{}/build"),
    (Endpoint::Headers, "GET", "/headers"),
];

/// A request that the policy has let through.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) endpoint: Endpoint,
    pub(crate) captures: Vec<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

/// The service's data. It has nothing to do with a session, and no guest reaches it.
#[derive(Debug)]
pub struct Issues {
    files: Root,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    issues: Vec<(String, Vec<String>)>,
    /// One line for each handler that has begun.
    journal: File,
}

impl Issues {
    /// Keeps files and a journal in `directory`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let journal = OpenOptions::new().append(true).create(true).open(directory.join("journal"))?;
        let root = Root::open_ambient(directory, ambient_authority())?;
        root.ensure_dir("files")?;
        let state = Mutex::new(State { issues: Vec::new(), journal });
        Ok(Self { files: root.descend("files")?, state })
    }

    /// What a guest may ask for.
    pub(crate) fn routes() -> beneath::Result<Routes> {
        TABLE.iter().map(|(_, method, pattern)| Route::new(method, pattern)).collect()
    }

    /// What the route at that place asks for.
    pub(crate) fn endpoint(route: usize) -> Option<Endpoint> {
        TABLE.get(route).map(|(endpoint, ..)| *endpoint)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a request. `abort` turns true when its time is over, and whoever still answers then is heard for a short time.
    ///
    /// What blocks here is short: memory, and a line of a journal. Files are read and written by a thread that may block.
    pub(crate) async fn handle(&self, call: Call, abort: watch::Receiver<bool>) -> Response {
        let Call { endpoint, captures, headers, body } = call;
        if let Err(error) =
            writeln!(self.state().journal, "{endpoint:?} {}", captures.join(" ").escape_debug())
        {
            return failure(500, &error.to_string());
        }
        let captures: Vec<&str> = captures.iter().map(String::as_str).collect();
        match (endpoint, captures.as_slice()) {
            (Endpoint::List, _) => self.list(),
            (Endpoint::Create, _) => self.create(body),
            (Endpoint::Show, [issue]) => self.show(issue),
            (Endpoint::Comment, [issue]) => self.comment(issue, body),
            (Endpoint::SaveFile, [issue, name]) => self.save_file(issue, name, body).await,
            (Endpoint::LoadFile, [issue, name]) => self.load_file(issue, name).await,
            (Endpoint::Build, [_]) => build(body, abort).await,
            (Endpoint::Headers, _) => answer(200, &json!(headers)),
            // A route has as many captures as its pattern has braces.
            _ => failure(500, "the routes and the handlers differ"),
        }
    }

    fn list(&self) -> Response {
        let titles: Vec<Value> = self.state().issues.iter().map(|(title, _)| json!(title)).collect();
        answer(200, &json!({ "issues": titles }))
    }

    fn create(&self, body: Body) -> Response {
        let Some(title) = text(body, "title") else { return failure(400, "there is no title") };
        let mut state = self.state();
        state.issues.push((title, Vec::new()));
        answer(201, &json!({ "issue": state.issues.len() }))
    }

    fn show(&self, issue: &str) -> Response {
        match place(issue).and_then(|place| self.state().issues.get(place).cloned()) {
            Some((title, comments)) => answer(200, &json!({ "title": title, "comments": comments })),
            None => failure(404, "there is no such issue"),
        }
    }

    fn comment(&self, issue: &str, body: Body) -> Response {
        let Some(comment) = text(body, "text") else { return failure(400, "there is no text") };
        let mut state = self.state();
        match place(issue).and_then(|place| state.issues.get_mut(place)) {
            Some((_, comments)) => {
                comments.push(comment);
                answer(201, &json!({ "comments": comments.len() }))
            }
            None => failure(404, "there is no such issue"),
        }
    }

    async fn save_file(&self, issue: &str, name: &str, body: Body) -> Response {
        let (Some(place), Ok(name)) = (place(issue), SafeName::new(name)) else {
            return failure(400, "the issue is no number, or the name is none for a file");
        };
        let files = match self.files.try_clone() {
            Ok(files) => files,
            Err(error) => return failed(&error),
        };
        let save = move || {
            let dir = place.to_string();
            files.ensure_dir(&dir)?;
            let bytes = body.into_bytes(FILE_BYTES)?;
            files.write_exclusive(format!("{dir}/{name}"), &bytes)?;
            Ok(bytes.len())
        };
        match crate::blocking(save).await {
            Ok(Ok(bytes)) => answer(201, &json!({ "bytes": bytes })),
            Ok(Err(error)) => failed(&error),
            Err(error) => failure(500, &error.to_string()),
        }
    }

    async fn load_file(&self, issue: &str, name: &str) -> Response {
        let (Some(place), Ok(name)) = (place(issue), SafeName::new(name)) else {
            return failure(400, "the issue is no number, or the name is none for a file");
        };
        let files = match self.files.try_clone() {
            Ok(files) => files,
            Err(error) => return failed(&error),
        };
        match crate::blocking(move || files.read_contained(format!("{place}/{name}"), FILE_BYTES)).await {
            Ok(Ok(bytes)) => Response::new(200)
                .with_headers(content_type("application/octet-stream"))
                .with_body(Body::Bytes(bytes)),
            Ok(Err(error)) => failed(&error),
            Err(error) => failure(500, &error.to_string()),
        }
    }
}

/// Something that takes its time, and ends early if it is asked to, unless it is `stubborn`.
async fn build(body: Body, mut abort: watch::Receiver<bool>) -> Response {
    let wanted = value(body);
    let took = Duration::from_millis(wanted.get("ms").and_then(Value::as_u64).unwrap_or(0));
    let stubborn = wanted.get("stubborn").and_then(Value::as_bool).unwrap_or(false);
    let aborted = async {
        // It fails if nobody can abort this any more.
        if stubborn || abort.wait_for(|abort| *abort).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = tokio::time::sleep(took) => answer(200, &json!({ "built": true })),
        () = aborted => answer(500, &json!({ "built": false, "aborted": true })),
    }
}

/// Issues are counted from 1.
fn place(issue: &str) -> Option<usize> {
    issue.parse::<usize>().ok()?.checked_sub(1)
}

fn value(body: Body) -> Value {
    let bytes = body.into_bytes(1 << 20).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn text(body: Body, key: &str) -> Option<String> {
    value(body).get(key).and_then(Value::as_str).map(str::to_owned)
}

fn content_type(value: &str) -> Headers {
    let mut headers = Headers::new();
    // Only a constant comes here, and it fits.
    let _ = headers.add("content-type", value);
    headers
}

pub(crate) fn answer(status: u16, body: &Value) -> Response {
    Response::new(status).with_headers(content_type("application/json")).with_body(body.to_string())
}

pub(crate) fn failure(status: u16, words: &str) -> Response {
    answer(status, &json!({ "error": words }))
}

fn failed(error: &beneath::Error) -> Response {
    let status = match error.kind() {
        ErrorKind::NotFound => 404,
        ErrorKind::AlreadyExists => 409,
        ErrorKind::TooLarge => 413,
        _ => 500,
    };
    failure(status, &error.to_string())
}
