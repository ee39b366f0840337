//! What the core promises, area by area. Every body runs with both resolvers in an arena whose outside is
//! verified afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

mod access;
mod attacks;
mod bombs;
mod entries;
mod errors;
mod filesystems;
mod kinds;
mod paths;
mod policy;
mod read;
mod remove;
mod root;
mod served;
mod single;
mod table;
mod unmovable;
mod variables;
mod walk;
mod write;

use rustix::io::Errno;

/// Slow tests that force both resolvers anyway.
const NOT_AGAIN: &[&str] = &[
    "kinds",
    "suite_passes_where",
    "bombs",
    "class_q",
    "keeps_creating",
    "exchanged_for_a_link",
    "deep_trees",
    "branches_at_every",
    "longest_forms",
    "read_only_subvolumes",
    "unmovable",
];

#[test]
fn suite_passes_where_the_kernel_has_no_openat2() {
    beneath_kit::seccomp::rerun_without_openat2(Errno::NOSYS, NOT_AGAIN);
}

#[test]
fn suite_passes_where_a_profile_forbids_openat2() {
    beneath_kit::seccomp::rerun_without_openat2(Errno::PERM, NOT_AGAIN);
}
