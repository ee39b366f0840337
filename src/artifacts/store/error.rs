//! The failures of a store's client, as errors of this crate.

use super::answer::Answer;
use crate::error::{Error, ErrorKind};

/// The failure of `operation` on `key`.
pub(super) fn store_error(operation: &'static str, key: &str, error: object_store::Error) -> Error {
    use object_store::Error as E;
    if let Some(answer) = answer_in(&error) {
        return answer.into_error(operation, key).with_source(std::io::Error::other(error));
    }
    let kind = match &error {
        E::NotFound { .. } => ErrorKind::NotFound,
        E::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        E::Precondition { .. } | E::NotModified { .. } => return changed(operation, key),
        E::InvalidPath { .. } => ErrorKind::InvalidPath,
        E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Unsupported,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Denied,
        _ => ErrorKind::Io,
    };
    Error::new(operation, key, kind).with_source(std::io::Error::other(error))
}

/// The same of a call on a condition, which needs a permission of its own in S3.
pub(super) fn conditional_error(operation: &'static str, key: &str, error: object_store::Error) -> Error {
    match answer_in(&error) {
        Some(answer) => {
            let answer = Answer { on_condition: true, ..answer };
            answer.into_error(operation, key).with_source(std::io::Error::other(error))
        }
        None => store_error(operation, key, error),
    }
}

/// What the store has answered, where the client says no more than that.
fn answer_in(error: &object_store::Error) -> Option<Answer> {
    use object_store::Error as E;
    match error {
        E::Generic { .. } | E::NotFound { .. } | E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            Answer::of_text(&error.to_string())
        }
        _ => None,
    }
}

/// The object is not the one that the caller knows.
pub(crate) fn changed(operation: &'static str, key: &str) -> Error {
    Error::new(operation, key, ErrorKind::Busy).with_detail("object changed meanwhile")
}

/// Whether the same call may succeed later.
pub(crate) fn is_transient(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy)
}
