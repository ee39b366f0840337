//! One line of text per file, in the host's own state: what was fetched, published or mirrored.
//!
//! The fields hold no tab and no newline: a [`SafePath`] has no control characters, and a version is escaped.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::entropy::hex;
use crate::name::SafePath;
use crate::root::Metadata;

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

/// What a file looked like: any change to the file changes one of these, except within one tick of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    /// Nanoseconds since the epoch.
    pub(crate) modified: i128,
    pub(crate) changed: i128,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.len(),
            modified: nanoseconds(metadata.modified()),
            changed: nanoseconds(metadata.changed()),
        }
    }
}

pub(crate) fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanos| -nanos),
    }
}

/// A file and the object that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) path: SafePath,
    pub(crate) size: u64,
    pub(crate) etag: Option<Box<str>>,
    pub(crate) digest: Digest,
    /// What the local file looked like when it was last known to hold this content.
    pub(crate) stamp: Option<Box<Stamp>>,
}

impl Record {
    pub(crate) fn write_line(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{}\t", self.size);
        match &self.etag {
            Some(etag) => escape(etag, out),
            None => out.push('-'),
        }
        out.push('\t');
        out.push_str(&hex(self.digest));
        let _ = match &self.stamp {
            Some(s) => write!(out, "\t{} {} {} {} {}", s.dev, s.ino, s.size, s.modified, s.changed),
            None => write!(out, "\t-"),
        };
        let _ = writeln!(out, "\t{}", self.path.as_str());
    }

    /// The inverse of [`write_line`](Self::write_line), without the newline.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, '\t');
        let size = fields.next()?.parse().ok()?;
        let etag = match fields.next()? {
            "-" => None,
            escaped => Some(unescape(escaped)?.into()),
        };
        let digest = unhex(fields.next()?)?;
        let stamp = match fields.next()? {
            "-" => None,
            numbers => Some(Box::new(parse_stamp(numbers)?)),
        };
        Some(Self { path: SafePath::new(fields.next()?).ok()?, size, etag, digest, stamp })
    }
}

fn parse_stamp(numbers: &str) -> Option<Stamp> {
    let mut parts = numbers.split(' ');
    let stamp = Stamp {
        dev: parts.next()?.parse().ok()?,
        ino: parts.next()?.parse().ok()?,
        size: parts.next()?.parse().ok()?,
        modified: parts.next()?.parse().ok()?,
        changed: parts.next()?.parse().ok()?,
    };
    if parts.next().is_some() { None } else { Some(stamp) }
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
pub(crate) fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'!'..=b'$' | b'&'..=b',' | b'.'..=b'~' => out.push(char::from(byte)),
            other => {
                let _ = write!(out, "%{other:02x}");
            }
        }
    }
}

pub(crate) fn unescape(text: &str) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn line_is_read_back_as_it_was(
            path in "[a-z é%+-]{0,5}[a-z]",
            size in any::<u64>(),
            etag in proptest::option::of("\\PC{0,12}|[\t\n -]{1,3}"),
            digest in any::<[u8; 32]>(),
            modified in proptest::option::of(any::<i64>()),
        ) {
            let Ok(path) = SafePath::new(&path) else { return Ok(()) };
            let stamp = modified.map(|modified| {
                Box::new(Stamp { dev: 1, ino: size, size, modified: modified.into(), changed: -1 })
            });
            let record = Record { path, size, etag: etag.map(Into::into), digest, stamp };
            let mut line = String::new();
            record.write_line(&mut line);
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert_eq!(Record::parse(line.trim_end_matches('\n')), Some(record));
        }

        #[test]
        fn damaged_line_is_no_record_and_no_panic(line in "\\PC{0,80}|[0-9]\t-\t[0-9a-f]{64}\t[-0-9 ]{0,9}\t\\PC{0,9}") {
            let _ = Record::parse(&line);
        }
    }
}
