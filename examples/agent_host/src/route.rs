//! Which request does what.

mod files;
mod inbox;
mod outbox;
mod sessions;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post, put};

use crate::failure::Failure;
use crate::host::Host;

/// All routes of the service.
pub fn router(host: Host) -> Router {
    Router::new()
        .route("/sessions", get(sessions::list).post(sessions::create))
        .route("/sessions/{session}", delete(sessions::remove))
        .route("/sessions/{session}/inbox/{message}/{name}", put(inbox::deliver))
        .route("/sessions/{session}/outbox", get(outbox::wait))
        .route("/sessions/{session}/outbox/{message}", post(outbox::claim))
        .route("/sessions/{session}/claims", get(outbox::pending))
        .route("/sessions/{session}/claims/{ticket}", delete(outbox::clear))
        .route("/sessions/{session}/claims/{ticket}/{name}", get(outbox::read))
        .route("/sessions/{session}/list", get(files::list))
        .route("/sessions/{session}/list/{*path}", get(files::list))
        .route("/sessions/{session}/rename", post(files::rename))
        .route("/sessions/{session}/files/{*path}", get(files::read).put(files::write).delete(files::remove))
        .fallback(async || Failure::not_found("route").into_response())
        .method_not_allowed_fallback(async || {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "the route has no such method").into_response()
        })
        .with_state(host)
}
