//! What an object says of its file besides the bytes.
//!
//! Problem: a store keeps bytes under a key. Kind, mode and time of a file are lost there, and the tools that keep them do not agree
//! how.
//!
//! Defence: they are written as most tools read them, and read in every spelling that is known. What cannot be understood counts as
//! not said. Only permission bits count: a store gives nobody a set-id bit.
//!
//! | | S3 and others | GCS | Azure |
//! |---|---|---|---|
//! | `mtime` | seconds, nine decimals | RFC 3339; `goog-reserved-file-mtime` in seconds | RFC 3339 |
//! | `mode` | octal, with the kind | the same; `goog-reserved-posix-mode` | the same |
//! | a link | the kind in `mode` | and `goog-reserved-file-is-symlink` | and `is_symlink` |
//! | a directory | the kind in `mode` | the same | and `hdi_isfolder` |
//! | `sha256`, `putid` | this crate's own | | |
//!
//! What remains: all of it is the claim of whoever has put the object.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};

use crate::entropy::hex;
use crate::tree::{Digest, Leaf, unhex};

const KINDS: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const DIRECTORY: u32 = 0o040_000;
const PERMISSIONS: u32 = 0o777;
/// Longest value that is looked at.
const VALUE_MAX: usize = 128;

/// What kind of entry an object represents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    #[default]
    File,
    /// A link; its text is the object's content.
    Link,
    /// A directory; it has no content.
    Directory,
}

/// What an object says of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Its permission bits.
    pub mode: Option<u32>,
    /// When it was last modified.
    pub modified: Option<SystemTime>,
    /// The hash of its content, as whoever has put it says.
    pub sha256: Option<Digest>,
    /// Which put it came by: a random text.
    pub put_id: Option<String>,
}

/// The spelling of a store's own tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    #[default]
    S3,
    #[allow(dead_code, reason = "without its feature nobody speaks it")]
    Gcs,
    #[allow(dead_code, reason = "without its feature nobody speaks it")]
    Azure,
}

impl Attributes {
    /// Nothing but that it is a file.
    pub const NONE: Self = Self { kind: Kind::File, mode: None, modified: None, sha256: None, put_id: None };

    /// Whether a file like this is what they say. A file is no program unless they say it.
    pub(crate) fn fit(&self, leaf: &Leaf) -> bool {
        match (leaf, self.kind) {
            (Leaf::File { execute, .. }, Kind::File) => {
                self.mode.is_some_and(|mode| mode & 0o100 != 0) == *execute
            }
            (Leaf::Link { .. }, Kind::Link) | (Leaf::Directory, Kind::Directory) => true,
            _ => false,
        }
    }

    /// As names and values of metadata.
    pub(crate) fn words(&self, dialect: Dialect) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        let kind = match self.kind {
            Kind::File => FILE,
            Kind::Link => LINK,
            Kind::Directory => DIRECTORY,
        };
        if let Some(mode) = self.mode {
            words.push(("mode", format!("{:o}", kind | mode)));
            if dialect == Dialect::Gcs {
                words.push(("goog-reserved-posix-mode", format!("{mode:o}")));
            }
        }
        if let Some(modified) = self.modified {
            let (seconds, nanos) = split(modified);
            match (dialect, DateTime::<Utc>::from_timestamp(seconds, nanos)) {
                (Dialect::S3, _) | (_, None) => words.push(("mtime", decimal(seconds, nanos))),
                (_, Some(time)) => words.push(("mtime", time.to_rfc3339_opts(SecondsFormat::Nanos, true))),
            }
            if dialect == Dialect::Gcs {
                words.push(("goog-reserved-file-mtime", seconds.to_string()));
            }
        }
        match (dialect, self.kind) {
            (Dialect::Gcs, Kind::Link) => words.push(("goog-reserved-file-is-symlink", "true".into())),
            (Dialect::Azure, Kind::Link) => words.push(("is_symlink", "true".into())),
            (Dialect::Azure, Kind::Directory) => words.push(("hdi_isfolder", "true".into())),
            _ => {}
        }
        words.extend(self.sha256.map(|digest| ("sha256", hex(digest))));
        words.extend(self.put_id.iter().map(|id| ("putid", id.clone())));
        words
    }

    /// From names, without the prefix that a store gives them, and values; `key` is that of the object.
    pub(crate) fn read<'w>(key: &str, words: impl IntoIterator<Item = (&'w str, &'w str)>) -> Self {
        let mut read = Self::default();
        let is_directory = key.ends_with('/');
        let (mut reserved_mode, mut reserved_time, mut link) = (None, None, false);
        for (name, value) in words.into_iter().filter(|(_, value)| value.len() <= VALUE_MAX) {
            match name.to_ascii_lowercase().as_str() {
                "mode" => {
                    if let Some(mode) = mode(value, is_directory) {
                        read.mode = Some(mode & PERMISSIONS);
                        link |= mode & KINDS == LINK;
                    }
                }
                "goog-reserved-posix-mode" => reserved_mode = u32::from_str_radix(value, 8).ok(),
                "mtime" => read.modified = time(value),
                "goog-reserved-file-mtime" => reserved_time = time(value),
                "goog-reserved-file-is-symlink" | "is_symlink" => link |= value.eq_ignore_ascii_case("true"),
                "sha256" => read.sha256 = unhex(value).and_then(|bytes| bytes.try_into().ok()),
                "putid" => read.put_id = Some(value.to_owned()),
                _ => {}
            }
        }
        read.mode = read.mode.or(reserved_mode.map(|mode| mode & PERMISSIONS));
        read.modified = read.modified.or(reserved_time);
        read.kind = match (is_directory, link) {
            (true, _) => Kind::Directory,
            (false, true) => Kind::Link,
            (false, false) => Kind::File,
        };
        read
    }
}

