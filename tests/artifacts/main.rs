//! Artifacts against real stores: in memory, a directory, moto and SeaweedFS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bucket;
mod bundle;
mod clouds;
mod faults;
mod keys;
mod kill;
mod memory;
mod mirror;
mod naive;
#[path = "../support/namespace.rs"]
mod namespace;
mod race;
mod restore;
mod resume;
mod stub;
mod support;
mod transitions;
mod upload;

/// Says on the real stdout, past the harness's capture, that a test or a part of it did not run and why.
fn skip(reason: &str) {
    use std::io::Write as _;
    let name = std::thread::current().name().unwrap_or("a test of the artifacts").to_owned();
    let _ = writeln!(std::io::stdout().lock(), "skipped {name}: {reason}");
}
