//! The suite on sealed roots: by root, and by a user who is root in namespaces of its own.

use beneath_kit::arena::SEALED;
use beneath_kit::child::{rerun, rerun_as_root_of_a_namespace};
use beneath_kit::namespace::with_private_mounts;
use beneath_kit::{has_openat2, skip};

/// Tests of what is different on a sealed root, which `tests/sealed.rs` has, or that cannot seal.
const NOT_SEALED: &[&str] = &[
    "following_",                         // no link is followed
    "a_file_behind_a_link_is_proven",     // likewise
    "where_paths_may_go_through_them",    // likewise
    "the_last_link_is_not_followed_even", // likewise
    "class_n_mounts",                     // a mount inside is not seen
    "show_a_mount_without_entering_it",   // likewise
    "mounts_are_refused",                 // likewise
    "mounts_can_be_crossed",              // likewise
    "without_a_usable_proc",              // without it nothing can be sealed
    "a_lying_proc",                       // likewise
    "does_not_open_what",                 // devices are dead, so a file is opened at once
    "a_full_disk",                        // there is no room for the seat
];

/// Tests that give files to another user.
const NOT_AS_THE_ONLY_USER: &[&str] = &[
    "a_shared_group_reaches",
    "an_owner_that_is_right_already",
    "belongs_to_whom_the_policy",
    "a_link_gets_the_owner",
    "owner_and_group_are_set",
    "an_entry_of_another_owner",
];

#[test]
fn suite_passes_on_sealed_roots() {
    if !has_openat2() {
        return skip("the run with openat2 shows this");
    }
    with_private_mounts(|| {
        rerun("sealed", &[crate::NOT_AGAIN, NOT_SEALED].concat(), |command| {
            command.env(SEALED, "1");
        });
    });
}

#[test]
fn suite_passes_on_sealed_roots_of_a_user_namespace() {
    if !has_openat2() {
        return skip("the run with openat2 shows this");
    }
    let except = [crate::NOT_AGAIN, NOT_SEALED, NOT_AS_THE_ONLY_USER].concat();
    rerun_as_root_of_a_namespace("sealed in a user namespace", &except, |command| {
        command.env(SEALED, "1");
    });
}

#[test]
fn an_arena_is_sealed_where_a_run_asks_for_it() {
    let asked = std::env::var_os(SEALED).is_some();
    beneath_kit::for_each_resolver(|root, arena| {
        let enforced = root.enforced().unwrap();
        assert_eq!(enforced.nosymfollow && enforced.detached, asked, "{enforced:?}");
        let beneath = arena.dir("d").open(root.policy().clone()).descend("d").unwrap();
        assert_eq!(beneath.enforced().unwrap(), enforced);
    });
}
