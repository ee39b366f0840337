//! Share a directory with code you do not trust.
//!
//! A service that hosts agents, plugins or jobs mounts a directory writable into a container, and then writes files into
//! it, reads results out of it and deletes it, while the guest swaps links, plants FIFOs and renames directories under
//! it. Checking a path and then using the path loses that race. A [`Root`] holds the directory's handle, and the kernel
//! refuses whatever would leave it.
//!
//! # Which call
//!
//! | you want to | use |
//! |---|---|
//! | put a file there, complete or not at all | [`Root::write_exclusive`], [`Root::new_file`], [`Root::replace`] |
//! | read what the guest left | [`Root::read_contained`], [`Root::open_contained`] |
//! | look around | [`Root::list`], [`Root::walk`], [`Root::metadata`] |
//! | copy a file, or a whole tree | [`Root::copy`], [`Root::copy_tree`] |
//! | delete a tree | [`Root::remove_tree_contained`] |
//! | deliver messages to a guest and collect its own | the module `session` |
//! | restore a session's files from an object store, and mirror them | the module `artifacts` |
//! | exchange messages with a guest through SQLite | the module `mailbox` |
//! | grant a guest directories of the host | the module `mounts` |
//! | answer a guest's requests | the module `queue` |
//! | use a name the guest chose | [`safe_name`], [`SafeName::repair`], [`MessageId::new`] |
//! | use a path that a guest's tree has, or that an agent wrote | [`GuestPath::new`], [`GuestPath::parse`] |
//!
//! ```
//! use beneath::{ErrorKind, Root, ambient_authority};
//!
//! # let dir = tempfile::tempdir()?;
//! # let session = dir.path();
//! let root = Root::open_ambient(session, ambient_authority())?;
//! root.ensure_dir("inbox/42")?;
//! root.write_exclusive("inbox/42/photo.png", b"\x89PNG")?;
//!
//! // The guest replaces its outbox by a link to the host's secrets.
//! std::os::unix::fs::symlink("/etc", session.join("outbox"))?;
//! let refused = root.read_contained("outbox/passwd", 1 << 20).unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Symlink);
//! assert_eq!(refused.to_string(), r#"read "outbox/passwd": is a symbolic link"#);
//!
//! assert!(root.remove_tree_contained("inbox")?.is_complete());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threat model
//!
//! The guest is any number of processes that can, at any moment and during any call, create, rename, exchange, link,
//! replace, truncate, grow, chmod and delete anything beneath the directory, make FIFOs, sockets, device nodes, sparse
//! files, deep and wide trees, take leases, and hold old descriptors. It also chooses message ids, file names and object
//! keys. It cannot move the root directory itself, and cannot mount in the host's mount namespace.
//!
//! # Guarantees
//!
//! * **No escape.** No byte is read from, written to or removed from, and no metadata changed on, an inode that was never
//!   a real (non-link) entry beneath the root.
//! * **No foreign file by a hard link.** Under [`HardLinks::Refuse`], the default, a file is read only if the one name it has
//!   is the one that was looked up, also if a guest links and unlinks it during the call; one narrow window is left, which
//!   [`HardLinks::RefuseStrict`] closes. [`Root::set_access`] changes no other file under any policy.
//! * **No hang.** No call waits for a FIFO, a lease or a guest that keeps creating.
//! * **No torn file.** A name appears with its whole content or not at all, to every process and after every crash of the
//!   host program. After a power cut or a crash of the kernel this holds from [`Durability::File`] on; with the default,
//!   [`Durability::None`], the name may be there with a part of its content, or with none.
//! * **Bounds.** Memory, descriptors, the number of calls to the kernel and the time between them are bounded whatever the
//!   tree looks like.
//! * **No silent loss.** What is refused is reported, with an [`ErrorKind`] that says what to do about it.
//! * **No panic** on any input.
//!
//! Both [resolvers](Resolver) give the same guarantees and report the same kinds.
//!
//! # What is not promised
//!
//! * The content of a file that a guest still holds open is not a snapshot.
//! * A file is the guest's once it is published: it may change, move or delete it at once.
//! * How long a single call to the kernel takes: a guest inside a large `write`, or one that serves the file system, can
//!   make it wait. [`Budget`] says what to do about it.
//! * What was written survives a power cut only as the [`Durability`] says, and by default nothing is synced.
//! * Mounts that the host makes inside the tree are refused, not understood.
//! * Who may call is not decided here: hand a `Root` only to code that may use all of it.
//! * Linux only.
//!
//! # Features
//!
//! * `session` (default): sessions, inbox and outbox.
//! * `json`: messages whose attachments are base64 in JSON.
//! * `queue`: requests of a guest as files, each handled at most once and answered exactly once; routes, headers, token.
//! * `artifacts`: restore, mirror and bundles over an object store; `aws`, `gcp` and `azure` bring the clouds' stores.
//! * `patterns`: patterns in the syntax of `.gitignore`, for listings and for what the host's own calls refuse.
//! * `mailbox`: messages in SQLite, read as images and never opened in the guest's reach.
//! * `mounts`: directories of the host that a guest asks for, granted as handles.
//! * `seal`: a root on a mount of its own, on which the kernel follows no link and opens no device.
//! * `sniff`: types of files by the marks that their content begins with.
//! * `tracing`: refusals of deliveries, claims, removals, hardening and repair as events.
//! * `serde`: names, paths and ids as checked strings; reports and errors can be serialised.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "beneath needs Linux: its guarantees rest on openat2, O_TMPFILE and descriptor-relative calls"
);

#[cfg(feature = "artifacts")]
pub mod artifacts;
mod entropy;
mod error;
#[cfg(feature = "mailbox")]
pub mod mailbox;
#[cfg(feature = "mounts")]
pub mod mounts;
mod name;
#[cfg(feature = "queue")]
pub mod queue;
mod report;
mod root;
#[cfg(feature = "session")]
pub mod session;
#[cfg(any(feature = "session", feature = "artifacts"))]
pub mod tree;

pub use cap_std::{AmbientAuthority, ambient_authority};

pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "patterns")]
pub use name::Patterns;
pub use name::{
    AllowedTypes, AttachmentHint, Detected, GuestPath, MessageId, Mime, MountPoint, SafeName, SafePath,
    SessionId, Spelling, safe_name,
};
pub use report::{Left, Leftovers};
pub use root::{
    Access, Applied, Budget, ContainedFile, Copied, CopiedTree, Durability, Enforced, Ensured, Entry,
    Execute, FileType, HardLinks, Links, List, Metadata, Mounts, NewFile, Policy, Removed, Rename, Resolver,
    ResolverChoice, Root, TreeOptions, Walk, WalkLimits, WriteOptions,
};
#[cfg(feature = "seal")]
pub use root::{Seal, Seat};
#[cfg(feature = "session")]
pub use session::{Session, Sessions, SessionsConfig};

#[cfg(all(doctest, feature = "session", feature = "artifacts"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(all(doctest, feature = "mounts"))]
#[doc = include_str!("../docs/guests.md")]
struct GuestsDoctests;
