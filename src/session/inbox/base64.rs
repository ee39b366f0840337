//! Attachments as base64: the standard alphabet, padded, and nothing else.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};

/// How many bytes a base64 text of this length is at least.
pub(super) fn decoded_length(text: &str) -> u64 {
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    ((text.len() / 4 * 3) as u64).saturating_sub(padding as u64)
}

pub(super) fn decode(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
            format!("is not base64 at byte {at}")
        }
        _ => "is not base64: its end is missing or wrongly padded".to_owned(),
    })
}
