//! HTTP for a guest that shares nothing with its host but a directory.
//!
//! | file | |
//! |---|---|
//! | `guest.rs` | the HTTP server in the guest: token, limits, submit, wait, cancel |
//! | `host.rs`, `host/work.rs` | the host's loop: recover, poll, policy, handlers with a deadline, drain |
//! | `host/said.rs` | what the host says, however often a guest makes it |
//! | `issues.rs` | the handlers: a small tracker of issues |
//! | `arguments.rs` | what the command line says |

mod arguments;
pub mod guest;
pub mod host;
mod issues;

pub use arguments::Arguments;
pub use issues::Issues;

/// Runs a call that blocks, on a thread that may.
///
/// If the future is dropped, the call goes on to its end and its result is dropped.
///
/// # Errors
/// If the call panics.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    tokio::task::spawn_blocking(work).await
}
