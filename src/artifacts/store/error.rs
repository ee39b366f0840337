//! The one table from the errors of a store to kinds.

use crate::error::{Error, ErrorKind};

/// The failure of `operation` on `key`.
pub(super) fn store_error(operation: &'static str, key: &str, error: object_store::Error) -> Error {
    use object_store::Error as E;
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

/// The object is not the one that the caller knows.
pub(crate) fn changed(operation: &'static str, key: &str) -> Error {
    Error::new(operation, key, ErrorKind::Busy).with_detail("object changed meanwhile")
}

/// Whether the same call may succeed later.
pub(crate) fn is_transient(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy)
}
