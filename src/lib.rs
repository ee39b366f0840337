//! Share a directory with code you do not trust.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "beneath needs Linux: its guarantees rest on openat2, O_TMPFILE and descriptor-relative calls"
);

#[cfg(feature = "artifacts")]
pub mod artifacts;
mod error;
mod name;

pub use error::{Error, ErrorKind, Result};
pub use name::{AttachmentHint, MessageId, SafeName, SafePath, SessionId, safe_name};
