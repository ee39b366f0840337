//! What a directory contains, and how changes of two copies come together.
//!
//! Problem: two copies of a tree are worked on at the same time. Whoever copies one over the other loses the changes of the
//! second, and whoever checks first and then replaces loses what was written in between.
//!
//! Defence: three trees are compared, what both copies had at the start (the *base*), *ours* and *theirs*. What only one side
//! has changed is taken; what both have changed is a conflict, and both versions stay. A file is never replaced by name: it is
//! exchanged with the new one, and what came out is looked at. If it is not what was expected, it is put beside.
//!
//! What remains: content that a guest writes, through a descriptor it still holds, to a file that was displaced, goes to the
//! file in the trash.
//!
//! ```
//! use beneath::tree::{Conflict, MergeOptions, Tree, TreeLimits, merge};
//! use beneath::{Root, ambient_authority};
//!
//! # let dir = tempfile::tempdir()?;
//! # for name in ["ours", "theirs", "work", "trash"] { std::fs::create_dir(dir.path().join(name))?; }
//! let open = |name: &str| Root::open_ambient(dir.path().join(name), ambient_authority());
//! let (ours, theirs) = (open("ours")?, open("theirs")?);
//! for root in [&ours, &theirs] {
//!     root.write_exclusive("plan.md", "draft")?;
//!     root.write_exclusive("notes", "one")?;
//! }
//! let base = Tree::take(&ours, TreeLimits::default())?;
//!
//! theirs.replace("notes", "two")?;
//! theirs.replace("plan.md", "theirs")?;
//! ours.replace("plan.md", "ours")?;
//!
//! let merged = merge(&base, &theirs, &ours, (&open("work")?, &open("trash")?), &MergeOptions::default())?;
//! assert_eq!(ours.read_contained("notes", 64)?, b"two");
//! assert_eq!(ours.read_contained("plan.md", 64)?, b"ours");
//! let Conflict { path, beside, .. } = &merged.conflicts[0];
//! assert_eq!(path.as_str(), Some("plan.md"));
//! assert_eq!(ours.read_contained(beside.as_ref().unwrap(), 64)?, b"theirs");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod beside;
mod contents;
mod guard;
mod journal;
mod leaf;
#[cfg(feature = "artifacts")]
mod limits;
mod merge;
mod plan;
mod report;
#[cfg(feature = "artifacts")]
mod reserved;
#[cfg(feature = "artifacts")]
mod snapshot;
#[cfg(feature = "artifacts")]
mod stamp;
mod stored;
mod whole;

#[cfg(feature = "artifacts")]
pub(crate) use apply::{Places as MergePlaces, Theirs};
#[cfg(feature = "artifacts")]
pub(crate) use beside::{TRIES, Whose, beside, whose};
#[cfg(feature = "artifacts")]
pub(crate) use contents::Looked;
pub use contents::{Tree, TreeLimits};
#[cfg(feature = "artifacts")]
pub(crate) use guard::{Measure, reference};
#[cfg(feature = "artifacts")]
pub(crate) use journal::displaced_name;
pub(crate) use journal::{KEPT, is_displaced};
pub use leaf::Leaf;
#[cfg(feature = "artifacts")]
pub(crate) use leaf::{Leaves, unhex};
#[cfg(feature = "artifacts")]
pub use limits::ObjectLimits;
pub use merge::merge;
#[cfg(feature = "session")]
pub(crate) use merge::merge_where;
#[cfg(feature = "artifacts")]
pub(crate) use merge::{lock_merges, merge_trees, recover_from};
#[cfg(feature = "artifacts")]
pub(crate) use plan::{Act, Plan, Rules, plan};
pub use report::{Approval, Conflict, Guard, MergeOptions, Merged, OnConflict, Why};
#[cfg(feature = "artifacts")]
pub(crate) use reserved::is_reserved;
#[cfg(feature = "artifacts")]
pub use snapshot::{Diff, Hashing, Snapshot};
#[cfg(feature = "artifacts")]
pub(crate) use stamp::{Digest, Stamp, digest, is_fresh, nanoseconds};
#[cfg(feature = "artifacts")]
pub(crate) use stored::{decode_path, decode_reference, encode_path, encode_reference, seal, unseal};
#[cfg(feature = "artifacts")]
pub(crate) use whole::Staged;
