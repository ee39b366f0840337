//! What a single name may be.
//!
//! Problem: a name that a guest chose ends up in system calls, quoted headers, log lines, prompts, and on other people's
//! machines.
//!
//! Defence: everything that changes meaning on one of those ways is refused, and the error says which rule it broke.
//!
//! What remains: letters that merely look like other letters, and names that mean something to a program that parses its
//! arguments: `-rf`, `~root`, `$(id)`.

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::str::FromStr;

use camino::Utf8Path;

use crate::error::{Error, ErrorKind, Result, escaped};

/// Longest name, in bytes, that Linux file systems take.
pub(super) const NAME_MAX: usize = 255;

/// Longest run of a refused text that its error keeps.
const SUBJECT_MAX: usize = 4096;

/// One file name: a safe component of a path, on this system and on others, that shows what it is.
///
/// It is one component of valid UTF-8, from 1 to 255 bytes long, and
///
/// * is not `.` or `..`, and neither starts nor ends with a dot;
/// * holds none of `/ \ < > : " | ? *`;
/// * holds no control character (C0, DEL, C1), no line or paragraph separator, no bidirectional control, and nothing
///   else that is there but not seen: zero-width and other default-ignorable characters, tags, annotation marks,
///   blanks that are no white space (braille, Egyptian, U+FFFC), noncharacters. Only U+FE0F, which asks for the emoji
///   form, is allowed;
/// * neither starts nor ends with Unicode white space;
/// * is no Windows device, with or without an extension, in any case: `nul`, `Com1.txt`, `LPT³`, `CONIN$`.
///
/// Spaces, punctuation, emoji, any script, and accents in either normal form are fine.
///
/// It is a safe component and not a safe argument: `-rf`, `--checkpoint-action=exec=sh x`, `~root` and `$(id)` are such
/// names. Pass a name to a program as `./name` or after `--`, never through a shell, and not where the program expands
/// patterns or formats.
///
/// ```
/// use beneath::SafeName;
///
/// let name: SafeName = "O'Brien – résumé (2).pdf".parse()?;
/// assert_eq!(name.stem(), "O'Brien – résumé (2)");
/// assert_eq!(name.extension(), Some("pdf"));
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "String"))]
pub struct SafeName(String);

/// Accepts `raw` as a file name, or says which rule it breaks.
///
/// The rules are those of [`SafeName`]: a safe component, not a safe shell argument. Nothing is changed: what is accepted is byte for byte what was given.
///
/// # Errors
/// [`ErrorKind::InvalidName`]; the message names the rule and the byte offset.
///
/// ```
/// use beneath::{ErrorKind, safe_name};
///
/// assert_eq!(safe_name("plan.md")?.as_str(), "plan.md");
///
/// let error = safe_name("../plan.md").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidName);
/// assert_eq!(error.to_string(), r#"check name "../plan.md": holds the reserved character "/" at byte 2"#);
/// # Ok::<(), beneath::Error>(())
/// ```
pub fn safe_name<S: AsRef<[u8]> + ?Sized>(raw: &S) -> Result<SafeName> {
    let raw = raw.as_ref();
    match check_name(raw) {
        Ok(name) => Ok(SafeName(name.to_owned())),
        Err(breach) => Err(breach.into_error("check name", raw, ErrorKind::InvalidName)),
    }
}

impl SafeName {
    /// Accepts `raw` as a file name; the same as [`safe_name`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; the message names the rule and the byte offset.
    ///
    /// ```
    /// use beneath::SafeName;
    ///
    /// assert!(SafeName::new("notes.txt").is_ok());
    /// assert!(SafeName::new(b"\xff.txt").is_err());
    /// ```
    pub fn new<S: AsRef<[u8]> + ?Sized>(raw: &S) -> Result<Self> {
        safe_name(raw)
    }

    /// Takes text that the caller built so that it follows the rules.
    pub(super) fn built(name: String) -> Self {
        debug_assert!(check_name(name.as_bytes()).is_ok(), "{name:?} breaks a name rule");
        Self(name)
    }

