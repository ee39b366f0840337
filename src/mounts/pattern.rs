//! Patterns for one component of a path.
//!
//! Problem: a pattern over a whole path matches what nobody meant: `credentials` blocks `my-credentials-doc/plan.md`, and a prefix
//! `skills` blocks `skillsX`. A full language of patterns is more than anybody reads correctly.
//!
//! Defence: a pattern is compared with one component, case folded for ASCII, and has one of four forms: `name`, `prefix*`,
//! `*suffix`, `*part*`.
//!
//! What remains: letters that only a file system folds, such as `ſ`, are compared as they are.

use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "read pattern";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Name,
    Prefix,
    Suffix,
    Part,
}

/// A list of patterns, each for one component of a path: `name`, `prefix*`, `*suffix` or `*part*`, ASCII case folded.
///
/// ```
/// use beneath::mounts::NamePatterns;
///
/// let patterns = NamePatterns::new(["credentials", "id_*", "*.pem"])?;
/// assert!(patterns.matches("Credentials") && patterns.matches("id_rsa") && patterns.matches("a.pem"));
/// assert!(!patterns.matches("my-credentials-doc"));
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePatterns(Vec<(Form, String)>);

impl NamePatterns {
    /// Reads one pattern per item.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) for one that is empty, has nothing but stars, a star in the middle, a slash or a
    /// NUL.
    pub fn new<P: AsRef<str>>(patterns: impl IntoIterator<Item = P>) -> Result<Self> {
        patterns.into_iter().map(|pattern| read(pattern.as_ref())).collect::<Result<_>>().map(Self)
    }

    /// Whether one of them matches the component.
    #[must_use]
    pub fn matches(&self, component: &str) -> bool {
        let name = component.to_ascii_lowercase();
        self.0.iter().any(|(form, text)| match form {
            Form::Name => name == *text,
            Form::Prefix => name.starts_with(text),
            Form::Suffix => name.ends_with(text),
            Form::Part => name.contains(text),
        })
    }
}

fn read(pattern: &str) -> Result<(Form, String)> {
    let refuse = |why| Err(Error::new(OPERATION, pattern, ErrorKind::InvalidData).with_detail(why));
    let (front, rest) = pattern.strip_prefix('*').map_or((false, pattern), |rest| (true, rest));
    let (back, text) = rest.strip_suffix('*').map_or((false, rest), |text| (true, text));
    if text.is_empty() {
        return refuse("has no text");
    }
    if text.contains('*') {
        return refuse("has a star in the middle");
    }
    if text.contains(['/', '\0']) {
        return refuse("is more than one component");
    }
    let form = match (front, back) {
        (false, false) => Form::Name,
        (false, true) => Form::Prefix,
        (true, false) => Form::Suffix,
        (true, true) => Form::Part,
    };
    Ok((form, text.to_ascii_lowercase()))
}

/// Names that are blocked, but for those that are excepted.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocked {
    pub(super) block: NamePatterns,
    pub(super) except: NamePatterns,
}

impl Blocked {
    /// Whether one of the components is blocked.
    pub(super) fn blocks<'a>(&self, components: impl IntoIterator<Item = &'a str>) -> bool {
        components.into_iter().any(|name| self.block.matches(name) && !self.except.matches(name))
    }
}
