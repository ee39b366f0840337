//! What an error is in HTTP: a status, and a JSON body that says what and why.

use std::fmt::Display;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use beneath::{Error, ErrorKind};
use serde_json::{Value, json};

/// The answer to a request that was refused or failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    error: Value,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Display) -> Self {
        Self { status, error: json!({ "kind": "Request", "message": message.to_string() }) }
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format_args!("there is no such {what}"))
    }

    /// The service itself is broken.
    pub(crate) fn internal(error: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = status(error.kind());
        Self { status, error: serde_json::to_value(&error).unwrap_or_default() }
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.error }))).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What a client can do about it.
fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        // Write it in another way.
        ErrorKind::Escape | ErrorKind::InvalidName | ErrorKind::InvalidPath | ErrorKind::InvalidData => {
            StatusCode::BAD_REQUEST
        }
        ErrorKind::Denied => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        // Something else is there than the call is for.
        ErrorKind::AlreadyExists
        | ErrorKind::NotEmpty
        | ErrorKind::Symlink
        | ErrorKind::NotSymlink
        | ErrorKind::NotRegular
        | ErrorKind::NotDirectory
        | ErrorKind::HardLinked
        | ErrorKind::CrossDevice => StatusCode::CONFLICT,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        // Try again later.
        ErrorKind::Busy | ErrorKind::TooMany | ErrorKind::ReadOnly => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
