//! What the fuzz targets compare the crate with.
//!
//! `fuzz/run name` runs a target on the stable toolchain until it is stopped; options of libFuzzer may follow.

pub mod oracle;
