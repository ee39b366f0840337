//! Mending a name, for callers who would rather keep a file than refuse it.

use super::rules::{NAME_MAX, SafeName, check_name, device, rule_broken_by};

impl SafeName {
    /// Turns any text into a name that [`safe_name`](crate::safe_name) accepts.
    ///
    /// A safe name stays as it is. In any other, invisible and control characters go, line breaks and tabs become
    /// spaces, the parts of a path are joined by `_` without its dot entries, reserved characters become `_`, blanks
    /// and dots at the end go, and a leading dot or a device name gets a `_` in front. What is too long is cut
    /// between characters, before the extension if there is room for one. If nothing is left the name is `file`.
    ///
    /// Repairing twice changes nothing more. Two different texts may give one name: create exclusively, and try
    /// [`SafeName::numbered`] when it is taken.
    ///
    /// ```
    /// use beneath::SafeName;
    ///
    /// assert_eq!(SafeName::repair("../../invoice:3.pdf").as_str(), "invoice_3.pdf");
    /// assert_eq!(SafeName::repair("photo\u{202e}gnp.exe").as_str(), "photognp.exe");
    /// assert_eq!(SafeName::repair(".mcp.json").as_str(), "_.mcp.json");
    /// assert_eq!(SafeName::repair("..").as_str(), "file");
    /// ```
    #[must_use]
    pub fn repair<S: AsRef<[u8]> + ?Sized>(raw: &S) -> Self {
        Self::salvage(raw.as_ref()).unwrap_or_else(|| Self::built("file".to_owned()))
    }

    /// What [`SafeName::repair`] gives, or `None` if nothing of `raw` is left.
    pub(super) fn salvage(raw: &[u8]) -> Option<Self> {
        if let Ok(name) = check_name(raw) {
            return Some(Self::built(name.to_owned()));
        }
        let name = joined(&seen(&String::from_utf8_lossy(raw)));
        let name = name.trim_end_matches(is_blank_or_dot);
        let shown = name.trim_start_matches(is_blank_or_dot);
        if shown.is_empty() {
            return None;
        }
        let hidden = name.strip_suffix(shown).is_some_and(|start| start.contains('.'));
        let name = cut(if hidden { format!("_.{shown}") } else { shown.to_owned() });
        // Cutting may also leave a device name, so look only now; what starts with `_` is none.
        let name = if device(&name).is_some() { cut(format!("_{name}")) } else { name };
        Some(Self::built(name))
    }
}

/// `raw` without what cannot be seen, in which every space that breaks a line is a plain one.
fn seen(raw: &str) -> String {
    let seen = |character: char| match character {
        '/' | '\\' => Some(character),
        _ if rule_broken_by(character).is_none() => Some(character),
        _ if character.is_whitespace() => Some(' '),
        '<' | '>' | ':' | '"' | '|' | '?' | '*' => Some('_'),
        _ => None,
    };
    raw.chars().filter_map(seen).collect()
}

/// The parts of a path as one name.
fn joined(path: &str) -> String {
    let is_part = |part: &&str| !part.chars().all(is_blank_or_dot);
    path.split(['/', '\\']).filter(is_part).collect::<Vec<_>>().join("_")
}

fn is_blank_or_dot(character: char) -> bool {
    character == '.' || character.is_whitespace()
}

/// `name`, at most 255 bytes long; the extension survives if at least one byte stays free before it.
fn cut(name: String) -> String {
    if name.len() <= NAME_MAX {
        return name;
    }
    if let Some((stem, extension)) = name.rsplit_once('.')
        && let Some(room) = NAME_MAX.checked_sub(extension.len() + 1).filter(|room| *room > 0)
    {
        let stem = match start(stem, room) {
            "" => "_",
            stem => stem,
        };
        return format!("{stem}.{extension}");
    }
    start(&name, NAME_MAX).trim_end_matches(is_blank_or_dot).to_owned()
}

/// The longest start of `text` that is whole characters and at most `room` bytes.
pub(super) fn start(text: &str, room: usize) -> &str {
    (0..=room.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or(text)
}