/// A mode with its kind. Most write it in octal, s3fs in decimal: whichever is one that the key can have.
fn mode(value: &str, is_directory: bool) -> Option<u32> {
    let fits = |mode: &u32| match mode & KINDS {
        0 => *mode <= 0o7777,
        FILE | LINK => !is_directory,
        DIRECTORY => is_directory,
        _ => false,
    };
    let octal = u32::from_str_radix(value, 8).ok().filter(fits);
    octal.or_else(|| value.parse().ok().filter(fits))
}

/// Seconds since the epoch, with up to nine decimals, or RFC 3339.
fn time(value: &str) -> Option<SystemTime> {
    let plain = || {
        let (seconds, decimals) = value.split_once('.').unwrap_or((value, ""));
        let nanos: u32 = match decimals.len() {
            0..=9 if decimals.bytes().all(|digit| digit.is_ascii_digit()) => {
                format!("{decimals:0<9}").parse().ok()?
            }
            _ => return None,
        };
        let whole: i64 = seconds.parse().ok()?;
        let nanos = u64::from(nanos);
        join(whole, if seconds.starts_with('-') { -i128::from(nanos) } else { i128::from(nanos) })
    };
    let dated = || {
        let time = DateTime::parse_from_rfc3339(value).ok()?;
        join(time.timestamp(), i128::from(time.timestamp_subsec_nanos()))
    };
    plain().or_else(dated)
}

/// So many nanoseconds after so many seconds since the epoch, if a file can have that time.
fn join(seconds: i64, nanos: i128) -> Option<SystemTime> {
    let nanos = i128::from(seconds).checked_mul(1_000_000_000)?.checked_add(nanos)?;
    let away = nanos.unsigned_abs();
    let (seconds, nanos_after) = (away / 1_000_000_000, away % 1_000_000_000);
    let away = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos_after).ok()?);
    match nanos < 0 {
        true => UNIX_EPOCH.checked_sub(away),
        false => UNIX_EPOCH.checked_add(away),
    }
}

/// Seconds since the epoch, and nanoseconds after them.
fn split(time: SystemTime) -> (i64, u32) {
    let (away, before) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after, false),
        Err(before) => (before.duration(), true),
    };
    let (seconds, nanos) = (i64::try_from(away.as_secs()).unwrap_or(i64::MAX), away.subsec_nanos());
    match (before, nanos) {
        (false, nanos) => (seconds, nanos),
        (true, 0) => (-seconds, 0),
        (true, nanos) => (-seconds - 1, 1_000_000_000 - nanos),
    }
}

