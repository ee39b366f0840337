//! Attachments as base64.
//!
//! Problem: senders write base64 for URLs, without padding, in lines, and as `data:` URLs. A decoder that skips whatever it does not
//! know saves damaged data as if it were whole.
//!
//! Defence: the strict form is the standard alphabet, padded, and nothing else. The lenient one takes away what has a known meaning,
//! and is as strict with the rest.
//!
//! What remains: in lenient text a part that is missing at a multiple of four characters is not noticed. Compare the declared size.

use std::borrow::Cow;

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, PAD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};

use crate::session::handle::config::Base64;

const STRICT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PAD);
/// Padding is taken away before.
const UNPADDED: GeneralPurposeConfig = NO_PAD.with_decode_padding_mode(DecodePaddingMode::RequireNone);

/// How many bytes a base64 text of this length is at least, if all of it is content.
pub(super) fn decoded_length(text: &str, forms: Base64) -> u64 {
    let digits = match forms {
        Base64::Strict => text.len() - text.bytes().rev().take(2).filter(|byte| *byte == b'=').count(),
        Base64::Lenient => content(text).bytes().filter(|byte| !is_blank(*byte) && *byte != b'=').count(),
    };
    (digits / 4 * 3 + (digits % 4).saturating_sub(1)) as u64
}

pub(super) fn decode(text: &str, forms: Base64) -> Result<Vec<u8>, String> {
    let decoded = match forms {
        Base64::Strict => STRICT.decode(text),
        Base64::Lenient => {
            let text = without_blanks(content(text));
            let digits = text.trim_end_matches('=');
            // It fills the last group of four, or less; a group that is whole needs none.
            let lacking = digits.len().wrapping_neg() % 4;
            if text.len() - digits.len() > lacking {
                return Err("is not base64: its end is wrongly padded".to_owned());
            }
            let is_for_urls = digits.contains(['-', '_']);
            let alphabet = if is_for_urls { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
            GeneralPurpose::new(alphabet, UNPADDED).decode(digits)
        }
    };
    decoded.map_err(|error| match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
            format!("is not base64 at byte {at}")
        }
        _ => "is not base64: its end is missing or wrongly padded".to_owned(),
    })
}

/// What follows the comma of a `data:` URL that says it is base64; any other text is all content.
fn content(text: &str) -> &str {
    let text = text.trim_ascii_start();
    let is_data = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    match text.split_once(',') {
        Some((head, content)) if is_data && is_base64(head) => content,
        _ => text,
    }
}

fn is_base64(head: &str) -> bool {
    head.rsplit_once(';').is_some_and(|(_, last)| last.trim().eq_ignore_ascii_case("base64"))
}

fn without_blanks(text: &str) -> Cow<'_, str> {
    match text.bytes().any(is_blank) {
        true => text.chars().filter(|character| !character.is_ascii_whitespace()).collect(),
        false => text.into(),
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &[u8] = &[0xfb, 0xff, 0xbf, b'a'];

    #[test]
    fn lenient_reads_every_usual_form_and_strict_only_its_own() {
        let forms = [
            ("+/+/YQ==", true),
            ("-_-_YQ==", false),
            ("+/+/YQ", false),
            ("+/+/YQ=", false),
            ("-_-_YQ", false),
            (" +/+/\r\n YQ==\n", false),
            ("data:image/png;base64,+/+/YQ==", false),
            ("DATA:text/plain;charset=utf-8;BASE64,-_-_\nYQ", false),
            ("data:;base64,+/+/YQ==", false),
        ];
        for (text, strict) in forms {
            assert_eq!(decode(text, Base64::Lenient).as_deref(), Ok(BYTES), "{text:?}");
            assert_eq!(decode(text, Base64::Strict).is_ok(), strict, "{text:?}");
            assert_eq!(decoded_length(text, Base64::Lenient), 4, "{text:?}");
        }
        assert_eq!(decode("", Base64::Lenient), Ok(Vec::new()));
        assert_eq!(decode("data:;base64,", Base64::Lenient), Ok(Vec::new()));
    }

    #[test]
    fn lenient_refuses_what_is_damaged() {
        let damaged = [
            "+/-_",
            "YQ==YQ==",
            "Y",
            "YWJjY",
            "====",
            "YQ===",
            "YWJj=",
            "YWI==",
            "YR==",
            "YQ!=",
            "data:text/plain,hello",
            "data:text/plain;base64",
            "\u{a0}YQ==",
            "=YQ",
        ];
        for text in damaged {
            assert!(decode(text, Base64::Lenient).is_err(), "{text:?}");
        }
    }
}
