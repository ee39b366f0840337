//! Handing files to a guest and taking files from it.
//!
//! A session is two directories: one that the guest may do anything in, and one that only the host can reach. The first may also be
//! three that are mounted apart: inbox, outbox and workspace. A [share](Session::share), which the guest may only read, is optional.
//!
//! Give the guest a mount of its own: a bind mount of `guest` in a mount namespace, not only a `chroot`. A guest that holds a
//! descriptor into a message keeps it when the message is claimed. On the host's own mount, `..` leads from there to the host's
//! side, and only the modes protect it. On a mount of its own, `..` leads nowhere.
//!
//! | to do | call |
//! |---|---|
//! | make, find and end sessions | [`Sessions`] |
//! | give the guest a message's attachments | [`Inbox::deliver`], or [`rewrite_message`] for a JSON message |
//! | take what the guest sends, each message once | [`Outbox::collect`], [`Claim::read`] |
//! | take one message by its id | [`Outbox::claim`], [`Claim::read`], [`Claim::clear`]; after a crash [`Outbox::claim_pending`] |
//! | pass it on to another guest | [`Claim::forward`] |
//! | work on the guest's own files | [`Workspace`] |
//! | keep the host's own calls from some of them | [`SessionsConfig::with_read_only`] and patterns |
//! | know what to mount into the guest, and where | [`Session::to_mount`], [`SessionsConfig::with_places`] |
//! | end a session over directories that you made | [`Session::from_places`], [`Session::empty`] |
//! | find out what a path that an agent wrote means | [`Session::resolve`] |
//! | follow a log that the guest writes | [`Tail`] |
//! | wait for a message, or for any change, instead of polling | [`Watcher`], [`Watch::wait_for`] |
//! | open a database that the guest can reach | [`Session::read_db`], [`Session::db_changed`], never the file itself; [`Session::copy_db`] where it must be a file; [`Session::verify_db`] to look at it |
//! | give the guest what it may read and not replace | [`SessionsConfig::with_share`], [`Session::share`] |
//! | set modes and owners right | [`harden_tree`], [`Session::repair`] |
//!
//! Every call looks up `inbox`, `outbox` and `workspace` anew, as components beneath the guest's handle, since the guest
//! may have replaced them by links; where they are mounted apart, it cannot, and they are handles. One bad attachment, file or entry never fails the rest: it is reported with its reason,
//! and the call goes on. Every report says whether it [`is_complete`](crate::Removed::is_complete), and lists what was
//! [`refused`](crate::Removed::refused). With the feature `tracing` refusals of deliveries, claims, removals, hardening
//! and repair are also events of the target `beneath`.
#![cfg_attr(not(feature = "json"), doc = "", doc = "[`rewrite_message`]: https://docs.rs/beneath")]

mod database;
mod empty;
mod event;
mod handle;
mod harden;
mod inbox;
mod limited;
mod listing;
mod outbox;
mod sessions;
mod sweep;
mod usage;
mod watch;
mod workspace;

#[cfg(feature = "queue")]
pub(crate) use event::refused;
#[cfg(any(feature = "artifacts", feature = "queue"))]
pub(crate) use sweep::age;

pub use database::{DbFault, DbImage, DbReport, DbStamp, Sibling, WalSafety};
pub use handle::Session;
pub use handle::config::{Base64, Dotfiles, MessageLimits, SessionsConfig, SweepClock};
pub use handle::layout::{Layout, PartState};
pub use handle::lock::SessionLock;
pub use handle::mount::{Mount, MountAccess};
pub use handle::parts::{Part, Parts};
pub use handle::resolve::Spelled;
pub use harden::{Hardened, Hardening, harden_tree};
#[cfg(feature = "json")]
pub use inbox::rewrite_message;
pub use inbox::{Attachment, Delivery, Inbox, Outcome, SavedFile};
pub use limited::LimitedFile;
pub use listing::Listing;
pub use outbox::{
    Claim, Collected, CollectedFile, Collection, Disposition, Failed, Ledger, Outbox, Place, Ticket,
    Undeclared,
};
pub use sessions::{Sessions, Survey};
pub use sweep::Swept;
pub use usage::{Quota, Usage};
pub use watch::{Armed, Wake, Watch, Watcher};
pub use workspace::{
    FileIdentity, Filter, FilteredWalk, ListOptions, Order, Tail, TailChunk, TailEvent, TailPosition,
    Workspace,
};
