//! Share a directory with code you do not trust.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "beneath needs Linux: its guarantees rest on openat2, O_TMPFILE and descriptor-relative calls"
);

#[cfg(feature = "artifacts")]
pub mod artifacts;
mod error;
mod name;
mod root;

pub use cap_std::{AmbientAuthority, ambient_authority};

pub use error::{Error, ErrorKind, Result};
pub use name::{AttachmentHint, MessageId, SafeName, SafePath, SessionId, safe_name};
pub use root::{
    Access, Budget, ContainedFile, Durability, Ensured, Entry, FileType, HardLinks, Left, Limits, Links,
    List, Metadata, Mounts, NewFile, Policy, Removed, Resolver, ResolverChoice, Root, Walk,
};
