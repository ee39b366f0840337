//! Names at the top of a tree that belong to the host.

use crate::name::{GuestPath, SafeName, is_folded};

/// Whether the top name of `path` is reserved, also on a file system that folds case.
pub(crate) fn is_reserved(path: &GuestPath, reserved: &[SafeName]) -> bool {
    let top = path.components().next().and_then(std::ffi::OsStr::to_str);
    top.is_some_and(|top| reserved.iter().any(|name| is_folded(top, name.as_str())))
}
