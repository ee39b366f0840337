//! The secret that a guest shows with its requests.
//!
//! Problem: a comparison that ends at the first difference reveals by its time how much of a guess is right.
//!
//! Defence: what is compared are SHA-256 hashes, of which a guesser controls no prefix.
//!
//! What remains: whoever reads the token has it.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};

const DIGITS: usize = 64;

/// A secret of 256 bits, as 64 hexadecimal digits. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Makes a token that nobody can guess.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) or [`Unsupported`](crate::ErrorKind::Unsupported) if the kernel gives no random bytes.
    ///
    /// ```
    /// use beneath::queue::policy::Token;
    ///
    /// let token = Token::generate()?;
    /// assert!(token.matches(token.as_str()));
    /// assert!(!token.matches(""));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn generate() -> Result<Self> {
        let half = || unguessable().map_err(|errno| Error::without_subject("generate token", errno));
        Ok(Self(half()? + &half()?))
    }

    /// Reads a token that [`generate`](Self::generate) has made, where it is checked by another process.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) for anything but 64 lower-case hexadecimal digits: a token that was lost on the way
    /// must not become one that everybody knows. The error does not show it.
    ///
    /// ```
    /// use beneath::queue::policy::Token;
    ///
    /// let token = Token::generate()?;
    /// assert!(Token::parse(token.as_str())?.matches(token.as_str()));
    /// assert!(Token::parse("").is_err());
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn parse(raw: &str) -> Result<Self> {
        if raw.len() == DIGITS && raw.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(Self(raw.to_owned()));
        }
        Err(Error::new("read token", "", ErrorKind::InvalidData).with_detail("not 64 hexadecimal digits"))
    }

    /// The token itself, for the guest that may use it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `raw` is this token.
    #[must_use]
    pub fn matches(&self, raw: &str) -> bool {
        Sha256::digest(&self.0) == Sha256::digest(raw)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
