//! Files that outlive their machine: a workspace and an object store, brought together without losing anything.
//!
//! | to | call |
//! |---|---|
//! | bring a session's files back on a new machine | [`Artifacts::restore`] |
//! | bring here what has changed in the store | [`Artifacts::pull`] |
//! | bring to the store what has changed here | [`Artifacts::mirror`] |
//! | both | [`Artifacts::sync`] |
//! | see what that would do | [`Artifacts::plan`] |
//! | settle what both sides have changed | [`Artifacts::resolve`] |
//! | remove a session only if the store has all of it | [`Artifacts::unsent`], [`Sessions::remove_if`](crate::Sessions::remove_if) |
//! | bring one object into a running session | [`Artifacts::materialise`] |
//! | write a file here and in the store | [`Artifacts::put`] |
//! | find out what a command has changed | [`Snapshot::take`], [`Snapshot::diff`] |
//! | hand out a link to an object | [`Artifacts::signed_url`], [`Artifacts::signed_download`] |
//! | install code or documents of a set version | [`Bundles`] |
//!
//! # Threats
//! The guest chooses file names and contents, and so, through a mirror, keys and objects. Others who can write to the
//! store choose any key at all, and the store itself may lie about sizes, lack objects in its listing, stop in the middle or
//! never answer. Hosts die, workspaces are lost and replaced, and two hosts work on one session.
//!
//! # What holds
//! * Nothing is deleted that was not seen to be deleted, on either side. The base of the comparison belongs to one store, one
//!   prefix and one directory; if any of them is another one, or the base cannot be read, nothing counts as deleted. Of what may only
//!   have moved to where it cannot be mirrored, and of what is suspiciously much, nothing is deleted before somebody
//!   approves it. Nor is anything replaced where one side has nothing any more of what both had. What is removed here is in the trash
//!   of the session for a day.
//! * What both sides have changed is kept in both versions.
//! * [Complete](SyncReport::is_complete) means equal.
//! * One bad key or object is one refusal; it never stops the others, and never makes another object's bytes appear.
//! * No object is written outside the workspace, under a reserved name, or over a file that nobody has seen.
//! * No partial file is ever visible. A call that was interrupted, by a crash or by dropping its future, is completed by the
//!   next one.
//! * Memory, disk and the number of objects are bounded, whatever the store does. So are the descriptors and requests of all sessions
//!   of a process, or of those that share a [`Source`], by [`Source::with_budget`].
//! * A mirror uploads what was opened beneath the workspace, and did not change while it was read: no link, no second name of
//!   a file elsewhere, no FIFO.
//! * Two hosts do not overwrite each other's objects unnoticed, as far as the store compares and puts in one step: see
//!   [below](#conditions).
//! * What a call that was interrupted has left of an upload in parts is removed by the next mirror (`Source::s3`).
//!
//! * Kinds, permission bits, times of modification, links and empty directories come back as they were. Objects say them in
//!   metadata that rclone, s3fs and others read. Set-id bits and owners never come from a store.
//!
//! # What does not
//! * What a store keeps besides bytes is tried out on a scratch object before the first link, program or empty directory goes there.
//!   Where a server drops it, each of these is reported, and the call is not complete. The other permission bits and the times are lost
//!   there without a report.
//! * A server that takes two keys for one, as `rclone serve s3` does with two spellings of `é`, is found out by the next sync, and not by the
//!   call that has put them.
//! * Modes of directories are not kept. Of files with several names each name becomes a file of its own; one with two names in one
//!   directory is refused. A time that changes alone is not sent. Permission bits that change alone are sent, and come to another
//!   host with the next content; the bit to execute comes at once.
//! * On S3 and GCS a version is an ETag and the second in which it was put. Of two hosts that put the same bytes with other modes in one
//!   second, one does not see the other.
//! * A store that compares but does not do it in one step with the put, or does not compare at all, may lose one of two
//!   objects that are put within moments.
//! * `Source::s3`, `Source::gcs` and `Source::azure` follow no redirect. A store that was built elsewhere, for [`Source::new`], has a
//!   client of its own, which follows redirects; so does one whose builder has root certificates or a DNS resolver set in code.
//! * These three list raw keys, but for S3 Express and for buckets with customer keys. All others, and every store by
//!   [`Source::new`], are listed by a client that turns keys into paths. There a key with an empty, `.` or `..` segment or a control
//!   character is one refusal together with all that is in its directory; directly below the prefix it fails every call that
//!   lists, until somebody removes it. A folder that a console has made, `docs/`, is listed as a file `docs` that is
//!   not there, and no call is complete.
//! * Likewise [`Retry`] counts every request of the former. The client of the latter repeats each as it is set up to, within an
//!   attempt.
//! * A file that was torn by a power cut looks like one that the guest has changed, and goes to the store.
//! * With [`Remote::Trust`] complete means that the workspace holds what this host left in the store.
//! * A write through a mapping may leave no stamp; [`SyncOptions::with_hashing`] reads every file.
//! * Uploads in parts that were interrupted stay in GCS and Azure until their own rules remove them, and in S3 if there is
//!   no next mirror: set a lifecycle rule that aborts incomplete uploads.
//!
//! # Conditions
//! A mirror remembers the version of each object, and a put asks for it. Some servers take that condition and ignore it (s3rver,
//! `rclone serve s3`). So where it depends on the server, the first put of a [`Source`] is preceded by a trial: a scratch object
//! under the prefix is put on conditions that do not hold, and removed. Its key, `%=~probe-` and 32 digits, is that of no path,
//! and every listing skips it. Where the server does not refuse these, or the trial is not permitted, each object is compared right
//! before it is put, and [`SyncReport::unconditional`] counts it.
//!
//! Whether the store compares and puts in one step:
//!
//! | store | one request | in parts |
//! |---|---|---|
//! | S3 by `Source::s3` | yes, up to 8 MiB | yes, where the server checks `If-Match` and `If-None-Match` of a completion, as Amazon documents |
//! | S3 Express, S3 with customer keys | yes, up to 16 MiB | no |
//! | GCS, Azure, others by [`Source::new`] | as the store does, up to 16 MiB | no |
//! | [`Source::memory`] | yes, of any size | never |
//! | a directory by [`Source::local`] | a new object; not one in place of another | the same |
//!
//! Deletions are tried in the same way. On S3 a thousand go in one request with their versions (SeaweedFS keeps these), or each in
//! one of its own with `If-Match` (moto keeps only that); on Azure each goes in one of its own with `If-Match`. Elsewhere, and where a
//! server does not keep these, each is compared right before and counted.
//!
//! In parts the object is also compared right before it is published. Where it is "no", that is all, and what another host
//! puts between the two is overwritten. The same holds for servers that check the condition of a completion without a lock: of
//! eight at one time, SeaweedFS 4.48 let up to eight through, and moto 5.2 up to seven; moto ignores `If-Match` there. Of
//! eight puts in one request both let one through.
//!
//! # Stores and credentials
//! [`Source::parse`] opens a store by its URL, with the credentials of the environment, the container or the instance; its
//! documentation says where they are looked for, and that profiles are not read. `Source::s3`, `Source::gcs`, `Source::azure`,
//! `Source::signing` and [`Source::new`] take what was built with the crate [`object_store`], which is exported here in the version that fits.
//!
//! All calls need a tokio runtime with time enabled, and do their file work on its blocking threads.
//!
//! ```
//! use std::sync::Arc;
//! use beneath::artifacts::{Artifacts, Prefix, Source};
//! use beneath::{Root, SafePath, SessionId, Sessions, SessionsConfig, ambient_authority};
//! use object_store::{ObjectStoreExt, memory::InMemory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(InMemory::new());
//! store.put(&"sessions/s1/out/report.txt".into(), "hello".into()).await?;
//! store.put(&"sessions/s1/skills/evil.md".into(), "never comes in".into()).await?;
//!
//! # let home = tempfile::tempdir()?;
//! let root = Root::open_ambient(home.path(), ambient_authority())?;
//! let (session, _) = Sessions::new(root, SessionsConfig::default()).create(&SessionId::new("s1"))?;
//! let prefix = Prefix::session(&SessionId::new("s1"));
//! let artifacts = Artifacts::new(Source::memory(store), prefix, &session);
//!
//! let report = artifacts.restore().await?;
//! assert_eq!(report.placed, 1);
//! assert_eq!(report.refused().count(), 1);
//! assert!(!report.is_complete());
//! assert_eq!(session.workspace().read_contained("out/report.txt", 64)?, b"hello");
//! # Ok(())
//! # }
//! ```

