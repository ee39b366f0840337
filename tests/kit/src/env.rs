//! Every environment variable that a test, bench, example or fuzz target reads.
//!
//! A test compares the tables with the sources and with `docs/HACKING.md`.

use std::ffi::OsString;

/// A variable that a person may set.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub name: &'static str,
    pub meaning: &'static str,
    pub default: &'static str,
}

impl Variable {
    pub fn is_set(&self) -> bool {
        std::env::var_os(self.name).is_some()
    }

    pub fn value(&self) -> Option<OsString> {
        std::env::var_os(self.name)
    }

    pub fn text(&self) -> Option<String> {
        std::env::var(self.name).ok()
    }

    /// The value as a number.
    ///
    /// # Panics
    /// If it is set to something else: a run that was asked for must not be another one.
    pub fn number<N: std::str::FromStr>(&self) -> Option<N> {
        let text = self.text()?;
        match text.trim().parse() {
            Ok(number) => Some(number),
            Err(_) => panic!("{}={text} is not a number", self.name),
        }
    }
}

/// Constants, and the table of them all.
macro_rules! variables {
    ($($constant:ident = $name:literal, $meaning:literal, $default:literal;)*) => {
        $(pub const $constant: Variable = Variable { name: $name, meaning: $meaning, default: $default };)*
        pub const VARIABLES: &[Variable] = &[$($constant),*];
    };
}

variables! {
    FULL = "BENEATH_TEST_FULL", "every single strike, every kill, every transition, 100,000 images and flips instead of a sample, and a sample of double strikes", "unset";
    SAMPLE = "BENEATH_SAMPLE", "how many pairs of a row the steppers and the faults play", "8 in step, 40 in session_step, 12 in faults";
    SEED = "BENEATH_SEED", "the number that samples and guests draw from; every run prints its own", "1";
    VERBOSE = "BENEATH_VERBOSE", "print the calls and verdicts behind each row", "unset";
    EVIDENCE = "BENEATH_EVIDENCE", "where rigs write their tables; a run of some rows only writes if this is set", "target/evidence";
    BLESS = "BENEATH_BLESS", "let the test of the modules write `docs/modules.md` anew", "unset";
    RACE_OPS = "BENEATH_RACE_OPS", "calls per kind of race and resolver, shared among the kind's operations", "4000, 1500 where names are counted, 1000 for sessions";
    RACE_KIND = "BENEATH_RACE_KIND", "run only the races whose name contains the text", "all";
    RACE_DIR = "BENEATH_RACE_DIR", "where races are run", "/dev/shm, or where temporary files go";
    MOUNT_OPS = "BENEATH_MOUNT_OPS", "grants while a component of the base is exchanged", "4000";
    QUEUE_NAMES = "BENEATH_QUEUE_NAMES", "names in the directory of requests that a poll meets", "20000";
    QUEUE_WAKES = "BENEATH_QUEUE_WAKES", "requests that are submitted one after the other, none of which may wait for the timer", "2000";
    SCALE = "BENEATH_SCALE", "remove trees of a million levels and entries, or of this fraction of it", "unset: skipped";
    SCALING = "BENEATH_SCALING", "the sizes of the scaling bench, as a fraction, no less than 0.1, of a million entries, 100,000 objects, and 10,000 sessions and messages", "1";
    FILESYSTEMS = "BENEATH_FILESYSTEMS", "run the contract on file systems mounted for the purpose: 1 for all, or names with commas", "unset: skipped";
    REAL_TREE = "BENEATH_REAL_TREE", "let the tests of real trees fail where a tool or the network is missing", "unset: skipped";
    BRIDGE = "BENEATH_BRIDGE", "let the tests of the bridge fail where bwrap or curl is missing", "unset: skipped";
    HISTORIES = "BENEATH_HISTORIES", "how many histories the simulation of two hosts and a store plays; if it is set, evidence is written", "300";
    HISTORIES_TWICE = "BENEATH_HISTORIES_TWICE", "how many of the histories are played twice and compared line by line", "60";
    SIM_THREADS = "BENEATH_SIM_THREADS", "how many histories are played at the same time", "1";
    KILLS = "BENEATH_KILLS", "how often a mirror or restore is killed", "15, or 100 in full";
    FULL_SIZE = "BENEATH_FULL_SIZE", "measure the memory of transfers of the full size", "unset: smaller files";
    STORES = "BENEATH_STORES", "where the servers of object stores are, as `.ci/run stores` installs them", "target/stores";
    BENCH_MESSAGES = "BENEATH_BENCH_MESSAGES", "messages of a round in the benches of sessions, mailboxes and the queue", "1000, 100 in sessions";
    BENCH_ROUNDS = "BENEATH_BENCH_ROUNDS", "rounds of a bench at least; it goes on until they have lasted 130 ms each", "15";
    FUZZ_NAIVE = "BENEATH_FUZZ_NAIVE", "let the fuzz target of the operations read by path, which it must notice at once", "unset";
}

/// Variables by which a test instructs the child that it starts; nobody sets them by hand. Names that end in `_` mean all
/// that begin so.
pub const OF_CHILDREN: &[&str] = &[
    "BENEATH_TEST_CHILD",
    "BENEATH_TEST_RERUN",
    "BENEATH_TEST_PLACE",
    "BENEATH_TEST_SEALED",
    "BENEATH_TEST_RESOLVER",
    "BENEATH_TEST_UMASK",
    "BENEATH_TEST_FEW_DESCRIPTORS",
    "BENEATH_KILL_",
    "BENEATH_EVENTS_CHILD",
    "BENEATH_MESSAGE_CHILD",
    "BENEATH_MEMORY_CHILD",
    "BENEATH_PARSE_CHILD",
    "BENEATH_BUDGET_CHILD",
    "BENEATH_CREDENTIALS_CHILD",
];
