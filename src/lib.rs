//! Share a directory with code you do not trust.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "beneath needs Linux: its guarantees rest on openat2, O_TMPFILE and descriptor-relative calls"
);

mod error;
mod name;
mod root;
#[cfg(feature = "session")]
pub mod session;

pub use cap_std::{AmbientAuthority, ambient_authority};

pub use error::{Error, ErrorKind, Result};
pub use name::{AttachmentHint, MessageId, SafeName, SafePath, SessionId, safe_name};
pub use root::{
    Access, Applied, Budget, ContainedFile, Durability, Ensured, Entry, Execute, FileType, HardLinks, Left,
    Limits, Links, List, Metadata, Mounts, NewFile, Policy, Removed, Resolver, ResolverChoice, Root, Walk,
};
#[cfg(feature = "session")]
pub use session::{Session, Sessions, SessionsConfig};
