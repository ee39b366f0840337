//! Requests of a guest that the host answers.
//!
//! A guest puts a request into a directory that it shares with the host, and waits for the answer in another. This works across a
//! virtual machine's border, through a remote shell and without a network, and it survives crashes: each request is handled at
//! most once, and answered exactly once.
//!
//! | you want to | use |
//! |---|---|
//! | serve a guest's requests | [`Session::queue`](crate::Session::queue), [`Queue::recover`], [`Queue::next`] |
//! | handle one | [`Job::start`], then [`Started::answer`]; or [`Job::refuse`] |
//! | know which requests are allowed | [`policy`] |
//! | stop | [`Queue::drain`] |
//! | remove what nobody fetched | [`Queue::sweep`] |
//! | ask, from inside the guest | [`Client`], [`Ticket`] |
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
//! # let sessions = beneath::Sessions::new(root, Default::default());
//! # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
//! # let queue_dir = dir.path().join("s/guest/queue");
//! use std::time::{Duration, Instant};
//! use beneath::queue::{Client, ClientConfig, QueueConfig, Request, Response};
//!
//! let queue = session.queue(QueueConfig::default())?;
//! let recovered = queue.recover()?;
//! assert!(recovered.indeterminate.is_empty(), "no crash yet");
//!
//! // In the guest, which sees the directory only:
//! let shared = beneath::Root::open_ambient(queue_dir, beneath::ambient_authority())?;
//! let client = Client::new(shared, ClientConfig::default());
//! let mut ticket = client.submit(&Request::new("GET", "/time")?)?;
//!
//! // In the host:
//! for job in queue.poll()?.jobs {
//!     let started = job.start()?;
//!     let answer = Response::new(200).with_body("noon");
//!     let _ = started.answer(&answer)?;
//! }
//!
//! let response = ticket.wait(Instant::now() + Duration::from_secs(1))?.unwrap();
//! assert_eq!((response.status, response.body.as_bytes()), (200, Some(&b"noon"[..])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Crashes
//!
//! | killed | the guest gets |
//! |---|---|
//! | before the request is claimed, or before it is started | its answer, after the next start |
//! | between the start and the answer | 504, [`Outcome::Indeterminate`]: nobody knows how far the handler came |
//! | after the answer is saved | the answer |
//!
//! After a power cut this holds with [`Durability::Full`](crate::Durability::Full) only.

mod client;
mod config;
mod disk;
mod drain;
mod envelope;
mod handle;
mod hold;
mod id;
mod job;
mod ledger;
mod load;
#[cfg(test)]
mod model;
pub mod policy;
mod poll;
mod ready;
mod recover;
mod refusal;
mod shared;
mod slots;
mod sweep;

pub use client::{Cancelled, Client, ClientConfig, Ticket};
pub use config::{Overflow, QueueConfig};
pub use drain::Drained;
pub use envelope::{Body, EnvelopeLimits, Headers, Malformed, Outcome, Request, Response};
pub use handle::Queue;
pub use id::RequestId;
pub use job::{Job, Started, Unanswered};
pub use poll::Polled;
pub use ready::Ready;
pub use recover::Recovered;
pub use shared::Answered;
