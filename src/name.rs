//! Names, paths and ids that are safe components for the file system, and that show people what they are.
//!
//! Everything here is pure: text goes in, a checked type or an error comes out, and the disk is never asked.
//! The checked types are the first of two independent layers. The kernel confines the path again when it is used.
//!
//! | untrusted text | becomes | how |
//! |---|---|---|
//! | a file name | [`SafeName`] | refused by [`safe_name`], or mended by [`SafeName::repair`] |
//! | a path or an object key | [`SafePath`] | refused by [`SafePath::new`] |
//! | a path that a guest's tree has | [`GuestPath`] | kept byte for byte by [`GuestPath::new`] |
//! | a path as an agent writes it | [`GuestPath`] | [`GuestPath::parse`] knows the guest's [mount points](MountPoint) |
//! | a message or session id | [`MessageId`], [`SessionId`] | never refused: kept, or mapped to one component |
//! | what a message says of an attachment | [`SafeName`] | [`AttachmentHint::to_name`], then [`SafeName::numbered`] |
//! | a MIME type, an extension or the first bytes of a file | [`Mime`], [`Detected`] | [`Mime::new`], [`Mime::from_path`], [`Detected::new`] |
//!
//! What the rules do not do: they make no safe shell arguments (`-rf` and `~root` are names), they leave look-alike letters
//! of different scripts alone, they do not normalise, and they do not fold case. On a file system that folds case or
//! normalises, two different names may meet; an exclusive create then reports the name as taken.

mod attachment;
mod fold;
mod guest;
mod id;
mod mime;
mod path;
#[cfg(feature = "patterns")]
mod pattern;
mod repair;
mod rules;

pub use attachment::AttachmentHint;
pub(crate) use fold::fold;
#[cfg(any(feature = "session", feature = "artifacts"))]
pub(crate) use fold::is_folded;
pub use guest::{GuestPath, MountPoint, Spelling};
pub use id::{MessageId, SessionId};
pub use mime::{AllowedTypes, Detected, Mime};
pub use path::SafePath;
pub(crate) use path::kind_of_refused;
#[cfg(all(feature = "patterns", feature = "session"))]
pub(crate) use pattern::Of;
#[cfg(feature = "patterns")]
pub use pattern::Patterns;
pub use rules::{SafeName, safe_name};