mod bundle;
mod client;
mod disk;
mod guard;
mod key;
mod link;
mod live;
mod local;
mod options;
mod over;
mod patience;
mod plan;
mod progress;
mod pull;
mod push;
mod remote;
mod report;
mod state;
mod store;
mod sync;
mod unsent;

/// The crate of the stores, in the version that [`Source`] takes.
pub use object_store;

pub use bundle::{Bundle, Bundles, Change, Installed, InstalledBundle, Manifest, OpenBundle};
pub use key::Prefix;
pub use live::{Put, Take};
pub use options::{Arrivals, Deletions, Prefer, Remote, SyncOptions};
pub use plan::SyncPlan;
pub use progress::{Event, Step};
pub use report::{Held, Side, SyncReport};
pub use state::Places;
pub use store::{Listed, Retry, Source};
pub use unsent::Unsent;

/// What the fuzz targets call past the API.
#[cfg(all(fuzzing, feature = "aws"))]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::remote::read_listing;
    pub use super::store::read_page;
}

/// The trait behind a [`Source`], for the suite that every store must pass and for stores that misbehave in tests. No part of
/// the API.
#[doc(hidden)]
pub mod conformance {
    pub use super::store::{
        Abilities, Attributes, Backend, Body, Compares, Condition, Conditions, Doomed, Head, Kind, Parts,
    };

