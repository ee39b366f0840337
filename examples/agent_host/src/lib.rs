//! A small service that hosts agents: sessions, inbox, outbox and workspace over HTTP.
//!
//! | file | |
//! |---|---|
//! | `host.rs` | what all requests share, and how they leave the async threads |
//! | `route/` | one file for each part of a session |
//! | `stream.rs` | bodies of any size, in both directions |
//! | `target.rs` | what a URL names |
//! | `failure.rs` | what an [`ErrorKind`](beneath::ErrorKind) is in HTTP |

mod failure;
mod host;
mod route;
mod stream;
mod target;

pub use host::Host;
pub use route::router;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/async.md")]
struct AsyncDoctests;