/// As a decimal number. All nine digits: some tools take them for nanoseconds as they are.
fn decimal(seconds: i64, nanos: u32) -> String {
    match seconds < 0 && nanos > 0 {
        true => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos),
        false => format!("{seconds}.{nanos:09}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(key: &str, words: &[(&str, &str)]) -> Attributes {
        Attributes::read(key, words.iter().copied())
    }

    #[test]
    fn other_tools_are_understood() {
        let cases: [(&str, &str, Kind, Option<u32>); 13] = [
            ("a", "100644", Kind::File, Some(0o644)),
            ("a", "33188", Kind::File, Some(0o644)),
            ("a", "755", Kind::File, Some(0o755)),
            ("a", "104755", Kind::File, Some(0o755)),
            ("a", "120777", Kind::Link, Some(0o777)),
            ("a", "41471", Kind::Link, Some(0o777)),
            ("d/", "40750", Kind::Directory, Some(0o750)),
            ("d/", "16877", Kind::Directory, Some(0o755)),
            ("d/", "100644", Kind::Directory, None),
            ("a", "60644", Kind::File, None),
            ("a", "-1", Kind::File, None),
            ("a", "99999999999", Kind::File, None),
            ("a", "rwx", Kind::File, None),
        ];
        for (key, value, kind, mode) in cases {
            let read = of(key, &[("Mode", value)]);
            assert_eq!((read.kind, read.mode), (kind, mode), "{key} {value}");
        }
        for link in [("goog-reserved-file-is-symlink", "true"), ("is_symlink", "True")] {
            assert_eq!(of("a", &[link]).kind, Kind::Link);
            assert_eq!(of("a/", &[link]).kind, Kind::Directory);
        }
        let reserved = of("a", &[("goog-reserved-posix-mode", "640"), ("goog-reserved-file-mtime", "7")]);
        assert_eq!((reserved.mode, reserved.modified), (Some(0o640), join(7, 0)));
    }

    #[test]
    fn times_are_read_in_every_spelling() {
        let at = |seconds, nanos| join(seconds, nanos);
        let cases = [
            ("1700000000", at(1_700_000_000, 0)),
            ("1700000000.5", at(1_700_000_000, 500_000_000)),
            ("1700000000.000000001", at(1_700_000_000, 1)),
            ("-1.5", at(-2, 500_000_000)),
            ("-0.5", at(-1, 500_000_000)),
            ("2023-11-14T22:13:20.000000001Z", at(1_700_000_000, 1)),
            ("2023-11-14T22:13:20Z", at(1_700_000_000, 0)),
            ("1.0000000001", None),
            ("1.-5", None),
            ("", None),
            ("yesterday", None),
            ("9223372036854775808", None),
        ];
        for (value, time) in cases {
            assert_eq!(of("a", &[("mtime", value)]).modified, time, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            kind in 0..3,
            mode in proptest::option::of(0_u32..=0o777),
            time in proptest::option::of((-4_000_000_000_i64..40_000_000_000, 0_u32..1_000_000_000)),
            sha256 in proptest::option::of(any::<[u8; 32]>()),
            put_id in proptest::option::of("[0-9a-f]{32}"),
            dialect in 0..3,
        ) {
            let kind = [Kind::File, Kind::Link, Kind::Directory][kind as usize];
            // Without a mode only a marker of the store says that it is a link.
            let mode = if kind == Kind::Link { Some(mode.unwrap_or(0o777)) } else { mode };
            let modified = time.and_then(|(seconds, nanos)| join(seconds, i128::from(nanos)));
            let written = Attributes { kind, mode, modified, sha256, put_id };
            let key = if kind == Kind::Directory { "d/" } else { "d" };
            let dialect = [Dialect::S3, Dialect::Gcs, Dialect::Azure][dialect as usize];
            let words = written.words(dialect);
            prop_assert!(words.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() < 400);
            let read = Attributes::read(key, words.iter().map(|(name, value)| (*name, value.as_str())));
            prop_assert_eq!(read, written);
        }

        #[test]
        fn any_words_are_read_without_harm(words in proptest::collection::vec(("\\PC{0,40}|mode|mtime", "\\PC{0,40}|[0-9.-]{0,30}"), 0..6)) {
            let read = Attributes::read("a", words.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            prop_assert!(read.mode.is_none_or(|mode| mode <= 0o777));
        }
    }
}
