//! The name that an attachment is saved under.

use crate::name::{AttachmentHint, SafeName, SafePath};
use crate::session::handle::config::Dotfiles;

/// What [`SafeName::repair`] puts before a name that starts with a dot.
const SHOWN: &str = "_.";
/// The start of the host's own names.
const OWN: &str = "beneath-";

/// The name of the attachment at position `index` of its message.
pub(super) fn name(hint: AttachmentHint<'_>, index: usize, dotfiles: Dotfiles) -> SafePath {
    let name = hint.to_name(index);
    let had_dot = hint.name.is_some_and(|raw| !raw.contains(SHOWN));
    match (dotfiles, name.as_str().strip_prefix(SHOWN)) {
        (Dotfiles::Keep, Some(rest)) if had_dot && !rest.starts_with(OWN) => dotted(rest, name.clone()),
        _ => name.into(),
    }
}

/// The `n`-th name to try for one file; see [`SafeName::numbered`].
pub(super) fn numbered(name: &SafePath, n: u32) -> SafePath {
    let (rest, has_dot) = match name.as_str().strip_prefix('.') {
        Some(rest) => (rest, true),
        None => (name.as_str(), false),
    };
    let numbered = SafeName::repair(rest).numbered(n);
    match has_dot {
        _ if n < 2 => name.clone(),
        true => dotted(numbered.as_str(), numbered.clone()),
        false => numbered.into(),
    }
}

/// `rest` after a dot, or the other name if that is too long.
fn dotted(rest: &str, other: SafeName) -> SafePath {
    SafePath::new(&format!(".{rest}")).unwrap_or_else(|_| other.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_is_kept_only_if_asked_and_only_where_the_sender_wrote_one() {
        let longest = format!(".{}", "x".repeat(300));
        let cases = [
            (".gitignore", "_.gitignore", ".gitignore"),
            ("../../.env", "_.env", ".env"),
            (".env:prod", "_.env_prod", ".env_prod"),
            (".beneath-0", "_.beneath-0", "_.beneath-0"),
            ("_.x", "_.x", "_.x"),
            ("..", "attachment-7", "attachment-7"),
            ("con", "_con", "_con"),
            ("a.b", "a.b", "a.b"),
        ];
        let name_of = |raw: &str, dotfiles| {
            let hint = AttachmentHint { name: Some(raw), ..AttachmentHint::default() };
            name(hint, 7, dotfiles)
        };
        for (raw, shown, kept) in cases {
            let names = [Dotfiles::Show, Dotfiles::Keep].map(|dotfiles| name_of(raw, dotfiles));
            assert_eq!(names.each_ref().map(SafePath::as_str), [shown, kept], "{raw}");
        }
        let name = name_of(&longest, Dotfiles::Keep);
        assert!(name.as_str().starts_with('.') && name.as_str().len() < 256);
        assert_eq!(numbered(&name_of(".env.local", Dotfiles::Keep), 2).as_str(), ".env-2.local");
        assert_eq!(numbered(&name_of(".env", Dotfiles::Keep), 1).as_str(), ".env");
        assert_ne!(numbered(&name, 2), numbered(&name, 3));
    }
}
