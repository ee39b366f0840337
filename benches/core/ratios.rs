//! The core beside plain `std`, the bare syscalls, and what else there is, in turns: `cargo bench --bench ratios`.
//!
//! Words after `--` choose works by their titles. `-- --readme` writes the table of the README and its plot from
//! `docs/evidence/ratios.md`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a program for people"
)]

mod work;

use std::process::ExitCode;

use beneath_kit::bench::{self, Place, readme};

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--readme") {
        return readme::write();
    }
    bench::main("ratios", Place::all, work::WORKS)
}
