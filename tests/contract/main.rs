//! What the core promises, area by area. Every body runs with both resolvers in an arena whose outside is
//! verified afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod attacks;
mod bombs;
mod entries;
mod errors;
mod filesystems;
mod paths;
mod policy;
mod read;
mod remove;
mod root;
mod walk;
mod write;

use rustix::io::Errno;

/// Slow tests, and those that say nothing about resolving.
const NOT_AGAIN: &[&str] = &["bombs", "suite_passes_where", "descriptors_it_opens"];

#[test]
fn suite_passes_where_the_kernel_has_no_openat2() {
    support::seccomp::rerun_without_openat2(Errno::NOSYS, NOT_AGAIN);
}

#[test]
fn suite_passes_where_a_profile_forbids_openat2() {
    support::seccomp::rerun_without_openat2(Errno::PERM, NOT_AGAIN);
}
