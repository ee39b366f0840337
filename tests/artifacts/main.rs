//! Artifacts against real stores: in memory, a directory, moto and SeaweedFS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod answers;
mod bucket;
mod budget;
mod bundle;
mod choices;
mod clouds;
mod conditions;
mod conformance;
mod credentials;
mod dead_ends;
mod deletes;
mod faithful;
mod faults;
#[cfg(feature = "patterns")]
mod filter;
mod findings;
mod flaws;
mod guard;
mod http;
mod kept;
mod keys;
mod kill;
mod memory;
mod mirror;
mod naive;
mod origin;
mod parse;
mod race;
mod readers;
mod real_tree;
mod reports;
mod restore;
mod resume;
mod send;
mod servers;
mod support;
mod transitions;
mod trust;
mod unsent;
mod upload;

use beneath_kit::skip;
