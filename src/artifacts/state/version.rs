//! Which version of an object is meant, and how it is written down: each as one word, without a blank and without a newline.

use std::fmt::Write as _;

use crate::artifacts::store::same_version;
use crate::tree::Digest;

/// Which version of an object is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) etag: Option<Box<str>>,
    /// When it was put; only where the ETag says less than that.
    pub(crate) put_at: Option<PutAt>,
}

/// When an object was put, in seconds by the clock of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutAt {
    /// Then, as a listing says.
    Exactly(i64),
    /// Then or before, since it was answered then.
    By(i64),
    /// Then, as a listing says, which is so short ago that it may be put again in the same second.
    Just(i64),
}

impl Version {
    /// A version of which only the ETag is known.
    pub(crate) fn of(etag: Option<impl Into<Box<str>>>) -> Self {
        Self { etag: etag.map(Into::into), put_at: None }
    }

    /// Whether a version that was listed is this one.
    pub(crate) fn is(&self, listed: &Self) -> bool {
        let same_time = match (self.put_at, listed.put_at) {
            (Some(PutAt::By(latest)), Some(PutAt::Exactly(time) | PutAt::Just(time))) => time <= latest,
            (Some(PutAt::Exactly(known)), Some(PutAt::Exactly(time) | PutAt::Just(time))) => known == time,
            (known, listed) => known.is_none() && listed.is_none(),
        };
        same_time && self.same_bytes(listed)
    }

    /// Whether both have the same ETag, so that they hold the same bytes. Without ETags nobody can know.
    pub(crate) fn same_bytes(&self, other: &Self) -> bool {
        match (&self.etag, &other.etag) {
            (Some(one), Some(two)) => same_version(one, two),
            _ => false,
        }
    }
}

/// When an object was put, as one word.
pub(super) fn encode_time(put_at: Option<PutAt>) -> String {
    match put_at {
        Some(PutAt::By(time)) => format!("<{time}"),
        Some(PutAt::Exactly(time)) => time.to_string(),
        Some(PutAt::Just(_)) | None => "-".to_owned(),
    }
}

/// None if the word is no time; that of nothing is none, too.
#[allow(clippy::option_option)]
pub(super) fn decode_time(word: &str) -> Option<Option<PutAt>> {
    match word.strip_prefix('<') {
        Some(digits) => Some(Some(PutAt::By(digits.parse().ok()?))),
        None => Some(decode_number(word)?.map(PutAt::Exactly)),
    }
}

/// A number as one word.
pub(super) fn encode_number(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// None if the word is no number; that of nothing is none, too.
#[allow(clippy::option_option)]
pub(super) fn decode_number<N: std::str::FromStr>(word: &str) -> Option<Option<N>> {
    match word {
        "-" => Some(None),
        digits => digits.parse().ok().map(Some),
    }
}

/// A version as one word.
pub(crate) fn encode_version(etag: Option<&str>) -> String {
    let mut word = String::new();
    match etag {
        Some(etag) => escape(etag, &mut word),
        None => word.push('-'),
    }
    word
}

/// None if the word is no version; that of an object that has none is none, too.
#[allow(clippy::option_option)]
pub(crate) fn decode_version(word: &str) -> Option<Option<Box<str>>> {
    match word {
        "-" => Some(None),
        escaped => unescape(escaped).map(|etag| Some(etag.into())),
    }
}

pub(crate) fn unhex(text: &str) -> Option<Digest> {
    if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut digest = [0; 32];
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Makes `text` printable, without white space, and never `-` alone.
pub(super) fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'!'..=b'$' | b'&'..=b',' | b'.'..=b'~' => out.push(char::from(byte)),
            other => {
                let _ = write!(out, "%{other:02x}");
            }
        }
    }
    // A word has at least one character.
    if text.is_empty() {
        out.push('%');
    }
}

pub(super) fn unescape(text: &str) -> Option<String> {
    if text == "%" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = tail.get(2..)?;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}
