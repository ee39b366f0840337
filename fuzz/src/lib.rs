//! What the fuzz targets compare the crate with.
//!
//! A target runs on the stable toolchain with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run -s none name fuzz/corpus/name fuzz/seeds/name -- -dict=fuzz/name.dict`; `path` and `ops`
//! likewise.

pub mod oracle;
pub mod tree;
