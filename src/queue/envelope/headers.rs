//! Headers of a request or an answer.

use super::limits::EnvelopeLimits;
use super::malformed::Malformed;

/// Names and values in their order; names are tokens in lower case, values have no control characters. A name may repeat.
///
/// ```
/// use beneath::queue::Headers;
///
/// let mut headers = Headers::new();
/// headers.add("Content-Type", "text/plain")?;
/// assert_eq!(headers.get("content-type"), Some("text/plain"));
/// assert!(headers.add("x", "a\r\nhost: b").is_err());
/// # Ok::<(), beneath::queue::Malformed>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// No headers.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a header.
    ///
    /// # Errors
    /// [`Malformed::Header`] if the name is no token or the value has a control character other than a tab.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), Malformed> {
        let forbidden = |c: char| c.is_control() && c != '\t';
        if !is_token(name) || value.contains(forbidden) {
            return Err(Malformed::Header);
        }
        self.0.push((name.to_ascii_lowercase(), value.to_owned()));
        Ok(())
    }

    /// The first value of that name, in any case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether they are within the limits.
    pub(super) fn check(&self, limits: EnvelopeLimits) -> Result<(), Malformed> {
        let bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.len()).sum();
        match self.len() <= limits.headers() && bytes <= limits.header_bytes() {
            true => Ok(()),
            false => Err(Malformed::Headers),
        }
    }
}

/// What HTTP calls a token.
pub(super) fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}
