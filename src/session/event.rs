//! Refusals as structured events, besides the report that each call returns.
//!
//! Text that a guest chose reaches an event only through [`Error`]'s display, which escapes it.

use crate::error::Error;
use crate::root::FileType;

/// Something was refused or skipped; the result reports it as well.
pub(crate) fn refused(operation: &'static str, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "beneath", operation, kind = ?error.kind(), reason = %error, "refused");
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, error);
}

/// The guest has put something else in place of a directory of the layout.
pub(super) fn replaced(part: &'static str, file_type: FileType) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "beneath", part, found = ?file_type, "replaced by the guest");
    #[cfg(not(feature = "tracing"))]
    let _ = (part, file_type);
}

/// A removal ended before all was gone.
pub(super) fn left_behind(operation: &'static str, removed: &crate::root::Removed) {
    #[cfg(feature = "tracing")]
    if !removed.is_complete() {
        tracing::warn!(target: "beneath", operation, left = removed.left.total, "removal incomplete");
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, removed);
}
