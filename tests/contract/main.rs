//! What the core promises, area by area. Every body runs with both resolvers in an arena whose outside is
//! verified afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

mod access;
mod attacks;
mod bombs;
mod copy;
mod copy_tree;
mod documents;
mod entries;
mod errors;
mod figures;
mod filesystems;
mod kinds;
mod links;
mod options;
mod paths;
mod policy;
mod read;
mod remove;
mod rename;
mod root;
mod sealed;
mod served;
mod single;
mod table;
mod times;
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

/// Slow too, and of the file system more than of the resolver.
const NOT_WITHOUT_OPENAT2: &[&str] =
    &["a_second_name_is_refused_however_old", "each_bound_of_a_budget", "no_list_outlives"];

#[test]
fn suite_passes_where_the_kernel_has_no_openat2() {
    beneath_kit::seccomp::rerun_without_openat2(Errno::NOSYS, &[NOT_AGAIN, NOT_WITHOUT_OPENAT2].concat());
}

#[test]
fn suite_passes_where_a_profile_forbids_openat2() {
    beneath_kit::seccomp::rerun_without_openat2(Errno::PERM, &[NOT_AGAIN, NOT_WITHOUT_OPENAT2].concat());
}