    /// The name as text.
    ///
    /// ```
    /// assert_eq!(beneath::safe_name("a.txt")?.as_str(), "a.txt");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What follows the last dot, if there is one.
    ///
    /// ```
    /// assert_eq!(beneath::safe_name("a.tar.gz")?.extension(), Some("gz"));
    /// assert_eq!(beneath::safe_name("README")?.extension(), None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        self.0.rsplit_once('.').map(|(_, extension)| extension)
    }

    /// What precedes the last dot, or the whole name.
    ///
    /// ```
    /// assert_eq!(beneath::safe_name("a.tar.gz")?.stem(), "a.tar");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn stem(&self) -> &str {
        self.0.rsplit_once('.').map_or(&self.0, |(stem, _)| stem)
    }
}

impl fmt::Display for SafeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for SafeName {
    type Err = Error;

    fn from_str(raw: &str) -> Result<Self> {
        safe_name(raw)
    }
}

impl TryFrom<&str> for SafeName {
    type Error = Error;

    fn try_from(raw: &str) -> Result<Self> {
        safe_name(raw)
    }
}

impl TryFrom<String> for SafeName {
    type Error = Error;

    fn try_from(raw: String) -> Result<Self> {
        safe_name(&raw)
    }
}

impl From<SafeName> for String {
    fn from(name: SafeName) -> Self {
        name.0
    }
}

impl Borrow<str> for SafeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SafeName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl AsRef<OsStr> for SafeName {
    fn as_ref(&self) -> &OsStr {
        self.0.as_ref()
    }
}

impl AsRef<Path> for SafeName {
    fn as_ref(&self) -> &Path {
        self.0.as_ref()
    }
}

impl AsRef<Utf8Path> for SafeName {
    fn as_ref(&self) -> &Utf8Path {
        self.0.as_ref()
    }
}

/// A rule that a text breaks, with the part that breaks it and where that part starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breach<'a> {
    pub(super) rule: &'static str,
    pub(super) part: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Breach<'a> {
    pub(super) fn new(rule: &'static str, part: &'a (impl AsRef<[u8]> + ?Sized), at: usize) -> Self {
        Self { rule, part: part.as_ref(), at }
    }

    /// The same breach in a longer text, in which this one starts at `offset`.
    pub(super) fn shifted(self, offset: usize) -> Self {
        Self { at: self.at + offset, ..self }
    }

    pub(super) fn into_error(self, operation: &'static str, raw: &[u8], kind: ErrorKind) -> Error {
        refused(operation, raw, kind, self.to_string())
    }
}

pub(super) fn refused(operation: &'static str, raw: &[u8], kind: ErrorKind, why: String) -> Error {
    // The text may be of any length, and errors are kept in reports.
    let subject = OsStr::from_bytes(raw.get(..SUBJECT_MAX).unwrap_or(raw));
    Error::new(operation, subject, kind).with_detail(why)
}

impl fmt::Display for Breach<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule)?;
        if !self.part.is_empty() {
            write!(f, " {}", escaped(self.part))?;
        }
        write!(f, " at byte {}", self.at)
    }
}

/// The rules for a whole name.
pub(super) fn check_name(raw: &[u8]) -> Result<&str, Breach<'_>> {
    let name = check_component(raw)?;
    if name.starts_with('.') {
        return Err(Breach::new("starts with a dot", "", 0));
    }
    Ok(name)
}

