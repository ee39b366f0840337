//! Making, listing and removing sessions.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use beneath::{Ensured, SessionId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::host::{Host, blocking};
use crate::target::Target;

#[derive(Deserialize)]
pub(super) struct Create {
    /// Any text; without it the session gets an id that nobody can guess.
    id: Option<String>,
}

pub(super) async fn create(
    State(host): State<Host>,
    query: Result<Query<Create>, QueryRejection>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let Query(Create { id }) = query?;
    blocking(move || {
        let id = id.map_or_else(SessionId::generate, |raw| Ok(SessionId::new(raw)))?;
        let status = match host.sessions().create(&id)?.1 {
            Ensured::Created => StatusCode::CREATED,
            Ensured::Existed => StatusCode::OK,
        };
        Ok((status, Json(json!({ "id": id }))))
    })
    .await
}

pub(super) async fn list(State(host): State<Host>) -> Result<Json<Value>, Failure> {
    blocking(move || Ok(Json(json!({ "sessions": host.sessions().list()? })))).await
}

pub(super) async fn remove(State(host): State<Host>, target: Target) -> Result<Json<Value>, Failure> {
    blocking(move || {
        let removed = host.sessions().remove(&target.id)?;
        Ok(Json(json!({ "complete": removed.is_complete() })))
    })
    .await
}