    /// An object as a listing describes it.
    #[must_use]
    pub fn listed(key: Vec<u8>, size: u64, etag: Option<String>) -> super::Listed {
        super::Listed { key, size, etag, put_at: None }
    }

    /// An object as the store describes it.
    #[must_use]
    pub fn head(size: u64, etag: Option<String>, attributes: Attributes) -> Head {
        Head { size, etag, attributes }
    }

    /// What a call fails with if the store does not answer.
    #[must_use]
    pub fn silence(operation: &'static str, key: &str) -> crate::Error {
        failure(operation, key, crate::ErrorKind::Io, "the store is silent")
    }

    /// What a call fails with if the store answers with a failure of this kind.
    #[must_use]
    pub fn failure(
        operation: &'static str,
        key: &str,
        kind: crate::ErrorKind,
        detail: &'static str,
    ) -> crate::Error {
        crate::Error::new(operation, key, kind).with_detail(detail)
    }
}

pub use crate::tree::{Approval, Conflict, Diff, Hashing, ObjectLimits, Snapshot, Why};

use crate::name::SafeName;
use crate::session::Session;
use client::Client;

/// The files of one session and the objects that hold them. Cheap to clone.
///
/// The workspace is an entry that the guest can replace, so each call opens it anew. What the host remembers between two calls
/// is on the host's side of the session.
#[derive(Clone, Debug)]
pub struct Artifacts {
    client: Client,
    session: Session,
    reserved: Vec<SafeName>,
}

impl Artifacts {
    /// Connects the objects under `prefix` with the workspace of `session`.
    ///
    /// The workspace and the host's side of the session must be on one mount, or every call fails with
    /// [`CrossDevice`](crate::ErrorKind::CrossDevice). A call fails with [`Symlink`](crate::ErrorKind::Symlink),
    /// [`NotDirectory`](crate::ErrorKind::NotDirectory) or [`NotFound`](crate::ErrorKind::NotFound) if the guest has replaced its
    /// workspace by something else; [`Session::repair`] puts it back.
    #[must_use]
    pub fn new(source: Source, prefix: Prefix, session: &Session) -> Self {
        let reserved = SafeName::new("skills").into_iter().collect();
        Self { client: Client::new(source, prefix), session: session.clone(), reserved }
    }

    /// Names at the top of the workspace that neither come in from the store nor go out to it; at first `skills`.
    #[must_use]
    pub fn with_reserved(mut self, names: impl IntoIterator<Item = SafeName>) -> Self {
        self.reserved = names.into_iter().collect();
        self
    }

    /// Leaves out what matches `patterns`: it neither comes in from the store nor goes out to it, is not reported, and does not count
    /// for [`is_complete`](SyncReport::is_complete). A directory that matches is not entered.
    ///
    /// The patterns are the host's: a `.gitignore` of the guest is not read. With other patterns than the last call had, nothing counts as
    /// deleted. A file that is moved to where it matches is deleted in the store.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, Prefix, Source, SyncOptions};
    /// # use beneath::{Patterns, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(home.path(), ambient_authority())?, SessionsConfig::default());
    /// # let (session, _) = sessions.create(&SessionId::new("s1"))?;
    /// # let source = Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// # let prefix = Prefix::session(&SessionId::new("s1"));
    /// let artifacts =
    ///     Artifacts::new(source, prefix, &session).with_filter(Patterns::new(["node_modules/", "*.log"])?);
    /// session.workspace().ensure_dir("node_modules/left-pad")?;
    /// session.workspace().write_exclusive("app.js", "")?;
    /// session.workspace().write_exclusive("debug.log", "")?;
    /// let report = artifacts.mirror(&SyncOptions::default()).await?;
    /// assert_eq!((report.uploaded, report.is_complete()), (1, true));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "patterns")]
    #[must_use]
    pub fn with_filter(mut self, patterns: crate::name::Patterns) -> Self {
        self.client.filter = Some(patterns);
        self
    }

    /// Takes in no more than `limits`.
    #[must_use]
    pub fn with_limits(mut self, limits: ObjectLimits) -> Self {
        self.client.limits = limits;
        self
    }

    /// Retries as `retry` says.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.client.retry = retry;
        self
    }

    /// Moves up to `objects` objects at a time; at first 16.
    #[must_use]
    pub fn with_concurrency(mut self, objects: usize) -> Self {
        self.client.concurrency = objects.max(1);
        self
    }

    /// Reports every event to `listener`, on the thread where it happens: it should be quick.
    #[must_use]
    pub fn with_progress(mut self, listener: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.client = self.client.with_progress(listener);
        self
    }

    /// Where the objects are.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.client.source
    }

    /// The prefix of their keys.
    #[must_use]
    pub fn prefix(&self) -> &Prefix {
        &self.client.prefix
    }
}
