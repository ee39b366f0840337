//! Names at the top of a tree that belong to the host.

use crate::name::{SafeName, SafePath};

/// Names at the top of the workspace that never come in from a store.
pub(crate) type Reserved = [SafeName];

/// Whether the top name of `path` is reserved, also on a file system that folds case.
pub(crate) fn is_reserved(path: &SafePath, reserved: &Reserved) -> bool {
    // File systems take `ſ` for an s and the Kelvin sign for a k: the one shows in capitals, the other in small letters.
    let fold = |text: &str| text.to_uppercase().to_lowercase();
    let folded = |top: &str, name: &str| {
        let ascii = top.is_ascii() && name.is_ascii();
        top.eq_ignore_ascii_case(name) || (!ascii && fold(top) == fold(name))
    };
    let mut components = path.components();
    components.next().is_some_and(|top| reserved.iter().any(|name| folded(top, name.as_str())))
}
