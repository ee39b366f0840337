//! The number that a property test draws its cases from.

use std::hash::{BuildHasher as _, RandomState};

use crate::env;

/// The seed that is asked for, or one that nobody chose; printed, so that a failure shows which it was.
pub fn of_properties() -> u64 {
    let seed = env::SEED.number().unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    println!("{}={seed}", env::SEED.name);
    seed
}