/// The rules for one component of a path: those for a name, but a leading dot is allowed.
pub(super) fn check_component(raw: &[u8]) -> Result<&str, Breach<'_>> {
    if raw.is_empty() {
        return Err(Breach::new("is empty", "", 0));
    }
    if raw.len() > NAME_MAX {
        return Err(Breach::new("is longer than 255 bytes", "", NAME_MAX));
    }
    let name = str::from_utf8(raw).map_err(|error| {
        let (_, bad) = raw.split_at_checked(error.valid_up_to()).unwrap_or_default();
        Breach::new("is not UTF-8", bad, error.valid_up_to())
    })?;
    if name == "." || name == ".." {
        return Err(Breach::new("is the dot entry", name, 0));
    }
    let plain = raw.iter().take_while(|byte| is_plain(**byte)).count();
    for (at, character) in name.get(plain..).unwrap_or_default().char_indices() {
        if let Some(rule) = rule_broken_by(character) {
            let at = plain + at;
            let part = name.get(at..at + character.len_utf8()).unwrap_or_default();
            return Err(Breach::new(rule, part, at));
        }
    }
    if name.starts_with(char::is_whitespace) {
        return Err(Breach::new("starts with white space", "", 0));
    }
    let trimmed = name.trim_end();
    if trimmed.len() < name.len() {
        return Err(Breach::new("ends with white space", "", trimmed.len()));
    }
    if name.ends_with('.') {
        return Err(Breach::new("ends with a dot", "", name.len() - 1));
    }
    match device(name) {
        Some(device) => Err(Breach::new("is the device", device, 0)),
        None => Ok(name),
    }
}

/// Whether `byte` is a character of ASCII that no rule forbids, wherever it is.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
        && !matches!(byte, b'/' | b'\\' | b'<' | b'>' | b':' | b'"' | b'|' | b'?' | b'*')
}

/// The rule that `character` breaks, wherever it is.
pub(super) fn rule_broken_by(character: char) -> Option<&'static str> {
    match character {
        '/' | '\\' | '<' | '>' | ':' | '"' | '|' | '?' | '*' => Some("holds the reserved character"),
        '\u{2028}' | '\u{2029}' => Some("holds the line separator"),
        _ if character.is_control() => Some("holds the control character"),
        _ if is_hidden(character) => Some("holds the invisible character"),
        _ => None,
    }
}

/// Whether `character` is part of a text without being seen in it.
///
/// By property these are: `Default_Ignorable_Code_Point` but U+FE0F; the format characters (`Cf`) that it
/// leaves out and that show nothing, which are the interlinear annotation marks and the layout controls of Egyptian, but
/// not those with `Prepended_Concatenation_Mark`, such as U+0600; and the noncharacters. No property says which graphic
/// characters are blank.
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}'
        | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        | '\u{fdd0}'..='\u{fdef}'
    ) || u32::from(character) & 0xfffe == 0xfffe
        || is_blank(character)
}

/// Whether `character` is a letter or symbol whose glyph is empty by its definition.
fn is_blank(character: char) -> bool {
    matches!(
        character,
        '\u{2800}' // a braille cell with no dot
        | '\u{fffc}' // the place of an object that plain text does not have
        | '\u{13441}'
            ..='\u{13442}' // a lost hieroglyph
        | '\u{16fe4}' // fills the first place of a Khitan cluster
        | '\u{1d159}' // a note without a head
    )
}

/// The Windows device that `name` opens, whatever directory or extension it is given.
///
/// Windows cuts at the first dot, then drops blanks, and takes the superscripts of Latin-1 for digits.
pub(super) fn device(name: &str) -> Option<&str> {
    let stem = name.split('.').next().unwrap_or(name).trim_end_matches(' ');
    let plain = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    if plain.iter().any(|device| stem.eq_ignore_ascii_case(device)) {
        return Some(stem);
    }
    let (port, number) = stem.split_at_checked(3)?;
    let mut digits = number.chars();
    let is_port = ["COM", "LPT"].iter().any(|device| port.eq_ignore_ascii_case(device));
    match (is_port, digits.next(), digits.next()) {
        (true, Some('0'..='9' | '¹' | '²' | '³'), None) => Some(stem),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_are_the_bytes_of_ascii_that_break_no_rule() {
        for byte in 0..=u8::MAX {
            let allowed = byte.is_ascii() && rule_broken_by(char::from(byte)).is_none();
            assert_eq!(is_plain(byte), allowed, "{byte:#x}");
        }
    }
}
