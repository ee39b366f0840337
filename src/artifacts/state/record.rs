//! One line of text per object, in the host's own state: what was fetched.
//!
//! The fields hold no blank and no newline: a path is in hexadecimal digits, and a version is escaped.

use std::fmt::Write as _;

use super::base::FileId;
use super::version::{
    Version, decode_number, decode_time, decode_version, encode_number, encode_time, encode_version,
};
use crate::name::GuestPath;
use crate::tree::{Leaf, decode_path, encode_path};

/// An object that may come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) path: GuestPath,
    pub(crate) size: u64,
    pub(crate) version: Version,
    /// The mode of its file, if the object does not say it.
    pub(crate) mode: Option<u32>,
}

/// An object that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) path: GuestPath,
    pub(crate) leaf: Leaf,
    pub(crate) version: Version,
    /// The mode that it says its file has.
    pub(crate) mode: Option<u32>,
    /// Which file was made of it, with which mode. Not part of the line: whoever reads that must look.
    pub(crate) file: Option<(FileId, u32)>,
}

impl Record {
    pub(crate) fn write_line(&self, out: &mut String) {
        let Self { path, leaf, version, mode, file: _ } = self;
        let (etag, put_at) = (encode_version(version.etag.as_deref()), encode_time(version.put_at));
        let (leaf, mode) = (leaf.encode(), encode_number(*mode));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{leaf} {etag} {put_at} {mode} {}", encode_path(path));
    }

    /// The inverse of [`write_line`](Self::write_line), without the newline.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let leaf = Leaf::decode(&mut words)?;
        let etag = decode_version(words.next()?)?;
        let version = Version { etag, put_at: decode_time(words.next()?)? };
        let mode = decode_number(words.next()?)?;
        let path = decode_path(words.next()?).filter(|path| !path.is_top())?;
        words.next().is_none().then_some(Self { path, leaf, version, mode, file: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::version::PutAt;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn line_is_read_back_as_it_was(
            path in proptest::collection::vec(any::<u8>(), 1..9),
            leaf in prop_oneof![
                (any::<u64>(), any::<[u8; 32]>(), any::<bool>())
                    .prop_map(|(bytes, sha256, execute)| Leaf::File { bytes, sha256, execute }),
                proptest::collection::vec(any::<u8>(), 1..9).prop_map(|text| Leaf::Link { text }),
            ],
            put_at in proptest::option::of((any::<bool>(), any::<i64>()).prop_map(|(exactly, time)| match exactly {
                true => PutAt::Exactly(time),
                false => PutAt::By(time),
            })),
            mode in proptest::option::of(0_u32..=0o777),
            etag in proptest::option::of("\\PC{0,12}|[\t\n -]{1,3}"),
        ) {
            let Ok(path) = GuestPath::try_from(path.as_slice()) else { return Ok(()) };
            let version = Version { etag: etag.map(Into::into), put_at };
            let record = Record { path, leaf, version, mode, file: None };
            let mut line = String::new();
            record.write_line(&mut line);
            prop_assert_eq!(line.matches('\n').count(), 1);
            let read = Record::parse(line.trim_end_matches('\n'));
            prop_assert!(record.path.is_top() || read == Some(record));
        }

        #[test]
        fn damaged_line_is_no_record_and_no_panic(line in "\\PC{0,80}|[fxld] [0-9] [0-9a-f]{64} - - - [0-9a-f]{0,9}") {
            let _ = Record::parse(&line);
        }
    }
}
