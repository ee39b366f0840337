//! Names at the top of a tree that belong to the host.

use crate::name::{SafeName, SafePath, is_folded};

/// Names at the top of the workspace that never come in from a store.
pub(crate) type Reserved = [SafeName];

/// Whether the top name of `path` is reserved, also on a file system that folds case.
pub(crate) fn is_reserved(path: &SafePath, reserved: &Reserved) -> bool {
    let mut components = path.components();
    components.next().is_some_and(|top| reserved.iter().any(|name| is_folded(top, name.as_str())))
}
