//! Ids that others chose, as one directory name each.
//!
//! Problem: a message must not be lost because its id holds a slash, and no two ids may share a directory.
//! Defence: an id that is a safe name stays as it is; any other becomes
//!
//! ```text
//! spaces-AAA-messages-B-B~40ed6fb46fab0db76d241a74a614df8f
//! ```
//!
//! a slug for people, a tilde, and the first 128 bits of the id's SHA-256. A safe id that ends like that is mapped
//! too, so what is on disk shows which of the two it is, and a guest cannot choose an id that is another's directory.
//! What remains: finding two ids with the same 128 bits, which takes some 2⁶⁴ attempts and the same slug.

use sha2::{Digest as _, Sha256};

use crate::entropy::hex;
use crate::error::{ErrorKind, Result};
use crate::name::rules::{Breach, SafeName, check_name, safe_name};

/// Separates slug and digest; no slug and no digest holds it.
const MARK: char = '~';

/// Hexadecimal digits of the digest that are kept.
const DIGITS: usize = 32;

/// Longest slug in bytes.
const SLUG_MAX: usize = 80;

/// The one component for `raw`.
pub(super) fn component(raw: &[u8]) -> SafeName {
    match check_name(raw) {
        Ok(name) if split_mapped(name).is_none() => SafeName::built(name.to_owned()),
        _ => {
            let digest = hex(Sha256::digest(raw).into_iter().take(DIGITS / 2));
            SafeName::built(format!("{}{MARK}{digest}", slug(&String::from_utf8_lossy(raw))))
        }
    }
}

/// Reads back what [`component`] gave.
pub(super) fn parse(name: &str) -> Result<SafeName> {
    let safe = safe_name(name)?;
    match split_mapped(name) {
        None => Ok(safe),
        Some((start, digest))
            if slug(start) == start && !digest.contains(|c: char| c.is_ascii_uppercase()) =>
        {
            Ok(safe)
        }
        Some((start, _)) => Err(Breach::new("has the tail of a mapped id but not its form", "", start.len())
            .into_error("check id", name.as_bytes(), ErrorKind::InvalidName)),
    }
}

/// Slug and digest of a name that ends as mapped ids do, in either case of its digits.
pub(super) fn split_mapped(name: &str) -> Option<(&str, &str)> {
    let (start, digest) = name.rsplit_once(MARK)?;
    let is_digest = digest.len() == DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some((start, digest))
}

/// What people recognise of `raw`: ASCII letters, digits and `_`, with one `-` for each run of anything else.
///
/// It holds no dot, so that the first part of a mapped id is never a device name. The slug of a slug is itself.
fn slug(raw: &str) -> String {
    let mut slug = String::new();
    for character in raw.chars() {
        if slug.len() == SLUG_MAX {
            break;
        }
        if character.is_ascii_alphanumeric() || character == '_' {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    match slug.trim_end_matches('-') {
        "" => "id".to_owned(),
        slug => slug.to_owned(),
    }
}
