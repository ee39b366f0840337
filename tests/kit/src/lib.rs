//! What the tests, benches, examples and fuzz targets share.
//!
//! | to | look at |
//! |---|---|
//! | add an operation, with its naive control | [`operations`], [`naive`] |
//! | add something a guest does in one step | [`strikes`], [`strikes::exchange`] |
//! | add an attack that a guest makes without end | [`race`] |
//! | compare sequences of operations with a tree in memory | [`model`] |
//! | say what an agent means by a path that it writes | [`spelling`] |
//! | let git, npm, python and cargo make a tree | [`tools`] |
//! | make a tree that no tool leaves, and a guest may | [`odd`] |
//! | compare two trees as those see them who work in them | [`likeness`] |
//! | write a test in a root with a canary beside it | [`arena`] |
//! | stop a call at each of its system calls | [`trace`], in a [`scene`] |
//! | take a call, a limit or a user away, or start a guest in bubblewrap | [`world`] |
//! | plant a journal beside a database | [`journal`] |
//! | write a rig: filter, seed, table, evidence | [`rig`] |
//! | measure ways of doing the same beside each other | [`bench`] |
//! | read an environment variable | [`env`] |

pub mod arena;
pub mod bench;
pub mod canary;
mod contender;
pub mod env;
pub mod journal;
pub mod likeness;
pub mod model;
pub mod naive;
pub mod odd;
pub mod operations;
pub mod race;
pub mod rig;
pub mod scene;
pub mod snapshot;
pub mod spelling;
pub mod strikes;
pub mod tools;
pub mod trace;
pub mod world;

use std::io::Write as _;

use beneath::{ErrorKind, Policy, ResolverChoice, Result, Root};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

pub use arena::Arena;
pub use contender::Contender;
pub use likeness::Likeness;
pub use operations::OPERATIONS;
pub use snapshot::Snapshot;
pub use world::namespace::{on_a_thread, thread_of_this_test};
pub use world::watchdog::within;
pub use world::{bwrap, child, fuse, namespace, seccomp, tree, watchdog};

/// Sets a flag when it goes, so that the threads of a test end with it, also if it fails.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a std::sync::atomic::AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Says on the real stdout, past the harness's capture, that a test did not run and why.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stdout().lock(), "skipped {name}: {reason}");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process may call `openat2` at all.
pub fn has_openat2() -> bool {
    rustix::fs::openat2(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())
        .is_ok()
}

/// The resolvers this process can be made to use.
pub fn resolvers() -> Vec<ResolverChoice> {
    if has_openat2() {
        vec![ResolverChoice::Openat2, ResolverChoice::Walk]
    } else {
        vec![ResolverChoice::Auto, ResolverChoice::Walk]
    }
}

/// Runs `body` once for each resolver, each time in a fresh arena that is verified afterwards.
pub fn for_each_resolver(body: impl Fn(&Root, &Arena)) {
    for_each_policy(&Policy::default(), body);
}

/// [`for_each_resolver`] with a policy other than the default.
pub fn for_each_policy(policy: &Policy, body: impl Fn(&Root, &Arena)) {
    for choice in resolvers() {
        println!("resolver: {choice:?}");
        let arena = Arena::new();
        let root = arena.open(policy.clone().with_resolver(choice));
        body(&root, &arena);
        arena.verify();
    }
}

/// The kind of the error, or a panic that shows what came back instead.
#[track_caller]
pub fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(value) => panic!("expected an error, got {value:?}"),
        Err(error) => error.kind(),
    }
}
