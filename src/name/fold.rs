//! Names that a file system may take for one.

/// Whether two names are one where case is folded.
#[cfg(any(feature = "session", feature = "artifacts"))]
pub(crate) fn is_folded(one: &str, other: &str) -> bool {
    let ascii = one.is_ascii() && other.is_ascii();
    one.eq_ignore_ascii_case(other) || (!ascii && fold(one) == fold(other))
}

/// What all names have in common that are one where case is folded.
pub(crate) fn fold(name: &str) -> String {
    // File systems take `ſ` for an s and the Kelvin sign for a k: the one shows in capitals, the other in small letters.
    name.to_uppercase().to_lowercase()
}
