//! Taking what the guest sends: wait, claim, read, clear.

use std::path::Path;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use beneath::MessageId;
use beneath::session::{Claim, Part};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::host::{Host, blocking};
use crate::stream::download;
use crate::target::Target;

/// The longest wait, so that a client that has gone is noticed.
const LONGEST: u64 = 60;

#[derive(Deserialize)]
pub(super) struct Wait {
    /// Seconds.
    #[serde(default)]
    wait: u64,
}

/// Lists the messages in the outbox, as soon as there are any.
pub(super) async fn wait(
    State(host): State<Host>,
    target: Target,
    query: Result<Query<Wait>, QueryRejection>,
) -> Result<Json<Value>, Failure> {
    let patience = Duration::from_secs(query?.wait.min(LONGEST));
    let session = blocking(move || Ok(target.session()?)).await?;
    let watch = host.watcher().watch(&session, Part::Outbox);
    let outbox = session.outbox();
    let look = move || Ok(outbox.messages()?);
    let found = host.wait_for(watch, patience, look, |found| !found.entries.is_empty()).await?;
    Ok(Json(json!({ "messages": found.entries, "complete": found.is_complete() })))
}

/// Takes a message. It stays claimed, whatever happens to the client, until it is cleared.
pub(super) async fn claim(target: Target) -> Result<Json<Value>, Failure> {
    let raw = target.text()?;
    blocking(move || {
        let id = MessageId::from_component(&raw).unwrap_or_else(|_| MessageId::new(&raw));
        match target.session()?.outbox().claim(&id)? {
            Some(claim) => Ok(Json(described(&target, &claim))),
            None => Err(Failure::not_found("message")),
        }
    })
    .await
}

/// What was claimed and not cleared: after a crash of the service or of its client, too.
pub(super) async fn pending(target: Target) -> Result<Json<Value>, Failure> {
    blocking(move || {
        let pending = target.session()?.outbox().pending()?;
        let claims: Vec<Value> = pending.entries.iter().map(|claim| described(&target, claim)).collect();
        let refused: Vec<Value> = pending
            .refused()
            .map(|(ticket, error)| json!({ "ticket": ticket, "error": error.to_string() }))
            .collect();
        Ok(Json(json!({ "claims": claims, "refused": refused, "complete": pending.is_complete() })))
    })
    .await
}

/// Streams a file of a claimed message.
pub(super) async fn read(target: Target) -> Result<Response, Failure> {
    let (ticket, name) = target.pair()?;
    blocking(move || {
        let mut files = find(&target, &ticket)?.open([&name])?.files;
        let file = files.pop().ok_or_else(|| Failure::not_found("file"))?.content?;
        let length = file.len_hint();
        Ok(download(file, length))
    })
    .await
}

/// Removes a claimed message, because it was dealt with.
pub(super) async fn clear(target: Target) -> Result<Json<Value>, Failure> {
    let ticket = target.text()?;
    blocking(move || {
        let removed = find(&target, &ticket)?.clear();
        Ok(Json(json!({ "complete": removed.is_complete() })))
    })
    .await
}

fn find(target: &Target, ticket: &str) -> Result<Claim, Failure> {
    let mut pending = target.session()?.outbox().pending()?;
    if let Some(at) = pending.entries.iter().position(|claim| claim.ticket().as_str() == ticket) {
        return Ok(pending.entries.swap_remove(at));
    }
    // Not all that are refused have a name here: where there are more, it may be one of them.
    let named = pending.refused().find(|(refused, _)| *refused == Path::new(ticket));
    let more = pending.refused.total > pending.refused().count() as u64;
    match named.or_else(|| pending.refused().next().filter(|_| more)) {
        Some((_, error)) => Err(error.clone().into()),
        None => Err(Failure::not_found("claim")),
    }
}

/// A claim and its files. A listing that fails is part of the answer, since the message is claimed all the same.
fn described(target: &Target, claim: &Claim) -> Value {
    let (id, ticket, none) = (claim.id(), claim.ticket().as_str(), [""; 0]);
    let listing = match claim.undeclared(none) {
        Ok(listing) => listing,
        Err(error) => {
            let error = error.to_string();
            return json!({ "id": id, "ticket": ticket, "files": [], "complete": false, "error": error });
        }
    };
    let files = listing.entries.iter().map(|file| {
        json!({
            "name": file.name.to_string_lossy(),
            "href": target.href("claims", &Path::new(ticket).join(&file.name)),
            "bytes": file.metadata.len(),
            "refusal": file.refusal,
        })
    });
    let files: Vec<Value> = files.collect();
    json!({ "id": id, "ticket": ticket, "files": files, "complete": listing.is_complete() })
}
