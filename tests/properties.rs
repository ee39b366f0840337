//! Sequences of operations against a model tree that lives in memory: same answers, same tree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use beneath::{HardLinks, Policy, Root, ambient_authority};
use beneath_kit::model::{Model, Mutation};
use beneath_kit::operations::{RENAME_SOURCE, Task};
use beneath_kit::rig::seed;
use beneath_kit::{Arena, OPERATIONS, resolvers};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// What the file outside holds.
const SECRET: &[u8] = b"SECRET";

#[derive(Clone, Debug)]
enum Step {
    /// An operation, by its place in the table.
    Host(usize, PathBuf, PathBuf, Vec<u8>),
    Guest(Mutation, PathBuf, PathBuf, u8),
    /// A new file that is written and not committed.
    Abandon(PathBuf, Vec<u8>),
}

fn path() -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "é"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.into_iter().collect())
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    let host = (0..OPERATIONS.len(), path(), path(), bytes.clone());
    let guest = (prop::sample::select(Mutation::ALL.to_vec()), path(), path(), any::<u8>());
    prop_oneof![
        8 => host.prop_map(|(operation, path, other, data)| Step::Host(operation, path, other, data)),
        3 => guest.prop_map(|(mutation, from, to, byte)| Step::Guest(mutation, from, to, byte)),
        1 => (path(), bytes).prop_map(|(path, data)| Step::Abandon(path, data)),
    ]
}

/// Takes the steps on a tree and on its model, and compares the answers and the outcome.
fn agrees_with_the_model(steps: &[Step], policy: &Policy) {
    let arena = Arena::quick();
    let root = arena.open(policy.clone());
    let secret = arena.beside("outside").join("secret");
    std::fs::create_dir_all(secret.with_file_name("sub")).unwrap();
    std::fs::write(&secret, SECRET).unwrap();
    let mut model = Model::new(SECRET, policy.hard_links());
    for step in steps {
        match step {
            Step::Host(operation, path, other, data) => {
                // Made anew: what was moved there has a name that the next may want.
                let place = tempfile::tempdir_in(arena.beside("outside")).unwrap();
                let host = Root::open_ambient(place.path(), ambient_authority()).unwrap();
                model.agree(&OPERATIONS[*operation], &Task { root: &root, path, data, host: &host, other });
            }
            Step::Guest(mutation, from, to, byte) => {
                model.mutate(*mutation, &arena.root(), &secret, from, to, *byte);
            }
            Step::Abandon(path, data) => model.abandon(&root, path, data),
        }
    }
    model.compare(&root, &arena.root());
    assert_eq!(std::fs::read(secret).unwrap(), SECRET);
    arena.verify();
}

fn cases(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(seed::of_properties());
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn any_sequence_agrees_with_the_model(steps in prop::collection::vec(step(), 1..40), allow in any::<bool>()) {
        let hard_links = if allow { HardLinks::Allow } else { HardLinks::Refuse };
        for choice in resolvers() {
            agrees_with_the_model(&steps, &Policy::default().with_resolver(choice).with_hard_links(hard_links));
        }
    }

    #[test]
    fn no_bytes_as_a_path_panic_or_escape(raw in prop::collection::vec(any::<u8>(), 0..40)) {
        let arena = Arena::quick();
        let path = Path::new(OsStr::from_bytes(&raw));
        for choice in resolvers() {
            let root = arena.open(Policy::default().with_resolver(choice));
            for op in OPERATIONS {
                let _ = op.run_on(&root, path);
            }
        }
        arena.verify();
    }

    #[test]
    fn no_path_made_of_traps_escapes(
        parts in prop::collection::vec(
            prop::sample::select(vec!["a", "..", ".", "", "out", "rel", "loop", "/", "secret", "sub", "\0"]),
            0..6,
        )
    ) {
        let raw = parts.join("/");
        for choice in resolvers() {
            let arena = Arena::quick();
            arena.dir("a").link("out", arena.outside()).link("rel", "../outside").link("a/rel", "../../outside");
            arena.link("loop", "loop").link("a/out", arena.outside()).file(RENAME_SOURCE, "");
            let root = arena.open(Policy::default().with_resolver(choice));
            for op in OPERATIONS {
                let _ = op.run_on(&root, &raw);
            }
            arena.verify();
        }
    }
}
