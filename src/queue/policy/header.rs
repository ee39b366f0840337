//! Which headers of a request reach the handler.
//!
//! Problem: a guest forges headers that a service trusts, such as `authorization`, `host` or `x-forwarded-for`, or hides a second
//! header in a value by a line break, or by `U+010D U+010A`, which is one for a handler that writes one byte per character.
//!
//! Defence: a list of names that are allowed; everything else is dropped, and so is a value that is not visible ASCII and spaces.
//!
//! What remains: the values of allowed headers are the guest's.

/// The headers that a request may have; by default `accept`, `content-type`, `if-match` and `if-none-match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRules {
    /// In lower case.
    allowed: Vec<String>,
}

impl Default for HeaderRules {
    fn default() -> Self {
        Self::new(["accept", "content-type", "if-match", "if-none-match"])
    }
}

impl HeaderRules {
    /// Allows these names and no others, in any case.
    #[must_use]
    pub fn new<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { allowed: names.into_iter().map(|name| name.as_ref().to_ascii_lowercase()).collect() }
    }

    /// The headers that are allowed, in their order, with names in lower case.
    ///
    /// A name may be there more than once. Whoever checks one of its values must check the one that the handler reads.
    ///
    /// ```
    /// use beneath::queue::policy::HeaderRules;
    ///
    /// let raw = [("Accept", "text/plain"), ("Authorization", "x"), ("if-match", "a\r\nhost: b")];
    /// assert_eq!(HeaderRules::default().filter(raw), [("accept".to_owned(), "text/plain".to_owned())]);
    /// ```
    #[must_use]
    pub fn filter<'h>(&self, raw: impl IntoIterator<Item = (&'h str, &'h str)>) -> Vec<(String, String)> {
        raw.into_iter()
            .filter(|(_, value)| value.bytes().all(|byte| matches!(byte, b' '..=b'~')))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .filter(|(name, _)| self.allowed.contains(name))
            .collect()
    }
}
