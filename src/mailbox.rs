//! Messages between the host and a guest, in SQLite.
//!
//! Problem: two databases in a directory that the guest may write to are the usual way to talk to an agent, and whoever opens a
//! database in guest reach, even to read, lets the guest delete host files, hang the host, or have it write into another session
//! (see [`Session::verify_db`](crate::Session::verify_db)). Besides, a host that dies between sending and recording sends twice or
//! loses a message, and a guest that dies in the middle of a message keeps it.
//!
//! Defence: there are three databases, and each has one writer.
//!
//! | database | written by | read by |
//! |---|---|---|
//! | `share/inbound.db` | the host, by path: no guest can plant anything there | the guest, through a read-only mount |
//! | `guest/outbound.db` | the guest | the host, as an image in memory that is checked first: there is no path, so there is no journal, link or FIFO |
//! | `host/state/mail.db` | the host | the host: what was delivered, tries, routing |
//!
//! What remains: content is the guest's. A guest that holds a lock on `inbound.db` makes [`Mailbox::put`] fail with
//! [`Busy`](crate::ErrorKind::Busy) after the [time that is set](MailboxConfig::with_busy), and a guest whose database cannot be read
//! sends nothing; both hurt that guest alone, and both are reported.
//!
//! | you want to | use |
//! |---|---|
//! | find the session of a conversation, or make it | [`resolve`] |
//! | give the guest a message, with attachments | [`Mailbox::put`] |
//! | take what the guest sends, and record what became of it | [`Mailbox::take`], [`Mailbox::mark`] |
//! | send something in the guest's place | [`Mailbox::post`] |
//! | know what the guest has done with its messages | [`Mailbox::acks`], [`Mailbox::settle`], [`Mailbox::due`] |
//! | know whether the guest hangs, and give its message to the next one | [`Mailbox::stuck`], [`Mailbox::retry`] |
//! | set where answers go | [`Mailbox::set_routing`] |
//! | remove what is done | [`Mailbox::sweep`] |
//!
//! # The loop
//!
//! ```
//! use beneath::mailbox::{Delivered, Inbound, Mailbox};
//! use beneath::{MessageId, MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
//!
//! # let dir = tempfile::tempdir()?;
//! # let root = Root::open_ambient(dir.path(), ambient_authority())?;
//! # struct Failure;
//! # impl Failure { fn is_temporary(&self) -> bool { true } }
//! # fn send(_: &beneath::mailbox::Outbound) -> Result<(), Failure> { Ok(()) }
//! let config = SessionsConfig::default().with_share(MountPoint::new("/share")?);
//! let (session, _) = Sessions::new(root, config).create(&SessionId::new("s"))?;
//! let mailbox = Mailbox::open(&session)?;
//! mailbox.put(Inbound::new(&MessageId::new("m-1"), "chat", "hello"))?;
//!
//! let lock = session.try_lock()?; // one worker at a time
//! let taken = mailbox.take(&lock, 16)?;
//! for message in &taken.messages {
//!     mailbox.mark(message, Delivered::Trying)?; // counted before it is sent
//!     let outcome = match send(message) {
//!         Ok(()) => Delivered::Done,
//!         Err(error) if error.is_temporary() => Delivered::Again,
//!         Err(_) => Delivered::Failed,
//!     };
//!     mailbox.mark(message, outcome)?;
//! }
//! for (subject, error) in taken.refused() {
//!     println!("{}: {error}", subject.display());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A host that dies between sending and the second `mark` finds the message again, with [`Earlier::Unfinished`]. To send at least
//! once, send it again, and give [`Outbound::key`] to the receiver, which then knows it; to send at most once, mark it
//! [`Failed`](Delivered::Failed) then.
//!
//! # Crashes
//!
//! | the host dies | left | then |
//! |---|---|---|
//! | in [`put`](Mailbox::put), while attachments are written | whole files in the inbox, no row | the next `put` of that id finds them and adds the rest and the row; without one, [`Inbox::sweep`](crate::session::Inbox::sweep) removes them |
//! | in `put`, in the transaction | files, and a journal in the share | the next call of the host rolls it back; until then the guest, which cannot, may fail to read |
//! | in `put`, after it | files and row | `put` of that id reports that it [was there](Put::how) |
//! | in [`mark`](Mailbox::mark), before its transaction ends | the previous state | the message is taken again |
//! | in `mark`, after it | the mark, and not yet the guest's copy of it | the next [`open`](Mailbox::open) completes it |
//! | in [`set_routing`](Mailbox::set_routing), between the two | the new routing, and the guest's copy of the old one | likewise |
//! | in [`sweep`](Mailbox::sweep), between its three transactions | the marks, and not all of the guest's copies of them | the next `open` writes these again, and the next `sweep` removes both |
//! | in [`post`](Mailbox::post), [`settle`](Mailbox::settle), [`retry`](Mailbox::retry) | all of it or nothing: one transaction | call it again |
//! | in [`open`](Mailbox::open) | databases without tables, or of the version before | the next `open` goes on |
//!
//! A power cut is a crash too. A transaction that was reported survives it, if the share has
//! [`Durability::Full`](crate::Durability::Full); otherwise the last one may be undone.
//!
//! # What the guest does
//!
//! It opens `inbound.db` read-only on the mount of the share, and `outbound.db` read-write, for each operation anew, with a rollback
//! journal (`journal_mode = DELETE`) and never a write-ahead log. It reads `messages_in` where `status = 'pending'` and
//! `not_before` (milliseconds since 1970) has come, writes to `acks` what it does with each, and writes its own messages to
//! `messages_out` with an odd and growing `seq`. What is in `delivered` it may delete from `messages_out`. [`OUTBOUND_SCHEMA`] makes the tables.

mod acks;
mod config;
mod handle;
mod hostile;
mod inbound;
mod kept;
mod liveness;
mod look;
mod mark;
mod marks;
mod outbound;
mod pending;
mod put;
mod resolve;
mod retries;
mod routing;
mod schema;
mod seq;
mod settle;
mod sqlite;
mod stuck;
mod sweep;
mod take;

pub use acks::{Ack, AckStatus, Acks};
pub use config::MailboxConfig;
pub use handle::Mailbox;
pub use inbound::{Inbound, Put};
pub use kept::GuestStatus;
pub use liveness::{Patience, Signs, Verdict};
pub use marks::Delivered;
pub use outbound::{Earlier, Origin, Outbound, Post, Taken};
pub use resolve::{SessionKey, SessionMode, resolve};
pub use retries::{Retries, Standing};
pub use routing::Routing;
pub use schema::OUTBOUND_SCHEMA;
pub use seq::Seq;
pub use settle::Settled;
pub use sweep::MailSwept;
