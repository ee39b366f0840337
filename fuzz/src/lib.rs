//! What the fuzz targets compare the crate with.
//!
//! `fuzz/run name` runs a target on the stable toolchain until it is stopped; options of libFuzzer may follow.

pub mod oracle;

use beneath::{ErrorKind, Result};

/// What the crate accepts, if the oracle does too; otherwise its refusal must be of this kind.
pub fn agreed<T: std::fmt::Debug>(got: Result<T>, fine: bool, refusal: ErrorKind) -> Option<T> {
    match &got {
        Ok(accepted) => assert!(fine, "accepted {accepted:?}"),
        Err(error) => {
            assert!(!fine, "{error}");
            assert_eq!(error.kind(), refusal);
            check_shown(error);
        }
    }
    got.ok()
}

/// The text of an error goes into one line of a log, and not much of it.
pub fn check_shown(error: &beneath::Error) {
    let shown = error.to_string();
    assert!(shown.len() < 8192 && !shown.contains(char::is_control), "{shown:?}");
}

/// The input with a thousand bytes of long components for each 0xFE, which UTF-8 never holds.
pub fn stretched(input: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = input.split(|byte| *byte == 0xfe).take(8).collect();
    parts.join(long_path(5).as_slice())
}

/// Components of 199 bytes, each with a slash: so short an input reaches the longest path.
pub fn long_path(components: usize) -> Vec<u8> {
    [b"x".repeat(199), b"/".to_vec()].concat().repeat(components)
}
